"""Cursors of list methods: self-contained, so that any instance can serve the next page, and stable under change.

A cursor names the last key of the page it ends. Pages are cut from keys in sorted order, so what is added or removed
between two pages never makes the listing repeat or skip an item that was there all along.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from toolwire.protocol.sealing import decode_base64url, encode_base64url

#: `_meta` of a list: the servers behind this one whose components are missing in it, or may be out of date.
MISSING_KEY = "io.toolwire/missing"
#: Room for a key of 8 KiB, the longest URI that a template can match, in any script.
MAX_CURSOR_LENGTH = 48 * 1024
_CHECKSUM_BYTES = 6


def encode_cursor(kind: str, after_key: str) -> str:
    """The cursor that continues a list of this kind ("tools", "resources" …) after this key."""
    key = after_key.encode()
    cursor = encode_base64url(_checksum(kind, key) + key)
    if len(cursor) > MAX_CURSOR_LENGTH:
        raise ValueError("The key is too long for a cursor.")
    return cursor


def decode_cursor(text: str, kind: str) -> str:
    """The key that the cursor continues after; ValueError for whatever we did not hand out for this kind of list."""
    unknown = ValueError("Unknown cursor: start again without one.")
    if len(text) > MAX_CURSOR_LENGTH:
        raise unknown
    try:
        body = decode_base64url(text)
        after_key = body[_CHECKSUM_BYTES:].decode()
    except ValueError:
        raise unknown from None
    if body[:_CHECKSUM_BYTES] != _checksum(kind, body[_CHECKSUM_BYTES:]):
        raise unknown
    return after_key


def page(sorted_keys: Sequence[str], after: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """At most `size` keys after `after` (None: from the start), and what to continue after (None: that was all).

    `after` need not be among the keys any more.
    """
    if size < 1:
        raise ValueError("A page holds at least one item.")
    start = 0 if after is None else bisect_right(sorted_keys, after)
    keys = sorted_keys[start : start + size]
    return keys, keys[-1] if start + size < len(sorted_keys) else None


def _checksum(kind: str, key: bytes) -> bytes:
    """Tells our cursors from noise and from those of another list. It is no signature: a cursor grants nothing."""
    # Imported here because most lists have one page.
    from hashlib import blake2b

    return blake2b(key, digest_size=_CHECKSUM_BYTES, key=kind.encode()[:64], person=b"toolwire cursor").digest()
