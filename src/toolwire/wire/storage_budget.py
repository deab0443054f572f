"""A budget for values in the store whose size callers decide."""

from __future__ import annotations

import heapq
import time
from itertools import count
from typing import Final

from toolwire.wire.shares import Caller, Shares, Taken

#: After how many seconds a caller should try again that is refused.
_RETRY_SECONDS: Final = 5
# So many ends of released entries are kept at least.
_FEW: Final = 64


class StorageBudget:
    """A budget for what this process puts into the store: `most` for all callers, `share` of that for each.

    `what` names it in refusals.
    """

    def __init__(self, most: int, share: float, what: str = "bytes kept", *, of: int | None = None) -> None:
        """`of`: the number that the share is a part of, where that is not `most`."""
        self._shares = Shares(most, share, what, of=of, seconds=_RETRY_SECONDS)
        # The entries by number, and their ends. Those of released entries are dropped later.
        self._entries: dict[int, tuple[Caller, int]] = {}
        self._ends: list[tuple[float, int]] = []
        self._numbers = count(1)

    def admit(self, caller: Caller, size: int, seconds: float) -> int:
        """Count bytes until their time is over. Return their number; 0 if there is no room."""
        now = time.monotonic()
        self._drop_expired(now)
        try:
            self._shares.take(caller, size)
        except Taken:
            return 0
        number = next(self._numbers)
        self._entries[number] = caller, size
        heapq.heappush(self._ends, (now + seconds, number))
        return number

    def release(self, number: int) -> None:
        """Stop counting the bytes of a number of `admit` before their time is over."""
        entry = self._entries.pop(number, None)
        if entry is None:
            return
        self._shares.give_back(*entry)
        # Ends that are far away must not pile up.
        if len(self._ends) > 2 * len(self._entries) + _FEW:
            self._ends = [end for end in self._ends if end[1] in self._entries]
            heapq.heapify(self._ends)

    def has_room(self, caller: Caller, size: int) -> bool:
        """Return whether there is room for so many bytes now, and count nothing in."""
        self._drop_expired(time.monotonic())
        return self._shares.has_room(caller, size)

    def check(self, caller: Caller, size: int) -> None:
        """Raise `Taken` where there is no room for so many bytes now. Nothing is counted."""
        self._drop_expired(time.monotonic())
        self._shares.check(caller, size)

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
                self._shares.give_back(*entry)
