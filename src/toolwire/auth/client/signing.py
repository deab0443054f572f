"""Signatures with the client's key: client assertions and DPoP proofs."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolwire.auth.flow.metadata import AuthorizationServer
from toolwire.auth.flow.urls import origin_url
from toolwire.auth.jose import ALGORITHMS, generate_private_key, import_private_key, sign
from toolwire.protocol.sealing import encode_base64url
from toolwire.util.expiring import Expiring

ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: An assertion is made for the request that it goes with.
ASSERTION_SECONDS: Final = 120
_MAX_NONCES: Final = 16
_MAX_NONCE: Final = 1_024


class PrivateKey:
    """The private key of a client, as PEM or a JWK, and the agreed algorithm."""

    def __init__(self, key: str | bytes, *, algorithm: str = "ES256", key_id: str | None = None) -> None:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"{algorithm!r:.50} is not among {', '.join(ALGORITHMS)}")
        self._key = import_private_key(key, algorithm)
        self._header = {"alg": algorithm} | ({} if key_id is None else {"kid": key_id})

    def sign(self, claims: Mapping[str, Any]) -> str:
        return sign(self._header, claims, self._key)

    def __repr__(self) -> str:
        return f"PrivateKey({self._header['alg']!r})"


class KeyCredentials:
    """The credentials of a client that signs an assertion (`private_key_jwt`, RFC 7523 section 2.2)."""

    def __init__(self, client_id: str, key: PrivateKey) -> None:
        self.client_id = client_id
        self._key = key

    def prove(self, server: AuthorizationServer, form: dict[str, str], headers: dict[str, str]) -> None:
        now = int(time.time())
        form["client_id"] = self.client_id
        form["client_assertion_type"] = ASSERTION
        # The issuer is the only audience, because an assertion for several servers could be replayed between them.
        form["client_assertion"] = self._key.sign(
            {
                "iss": self.client_id,
                "sub": self.client_id,
                "aud": server.issuer,
                "iat": now,
                "exp": now + ASSERTION_SECONDS,
                "jti": secrets.token_urlsafe(16),
            }
        )


class ProofKey:
    """A key that tokens are bound to (DPoP, RFC 9449), with the nonces of servers."""

    def __init__(self, jwk: str | None = None) -> None:
        self._key = generate_private_key() if jwk is None else import_private_key(jwk, "ES256")
        self._header = {"alg": "ES256", "typ": "dpop+jwt", "jwk": self._key.as_dict(private=False)}
        self._nonces: Expiring[str, str] = Expiring(_MAX_NONCES)

    def export(self) -> str:
        """Return the private key, which is stored with its tokens."""
        return msgspec.json.encode(self._key.as_dict(private=True)).decode()

    def proof(self, method: str, url: str, access_token: str | None = None) -> str:
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(time.time()),
        }
        if access_token is not None:
            claims["ath"] = encode_base64url(hashlib.sha256(access_token.encode()).digest())
        nonce = self._nonces.get(origin_url(url))
        if nonce is not None:
            claims["nonce"] = nonce
        return sign(self._header, claims, self._key)

    def learn(self, url: str, nonce: str) -> None:
        if not nonce or len(nonce) > _MAX_NONCE:
            return
        self._nonces.put(origin_url(url), nonce)
