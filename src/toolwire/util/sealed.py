"""`Sealed`: values of one type as texts that peers bring back, or that a store keeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from toolwire.protocol.sealing import BadSeal, Sealer

T = TypeVar("T")


class Sealed(Generic[T]):
    """Seals and opens values of one type.

    Each call names the context: a text that was sealed in another one does not open. Where values have a field
    `expires` (seconds of `clock`), they do not open after that time.
    """

    __slots__ = ("_clock", "_decode", "_encode", "_expires", "_max_length", "_sealer")

    def __init__(
        self,
        sealer: Sealer,
        kind: type[T],
        *,
        encode: Callable[[T], bytes] = msgspec.msgpack.encode,
        decode: Callable[[bytes], T] | None = None,
        max_length: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`decode` raises ValueError for bytes that are no such value. Texts over `max_length` are not opened."""
        self._sealer = sealer
        self._encode = encode
        self._decode: Callable[[bytes], T] = msgspec.msgpack.Decoder(kind).decode if decode is None else decode
        self._max_length = max_length
        self._clock = clock
        self._expires = "expires" in getattr(kind, "__struct_fields__", ())

    def seal(self, value: T, context: bytes) -> str:
        """Return the text that opens as this value, in this context only."""
        return self._sealer.seal(self._encode(value), context)

    def open(self, text: str | bytes | None, context: bytes) -> T | None:
        """Return the value of a text; None where it was not sealed here, is damaged or has expired."""
        if text is None or (self._max_length is not None and len(text) > self._max_length):
            return None
        try:
            sealed = text.decode("ascii") if isinstance(text, bytes) else text
            value = self._decode(self._sealer.open(sealed, context))
        except (BadSeal, msgspec.DecodeError, ValueError):
            return None
        if self._expires:
            timed: Any = value
            if timed.expires <= self._clock():
                return None
        return value
