"""Time limits. Three kinds are in use, and each has its place.

`Deadlines` limits the time of our requests and of handlers. Every call has a deadline and nearly none is reached, so
starting one must be cheap. A long time is counted only from the next look on, which happens once a second. A short time
shares one timer with all others of its owner. A deadline can be paused and restarted. A connection has one `Deadlines`
for its requests, and a server has one for its handlers.

`Timeouts` calls back when nothing has happened for a while: no byte of a body, no event on a stream. All timeouts of
one length on one loop share one timer, however many streams are open.

`in_time` is `asyncio.timeout` for a single rare step, such as closing a connection. It returns whether the step ended
in time. Code that has to raise, or that limits several steps at once, uses `asyncio.timeout` itself, with a
`TimeoutClock` if the time has to stand still.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary, proxy

Callback = Callable[[], object]

#: A time of so many seconds or more may end a second or two late. It is counted from the first look on. So a call that
#: ends before that look never reads the clock.
LONG: Final = 20.0
LOOK_EVERY: Final = 1.0
#: The number of different lengths for which timeouts of a loop share a timer.
SHARED: Final = 64


async def in_time(seconds: float | None, step: Awaitable[object]) -> bool:
    """Wait for a step to end within some seconds; return False when it took longer, and was cancelled."""
    try:
        async with asyncio.timeout(seconds) as limit:
            await step
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


class Pausable(Protocol):
    """The time of a request, which can stand still while a person signs in."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class TimeoutClock:
    """The clock of an `asyncio.timeout()`, which can stand still."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._left = 0.0

    def pause(self) -> None:
        when = self._timeout.when()
        assert when is not None
        self._left = when - asyncio.get_running_loop().time()
        self._timeout.reschedule(None)

    def resume(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)


# --- deadlines ------------------------------------------------------------------------------------


class Timed(Protocol):
    """Something that has to end in time: a request of ours, or a handler. `Deadlines` keeps its state here."""

    expires: float
    """When its time is over, by the clock of its `Deadlines`; infinite while the time is not counted."""
    ceiling: float
    """The moment up to which progress may put `expires` off."""
    pauses: int
    """The number of pauses that have not ended yet."""
    left: float
    """The rest of its time while it is paused; infinite if the time was not counted yet."""

    @property
    def seconds(self) -> float | None:
        """Return the time that it may take; None for any time."""


class StoppableClock:
    """The time of a loop, less the time for which somebody held the clock."""

    __slots__ = ("_holders", "_loop", "_stopped_at", "behind")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holders = 0
        self._stopped_at = 0.0
        self.behind: float = 0.0
        """The seconds by which it is behind the loop, while it goes."""

    @property
    def stands(self) -> bool:
        return self._holders > 0

    def time(self) -> float:
        return self._stopped_at if self._holders else self._loop.time() - self.behind

    def hold(self) -> None:
        """Stop the clock until everyone who holds it has let go."""
        if not self._holders:
            self._stopped_at = self.time()
        self._holders += 1

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.behind = self._loop.time() - self._stopped_at


class Deadlines:
    """The deadlines of everything that `waiting` returns; one that is reached is handed to `expire`."""

    __slots__ = ("_alarm", "_alarm_at", "_ceiling", "_expire", "_looking", "_loop", "_waiting", "clock")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: Callable[[], Iterable[Any]],
        expire: Callable[[Any], None],
        ceiling: float = math.inf,
    ) -> None:
        """`ceiling`: the seconds up to which progress may put a deadline off, unless its own time is longer."""
        self.clock: StoppableClock = StoppableClock(loop)
        self._loop = loop
        self._waiting = waiting
        self._expire = expire
        self._ceiling = ceiling
        self._looking = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf

    def start(self, timed: Timed) -> None:
        """Limit the time of something that begins now and has `seconds`."""
        seconds = timed.seconds
        if seconds is not None and seconds < LONG:
            self._count(timed, seconds, self.clock.time())
        elif not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_EVERY, self.look)

    def restart(self, timed: Timed) -> None:
        """Give something its whole time again, up to its ceiling (CAN-4: progress may restart the clock)."""
        if timed.seconds is not None and not timed.pauses:
            self._count(timed, timed.seconds, self.clock.time())

    def pause(self, timed: Timed) -> None:
        """Let the time of one stand still until `resume`; several may pause it at once."""
        timed.pauses += 1
        if timed.pauses == 1:
            timed.left = timed.expires - self.clock.time()
            timed.expires = math.inf

    def resume(self, timed: Timed) -> None:
        timed.pauses -= 1
        if timed.pauses or timed.seconds is None:
            return
        if timed.left == math.inf:
            self.start(timed)
        else:
            self._count(timed, timed.left, self.clock.time())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the time of all stand still meanwhile."""
        self.clock.hold()
        try:
            yield
        finally:
            self.clock.let_go()
            self._set_alarm()

    def allowance(self, timed: Timed) -> float:
        """Return how many seconds something had that has reached its deadline."""
        assert timed.seconds is not None
        # Where progress went on and on, the ceiling was reached.
        return max(timed.seconds, self._ceiling) if timed.expires >= timed.ceiling else timed.seconds

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def look(self) -> None:
        """Start to count the time of everything that still runs. Nearly everything ends before this first look."""
        self._looking = False
        now = self.clock.time()
        for timed in self._waiting():
            if timed.expires == math.inf and timed.seconds is not None and not timed.pauses:
                self._count(timed, timed.seconds, now)

    def ring(self) -> None:
        """Expire what is due, and set the alarm for what is due next."""
        self._alarm = None
        self._alarm_at = math.inf
        now = self.clock.time()
        for timed in tuple(self._waiting()):
            if timed.expires <= now:
                self._expire(timed)
        if not self.clock.stands:
            # A handler that has reached its deadline may still clean up, and is not due again.
            self._set_alarm(after=now)

    def _count(self, timed: Timed, seconds: float, now: float) -> None:
        if timed.expires == math.inf:
            assert timed.seconds is not None
            timed.ceiling = now + max(timed.seconds, self._ceiling)
        timed.expires = min(now + seconds, timed.ceiling)
        # One timer serves all: it is set for the earliest deadline, and most calls find it set already.
        if timed.expires < self._alarm_at:
            self._set_alarm_at(timed.expires)

    def _set_alarm(self, after: float = -math.inf) -> None:
        earliest = min((timed.expires for timed in self._waiting() if timed.expires > after), default=math.inf)
        if earliest < math.inf:
            self._set_alarm_at(earliest)

    def _set_alarm_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when + self.clock.behind, self.ring)
        self._alarm_at = when


