"""Leases: exclusive access to a key of a store. They expire if the holder dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from toolwire.stores.memory import KV
from toolwire.util.backoff import Backoff

T = TypeVar("T")

#: How many seconds the work under a lease or a lock may take. The lease outlives it.
WORK_SECONDS: Final = 25.0
LEASE_SECONDS: Final = 30.0
#: How many seconds to wait for another holder.
WAIT_SECONDS: Final = LEASE_SECONDS + 5.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


class KeyLease:
    """Exclusive access to one key in all processes that share a store."""

    def __init__(self, kv: KV, key: str) -> None:
        self._kv = kv
        self._key = key
        self._owner = os.urandom(16)

    async def acquire(self) -> bool:
        """Acquire the lease if it is free. Return whether it was."""
        return await self._kv.put(self._key, self._owner, ttl=LEASE_SECONDS, if_absent=True)

    async def release(self) -> None:
        """Release the lease, unless it expired and has another owner."""
        if await self._kv.get(self._key) == self._owner:
            await self._kv.delete(self._key)


async def poll(attempt: Callable[[], Awaitable[T | None]], seconds: float = WAIT_SECONDS) -> T | None:
    """Call `attempt` until it returns a value, with growing pauses. Return None after `seconds`."""
    loop, pauses = asyncio.get_running_loop(), Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
    last = loop.time() + seconds
    while (found := await attempt()) is None:
        if loop.time() > last:
            return None
        await asyncio.sleep(pauses.next() or _LONGEST_PAUSE)
    return found
