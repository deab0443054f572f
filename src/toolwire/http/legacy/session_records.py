"""The records of legacy HTTP sessions in the key-value store: everything that changes or does not fit the session id.

A record lives as long as its session is used. The id names the store in which the record was made. If the record is
gone from that store, the session has ended or was idle for too long. Another store never had the record, so there the
id alone decides.

A store that has a name of its own, such as a Redis, keeps this name when it loses its content. Then all its sessions
have ended, also those that had ended before. Any other store gets a random name, which is part of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from toolwire.http.app_settings import HasSettings
from toolwire.http.legacy.session_token import HOME_BYTES, SessionToken
from toolwire.protocol import types as t
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, INTERNAL_ERROR, INVALID_PARAMS, ProtocolError
from toolwire.stores import KV, StoreFull

log: logging.Logger = logging.getLogger("toolwire.http")

# All sessions together must leave room in the store for everything else.
MAX_OPENING: Final = 4 * 1024
MAX_RECORD: Final = 16 * 1024
# How exactly the last use is known, in seconds. A busy session costs one write a minute.
RENEWAL: Final = 60
_ATTEMPTS: Final = 32
_HOME_KEY: Final = "toolwire:http:home"


class BackSession(Struct, array_like=True, frozen=True):
    """The session that a client has at a server behind this one."""

    id: str
    revision: str
    address: str = ""
    """The address of the session, if the server has several."""
    lists: str = ""
    """A text that names the lists which the server has in this session alone; empty where they are the shared ones."""
    server: str = ""
    """A hash of the name of the server; empty in the record of an earlier release."""


class StreamOwner(Struct, array_like=True, frozen=True):
    """The stream that writes the notifications of a session."""

    number: int
    """How often the session had an owner; the first one, and one whose predecessor was forgotten, has 1."""
    stream: str = ""
    """The id of the stream; empty after the owner gave the session up."""
    process: str = ""
    lease: str = ""
    """The lease of the process; empty where the store has none."""


class SessionRecord(Struct, omit_defaults=True):
    """One session; an empty record where only its id is known."""

    seen: int = 0
    client: t.Implementation | UnsetType = UNSET
    capabilities: dict[str, Any] | UnsetType = UNSET
    """Set only where the bits of the id do not express all of them."""
    level: t.LoggingLevel = "info"
    uris: list[str] = []
    listened: bool = False
    """Whether the session had a stream of its own, on which its client may have missed something."""
    backs: dict[str, BackSession] = {}
    """The sessions of this client at servers behind this one, by hashes of their names and addresses."""
    owner: StreamOwner | None = None
    """The owner among the streams of the session; None for none so far, and after an earlier release wrote."""
    ended: bool = False
    """Set only in a store that did not make the record, where removing the record would say nothing."""


_decode = decoder_of(SessionRecord).decode
_encode = msgspec.json.Encoder().encode


class SessionRecords:
    """The records of all sessions."""

    def __init__(
        self, kv: KV, application: HasSettings, clock: Callable[[], float], random: Callable[[int], bytes]
    ) -> None:
        self.home: bytes = b""
        """The name of the store in the ids of new sessions."""
        self._homes: set[bytes] = set()
        self._kv = kv
        self._application = application
        self._clock = clock
        self._random = random

    async def open(self) -> None:
        """Read the name of the store, or give it one."""
        found = await self._kv.get(_HOME_KEY)
        if name := getattr(self._kv, "name", ""):
            self.home = hashlib.sha256(name.encode()).digest()[:HOME_BYTES]
        else:
            while found is None or len(found) != HOME_BYTES:
                await self._kv.put(_HOME_KEY, self._random(HOME_BYTES), if_absent=found is None, expect=found)
                found = await self._kv.get(_HOME_KEY)
            self.home = found
        # Earlier versions gave a random name to every store.
        self._homes = {self.home} if found is None else {self.home, found}

    async def create(self, identifier: str, record: SessionRecord) -> None:
        """Store a new record; raise `ProtocolError` when the client declares too much, `StoreFull` without room."""
        record.seen = int(self._clock())
        if record.client is not UNSET:
            # The other members are for display, and may hold a whole picture.
            client = record.client
            record.client = t.Implementation(client.name, client.version, client.title)
        data = _encode(record)
        if len(data) > MAX_OPENING:
            raise ProtocolError(INVALID_PARAMS, "The capabilities and clientInfo are too large to be remembered")
        await self._kv.put(_key(identifier), data, ttl=self._ttl)

    async def find(self, token: SessionToken) -> SessionRecord | None:
        """Return the record of a session and renew it; None for a session that is over."""
        if token.expires <= self._clock():
            return None
        data = await self._kv.get(_key(token.id))
        if data is None:
            return None if token.home in self._homes else SessionRecord()
        record = _read(data)
        if record.ended:
            return None
        now = int(self._clock())
        if now - record.seen >= RENEWAL:
            record.seen = now
            # Another request may be first. Then it has renewed the record, or ended the session.
            await self._kv.put(_key(token.id), _encode(record), ttl=self._ttl, expect=data)
        return record

    async def change(self, token: SessionToken, edit: Callable[[SessionRecord], bool | None]) -> SessionRecord:
        """Apply an edit to the current record, and repeat it when the record changes meanwhile.

        An edit that returns False leaves the record as it is.
        """
        key = _key(token.id)
        for _ in range(_ATTEMPTS):
            data = await self._kv.get(key)
            if data is None and token.home in self._homes:
                raise ProtocolError(INTERNAL_ERROR, "The session has ended")
            record = SessionRecord() if data is None else _read(data)
            if record.ended:
                raise ProtocolError(INTERNAL_ERROR, "The session has ended")
            if edit(record) is False:
                return record
            record.seen = int(self._clock())
            changed = _encode(record)
            if len(changed) > MAX_RECORD:
                raise ProtocolError(INVALID_PARAMS, "The subscriptions of this session are too many to be remembered")
            if await self._kv.put(key, changed, ttl=self._ttl, if_absent=data is None, expect=data):
                return record
        raise ProtocolError(INTERNAL_ERROR, "Too many changes at once; try again")

    async def claim(
        self,
        token: SessionToken,
        claimant: StreamOwner,
        may_claim: Callable[[StreamOwner | None], bool] = lambda _: True,
    ) -> tuple[StreamOwner | None, bool]:
        """Record a stream as the owner of its session, if `may_claim` agrees to the owner before.

        Return the new owner with its number, or None, and whether the session had a stream of its own before. The
        number is above that of the owner before and that of the claimant. Without room in the store none is recorded.
        """
        made: StreamOwner | None = None
        listened = False

        def edit(record: SessionRecord) -> bool:
            nonlocal made, listened
            before, listened = record.owner, record.listened
            if not may_claim(before):
                made = None
                return False
            number = max(claimant.number, 0 if before is None else before.number) + 1
            made = record.owner = replace(claimant, number=number)
            record.listened = True
            return True

        with contextlib.suppress(StoreFull):
            await self.change(token, edit)
        return made, listened

    async def give_up(self, token: SessionToken, stream: str) -> bool:
        """Record that a session has no owner any more; return whether this stream was its owner."""
        was_owner = False

        def edit(record: SessionRecord) -> bool:
            nonlocal was_owner
            was_owner = record.owner is not None and record.owner.stream == stream
            if record.owner is not None and was_owner:
                record.owner = StreamOwner(record.owner.number)
            return was_owner

        await self.change(token, edit)
        return was_owner

    async def end(self, token: SessionToken) -> None:
        """End a session for all processes that share the store."""
        if token.home in self._homes:
            await self._kv.delete(_key(token.id))
        else:
            left = max(1.0, token.expires - self._clock())
            await self._kv.put(_key(token.id), _encode(SessionRecord(ended=True)), ttl=left)

    @property
    def _ttl(self) -> float:
        return self._application.settings.limits.session_idle + RENEWAL


def _read(data: bytes) -> SessionRecord:
    try:
        return _decode(data)
    except BAD_JSON:
        # The client starts a new session, as after every end.
        log.warning("the record of a session cannot be read: the session has ended")
        return SessionRecord(ended=True)


def _key(identifier: str) -> str:
    return f"toolwire:session:{identifier}"
