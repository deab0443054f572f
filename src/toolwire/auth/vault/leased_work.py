"""Work that runs once at a time in all processes, such as a refresh.

A refresh token is good once at most providers. Two processes that use it at the same time lose the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.auth.verify.provider_limits import ProviderRequests
from toolwire.auth.verify.verifier import Unavailable
from toolwire.stores import KV
from toolwire.stores.leases import WORK_SECONDS, KeyLease, poll

T = TypeVar("T")

#: For how many seconds work that failed is not tried again: after a refusal, and after an outage.
REFUSED_SECONDS: Final = 10.0
OUTAGE_SECONDS: Final = 3.0
_OUTAGE: Final = b"outage"


class LeasedWork:
    """Runs the work for a key once at a time, and caches its failures."""

    def __init__(self, kv: KV) -> None:
        self.kv = kv
        # In one process, callers wait for one task. It continues when a caller gives up.
        self._open = ProviderRequests(at_once=256)

    async def run(
        self, key: str, identity: str, look: Callable[[], Awaitable[T | None]], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Return what `look` finds, or run the work.

        Raises `Refused` or `Unavailable`, also when another process failed. `look` returns the result of another
        process; None while there is none. `identity` is that of the settings: results are shared only between equal
        settings.
        """
        return await self._open.ask((key, identity), None, lambda: self._once(key, look, work))

    async def _once(self, key: str, look: Callable[[], Awaitable[T | None]], work: Callable[[], Awaitable[T]]) -> T:
        lease = KeyLease(self.kv, f"toolwire:vault:lease:{key}")

        async def acquire_or_look() -> tuple[T | None] | None:
            if await lease.acquire():
                return (None,)
            found = await look()
            return None if found is None else (found,)

        outcome = await poll(acquire_or_look)
        if outcome is None:
            raise Unavailable("Another process did not finish in time")
        if outcome[0] is not None:
            return outcome[0]
        try:
            # Another process may have finished just before.
            if (found := await look()) is not None:
                return found
            await self._check_failed(key)
            return await self._worked(key, work)
        finally:
            await lease.release()

    async def _worked(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(WORK_SECONDS):
                return await work()
        except Refused as refusal:
            await self._fail(key, refusal.error.encode()[:100], REFUSED_SECONDS)
            raise
        except (TimeoutError, SignInFailed, Unavailable) as error:
            await self._fail(key, _OUTAGE, OUTAGE_SECONDS)
            if isinstance(error, TimeoutError):
                raise Unavailable("The provider did not answer in time") from None
            raise

    async def _fail(self, key: str, reason: bytes, seconds: float) -> None:
        await self.kv.put(_failed(key), reason, ttl=seconds)

    async def _check_failed(self, key: str) -> None:
        reason = await self.kv.get(_failed(key))
        if reason == _OUTAGE:
            raise Unavailable("The provider could not be asked a moment ago")
        if reason is not None:
            raise Refused("The request for a token", reason.decode(errors="replace"))

    async def forget(self, key: str) -> None:
        """Forget that the work for a key failed."""
        await self.kv.delete(_failed(key))


def _failed(key: str) -> str:
    return f"toolwire:vault:failed:{key}"
