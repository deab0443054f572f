"""Time limits. Four kinds are in use, and each has its place.

`Deadlines` limits the time of our requests and of handlers. Every call has a deadline and nearly none is reached, so
starting one must be cheap. A long time is counted only from the next look on, which happens once a second. A short time
shares one timer with all others of its owner. A deadline can be paused and restarted. A connection has one `Deadlines`
for its requests, and a server has one for its handlers.

`CallClock` limits one call of a program, which may need several requests: rounds, lists, a second attempt. Each request
gets what the requests before it have left.

`Timeouts` calls back when nothing has happened for a while: no byte of a body, no event on a stream. All timeouts of
one length on one loop share one timer, however many streams are open.

`in_time` is `asyncio.timeout` for a single rare step, such as closing a connection. It returns whether the step ended
in time. Code that has to raise, or that limits several steps at once, uses `asyncio.timeout` itself, with a
`TimeoutClock` if the time has to stand still.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import takewhile
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary, proxy

from toolwire.protocol.errors import Timeout, ToolwireError, counted

T = TypeVar("T")
Callback = Callable[[], object]

#: A time of so many seconds or more may end a second or two late. It is counted from the first look on. So a call that
#: ends before that look never reads the clock.
LONG: Final = 20.0
LOOK_EVERY: Final = 1.0
#: The number of different lengths for which timeouts of a loop share a timer.
SHARED: Final = 64


async def in_time(seconds: float | None, step: Awaitable[object]) -> bool:
    """Wait for a step to end within some seconds; return False when it took longer, and was cancelled."""
    limit = asyncio.timeout(None)
    try:
        async with limit:
            if seconds is not None:
                # A timer keeps its context until it is due, also when it is cancelled, and the context has the call.
                Context().run(limit.reschedule, asyncio.get_running_loop().time() + seconds)
            await step
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    finally:
        # It has the task, and the error of a cancelled task has this frame: a cycle.
        del limit
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


class PersonTime:
    """Stops the clocks of all who wait for a sign-in while it waits for a person, on all event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClocks] = WeakKeyDictionary()

    @contextmanager
    def stopping(self, clock: Pausable | None) -> Iterator[None]:
        """Stop a clock whenever a person is asked meanwhile."""
        if clock is None:
            yield
            return
        with self._lock:
            loop = asyncio.get_running_loop()
            clocks = self._loops.get(loop)
            if clocks is None:
                clocks = self._loops[loop] = _LoopClocks(self._asked)
        entry = clocks.add(clock)
        try:
            yield
        finally:
            clocks.remove(entry)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask a person meanwhile."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def _change(self, by: int) -> None:
        here = asyncio.get_running_loop()
        with self._lock:
            self._asked += by
            for loop, clocks in self._loops.items():
                if loop is here:
                    clocks.change(by)
                else:
                    with suppress(RuntimeError):  # The loop has ended, and its clocks with it.
                        loop.call_soon_threadsafe(clocks.change, by)


class _LoopClocks:
    """The clocks of one event loop that stand still while a person is asked. Only that loop touches them."""

    def __init__(self, asked: int) -> None:
        self._clocks: dict[object, Pausable] = {}
        self._asked = asked

    def add(self, clock: Pausable) -> object:
        entry = object()
        self._clocks[entry] = clock
        if self._asked:
            clock.pause()
        return entry

    def remove(self, entry: object) -> None:
        clock = self._clocks.pop(entry)
        if self._asked:
            clock.resume()

    def change(self, by: int) -> None:
        """Take note that one more person is asked, or one less."""
        before, self._asked = self._asked, self._asked + by
        if bool(before) == bool(self._asked):
            return
        for clock in self._clocks.values():
            if self._asked:
                clock.pause()
            else:
                clock.resume()


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

    __slots__ = ("_holders", "_stopped_at", "behind", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._holders = 0
        self._stopped_at = 0.0
        self.behind: float = 0.0
        """The seconds by which it is behind the loop, while it goes."""

    @property
    def stands(self) -> bool:
        return self._holders > 0

    def time(self) -> float:
        return self._stopped_at if self._holders else self.loop.time() - self.behind

    def hold(self) -> None:
        """Stop the clock until everyone who holds it has let go."""
        if not self._holders:
            self._stopped_at = self.time()
        self._holders += 1

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.behind = self.loop.time() - self._stopped_at


class Deadlines:
    """The deadlines of everything that `waiting` returns; one that is reached is handed to `expire`."""

    __slots__ = ("_alarm", "_alarm_at", "_ceiling", "_expire", "_looking", "_loop", "_waiting", "call_time", "clock")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: Callable[[], Iterable[Any]],
        expire: Callable[[Any], None],
        ceiling: float = math.inf,
    ) -> None:
        """`ceiling`: the seconds up to which progress may put a deadline off, unless its own time is longer."""
        self.clock: StoppableClock = StoppableClock(loop)
        self.call_time: StoppableClock = StoppableClock(loop)
        """The clock of calls (`CallClock`). It stops while a request is paused, too."""
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
            self._loop.call_later(LOOK_EVERY, self.look, context=Context())

    def restart(self, timed: Timed) -> None:
        """Give something its whole time again, up to its ceiling (CAN-4: progress may restart the clock)."""
        if timed.seconds is not None and not timed.pauses:
            self._count(timed, timed.seconds, self.clock.time())

    def allow(self, timed: Timed, seconds: float) -> None:
        """Give a running request this many seconds from now on."""
        if timed.seconds is not None and not timed.pauses:
            self._count(timed, seconds, self.clock.time())

    def pause(self, timed: Timed) -> None:
        """Let the time of one stand still until `resume`; several may pause it at once."""
        self.call_time.hold()
        timed.pauses += 1
        if timed.pauses == 1:
            timed.left = timed.expires - self.clock.time()
            timed.expires = math.inf

    def resume(self, timed: Timed) -> None:
        self.call_time.let_go()
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
        call_time = self.call_time
        self.clock.hold()
        call_time.hold()
        try:
            yield
        finally:
            call_time.let_go()
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
        self._alarm = self._loop.call_at(when + self.clock.behind, self.ring, context=Context())
        self._alarm_at = when


