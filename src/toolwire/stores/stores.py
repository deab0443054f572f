"""`Stores`: the four stores that a server keeps its state in."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import Final

from toolwire.stores.memory import KV, Bus, Evictions, Log, MemoryBus, MemoryKV, MemoryLog, StoreFailed, StoreFull
from toolwire.stores.memory_queue import MemoryQueue
from toolwire.stores.queue import NO_QUEUE, Queue

#: The key and the topic by which a store is checked, how long the value is kept, and how long a message may take.
_CHECK: Final = "toolwire:check"
_CHECK_KEPT: Final = 60.0
CHECK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that a server keeps its state in.

    Without `queue`, a `MemoryKV` gets its `MemoryQueue`. A `KV` of another kind gets none: a server then runs no tasks,
    and no process answers the calls of a legacy client when the process that ran them is gone.
    """

    kv: KV
    log: Log
    bus: Bus
    queue: Queue = NO_QUEUE

    def __post_init__(self) -> None:
        if self.queue is NO_QUEUE and isinstance(self.kv, MemoryKV):
            # The dataclass is frozen.
            object.__setattr__(self, "queue", MemoryQueue.of(self.kv))

    @classmethod
    def memory(cls) -> Stores:
        return cls(MemoryKV(), MemoryLog(), MemoryBus())

    async def check(self) -> None:
        """Write a value and hear a message. Raise `StoreFailed` when the stores cannot be used now.

        A full store can be used: it refuses new state and keeps the rest.
        """
        with contextlib.suppress(StoreFull):
            await self.kv.put(_CHECK, os.urandom(8), ttl=_CHECK_KEPT)
        with contextlib.suppress(StoreFull):
            await self.hear()

    async def hear(self) -> None:
        """Send a message over the bus, and return when it is heard. Raise `StoreFailed`."""
        topic, heard = f"{_CHECK}:{os.urandom(8).hex()}", asyncio.Event()
        leave = self.bus.subscribe(topic, lambda data: heard.set())
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self.bus.publish(topic, b"")
                await heard.wait()
        except TimeoutError:
            failed = StoreFailed("The store cannot be used: its messages are not heard")
            failed.temporary = True
            raise failed from None
        finally:
            leave()

    def evictions(self) -> Evictions | None:
        """Return the evictions of the store; None for a store that never evicts."""
        return None

    def may_lack_writes(self) -> bool:
        """Return whether processes may be about to write again what the store lost."""
        return False

    def close(self) -> None:
        """Close files and connections, and end threads. The stores cannot be used afterwards."""
