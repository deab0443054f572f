"""Replicas: the processes that run the tasks of a server, as each of them describes itself in the store.

Nothing is decided by these descriptions. They are for people who look at a fleet: which process holds a task, and why
a task waits.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from toolwire.protocol.errors import BAD_JSON, ToolwireError
from toolwire.stores import KV, StoreFull

_PREFIX: Final = "toolwire:task-replica2:"
#: Replicas that are shown.
MOST_REPLICAS: Final = 1000


class Replica(Struct, frozen=True):
    """A process that takes part in the tasks of a server."""

    process: str
    """The name of its lease."""
    server: str
    """The short name of the server, as in the keys of its tasks."""
    name: str
    """The name of the server."""
    host: str
    pid: int
    kinds: tuple[str, ...]
    """The kinds of tasks that it takes."""
    slots: int
    """How many tasks it runs at once."""
    has_free_slot: bool


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Replica).decode


class Description:
    """The description of this process in the store, which ends with the process."""

    def __init__(self, kv: KV, seconds: float) -> None:
        """Keep descriptions in `kv`, each for `seconds` after it was given last."""
        self._kv = kv
        self._seconds = seconds
        self._last: Replica | None = None

    async def give(
        self, process: str, server: str, name: str, kinds: Sequence[str], slots: int, has_free_slot: bool
    ) -> None:
        """Describe this process. A full store has no room for descriptions, which harms nobody."""
        replica = Replica(process, server, name, socket.gethostname(), os.getpid(), tuple(kinds), slots, has_free_slot)
        key = _PREFIX + process
        if replica == self._last and await self._kv.expire(key, self._seconds):
            return
        with contextlib.suppress(StoreFull):
            await self._kv.put(key, _encode(replica), ttl=self._seconds)
            self._last = replica

    async def withdraw(self) -> None:
        """Remove the description. One that the store does not remove now expires by itself."""
        last, self._last = self._last, None
        with contextlib.suppress(ToolwireError):
            if last is not None:
                await self._kv.delete(_PREFIX + last.process)


async def all_replicas(kv: KV) -> list[Replica]:
    """Return the replicas of all servers that use a store, at most 1000."""
    found: list[Replica] = []
    for key in await kv.keys(_PREFIX, limit=MOST_REPLICAS):
        data = await kv.get(key)
        with contextlib.suppress(*BAD_JSON):  # Of another version of this library, perhaps.
            if data is not None:
                found.append(_decode(data))
    return found
