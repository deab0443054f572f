"""Jobs of event loops for the thread of a store. Many results reach a loop with one wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

_logger = logging.getLogger("toolwire.stores")


class Job:
    """One job for the thread of a store, with the event loop and the future that wait for its result."""

    __slots__ = ("_error", "_future", "_result", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._future = future
        self._result: Any = None
        self._error: BaseException | None = None

    def succeed(self, result: Any) -> None:
        self._result, self._error = result, None

    def fail(self, error: BaseException) -> None:
        self._error = error

    def settle(self) -> None:
        if self._future.done():
            return  # The caller has given up.
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._result)


def settle_all(jobs: Sequence[Job]) -> None:
    """Hand out the results, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, done in by_loop.items():
        with contextlib.suppress(RuntimeError):  # It was closed meanwhile.
            loop.call_soon_threadsafe(_settle, done)


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.settle()


def call_guarded(function: Callable[[], None]) -> None:
    """Call a function of the user of a store. Its failure must not end the thread of the store."""
    try:
        function()
    except Exception:
        _logger.exception("A function that a store was given failed")
