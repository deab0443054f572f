"""The provider behind the proxy, seen as its one client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.verifier import InvalidToken, Unavailable
from toolwire.protocol.rounds import digest
from toolwire.redaction import repr_without

#: An access token that lives longer than a year is one that does not end.
MAX_SECONDS: Final = 366 * 24 * 3600.0


def joined(scopes: Iterable[str]) -> str:
    return " ".join(sorted(scopes))


class Upstream(Struct, frozen=True, kw_only=True):
    """A provider that knows the proxy by one client id."""

    authorize_url: str
    token_url: str
    client_id: str
    client_secret: str
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What the authorization request needs besides."""
    scope_text: Callable[[Iterable[str]], str] = joined
    """Scopes in the form in which the provider wants to be asked for them."""
    includes: Mapping[str, Iterable[str]] = msgspec.field(default_factory=dict)
    """Scopes that include further scopes there."""
    fetch: Callable[..., Awaitable[ProviderAnswer]] = fetch

    def __repr__(self) -> str:
        return repr_without(self, "client_secret", "parameters")

    def __post_init__(self) -> None:
        checked_url(self.authorize_url, "authorization endpoint")
        checked_url(self.token_url, "token endpoint")

    @property
    def identity(self) -> str:
        """A text that changes when codes come from another provider, or are for another client."""
        return digest(self.authorize_url, self.token_url, self.client_id)

    def sign_in_url(self, *, redirect_uri: str, state: str, challenge: str, scopes: Iterable[str]) -> str:
        """Return the provider's URL that the user is sent to after the consent."""
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "scope": self.scope_text(scopes),
            **self.parameters,
        }
        separator = "&" if "?" in self.authorize_url else "?"
        return f"{self.authorize_url}{separator}{urlencode({name: value for name, value in query.items() if value})}"

    async def redeem(self, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """Exchange a code; raises `InvalidToken` when the provider refuses, `Unavailable` when it does not answer."""
        form = {"code": code, "code_verifier": verifier, "redirect_uri": redirect_uri}
        return await self._ask({"grant_type": "authorization_code", **form})

    async def refresh(self, token: str) -> Tokens:
        """Exchange a refresh token; raises as `redeem`."""
        return await self._ask({"grant_type": "refresh_token", "refresh_token": token})

    async def _ask(self, form: dict[str, str]) -> Tokens:
        sent = {**form, "client_id": self.client_id, "client_secret": self.client_secret}
        answer = await self.fetch("POST", self.token_url, form=sent)
        if answer.status >= 500 or answer.status in (301, 302, 303, 307, 308, 429):
            raise Unavailable(f"the provider answered with status {answer.status}")
        content = answer.json()
        access = content.get("access_token")
        # Some report errors with status 200, so the status alone says nothing.
        if answer.status != 200 or "error" in content or not isinstance(access, str) or not access:
            raise InvalidToken("The provider did not accept it")
        return Tokens(access, _text(content.get("refresh_token")), _seconds(content.get("expires_in")))

    def grants(self, consented: Iterable[str], granted: frozenset[str]) -> frozenset[str]:
        """Return the scopes that the provider granted and the user consented to here."""
        allowed = set(consented)
        waiting = list(allowed)
        while waiting:
            new = set(self.includes.get(waiting.pop(), ())) - allowed
            allowed |= new
            waiting += new
        return granted & allowed


class Tokens(Struct):
    """The tokens of a provider."""

    access: str
    refresh: str | None
    seconds: float | None
    """How long the access token is good; None when it does not end."""

    def __repr__(self) -> str:
        return repr_without(self, "access", "refresh")


def until(tokens: Tokens, longest: float, now: float) -> float:
    """Return the time when our token for it ends."""
    return now + (longest if tokens.seconds is None else min(longest, tokens.seconds))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _seconds(value: Any) -> float | None:
    # A number, or a text that is one.
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < MAX_SECONDS else None
