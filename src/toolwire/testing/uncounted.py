"""Calls that count against no rate and wait for no poll, so that what is tried is the tool and not its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from toolwire.server.policy.enforcement import Counting
from toolwire.server.server import Server


class _NoCounters:
    def take(self, counted: Any, caller: str, name: str) -> None:
        """Let everybody through."""


class _NoSharedCounters:
    async def take(self, counted: Any, caller: str, name: str) -> list[str]:
        """Let everybody through."""
        return []


# Seconds between two looks at a task that is tried: a client never looks more often.
_POLL: Final = 0.01


@contextmanager
def uncounted(server: Any) -> Iterator[None]:
    """Within the block no rate or quota of the server refuses anything, nothing is counted, and tasks are seen soon."""
    enforcer = getattr(server, "enforcer", None)
    tasks = server.kernel.tasks if isinstance(server, Server) else None
    nobody: Any = Counting(_NoCounters, _NoSharedCounters())  # type: ignore[arg-type]
    counting = None if enforcer is None else enforcer.count_with(nobody)
    poll = 0.0 if tasks is None else tasks.poll_every(_POLL)
    try:
        yield
    finally:
        if enforcer is not None:
            enforcer.count_with(counting)
        if tasks is not None:
            tasks.poll_every(poll)
