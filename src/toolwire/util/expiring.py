"""`Expiring`: a cache with a bound on entries and bytes, and a time to live for each entry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, ItemsView, Iterator
from contextvars import Context
from math import inf
from typing import Any, Final, Generic, TypeVar, overload

#: How many seconds pass between two sweeps of a cache that evicts expired entries by a timer.
SWEEP_SECONDS: Final = 60.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


_NONE: Any = object()


def loop_time() -> float:
    """Return the seconds of the clock of the running event loop."""
    return asyncio.get_running_loop().time()


class Expiring(Generic[K, V]):
    """Values by their keys. Above a bound, the one that was stored or used longest ago is evicted.

    An expired entry is not found. It needs memory until it makes room, or until a timer sweeps it. Several threads may
    use one object; what two of them change at the same moment may be missed, but nothing fails.
    """

    def __init__(
        self,
        max_entries: int | None = None,
        *,
        max_weight: int | None = None,
        weigh: Callable[[V], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_evict: Callable[[K, V], Any] | None = None,
        sweeps: bool = False,
    ) -> None:
        """`weigh` gives the weight of a value, mostly its bytes; `on_evict` gets each entry that expires or makes room.

        With `sweeps` a timer of the running event loop, whose clock then counts, evicts expired entries.
        """
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._weigh = weigh
        self._clock = loop_time if sweeps else clock
        self._on_evict = on_evict
        self._sweeps = sweeps
        self._sweeper: asyncio.TimerHandle | None = None
        # The value, its time to live, and when it expires. The first was stored or used longest ago.
        self._entries: dict[K, tuple[V, float, float]] = {}
        #: What all values weigh together.
        self.weight: int = 0

    def __len__(self) -> int:
        """Return how many entries have not expired."""
        now = self._clock()
        return sum(expires > now for _, _, expires in self._entries.copy().values())

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and (entry[2] == inf or entry[2] > self._clock())

    def __iter__(self) -> Iterator[K]:
        """Yield the keys that have not expired, oldest first."""
        return (key for key, _ in self.items())

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return a value that has not expired, else the default. It does not count as a use."""
        entry = self._entries.get(key)
        if entry is None or (entry[2] != inf and entry[2] <= self._clock()):
            return default
        return entry[0]

    def use(self, key: K) -> V | None:
        """Return a value that has not expired, else None, and let it be evicted last."""
        entry = self._entries.get(key)
        if entry is None or (entry[2] != inf and entry[2] <= self._clock()):
            return None
        self._entries.pop(key, None)
        self._entries[key] = entry
        return entry[0]

    def renew(self, key: K) -> V | None:
        """Use a value, and start its time to live again."""
        entry = self._entries.get(key)
        if entry is None or (entry[2] != inf and entry[2] <= self._clock()):
            return None
        value, seconds, _ = entry
        self._entries.pop(key, None)
        self._entries[key] = (value, seconds, inf if seconds == inf else self._clock() + seconds)
        return value

    def put(self, key: K, value: V, seconds: float = inf) -> None:
        """Store a value for some seconds. Evict what is above a bound then, the value itself if it is too large."""
        self.pop(key)
        self._entries[key] = (value, seconds, inf if seconds == inf else self._clock() + seconds)
        if self._weigh is not None:
            self.weight += self._weigh(value)
        while self._is_full() and (oldest := self._find_oldest()) is not _NONE:
            self._evict(oldest)
        if self._sweeps and self._sweeper is None and self._entries:
            self._start_sweeper()

    def pop(self, key: K) -> V | None:
        """Remove an entry and return its value, else None. `on_evict` is not called."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        if self._weigh is not None:
            self.weight -= self._weigh(entry[0])
        return entry[0]

    def items(self) -> ItemsView[K, V]:
        """Return the entries that have not expired, oldest first."""
        now = self._clock()
        return {key: value for key, (value, _, expires) in self._entries.copy().items() if expires > now}.items()

    def clear(self) -> None:
        """Remove all entries. `on_evict` is not called."""
        self._entries.clear()
        self.weight = 0
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _is_full(self) -> bool:
        if self._max_entries is not None and len(self._entries) > self._max_entries:
            return True
        return self._max_weight is not None and self.weight > self._max_weight

    def _find_oldest(self) -> Any:
        while True:
            try:
                return next(iter(self._entries), _NONE)
            except RuntimeError:
                pass  # Another thread has changed the entries in between.

    def _sweep(self) -> None:
        now = self._clock()
        for key in [key for key, (_, _, expires) in self._entries.copy().items() if expires <= now]:
            self._evict(key)
        self._sweeper = None
        if self._entries:
            self._start_sweeper()

    def _start_sweeper(self) -> None:
        # Without a context of its own, the timer would keep the one of the call that stored the first entry.
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep, context=Context())

    def _evict(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        if self._weigh is not None:
            self.weight -= self._weigh(entry[0])
        if self._on_evict is not None:
            self._on_evict(key, entry[0])