# --- timeouts -------------------------------------------------------------------------------------


class Timeouts:
    """Timeouts of one length on one loop.

    They end in the order in which they began, so only the first has to be watched. A timer of the loop is costly to
    make and to cancel; here both are an entry in a dict.
    """

    __slots__ = ("_due", "_loop", "_seconds", "_watching")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        # Neither the loop nor a timer, which knows its loop, is kept: otherwise `_of_loops` would keep the loop alive.
        self._loop: asyncio.AbstractEventLoop = proxy(loop)
        self._seconds = seconds
        self._due: dict[Callback, float] = {}
        self._watching = False

    def start(self, callback: Callback, since: float | None = None) -> None:
        """Call back once when the time is over. A callback stands for one timeout at a time.

        `since`: when the time began, a moment ago. Timeouts that were started since then keep their place before this
        one, which may end as much later.
        """
        self._due.pop(callback, None)  # Or it would keep its place in the order.
        self._due[callback] = due = (self._loop.time() if since is None else since) + self._seconds
        if not self._watching:
            self._watching = True
            self._loop.call_at(due, self._ring)

    def stop(self, callback: Callback) -> None:
        """Cancel a timeout. The timer is left alone: when it rings, it finds nothing to do."""
        self._due.pop(callback, None)

    def _ring(self) -> None:
        self._watching = False
        now = self._loop.time()
        try:
            for callback in [each for each, _ in takewhile(lambda item: item[1] <= now, self._due.items())]:
                if self._due.pop(callback, None) is not None:  # One of those before may have cancelled it.
                    callback()
        finally:
            first = next(iter(self._due.values()), None)
            if first is not None and not self._watching:
                self._watching = True
                self._loop.call_at(first, self._ring)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, Timeouts]] = WeakKeyDictionary()


def timeouts(loop: asyncio.AbstractEventLoop, seconds: float) -> Timeouts:
    """Return the timeouts of a length. Lengths are settings, so they are few; those beyond the limit share nothing."""
    lengths = _of_loops.get(loop)
    if lengths is None:
        lengths = _of_loops[loop] = {}
    found = lengths.get(seconds)
    if found is None:
        found = Timeouts(loop, seconds)
        if len(lengths) < SHARED:
            lengths[seconds] = found
    return found
