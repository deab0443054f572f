"""The time a handler may take. A handler that never waits is never timed, and pays nothing for it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from toolwire.wire.timeouts import Timeouts, timeouts


class Deadline(Struct, eq=False):
    """Cancels the task of a handler that runs too long; stands still while it waits for the client."""

    seconds: float
    expired: bool = False
    task: asyncio.Task[Any] | None = None
    _used: float = 0.0
    _started: float = 0.0
    _pauses: int = 0
    _timer: asyncio.TimerHandle | Timeouts | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to count; called in the task that is to be cancelled."""
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.current_task(self._loop)
        self._count()

    def _count(self) -> None:
        # What a handler waits for first may be a question; several may be open at once.
        if self._loop is not None and not self._pauses:
            self._started = self._loop.time()
            if not self._used:
                self._timer = timeouts(self._loop, self.seconds)
                self._timer.start(self._expire)
            else:
                self._timer = self._loop.call_later(max(0.0, self.seconds - self._used), self._expire)

    def pause(self) -> None:
        self._pauses += 1
        if self._timer is not None and self._loop is not None:
            self._call_off()
            self._used += self._loop.time() - self._started

    def resume(self) -> None:
        self._pauses -= 1
        self._count()

    def allow(self, seconds: float) -> None:
        """Give the handler this much time from now on."""
        self.seconds, self._used = seconds, 0.0
        if self._timer is not None:
            self._call_off()
            self._count()

    def stop(self) -> None:
        """The handler has come to its end; a question that is let go of later starts nothing."""
        if self._loop is None:
            return
        self._loop = None
        self._call_off()

    def _call_off(self) -> None:
        timer, self._timer = self._timer, None
        if isinstance(timer, Timeouts):
            timer.stop(self._expire)
        elif timer is not None:
            timer.cancel()

    def _expire(self) -> None:
        self.expired = True
        if self.task is not None:
            self.task.cancel()
