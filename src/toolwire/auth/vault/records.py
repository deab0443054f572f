"""Records of the vault, each sealed for one owner and one credential.

A record is encrypted with a key that the store does not have. The name of the credential, its settings and its owner
are authenticated with it, so that a record which is moved to another key of the store does not open there.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from toolwire.auth.flow.clients import Registration
from toolwire.auth.flow.scopes import Scopes
from toolwire.auth.flow.tokens import TokenResponse, granted_scopes, leeway, lifetime
from toolwire.auth.principal import Principal
from toolwire.extras import MissingExtra
from toolwire.protocol.rounds import digest
from toolwire.protocol.sealing import Sealer, read_token
from toolwire.redaction import repr_without
from toolwire.stores import KV
from toolwire.util.expiring import Expiring
from toolwire.util.sealed import Sealed

log: logging.Logger = logging.getLogger("toolwire.auth")

#: The owner of credentials that belong to the server, and that of the user who started the process.
SERVER, LOCAL = "server", "local"
#: Opened records that are kept in memory.
OPENED: Final = 1024
_PREFIX: Final = "toolwire:vault:record:"
_PAGE: Final = 500


class Owner(Struct, frozen=True):
    """The one whose account is used."""

    id: str
    """A digest of provider and subject; `server` and `local` are no digests."""
    subject: str = ""
    provider: str = ""

    @classmethod
    def from_principal(cls, principal: Principal | None) -> Owner:
        """Return the owner for a principal; without one, the user of this process."""
        if principal is None:
            return cls(LOCAL)
        return cls(digest(str(principal.provider), principal.subject), principal.subject, principal.provider)


THE_SERVER: Final = Owner(SERVER)


class VaultRecord(Struct, frozen=True, omit_defaults=True):
    """A secret or a token, and what is needed to renew it without a person."""

    secret: str
    created: float
    subject: str = ""
    provider: str = ""
    refresh_token: str | None = None
    expires_at: float | None = None
    renew_at: float | None = None
    """The time to renew it, shortly before it ends; None if it has no known end."""
    scopes: Scopes = ()
    issuer: str = ""
    client: Registration | None = None
    """The client that registered itself; None for the client of the settings."""
    key: str | None = None
    """The private key that the token is bound to, as a JWK."""

    def __repr__(self) -> str:
        return repr_without(self, "secret", "refresh_token", "client", "key")

    def is_due(self, now: float) -> bool:
        return self.renew_at is not None and now >= self.renew_at

    def is_over(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


def record_of(
    response: TokenResponse,
    now: float,
    owner: Owner,
    asked: Scopes,
    *,
    issuer: str = "",
    client: Registration | None = None,
    key: str | None = None,
    before: VaultRecord | None = None,
) -> VaultRecord:
    """Return the record for the answer to a token request that was sent at `now`.

    Without a new refresh token, the one in `before` stays.
    """
    seconds = lifetime(response)
    return VaultRecord(
        response.access_token,
        now if before is None else before.created,
        owner.subject,
        owner.provider,
        response.refresh_token or (None if before is None else before.refresh_token),
        None if seconds is None else now + seconds,
        None if seconds is None else now + seconds - leeway(seconds),
        granted_scopes(response, asked),
        issuer,
        client,
        key,
    )


class RecordKey(Struct, frozen=True):
    """The place of a record: credential, settings, owner, and a further name."""

    name: str
    identity: str
    owner: str
    further: str = ""

    @property
    def text(self) -> str:
        return f"{prefix_of(self.name)}{self.owner}" + (f":{self.further}" if self.further else "")

    @property
    def context(self) -> bytes:
        return msgspec.json.encode(["vault", self.name, self.identity, self.owner, self.further])


def prefix_of(name: str) -> str:
    """Return how the keys of the records of one credential begin."""
    return f"{_PREFIX}{quote(name, safe='')}:"


class SealedRecords:
    """The records in a store.

    All processes with the same secrets and the same store share them.
    """

    def __init__(self, kv: KV, sealer: Sealer) -> None:
        if not sealer.confidential:
            raise MissingExtra("Keeping credentials of users", "cryptography", "auth")
        self.kv = kv
        self.sealer = sealer
        self._form = Sealed(sealer, VaultRecord)
        self._newest = read_token(sealer.seal(b"", b""))[0]
        # By key: the settings, the sealed text, and what it holds. The store is asked each time, so that a record which
        # was revoked anywhere is not used any more; only the deciphering is spared.
        self._opened: Expiring[str, tuple[str, bytes, VaultRecord]] = Expiring(OPENED)

    async def get(self, key: RecordKey) -> tuple[VaultRecord, bytes] | None:
        """Return a record and its stored bytes; None if there is none that opens."""
        sealed = await self.kv.get(key.text)
        if sealed is None:
            self._opened.pop(key.text)
            return None
        known = self._opened.get(key.text)
        if known is not None and known[:2] == (key.identity, sealed):
            return known[2], sealed
        record = self._open(sealed, key)
        if record is None:
            return None
        self._remember(key, sealed, record)
        return record, sealed

    async def put(
        self, key: RecordKey, record: VaultRecord, *, ttl: float | None = None, expect: bytes | None = None
    ) -> bool:
        """Seal and store a record; return whether it was stored.

        `expect`: store it only in place of these bytes.
        """
        sealed = self._form.seal(record, key.context).encode()
        if not await self.kv.put(key.text, sealed, ttl=ttl, expect=expect):
            return False
        self._remember(key, sealed, record)
        return True

    def is_outdated(self, sealed: bytes) -> bool:
        """Return whether a record is sealed with an old secret."""
        return read_token(sealed.decode())[0] != self._newest

    async def delete(self, key: str) -> bool:
        self._opened.pop(key)
        return await self.kv.delete(key)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys in the store that begin with a prefix."""
        after = ""
        while page := await self.kv.keys(prefix, after=after, limit=_PAGE):
            for key in page:
                yield key
            after = page[-1]

    def _open(self, sealed: bytes, key: RecordKey) -> VaultRecord | None:
        record = self._form.open(sealed, key.context)
        if record is None:
            # Its secret was lost, its settings changed, or the record was moved. Then its owner connects again.
            log.warning("a credential of %r cannot be opened: its secret is gone, or its settings changed", key.name)
        return record

    def _remember(self, key: RecordKey, sealed: bytes, record: VaultRecord) -> None:
        self._opened.put(key.text, (key.identity, sealed, record))
