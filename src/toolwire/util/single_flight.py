"""`SingleFlight`: the same work runs once at a time, and all callers share its result.

It keeps one task for each event loop. `LoopsFlight` lets only one of these run at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: How often a loop that waits for the work of another loop looks whether that loop was closed.
LOOK_SECONDS: Final = 1.0


class SingleFlight(Generic[T]):
    """Runs work once at a time for each key, on each event loop.

    Callers of `run` share work that continues when they are cancelled. Work of `join` ends with its last waiter.
    """

    __slots__ = ("_tasks", "_waiters")

    def __init__(self) -> None:
        self._tasks: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[T]] = {}
        self._waiters: dict[asyncio.Task[T], int] = {}

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

    async def join(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        key: Hashable = None,
        *,
        wait: Callable[[asyncio.Task[T]], Awaitable[Any]] | None = None,
    ) -> asyncio.Task[T]:
        """Wait for the work for a key, and return its task. Cancelling the last waiter cancels the work.

        `wait` returns when the task is done or takes too long: then the work continues.
        """
        task = self.start(work, key)
        self._waiters[task] = self._waiters.get(task, 0) + 1
        try:
            await (asyncio.wait({task}) if wait is None else wait(task))
        except asyncio.CancelledError:
            if self._waiters[task] == 1 and not task.done():
                task.cancel()
                # The next caller does not wait for work that was given up.
                self._tasks.pop((asyncio.get_running_loop(), key), None)
            raise
        finally:
            self._waiters[task] -= 1
            if not self._waiters[task]:
                del self._waiters[task]
        return task

    def find(self, key: Hashable = None) -> asyncio.Task[T] | None:
        """Return the task that does the work for a key on this loop now, else None."""
        task = self._tasks.get((asyncio.get_running_loop(), key))
        return None if task is None or task.done() else task

    def cancel(self) -> None:
        """Cancel the work that runs."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def stop(self) -> None:
        """Cancel the work that runs on this loop, and wait for its end."""
        loop = asyncio.get_running_loop()
        tasks = {task for (owner, _), task in self._tasks.items() if owner is loop and not task.done()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, key: tuple[asyncio.AbstractEventLoop, Hashable], task: asyncio.Task[T]) -> None:
        # Work that was started in the same turn of the loop may have taken its place.
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # Retrieved, because all callers may have given up.


class LoopsFlight(Generic[T]):
    """Runs work once at a time over all event loops. The other loops wait for the loop that began, and share the end.

    When the work is given up, or its loop is closed, one of the loops that wait begins anew.
    """

    __slots__ = ("_lock", "_running")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, Future[tuple[T | None, Exception | None] | None]] | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the work, here or on another loop."""
        own: Future[tuple[T | None, Exception | None] | None] = Future()
        while True:
            with self._lock:
                running = self._running
                if running is None or running[0].is_closed():
                    self._running = (asyncio.get_running_loop(), own)
                    break
            waiting = asyncio.wrap_future(running[1])
            await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
            outcome = waiting.result() if waiting.done() else None
            if outcome is not None:
                result, error = outcome
                if error is not None:
                    raise error
                return result  # type: ignore[return-value]
        ended: tuple[T | None, Exception | None] | None = None
        try:
            result = await work()
            ended = (result, None)
            return result
        except Exception as error:
            ended = (None, error)
            raise
        finally:
            with self._lock:
                if self._running is not None and self._running[1] is own:
                    self._running = None
            own.set_result(ended)
