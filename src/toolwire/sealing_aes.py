"""Sealing with AES-256-GCM if `cryptography` is installed, and the choice of a sealer.

It is not in `protocol/sealing.py`, because the core imports no optional package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from toolwire.protocol.sealing import (
    BadSeal,
    HmacSealer,
    KeyedSealer,
    Sealer,
    associated_data,
    digest,
    read_token,
    write_token,
)

_SALT_BYTES = 16
_NONCE_BYTES = 12
_TAG_BYTES = 16


class AesSealer(KeyedSealer):
    """A sealer with AES-256-GCM: the peer can neither change nor read a token.

    Every token has a key of its own, derived with a random salt. A single key with random nonces would be safe for
    2**32 tokens only (NIST SP 800-38D section 8.3), which a busy fleet reaches within days.
    """

    __slots__ = ("_random",)

    confidential = True

    def __init__(
        self, secrets: Sequence[str | bytes], *, random: Callable[[int], bytes], purpose: str = "state"
    ) -> None:
        super().__init__(secrets, f"aes-256-gcm {purpose}")
        self._random = random

    def seal(self, payload: bytes, context: bytes) -> str:
        key_id, key = next(iter((self._keys or self._derive()).items()))
        fresh = self._random(_SALT_BYTES + _NONCE_BYTES)
        salt, nonce = fresh[:_SALT_BYTES], fresh[_SALT_BYTES:]
        cipher = _aes()[0](digest(key, salt))
        return write_token(key_id, fresh + cipher.encrypt(nonce, payload, associated_data(key_id, context)))

    def open(self, token: str, context: bytes) -> bytes:
        key_id, body = read_token(token)
        key = (self._keys or self._derive()).get(key_id)
        if key is None or len(body) < _SALT_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise BadSeal
        salt, nonce = body[:_SALT_BYTES], body[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
        aes, invalid_tag = _aes()
        try:
            cipher = aes(digest(key, salt))
            return bytes(cipher.decrypt(nonce, body[_SALT_BYTES + _NONCE_BYTES :], associated_data(key_id, context)))
        except invalid_tag:
            raise BadSeal from None


@cache
def _aes() -> tuple[Any, type[Exception]]:
    """Return the cipher and the exception for a wrong tag.

    The shared library is loaded on first use.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM, InvalidTag


def make_sealer(
    secrets: Sequence[str | bytes] | None, *, random: Callable[[int], bytes], purpose: str = "state"
) -> Sealer:
    """Return the best sealer: AES-256-GCM with `cryptography`, otherwise HMAC-SHA256; `confidential` tells which.

    Without secrets it uses a random one, so that its tokens open in this process only.
    """
    ring = [random(32)] if secrets is None else secrets
    if find_spec("cryptography") is None:
        return HmacSealer(ring, purpose=purpose)
    return AesSealer(ring, random=random, purpose=purpose)
