"""API keys that are written down, and the verifier that lets everybody in."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from msgspec import structs

from toolwire.auth.principal import Principal
from toolwire.protocol.errors import ServerError

PROVIDER: Final = "api-key"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
# RFC 6750 section 2.1: what can stand after `Bearer`.
_SENDABLE: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
MIN_KEY_LENGTH: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
# Headers that proxies read for themselves.
_NOT_FOR_KEYS: Final = frozenset({"authorization", "dpop", "host", "cookie", "origin", "content-length", "connection"})


class ApiKeys:
    """Keys and whose they are: a name, or a `Principal` with scopes.

    A key is given as it is, or as `"sha256:<hex>"` (see `hashed`), so that a configuration need not hold it. Only
    digests are kept.

    Clients send a key as a bearer token. With `header="X-API-Key"` they may send it in a header of that name instead.
    """

    #: The operator who made the keys named their owners.
    unique_usernames: bool = True

    def __init__(self, keys: Mapping[str, str | Principal], *, header: str | None = None) -> None:
        if not keys:
            raise ServerError("ApiKeys needs at least one key")
        if header is not None and (_NAME.fullmatch(header) is None or header.lower() in _NOT_FOR_KEYS):
            raise ServerError(f"header= is the name of a header such as 'X-API-Key', not {header!r}")
        self.header = header
        self._keys = [(_digest_of(key), _principal_of(owner)) for key, owner in keys.items()]

    async def verify(self, token: str) -> Principal | None:
        digest = sha256(token.encode()).digest()
        found: Principal | None = None
        # Compare every key in constant time, even after a match, so that the time reveals nothing about the keys.
        for known, principal in self._keys:
            if hmac.compare_digest(known, digest):
                found = principal
        return found


class Anonymous:
    """Accepts every request as the same principal, with any token or without one.

    For trying things out. At the end of a list it accepts those that no verifier before it knows. While one of those
    cannot be asked, a caller with a token gets 503: the token may be one that it knows.
    """

    unique_usernames: bool = True
    admits_all: bool = True

    def __init__(self, principal: Principal | None = None) -> None:
        known = principal or Principal("anonymous", provider="anonymous")
        self.principal: Principal = structs.replace(known, is_shared=True)

    async def verify(self, token: str) -> Principal | None:
        return self.principal


def hashed(key: str) -> str:
    """Return the digest of a random key for `ApiKeys`. Never use it for passwords."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


def _digest_of(key: str) -> bytes:
    written = _DIGEST.fullmatch(key)
    if written is not None:
        return bytes.fromhex(written[1])
    if len(key) < MIN_KEY_LENGTH or _SENDABLE.fullmatch(key) is None:
        raise ServerError(
            f"An API key has at least {MIN_KEY_LENGTH} characters, of A-Z a-z 0-9 - . _ ~ + and / (RFC 6750):"
            " make one with secrets.token_urlsafe(32)"
        )
    return sha256(key.encode()).digest()


def _principal_of(owner: str | Principal) -> Principal:
    return owner if isinstance(owner, Principal) else Principal(owner, provider=PROVIDER, username=owner)
