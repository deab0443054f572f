"""Sampling: messages that the client's model writes for a server."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import MetaDict, NestedResult, RequestParams, TaskMetadata
from toolwire.protocol.types.content import SamplingMessageContentBlock, TextContent
from toolwire.protocol.types.scalars import Role
from toolwire.protocol.types.tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
]


class ModelHint(Wire):
    """The name, or a part of the name, of a model."""

    name: str | UnsetType = UNSET


class ModelPreferences(Wire, kw_only=True):
    """The kind of model that a server wishes for: names, and how much cost, speed and intelligence count."""

    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: float | int | UnsetType = UNSET
    speed_priority: float | int | UnsetType = UNSET
    intelligence_priority: float | int | UnsetType = UNSET


class ToolChoice(Wire):
    """The choice whether the model may, must or must not call tools."""

    mode: str | UnsetType = UNSET


class SamplingMessage(Wire):
    """One message of a conversation with a model."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class CreateMessageRequestParams(RequestParams, kw_only=True):
    """The params of `sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    include_context: str | UnsetType = UNSET
    temperature: float | int | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    tools: list[Tool] | UnsetType = UNSET
    tool_choice: ToolChoice | UnsetType = UNSET
    task: TaskMetadata | UnsetType = UNSET


class CreateMessageResult(NestedResult, kw_only=True):
    """The answer of the client's model."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: str | UnsetType = UNSET

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))
