"""Prompts: how they are listed and filled."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import CacheableResult, Icon, MetaDict, Result, RoundRequestParams
from toolwire.protocol.types.content import ContentBlock
from toolwire.protocol.types.scalars import Role

__all__ = [
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
]


class PromptArgument(Wire):
    """One argument of a prompt."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Wire):
    """The definition of a prompt."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: MetaDict | UnsetType = msgspec.field(default=UNSET, name="_meta")


class PromptMessage(Wire):
    """One message of a prompt."""

    role: Role
    content: ContentBlock


class ListPromptsResult(CacheableResult, kw_only=True):
    """The result of `prompts/list`: one page."""

    prompts: list[Prompt]
    next_cursor: str | UnsetType | None = UNSET


class GetPromptRequestParams(RoundRequestParams, kw_only=True):
    """The params of `prompts/get`."""

    name: str
    # Every revision: the values are strings; decoded late, so that the error can name the argument.
    arguments: Raw | UnsetType = UNSET


class GetPromptResult(Result, kw_only=True):
    """The result of `prompts/get`."""

    messages: list[PromptMessage]
    description: str | UnsetType = UNSET
