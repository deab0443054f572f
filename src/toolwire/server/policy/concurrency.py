"""Slots that calls hold while they run, and a queue of bounded length in front of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.server.policy.rates import in_words
from toolwire.util.numbers import COUNT, COUNT_OR_NONE, SECONDS, check_fields
from toolwire.wire.deadlines import Pausable
from toolwire.wire.shares import Shares, Turns


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
    """The slots of one place, for one caller or for all. It exists while a call holds or wants one."""

    __slots__ = ("key", "turns", "users")

    def __init__(self, key: tuple[str, str, Slots]) -> None:
        self.key = key
        self.users = 0
        # Made for the first call that has to wait.
        self.turns: Turns | None = None

    def queue(self) -> Turns:
        """Return the queue in front of slots that are all held."""
        if self.turns is None:
            running = self.key[2].running
            self.turns = Turns(Shares(running, 1.0, "calls"))
            self.turns.shares.add(None, running)
        return self.turns


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
        with self._lock:
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = _Gate(key)
            if gate.users >= slots.running + slots.queue:
                raise self._refusal(placed, name, slots.queue)
            gate.users += 1
            turns = gate.turns if gate.users <= slots.running else gate.queue()
        if turns is not None and not turns.take():
            await self._wait(gate, turns, placed, name, deadline)
        started = self._clock()

        def release() -> None:
            self._usual += (self._clock() - started - self._usual) / 16
            self._leave(gate, has_slot=True)

        return release

    def check(self, placed: Placed, caller: str, name: str) -> None:
        """Raise the refusal that `enter` would raise at once, without holding a slot."""
        slots = placed.slots
        with self._lock:
            gate = self._gates.get((placed.place, caller if slots.per == "caller" else "", slots))
            if gate is not None and gate.users >= slots.running + slots.queue:
                raise self._refusal(placed, name, slots.queue)

    async def _wait(self, gate: _Gate, turns: Turns, placed: Placed, name: str, deadline: Pausable | None) -> None:
        slots = placed.slots
        if deadline is not None:
            deadline.pause()
        with self._lock:
            self.waiting += 1
        try:
            await turns.wait(seconds=slots.wait)
        except BaseException as error:
            waiting = gate.users - slots.running
            self._leave(gate)
            if isinstance(error, TimeoutError):
                raise self._refusal(placed, name, waiting) from None
            raise
        finally:
            if deadline is not None:
                deadline.resume()
            with self._lock:
                self.waiting -= 1

    def _leave(self, gate: _Gate, *, has_slot: bool = False) -> None:
        with self._lock:
            if has_slot and gate.turns is not None:
                gate.turns.give_back()
            gate.users -= 1
            if not gate.users:
                self._gates.pop(gate.key, None)

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
