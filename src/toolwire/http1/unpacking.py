"""Compressed bodies, unpacked piece by piece as they are read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

#: What a request may say it takes (RFC 9110 section 12.5.3).
ENCODINGS: Final = "gzip, deflate"
# A small piece may unpack to a thousand times its size, so it is given out in parts.
_PART: Final = 64 * 1024
_SLICE: Final = 16 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
# The first byte of every member (RFC 1952 section 2.3.1).
_MEMBER: Final = 0x1F


class Unpacker:
    """An unpacker for one body. `encoding` is its `Content-Encoding`; an unknown one raises ValueError."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ValueError(f"it is packed as {encoding[:50]!r}, which was not asked for")
        self._gzip = encoding != "deflate"
        self._inner: zlib._Decompress | None = None

    @property
    def complete(self) -> bool:
        """Return whether the end was seen; a body without any bytes has none."""
        return self._inner is None or self._inner.eof

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Unpack a piece; raise ValueError for one that cannot be unpacked."""
        # In slices, because all that follows a member of gzip is copied, and members may be many and tiny.
        for at in range(0, len(piece), _SLICE):
            yield from self._unpack(piece[at : at + _SLICE])

    def _unpack(self, piece: bytes) -> Iterator[bytes]:
        while piece and (inner := self._unpacker(piece)) is not None:
            part = b""
            try:
                # A part that is full may leave more of it behind, although nothing is left of the piece.
                while (piece or len(part) == _PART) and not inner.eof:
                    if part := inner.decompress(piece, _PART):
                        yield part
                    piece = inner.unconsumed_tail
            except zlib.error:
                raise ValueError("it cannot be unpacked") from None
            piece = inner.unused_data

    def _unpacker(self, piece: bytes) -> zlib._Decompress | None:
        """Return the decompressor for the next bytes; None after the end.

        A further member of gzip (RFC 1952 section 2.2) gets a new one.
        """
        if self._inner is None or (self._inner.eof and self._gzip and piece[0] == _MEMBER):
            self._inner = zlib.decompressobj(_GZIP if self._gzip else _deflated(piece))
        return None if self._inner.eof else self._inner


def _deflated(first: bytes) -> int:
    # RFC 9110 section 8.4.1.2: some send it without the wrapper that "deflate" means.
    return zlib.MAX_WBITS if first[0] & 0x0F == 8 else -zlib.MAX_WBITS
