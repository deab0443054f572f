"""Opaque tokens, by asking the authorization server about each (RFC 7662)."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import quote_plus

from toolwire.auth.claims import SKEW, Terms, audience_of, end_of
from toolwire.auth.fetching import Answer, checked_url, fetch
from toolwire.auth.principal import Principal
from toolwire.auth.remembering import LONGEST, Remembered
from toolwire.auth.verifier import InvalidToken, Unavailable

MAX_LENGTH: Final = 16 * 1024
#: Seconds for which a refused token is not asked about again.
REFUSED_FOR: Final = 10.0


class Introspection:
    """Asks `endpoint` about each token, as the client `client_id` with `client_secret` where these are given.

    `audience` has to stand in the answer, as in a signed token; an answer without `exp` is kept for a minute.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        audience: str | Sequence[str],
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        other_audiences: Sequence[str] = (),
        skew: float = SKEW,
        remember: float = LONGEST,
        fetch: Callable[..., Awaitable[Answer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = checked_url(endpoint, "introspection endpoint")
        self._provider = issuer or endpoint
        self._headers = {} if client_id is None else basic_authorization(client_id, client_secret or "")
        self._terms = Terms(
            issuers=frozenset(),
            audience=audience_of(audience),
            other_audiences=frozenset(other_audiences),
            skew=skew,
        )
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._remembered = Remembered(min(remember, LONGEST), clock=clock)
        self._refused = Remembered(REFUSED_FOR, clock=clock)

    async def verify(self, token: str) -> Principal | None:
        digest, known, principal = self._remembered.get(token)
        if known:
            return principal
        if len(token) > MAX_LENGTH:
            raise InvalidToken("The token is too long")
        if self._refused.get(token)[1]:
            return None
        try:
            principal = await self._ask(token)
        except InvalidToken:
            self._refused.keep(digest, None)
            raise
        if principal is None:
            self._refused.keep(digest, None)
            return None
        self._remembered.keep(digest, principal, end_of(principal.claims))
        return principal

    async def _ask(self, token: str) -> Principal | None:
        form = {"token": token, "token_type_hint": "access_token"}
        answer = await self._fetch("POST", self._endpoint, headers=self._headers, form=form)
        if answer.status != 200:
            # 401 and 403 are about us, not about the token (RFC 7662 section 2.3).
            raise Unavailable(f"the introspection endpoint answered with status {answer.status}")
        claims = answer.json()
        if claims.get("active") is not True:
            return None
        if self._issuer is not None and claims.get("iss", self._issuer) != self._issuer:
            raise InvalidToken("The token is from another issuer")
        now = self._clock()
        claims.setdefault("exp", now + LONGEST)
        return self._terms.principal(claims, now, self._provider)


def basic_authorization(client_id: str, client_secret: str) -> dict[str, str]:
    """RFC 6749 section 2.3.1: both are form-encoded before they are joined."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
