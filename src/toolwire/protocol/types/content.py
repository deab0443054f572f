"""Content blocks: text, pictures, sound, resources and links to them, the use of tools and its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import UnknownContent, Wire
from toolwire.protocol.types.base import Annotations, Icon, MetaDict

__all__ = [
    "AudioContent",
    "Block",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceContents",
    "ResourceLink",
    "ResourceMetadata",
    "SamplingMessageContentBlock",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
]


class Block(Wire, kw_only=True):
    """The members that all content blocks share."""

    annotations: Annotations | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class TextContent(Block, tag_field="type", tag="text"):
    """A text."""

    type: ClassVar[Literal["text"]] = "text"

    text: str


class ImageContent(Block, tag_field="type", tag="image"):
    """An image, with its MIME type."""

    type: ClassVar[Literal["image"]] = "image"

    data: bytes
    mime_type: str


class AudioContent(Block, tag_field="type", tag="audio"):
    """A sound, with its MIME type."""

    type: ClassVar[Literal["audio"]] = "audio"

    data: bytes
    mime_type: str


class ResourceContents(Wire):
    """The contents of a resource: exactly one of `text` and `blob`."""

    uri: str
    text: str | UnsetType = UNSET
    blob: bytes | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class EmbeddedResource(Block, tag_field="type", tag="resource"):
    """The contents of a resource inside a result or a message."""

    type: ClassVar[Literal["resource"]] = "resource"

    resource: ResourceContents

    def find_annotations(self) -> Annotations | UnsetType:
        """The annotations of the block, also where a peer has put them inside the resource.

        2025-06-18 and 2025-11-25 server/tools show them there, against their own schema (T-20).
        """
        if self.annotations is UNSET and "annotations" in self.resource.extra:
            return msgspec.convert(self.resource.extra["annotations"], Annotations)
        return self.annotations


class ResourceMetadata(Wire, kw_only=True):
    """The members that a resource, a template and a link share beside their address and name."""

    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ResourceLink(ResourceMetadata, tag_field="type", tag="resource_link"):
    """A link to a resource that the client may read."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"

    uri: str
    name: str
    size: int | UnsetType = UNSET


class ToolUseContent(Wire, tag_field="type", tag="tool_use"):
    """A call of a tool that a model makes (sampling)."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: dict[str, Any]
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ToolResultContent(Wire, tag_field="type", tag="tool_result"):
    """The result of a tool for a model (sampling)."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


if TYPE_CHECKING:
    ContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
    )
    SamplingMessageContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
    )
else:
    # msgspec builds its decoders from these; `decode` puts unknown blocks in afterwards.
    ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
    SamplingMessageContentBlock = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
