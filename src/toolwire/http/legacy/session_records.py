"""What of a legacy HTTP session changes or does not fit its id, in the key-value store.

A record lives as long as its session is used. The id names the store that it was made in: where the record is gone from
that very store, the session has ended or was idle for too long; a store that never had it cannot tell, and the id alone
counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolwire.http.legacy.session_token import HOME_BYTES, SessionToken
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, ProtocolError
from toolwire.stores import KV

log: logging.Logger = logging.getLogger("toolwire.http")

# All sessions together must leave room in the store for everything else that is kept there.
MAX_OPENING: Final = 4 * 1024
MAX_RECORD: Final = 16 * 1024
# How exact the last use is known: one write a minute is all that a busy session costs.
RENEWAL: Final = 60
_ATTEMPTS: Final = 32
_HOME_KEY: Final = "toolwire:http:home"


class SessionRecord(Struct, omit_defaults=True):
    """One session; an empty record where nothing is known beyond its id."""

    seen: int = 0
    client: t.Implementation | UnsetType = UNSET
    capabilities: dict[str, Any] | UnsetType = UNSET
    """Only where the bits of the id do not say it all."""
    level: t.LoggingLevel = "info"
    uris: list[str] = []
    ended: bool = False
    """Only where the record itself cannot be removed, because this is not the store it was made in."""


_decode = msgspec.json.Decoder(SessionRecord).decode
_encode = msgspec.json.Encoder().encode


class SessionRecords:
    """The records of all sessions."""

    def __init__(self, kv: KV, idle: float, clock: Callable[[], float], random: Callable[[int], bytes]) -> None:
        self.home: bytes = b""
        self._kv = kv
        self._idle = idle
        self._clock = clock
        self._random = random

    async def open(self) -> None:
        """Learn the name of the store, or give it one."""
        while (found := await self._kv.get(_HOME_KEY)) is None or len(found) != HOME_BYTES:
            await self._kv.put(_HOME_KEY, self._random(HOME_BYTES), if_absent=found is None, expect=found)
        self.home = found

    async def create(self, identifier: str, record: SessionRecord) -> None:
        """Raises ProtocolError for a client that says too much of itself, `StoreFull` where there is no room."""
        record.seen = int(self._clock())
        if record.client is not UNSET:
            # The rest is for display, and possibly a whole picture.
            client = record.client
            record.client = t.Implementation(client.name, client.version, client.title)
        data = _encode(record)
        if len(data) > MAX_OPENING:
            raise ProtocolError(INVALID_PARAMS, "The capabilities and clientInfo are too large to be remembered")
        await self._kv.put(_key(identifier), data, ttl=self._ttl)

    async def find(self, token: SessionToken) -> SessionRecord | None:
        """The record of a session that is in use from now on; None for a session that is over."""
        if token.expires <= self._clock():
            return None
        data = await self._kv.get(_key(token.id))
        if data is None:
            return None if token.home == self.home else SessionRecord()
        record = _read(data)
        if record.ended:
            return None
        now = int(self._clock())
        if now - record.seen >= RENEWAL:
            record.seen = now
            # Another request may be first; then it has renewed the record, or ended the session.
            await self._kv.put(_key(token.id), _encode(record), ttl=self._ttl, expect=data)
        return record

    async def change(self, token: SessionToken, edit: Callable[[SessionRecord], None]) -> SessionRecord:
        """Apply an edit to the record as it is now, whatever others do to it meanwhile."""
        key = _key(token.id)
        for _ in range(_ATTEMPTS):
            data = await self._kv.get(key)
            if data is None and token.home == self.home:
                raise ProtocolError(INTERNAL_ERROR, "The session has ended")
            record = SessionRecord() if data is None else _read(data)
            if record.ended:
                raise ProtocolError(INTERNAL_ERROR, "The session has ended")
            edit(record)
            record.seen = int(self._clock())
            changed = _encode(record)
            if len(changed) > MAX_RECORD:
                raise ProtocolError(INVALID_PARAMS, "The subscriptions of this session are too many to be remembered")
            if await self._kv.put(key, changed, ttl=self._ttl, if_absent=data is None, expect=data):
                return record
        raise ProtocolError(INTERNAL_ERROR, "Too many changes at once; try again")

    async def end(self, token: SessionToken) -> None:
        """The session is over, for everyone who shares the store."""
        if token.home == self.home:
            await self._kv.delete(_key(token.id))
        else:
            left = max(1.0, token.expires - self._clock())
            await self._kv.put(_key(token.id), _encode(SessionRecord(ended=True)), ttl=left)

    @property
    def _ttl(self) -> float:
        return self._idle + RENEWAL


def _read(data: bytes) -> SessionRecord:
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        # Its client begins a new one, as after every end.
        log.warning("the record of a session cannot be read: the session has ended")
        return SessionRecord(ended=True)


def _key(identifier: str) -> str:
    return f"toolwire:session:{identifier}"
