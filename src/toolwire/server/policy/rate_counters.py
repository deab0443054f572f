"""A storage for the `limits` library that suits an event loop: no thread, a clock that never jumps, a bounded size."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from limits.storage import MovingWindowSupport, Storage

from toolwire.util.expiring import Expiring

V = TypeVar("V")


class CounterMemory(Storage, MovingWindowSupport):
    """Counters in this process. The time is monotonic, so that setting the wall clock neither opens nor closes a limit.

    At most `max_keys` counters of each kind are kept; beyond that the one that was used longest ago is forgotten.
    """

    STORAGE_SCHEME: list[str] | None = None

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, max_keys: int = 100_000) -> None:
        super().__init__()
        self.now = clock
        # By key, the one that was used longest ago first: when the window ends, and how many came in it.
        self._counts: Expiring[str, tuple[float, int]] = Expiring(max_keys)
        # Likewise: the moments of the calls, the oldest first.
        self._moments: Expiring[str, deque[float]] = Expiring(max_keys)

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        return ValueError

    # --- fixed windows ---

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        end, count = self._counts.get(key, (0.0, 0))
        now = self.now()
        if end <= now:
            end, count = now + expiry, 0
        self._counts.put(key, (end, count + amount))
        return count + amount

    def get(self, key: str) -> int:
        end, count = self._counts.get(key, (0.0, 0))
        return count if end > self.now() else 0

    def get_expiry(self, key: str) -> float:
        return self._counts.get(key, (self.now(), 0))[0]

    # --- moving windows ---

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        moments = self._recent(key, expiry)
        if len(moments) + amount > limit:
            return False
        moments.extend([self.now()] * amount)
        self._moments.put(key, moments)
        return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        moments = self._recent(key, expiry)
        return (moments[0] if moments else self.now()), len(moments)

    def _recent(self, key: str, expiry: int) -> deque[float]:
        moments = self._moments.get(key)
        if moments is None:
            return deque()
        over = self.now() - expiry
        while moments and moments[0] <= over:
            moments.popleft()
        return moments

    # --- all of it ---

    def check(self) -> bool:
        return True

    def reset(self) -> int:
        count = len(self._counts) + len(self._moments)
        self._counts.clear()
        self._moments.clear()
        return count

    def clear(self, key: str) -> None:
        self._counts.pop(key)
        self._moments.pop(key)
