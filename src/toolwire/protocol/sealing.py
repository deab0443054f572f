"""Sealed values: what we hand to a peer and trust when it comes back.

A sealed value is text, `v1.<key id>.<base64url>`, bound to a *context* that both ends of its trip must agree on (what
it is for, whom it belongs to). `HmacSealer` signs: the peer can read the payload and cannot change it. The form that
also hides the payload needs a cipher, and lives outside this package.

2026-07-28 multi round-trip requests: request state that influences anything must be integrity-protected, and rejected
when it does not verify.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final, Protocol

from toolwire.protocol.errors import ToolwireError

MIN_SECRET_LENGTH = 16
#: 32 KiB of payload and its trimmings; a larger state belongs in a store, with only its key sealed.
MAX_TOKEN_LENGTH = 48 * 1024

#: The end of a warning of what is lost with this process.
NO_SECRET: Final = "this server has no secret of its own (set TOOLWIRE_SECRET, or give it secret=)"

VERSION = "v1"
_KEY_ID_BYTES = 9
_TAG_BYTES = 32


class BadSeal(ToolwireError):
    """The text was not sealed by us, for this context, with a key we still hold. Which of these, nobody learns."""

    def __init__(self) -> None:
        super().__init__("The sealed value is not valid.")


class TooLargeToSeal(ValueError):
    """The payload is too large to seal."""


class Sealer(Protocol):
    """Seals with its first key, opens with any."""

    @property
    def confidential(self) -> bool:
        """Return whether the peer is kept from reading the payload."""

    def seal(self, payload: bytes, context: bytes) -> str:
        """Text that `open` accepts with the same context only; raises `TooLargeToSeal`."""

    def open(self, token: str, context: bytes) -> bytes:
        """The payload; raises `BadSeal`."""


class KeyedSealer:
    """The keys of a sealer: one for each secret, by its key id. The id says nothing about the key.

    They are derived at first use: most servers seal nothing.
    """

    __slots__ = ("_keys", "_purpose", "_secrets")

    def __init__(self, secrets: Sequence[str | bytes], purpose: str) -> None:
        """`purpose`: keys and ids differ between purposes."""
        if isinstance(secrets, str | bytes):
            raise TypeError("Secrets are a list: the first seals, all open.")
        if not secrets:
            raise ValueError("At least one secret is needed.")
        self._secrets = [secret_bytes(secret) for secret in secrets]
        self._purpose = purpose
        self._keys: dict[str, bytes] = {}

    def _derive(self) -> dict[str, bytes]:
        """Return the key of each secret. The first one seals, all open."""
        purpose = self._purpose
        self._keys = {
            encode_base64url(derive_key(each, f"{purpose} id", _KEY_ID_BYTES)): derive_key(each, f"{purpose} key")
            for each in self._secrets
        }
        return self._keys


class HmacSealer(KeyedSealer):
    """HMAC-SHA256: signed, readable by the peer. Never seal with it what the peer may not know."""

    __slots__ = ()

    confidential = False

    def __init__(self, secrets: Sequence[str | bytes], *, purpose: str = "state") -> None:
        super().__init__(secrets, f"hmac-sha256 {purpose}")

    def seal(self, payload: bytes, context: bytes) -> str:
        key_id, key = next(iter((self._keys or self._derive()).items()))
        return write_token(key_id, payload + _sign(key, key_id, context, payload))

    def open(self, token: str, context: bytes) -> bytes:
        key_id, body = read_token(token)
        key = (self._keys or self._derive()).get(key_id)
        if key is None or len(body) < _TAG_BYTES:
            raise BadSeal
        payload, tag = body[:-_TAG_BYTES], body[-_TAG_BYTES:]
        from hmac import compare_digest

        if not compare_digest(tag, _sign(key, key_id, context, payload)):
            raise BadSeal
        return payload


def _sign(key: bytes, key_id: str, context: bytes, payload: bytes) -> bytes:
    return digest(key, associated_data(key_id, context) + payload)


# --- parts that every sealer shares ---------------------------------------------------------------


def digest(key: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA256 of some bytes."""
    # Imported here, as above, because most servers seal nothing.
    import hmac

    return hmac.digest(key, data, "sha256")


def derive_key(secret: str | bytes, purpose: str, length: int = 32) -> bytes:
    """A key for one purpose from a secret of any form (HKDF-SHA256, RFC 5869, without salt)."""
    extracted = digest(bytes(32), secret_bytes(secret))
    info = b"toolwire " + purpose.encode()
    output = block = b""
    while len(output) < length:
        block = digest(extracted, block + info + bytes([len(output) // 32 + 1]))
        output += block
    return output[:length]


def secret_bytes(secret: str | bytes) -> bytes:
    """Return a secret as bytes. Raise `ValueError` for one that is too short."""
    material = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(material) < MIN_SECRET_LENGTH:
        raise ValueError(
            f"A secret needs at least {MIN_SECRET_LENGTH} bytes, this one has {len(material)}: "
            "use 32 random bytes, for example from secrets.token_urlsafe(32)."
        )
    return material


def associated_data(key_id: str, context: bytes) -> bytes:
    """Return the bytes that are authenticated beside the payload. They hold a length, so no two pairs look the same."""
    return f"{VERSION}.{key_id}.".encode() + len(context).to_bytes(8, "big") + context


def write_token(key_id: str, body: bytes) -> str:
    token = f"{VERSION}.{key_id}.{encode_base64url(body)}"
    if len(token) > MAX_TOKEN_LENGTH:
        told = f"The payload is too large to seal: {len(token)} characters, {MAX_TOKEN_LENGTH} are allowed."
        raise TooLargeToSeal(told)
    return token


def read_token(token: str) -> tuple[str, bytes]:
    """(key id, body); raises `BadSeal` for whatever `write_token` would not have written."""
    if len(token) > MAX_TOKEN_LENGTH:
        raise BadSeal
    parts = token.split(".")
    if len(parts) != 3 or parts[0] != VERSION:
        raise BadSeal
    try:
        return parts[1], decode_base64url(parts[2])
    except ValueError:
        raise BadSeal from None


# A character of the standard alphabet that base64url lacks becomes one that neither has.
_TO_STANDARD = str.maketrans("-_+/", "+/!!")


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Accepts the one spelling that `encode_base64url` has for these bytes; raises ValueError for every other."""
    try:
        data = binascii.a2b_base64(text.translate(_TO_STANDARD) + "=" * (-len(text) % 4))
    except ValueError:  # Also a character that is not ASCII.
        raise ValueError("not base64url") from None
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url")
    return data
