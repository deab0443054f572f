"""The base of verifiers of opaque tokens, with a cache for good and bad tokens."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

from toolwire.auth.principal import Principal
from toolwire.auth.verify.claims import end_of
from toolwire.auth.verify.fetch import ProviderAnswer, fetch
from toolwire.auth.verify.provider_limits import ProviderRequests
from toolwire.auth.verify.token_cache import Remembered
from toolwire.auth.verify.verifier import Asker, InvalidToken

#: Seconds for which a refused token is not asked about again.
REFUSED_FOR: Final = 10.0
MAX_LENGTH: Final = 16 * 1024


class RemoteVerifier(ABC):
    """Asks a provider whose a token is, and caches the answer."""

    def __init__(
        self,
        remember: float,
        *,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._remembered = Remembered(remember, clock=clock)
        self._refused = Remembered(REFUSED_FOR, clock=clock)
        self._asking = ProviderRequests()

    def recall(self, token: str) -> Principal | None:
        """Return the principal of a token that was verified recently; None if unknown."""
        return self._remembered.get(token)[2]

    async def verify(self, token: str) -> Principal | None:
        return await self.verify_for(token, None)

    async def verify_for(self, token: str, asker: Asker | None) -> Principal | None:
        """Verify a token on behalf of a caller.

        Raises `Unavailable` for an address with too many unknown tokens.
        """
        digest, known, principal = self._remembered.get(token)
        if known:
            return principal
        if len(token) > MAX_LENGTH:
            raise InvalidToken("The token is too long")
        if self._refused.get(token)[1]:
            return None
        return await self._asking.ask(digest, asker, lambda: self._answer(token, digest))

    async def _answer(self, token: str, digest: bytes) -> Principal | None:
        try:
            principal = await self._ask(token)
        except InvalidToken:
            self._refused.put(digest, None)
            raise
        if principal is None:
            self._refused.put(digest, None)
        else:
            self._remembered.put(digest, principal, end_of(principal.claims))
        return principal

    @abstractmethod
    async def _ask(self, token: str) -> Principal | None:
        """Ask the provider for the principal of a token; raise `InvalidToken` or `Unavailable`."""
