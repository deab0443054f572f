"""Stores: the state of a server between requests. Three small protocols and their in-process form."""

from toolwire.stores.memory import (
    KV,
    Bus,
    Log,
    MemoryBus,
    MemoryKV,
    MemoryLog,
    Position,
    PositionLost,
    StoreFailed,
    StoreFull,
    Stores,
)

__all__ = [
    "KV",
    "Bus",
    "Log",
    "MemoryBus",
    "MemoryKV",
    "MemoryLog",
    "Position",
    "PositionLost",
    "StoreFailed",
    "StoreFull",
    "Stores",
]
