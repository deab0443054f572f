"""Completion of the arguments of prompts and the variables of templates."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from toolwire.protocol.open_codec import Wire
from toolwire.protocol.types.base import RequestParams, Result

__all__ = [
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "ResourceTemplateReference",
]


class PromptReference(Wire, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is completed."""

    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"

    name: str
    title: str | UnsetType = UNSET


class ResourceTemplateReference(Wire, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is completed."""

    type: ClassVar[Literal["ref/resource"]] = "ref/resource"

    uri: str


class CompletionArgument(Wire):
    """The argument that is completed, with the text that was typed so far."""

    name: str
    value: str


class CompletionContext(Wire):
    """The arguments that are chosen already."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteRequestParams(RequestParams, kw_only=True):
    """The params of `completion/complete`."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class Completion(Wire):
    """The suggestions for an argument: at most 100, and whether there are more."""

    values: list[str]
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Result, kw_only=True):
    """The result of `completion/complete`."""

    completion: Completion
