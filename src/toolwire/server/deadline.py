"""The time a handler may take. A handler that never waits is never timed, and pays nothing for it."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any


class Deadline:
    """Cancels the task of a handler that runs too long; stands still while it waits for the client."""

    __slots__ = ("_left", "_loop", "_started", "_task", "_timer", "expired", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = self._left = seconds
        self.expired = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        """Begin to count; called in the task that is to be cancelled."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self.resume()

    def resume(self) -> None:
        if self._loop is not None:
            self._started = self._loop.time()
            self._timer = self._loop.call_later(self._left, self._expire)

    def pause(self) -> None:
        if self._timer is not None and self._loop is not None:
            self.stop()
            self._left = max(0.0, self._left - (self._loop.time() - self._started))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self.expired = True
        if self._task is not None:
            self._task.cancel()


@types.coroutine
def _watched(
    coroutine: Coroutine[Any, Any, Any], when_it_waits: Callable[[], None]
) -> Generator[Any, Any, Any]:
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    first = True
    while True:
        try:
            waits_for = step(value)
        except StopIteration as end:
            return end.value
        if first:
            first = False
            when_it_waits()
        try:
            value = yield waits_for
            step = coroutine.send
        except BaseException as error:
            value, step = error, coroutine.throw


def within(deadline: Deadline, coroutine: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    """Run a coroutine; the deadline begins to count when it waits for the first time."""
    return _watched(coroutine, deadline.start)
