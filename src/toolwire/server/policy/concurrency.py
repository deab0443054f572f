"""How many at once: slots that calls hold while they run, and a queue of bounded length in front of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from toolwire.protocol.errors import CallRefused, ServerError
from toolwire.server.policy.rates import in_words


class Slots(Struct, frozen=True):
    """`Slots(4, queue=16)`: four calls run, sixteen wait for at most `wait` seconds, the next one is refused."""

    running: int
    queue: int = 100
    wait: float = 30.0
    per: Literal["caller", "everyone"] = "everyone"

    def __post_init__(self) -> None:
        if self.running < 1 or self.queue < 0 or self.wait <= 0:
            raise ServerError("Slots have at least one call that runs, a queue of 0 or more, and time to wait")
        if self.per not in ("caller", "everyone"):
            raise ServerError(f"Slots are per 'caller' or for 'everyone', not {self.per!r}")


Concurrency: TypeAlias = int | Slots | Sequence[Slots]


class Placed(NamedTuple):
    """Slots, and what they are for: a server or one of its components."""

    slots: Slots
    place: str


def compile_slots(given: Concurrency, place: str) -> list[Placed]:
    several = [Slots(given)] if isinstance(given, int) else [given] if isinstance(given, Slots) else given
    return [Placed(each, place) for each in several]


class _Gate:
    """The slots of one place, for one caller or for all. It exists while somebody holds or wants one."""

    __slots__ = ("key", "semaphore", "users")

    def __init__(self, key: tuple[str, str, Slots], running: int) -> None:
        self.key = key
        self.semaphore = asyncio.Semaphore(running)
        self.users = 0


class Gates:
    """Every gate of one server. Those that nobody uses are forgotten, so there are no more than there are calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._gates: dict[tuple[str, str, Slots], _Gate] = {}
        self._clock = clock
        # How long calls hold a slot, on average and of late: what a caller that is turned away is told to wait.
        self._usual = 1.0
        self.waiting: int = 0

    async def enter(self, placed: Placed, caller: str, name: str) -> Callable[[], None]:
        """Wait for a slot and hold it; call what is returned to give it back. `CallRefused` when it takes too long."""
        slots = placed.slots
        key = (placed.place, caller if slots.per == "caller" else "", slots)
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = _Gate(key, slots.running)
        if gate.users >= slots.running + slots.queue:
            raise self._refusal(slots, name, slots.queue)
        gate.users += 1
        try:
            if gate.semaphore.locked():
                await self._wait(gate, slots, name)
            else:
                await gate.semaphore.acquire()
        except BaseException:
            self._leave(gate)
            raise
        started = self._clock()

        def release() -> None:
            self._usual += (self._clock() - started - self._usual) / 16
            gate.semaphore.release()
            self._leave(gate)

        return release

    async def _wait(self, gate: _Gate, slots: Slots, name: str) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(slots.wait):
                await gate.semaphore.acquire()
        except TimeoutError:
            raise self._refusal(slots, name, gate.users - slots.running) from None
        finally:
            self.waiting -= 1

    def _leave(self, gate: _Gate) -> None:
        gate.users -= 1
        if not gate.users:
            self._gates.pop(gate.key, None)

    def _refusal(self, slots: Slots, name: str, waiting: int) -> CallRefused:
        seconds = max(1.0, self._usual * (waiting + 1) / slots.running)
        return CallRefused(
            f"{name} is busy: it runs {slots.running} call{'s' if slots.running > 1 else ''} at once and {waiting} "
            f"more are waiting. Try again in {in_words(seconds)}.",
            reason="concurrency",
            retry_after=seconds,
        )
