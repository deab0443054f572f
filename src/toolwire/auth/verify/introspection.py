"""Opaque tokens, by asking the authorization server about each (RFC 7662)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from toolwire.auth.flow.clients import basic_authorization
from toolwire.auth.principal import Principal
from toolwire.auth.verify.claims import SKEW, SUBJECT_CLAIMS, Terms, audience_of
from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.remote import RemoteVerifier
from toolwire.auth.verify.token_cache import LONGEST
from toolwire.auth.verify.verifier import InvalidToken, Unavailable
from toolwire.util.text_lists import text_list

#: Members of an answer that name the type of the token, and the types that open no server.
_TYPE_MEMBERS: Final = ("token_type", "token_use", "typ")
_OTHER_TYPES: Final = frozenset({"refresh_token", "refresh", "rt", "offline", "id_token", "id"})
_URN: Final = "urn:ietf:params:oauth:token-type:"


class Introspection(RemoteVerifier):
    """Asks `endpoint` about each token, as the client `client_id` with `client_secret` where these are given.

    `audience` has to stand in the answer, as in a signed token; an answer without `exp` is kept for a minute.
    `subject_claims` are those of `JWT`.
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
        subject_claims: Sequence[str] = SUBJECT_CLAIMS,
        skew: float = SKEW,
        remember: float = LONGEST,
        fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(min(remember, LONGEST), fetch=fetch, clock=clock)
        self._endpoint = checked_url(endpoint, "introspection endpoint")
        self._provider = issuer or endpoint
        self._headers: dict[str, str] = {}
        if client_id is not None:
            self._headers["authorization"] = basic_authorization(client_id, client_secret or "")
        self._terms = Terms(
            issuers=frozenset(),
            audience=audience_of(audience),
            other_audiences=frozenset(text_list(other_audiences, "other_audiences=")),
            subject_claims=tuple(subject_claims),
            skew=skew,
        )
        self._issuer = issuer

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
        _check_type(claims)
        now = self._clock()
        claims.setdefault("exp", now + LONGEST)
        return self._terms.principal(claims, now, self._provider)


def _plain_type(value: str) -> str:
    """Return a token type without its URN (RFC 8693) or media type prefix and `+jwt`."""
    return value.strip().lower().removeprefix(_URN).removeprefix("application/").removesuffix("+jwt").replace("-", "_")


def _check_type(claims: Mapping[str, Any]) -> None:
    """Raise `InvalidToken` for a refresh or ID token, or a DPoP token without key."""
    types = {_plain_type(value) for name in _TYPE_MEMBERS if isinstance(value := claims.get(name), str)}
    if not types.isdisjoint(_OTHER_TYPES):
        raise InvalidToken("The token is not an access token")
    if "dpop" in types and claims.get("cnf") is None:
        # RFC 9449 section 6.2: the answer names the key. Without it, the token would pass as a bearer token.
        raise InvalidToken("The provider does not say which key the DPoP token is bound to")
