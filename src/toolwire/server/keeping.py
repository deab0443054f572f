"""How much may lie in the store of everybody, at one time, that callers decide the size of."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter


class Keeping:
    """Counts the bytes that this process has put into the store for a while: all of them together stay within `most`,
    those of one owner within half of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        # A server may be used on several loops at once.
        self._lock = threading.Lock()
        self._ends: list[tuple[float, str, int]] = []
        self._all = 0
        self._owned: Counter[str] = Counter()

    def admit(self, owner: str, size: int, seconds: float) -> bool:
        """Count bytes in until their time is over; False where there is no room for them."""
        now = time.monotonic()
        with self._lock:
            if not self._fits(owner, size, now):
                return False
            self._all += size
            self._owned[owner] += size
            heapq.heappush(self._ends, (now + seconds, owner, size))
            return True

    def has_room(self, owner: str, size: int) -> bool:
        """Say whether there is room for so many bytes now, and count nothing in."""
        with self._lock:
            return self._fits(owner, size, time.monotonic())

    def _fits(self, owner: str, size: int, now: float) -> bool:
        self._forget(now)
        return self._owned.get(owner, 0) + size <= self._most // 2 and self._all + size <= self._most

    def _forget(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, owner, size = heapq.heappop(self._ends)
            self._all -= size
            self._owned[owner] -= size
            if not self._owned[owner]:
                del self._owned[owner]
