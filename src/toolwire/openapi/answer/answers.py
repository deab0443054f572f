"""Turn answers of an API into tool results, by status, media type and schema.

APIs answer what their descriptions do not say. So the schema of an answer is a hint and never a reason to fail. The
text of a result is the whole answer, and so is its structured content: the published schema takes any member. A
difference to the description is marked in `_meta`, counted, and logged once (`output="strict"` makes it an error).
Where a schema that was locked earlier has types, the part that fits it is sent, and what is left out is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire import schemas
from toolwire.openapi.answer.answer_drift import AnswerDrift, difference
from toolwire.openapi.answer.left_out import DRIFT, OmittedParts, with_members
from toolwire.openapi.calling import After, AnswerReader, ApiExchange, Before, CalledOperation, Prepare
from toolwire.openapi.request.parameters import is_json
from toolwire.printable import printable_lines
from toolwire.protocol import types as t
from toolwire.server.deep_results import NOTE, is_deep
from toolwire.server_texts import ServerTexts

if TYPE_CHECKING:
    from toolwire.openapi.model import Output
    from toolwire.schemas import Validator

#: How many bytes of an answer are read, unless the settings say otherwise.
MAX_BYTES: Final = 2_000_000
#: How many bytes of the answer to a failed request are read, and how many characters of them are shown.
ERROR_BYTES: Final = 64 * 1024
ERROR_CHARACTERS: Final = 1_000
_MANY_MEDIA_TYPES: Final = 64
_MAX_PROBLEMS: Final = 20
_MAX_REMOVED: Final = 200
_TEXT: Final = frozenset({"", "application/xml", "application/yaml", "application/x-yaml", "application/javascript"})
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_LOOKS_LIKE_HTML: Final = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
# Python knows more encodings than there are in the world of HTTP, some of which take long.
_CHARSET: Final = re.compile(
    r"charset\s*=\s*\"?(utf-?(?:8|16|32)|(?:us-)?ascii|iso-8859-\d+|windows-125\d|shift_jis|euc-(?:jp|kr)|gb\w+|big5|koi8-\w)\b",
    re.IGNORECASE,
)
_BOM: Final = b"\xef\xbb\xbf"

_decode = msgspec.json.Decoder().decode
_as_raw = msgspec.json.Decoder(Raw).decode

#: Makes a result of a whole body.
BodyReader: TypeAlias = Callable[[ApiExchange, bytes], Awaitable[t.CallToolResult]]


class AnswerParts(Struct, kw_only=True):
    """Readers of an operation's answers, beside plain JSON and text.

    They are chosen when its tool is made.
    """

    prepare: Prepare | None = None
    before: Before | None = None
    statuses: Mapping[int, AnswerReader] = {}
    """Readers for single statuses, such as 202."""
    media_types: Mapping[str, AnswerReader] = {}
    """Readers for `text/event-stream`, `image/*`, or `*/*`: everything that is neither JSON nor text."""
    json: BodyReader | None = None
    text: BodyReader | None = None
    too_large: BodyReader | None = None
    """The reader of a body that is longer than `max_bytes`. It gets the beginning; the answer is still open."""
    after: After | None = None


class ApiAnswers:
    """The reader of the answers of one operation.

    * `published`: the output schema of the tool; None for none.
    * `true`: the schema of the description, to which answers are compared.
    """

    def __init__(
        self,
        operation: CalledOperation,
        *,
        tool: str,
        published: dict[str, Any] | None = None,
        true: dict[str, Any] | None = None,
        output: Output = "advertise-loose",
        max_bytes: int = MAX_BYTES,
        drift: AnswerDrift | None = None,
    ) -> None:
        self.operation = operation
        self.max_bytes = max_bytes
        self._tool = tool
        self._schema = published
        self._validator: Validator | None = None
        self._is_strict = output == "strict"
        self._drift = None if drift is None or true is None else drift.for_operation(operation.name, true)
        self._parts = AnswerParts()
        self._readers: dict[str, AnswerReader] = {}

    def use(self, parts: AnswerParts) -> None:
        """Set the parts that this operation has."""
        self._parts = parts
        self._readers = {}

    async def read(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a result of an answer, by its status and its media type."""
        answer = exchange.answer
        status = answer.status
        if self._parts.statuses and (reader := self._parts.statuses.get(status)) is not None:
            return await reader(exchange)
        if not 200 <= status < 300:
            return await self._failed(exchange)
        media_type = answer.media_type
        reader = self._readers.get(media_type)
        if reader is None:
            reader = self._chosen(media_type)
            if len(self._readers) < _MANY_MEDIA_TYPES:
                self._readers[media_type] = reader
        return await reader(exchange)

    def _chosen(self, media_type: str) -> AnswerReader:
        named = self._parts.media_types
        own = named.get(media_type) or named.get(f"{media_type.partition('/')[0]}/*")
        if own is not None:
            return own
        if is_json(media_type):
            return self._json
        if media_type.startswith("text/") or media_type in _TEXT or media_type.endswith("+xml"):
            return self._text
        return named.get("*/*") or self._other

    # --- bodies of a success ---

    async def _json(self, exchange: ApiExchange) -> t.CallToolResult:
        data, is_whole = await exchange.read(self.max_bytes)
        return await self._json_body(exchange, data) if is_whole else await self._too_large(exchange, data)

    async def _json_body(self, exchange: ApiExchange, data: bytes) -> t.CallToolResult:
        data = data.removeprefix(_BOM)
        if self._parts.json is not None and data:
            return await self._parts.json(exchange, data)
        return self.json_result(exchange, data)

    async def _text(self, exchange: ApiExchange) -> t.CallToolResult:
        data, is_whole = await exchange.read(self.max_bytes)
        if not is_whole:
            return await self._too_large(exchange, data)
        is_promised = self._schema is not None or not exchange.answer.media_type
        if is_promised and data.removeprefix(_BOM).lstrip()[:1] in (b"{", b"["):
            return await self._json_body(exchange, data)  # Many servers write JSON and call it text.
        if self._parts.text is not None and data:
            return await self._parts.text(exchange, data)
        return self.text_result(exchange, data)

    async def _other(self, exchange: ApiExchange) -> t.CallToolResult:
        """Answer for a media type that nothing reads: say what came."""
        media_type = exchange.answer.media_type
        data, is_whole = await exchange.read(self.max_bytes)
        if not data:
            return self.text_result(exchange, b"")
        size = f"{len(data)}" if is_whole else f"more than {self.max_bytes}"
        return self._result(
            f"{self.operation.name} answered {size} bytes of {media_type}, which cannot be shown", UNSET, ()
        )

    async def _too_large(self, exchange: ApiExchange, beginning: bytes) -> t.CallToolResult:
        if self._parts.too_large is not None:
            return await self._parts.too_large(exchange, beginning)
        text = f"The answer of {self.operation.name} has more than {self.max_bytes} bytes. Ask for less."
        return t.CallToolResult(content=[t.TextContent(text)], is_error=True)

    def json_result(
        self,
        exchange: ApiExchange,
        data: bytes,
        value: Any = UNSET,
        *,
        shown: Any = UNSET,
        notes: Sequence[Any] = (),
        left_out: OmittedParts | None = None,
    ) -> t.CallToolResult:
        """Make a result of a JSON answer.

        `value` is the answer, where it is decoded already. `shown` is what the model gets in place of it, such as a
        part of it. `notes` are content blocks that follow. `left_out` has the parts that `shown` does not have.
        """
        if not data.strip():
            return self.text_result(exchange, b"", notes=notes)
        try:
            text = data.decode()
            if value is UNSET and (self._schema is not None or self._drift is not None):
                value = _decode(data)
            written = _as_raw(data) if value is UNSET else Raw(data.strip())
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            # The body is not what its media type says.
            return self.text_result(exchange, data, notes=notes)
        if shown is not UNSET:
            encoded = msgspec.json.encode(shown)
            text, written = encoded.decode(), Raw(encoded)
        places = [] if self._drift is None else self._drift.compare(value, data)
        result = self._checked(text, value if shown is UNSET else shown, written, notes, left_out)
        if places:
            result.meta = with_members(result.meta, {DRIFT: places})
        return result

    def text_result(self, exchange: ApiExchange, data: bytes, *, notes: Sequence[Any] = ()) -> t.CallToolResult:
        """Make a result of a text. An empty one says that the call succeeded."""
        answer = exchange.answer
        text = text_of(data, answer.header("content-type") or "") if data else ""
        if not text.strip():
            text = f"{self.operation.name} succeeded ({answer.status}), and the answer has no content."
            empty = UNSET
            if self._schema is not None:
                empty = empty_part(self._validator or self._compiled(self._schema))
            return self._result(text, empty, notes)
        if self._schema is None:
            return self._result(text, UNSET, notes)
        if self._drift is not None:
            self._drift.found("it is not JSON")
        return self._checked(text, text, None, notes)

    def preview(
        self, shown: Any, notes: Sequence[Any] = (), left_out: OmittedParts | None = None, content: Sequence[Any] = ()
    ) -> t.CallToolResult:
        """Make a result of a part of an answer, without comparing it to a schema.

        A text that is not JSON is a `str`. `left_out` has the parts of the answer that `shown` does not have. `content`
        are blocks that stand for the answer, such as an image, in place of a text.
        """
        if isinstance(shown, str):
            text, written = shown, None
        else:
            encoded = msgspec.json.encode(shown)
            text, written = encoded.decode(), Raw(encoded)
        left_out = left_out or OmittedParts()
        blocks = [*content, *([t.TextContent(text)] if text else ()), *notes]
        if self._schema is None:
            structured = UNSET if written is None else written
            return left_out.mark(t.CallToolResult(content=blocks, structured_content=structured))
        validator = self._validator or self._compiled(self._schema)
        if content:
            left_out.add(())
            structured = empty_part(validator)
        elif written is not None and validator.fits(shown, bytes(written)):
            structured = written
        else:
            structured = self._fitting(shown, validator, blocks, left_out)
        return left_out.mark(t.CallToolResult(content=blocks, structured_content=structured))

    def _checked(
        self,
        text: str,
        value: Any,
        written: Raw | None,
        notes: Sequence[Any],
        left_out: OmittedParts | None = None,
    ) -> t.CallToolResult:
        """Make a result whose structured content fits the published schema.

        `written` is None for what is not JSON. 2025-06-18 server/tools onwards: with an output schema, a success has
        structured content that fits. Clients refuse any other. So the part that fits is sent, what is left out is
        named, and the text has everything.
        """
        left_out = left_out or OmittedParts()
        if self._schema is None:
            return left_out.mark(self._result(text, UNSET if written is None else written, notes))
        validator = self._validator or self._compiled(self._schema)
        if written is not None and is_deep(written) and (empty := empty_part(validator)) is not UNSET:
            left_out.add(())
            return left_out.mark(self._result(text, empty, [*notes, t.TextContent(NOTE)]))
        if written is not None and validator.fits(value, bytes(written)):
            return left_out.mark(self._result(text, written, notes))
        if self._is_strict:
            problems = [] if written is None else validator.check(value, bytes(written))
            lines = [difference(each) for each in problems[:_MAX_PROBLEMS]] or ["It is not JSON."]
            told = "\n".join(
                [f"The answer of {self.operation.name} does not fit its description.", *lines, "The answer is:", text]
            )
            return left_out.mark(t.CallToolResult(content=[t.TextContent(told), *notes], is_error=True))
        blocks = [t.TextContent(text), *notes]
        structured = self._fitting(value, validator, blocks, left_out)
        return left_out.mark(t.CallToolResult(content=blocks, structured_content=structured))

    def _fitting(self, value: Any, validator: Validator, blocks: list[Any], left_out: OmittedParts) -> Any:
        """Return the fitting part of a value. Name the rest in the content."""
        removed = OmittedParts()
        structured = fitting_part(value, validator, removed)
        if removed:
            left_out.update(removed)
            what = removed.in_words() or "all of it"
            blocks.append(t.TextContent(f"[Left out of the structured content, which cannot carry it: {what}.]"))
        return structured

    def _result(self, text: str, structured: Any, notes: Sequence[Any]) -> t.CallToolResult:
        return t.CallToolResult(content=[t.TextContent(text), *notes], structured_content=structured)

    def _compiled(self, schema: dict[str, Any]) -> Validator:
        self._validator = schemas.compile(schema, what=f"the output schema of {self._tool!r}")
        return self._validator

    # --- failures ---

    async def _failed(self, exchange: ApiExchange) -> t.CallToolResult:
        """Make a tool error of a failed answer.

        A status of the API is not one of ours: its 401 is not about the sign-in to us.
        """
        answer = exchange.answer
        status = answer.status
        if status < 400:
            told = _redirected(status, answer.header("location"), self.operation)
            return t.CallToolResult(content=[t.TextContent(told)], is_error=True)
        data, is_whole = await exchange.read(ERROR_BYTES)
        said = _credentials_of(exchange).hide(_said(data, answer.header("content-type") or ""))
        left_out = OmittedParts()
        if data and (not said or not is_whole or len(said) > ERROR_CHARACTERS):
            left_out.add(())
        if len(said) > ERROR_CHARACTERS or (said and not is_whole):
            said = f"{said[:ERROR_CHARACTERS]}…\n[The answer is longer. The rest is left out.]"
        lines = [f"{self.operation.name} answered {status} {_phrase(status)}".rstrip() + (f": {said}" if said else "")]
        meta: dict[str, Any] = {}
        if status == 401:
            lines.append(
                "The API did not take the credentials for it."
                if exchange.credentials is not None
                else "The API asks for a sign-in, and this server has no credentials for it."
            )
            lines.append("This concerns the API, not the sign-in to this server.")
        elif status == 403:
            lines.append("The account that is used at the API may not do this.")
        elif status in (429, 503) and (later := answer.retry_after) is not None:
            meta["toolwire/retryAfterMs"] = math.ceil(later * 1000)
            lines.append(f"Try again in {math.ceil(later)} seconds.")
        result = t.CallToolResult(content=[t.TextContent("\n".join(lines))], is_error=True, meta=meta or UNSET)
        return left_out.mark(result)


