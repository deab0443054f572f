"""The time a handler may take. A handler that never waits is never timed, and pays nothing for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from toolwire.wire.first_step import watched


class Deadline:
    """Cancels the task of a handler that runs too long; stands still while it waits for the client."""

    expired: bool = False
    task: asyncio.Task[Any] | None = None
    _pauses: int = 0
    _timer: asyncio.TimerHandle | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _started: float

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds

    def start(self) -> None:
        """Begin to count; called in the task that is to be cancelled."""
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.current_task(self._loop)
        self._count()

    def _count(self) -> None:
        # What a handler waits for first may be a question; several may be open at once.
        if self._loop is not None and not self._pauses:
            self._started = self._loop.time()
            self._timer = self._loop.call_later(self._left, self._expire)

    def pause(self) -> None:
        self._pauses += 1
        if self._timer is not None and self._loop is not None:
            self._timer.cancel()
            self._timer = None
            self._left = max(0.0, self._left - (self._loop.time() - self._started))

    def resume(self) -> None:
        self._pauses -= 1
        self._count()

    def stop(self) -> None:
        """The handler has come to its end; a question that is let go of later starts nothing."""
        if self._loop is None:
            return
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        if self.task is not None:
            self.task.cancel()


def within(deadline: Deadline, coroutine: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    """Run a coroutine; the deadline begins to count when it waits for the first time."""
    return watched(coroutine, deadline.start)
