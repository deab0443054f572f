"""The keys of an issuer: fetched when needed, cached, and fetched anew rarely.

* Keys are fetched anew when they are old; until that succeeds the old ones serve, for a day.
* A new `kid` is a reason to ask again, but not more often than `PATIENCE` allows: a flood of made-up
  key ids costs us a lookup each, and the issuer nothing.
* An issuer that fails is left alone for a time that doubles.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from toolwire.auth.flow.discovery import server_candidates
from toolwire.auth.jose import PublicKey, import_keys
from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.errors import ServerError
from toolwire.util.backoff import Backoff
from toolwire.util.single_flight import SingleFlight

log: logging.Logger = logging.getLogger("toolwire.auth")

#: Seconds for which keys are fresh.
FRESH: Final = 3600.0
#: Seconds for which keys are used when the issuer cannot be asked.
USABLE: Final = 24 * 3600.0
#: Seconds between two questions because of an unknown `kid`.
PATIENCE: Final = 30.0
#: The first and the longest pause after a failure.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class KeyServer:
    """The key set of one issuer, at `jwks_uri` or where the issuer's metadata says."""

    def __init__(
        self,
        issuer: str | None,
        jwks_uri: str | None = None,
        *,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = None if issuer is None else checked_url(issuer, "issuer")
        self._address = None if jwks_uri is None else checked_url(jwks_uri, "jwks_uri")
        self._fetch = fetch
        self._clock = clock
        self._keys: list[PublicKey] = []
        self._fetched: float | None = None
        self._not_before = 0.0
        self._pause = FIRST_PAUSE
        self._pauses = Backoff(first=2 * FIRST_PAUSE, longest=LONGEST_PAUSE, jitter=False)
        self._asking = SingleFlight[None]()

    async def keys(self, kid: str | None, kty: str) -> list[PublicKey]:
        """Return the keys that may have signed a token; empty if there are none."""
        found = self._suitable(kid, kty)
        age = None if self._fetched is None else self._clock() - self._fetched
        if found and age is not None and age < FRESH:
            return found
        if found and age is not None and age < USABLE:
            # The old keys can still be used, so no caller waits for the new ones.
            self._start_asking(patience=0.0)
            return found
        asking = self._start_asking(patience=PATIENCE if age is not None and age < USABLE else 0.0)
        if asking is not None:
            # Shielded: a waiter that gives up must not cancel the request that other callers wait for.
            await asyncio.shield(asking)
            found = self._suitable(kid, kty)
        if self._fetched is None or self._clock() - self._fetched >= USABLE:
            raise Unavailable("The keys of the issuer could not be fetched", retry_after=self._pause)
        return found

    def _suitable(self, kid: str | None, kty: str) -> list[PublicKey]:
        keys = [key for key in self._keys if key.kty == kty]
        if kid is None:
            return keys
        # RFC 7517 section 4.5: if no key has this id, a key without an id may be the right one.
        return [key for key in keys if key.kid == kid] or [key for key in keys if key.kid is None]

    def _start_asking(self, patience: float) -> asyncio.Task[None] | None:
        """Return the running request for the keys, or start one.

        None if it is too early for one.
        """
        asking = self._asking.find()
        if asking is not None:
            return asking
        now = self._clock()
        if now < self._not_before or (self._fetched is not None and now - self._fetched < patience):
            return None
        # Set before the request, so that callers on other loops do not send one as well.
        self._not_before = now + self._pause
        return self._asking.start(self._ask)

    async def _ask(self) -> None:
        try:
            keys = await self._fetch_keys()
        except Unavailable as error:
            self._not_before = self._clock() + self._pause
            log.warning("the keys of %s could not be fetched: %s", self._issuer or self._address, error)
            self._pause = self._pauses.after(None)
            return
        self._keys, self._fetched = keys, self._clock()
        self._pauses.reset()
        self._pause = FIRST_PAUSE

    async def _fetch_keys(self) -> list[PublicKey]:
        if self._address is None:
            self._address = await self._discover()
        answer = await self._fetch("GET", self._address)
        if answer.status != 200:
            raise Unavailable(f"the key server answered with status {answer.status}")
        members = answer.json().get("keys")
        keys = import_keys(members) if isinstance(members, list) else []
        if not keys:
            raise Unavailable("the key server has no key that can be used")
        return keys

    async def _discover(self) -> str:
        """Return the `jwks_uri` of the issuer's metadata (RFC 8414, OpenID Connect Discovery)."""
        assert self._issuer is not None
        for url in server_candidates(self._issuer):
            answer = await self._fetch("GET", url)
            if answer.status != 200:
                continue
            metadata: dict[str, Any] = answer.json()
            # RFC 8414 section 3.3: a document about another issuer must not be used.
            if metadata.get("issuer") == self._issuer and isinstance(metadata.get("jwks_uri"), str):
                try:
                    return checked_url(metadata["jwks_uri"], "jwks_uri")
                except ServerError:
                    raise Unavailable("the metadata of the issuer names no https address of its keys") from None
        raise Unavailable("the issuer publishes no metadata that names its keys")
