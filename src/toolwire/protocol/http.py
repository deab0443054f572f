"""The decision about one POST: its era, what its messages are, which of them run.

A request of 2026-07-28 is judged completely before a byte of the answer is sent, because the statuses 400 and 404 can
only be given then. What the headers repeat is checked against the body, which is what counts (2026-07-28
basic/transports/streamable-http, standard headers). `classify` does that. `classify_legacy` judges what a POST of an
earlier revision holds, in a session or without one. Both judge a message as every transport does: see `classifier`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.lazy_patterns import lazy_pattern
from toolwire.protocol import types as t
from toolwire.protocol.classifier import (
    CANCELLED,
    Cancel,
    Garbage,
    Notice,
    Send,
    classify_message,
    extension_notice,
    open_batch,
)
from toolwire.protocol.errors import (
    BAD_JSON,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
)
from toolwire.protocol.jsonrpc import (
    EXPECT_REQUESTS,
    MAX_BATCH,
    MAX_DEPTH,
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    PlainRequest,
    Request,
    RequestId,
    Response,
    decode,
    encode_batch,
    encode_error,
)
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle, decoder
from toolwire.protocol.revisions import LEGACY, MODERN
from toolwire.protocol.surrogates import refuse_surrogate

# A header by its lower-case name; a name that came twice has its values joined by this.
Headers: TypeAlias = Mapping[str, str]
DUPLICATE: Final = "\n"

VERSION: Final = "mcp-protocol-version"
SESSION: Final = "mcp-session-id"
METHOD: Final = "mcp-method"
NAME: Final = "mcp-name"
PARAMETER: Final = "mcp-param-"

# --- Values in headers -----------------------------------------------------------------------------------------------

_PREFIX, _SUFFIX = "=?base64?", "?="


def encode_value(value: str) -> str:
    """A text as a header value; XMH-4 says which texts travel as Base64."""
    plain = all(0x20 <= ord(char) <= 0x7E for char in value) and value == value.strip(" \t")
    if plain and not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    try:
        return _PREFIX + base64.b64encode(value.encode()).decode("ascii") + _SUFFIX
    except UnicodeEncodeError as error:
        raise refuse_surrogate(error) from None


@lru_cache(maxsize=1024)
def _is_plain(value: str) -> bool:
    """Return whether a header can carry the text unencoded. Cached, because the same few names come again and again."""
    return len(value) < 1024 and encode_value(value) == value


def decode_value(header: str) -> str | None:
    """The text of a header value; None for one that must be refused (XMH-6)."""
    header = header.strip(" \t")
    # Printable and ASCII is 0x20 to 0x7E.
    if not (header.isascii() and header.replace("\t", " ").isprintable()):
        return None
    if not (header.startswith(_PREFIX) and header.endswith(_SUFFIX) and len(header) >= len(_PREFIX) + len(_SUFFIX)):
        return header  # A marker in capitals or without its end is a text like any other.
    body = header[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = base64.b64decode(body, validate=True)
        text = raw.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(raw).decode("ascii") == body else None


def render_argument(value: bool | int | str) -> str:
    """An argument as a text (XMH-3)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def accepts(headers: Headers, media_type: str) -> bool:
    """Return whether a client takes an answer of this type; without the header, it does."""
    accepted = headers.get("accept", "*/*")
    # Clients send the same header with each request. A long one is not worth the memory.
    return _accepts_cached(accepted, media_type) if len(accepted) < 256 else _accepts(accepted, media_type)


def _accepts(accepted: str, media_type: str) -> bool:
    wanted = (media_type, media_type.partition("/")[0] + "/*", "*/*")
    ranges = accepted.replace(DUPLICATE, ",").lower().split(",")
    return any(each.partition(";")[0].strip() in wanted for each in ranges)


_accepts_cached: Final = lru_cache(maxsize=256)(_accepts)


# --- Which era -------------------------------------------------------------------------------------------------------


def is_modern_post(headers: Headers, body: bytes) -> bool:
    """Return whether a POST belongs to 2026-07-28 (or claims a version nobody knows) rather than to a legacy session.

    The header alone is evidence: malformed modern traffic deserves the modern error (ERA-2). So is the reserved key in
    the body, whose header may be missing or say something else (ERA-3); only in a legacy session it means nothing.
    """
    version = headers.get(VERSION)
    if version is not None:
        if version.strip(" \t") not in LEGACY:
            return True
        if SESSION in headers:
            return False
    return t.PROTOCOL_VERSION_KEY.encode() in body and _has_version(body)


