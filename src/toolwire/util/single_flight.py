"""`SingleFlight`: the same work runs once at a time, and all callers share its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs work once at a time for each key, on each event loop."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[T]] = {}

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], key: Hashable = None) -> asyncio.Task[T]:
        """Return the task that does the work for a key now, or start one."""
        loop = asyncio.get_running_loop()
        task = self._tasks.get((loop, key))
        if task is None or task.done():
            task = self._tasks[loop, key] = loop.create_task(work())
            task.add_done_callback(lambda done: self._end((loop, key), done))
        return task

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], key: Hashable = None) -> T:
        """Return the result of the work for a key. The work goes on when a caller gives up."""
        return await asyncio.shield(self.start(work, key))

    def find(self, key: Hashable = None) -> asyncio.Task[T] | None:
        """Return the task that does the work for a key on this loop now, else None."""
        task = self._tasks.get((asyncio.get_running_loop(), key))
        return None if task is None or task.done() else task

    def cancel(self) -> None:
        """Cancel the work that runs."""
        for task in list(self._tasks.values()):
            task.cancel()

    def _end(self, key: tuple[asyncio.AbstractEventLoop, Hashable], task: asyncio.Task[T]) -> None:
        # Work that was started in the same turn of the loop may have taken its place.
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # Retrieved, because all callers may have given up.
