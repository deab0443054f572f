"""Calls of the user's callbacks, `async` or not. They run beside the reader, which neither waits for them nor fails
with them.

An `async` callback is called again when its last call has ended, so that it sees everything in order. Until then
messages wait, up to a number and a number of bytes; beyond that the oldest is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from toolwire.client.handlers import settle

T = TypeVar("T")

log: logging.Logger = logging.getLogger("toolwire.client")

#: How many calls of one callback may wait.
MAX_WAITING: Final = 1_000
#: How many bytes the notifications may have together that wait for one callback. One alone may have more.
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class Waiting(Generic[T]):
    """Notifications that wait for code of the program, in order. A server decides how many and how large they are."""

    def __init__(self) -> None:
        self._entries: deque[tuple[T, int]] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, entry: T, size: int, most: int) -> int:
        """Add an entry of `size` bytes. Return how many of the oldest were dropped, so that at most `most` wait."""
        dropped = 0
        while self._entries and (len(self._entries) >= most or self._bytes + size > MAX_WAITING_BYTES):
            self.take()
            dropped += 1
        self._entries.append((entry, size))
        self._bytes += size
        return dropped

    def take(self) -> T:
        """Return the oldest entry, which waits no more."""
        entry, size = self._entries.popleft()
        self._bytes -= size
        return entry


class Callbacks:
    """The callbacks that run beside the reader of one connection."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        # By identity, since not every callable has a hash. The id is unique while the callback runs.
        self._waiting: dict[int, Waiting[Callable[[], Any]]] = {}

    def call(self, callback: Callable[..., Any], *arguments: Any, size: int = 0) -> None:
        """Call a callback, now or once its last call has ended. `size` is the bytes of the notification."""
        # Wrappers of one callback share its queue.
        name = id(getattr(callback, "__wrapped__", callback))
        waiting = self._waiting.get(name)
        if waiting is not None:
            dropped = waiting.add(partial(callback, *arguments), size, MAX_WAITING)
            if dropped:
                log.warning("a callback is too slow: the oldest notifications for it are dropped: %d", dropped)
            return
        try:
            value = callback(*arguments)
        except Exception:
            log.exception("a callback failed")
            return
        if asyncio.iscoroutine(value):
            waiting = self._waiting[name] = Waiting()
            waiting.add(lambda: value, size, MAX_WAITING)
            # Closed, in case it never began.
            self.start(self._in_order(name)).add_done_callback(lambda _: value.close())

    async def _in_order(self, name: int) -> None:
        waiting = self._waiting[name]
        try:
            while waiting:
                try:
                    await settle(waiting.take()())
                except Exception:
                    log.exception("a callback failed")
        finally:
            del self._waiting[name]

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine until it ends or the connection closes."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a callback failed", exc_info=error)