# --- the time limit of a call ---------------------------------------------------------------------


class Clock(Protocol):
    """A source of time: an event loop, or `Deadlines.call_time`."""

    def time(self) -> float: ...


class CallClock:
    """The time limit of one call: its rounds, lists and second attempts share it.

    The time of people does not count. `leave_out` is for a step of the call itself: an approval, the answers to a
    round. `Deadlines.call_time` leaves out what happens during a request: a question of the server, a sign-in.
    """

    # Most calls are one request, and change none of these.
    _is_begun: bool = False
    _pauses: int = 0
    _requests: int = 0
    _stopped_at: float = 0.0

    def __init__(
        self, seconds: float | None, source: Clock, *, ceiling: float = 0.0, began: float | None = None
    ) -> None:
        """Start the limit of `seconds`, or of any time for None.

        Progress extends the limit to `ceiling` seconds. `began`: now, by default.
        """
        self._source = source
        self._longest = ceiling
        self.seconds: float | None = None if seconds == math.inf else seconds
        if seconds is not None:
            now = source.time() if began is None else began
            self._due = now + seconds
            self._ceiling = now + ceiling if ceiling > seconds else self._due

    def _now(self) -> float:
        return self._stopped_at if self._pauses > 0 else self._source.time()

    def left(self) -> float | None:
        """Return the seconds left, zero or less at the end; None for any time."""
        return None if self.seconds is None else self._due - self._now()

    def begin(self) -> float | None:
        """Return the seconds left. The first step of a call gets the whole limit."""
        if self._is_begun:
            return self.left()
        self._is_begun = True
        return self.seconds

    def limit(self, method: str) -> float | None:
        """Return the time limit of the next request; raise `Timeout` when no time is left."""
        self._requests += 1
        left = self.left() if self._is_begun else self.seconds
        self._is_begun = True
        if left is not None and left <= 0:
            raise self.make_timeout(method)
        return left

    def rest(self, method: str) -> float:
        """Return the limit of the next request, perhaps infinite; raise `Timeout` at the end."""
        limit = self.limit(method)
        return math.inf if limit is None else limit

    @property
    def is_first(self) -> bool:
        """Return whether the call has sent one request at most."""
        return self._requests <= 1

    def make_timeout(self, method: str) -> Timeout:
        """Return the error of a call whose time is over."""
        assert self.seconds is not None
        # Progress has extended the limit as far as it may.
        seconds = max(self.seconds, self._longest) if self._due >= self._ceiling else self.seconds
        together = "" if self.is_first else ", in all its requests together"
        return Timeout(f"{method} was not answered within {counted(seconds, 'second')}{together}")

    def restart(self) -> None:
        """Give the call its whole time again, up to its ceiling, because there is progress."""
        if self.seconds is not None:
            self._due = max(self._due, min(self._now() + self.seconds, self._ceiling))

    def reset(self, seconds: float | None) -> None:
        """Begin anew with another limit."""
        self._is_begun = False
        self.seconds = None if seconds == math.inf else seconds
        if seconds is not None:
            now = self._now()
            self._due = now + seconds
            self._ceiling = now + max(seconds, self._longest)

    def cap(self, seconds: float | None) -> None:
        """Let the call take this many seconds more at most."""
        left = self.left()
        if seconds is not None and (left is None or seconds < left):
            self.reset(seconds)

    def extend(self, seconds: float) -> None:
        """Replace the limit by a longer one that began at the same time."""
        if self.seconds is not None and seconds > self.seconds:
            self._due += seconds - self.seconds
            self._ceiling = max(self._ceiling, self._due)
            self.seconds = seconds

    def follow(self, source: Clock) -> None:
        """Count by the clock of another connection from now on."""
        if source is not self._source and self.seconds is not None:
            later = source.time() - self._source.time()
            self._due += later
            self._ceiling += later
            self._stopped_at += later
        self._source = source

    def pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1:
            self._stopped_at = self._source.time()

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and self.seconds is not None:
            later = self._source.time() - self._stopped_at
            self._due += later
            self._ceiling += later

    @contextmanager
    def leave_out(self) -> Iterator[None]:
        """Leave out the time that a person takes."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def count_again(self) -> Iterator[None]:
        """Count the time of a request within `leave_out`."""
        self.resume()
        try:
            yield
        finally:
            self.pause()

    async def wait_for(self, method: str, work: Awaitable[T]) -> T:
        """Return the result of work. Cancel it and raise `Timeout` at the end."""
        try:
            async with asyncio.timeout(self.begin()):
                return await work
        except TimeoutError as error:
            if isinstance(error, ToolwireError):
                raise
            raise self.make_timeout(method) from None

    async def sleep(self, seconds: float) -> None:
        """Sleep, at most until no time is left."""
        left = self.left()
        await asyncio.sleep(seconds if left is None else min(seconds, left))

    async def wait(self, task: asyncio.Future[Any]) -> bool:
        """Wait for a task within the time, without cancelling it. Return whether it is done."""
        left = self.begin()
        pause = left
        while not task.done() and (left is None or left > 0):
            await asyncio.wait({task}, timeout=pause)
            left = self.left()
            # The time stood still for a person.
            pause = None if left is None else max(left, LOOK_EVERY)
        return task.done()


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
            self._loop.call_at(due, self._ring, context=Context())

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
                self._loop.call_at(first, self._ring, context=Context())


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
