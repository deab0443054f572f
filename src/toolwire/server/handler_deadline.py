"""The deadlines of handlers, and a warning when a handler holds the event loop up."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from math import inf
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from toolwire.wire.deadlines import LONG, LOOK_EVERY, Deadlines

log: logging.Logger = logging.getLogger("toolwire.server")

#: The seconds that the loop may stand still before that is logged, and the least seconds between two such lines.
HELD_SECONDS: Final = 2.0
TELL_EVERY: Final = 60.0


class Deadline(Struct, eq=False):
    """The time of one handler. At its end the task of the handler is cancelled.

    The time stands still while the handler waits for an answer of the client, because a person may take long.
    """

    seconds: float
    task: asyncio.Task[Any] | None
    """The task of the handler; None when the handler has ended."""
    deadlines: Deadlines
    loop: asyncio.AbstractEventLoop
    expired: bool = False
    expires: float = inf
    ceiling: float = inf
    pauses: int = 0
    left: float = inf

    def pause(self) -> None:
        self.deadlines.pause(self)

    def resume(self) -> None:
        self.deadlines.resume(self)

    def allow(self, seconds: float) -> None:
        """Give the handler this much time from now on."""
        self.seconds, self.expires, self.left = seconds, inf, inf
        if not self.pauses:
            self.deadlines.start(self)

    @property
    def time_left(self) -> float:
        """Return how many seconds the handler has left."""
        if self.pauses:
            return min(self.left, self.seconds)
        # A long time is not counted before the next look.
        return self.seconds if self.expires == inf else self.expires - self.deadlines.clock.time()

    def stop(self) -> None:
        """Note that the handler has ended; a question that is answered later changes nothing."""
        self.task = None

    def expire(self) -> None:
        """End the handler, for its time is over."""
        if self.task is not None and not self.expired:
            self.expired = True
            self.task.cancel()


class RunningHandlers:
    """The handlers of a server that run on one loop, and their deadlines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.deadlines: set[Deadline] = set()
        self._limits = Deadlines(loop, self.deadlines.copy, Deadline.expire)
        self._watched = False
        self._due = 0.0
        self._told = -inf

    def start(self, seconds: float, task: asyncio.Task[Any] | None) -> Deadline:
        """Begin the time of a handler. The caller removes the deadline from `deadlines` when the handler has ended."""
        deadline = Deadline(seconds, task, self._limits, self.loop)
        self.deadlines.add(deadline)
        if seconds < LONG:
            self._limits.start(deadline)
        if not self._watched:
            self._watch()
        return deadline

    def close(self) -> None:
        self._limits.close()

    def _watch(self) -> None:
        """Look every second at the deadlines, and check whether the loop stood still, while handlers run."""
        self._watched = True
        # Not the clock of the loop, because a test may advance that.
        self._due = monotonic() + LOOK_EVERY
        self.loop.call_later(LOOK_EVERY, self._look, context=Context())

    def _look(self) -> None:
        self._watched = False
        now = monotonic()
        if now - self._due >= HELD_SECONDS and now - self._told >= TELL_EVERY:
            self._told = now
            # Meanwhile nothing else could run: neither polls nor cancellations nor other calls (J86).
            log.warning(
                "the event loop stood still for %.1f seconds: an async handler computes or blocks without awaiting; "
                "make it a plain def, which runs in a thread, or give it executor='thread' or executor='process'",
                now - self._due,
            )
        if self.deadlines:
            self._limits.look()
            self._watch()
