"""Session ids with sealed content: every process that has the key can serve a session that it has never seen.

2025-11-25 basic/transports, session management: an id is unique, cryptographically strong and made of visible ASCII.
An id that is forged, expired or somebody else's does not open, and the client does not learn which of these it was.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from toolwire.protocol.revisions import LEGACY
from toolwire.protocol.sealing import BadSeal, Sealer, decode_base64url, encode_base64url

MAX_LENGTH: Final = 512
ID_BYTES: Final = 16
HOME_BYTES: Final = 8
_DIGEST_BYTES: Final = 16
# Not `util.Sealed`: each request carries an id, and packed it is shorter and opens faster than a map.
# Form, id, revision, capabilities, principal, issued, expires, home.
_LAYOUT: Final = struct.Struct(f">B{ID_BYTES}sBI{_DIGEST_BYTES}sQQ{HOME_BYTES}s")
_FORM: Final = 1
# How many ids are known by their text, so that a request of a busy session need not open its id again.
_REMEMBERED: Final = 4096


class SessionToken(Struct, frozen=True):
    """The content of a session id."""

    id: str
    revision: str
    capabilities: int
    """The bits of `capability_bits`."""
    principal: bytes
    """A digest of the principal that opened the session."""
    issued: int
    expires: int
    home: bytes
    """The store, or the process, that knows more of the session."""


class SessionTokens:
    """The session ids of one purpose. An id of another purpose, or of another server, does not open."""

    def __init__(self, sealer: Sealer, purpose: str) -> None:
        self._sealer = sealer
        self._context = purpose.encode()
        self._open = _make_opener(sealer, self._context)

    def write(self, token: SessionToken) -> str:
        return self._sealer.seal(
            _LAYOUT.pack(
                _FORM,
                decode_base64url(token.id),
                LEGACY.index(token.revision),
                token.capabilities,
                token.principal,
                token.issued,
                token.expires,
                token.home,
            ),
            self._context,
        )

    def read(self, text: str, *, principal: bytes, now: float) -> SessionToken | None:
        """Return the token in an id; None where it is not valid now for this principal."""
        if len(text) > MAX_LENGTH or not text.isascii():
            return None
        try:
            token = self._open(text)
        except BadSeal:
            return None
        # 3.4.5.6: a session belongs to the principal that opened it.
        return None if token.expires <= now or token.principal != principal else token


def _make_opener(sealer: Sealer, context: bytes) -> Callable[[str], SessionToken]:
    """Make the function that opens an id, or raises `BadSeal`.

    It remembers the ids that it opened last.
    """

    @lru_cache(maxsize=_REMEMBERED)
    def open_id(text: str) -> SessionToken:
        payload = sealer.open(text, context)
        if len(payload) != _LAYOUT.size or payload[0] != _FORM:
            raise BadSeal
        _, identifier, revision, capabilities, owner, issued, expires, home = _LAYOUT.unpack(payload)
        if revision >= len(LEGACY):
            raise BadSeal
        return SessionToken(encode_base64url(identifier), LEGACY[revision], capabilities, owner, issued, expires, home)

    return open_id


def principal_digest(key: str) -> bytes:
    """Return the digest of a principal for a token."""
    return hashlib.sha256(key.encode()).digest()[:_DIGEST_BYTES]