def _credentials_of(exchange: ApiExchange) -> ServerTexts:
    """Return what masks the credentials of a request that an API quotes in an error."""
    plain, signed = exchange.request, exchange.signed
    texts = ServerTexts()
    added = {name: value for name, value in signed.headers.items() if plain.headers.get(name) != value}
    texts.note_signature(added)
    texts.note(each.partition("=")[2] for each in added.get("cookie", "").split("; "))
    if signed.url != plain.url:
        known = parse_qsl(urlsplit(plain.url).query)
        texts.note(value for each in parse_qsl(urlsplit(signed.url).query) if each not in known for value in each[1:])
    return texts


def _redirected(status: int, location: str | None, operation: CalledOperation) -> str:
    if operation.is_read:
        return f"{operation.name} answered {status}, a redirect that is not followed."
    return (
        f"{operation.name} answered {status}, a redirect, which is not followed for a write. "
        "The write may have been carried out: look before you call it again."
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def text_of(data: bytes, content_type: str) -> str:
    """Decode a body in the encoding of its content type, or in UTF-8."""
    charset = _CHARSET.search(content_type)
    try:
        return data.removeprefix(_BOM).decode(charset[1] if charset is not None else "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _said(data: bytes, content_type: str) -> str:
    """Return the message of a failure: a problem (RFC 9457) or a text.

    The caller cuts it.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if not data or media_type in _HTML:
        return ""
    if media_type == "application/problem+json" and (problem := _problem(data)):
        return problem
    if is_json(media_type) or media_type.startswith("text/") or media_type in _TEXT or media_type.endswith("+xml"):
        text = text_of(data, content_type).strip()
        return "" if _LOOKS_LIKE_HTML.match(text) else printable_lines(text)
    return ""


def _problem(data: bytes) -> str:
    """Return title, detail and errors of a problem."""
    try:
        members = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    if not isinstance(members, dict):
        return ""
    texts = [members[name] for name in ("title", "detail") if isinstance(members.get(name), str)]
    said = ": ".join(text.strip() for text in texts if text.strip())
    if members.get("errors"):
        errors = msgspec.json.encode(members["errors"]).decode()
        said = f"{said}\nerrors: {errors}" if said else f"errors: {errors}"
    return printable_lines(said)


# -- What fits --------------------------------------------------------------------------------------------------------


def fitting_part(value: Any, validator: Validator, left_out: OmittedParts) -> Any:
    """Return the part of a value that fits a schema. Add the rest to `left_out`.

    UNSET where nothing of it fits. A value that is of another type than the schema says is put under a name that the
    schema does not know, or into a list, if that fits.
    """
    kept = value
    removed: list[tuple[Any, ...]] = []
    for _ in range(_MAX_PROBLEMS):
        faults = validator.faults(kept)
        if not faults:
            break
        paths = dict.fromkeys(fault.path for fault in faults)
        if () in paths or len(paths) > _MAX_REMOVED:
            kept = {"result": value}
            removed = []
            break
        removed += [_original(path, set(removed)) for path in paths]
        kept = _without(kept, set(paths))
    for candidate in (kept, {"result": value}, [value]):
        if validator.fits(candidate):
            for path in removed if candidate is kept else ():
                left_out.add(path)
            return Raw(msgspec.json.encode(candidate))
    left_out.add(())
    return empty_part(validator)


def empty_part(validator: Validator) -> Any:
    """Return an empty object or list, whichever fits a schema; UNSET where neither does."""
    return next((Raw(text) for text, value in ((b"{}", {}), (b"[]", [])) if validator.fits(value)), UNSET)


def _original(path: tuple[Any, ...], removed: set[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Map a path in the remaining value to the whole value.

    Items move when items before them are removed.
    """
    found: tuple[Any, ...] = ()
    for step in path:
        if isinstance(step, int):
            for gone in sorted(each[-1] for each in removed if each[:-1] == found and isinstance(each[-1], int)):
                step += gone <= step
        found = (*found, step)
    return found


def _without(value: Any, paths: set[tuple[Any, ...]]) -> Any:
    """Return a copy of a value without the parts at some paths."""
    inner: dict[Any, set[tuple[Any, ...]]] = {}
    for path in paths:
        inner.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        return {
            name: _without(each, inner[name]) if name in inner else each
            for name, each in value.items()
            if () not in inner.get(name, ())
        }
    return [
        _without(each, inner[index]) if index in inner else each
        for index, each in enumerate(cast("list[Any]", value))
        if () not in inner.get(index, ())
    ]
