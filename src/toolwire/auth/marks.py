"""Marks of values that can be used once: codes, refresh tokens, proofs of a key.

A mark takes room in the store for as long as its value would be valid, and callers decide how many there are. So all
marks together take half of the values that the store keeps at most, and one caller leaves a share of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from toolwire.stores import KV, StoreFull
from toolwire.wire.shares import Caller, StorageBudget

# How many values a store keeps that does not say it.
_MAX_ITEMS: Final = 100_000
# A number above all of a series.
_ALL: Final = 2**53


class Marks:
    """Marks in the store, the same for all processes that share it."""

    def __init__(self, kv: KV, share: float = 0.25) -> None:
        """`share`: how much of the store the marks of one caller may use."""
        room: int = getattr(kv, "max_items", _MAX_ITEMS)
        self._kv = kv
        self._budget = StorageBudget(max(room // 2, 1), share, "marks of used values", of=room)

    async def use(self, key: str, seconds: float, caller: Caller, number: int = 0) -> Mark | None:
        """Mark a value as used. Return None if it was used before.

        Raises `Taken` if there is no room.

        `number` is its place in a series of values, which has one mark: the earlier ones count as used, too.
        """
        before = await self._kv.get(key) if number else None
        if before is not None:
            is_next = int(before or b"0") < number
            is_first = is_next and await self._kv.put(key, b"%d" % number, ttl=seconds, expect=before)
            return Mark(self._kv, self._budget, key, seconds, number, 0) if is_first else None
        self._budget.check(caller, 1)
        if not await self._kv.put(key, b"%d" % number, ttl=seconds, if_absent=True):
            return None
        return Mark(self._kv, self._budget, key, seconds, number, self._budget.admit(caller, 1, seconds))

    async def use_in_turn(self, key: str, seconds: float, caller: Caller, number: int, together: float) -> Mark | None:
        """Use a value of a series once; end the series where it comes again.

        Programs that share a value may use it within `together` seconds: all but one are refused, and nothing ends.
        """
        latest = f"{key}:latest"
        before = await self._kv.get(key)
        with suppress(StoreFull):
            if before is None or int(before or b"0") < number:
                await self._kv.put(latest, b"%d" % number, ttl=together)
            elif await self._kv.get(latest) != b"%d" % number:
                await self._kv.put(key, b"%d" % _ALL, ttl=seconds)
        return await self.use(key, seconds, caller, number)


class Mark:
    """The mark of a value that is being used for the first time."""

    __slots__ = ("_budget", "_counted", "_key", "_kv", "_number", "_seconds")

    def __init__(self, kv: KV, budget: StorageBudget, key: str, seconds: float, number: int, counted: int) -> None:
        """`counted` is the number in the budget; 0 if it was counted before."""
        self._kv = kv
        self._budget = budget
        self._key = key
        self._seconds = seconds
        self._number = number
        self._counted = counted

    async def give_back(self) -> None:
        """Take the mark back, because its value was not used after all."""
        number = self._number
        if number:
            # The series has used its earlier values, so its mark stays, and counts.
            await self._kv.put(self._key, b"%d" % (number - 1), ttl=self._seconds, expect=b"%d" % number)
        else:
            await self._kv.delete(self._key)
            self._budget.release(self._counted)
