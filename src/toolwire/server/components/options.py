"""The options that all kinds of components share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from msgspec import UnsetType

from toolwire.protocol import types as t
from toolwire.server.binding import Binding
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.executors import Executor

if TYPE_CHECKING:
    from toolwire.server.policy import Policy

Icons: TypeAlias = Sequence[t.Icon | Mapping[str, Any]] | t.Icon | Mapping[str, Any] | None


class ToolOfView(Protocol):
    """A tool whose results a view shows, or that a view calls."""

    name: str
    meta: dict[str, Any] | UnsetType
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    binding: Binding


class ViewOfTool(Protocol):
    """A view that shows the results of tools (`toolwire.apps.App`)."""

    @property
    def uri(self) -> str:
        """The address of the view."""

    @property
    def is_openai(self) -> bool:
        """Return whether its tools name it by the key of OpenAI, too."""

    def attach(self, tool: ToolOfView, *, is_structured: bool | None) -> Callable[[Any], t.CallToolResult]:
        """Return the converter of the results of a tool; raise `ServerError` for results that it cannot show."""


class Options(TypedDict, total=False):
    """The options that `Tool`, `Resource`, `ResourceTemplate` and `Prompt` share."""

    title: str | None
    """A name for people to read."""
    description: str | None
    """The purpose of the component; by default the docstring of the function."""
    icons: Icons
    """Pictures that a user interface may show."""
    meta: Mapping[str, Any] | None
    """`_meta` of its definition."""
    executor: Executor | None
    """Where the function runs: "loop", "thread" or "process"; by default as it is defined.

    `async def` with "thread" has an event loop of its own there, so that it may compute.
    """
    timeout: float | None
    """How many seconds it may take, instead of what the limits of the server say."""
    replay: bool
    """Whether the function may run again from the top once its questions are answered (2026-07-28)."""
    policy: Policy | None
    """The policy for calls of this component. The policy of the server holds, too."""
    scopes: str | Iterable[str] | None
    """The scopes that a caller needs to use the component."""
    visible_to: VisibleTo
    """Who sees it: the scopes of which one is enough, or a function of the caller; None for everybody."""
    tags: str | Iterable[str] | None
    """Names under which rules hold for several components at once (`Server.restrict`)."""
