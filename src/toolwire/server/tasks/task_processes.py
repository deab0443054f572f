"""The processes that run tasks of one server, so that what one of them leaves behind is taken over by another.

Each has an entry in the store that it renews. One whose entry is too old, or whose process is known to have ended, is
gone. Entries are removed after the tasks were taken over, so that a process that ends meanwhile does not lose them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec import Struct

from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.server.tasks.liveness import is_gone, own_identity
from toolwire.stores import KV
from toolwire.wire.threads import hand_over

log: logging.Logger = logging.getLogger("toolwire.tasks")

BEAT_SECONDS: Final = 5.0
#: An entry that was not renewed for this long is that of a process that is gone, wherever it ran.
STALE_SECONDS: Final = 30.0
_MOST: Final = 1000


class _Entry(Struct):
    identity: str
    seen: float


_decode: Final = msgspec.json.Decoder(_Entry).decode


class Processes:
    """This process among the others."""

    def __init__(self, server: str, kv: KV, recover: Callable[[], Awaitable[None]]) -> None:
        self._prefix = f"toolwire:task-process:{digest(server)[:16]}:"
        self._name = secrets.token_urlsafe(9)
        self._identity = own_identity()
        self._kv = kv
        self._recover = recover
        self._is_registered = False
        self._beat: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look after the tasks of others once, and from now on again and again."""
        await self._look_after()
        self._beat = asyncio.create_task(self._renew())

    def forget_loop(self) -> None:
        """Renew the entry no more, on a loop that may have ended."""
        if self._beat is not None:
            hand_over(self._beat.get_loop(), self._beat.cancel)

    async def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.wait({self._beat})
        try:
            await self._kv.delete(self._prefix + self._name)
        except ToolwireError as error:
            log.warning("a process could not be signed off: %s", error)

    async def registered(self) -> str:
        """Return the name of this process, which is known to the others."""
        if not self._is_registered:
            try:
                await self._register()
            except ToolwireError:
                log.exception("the store of the tasks failed")
                raise ProtocolError(INTERNAL_ERROR, "The tasks cannot be reached now; try again later") from None
        return self._name

    async def lives(self, name: str) -> bool:
        if name == self._name:
            return True
        data = await self._kv.get(self._prefix + name) if name else None
        return data is not None and not _is_over(data)

    async def _register(self) -> None:
        entry = _Entry(self._identity, time.time())
        await self._kv.put(self._prefix + self._name, msgspec.json.encode(entry))
        self._is_registered = True

    async def _renew(self) -> None:
        try:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                await self._look_after(only_the_gone=True)
        finally:
            self._is_registered = False  # The entry grows old from now on.

    async def _look_after(self, only_the_gone: bool = False) -> None:
        try:
            await self._register()
            gone = [key for key in await self._kv.keys(self._prefix, limit=_MOST) if await self._is_gone(key)]
            if gone or not only_the_gone:
                await self._recover()
            for key in gone:
                await self._kv.delete(key)
        except ToolwireError as error:
            # The store may be back at the next beat.
            log.error("the tasks could not be looked after: %s", error)

    async def _is_gone(self, key: str) -> bool:
        data = await self._kv.get(key)
        return data is not None and _is_over(data)


def _is_over(data: bytes) -> bool:
    try:
        entry = _decode(data)
        return is_gone(entry.identity) or time.time() - entry.seen > STALE_SECONDS
    except (msgspec.DecodeError, ValueError):
        return False  # Of another version of this library, perhaps: not for us to judge.
