"""Transports: what a connection of your own implements, and the connections that the library brings.

Implement `read`, `write` and `close` of a `Channel`, and hand it to `Server.run`, `Server.serve` or `Client`. The rest
of a `Channel` has defaults.
"""

from __future__ import annotations

from toolwire.protocol.framing import LineDecoder, Oversized
from toolwire.wire.channel import Channel, MemoryChannel, memory_pair
from toolwire.wire.stdio import StdioChannel

__all__ = ["Channel", "LineDecoder", "MemoryChannel", "Oversized", "StdioChannel", "memory_pair"]
