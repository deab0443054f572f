"""The token endpoint of the proxy, and the verification of the proxy's own tokens."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec.structs import replace

from toolwire.auth.browser import SignedIn, digest
from toolwire.auth.marks import Marks
from toolwire.auth.principal import Principal
from toolwire.auth.proxy.sealed import (
    ACCESS,
    CODE,
    REFRESH,
    SIGN_IN,
    Code,
    Refresh,
    SealedAccess,
    Seals,
    new_id,
)
from toolwire.auth.proxy.upstream import Tokens, Upstream, until
from toolwire.auth.verify.token_cache import Remembered
from toolwire.auth.verify.verifier import (
    Asker,
    InvalidToken,
    Unavailable,
    Verifier,
    has_unique_usernames,
    verification,
)
from toolwire.protocol.rounds import digest as user_digest
from toolwire.wire.shares import Caller, Taken

#: Seconds in which a refresh token may come a second time, from a program that did not wait for another one.
AT_ONCE: Final = 30.0
# Anybody may begin a sign-in. So the marks of all sign-ins are those of one caller, and users who have signed in keep
# their own share.
_STRANGERS: Final = "strangers"


class OAuthError(Exception):
    """An error of the token endpoint (RFC 6749 section 5.2)."""

    def __init__(self, code: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.code = code
        self.status = status


class TokenDesk:
    """Redeems the codes and refresh tokens of the proxy."""

    def __init__(self, upstream: Upstream, verifier: Verifier, seals: Seals, marks: Marks) -> None:
        self._upstream = upstream
        self._verifier = verifier
        self._seals = seals
        self._marks = marks

    async def answer(self, asked: Mapping[str, str], callback: str) -> dict[str, Any]:
        """Return the answer of the token endpoint; raise `OAuthError`."""
        grant = asked.get("grant_type")
        try:
            if grant == "authorization_code":
                return await self._redeem(asked, callback)
            if grant == "refresh_token":
                return await self._refresh(asked)
        except InvalidToken as error:
            raise OAuthError("invalid_grant", str(error)) from None
        except Unavailable:
            raise OAuthError("temporarily_unavailable", "The provider cannot be asked now", 503) from None
        except Taken as error:
            raise OAuthError("temporarily_unavailable", error.message, 429 if error.own else 503) from None
        raise OAuthError("unsupported_grant_type", "There are authorization_code and refresh_token")

    async def user_of(self, code: str, verifier: str, callback: str) -> SignedIn:
        """Return the user for whom the provider gave a code. Raise `InvalidToken` or `Unavailable`."""
        token = (await self._upstream.redeem(code, verifier, callback)).access
        return SignedIn(await self.identify_again(token), token)

    async def identify_again(self, token: str) -> Principal:
        """Return the user of a token of the provider. Raise `InvalidToken` or `Unavailable`."""
        principal = await self._verifier.verify(token)
        if principal is None:
            raise InvalidToken("The provider's token is not valid here")
        return principal

    async def _redeem(self, asked: Mapping[str, str], callback: str) -> dict[str, Any]:
        code = self._seals.open(asked.get("code", ""), Code)
        if code is None or not _same(code.client, digest(asked.get("client_id", ""))):
            raise OAuthError("invalid_grant", "The code is not valid")
        if asked.get("redirect_uri") != code.redirect_uri:
            raise OAuthError("invalid_grant", "The redirect address is not that of the request")
        if not _same(digest(asked.get("code_verifier", "")), code.challenge):
            raise OAuthError("invalid_grant", "The code verifier is wrong")
        # The code of the provider can be used once, too. This protects processes that share no store.
        # Another code of the same request may be given out until the request ends.
        async with self._once(code.id, SIGN_IN + CODE, _STRANGERS):
            tokens = await self._upstream.redeem(code.code, code.verifier, callback)
        return await self._issue(tokens, code.client, code.scopes, None)

    async def _refresh(self, asked: Mapping[str, str]) -> dict[str, Any]:
        held = self._seals.open(asked.get("refresh_token", ""), Refresh)
        if held is None or not _same(held.client, digest(asked.get("client_id", ""))):
            raise OAuthError("invalid_grant", "The refresh token is not valid")
        # OAuth 2.1 section 4.3.1: refresh tokens of public clients are used once.
        # All refresh tokens of a sign-in share a mark: they are used for weeks, and many times a day.
        left, caller = held.expires - self._seals.clock(), ("user", held.user or held.client)
        async with self._once(held.family or held.id, left, caller, held.number, is_series=True):
            if held.is_access:
                # The provider gave an access token without an end, so there is nothing to refresh there.
                return await self._issue(Tokens(held.token, None, None), held.client, held.scopes, held)
            tokens = await self._upstream.refresh(held.token)
        return await self._issue(tokens, held.client, held.scopes, held)

    @asynccontextmanager
    async def _once(
        self, identifier: str, seconds: float, caller: Caller, number: int = 0, *, is_series: bool = False
    ) -> AsyncIterator[None]:
        """Let an id, or a number of it, be used once.

        If the provider cannot be reached, it can be used again. The refresh tokens of a sign-in are a series. It ends
        when one of them is used twice, because one of the two users is a thief (RFC 9700 section 4.14.2).
        """
        key = f"toolwire:oauth:used:{identifier}"
        if is_series:
            mark = await self._marks.use_in_turn(key, seconds, caller, number, AT_ONCE)
        else:
            mark = await self._marks.use(key, seconds, caller)
        if mark is None:
            raise OAuthError("invalid_grant", "This was used before")
        try:
            yield
        except Unavailable:
            await mark.give_back()
            raise

    async def _issue(self, tokens: Tokens, client: str, scopes: list[str], before: Refresh | None) -> dict[str, Any]:
        principal = await self.identify_again(tokens.access)
        user = user_digest(principal.provider, principal.subject)
        if before is not None and before.user and not _same(before.user, user):
            # OpenID Connect Core section 12.2: the subject of a refreshed token is that of the first one.
            raise InvalidToken("The provider refreshed the token of another user: sign in again")
        now = self._seals.clock()
        ends = until(tokens, ACCESS, now)
        answer: dict[str, Any] = {
            "access_token": self._seals.seal(SealedAccess(ends, client, scopes, tokens.access)),
            "token_type": "Bearer",
            "expires_in": int(ends - now),
            "scope": " ".join(sorted(self._upstream.grants(scopes, principal.scopes))),
        }
        refresh = _refresh_token(tokens, before)
        if refresh is not None:
            # The time counts from the first sign-in, so rotation does not extend it.
            expires = now + REFRESH if before is None else before.expires
            family, number = ("", 0) if before is None else (before.family or before.id, before.number + 1)
            sealed = Refresh(expires, new_id(), client, scopes, refresh[0], refresh[1], user, family, number)
            answer["refresh_token"] = self._seals.seal(sealed)
        return answer


class ProxyVerifier:
    """Verifies access tokens of the proxy.

    It asks the verifier of the provider about the token inside.
    """

    takes_signed_tokens: bool = True

    def __init__(self, upstream: Upstream, verifier: Verifier, seals: Seals) -> None:
        self._upstream = upstream
        self._verify = verification(verifier)
        self.unique_usernames: bool = has_unique_usernames(verifier)
        self._seals = seals
        self._remembered = Remembered(clock=seals.clock)

    async def verify(self, token: str) -> Principal | None:
        return await self.verify_for(token, None)

    async def verify_for(self, token: str, asker: Asker | None) -> Principal | None:
        """Verify a token on behalf of a caller."""
        fingerprint, known, principal = self._remembered.get(token)
        if known:
            return principal
        access = self._seals.open(token, SealedAccess)
        if access is None:
            return None
        principal = await self._verify(access.token, asker)
        if principal is None:
            raise InvalidToken("The provider does not vouch for this token any more")
        principal = replace(principal, scopes=self._upstream.grants(access.scopes, principal.scopes))
        self._remembered.put(fingerprint, principal, access.expires)
        return principal

    def subject_token(self, token: str) -> str | None:
        """Return the token of the provider that is inside, for an exchange."""
        access = self._seals.open(token, SealedAccess)
        return None if access is None else access.token


def _same(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())


def _refresh_token(tokens: Tokens, before: Refresh | None) -> tuple[str, bool] | None:
    """Return the content of our refresh token, and whether it is an access token.

    That is the provider's refresh token, the one before, or an access token that does not expire.
    """
    if tokens.refresh is not None:
        return tokens.refresh, False
    if before is not None:
        return before.token, before.is_access
    return (tokens.access, True) if tokens.seconds is None else None
