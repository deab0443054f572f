"""Stores: the state of a server between requests. Four small protocols and their in-process form."""

from toolwire.stores.memory import (
    KV,
    Bus,
    Evictions,
    Log,
    MemoryBus,
    MemoryKV,
    MemoryLog,
    Position,
    PositionLost,
    StoreFailed,
    StoreFull,
)
from toolwire.stores.memory_queue import MemoryQueue
from toolwire.stores.queue import Counts, Held, LeaseLost, Place, Queue, QueueFull, Ready, Task
from toolwire.stores.stores import Stores

__all__ = [
    "KV",
    "Bus",
    "Counts",
    "Evictions",
    "Held",
    "LeaseLost",
    "Log",
    "MemoryBus",
    "MemoryKV",
    "MemoryLog",
    "MemoryQueue",
    "Place",
    "Position",
    "PositionLost",
    "Queue",
    "QueueFull",
    "Ready",
    "StoreFailed",
    "StoreFull",
    "Stores",
    "Task",
]
