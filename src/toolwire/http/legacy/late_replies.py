"""Answers and cancellations for other processes, kept while the store fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from toolwire.http.responses import HttpRefusal
from toolwire.stores import StoreFailed, StoreFull
from toolwire.util.backoff import Backoff
from toolwire.wire.shares import Caller, Shares

log: logging.Logger = logging.getLogger("toolwire.http")

#: The bytes of messages that a process keeps at a time. Each caller may use its share of them.
MAX_BYTES: Final = 64 * 1024 * 1024
# What a kept message costs beside its bytes.
_OVERHEAD: Final = 2 * 1024
#: How many seconds a client waits for the store before its message is accepted without it.
CONFIRM_SECONDS: Final = 1.0
#: How many seconds a message is kept: the time within which questions must be answered.
KEPT_SECONDS: Final = 600.0
LONGEST_PAUSE: Final = 2.0
# A process that lost the store subscribes again after a moment. So a message after a failure is sent twice.
SECOND_COPY_SECONDS: Final = 6.0


class LateReplies:
    """The kept messages of a process. A second copy of a message does nothing."""

    def __init__(self, share: float) -> None:
        self._shares = Shares(MAX_BYTES, share, "bytes of answers waiting for the store", seconds=1)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def deliver(self, caller: Caller, size: int, pass_on: Callable[[], Awaitable[None]]) -> None:
        """Pass a message on. Return when it is passed on or kept; raise a refusal."""
        size += _OVERHEAD
        self._shares.take(caller, size)
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[None] = loop.create_future()

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._shares.give_back(caller, size)

        task = loop.create_task(_pass_on(pass_on, accepted))
        self._tasks.add(task)
        task.add_done_callback(ended)
        try:
            await asyncio.wait({accepted}, timeout=CONFIRM_SECONDS)
            if accepted.done():
                accepted.result()
        finally:
            accepted.cancel()

    async def close(self) -> None:
        """Give up what the store has not taken."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CONFIRM_SECONDS)
        unsent = [task for task in self._tasks if not task.done()]
        for task in unsent:
            task.cancel()
        if unsent:
            await asyncio.wait(unsent)


async def _pass_on(pass_on: Callable[[], Awaitable[None]], accepted: asyncio.Future[None]) -> None:
    loop, backoff, copies = asyncio.get_running_loop(), Backoff(longest=LONGEST_PAUSE), 1
    until = loop.time() + KEPT_SECONDS
    while True:
        try:
            await pass_on()
        except (StoreFailed, StoreFull) as error:
            is_temporary = isinstance(error, StoreFailed) and error.temporary
            if not is_temporary and not accepted.done():
                accepted.set_exception(error)
                return
            if loop.time() >= until:
                log.error("an answer or a cancellation of a client is lost: %s", error)
                return
            copies = 2
            pause = backoff.after(None)
        except Exception as error:
            if not accepted.done():
                accepted.set_exception(error)
            elif not isinstance(error, HttpRefusal):  # A session that is over needs no answer.
                log.error("an answer or a cancellation of a client is lost: %s", error, exc_info=error)
            return
        else:
            copies -= 1
            if not copies:
                if not accepted.done():
                    accepted.set_result(None)
                return
            pause = SECOND_COPY_SECONDS
        if not accepted.done():
            accepted.set_result(None)
        await asyncio.sleep(pause)
