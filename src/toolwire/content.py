"""Content that users write and read: media, files, prompt messages, tool results.

Everything here turns into the wire types of `toolwire.protocol.types`; `to_blocks` decides what counts as content.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
from msgspec import UNSET, Raw

from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import ToolError
from toolwire.protocol.open_codec import restored
from toolwire.protocol.surrogates import encode_readable
from toolwire.protocol.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    Role,
    TextContent,
    UnknownContent,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Audio",
    "File",
    "Image",
    "Message",
    "ResourceLink",
    "Text",
    "ToolResult",
    "blob_contents",
    "text_contents",
    "to_blocks",
]

Text = TextContent

# What is common in practice, so that the answer does not depend on the machine's own tables.
_MIME_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "avif": "image/avif",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "webm": "audio/webm",
    "json": "application/json",
    "md": "text/markdown",
    "txt": "text/plain",
    "csv": "text/csv",
    "pdf": "application/pdf",
}

_OCTETS = "application/octet-stream"


def _mime_type_of_suffix(suffix: str) -> str | None:
    suffix = suffix.lstrip(".").lower()
    if not suffix:
        return None
    if suffix in _MIME_TYPES:
        return _MIME_TYPES[suffix]
    # Imported here because it reads the machine's tables when first asked.
    import mimetypes

    return mimetypes.guess_type(f"file.{suffix}")[0]


def _mime_type_of_bytes(data: bytes) -> str | None:
    """Return the media type that the first bytes show."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return "audio/wav"
    if data.startswith(b"BM"):
        return "image/bmp"
    if data.startswith(b"OggS"):
        return "audio/ogg"
    if data.startswith(b"fLaC"):
        return "audio/flac"
    if data.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")):
        return "audio/mpeg"
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    return None


class _Media(ABC):
    """Bytes with their type, given or read from a file when needed."""

    kind: ClassVar[str]

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        *,
        mime_type: str | None = None,
        format: str | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError(f"{type(self).__name__} takes either path= or data=")
        # Imported when a file is sent: pathlib costs a server that sends none 0.4 MiB.
        from pathlib import Path

        self.path: Path | None = None if path is None else Path(path)
        self.data = data
        self.annotations = annotations
        self.meta = meta
        self.mime_type: str | None = mime_type or self._mime_type_of_format(format)

    def read(self) -> bytes:
        """Return the bytes; read the file if a path was given."""
        return self.data if self.data is not None else cast("Path", self.path).read_bytes()

    def _mime_type_of(self, data: bytes) -> str:
        """Return the media type: given, or by file name, or by the bytes."""
        named = None if self.path is None else _mime_type_of_suffix(self.path.suffix)
        found = self.mime_type or self._suitable(named) or self._suitable(_mime_type_of_bytes(data))
        if found is None:
            raise ValueError(f"the type of this {self.kind} data cannot be recognised; pass mime_type=")
        return found

    def _mime_type_of_format(self, format: str | None) -> str | None:
        if format is None:
            return None
        return self._suitable(_mime_type_of_suffix(format)) or f"{self.kind}/{format.lstrip('.').lower()}"

    def _suitable(self, mime_type: str | None) -> str | None:
        return mime_type if mime_type is not None and mime_type.startswith(f"{self.kind}/") else None

    def _block_members(self) -> dict[str, Any]:
        return {"annotations": self.annotations or UNSET, "meta": self.meta or UNSET}

    @abstractmethod
    def to_content(self) -> ContentBlock:
        """Return the content block for the wire."""

    def to_dict(self) -> dict[str, Any]:
        """Return the content block as a dict of JSON types."""
        return self.to_content().to_dict()

    def to_data_uri(self) -> str:
        """Return the bytes as a `data:` URI, which an icon may have."""
        data = self.read()
        return f"data:{self._mime_type_of(data)};base64,{b64encode(data).decode()}"

    def __repr__(self) -> str:
        source = f"path={str(self.path)!r}" if self.path is not None else f"data=<{len(self.data or b'')} bytes>"
        return f"{type(self).__name__}({source})"


class Image(_Media):
    """An image: `Image("chart.png")` or `Image(data=png)`."""

    kind = "image"

    def to_content(self) -> ImageContent:
        data = self.read()
        return ImageContent(data, self._mime_type_of(data), **self._block_members())


