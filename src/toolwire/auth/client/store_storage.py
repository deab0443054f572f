"""A storage for sign-ins in a store, for processes on several machines."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwire.extras import MissingExtra
from toolwire.sealing_aes import make_sealer
from toolwire.stores.leases import WAIT_SECONDS, KeyLease, poll
from toolwire.stores.memory import KV
from toolwire.util.sealed import Sealed


class StoreStorage:
    """Sign-ins in a store such as Redis, encrypted with a secret.

    The store does not have the secret. Processes with the same store and secret share the sign-ins. Of several secrets
    the first one seals, all of them open.
    """

    def __init__(self, kv: KV, secret: str | bytes, *older: str | bytes) -> None:
        self._kv = kv
        self._sealer = make_sealer([secret, *older], random=os.urandom, purpose="storage")
        if not self._sealer.confidential:
            raise MissingExtra("Keeping sign-ins in a store", "cryptography", "auth")
        self._values = Sealed(self._sealer, str, encode=str.encode, decode=bytes.decode)

    async def load(self, key: str) -> str | None:
        # None, too, where the secret is gone, or the value was moved.
        return self._values.open(await self._kv.get(_name("value", key)), key.encode())

    async def save(self, key: str, value: str | None) -> None:
        if value is None:
            await self._kv.delete(_name("value", key))
        else:
            await self._kv.put(_name("value", key), self._values.seal(value, key.encode()).encode())

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Lock a key with a lease, which ends by itself when its holder is killed."""
        lease = KeyLease(self._kv, _name("lease", key))

        async def acquire() -> bool | None:
            return await lease.acquire() or None

        if await poll(acquire) is None:
            raise TimeoutError(f"a lease was not released within {WAIT_SECONDS:g} s")
        try:
            yield
        finally:
            await lease.release()


def _name(kind: str, key: str) -> str:
    return f"toolwire:sign-in:{kind}:{hashlib.sha256(key.encode()).hexdigest()}"
