"""Results of tools as parts for any interface: texts, images, documents, words."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.surrogates import encode_readable

#: How text and structured content of a result are chosen.
ResultMode: TypeAlias = Literal["auto", "content", "structured", "both"]
RESULT_MODES: Final = ("auto", "content", "structured", "both")

NOTHING: Final = "(no output)"
FOR_THE_USER: Final = "(the result was shown to the user)"
# Shorter base64 may be any word.
_SHORTEST_BASE64: Final = 64
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{62,}={0,2}")
# How large texts are that are compared with structured content.
_MAX_COMPARED: Final = 4 * 1024 * 1024
#: What structured content may take beside a text, where the program has set no limit.
BESIDE_TOKENS: Final = 4_000

Count: TypeAlias = Callable[[str], int]


class Part(Struct):
    """One part of a result."""

    kind: Literal["text", "image", "audio", "pdf", "document", "file"]
    text: str = ""
    data: bytes = b""
    mime_type: str = ""
    uri: str = ""

    @property
    def base64(self) -> str:
        return b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.mime_type};base64,{self.base64}"

    def headed_text(self) -> str:
        """Return the text, headed by the address of the resource that it comes from."""
        return f"{self.uri}\n\n{self.text}" if self.uri else self.text

    def place_holder(self, why: str = "cannot be shown here") -> str:
        """Say in words what is left out."""
        what = {"file": "file", "pdf": "PDF"}.get(self.kind, self.kind)
        where = f" {self.uri}" if self.uri else ""
        return f"[{what}{where}, {self.mime_type or 'type unknown'}, {len(self.data):,} bytes: {why}]"


class ResultParts(Struct):
    """A result for a model, and what is for the user alone."""

    parts: list[Part]
    is_error: bool = False
    structured: Any = UNSET
    """The structured content, where it stands alone for the whole result."""
    for_user: list[t.ContentBlock] = []


def read_result(
    result: ToolResult, mode: ResultMode, *, is_from_program: bool, count: Count, max_tokens: int | None
) -> ResultParts:
    """Return the parts of a result that a model is given. Never raises."""
    for_user = [block for block in result.content if _is_for_user(block)]
    parts = [part for block in result.content if not _is_for_user(block) for part in _parts_of(block)]
    structured = _structured(result)
    found = ResultParts(parts, result.is_error, for_user=for_user)
    if structured is not UNSET:
        _choose(found, structured, "structured" if is_from_program else mode, count, max_tokens)
    _cut_base64(found)
    if not found.parts and found.structured is UNSET:
        found.parts = [Part("text", FOR_THE_USER if for_user else NOTHING)]
    return found


def error_parts(text: str) -> ResultParts:
    """Return an error as parts."""
    return ResultParts([Part("text", clean(text) or "failed without a message")], is_error=True)


def clean(text: str) -> str:
    """Return a text that every JSON reader takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_text(value: Any) -> str:
    """Write a structured value as JSON."""
    return clean(encode_readable(value, str).decode())


def _is_for_user(block: t.ContentBlock) -> bool:
    if isinstance(block, t.EmbeddedResource):
        annotations = block.find_annotations()
    else:
        annotations = getattr(block, "annotations", UNSET)
    return annotations is not UNSET and annotations.audience is not UNSET and list(annotations.audience) == ["user"]


def _parts_of(block: t.ContentBlock) -> Iterable[Part]:
    match block:
        case t.TextContent():
            if block.text.strip():
                yield Part("text", clean(block.text))
        case t.ImageContent():
            yield Part("image", data=block.data, mime_type=_mime_type(block.mime_type))
        case t.AudioContent():
            yield Part("audio", data=block.data, mime_type=_mime_type(block.mime_type))
        case t.EmbeddedResource():
            yield _resource_part(block.resource)
        case t.ResourceLink():
            yield Part("text", clean(_link_text(block)))
        case _:
            kind = getattr(block, "type", None) or type(block).__name__
            yield Part("text", f"[a block of the type {clean(str(kind))[:60]!r}, which cannot be shown]")


def _resource_part(resource: t.ResourceContents) -> Part:
    mime_type = "" if resource.mime_type is UNSET else _mime_type(resource.mime_type)
    uri = clean(resource.uri)
    if resource.text is not UNSET:
        return Part("document", clean(resource.text), mime_type=mime_type, uri=uri)
    data = b"" if resource.blob is UNSET else resource.blob
    if mime_type == "application/pdf":
        return Part("pdf", data=data, mime_type=mime_type, uri=uri)
    if mime_type.startswith("image/"):
        return Part("image", data=data, mime_type=mime_type, uri=uri)
    if mime_type.startswith("audio/"):
        return Part("audio", data=data, mime_type=mime_type, uri=uri)
    return Part("file", data=data, mime_type=mime_type, uri=uri)


