"""Calls that count against no rate, so that what is tried is the tool and not its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolwire.server.policy.enforcing import Counting


class _NoCounters:
    def take(self, counted: Any, caller: str, name: str) -> None:
        """Let everybody through."""


class _NoSharedCounters:
    async def take(self, counted: Any, caller: str, name: str) -> list[str]:
        """Let everybody through."""
        return []


@contextmanager
def uncounted(server: Any) -> Iterator[None]:
    """Within the block, no rate or quota of the server refuses anything, and nothing is counted."""
    enforcer = getattr(server, "enforcer", None)
    if enforcer is None:
        yield
        return
    before = enforcer.count_with(Counting(_NoCounters, _NoSharedCounters()))  # type: ignore[arg-type]
    try:
        yield
    finally:
        enforcer.count_with(before)
