"""Calls until a server refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from toolwire.testing.outcomes import outcome_of


class Refusal(Struct, frozen=True):
    """The first call that was not let through."""

    calls: int
    """How many were let through before."""
    text: str
    """What the caller is told."""
    retry_after: float
    """Seconds after which it is told to try again."""


async def exhaust(call: Callable[[], Awaitable[Any]], *, most: int = 1000) -> Refusal:
    """Make a call again and again until it is refused for coming too often.

    `await exhaust(lambda: client.call_tool("search", {"query": "x"}))`; reading resources and getting prompts count
    just so. Fails when nothing is refused within `most` calls, and when a call fails without saying when to try again.
    """
    __tracebackhide__ = True
    for made in range(most):
        outcome = await outcome_of(call())
        if outcome.retry_after is not None:
            return Refusal(made, outcome.text, outcome.retry_after)
        if outcome.kind is not None:
            raise AssertionError(f"call {made + 1} failed without saying when to try again: {outcome.text}")
    raise AssertionError(f"{most} calls were made, and none was refused")
