"""Numbers that JSON cannot carry: NaN and infinity, which an encoder would write as null."""

from __future__ import annotations

import math
from typing import Any

import msgspec


def check_numbers(name: str, value: Any) -> None:
    """Raise `ValueError` for NaN and infinity in a value, which JSON lacks."""

    def plain(other: Any) -> Any:
        dump = getattr(other, "model_dump", None)  # A model of pydantic. The encoder judges other objects.
        return None if dump is None else dump()

    waiting = [msgspec.to_builtins(value, str_keys=True, enc_hook=plain)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"JSON has no number {each}, which is in the {name}")
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
