"""JSON Pointers (RFC 6901)."""

from __future__ import annotations

from typing import Any, Final

#: The answer of `at_pointer` where there is nothing; None is a value.
MISSING: Final = object()


def escaped(key: str) -> str:
    """Return a key as a token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def unescaped(token: str) -> str:
    """Return the key that a token of a JSON Pointer writes."""
    return token.replace("~1", "/").replace("~0", "~") if "~" in token else token


def at_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a pointer, or `MISSING`."""
    for token in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(unescaped(token), MISSING)
        elif isinstance(value, list) and token.isdecimal() and len(token) < 10 and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value
