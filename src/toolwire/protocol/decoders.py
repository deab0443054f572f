"""Decoders by their types, compiled by one thread at a time."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar, cast, overload

import msgspec

T = TypeVar("T")

#: Held while msgspec compiles a type. It keeps the types inside for all that have them, also while they are half
#: compiled: a second thread that decoded by one of them then would crash.
_COMPILING: Final = threading.RLock()


class _DecoderOf(Protocol):
    @overload
    def __call__(self, type_: type[T], /) -> msgspec.json.Decoder[T]: ...

    @overload
    def __call__(self, type_: Any, /) -> msgspec.json.Decoder[Any]: ...


def _compile(type_: Any) -> msgspec.json.Decoder[Any]:
    with _COMPILING:
        return msgspec.json.Decoder(type_)


#: The decoder of a type, which several threads may use.
decoder_of: Final = cast("_DecoderOf", lru_cache(maxsize=1024)(_compile))


@overload
def convert_to(value: Any, type_: type[T]) -> T: ...


@overload
def convert_to(value: Any, type_: Any) -> Any: ...


def convert_to(value: Any, type_: Any) -> Any:
    """Return a value of JSON types as a value of a type; raise `msgspec.ValidationError`."""
    decoder_of(type_)  # Otherwise msgspec would compile the type below, in any thread.
    return msgspec.convert(value, type_)
