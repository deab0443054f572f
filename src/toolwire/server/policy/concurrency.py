"""Slots that calls hold while they run, and a queue of bounded length in front of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.server.policy.rates import in_words
from toolwire.util.numbers import COUNT, COUNT_OR_NONE, SECONDS, check_fields
from toolwire.wire.deadlines import Pausable
from toolwire.wire.threads import hand_over


class Slots(Struct, frozen=True):
    """`Slots(4, queue=16)`: four calls run, sixteen wait for at most `wait` seconds, the next one is refused.

    A call of a `def` handler that is cancelled or out of time holds its slot until its thread has ended.
    """

    running: int
    """How many calls run at once."""
    queue: int = 100
    """How many further calls wait."""
    wait: float = 30.0
    """How many seconds a call waits at most."""
    per: Literal["caller", "everyone"] = "everyone"
    """Whether each caller has these slots, or all callers share them.

    A caller is a principal, otherwise an address, as for `Limits(share=)`.
    """

    def __post_init__(self) -> None:
        check_fields("Slots", {"running": COUNT, "queue": COUNT_OR_NONE, "wait": SECONDS}, self)
        if self.per not in ("caller", "everyone"):
            raise ServerError(f"Slots are per 'caller' or for 'everyone', not {self.per!r}")


Concurrency: TypeAlias = int | Slots | Sequence[Slots]


class Placed(NamedTuple):
    """Slots of a server or of one of its components. For `subject`, see `rates.Counted`."""

    slots: Slots
    place: str
    subject: str = ""


def compile_slots(given: Concurrency, place: str, subject: str = "") -> list[Placed]:
    several = [Slots(given)] if isinstance(given, int) else [given] if isinstance(given, Slots) else given
    if not isinstance(several, Sequence) or not all(isinstance(each, Slots) for each in several):
        raise ServerError(f"concurrency= takes a number, Slots or a list of Slots, not {given!r:.100}")
    return [Placed(each, place, subject) for each in several]


class _Gate:
    """The slots of one place, for one caller or for all. It exists while somebody holds or wants one."""

    __slots__ = ("free", "key", "queue", "users")

    def __init__(self, key: tuple[str, str, Slots], running: int) -> None:
        self.key = key
        self.free = running
        self.users = 0
        self.queue: deque[_Waiter] = deque()


class _Waiter:
    """A call that waits in a queue."""

    __slots__ = ("_turn", "has_slot", "loop")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.has_slot = False
        self._turn: asyncio.Future[None] = self.loop.create_future()

    async def turn(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self._turn

    def call(self) -> None:
        if not self._turn.done():
            self._turn.set_result(None)


class Gates:
    """Every gate of one server. Unused gates are dropped, so there are never more gates than calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._gates: dict[tuple[str, str, Slots], _Gate] = {}
        self._clock = clock
        # A call of a `def` handler gives its slot back in the thread of the handler.
        self._lock = threading.Lock()
        # The recent average time that calls hold a slot. It decides how long a refused caller is told to wait.
        self._usual = 1.0
        self.waiting: int = 0

    async def enter(
        self, placed: Placed, caller: str, name: str, deadline: Pausable | None = None
    ) -> Callable[[], None]:
        """Wait for a slot and return a function that gives it back; raise `CallRefused` if it takes too long.

        The time in the queue does not count for the deadline.
        """
        slots = placed.slots
        key = (placed.place, caller if slots.per == "caller" else "", slots)
        waiter: _Waiter | None = None
        with self._lock:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = _Gate(key, slots.running)
            if gate.users >= slots.running + slots.queue:
                raise self._refusal(placed, name, slots.queue)
            gate.users += 1
            if gate.free:
                gate.free -= 1
            else:
                waiter = _Waiter()
                gate.queue.append(waiter)
                self.waiting += 1
        if waiter is not None:
            await self._wait(gate, waiter, placed, name, deadline)
        started = self._clock()

        def release() -> None:
            self._usual += (self._clock() - started - self._usual) / 16
            with self._lock:
                self._leave(gate)

        return release

    def check(self, placed: Placed, caller: str, name: str) -> None:
        """Raise the refusal that `enter` would raise at once, without holding a slot."""
        slots = placed.slots
        with self._lock:
            gate = self._gates.get((placed.place, caller if slots.per == "caller" else "", slots))
            if gate is not None and gate.users >= slots.running + slots.queue:
                raise self._refusal(placed, name, slots.queue)

    async def _wait(self, gate: _Gate, waiter: _Waiter, placed: Placed, name: str, deadline: Pausable | None) -> None:
        slots = placed.slots
        if deadline is not None:
            deadline.pause()
        try:
            await waiter.turn(slots.wait)
        except BaseException as error:
            with self._lock:
                waiting = gate.users - slots.running
                self._leave(gate, waiter)
            if isinstance(error, TimeoutError):
                raise self._refusal(placed, name, waiting) from None
            raise
        finally:
            if deadline is not None:
                deadline.resume()
            with self._lock:
                self.waiting -= 1

    def _leave(self, gate: _Gate, waiter: _Waiter | None = None) -> None:
        """Give a slot back; the call that waits longest gets it."""
        gate.users -= 1
        if not gate.users:
            self._gates.pop(gate.key, None)
        if waiter is not None and not waiter.has_slot:
            with suppress(ValueError):  # Its loop had ended when its turn came.
                gate.queue.remove(waiter)
            return
        while gate.queue:
            following = gate.queue.popleft()
            if hand_over(following.loop, following.call):
                following.has_slot = True
                return
        gate.free += 1

    def _refusal(self, placed: Placed, name: str, waiting: int) -> CallRefused:
        slots = placed.slots
        subject = placed.subject.format(name=name)
        subject = subject[:1].upper() + subject[1:] or name
        seconds = max(1.0, self._usual * (waiting + 1) / slots.running)
        return CallRefused(
            f"{subject} is busy: it runs {slots.running} call{'s' if slots.running > 1 else ''} at once and {waiting} "
            f"more are waiting. Try again in {in_words(seconds)}.",
            reason="concurrency",
            retry_after=seconds,
        )
