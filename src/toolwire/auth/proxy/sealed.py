"""Sealed values that the proxy issues: registrations, requests, codes and tokens.

Nothing has to be stored for them, so any process with the key can serve the next step, also after a restart. They are
encrypted and not only signed: inside are codes and tokens of the provider, which must stay secret.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from toolwire.extras import MissingExtra
from toolwire.protocol.sealing import Sealer
from toolwire.redaction import repr_without
from toolwire.util.sealed import Sealed

#: Seconds that a user may take to consent and to sign in.
SIGN_IN: Final = 600.0
#: Seconds in which a client has to redeem its code.
CODE: Final = 120.0
#: Seconds for which an access token is good, where the provider's own is good for longer.
ACCESS: Final = 3600.0
REFRESH: Final = 30 * 24 * 3600.0


class SealedRegistration(Struct, array_like=True):
    """A client's description of itself at its registration."""

    redirect_uris: list[str]
    name: str


class SealedRequest(Struct, array_like=True):
    """A client's request for authorization."""

    expires: float
    id: str
    client: str
    """A digest of the client's id."""
    redirect_uri: str
    state: str
    challenge: str
    scopes: list[str]
    browser: str
    """A digest of the cookie of the browser that was shown the consent page."""
    verifier: str = ""
    """Our own, towards the provider; there is one as soon as the user has consented."""

    def __repr__(self) -> str:
        return repr_without(self, "state", "verifier")


class Code(Struct, array_like=True):
    """A code that a client redeems for tokens.

    It holds the provider's code and what redeems that.
    """

    expires: float
    id: str
    """The id of the request, so that one request leads to tokens once."""
    client: str
    redirect_uri: str
    challenge: str
    scopes: list[str]
    verifier: str
    code: str

    def __repr__(self) -> str:
        return repr_without(self, "verifier", "code")


class SealedAccess(Struct, array_like=True):
    """An access token: the provider's token, and what the user consented to."""

    expires: float
    client: str
    scopes: list[str]
    token: str

    def __repr__(self) -> str:
        return repr_without(self, "token")


class Refresh(Struct, array_like=True):
    """A refresh token of the proxy.

    It holds the provider's one, or the provider's access token where that does not expire.
    """

    expires: float
    id: str
    client: str
    scopes: list[str]
    token: str
    is_access: bool
    user: str = ""
    """A digest of the user who signed in; empty in tokens of earlier versions."""
    family: str = ""
    """The id of the first refresh token of the sign-in; empty in that token, and in tokens of earlier versions."""
    number: int = 0
    """How many refresh tokens of the family came before."""

    def __repr__(self) -> str:
        return repr_without(self, "token")


T = TypeVar("T", SealedRegistration, SealedRequest, Code, SealedAccess, Refresh)


class Seals:
    """Seals and opens the values of one proxy. Each kind has its own seal.

    All but registrations are for one resource: a client registers once with an issuer, which may have several
    endpoints (RFC 8707 section 2.2: a token is for the resource that was asked for). They are for one upstream
    provider as well: what it gave is never sent to another one.
    """

    def __init__(
        self, sealer: Sealer, issuer: str, resource: str, upstream: str, clock: Callable[[], float] = time.time
    ) -> None:
        """`upstream`: the identity of the provider, as `Upstream` has it."""
        if not sealer.confidential:
            raise MissingExtra("Hiding what the OAuth proxy hands out", "cryptography", "auth")
        self._issuer = issuer
        self._resource = resource
        self._upstream = upstream
        self.clock = clock
        kinds: tuple[type[Any], ...] = (SealedRegistration, SealedRequest, Code, SealedAccess, Refresh)
        self._forms = {kind: Sealed[Any](sealer, kind, clock=lambda: self.clock()) for kind in kinds}

    def seal(self, value: Any) -> str:
        return self._forms[type(value)].seal(value, self._context(type(value)))

    def open(self, text: str, kind: type[T]) -> T | None:
        """Open a sealed value; None for a foreign, different or expired one."""
        return self._forms[kind].open(text, self._context(kind))

    def _context(self, kind: type[Any]) -> bytes:
        parts = (self._issuer,) if kind is SealedRegistration else (self._issuer, self._resource, self._upstream)
        bound_to = "\0".join(parts)
        return f"oauth/{kind.__name__}/{bound_to}".encode()


def new_id() -> str:
    return secrets.token_urlsafe(16)
