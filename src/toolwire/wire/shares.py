"""Limits that callers share: one limit for all of them together, and a share of it for each.

    Shares           counts what callers hold, and refuses what is too much
    Turns            the same, with a queue: callers wait until there is room
    StorageBudget    the same as `Shares`, for amounts that end by themselves

A caller is a principal, or the address of a peer. None stands for a caller that no share limits: the process at the
other end of a pipe, or everybody behind an address that says nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Final, TypeAlias

from toolwire.protocol.errors import INTERNAL_ERROR, TOO_MANY_CALLS, ProtocolError
from toolwire.wire.threads import hand_over

#: After how many seconds a caller of a storage budget should try again that is refused.
_RETRY_SECONDS: Final = 5
#: So many ends of released entries are kept at least.
_FEW: Final = 64

Caller: TypeAlias = Hashable | None


def is_distinct(principal: Any) -> bool:
    """Return whether a principal is one caller, and not missing or shared by strangers."""
    return principal is not None and not getattr(principal, "is_shared", False)


def caller_of(principal: Any) -> Caller:
    """Return the caller for a principal of any class; None without a distinct principal."""
    if not is_distinct(principal):
        return None
    try:
        return principal.provider, principal.subject
    except AttributeError:
        return "", str(principal)


class Taken(ProtocolError):
    """The refusal of a request, because its caller holds its whole share (`own`), or nothing is left for anybody.

    Over HTTP it becomes 429 or 503, with `Retry-After`.
    """

    request_id: str | int | None = None

    def __init__(self, amount: int, what: str, seconds: int, *, own: bool) -> None:
        who = "You have" if own else "The server has"
        most = "one caller may have" if own else "it takes"
        text = f"{who} {amount} {what} at once, and {most} no more; try again in {seconds} s"
        code = TOO_MANY_CALLS if own else INTERNAL_ERROR
        super().__init__(code, text, {"retryAfterMs": seconds * 1000})
        self.own = own
        self.seconds = seconds


class Shares:
    """The count of something of which there is `limit`, by caller. One caller gets `share` of it at most.

    `what` names it in refusals, and a caller that is refused should try again after `seconds`.

    A caller is remembered only while it holds something, so there are never more entries than `limit`. Several threads
    may use one object.
    """

    __slots__ = ("_held", "_lock", "_seconds", "_what", "assign", "limit", "own", "total")

    def __init__(self, limit: int, share: float, what: str, *, of: int | None = None, seconds: int = 1) -> None:
        """`of`: the number that the share is a part of, where that is not the limit."""
        self.limit: int = limit
        self.own: int = max(1, int((limit if of is None else of) * share))
        """The amount that one caller may hold."""
        self.total: int = 0
        self.assign: Callable[[], None] = _nothing
        """Calls `assign_to` for what is in the total and belongs to no caller yet, before anybody asks for callers.

        What is held for a moment only, and never makes the limit scarce, is then never counted for its caller.
        """
        self._what = what
        self._seconds = seconds
        self._held: dict[Caller, int] = {}
        self._lock = threading.Lock()

    def take(self, caller: Caller, amount: int = 1) -> None:
        """Count what a caller wants to hold; raise `Taken` when that is too much."""
        if self.total + amount > self.own:
            self.assign()
        with self._lock:
            held = self._held.get(caller, 0) + amount
            if held > self.own or self.total + amount > self.limit:
                self._check(caller, amount)
            self._held[caller] = held
            self.total += amount

    def assign_to(self, caller: Caller) -> None:
        """Count one for a caller that is in the total already."""
        with self._lock:
            self._held[caller] = self._held.get(caller, 0) + 1

    def add(self, caller: Caller, amount: int) -> None:
        """Count what a caller holds in any case, also above its share."""
        with self._lock:
            self._held[caller] = self._held.get(caller, 0) + amount
            self.total += amount

    def check(self, caller: Caller, amount: int = 1) -> None:
        """Raise `Taken` when a caller can have no more. Nothing is counted."""
        if self.total + amount > self.own:  # Below that there is room for anybody.
            self.assign()
            self._check(caller, amount)

    def _check(self, caller: Caller, amount: int) -> None:
        if caller is not None and self._held.get(caller, 0) + amount > self.own:
            raise Taken(self.own, self._what, self._seconds, own=True)
        if self.total + amount > self.limit:
            raise Taken(self.limit, self._what, self._seconds, own=False)

    def has_room(self, caller: Caller, amount: int = 1) -> bool:
        """Return whether a caller could have so much now. Nothing is counted."""
        return self.total + amount <= self.limit and (caller is None or self.held_by(caller) + amount <= self.own)

    def give_back(self, caller: Caller, amount: int = 1) -> None:
        """Stop counting what a caller held."""
        with self._lock:
            self.total -= amount
            left = self._held[caller] - amount
            if left > 0:
                self._held[caller] = left
            else:
                del self._held[caller]

    def clear(self) -> None:
        """Stop counting everything."""
        with self._lock:
            self._held.clear()
            self.total = 0

    def full(self) -> set[Caller]:
        """Return the callers that hold their whole share."""
        self.assign()
        with self._lock:
            return {caller for caller, held in self._held.items() if caller is not None and held >= self.own}

    def held_by(self, caller: Caller) -> int:
        """Return how much a caller holds now."""
        self.assign()
        return self._held.get(caller, 0)

    @property
    def callers(self) -> int:
        """Return the number of callers that hold something."""
        self.assign()
        return len(self._held)


def _nothing() -> None:
    """Assign nothing, because everything was counted for its caller at once."""


class Waiter:
    """A place in the queue of `Turns`."""

    __slots__ = ("begin", "caller", "has_turn")

    def __init__(self, caller: Caller, begin: Callable[[], bool]) -> None:
        self.caller: Caller = caller
        self.begin: Callable[[], bool] = begin
        self.has_turn: bool = False


class Turns:
    """Shares with a queue: callers that find no room wait for their turn.

    there is room            a caller gets its turn at once
    the limit is reached     callers wait; those that had no turn for longest come first
    the share is used up     the caller waits, and holds up no other

    The turns of one caller come in their order. Several threads and event loops may use one object.
    """

    __slots__ = ("_lock", "_on_free", "_queues", "shares", "waiting")

    def __init__(self, shares: Shares, on_free: Callable[[], None] | None = None) -> None:
        """`on_free` is called when there is room that nothing in the queue can use."""
        self.shares: Shares = shares
        self.waiting: int = 0
        """How many wait for their turn."""
        self._on_free = on_free
        # Callers without a turn for longest come first.
        self._queues: dict[Caller, deque[Waiter]] = {}
        self._lock = threading.RLock()

    @property
    def running(self) -> int:
        return self.shares.total

    @property
    def free(self) -> int:
        """Return how much room there is. A caller that waits nevertheless has used up its share."""
        return max(self.shares.limit - self.shares.total, 0)

    def has_queue(self, caller: Caller) -> bool:
        """Return whether something of a caller waits."""
        return caller in self._queues

    def queue_length(self, caller: Caller) -> int:
        return len(self._queues.get(caller, ()))

    def take(self, caller: Caller = None, amount: int = 1) -> bool:
        """Take a turn at once. Return False if there is no room for this caller."""
        try:
            self.shares.take(caller, amount)
        except Taken:
            return False
        return True

    def take_or_queue(self, caller: Caller, begin: Callable[[], bool]) -> Waiter | None:
        """Take a turn at once, or wait in the queue. Return the place in the queue; None for a turn.

        `begin` is called in any thread when the turn comes. It returns False if nothing needs the turn any more.
        """
        with self._lock:
            if self.take(caller):
                return None
            waiter = Waiter(caller, begin)
            self._queues.setdefault(caller, deque()).append(waiter)
            self.waiting += 1
            return waiter

    async def wait(self, caller: Caller = None, seconds: float | None = None) -> None:
        """Take a turn as soon as there is one; raise `TimeoutError` after `seconds`."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not turn.done():
                turn.set_result(None)

        def begin() -> bool:
            if asyncio._get_running_loop() is not loop:
                return hand_over(loop, settle)
            is_wanted = not turn.done()
            settle()
            return is_wanted

        waiter = self.take_or_queue(caller, begin)
        if waiter is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException:
            self.leave(waiter)
            raise

    def leave(self, waiter: Waiter) -> None:
        """Leave the queue. A turn that came meanwhile goes to the next."""
        with self._lock:
            if not waiter.has_turn:
                queue = self._queues.get(waiter.caller)
                if queue is not None and waiter in queue:
                    queue.remove(waiter)
                    self.waiting -= 1
                    if not queue:
                        del self._queues[waiter.caller]
                return
        self.give_back(waiter.caller)

    def give_back(self, caller: Caller = None, amount: int = 1) -> None:
        """Give turns back; those that wait get them."""
        if not amount:
            return
        with self._lock:
            self.shares.give_back(caller, amount)
            self._pass_on()
        if self._on_free is not None and self.free:
            self._on_free()

    def exchange(self, caller: Caller) -> bool:
        """Give a caller a turn that was taken for none. Return False, with the turn given back, if it has its share."""
        with self._lock:
            self.shares.give_back(None)
            if self.take(caller):
                return True
            self._pass_on()
        if self._on_free is not None and self.free:
            self._on_free()
        return False

    def _pass_on(self) -> None:
        while self._queues:
            for caller in tuple(self._queues):
                if self._begin_next(caller):
                    break
            else:
                return

    def _begin_next(self, caller: Caller) -> bool:
        """Begin the next turn of a caller. Return False if there is no room for it."""
        if not (self.shares.has_room(caller) and self.take(caller)):
            return False
        queue = self._queues.pop(caller)
        while queue:
            waiter = queue.popleft()
            self.waiting -= 1
            if waiter.begin():
                waiter.has_turn = True
                break
        else:
            self.shares.give_back(caller)
        if queue:
            self._queues[caller] = queue
        return True

    def drop_queue(self) -> list[Waiter]:
        """Empty the queue. Return what waited."""
        with self._lock:
            queues, self._queues, self.waiting = self._queues, {}, 0
        return [waiter for queue in queues.values() for waiter in queue]


