"""`Stores`: the four stores that a server keeps its state in."""

from __future__ import annotations

from dataclasses import dataclass

from toolwire.stores.memory import KV, Bus, Log, MemoryBus, MemoryKV, MemoryLog
from toolwire.stores.memory_queue import MemoryQueue
from toolwire.stores.queue import NO_QUEUE, Queue


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that a server keeps its state in.

    Without `queue`, a `MemoryKV` gets its `MemoryQueue`. A `KV` of another kind gets none: a server then runs no tasks.
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
        """Raise `StoreFailed` when the stores cannot be used now."""
        await self.kv.get("toolwire:check")

    def close(self) -> None:
        """Close files and connections, and end threads. The stores cannot be used afterwards."""
