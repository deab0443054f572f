"""Transports: the interface of a connection of your own, and the connections of the library.

Implement `read`, `write` and `close` of a `Channel`, and pass it to `Server.run`, `Server.serve` or `Client`. The other
methods of a `Channel` have defaults.
"""

from __future__ import annotations

from toolwire.protocol.framing import LineDecoder, Oversized
from toolwire.wire.channel import Channel, MemoryChannel, memory_pair
from toolwire.wire.stdio import StdioChannel

__all__ = ["Channel", "LineDecoder", "MemoryChannel", "Oversized", "StdioChannel", "memory_pair"]