class StorageBudget(Shares):
    """Shares of what this process puts into the store, for values whose size callers decide."""

    __slots__ = ("_ends", "_entries", "_numbers")

    def __init__(self, limit: int, share: float, what: str = "bytes kept", *, of: int | None = None) -> None:
        """`of`: the number that the share is a part of, where that is not the limit."""
        super().__init__(limit, share, what, of=of, seconds=_RETRY_SECONDS)
        # The entries by number, and their ends. Those of released entries are dropped later.
        self._entries: dict[int, tuple[Caller, int]] = {}
        self._ends: list[tuple[float, int]] = []
        self._numbers = count(1)

    def admit(self, caller: Caller, size: int, seconds: float | None = None) -> int:
        """Count bytes until their time is over, or without an end. Return their number; 0 if there is no room."""
        now = time.monotonic()
        self._drop_expired(now)
        try:
            self.take(caller, size)
        except Taken:
            return 0
        number = next(self._numbers)
        self._entries[number] = caller, size
        if seconds is not None:
            heapq.heappush(self._ends, (now + seconds, number))
        return number

    def end_after(self, number: int, seconds: float) -> None:
        """Give bytes that were admitted without an end so many seconds from now on."""
        heapq.heappush(self._ends, (time.monotonic() + seconds, number))

    def release(self, number: int) -> None:
        """Stop counting the bytes of a number of `admit` before their time is over."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return
        self.give_back(*entry)
        # Ends that are far away must not pile up.
        if len(self._ends) > 2 * len(self._entries) + _FEW:
            self._ends = [end for end in self._ends if end[1] in self._entries]
            heapq.heapify(self._ends)

    def has_room(self, caller: Caller, amount: int = 1) -> bool:
        self._drop_expired(time.monotonic())
        return super().has_room(caller, amount)

    def check(self, caller: Caller, amount: int = 1) -> None:
        self._drop_expired(time.monotonic())
        super().check(caller, amount)

    def seconds_until_release(self) -> float:
        """Return after how many seconds the next of the counted bytes are released."""
        now = time.monotonic()
        self._drop_expired(now)
        return self._ends[0][0] - now if self._ends else 0.0

    def _drop_expired(self, now: float) -> None:
        while self._ends and (self._ends[0][0] <= now or self._ends[0][1] not in self._entries):
            _, number = heapq.heappop(self._ends)
            entry = self._entries.pop(number, None)
            if entry is not None:
                self.give_back(*entry)
