"""Signed JSON (RFC 7515, compact form) with asymmetric keys. The only module that knows joserfc.

The algorithm comes from our list, never from the token alone, and `none` and the HMAC family are not on it: a public
key can then never be taken for a shared secret (RFC 8725 section 2.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolwire.auth.verify.verifier import InvalidToken
from toolwire.extras import require
from toolwire.protocol.sealing import decode_base64url, encode_base64url

#: Every algorithm that verifies with a public key. EdDSA is the old name of Ed25519 (RFC 9864).
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2048
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class TokenHeader(Struct):
    """The members of a token's header that we read."""

    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: Any = None
    b64: Any = None
    jwk: dict[str, Any] | None = None


class Signed(Struct):
    """A token, taken apart and not yet believed."""

    header: TokenHeader
    payload: bytes
    signature: bytes
    signed: bytes


class PublicKey(Struct, frozen=True):
    """A key that may verify, and what it is for."""

    kid: str | None
    kty: str
    key: Any


_read_header = msgspec.json.Decoder(TokenHeader).decode
_read_claims = msgspec.json.Decoder(dict[str, Any]).decode
_MALFORMED: Final = "The token is malformed"


def parse(token: str) -> Signed:
    """Take a compact token apart; raise `InvalidToken` if it is malformed."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(_MALFORMED)
    try:
        header = _read_header(decode_base64url(parts[0]))
        payload, signature = decode_base64url(parts[1]), decode_base64url(parts[2])
    except (ValueError, RecursionError):
        raise InvalidToken(_MALFORMED) from None
    if header.crit is not None or header.b64 is not None:
        # RFC 7515 section 4.1.11: a critical extension that is not understood must be refused.
        raise InvalidToken("The token uses an extension that is not supported")
    return Signed(header, payload, signature, f"{parts[0]}.{parts[1]}".encode())


def claims_of(signed: Signed) -> dict[str, Any]:
    """Return the payload as an object; raise `InvalidToken` if it is none."""
    try:
        return _read_claims(signed.payload)
    except (ValueError, RecursionError):
        raise InvalidToken(_MALFORMED) from None


def is_signed_by(signed: Signed, key: PublicKey, algorithms: Collection[str]) -> bool:
    """Return whether this key made this signature, with one of these algorithms."""
    name = signed.header.alg
    if name not in algorithms or name not in ALGORITHMS:
        return False
    algorithm = _algorithm(name)
    try:
        algorithm.check_key(key.key)
        return bool(algorithm.verify(signed.signed, signed.signature, key.key))
    except Exception:  # The library raises for a key or signature that does not fit.
        return False


def key_type(algorithm: str) -> str:
    """Return the `kty` of the keys that an algorithm uses."""
    return "OKP" if algorithm.startswith("Ed") else "EC" if algorithm.startswith("ES") else "RSA"


def import_keys(keys: Iterable[Any]) -> list[PublicKey]:
    """Read the public keys of a key set, without unusable ones (RFC 7517 section 5)."""
    found: list[PublicKey] = []
    for each in keys:
        if len(found) >= MAX_KEYS:
            break
        key = import_key(each)
        if key is not None:
            found.append(key)
    return found


def import_key(parameters: Any) -> PublicKey | None:
    """Read a JWK as a public key for signatures.

    None for a symmetric, weak or unknown key, or one for another use.
    """
    if not isinstance(parameters, dict) or parameters.get("use", "sig") != "sig":
        return None
    operations = parameters.get("key_ops")
    if operations is not None and (not isinstance(operations, list) or "verify" not in operations):
        return None  # RFC 7517 section 4.3
    kty, kid = parameters.get("kty"), parameters.get("kid")
    if kty not in ("RSA", "EC", "OKP") or not isinstance(kid, str | None):
        return None
    public = {name: value for name, value in parameters.items() if name in _PUBLIC_MEMBERS}
    if kty == "OKP" and public.get("alg") == "EdDSA":
        del public["alg"]
    try:
        key = _joserfc("jwk").JWKRegistry.import_key(public, kty)
        if kty == "RSA" and key.public_key.key_size < MIN_RSA_BITS:
            return None
    except Exception:  # A key that cannot be read is treated like a key of an unknown kind.
        return None
    return PublicKey(kid, kty, key)


def thumbprint(key: PublicKey) -> str:
    """Return the thumbprint of a key (RFC 7638)."""
    return str(key.key.thumbprint())


# Private members are never read, so a key set that contains them by mistake does not spread them.
_PUBLIC_MEMBERS: Final = frozenset({"kty", "n", "e", "crv", "x", "y", "alg", "kid"})


# --- signing ---


def import_private_key(key: str | bytes, algorithm: str) -> Any:
    """Read a private key from PEM or a JWK; raise `ValueError` for anything else."""
    data = msgspec.json.decode(key) if key[:1] in ("{", b"{") else key
    found = _joserfc("jwk").import_key(data, key_type(algorithm))
    if not found.is_private:
        raise ValueError("a private key is needed to sign with")
    return found


def generate_private_key(algorithm: str = "ES256") -> Any:
    """Make a new private key for an algorithm."""
    match key_type(algorithm):
        case "RSA":
            return _joserfc("jwk").RSAKey.generate_key(MIN_RSA_BITS, private=True)
        case "EC":
            return _joserfc("jwk").ECKey.generate_key(_CURVES[algorithm], private=True)
        case kty:
            return _joserfc("jwk").JWKRegistry.generate_key(kty, "Ed25519", private=True)


def sign(header: dict[str, Any], claims: Mapping[str, Any], key: Any) -> str:
    """Sign claims; return a compact token. `alg` of the header names the algorithm."""
    algorithm = _algorithm(header["alg"])
    algorithm.check_key(key)
    signed = ".".join(encode_base64url(msgspec.json.encode(each)) for each in (header, claims))
    return f"{signed}.{encode_base64url(algorithm.sign(signed.encode(), key))}"


def _algorithm(name: str) -> Any:
    return _joserfc("jws").JWSRegistry.algorithms["Ed25519" if name == "EdDSA" else name]


@cache
def _joserfc(module: str) -> Any:
    return require(f"joserfc.{module}", extra="auth", what="A signed token")


def check_installed() -> None:
    """Raise `ServerError` when the library that verifies signatures is not installed."""
    _joserfc("jws")