def _mime_type(text: str) -> str:
    """Return a MIME type without parameters, in lower case, as interfaces compare it."""
    plain = text.partition(";")[0].strip().lower()
    return "image/jpeg" if plain == "image/jpg" else plain


def _link_text(link: t.ResourceLink) -> str:
    """Describe a linked resource. It is never fetched: the model decides whether it is needed."""
    details = [link.uri]
    if link.mime_type is not UNSET:
        details.append(link.mime_type)
    if link.size is not UNSET:
        details.append(f"{link.size:,} bytes")
    text = f"[resource {link.title if isinstance(link.title, str) else link.name}: {', '.join(details)}]"
    return f"{text} {link.description}" if isinstance(link.description, str) else text


# --- Text and structured content, once ---


def _structured(result: ToolResult) -> Any:
    if not result.has_structured:
        return UNSET
    value = result.structured
    if not isinstance(value, Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return UNSET


def _choose(found: ResultParts, structured: Any, mode: ResultMode, count: Count, max_tokens: int | None) -> None:
    """Leave out the text or the structured content where one says what the other does."""
    texts = [part for part in found.parts if part.kind == "text"]
    rest = [part for part in found.parts if part.kind != "text"]
    match mode:
        case "content" if found.parts:
            return
        case "structured" | "content":
            found.structured, found.parts = structured, rest
        case "both":
            found.parts.append(Part("text", json_text(structured)))
        case _ if not texts:
            found.structured, found.parts = structured, rest
        case _ if says_the_same([part.text for part in texts], structured):
            return
        case _:
            text = json_text(structured)
            budget = BESIDE_TOKENS if max_tokens is None else max_tokens
            tokens = count(text)
            if sum(count(part.text) for part in texts) + tokens <= budget:
                found.parts.append(Part("text", text))
            else:
                found.parts.append(Part("text", f"[structured content of about {tokens:,} tokens is left out]"))


def says_the_same(texts: list[str], structured: Any) -> bool:
    """Return whether texts are the structured value as JSON, whole or one for each item."""
    values = [structured]
    if isinstance(structured, dict) and list(structured) == ["result"]:
        values.append(structured["result"])  # Values other than objects are sent inside one.
    readings = [_reading(text) for text in texts]
    candidates = [*readings, *texts, readings, texts]
    return any(_is_equal(candidate, value) for value in values for candidate in candidates)


def _reading(text: str) -> Any:
    if len(text) > _MAX_COMPARED:
        return UNSET
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return UNSET


def _is_equal(one: Any, other: Any) -> bool:
    try:
        # Python takes 1 and true for equal.
        return type(one) is type(other) and bool(one == other)
    except RecursionError:
        return False


# --- Base64 ---


def _cut_base64(found: ResultParts) -> None:
    """Take the base64 of blocks out of texts, since each is sent once."""
    media = [part for part in found.parts if part.data]
    encoded = {text: f"[{part.kind}]" for part in media if len(text := part.base64) >= _SHORTEST_BASE64}
    if not encoded:
        return
    for part in found.parts:
        part.text = _replace(part.text, encoded)
    if found.structured is not UNSET:
        found.structured = _replace(found.structured, encoded)


def _replace(value: Any, encoded: dict[str, str]) -> Any:
    if isinstance(value, str):
        # Each text is read once, however many blocks there are.
        return _BASE64.sub(lambda run: encoded.get(run[0], run[0]), value) if len(value) >= _SHORTEST_BASE64 else value
    if isinstance(value, dict):
        return {key: _replace(part, encoded) for key, part in value.items()}
    return [_replace(part, encoded) for part in value] if isinstance(value, list) else value


# --- Size ---


def part_tokens(part: Part, count: Count) -> int:
    """Estimate the tokens of a part; media count by their bytes."""
    return count(part.text) if part.text else 85 + min(len(part.data) // 1_000, 1_500)


def cut_text(text: str, tokens: int, count: Count, handle: Callable[[str], str]) -> str:
    """Return head and tail of a long text, and how to read the rest."""
    total = count(text)
    if total <= tokens:
        return text
    room = max(200, len(text) * tokens // max(total, 1))
    head, tail = room * 3 // 4, room // 4
    left_out = len(text) - head - tail
    if left_out <= 0:
        return text
    return f"{text[:head]}\n[{left_out:,} characters are left out here; {handle(text)}]\n{text[-tail:]}"