class _Version(Struct):
    version: Any = msgspec.field(name=t.PROTOCOL_VERSION_KEY, default=UNSET)


class _Meta(Struct):
    meta: _Version | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Params(Struct):
    params: _Meta | UnsetType = UNSET


def _has_version(body: bytes) -> bool:
    try:
        params = decoder(_Params)(body).params
    except BAD_JSON:
        return False
    return params is not UNSET and params.meta is not UNSET and params.meta.version is not UNSET


# --- One exchange ----------------------------------------------------------------------------------------------------


class Rejection(Struct):
    """A request that is refused before it is handled."""

    status: int
    body: bytes


class Acknowledged(Struct):
    """A notification, which is answered with 202 and nothing more (HTTP-8)."""

    notice: Notice | None = None
    """The notification of an extension that the server acts on."""


Verdict: TypeAlias = Incoming | Rejection | Acknowledged

# The paths, in the arguments of a tool, of what its `x-mcp-header` annotations name.
HeaderPaths: TypeAlias = Callable[[str], Mapping[str, tuple[str, ...]]]


def classify(
    headers: Headers,
    body: bytes,
    lifecycle: ServerLifecycle,
    header_paths: HeaderPaths,
    *,
    max_depth: int = MAX_DEPTH,
) -> Verdict:
    """Judge one modern POST. `lifecycle` is a server's, already on the modern side."""
    message = decode(body, max_depth, MAX_BATCH, EXPECT_REQUESTS)
    kind = type(message)
    if kind is Notification:
        # 2026-07-28 transports: a cancellation is a closed stream, so only extensions have notifications to act on.
        return Acknowledged(extension_notice(message, lifecycle))  # type: ignore[arg-type]
    if kind is not PlainRequest and kind is not Request:
        return _not_a_request(message)
    request: Request = message  # type: ignore[assignment]
    try:
        incoming = _accepted(headers, request, lifecycle)
        if request.method == "tools/call" and (paths := header_paths(incoming.params.name)):
            _check_parameters(headers, incoming, paths)
    except ProtocolError as error:
        return rejection(request.id, error)
    return incoming


def _accepted(headers: Headers, request: Request, lifecycle: ServerLifecycle) -> Incoming:
    """The request with its terms, whose headers say what its body says."""
    method = request.method
    try:
        incoming = lifecycle.accept(request)
    except ProtocolError:
        # Headers that disagree are told first, of whatever can be read of the params.
        repeated = _repeated(request.params)
        version = UNSET if repeated.meta is UNSET else repeated.meta.version
        _check_standard_headers(headers, version, method, repeated)
        raise
    assert isinstance(incoming, Incoming)
    member = _NAMES.get(method)
    # What says it in the same words, as nearly all do, needs no closer look.
    if (
        headers.get(VERSION) != MODERN
        or headers.get(METHOD) != method
        or (member is not None and not _is_repeated(headers.get(NAME), getattr(incoming.params, member, UNSET)))
    ):
        _check_standard_headers(headers, MODERN, method, _repeated(request.params))
    return incoming


def _is_repeated(header: str | None, value: Any) -> bool:
    return header == value and _is_plain(header)


def _not_a_request(message: Any) -> Rejection:
    if type(message) is Malformed:
        return _unreadable(message)
    # RPC-1, RPC-6: neither batches nor responses are posted.
    text = "Send one message a request" if type(message) is Batch else "Only requests and notifications can be posted"
    return Rejection(400, encode_error(None, INVALID_REQUEST, text))


def _unreadable(message: Malformed) -> Rejection:
    # 2025-03-26 basic/transports: also an answer that cannot be accepted is an HTTP error.
    return Rejection(400, encode_error(message.id, message.code or INVALID_REQUEST, message.message))


def rejection(identifier: RequestId | None, error: ProtocolError) -> Rejection:
    return Rejection(
        status_of(error.code, handled=False), encode_error(identifier, error.code, error.message, error.data)
    )


def status_of(code: int, *, handled: bool) -> int:
    """The status of an error; one that a handler raised rides on 200 unless the specification names another."""
    if code == METHOD_NOT_FOUND:
        return 404
    if code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION):
        return 400
    if not handled and code in (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS):
        return 400
    return 200


# --- One legacy POST -------------------------------------------------------------------------------------------------

# 3.4.6.2: the revision of a request that names none and has no session that knows it.
ASSUMED: Final = "2025-03-26"