class Audio(_Media):
    """A sound: `Audio("bell.wav")` or `Audio(data=wav)`."""

    kind = "audio"

    def to_content(self) -> AudioContent:
        data = self.read()
        return AudioContent(data, self._mime_type_of(data), **self._block_members())


class File(_Media):
    """Any file, sent as an embedded resource: text where it is text, else base64.

    The `uri` names the file for the reader; by default it has only the file's name, not where it lies on this machine.
    """

    kind = "application"

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        *,
        mime_type: str | None = None,
        format: str | None = None,
        name: str | None = None,
        uri: str | None = None,
        annotations: Annotations | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        from urllib.parse import quote

        super().__init__(path, data, mime_type=mime_type, format=format, annotations=annotations, meta=meta)
        self.name: str = name or (self.path.name if self.path is not None else "file")
        self.uri: str = uri or f"file:///{quote(self.name, errors='surrogateescape')}"

    def _mime_type_of(self, data: bytes) -> str:
        from pathlib import PurePath

        named = _mime_type_of_suffix(PurePath(self.name).suffix)
        return self.mime_type or named or _mime_type_of_bytes(data) or _OCTETS

    def _mime_type_of_format(self, format: str | None) -> str | None:
        if format is None:
            return None
        return _mime_type_of_suffix(format) or f"application/{format.lstrip('.').lower()}"

    def to_content(self) -> EmbeddedResource:
        data = self.read()
        mime_type = self._mime_type_of(data)
        text = _as_text(data, mime_type)
        contents = (
            blob_contents(self.uri, data, mime_type=mime_type)
            if text is None
            else text_contents(self.uri, text, mime_type=mime_type)
        )
        return EmbeddedResource(contents, **self._block_members())


def _as_text(data: bytes, mime_type: str) -> str | None:
    if not mime_type.startswith("text/") and mime_type.split(";")[0] != "application/json":
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def text_contents(
    uri: str, text: str, *, mime_type: str = "text/plain", meta: dict[str, Any] | None = None
) -> ResourceContents:
    """Return the contents of a resource that is text."""
    return ResourceContents(uri, text=text, mime_type=mime_type, meta=meta or UNSET)


def blob_contents(
    uri: str, blob: bytes, *, mime_type: str = _OCTETS, meta: dict[str, Any] | None = None
) -> ResourceContents:
    """Return the contents of a resource that is bytes."""
    return ResourceContents(uri, blob=blob, mime_type=mime_type, meta=meta or UNSET)


# --- What counts as content ------------------------------------------------------------------------------------------

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, UnknownContent)


def to_blocks(value: Any) -> list[ContentBlock] | None:
    """Return the content blocks of `value`; None if it is data and not content.

    Content is a string, a content block (also as a dict), `Image`, `Audio`, `File`, the contents of a resource, a pair
    of bytes and MIME type, and a list of these. A list of nothing but strings is data.
    """
    if isinstance(value, str):
        return [TextContent(value)]
    if isinstance(value, list):
        return _blocks_of_list(value)
    block = _to_block(value)
    return None if block is None else [block]


def _blocks_of_list(values: list[Any]) -> list[ContentBlock] | None:
    if all(isinstance(value, str) for value in values):
        return None
    blocks: list[ContentBlock] = []
    for value in values:
        block = TextContent(value) if isinstance(value, str) else _to_block(value)
        if block is None:
            return None
        blocks.append(block)
    return blocks


def _to_block(value: Any) -> ContentBlock | None:
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, _Media):
        return value.to_content()
    if isinstance(value, ResourceContents):
        return EmbeddedResource(value)
    if isinstance(value, dict):
        return _block_of_dict(value)
    if isinstance(value, tuple) and len(value) == 2:
        return _block_of_pair(*value)
    return None


def _block_of_dict(value: dict[Any, Any]) -> ContentBlock | None:
    """Read a dict as a content block if it has the members of one.

    Otherwise it is data.
    """
    if "type" not in value:
        return None
    try:
        return cast("ContentBlock", restored(convert_to(value, ContentBlock), value))
    except msgspec.ValidationError:
        return None


def _block_of_pair(data: Any, mime_type: Any) -> ContentBlock | None:
    if not isinstance(data, bytes | bytearray) or not isinstance(mime_type, str) or "/" not in mime_type:
        return None
    if mime_type.startswith("image/"):
        return ImageContent(bytes(data), mime_type)
    if mime_type.startswith("audio/"):
        return AudioContent(bytes(data), mime_type)
    return File(data=bytes(data), mime_type=mime_type).to_content()


