"""Decoders by their types, compiled by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

#: Held while msgspec compiles a type. It keeps the types inside for all that have them, also while they are half
#: compiled: a second thread that decoded by one of them then would crash.
_COMPILING: Final = threading.RLock()


def _compile(type_: Any) -> msgspec.json.Decoder[Any]:
    with _COMPILING:
        return msgspec.json.Decoder(type_)


#: The decoder of a type, which several threads may use.
decoder_of: Final[Callable[[Any], msgspec.json.Decoder[Any]]] = lru_cache(maxsize=1024)(_compile)
