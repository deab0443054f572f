"""A budget for values in the store whose size callers decide."""

from __future__ import annotations

import heapq
import time
from itertools import count

from toolwire.wire.shares import Caller, Shares, Taken


class StorageBudget:
    """A budget for what this process puts into the store: `most` for all callers, `share` of that for each."""

    def __init__(self, most: int, share: float) -> None:
        self._shares = Shares(most, share, "bytes kept")
        # The number decides between entries with the same end, because callers cannot be compared.
        self._ends: list[tuple[float, int, Caller, int]] = []
        self._number = count()

    def admit(self, caller: Caller, size: int, seconds: float) -> bool:
        """Count bytes until their time is over; return False if there is no room for them."""
        now = time.monotonic()
        self._forget(now)
        try:
            self._shares.take(caller, size)
        except Taken:
            return False
        heapq.heappush(self._ends, (now + seconds, next(self._number), caller, size))
        return True

    def has_room(self, caller: Caller, size: int) -> bool:
        """Return whether there is room for so many bytes now, and count nothing in."""
        self._forget(time.monotonic())
        return self._shares.has_room(caller, size)

    def seconds_until_release(self) -> float:
        """Return after how many seconds the next of the counted bytes are released."""
        now = time.monotonic()
        self._forget(now)
        return self._ends[0][0] - now if self._ends else 0.0

    def _forget(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, _, caller, size = heapq.heappop(self._ends)
            self._shares.give_back(caller, size)