class Posted(Struct):
    """The decisions about the messages of one legacy POST."""

    calls: list[Incoming]
    """The requests that may run."""
    ready: list[bytes]
    """The answers that need no call: refusals, and what the protocol answers itself."""
    events: list[Notice | Cancel | Response | ErrorResponse]
    """The other messages, in their order."""
    is_batch: bool = False

    def answer(self) -> bytes:
        """Return the answer of a POST without calls; empty for none."""
        if not self.ready:
            return b""
        # 1.1.1.6: the answer to a batch is an array.
        return encode_batch(self.ready) if self.is_batch else self.ready[0]


def read_legacy(body: bytes, max_depth: int, max_batch: int) -> Message | Batch | Rejection:
    """Read the body of a POST."""
    message = decode(body, max_depth, max_batch, EXPECT_REQUESTS)
    return _unreadable(message) if type(message) is Malformed else message


def opens_session(headers: Headers, message: Message | Batch) -> bool:
    """Return whether a POST begins a session (2025-03-26 basic/transports, session management)."""
    return isinstance(message, Request) and message.method == "initialize" and SESSION not in headers


def has_only_replies(message: Message | Batch) -> bool:
    """Return whether a POST has nothing but answers and cancellations."""
    return all(map(_is_reply, message.items)) if type(message) is Batch else _is_reply(message)


def _is_reply(message: Any) -> bool:
    if type(message) is Notification:
        return bool(message.method == CANCELLED)
    return isinstance(message, Response | ErrorResponse)


def legacy_revision(headers: Headers, identifier: RequestId | None, agreed: str | None = None) -> str | Rejection:
    """Return the revision of a POST; `agreed` is that of its session."""
    version = headers.get(VERSION)
    if version is None:
        return agreed or ASSUMED
    version = version.strip(" \t")
    if version in LEGACY:
        # 3.4.6.4: a version that is supported but was not negotiated changes nothing, the session keeps its own.
        return agreed or version
    # 2025-06-18 basic/transports: 400 for a version that is not supported.
    text = f"MCP-Protocol-Version {version[:40]!r} is not supported"
    known = "" if agreed is None else f"; this session has {agreed}"
    return Rejection(400, encode_error(identifier, INVALID_REQUEST, text + known))


def classify_legacy(
    message: Message | Batch,
    lifecycle: ServerLifecycle,
    in_flight: Collection[RequestId] = (),
    max_batch: int = MAX_BATCH,
) -> Posted | Rejection:
    """Judge the messages of one legacy POST.

    `lifecycle` is a server's, already on the revision of the POST, or still open for `initialize`. `in_flight` has the
    ids of the requests of its session that have no answer yet.
    """
    if type(message) is Batch:
        return _classify_batch(message, lifecycle, in_flight, max_batch)
    verdict = classify_message(message, lifecycle, in_flight)  # type: ignore[arg-type]
    kind = type(verdict)
    if kind is Incoming:
        return Posted([verdict], [], [])  # type: ignore[list-item]
    posted = Posted([], [], [])
    _add(posted, verdict)
    return posted


def _classify_batch(
    batch: Batch, lifecycle: ServerLifecycle, in_flight: Collection[RequestId], max_batch: int
) -> Posted | Rejection:
    try:
        items = open_batch(batch, lifecycle, max_batch)
    except ProtocolError as error:
        return rejection(None, error)
    answers = [isinstance(each, Response | ErrorResponse) for each in items]
    if any(answers) and not all(answers):
        # 2025-03-26 basic/transports: the body is requests and notifications, or responses; never both.
        text = "A batch holds requests and notifications, or responses, not both"
        return Rejection(400, encode_error(None, INVALID_REQUEST, text))
    posted = Posted([], [], [], is_batch=True)
    used = set(in_flight)
    for each in items:
        verdict = classify_message(each, lifecycle, used)
        if type(verdict) is Incoming:
            used.add(verdict.id)
        _add(posted, verdict)
    return posted


def _add(posted: Posted, verdict: Any) -> None:
    kind = type(verdict)
    if kind is Incoming:
        posted.calls.append(verdict)
    elif kind is Send:
        posted.ready.append(verdict.data)
    elif verdict is not None and kind is not Garbage:
        posted.events.append(verdict)


# --- What headers repeat ---------------------------------------------------------------------------------------------


class _AnyVersion(Struct):
    version: str | UnsetType = msgspec.field(name=t.PROTOCOL_VERSION_KEY, default=UNSET)


class _OnlyMeta(Struct):
    meta: _AnyVersion | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Named(Struct):
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = msgspec.field(name="taskId", default=UNSET)


