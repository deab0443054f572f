"""Values that are forgotten some time after their last use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

#: How many seconds pass between two looks for values whose time is over.
SWEEP_SECONDS: Final = 60.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Expiring(Generic[K, V]):
    """Values by their keys, each kept for a time after its last use. There are at most `most` of them.

    One timer looks after all values, while there are any.
    """

    def __init__(self, most: int, forgotten: Callable[[K, V], Any] | None = None) -> None:
        """`forgotten` is called with each value whose time is over, and with each that makes room for a new one."""
        self._most = most
        self._forgotten = forgotten
        # The value, how long it is kept, and until when. The one that was used longest ago is the first.
        self._kept: dict[K, tuple[V, float, float]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        now = asyncio.get_running_loop().time()
        return sum(until > now for _, _, until in self._kept.values())

    def __contains__(self, key: K) -> bool:
        kept = self._kept.get(key)
        return kept is not None and kept[2] > asyncio.get_running_loop().time()

    def put(self, key: K, value: V, seconds: float) -> None:
        """Keep a value for some seconds, counted anew whenever it is used."""
        loop = asyncio.get_running_loop()
        self._kept.pop(key, None)
        if len(self._kept) >= self._most:
            self._forget(next(iter(self._kept)))
        self._kept[key] = (value, seconds, loop.time() + seconds)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def use(self, key: K) -> V | None:
        """Return a value, and keep it for as long again; None where there is none."""
        if key not in self:
            return None
        value, seconds, _ = self._kept[key]
        self.put(key, value, seconds)
        return value

    def pop(self, key: K) -> V | None:
        """Keep a value no longer, and return it. `forgotten` is not called."""
        kept = self._kept.pop(key, None)
        return None if kept is None else kept[0]

    def clear(self) -> None:
        """Keep nothing, without a word to `forgotten`."""
        self._kept.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for key in [key for key, (_, _, until) in self._kept.items() if until <= now]:
            self._forget(key)
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep) if self._kept else None

    def _forget(self, key: K) -> None:
        value, _, _ = self._kept.pop(key)
        if self._forgotten is not None:
            self._forgotten(key, value)