# --- Prompt messages -------------------------------------------------------------------------------------------------


class InvalidMessage(ToolError, ValueError, TypeError):
    """A message that no prompt can hold.

    Its text says why, and is fit for the client that asked for the prompt.
    """


def check_role(role: Any) -> None:
    """Refuse every role except `user` and `assistant`, which all revisions have."""
    if role not in ("user", "assistant"):
        raise InvalidMessage(
            f"a prompt message has the role 'user' or 'assistant', not {str(role)[:60]!r}; "
            "put instructions into a user message or into the server's instructions"
        )


class Message:
    """One message of a prompt: `Message("Hello")`, `Message(Image("cat.png"), role="assistant")`."""

    __slots__ = ("content", "role")

    def __init__(self, content: Any, role: Role = "user") -> None:
        check_role(role)
        blocks = to_blocks(content)
        # Every revision: the content of a prompt message is one block, never a list.
        if blocks is None or len(blocks) != 1:
            raise InvalidMessage("a prompt message holds a string or one content block; use one Message for each block")
        self.content: ContentBlock = blocks[0]
        self.role = role

    def to_wire(self) -> PromptMessage:
        return PromptMessage(self.role, self.content)

    def to_dict(self) -> dict[str, Any]:
        return self.to_wire().to_dict()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self.role == other.role and self.content == other.content

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Message({self.content!r}, role={self.role!r})"


# --- Tool results ----------------------------------------------------------------------------------------------------


class ToolResult:
    """The result of a tool, for the tool and for its client.

    Without `structured` there is no structured value; `structured=None` is the value null, which 2026-07-28 knows: both
    are read as None, and `has_structured` distinguishes them. Without `content`, the structured value is also sent as
    text, for readers that do not know it.
    """

    __slots__ = ("_structured", "_unknown", "content", "is_error", "meta")

    def __init__(
        self,
        content: Any = None,
        *,
        structured: Any = UNSET,
        is_error: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self._structured: Any = structured
        self._unknown: dict[str, Any] = {}
        self.is_error: bool = is_error
        self.meta: dict[str, Any] = {} if meta is None else meta
        self.content: list[ContentBlock] = self._blocks(content)

    def _blocks(self, content: Any) -> list[ContentBlock]:
        if content is None:
            return [] if self._structured is UNSET else [TextContent(_json_text(self._structured))]
        blocks = [] if content == [] else to_blocks(content)
        return [TextContent(_json_text(content))] if blocks is None else blocks

    @property
    def structured(self) -> Any:
        """Return the structured value; None if there is none."""
        return None if self._structured is UNSET else self._structured

    @structured.setter
    def structured(self, value: Any) -> None:
        self._structured = value

    @property
    def has_structured(self) -> bool:
        """Return whether there is a structured value, be it null."""
        return self._structured is not UNSET

    @property
    def text(self) -> str:
        """Return the text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @classmethod
    def from_wire(cls, result: CallToolResult) -> ToolResult:
        made = cls.__new__(cls)  # What came from the wire needs no reading of what a caller may have meant.
        made.content = result.content
        made._structured = result.structured_content
        made._unknown = result.__dict__  # What the wire type keeps of members that it does not know.
        made.is_error = result.is_error is True
        made.meta = {} if result.meta is UNSET else result.meta  # type: ignore[assignment]
        return made

    def to_wire(self) -> CallToolResult:
        wire = CallToolResult(
            content=self.content,
            structured_content=_plain(self._structured),
            is_error=True if self.is_error else UNSET,
            # Empty maps are not sent.
            meta=self.meta or UNSET,
        )
        if self._unknown:
            wire.__dict__.update(self._unknown)
        return wire

    def to_dict(self) -> dict[str, Any]:
        return self.to_wire().to_dict()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        compared = ("_structured", "content", "is_error", "meta")
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        structured = f", structured={self._structured!r}" if self.has_structured else ""
        return f"ToolResult({self.content!r}{structured}, is_error={self.is_error})"


def _plain(value: Any) -> Any:
    """Return a structured value in JSON types; raw and plain values stay as they are."""
    if value is UNSET or isinstance(value, Raw):
        return value
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_model)


def _json_text(value: Any) -> str:
    return encode_readable(value, _dump_model).decode()


def _dump_model(value: Any) -> Any:
    """Pydantic models, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a value of type {type(value).__name__} cannot be sent as JSON")
    return dump(mode="json", by_alias=True)
