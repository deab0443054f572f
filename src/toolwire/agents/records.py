"""Records of a toolset: how calls and runs ended, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwire.content import ToolResult


class CallOutcome(Struct, frozen=True):
    """A call of a model that has ended, as `on_result=` sees it."""

    id: str | None
    server: str
    tool: str
    arguments: Mapping[str, Any]
    result: ToolResult | None
    """The whole result, also what is for the user alone; None where the call failed or was not made."""
    error: BaseException | None = None
    """The error of the call; None if the tool answered."""


class Usage(Struct):
    """Calls of one server, and estimated tokens."""

    calls: int = 0
    errors: int = 0
    definition_tokens: int = 0
    """The size of its definitions, those that are deferred included."""
    result_tokens: int = 0
    """The size of all results that models were given."""


class Run(Struct):
    """The end of `Toolset.run`."""

    response: Any
    messages: list[Any]
    turns: int
    is_finished: bool
    """Whether the model was done; False where the limit of turns ended the loop."""
