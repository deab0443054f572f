"""The options that all kinds of components share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from toolwire.protocol import types as t
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.executors import Executor

if TYPE_CHECKING:
    from toolwire.server.policy import Policy

Icons: TypeAlias = Sequence[t.Icon | Mapping[str, Any]] | t.Icon | Mapping[str, Any] | None


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
    """Where the function runs: "loop", "thread" or "process"; by default as it is defined."""
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
