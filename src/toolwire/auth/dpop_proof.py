"""DPoP proofs: check that the sender of a token holds its key (RFC 9449)."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire.auth.jose import ALGORITHMS, claims_of, import_key, is_signed_by, parse, thumbprint
from toolwire.auth.marks import Marks
from toolwire.auth.principal import Principal
from toolwire.auth.verify.claims import as_time
from toolwire.auth.verify.verifier import InvalidToken
from toolwire.protocol.http import DUPLICATE
from toolwire.protocol.sealing import encode_base64url
from toolwire.wire.shares import caller_of

#: Seconds around the present in which a proof counts.
WINDOW: Final = 60.0
MAX_LENGTH: Final = 8 * 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Proofs:
    """Checks the DPoP proofs of one server.

    Each proof is good for one request, on every process that shares the store.
    """

    def __init__(self, marks: Marks, *, clock: Callable[[], float] = time.time) -> None:
        self._marks = marks
        self._clock = clock

    async def check(self, proof: str | None, token: str, principal: Principal, method: str, url: str) -> None:
        """Raise `InvalidToken` unless the proof is for this token and this request.

        Raise `Taken` for a caller who brought too many proofs.
        """
        bound_to = bound_key(principal)
        if bound_to is None:
            raise InvalidToken("The token is not bound to a key: send it as a bearer token")
        if proof is None or DUPLICATE in proof or len(proof) > MAX_LENGTH:
            raise InvalidToken("One DPoP header with a proof is needed")
        signed = parse(proof)
        key = import_key(signed.header.jwk)
        if signed.header.typ != "dpop+jwt" or key is None or "d" in (signed.header.jwk or {}):
            raise InvalidToken("The DPoP proof is malformed")
        if not is_signed_by(signed, key, ALGORITHMS):
            raise InvalidToken("The signature of the DPoP proof does not hold")
        if not hmac.compare_digest(thumbprint(key).encode(), bound_to.encode()):
            raise InvalidToken("The token is bound to another key")
        claims = claims_of(signed)
        self._check_claims(claims, token, method, url)
        await self._check_unused(claims["jti"], bound_to, principal)

    def _check_claims(self, claims: dict[str, Any], token: str, method: str, url: str) -> None:
        issued, identifier, hashed = as_time(claims.get("iat")), claims.get("jti"), claims.get("ath")
        if issued is None or not isinstance(identifier, str) or not identifier:
            raise InvalidToken("The DPoP proof is malformed")
        if abs(self._clock() - issued) > WINDOW:
            raise InvalidToken("The DPoP proof is not of now")
        if claims.get("htm") != method or not _is_same(claims.get("htu"), url):
            raise InvalidToken("The DPoP proof is for another request")
        own = encode_base64url(sha256(token.encode()).digest())
        if not isinstance(hashed, str) or not hmac.compare_digest(hashed.encode(), own.encode()):
            raise InvalidToken("The DPoP proof is for another token")

    async def _check_unused(self, identifier: str, bound_to: str, principal: Principal) -> None:
        # RFC 9449 section 11.1: within the window a proof is remembered, by a digest of fixed size. The proofs of each
        # key are remembered apart, so that no caller uses up the identifiers of another.
        digest = sha256(f"{bound_to} {identifier}".encode("utf-8", "surrogatepass")).digest()
        key = f"toolwire:dpop:{encode_base64url(digest)}"
        if not await self._marks.use(key, 2 * WINDOW, caller_of(principal)):
            raise InvalidToken("The DPoP proof was used before")


def bound_key(principal: Principal) -> str | None:
    """Return the thumbprint of the key that a token is bound to, or None."""
    confirmation = principal.claims.get("cnf")
    bound = confirmation.get("jkt") if isinstance(confirmation, dict) else None
    return bound if isinstance(bound, str) else None


def is_bound(principal: Principal) -> bool:
    """Return whether a token is bound to a key or a certificate (RFC 8705)."""
    return principal.claims.get("cnf") is not None


def _is_same(address: Any, url: str) -> bool:
    """Return whether `htu` is the request's address without query and fragment.

    RFC 9449 section 4.3.
    """
    named = _normal(address) if isinstance(address, str) else None
    return named is not None and named == _normal(url)


def _normal(url: str) -> tuple[str, str | None, int | None, str] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if "@" in parts.netloc:
        return None  # RFC 9110 section 4.2.4: the address of a request has no user info.
    return parts.scheme.lower(), parts.hostname, port or _DEFAULT_PORTS.get(parts.scheme.lower()), parts.path or "/"
