"""Records that a client keeps between sign-ins, by name, in a storage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from toolwire.auth.client.storage import Storage, load, lock, save
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.authorization import Attempt
from toolwire.auth.flow.clients import Registration
from toolwire.auth.flow.metadata import Discovered
from toolwire.auth.flow.tokens import Token

T = TypeVar("T")

#: An open sign-in is offered again while a person has at least this much time left for it.
REUSED_SECONDS: Final = 120.0
#: All attempts have one lock: a lock for each would leave a file for each.
_ATTEMPTS: Final = "attempts"


class SignInRecord(Struct, frozen=True, omit_defaults=True):
    """A token, with the issuer and the client that are needed to renew it."""

    found: Discovered
    token: Token
    client: Registration | None = None
    #: The private key that the token is bound to, as a JWK.
    key: str | None = None

    def __repr__(self) -> str:
        return f"SignInRecord({self.found.issuer!r}, {self.token!r})"


class SignInRecords:
    """Records, registrations and attempts in a storage.

    2026-07-28 basic/authorization/client-registration: credentials belong to the issuer that gave them. A registration
    is kept by its issuer, and a token together with its own.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def lock_record(self, server_url: str) -> AbstractAsyncContextManager[None]:
        """Lock the record of a server. Read-modify-write happens under this lock."""
        return self._lock(f"token {server_url}")

    async def record(self, server_url: str) -> SignInRecord | None:
        return await self._read(f"token {server_url}", SignInRecord)

    async def write_record(self, server_url: str, record: SignInRecord | None) -> None:
        """Write a record, or delete it. The caller holds the lock."""
        await self._write(f"token {server_url}", record)

    def lock_registration(self, issuer: str) -> AbstractAsyncContextManager[None]:
        return self._lock(f"client {issuer}")

    async def registration(self, issuer: str) -> Registration | None:
        return await self._read(f"client {issuer}", Registration)

    async def write_registration(self, issuer: str, registration: Registration) -> None:
        """Write a registration. The caller holds the lock."""
        await self._write(f"client {issuer}", registration)

    async def discard_registration(self, issuer: str, client: Registration | None) -> None:
        """Delete the registration of a client, unless another one has replaced it."""
        async with self.lock_registration(issuer):
            stored = await self.registration(issuer)
            if stored is not None and client is not None and stored.client_id == client.client_id:
                await self._write(f"client {issuer}", None)

    async def issuer_of(self, client_id: str) -> str | None:
        """Return the issuer that first got the credentials of the user."""
        return await self._read(f"issuer {client_id}", str)

    async def claim_issuer(self, client_id: str, issuer: str) -> str:
        """Bind the user's credentials to an issuer if they have none. Return their issuer."""
        key = f"issuer {client_id}"
        async with self._lock(key):
            stored = await self._read(key, str)
            if stored is None:
                await self._write(key, issuer)
            return stored or issuer

    async def add_attempt(self, attempt: Attempt, now: float) -> Attempt:
        """Store an attempt and return it, or return an equal one that is open.

        So calls share a sign-in.
        """
        pending = f"pending {attempt.server_url}"
        async with self._lock(_ATTEMPTS):
            state = await self._read(pending, str)
            before = None if state is None else await self._read(f"attempt {state}", Attempt)
            if before is not None and before.serves_like(attempt) and before.expires_at > now + REUSED_SECONDS:
                return before
            if before is not None:
                await self._write(f"attempt {before.state}", None)
            await self._write(pending, attempt.state)
            await self._write(f"attempt {attempt.state}", attempt)
        return attempt

    async def discard_attempt(self, server_url: str) -> None:
        """Delete the open attempt of a server, so that its answer counts no more."""
        pending = f"pending {server_url}"
        async with self._lock(_ATTEMPTS):
            state = await self._read(pending, str)
            if state is not None:
                await self._write(f"attempt {state}", None)
                await self._write(pending, None)

    async def pop_attempt(self, state: str) -> Attempt | None:
        """Return an attempt and delete it, because its answer counts once."""
        async with self._lock(_ATTEMPTS):
            attempt = await self._read(f"attempt {state}", Attempt)
            if attempt is not None:
                await self._write(f"attempt {state}", None)
        return attempt

    @asynccontextmanager
    async def _lock(self, key: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(lock(self._storage, key))
            except TimeoutError:
                raise SignInFailed("Another process is changing the stored sign-in and took too long") from None
            yield

    async def _read(self, key: str, shape: type[T]) -> T | None:
        text = await load(self._storage, key)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=shape)
        except (ValueError, RecursionError):
            return None  # The value is damaged, or of another version.

    async def _write(self, key: str, value: SignInRecord | Registration | Attempt | str | None) -> None:
        await save(self._storage, key, None if value is None else msgspec.json.encode(value).decode())
