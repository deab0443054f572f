"""Google's access tokens, by asking Google about each.

They are opaque, and there is no introspection endpoint; the nearest thing is `tokeninfo`
(https://developers.google.com/identity/protocols/oauth2), whose `aud` is the client the token was made for.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from toolwire.auth.principal import Principal
from toolwire.auth.verify.claims import SKEW, Terms, audience_of
from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.remote import RemoteVerifier
from toolwire.auth.verify.token_cache import LONGEST
from toolwire.auth.verify.verifier import Unavailable

ISSUER: Final = "https://accounts.google.com"
TOKEN_INFO: Final = "https://oauth2.googleapis.com/tokeninfo"
#: Scopes that are granted under another name than they are asked for.
SAME_SCOPES: Final[Mapping[str, tuple[str, ...]]] = {
    "email": ("https://www.googleapis.com/auth/userinfo.email",),
    "profile": ("https://www.googleapis.com/auth/userinfo.profile",),
}


class Google(RemoteVerifier):
    """Access tokens that Google made for `client_id`."""

    def __init__(
        self,
        client_id: str | Sequence[str],
        *,
        endpoint: str = TOKEN_INFO,
        skew: float = SKEW,
        remember: float = LONGEST,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(min(remember, LONGEST), fetch=fetch, clock=clock)
        self._endpoint = checked_url(endpoint, "address of tokeninfo")
        self._terms = Terms(issuers=frozenset(), audience=audience_of(client_id), skew=skew)

    async def _ask(self, token: str) -> Principal | None:
        # In the body: an address ends up in logs.
        answer = await self._fetch("POST", self._endpoint, form={"access_token": token})
        if answer.status in (400, 401):
            return None
        if answer.status != 200:
            raise Unavailable(f"Google answered with status {answer.status}")
        return self._terms.principal(_claims(answer.json()), self._clock(), ISSUER)


def _claims(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with times as numbers, and scopes under both of their names."""
    expires = answer.get("exp")
    if isinstance(expires, str) and expires.isascii() and expires.isdecimal() and len(expires) < 16:
        answer["exp"] = int(expires)
    granted = str(answer.get("scope", "")).split()
    short = [name for name, (full,) in SAME_SCOPES.items() if full in granted]
    answer["scope"] = " ".join([*granted, *short])
    return answer
