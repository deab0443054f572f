"""Tools: their definitions, how they are listed and called."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import CacheableResult, Icon, MetaDict, Result, RoundRequestParams
from toolwire.protocol.types.content import ContentBlock
from toolwire.protocol.types.scalars import TaskSupport

__all__ = [
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsResult",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
]


class ToolAnnotations(Wire, kw_only=True):
    """Hints about the effects of a tool. They protect nothing."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ToolExecution(Wire):
    """The rule whether calls of a tool may, or must, be tasks (2025-11-25)."""

    task_support: TaskSupport | UnsetType = UNSET


class Tool(Wire):
    """The definition of a tool."""

    name: str
    input_schema: dict[str, Any]
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    output_schema: dict[str, Any] | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class ListToolsResult(CacheableResult, kw_only=True):
    """The result of `tools/list`: one page."""

    tools: list[Tool]
    next_cursor: str | UnsetType | None = UNSET


class CallToolRequestParams(RoundRequestParams, kw_only=True):
    """The params of `tools/call`."""

    name: str
    arguments: Raw | UnsetType = UNSET
    # A `TaskMetadata`, kept as it came: where there are no such tasks it has to be ignored, whatever it is.
    task: Raw | UnsetType = UNSET


class CallToolResult(Result, kw_only=True):
    """The result of `tools/call`."""

    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool | UnsetType = UNSET
