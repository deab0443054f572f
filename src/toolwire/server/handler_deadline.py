"""The time a handler may take, at next to no cost for those that come to their end in time, as nearly all do.

A short time has a timer, shared with others of its length. A long one is looked at once a second instead, together with
all others of the server: that is late by two seconds at most, and takes neither a clock nor a timer to begin.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from toolwire.wire.deadlines import LONG, LOOK_EVERY, Timeouts, timeouts

log: logging.Logger = logging.getLogger("toolwire.server")

#: How long the loop may stand still before that is said, and how seldom it is said.
HELD_SECONDS: Final = 2.0
TELL_EVERY: Final = 60.0


class Deadline(Struct, eq=False):
    """Cancels the task of a handler that runs too long; stands still while it waits for the client."""

    seconds: float
    task: asyncio.Task[Any] | None
    loop: asyncio.AbstractEventLoop
    expired: bool = False
    _used: float = 0.0
    _started: float | None = None
    _pauses: int = 0
    _timer: asyncio.TimerHandle | Timeouts | None = None

    def look(self, now: float) -> None:
        """Once a second: the first look begins to count, a later one finds that the time is over."""
        if self._timer is None and not self._pauses:
            if self._started is None:
                self._started = now
            elif now - self._started >= self.seconds:
                self.expire()

    def count(self) -> None:
        """Begin to count, or go on; several questions may be open at once."""
        if self.task is None or self._pauses:
            return
        if self._used:
            self._started = self.loop.time()
            self._timer = self.loop.call_later(max(0.0, self.seconds - self._used), self.expire)
        elif self.seconds < LONG:
            self._started = self.loop.time()
            self._timer = timeouts(self.loop, self.seconds)
            self._timer.start(self.expire)

    def pause(self) -> None:
        self._pauses += 1
        self._call_off()
        if self._started is not None:
            self._used += self.loop.time() - self._started
            self._started = None

    def resume(self) -> None:
        self._pauses -= 1
        self.count()

    def allow(self, seconds: float) -> None:
        """Give the handler this much time from now on."""
        self.seconds, self._used, self._started = seconds, 0.0, None
        self._call_off()
        self.count()

    def stop(self) -> None:
        """The handler has come to its end; a question that is let go of later starts nothing."""
        self.task = None
        self._call_off()

    def _call_off(self) -> None:
        timer, self._timer = self._timer, None
        if isinstance(timer, Timeouts):
            timer.stop(self.expire)
        elif timer is not None:
            timer.cancel()

    def expire(self) -> None:
        """The time is over."""
        if self.task is not None and not self.expired:
            self.expired = True
            self.task.cancel()


class Deadlines:
    """Those of the handlers that run on one loop."""

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self.watched: bool = False
        self._due: float = 0.0
        self._said: float = -inf

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look at those that run every second, for as long as there are any."""
        self.watched = True
        # Not the time of the loop, which a test may advance.
        self._due = monotonic() + LOOK_EVERY
        loop.call_later(LOOK_EVERY, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.watched = False
        if monotonic() - self._due >= HELD_SECONDS:
            self._tell_held(monotonic())
        now = loop.time()
        for deadline in tuple(self.running):
            deadline.look(now)
        if self.running:
            self.watch(loop)

    def _tell_held(self, now: float) -> None:
        """Say that nothing else could run for a while: neither polls nor cancellations nor other calls (J86)."""
        if now - self._said < TELL_EVERY:
            return
        self._said = now
        log.warning(
            "the event loop stood still for %.1f seconds: an async handler computes or blocks without awaiting; "
            "make it a plain def, which runs in a thread, or give it executor='process'",
            now - self._due,
        )


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


def deadlines_on(loop: asyncio.AbstractEventLoop) -> Deadlines:
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = Deadlines()
    return found
