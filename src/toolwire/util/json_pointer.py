"""JSON Pointers (RFC 6901)."""

from __future__ import annotations

from typing import Any, Final

#: The answer of `at_pointer` where there is nothing; None is a value.
MISSING: Final = object()
# No list has more items. Python refuses to read a number of thousands of digits.
_MAX_DIGITS: Final = 9


def escape_token(key: str) -> str:
    """Return a key as a token of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape_token(token: str) -> str:
    """Return the key that a token of a JSON Pointer writes."""
    # Section 4: `~1` is read before `~0`.
    return token.replace("~1", "/").replace("~0", "~") if "~" in token else token


def at_pointer(value: Any, pointer: str) -> Any:
    """Return the value at a pointer, or `MISSING`."""
    for token in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(unescape_token(token), MISSING)
        elif isinstance(value, list) and _is_index(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return MISSING
    return value


def _is_index(token: str) -> bool:
    return token.isdecimal() and len(token) <= _MAX_DIGITS
