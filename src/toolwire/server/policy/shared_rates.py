"""Rates and quotas that all processes of a server count together, in its key-value store.

A quota is one number for each window. Windows follow the clock, so a day begins at midnight UTC. A moving window would
have to store every call. Instead, a rate is estimated from two numbers: the count of this window, and the part of the
last window that still counts, as if its calls had come evenly.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from toolwire.protocol.errors import CallRefused
from toolwire.protocol.rounds import digest
from toolwire.server.policy.rates import Counted, refusal
from toolwire.stores import KV, StoreFailed, StoreFull, Stores

log: logging.Logger = logging.getLogger("toolwire.policy")

#: The seconds after which a caller should try again while the store fails.
_RETRY_SECONDS: Final = 5.0


class SharedCounters:
    """Counts the calls of one server, wherever they arrive."""

    def __init__(self, stores: Callable[[], Stores], clock: Callable[[], float] = time.time) -> None:
        self._stores = stores
        self._clock = clock

    async def take(self, counted: Sequence[Counted], caller: str, name: str) -> list[str]:
        """Count a call against all of them, or raise `CallRefused` and count it against none.

        Return the keys for `give_back`.
        """
        taken: list[str] = []
        try:
            for each in counted:
                seconds = await self._count(each, caller, taken)
                if seconds > 0:
                    await self.give_back(taken)
                    raise refusal(each, name, seconds)
        except (StoreFailed, StoreFull) as error:
            # If calls cannot be counted, none is allowed: a limit must not be exceeded.
            log.error("calls of %s cannot be counted: %s", name, error)
            text = f"The calls of {name} cannot be counted now. Try again in {_RETRY_SECONDS:.0f} seconds."
            raise CallRefused(text, reason=each.kind, retry_after=_RETRY_SECONDS) from None
        return taken

    async def give_back(self, taken: Sequence[str]) -> None:
        """Give back the counts of a call that did not take place."""
        for key in taken:
            await self._kv.add(key, -1, ttl=1.0)

    async def _count(self, counted: Counted, caller: str, taken: list[str]) -> float:
        """Count a call; return the seconds to wait if it is one too many, and 0 if it is not."""
        length, amount = counted.item.get_expiry(), counted.item.amount
        window, passed = divmod(self._clock(), length)
        limit = f"{amount}/{counted.item.multiples}/{counted.item.GRANULARITY.name}"
        prefix = f"toolwire:rate:{digest(counted.kind, limit, counted.place, caller if counted.per_caller else '')}:"
        key = f"{prefix}{window:.0f}"
        # The count is needed until the next window ends.
        others = await self._kv.add(key, 1, ttl=2.0 * length) - 1
        taken.append(key)
        if counted.kind == "quota":
            return 0.0 if others < amount else length - passed
        before = int(await self._kv.get(f"{prefix}{window - 1:.0f}") or 0)
        return _wait(before, others, amount, passed, length)

    @property
    def _kv(self) -> KV:
        # Read each time, because a server may get other stores before it serves.
        return self._stores().kv


def _wait(before: int, others: int, amount: int, passed: float, length: float) -> float:
    """Return the seconds until one more call fits, when `others` came in this window, and `before` in the last one."""
    free = amount - 1 - others
    if before * (1 - passed / length) <= free:
        return 0.0
    if free >= 0:
        return length * (1 - free / before) - passed
    # No call fits in this window. In the next one, the calls of this window count less and less.
    return length - passed + length * max(0.0, 1 - (amount - 1) / others)