class _Repeated(_Named):
    """The params that headers repeat."""

    meta: _AnyVersion | UnsetType = msgspec.field(name="_meta", default=UNSET)


_Part = TypeVar("_Part", bound=Struct)


def _repeated(params: Raw | UnsetType) -> _Repeated:
    """Return the members that headers repeat. Unreadable ones count as absent: the checks of the body refuse them."""
    if params is UNSET:
        return _Repeated()
    try:
        return decoder(_Repeated)(params)  # type: ignore[no-any-return]
    except BAD_JSON:
        # One that is wrong does not spare the other its check.
        named = _part(_Named, params)
        return _Repeated(named.name, named.uri, named.task_id, _part(_OnlyMeta, params).meta)


def _part(kind: type[_Part], params: Raw) -> _Part:
    try:
        return decoder(kind)(params)  # type: ignore[no-any-return]
    except BAD_JSON:
        return kind()


_NAMES: Final[Mapping[str, Literal["name", "uri", "task_id"]]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
}


_WIRE_NAMES: Final = {method: "taskId" if member == "task_id" else member for method, member in _NAMES.items()}


def standard_headers(method: str, params: Any) -> dict[str, str]:
    """The headers that repeat what the body of a request says, so that others can route on them (HDR-1, HDR-2)."""
    name = repeated_name(method, params)
    if name is None:
        return {METHOD: method}
    return {METHOD: method, NAME: name if _is_plain(name) else encode_value(name)}


def repeated_name(method: str, params: Any) -> str | None:
    """Return what the header `Mcp-Name` of a request repeats; None for a request without that header."""
    if type(params) is dict:
        value = params.get(_WIRE_NAMES.get(method))
    elif (member := _NAMES.get(method)) is not None:
        value = getattr(_part(_Named, params) if isinstance(params, Raw) else params, member, UNSET)
    else:
        return None
    return value if isinstance(value, str) else None


def _check_standard_headers(headers: Headers, version: str | UnsetType, method: str, params: Any) -> None:
    # HDR-1: names of headers in any case, values exactly. A body without a version is left to the checks of the body
    # (Appendix A-9).
    if version is not UNSET and _single(headers, VERSION) != version:
        raise _mismatch("MCP-Protocol-Version", "the protocol version in params._meta")
    if _single(headers, METHOD) != method:
        raise _mismatch("Mcp-Method", "the method of the body")
    member = _NAMES.get(method)
    if member is None:
        return
    value = getattr(params, member)
    if not isinstance(value, str):
        return  # The params are wrong, and will be told so.
    sent = headers.get(NAME)
    if sent is None or DUPLICATE in sent or decode_value(sent) != value:
        raise _mismatch("Mcp-Name", f"params.{'taskId' if member == 'task_id' else member}")


def _check_parameters(headers: Headers, incoming: Incoming, paths: Mapping[str, tuple[str, ...]]) -> None:
    """XMH-5: what an annotated argument says, its header says too."""
    raw = incoming.params.arguments
    try:
        arguments = {} if raw is UNSET else msgspec.json.decode(raw)
    except BAD_JSON:
        return
    for token, path in paths.items():
        value = argument_at(arguments, path)
        sent = headers.get(PARAMETER + token.lower())
        if value is None:
            if sent is not None:
                raise _mismatch(f"Mcp-Param-{token}", f"the argument {'.'.join(path)}, which is absent")
            continue
        text = None if sent is None or DUPLICATE in sent else decode_value(sent)
        if text is None or not _equal(text, value):
            raise _mismatch(f"Mcp-Param-{token}", f"the argument {'.'.join(path)}")


_NUMBER: Final = lazy_pattern("-?[0-9]+((?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?)")


def argument_at(value: Any, path: tuple[str, ...]) -> Any:
    """The argument that a path of names leads to; None where there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _equal(text: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, str | bool) and text == render_argument(value)
    # Numbers as JSON writes them: Python would also read `4_2`, ` 42` and digits of other scripts.
    number = _NUMBER.fullmatch(text)
    if number is None or len(text) > 400:
        return False
    try:
        return (float(text) if number[1] else int(text)) == value
    except OverflowError:
        return False


def _single(headers: Headers, name: str) -> str | None:
    value = headers.get(name)
    # Proxies that route by a header would read one that came twice differently.
    return None if value is None or DUPLICATE in value else value.strip(" \t")


def _mismatch(header: str, what: str) -> ProtocolError:
    return ProtocolError(HEADER_MISMATCH, f"The header {header} must be there once and agree with {what}")
