"""The check of a token's claims (issuer, audience, times), and the principal that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from toolwire.auth.principal import Principal
from toolwire.auth.verify.verifier import ExpiredToken, InvalidToken
from toolwire.protocol.errors import ServerError
from toolwire.util.numbers import is_number
from toolwire.util.text_lists import texts_of

SKEW: Final = 60.0
#: RFC 9068 section 5: where a client may choose its id, the id could be that of a user. So it is not a default subject.
SUBJECT_CLAIMS: Final = ("sub",)
_NAMES: Final = ("preferred_username", "username", "upn", "email", "name")


class Terms(Struct, frozen=True, kw_only=True):
    """The expected claims of a token."""

    issuers: frozenset[str]
    """The accepted issuers; empty if the answer came from the issuer itself."""
    audience: frozenset[str]
    """The accepted audiences. The token must be for one of these."""
    other_audiences: frozenset[str] = frozenset()
    """Audiences that the token may have besides."""
    scope_claims: tuple[str, ...] = ("scope", "scp")
    subject_claims: tuple[str, ...] = SUBJECT_CLAIMS
    """The claims for the subject. The first in the token counts, even if empty."""
    skew: float = SKEW

    def principal(self, claims: Mapping[str, Any], now: float, provider: str) -> Principal:
        """Return the principal of the claims, or raise `InvalidToken`."""
        self._check_issuer(claims)
        self._check_audience(claims)
        self._check_times(claims, now)
        subject = next((claims[name] for name in self.subject_claims if name in claims), None)
        if not isinstance(subject, str) or not subject:
            raise InvalidToken("The token names no subject")
        username = next((claims[name] for name in _NAMES if _is_text(claims.get(name))), None)
        return Principal(subject, provider, username, self._scopes(claims), claims)

    def _check_issuer(self, claims: Mapping[str, Any]) -> None:
        if self.issuers and claims.get("iss") not in self.issuers:
            raise InvalidToken("The token is from another issuer")

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        given = claims.get("aud")
        audiences = [given] if isinstance(given, str) else given
        if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
            raise InvalidToken("The token does not say whom it is for")
        if self.audience.isdisjoint(audiences):
            raise InvalidToken("The token is for another server")
        # 2026-07-28 basic/authorization, access token privilege restriction: another audience of it could send it here.
        if not self.audience.union(self.other_audiences).issuperset(audiences):
            raise InvalidToken("The token is for other servers as well")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> None:
        expires = _time(claims, "exp")
        if expires is None:
            raise InvalidToken("The token does not say when it expires")
        if expires + self.skew <= now:
            raise ExpiredToken("The token has expired")
        for name in ("nbf", "iat"):
            starts = _time(claims, name)
            if starts is not None and starts - self.skew > now:
                raise InvalidToken("The token is not valid yet")

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        granted: set[str] = set()
        for name in self.scope_claims:
            value = claims.get(name)
            if isinstance(value, str):
                granted.update(value.split())
            elif isinstance(value, list):
                granted.update(each for each in value if isinstance(each, str))
        return frozenset(granted)


def end_of(claims: Mapping[str, Any]) -> float | None:
    """Return the time when a verified token expires."""
    return _time(claims, "exp")


def as_time(value: Any) -> float | None:
    """Return a number of a token as a time; None for any other value."""
    if not is_number(value):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def audience_of(audience: str | Sequence[str]) -> frozenset[str]:
    """Return the audience that a user set.

    There is no default, because it would accept tokens for any server.
    """
    names = frozenset(texts_of(audience, "audience="))
    if not names or not all(isinstance(each, str) and each for each in names):
        raise ServerError("audience= is needed: what the issuer writes into `aud` of tokens for this server")
    return names


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    read = as_time(value)
    if read is None:
        raise InvalidToken(f"The time {name} of the token cannot be read")
    return read


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
