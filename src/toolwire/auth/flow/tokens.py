"""Token requests, which end every grant, and the tokens that they return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct

from toolwire.auth.errors import Refused, SignInFailed, quoted
from toolwire.auth.flow.clients import Credentials
from toolwire.auth.flow.messages import Fetch, Fetched, Flow, post_form, read, refusal
from toolwire.auth.flow.metadata import AuthorizationServer
from toolwire.auth.flow.scopes import Scopes, parse_scopes
from toolwire.redaction import repr_without

#: A token is renewed when less than this is left of its life, or less than a tenth of it.
LEEWAY_SECONDS: Final = 30.0
#: Longer tokens fit in no header.
MAX_TOKEN: Final = 32_768
_LONGEST_SECONDS: Final = 10 * 365 * 86_400.0


class Prover(Protocol):
    """Makes DPoP proofs for requests (RFC 9449), and remembers the servers' nonces."""

    def proof(self, method: str, url: str, access_token: str | None = None) -> str: ...

    def learn(self, url: str, nonce: str) -> None: ...


class TokenResponse(Struct, frozen=True):
    """The answer of a token endpoint (RFC 6749 section 5.1)."""

    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    issued_token_type: str | None = None
    #: The scopes that were granted, where they are not those that were asked for (RFC 6749 section 5.1).
    scope: Any = None

    def __repr__(self) -> str:
        return repr_without(self, "access_token", "refresh_token")


class Token(Struct, frozen=True, omit_defaults=True):
    """An access token and its facts.

    `scopes` were asked for; the server may have given fewer.
    """

    access_token: str
    scopes: Scopes = ()
    refresh_token: str | None = None
    #: The time to renew it, shortly before it expires, in seconds since the epoch; None if the server does not say.
    renew_at: float | None = None
    dpop: bool = False

    def __repr__(self) -> str:
        return f"Token(scopes={self.scopes!r}, renew_at={self.renew_at!r})"

    def fresh(self, now: float) -> bool:
        return self.renew_at is None or now < self.renew_at


def request_token(
    server: AuthorizationServer,
    credentials: Credentials,
    form: dict[str, str],
    *,
    prover: Prover | None = None,
    step: str = "The token request",
    kinds: Sequence[str] = (),
) -> Flow[TokenResponse]:
    """Send a request to the token endpoint.

    It is sent again only if the first one lacked the server's nonce.

    `kinds` are the accepted token types, in lower case; by default the type that fits the proof.
    """
    kinds = kinds or (("bearer",) if prover is None else ("dpop",))
    sent = _post(server, credentials, form, prover)
    answer = yield sent
    if prover is not None and _teaches_nonce(answer, server, prover) and _wants_nonce(answer):
        sent = _post(server, credentials, form, prover)
        answer = yield sent
        _teaches_nonce(answer, server, prover)
    if answer.status != 200:
        raise refusal(answer, step, sent)
    return _checked(read(answer, TokenResponse, "The token response"), kinds, server)


def _post(server: AuthorizationServer, credentials: Credentials, form: dict[str, str], prover: Prover | None) -> Fetch:
    sent, headers = dict(form), dict[str, str]()
    credentials.prove(server, sent, headers)
    if prover is not None:
        headers["dpop"] = prover.proof("POST", server.token_endpoint)
    return post_form(server.token_endpoint, sent, headers)


def _teaches_nonce(answer: Fetched, server: AuthorizationServer, prover: Prover) -> bool:
    nonce = answer.headers.get("dpop-nonce")
    if nonce is None:
        return False
    prover.learn(server.token_endpoint, nonce)
    return True


def _wants_nonce(answer: Fetched) -> bool:
    # RFC 9449 section 8: the same request again, with the server's nonce in the proof.
    if answer.status != 400:
        return False
    failure = refusal(answer, "The proof")
    return isinstance(failure, Refused) and failure.error == "use_dpop_nonce"


def make_token(response: TokenResponse, now: float, scopes: Scopes, earlier: Token | None = None) -> Token:
    """Make the token of a response.

    It was asked for at `now`. Without a new refresh token, the earlier one stays.
    """
    return Token(
        response.access_token,
        scopes,
        response.refresh_token or (earlier.refresh_token if earlier is not None else None),
        _renewal(response, now),
        response.token_type.lower() == "dpop",
    )


def granted_scopes(response: TokenResponse, asked: Scopes) -> Scopes:
    """Return the scopes of a token: those of the response, else those asked for."""
    if not isinstance(response.scope, str) or not response.scope.strip():
        return asked
    # A space separates them (RFC 6749 section 3.3). GitHub writes a comma.
    return parse_scopes(response.scope.replace(",", " "))


def lifetime(response: TokenResponse) -> float | None:
    """Return the seconds for which a token is valid; None if unknown."""
    try:
        seconds = float(response.expires_in if response.expires_in is not None else "")
    except ValueError:
        return None
    return min(seconds, _LONGEST_SECONDS) if seconds > 0 else None  # NaN is not above zero.


def leeway(seconds: float) -> float:
    """Return how many seconds before its end a token with this lifetime is renewed."""
    return min(LEEWAY_SECONDS, seconds / 10)


def _renewal(response: TokenResponse, now: float) -> float | None:
    seconds = lifetime(response)
    return None if seconds is None else now + seconds - leeway(seconds)


def _checked(response: TokenResponse, kinds: Sequence[str], server: AuthorizationServer) -> TokenResponse:
    token = response.access_token
    if not 0 < len(token) <= MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise SignInFailed("The token response holds a token that cannot be sent")
    if response.token_type.lower() not in kinds:
        # RFC 9449 section 5: a token that should be bound to the key and is not can be used by a thief.
        raise SignInFailed(
            f"{quoted(server.issuer)} issued a token of type {quoted(response.token_type)} instead of {kinds[0]}"
        )
    return response
