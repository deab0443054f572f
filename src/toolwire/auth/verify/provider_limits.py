"""Limits for requests to providers that callers can cause.

An unknown token costs its sender nothing, but it costs us a request to a provider, who may stop answering us. So the
same question is asked once, however many wait for it, and only some questions are asked at a time. An address that sent
many unknown tokens has to wait before its next unknown token is asked about. Known tokens need no question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from toolwire.auth.verify.verifier import Asker, Unavailable
from toolwire.util.expiring import Expiring
from toolwire.util.single_flight import SingleFlight
from toolwire.wire.shares import Shares, Turns

T = TypeVar("T")

#: Questions of one verifier that are under way at a time.
AT_ONCE: Final = 32
#: Tokens in vain, and documents of unknown clients, that an address may cost us at once; one more each second.
IN_VAIN: Final = 60
#: Addresses whose tokens are counted; the one that was quiet for longest is forgotten.
ADDRESSES: Final = 4096


class Throttled(Unavailable):
    """An address has sent too many unknown tokens, and has to wait."""


class InVain:
    """Counts what addresses asked for in vain. A count goes down by one every second.

    Safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Expiring[str, tuple[float, float]] = Expiring(ADDRESSES)
        self._lock = threading.Lock()

    def check(self, address: str) -> None:
        """Raise `Throttled` for an address that has to wait."""
        over = self._count(address) - (IN_VAIN - 1)
        if over > 0:
            raise Throttled("This address brought too many tokens that are not valid", retry_after=over)

    def add(self, address: str) -> None:
        """Count one more."""
        with self._lock:
            count = self._count(address) + 1
            self._counts.put(address, (count, self._clock()))

    def _count(self, address: str) -> float:
        count, when = self._counts.get(address, (0.0, 0.0))
        return max(0.0, count - (self._clock() - when) * IN_VAIN / 60)


class FromAddress(NamedTuple):
    """An `Asker`: an address, and where its vain questions are counted."""

    in_vain: InVain
    address: str

    def check(self) -> None:
        """Raise `Throttled` when the address has to wait."""
        self.in_vain.check(self.address)

    def count_in_vain(self) -> None:
        """Count that something was asked in vain."""
        self.in_vain.add(self.address)


class ProviderRequests:
    """The questions that are under way: each once, and some at a time."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._open = SingleFlight[Any]()
        self._turns = Turns(Shares(at_once, 1.0, "questions"))

    async def ask(self, key: Hashable, asker: Asker | None, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Ask, or wait for the answer to the same question.

        Raises `Throttled` for an address that has to wait.
        """
        if asker is not None and self._open.find(key) is None:
            asker.check()
        answer: T = await self._open.run(lambda: self._in_turn(asker, question), key)
        return answer

    async def _in_turn(self, asker: Asker | None, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._turns.wait()
        try:
            if asker is not None:
                asker.check()  # Once more: tokens that came at the same time may have been unknown.
            return await question()
        finally:
            self._turns.give_back()
