"""Calls of the user's callbacks, `async` or not. They run beside the reader, which neither waits for them nor fails
with them.

An `async` callback is called again when its last call has ended, so that it sees everything in order. Until then
messages wait, up to a limit; beyond that the oldest is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from toolwire.client.handlers import settle

log: logging.Logger = logging.getLogger("toolwire.client")

#: How many calls of one callback may wait.
MAX_WAITING: Final = 1_000


class Callbacks:
    """The callbacks that run beside the reader of one connection."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        # By identity, since not every callable has a hash. The id is unique while the callback runs.
        self._waiting: dict[int, deque[Callable[[], Any]]] = {}

    def call(self, callback: Callable[..., Any], *arguments: Any) -> None:
        # Wrappers of one callback share its queue.
        name = id(getattr(callback, "__wrapped__", callback))
        waiting = self._waiting.get(name)
        if waiting is not None:
            if len(waiting) == MAX_WAITING:
                log.warning("a callback is too slow: the oldest of %d notifications for it is dropped", MAX_WAITING)
            waiting.append(partial(callback, *arguments))
            return
        try:
            value = callback(*arguments)
        except Exception:
            log.exception("a callback failed")
            return
        if asyncio.iscoroutine(value):
            self._waiting[name] = deque([lambda: value], maxlen=MAX_WAITING)
            # Closed, in case it never began.
            self.start(self._in_order(name)).add_done_callback(lambda _: value.close())

    async def _in_order(self, name: int) -> None:
        waiting = self._waiting[name]
        try:
            while waiting:
                try:
                    await settle(waiting.popleft()())
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
