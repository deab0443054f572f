"""The meaning of a plain scalar in YAML 1.2: `yes`, `12:30` and `2026-09-13` are strings, `0o7` is 7.

PyYAML reads the syntax for all YAML of this library. Its own table of meanings is that of YAML 1.1, so it is not used.
"""

from __future__ import annotations

import re
from typing import Any, Final

# YAML 1.2.2, 10.3.2: the tag resolution of the core schema.
NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o([0-7]+)")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
# Most values are words. One look at the first character tells that they are neither numbers nor constants.
_MAYBE_SPECIAL: Final = frozenset("0123456789+-.~ntfNTF")
# Python refuses to read a number of thousands of digits; a limit of its own gives the same answer earlier.
_MAX_DIGITS: Final = 64


def core_value(text: str) -> Any:
    """Return the value of a plain scalar; a ValueError says that JSON does not have it."""
    if text == "":
        return None
    if text[0] not in _MAYBE_SPECIAL:
        return text
    if text in NULL:
        return None
    if (boolean := _BOOLEAN.get(text)) is not None:
        return boolean
    if _INTEGER.fullmatch(text):
        return whole_number(text, 10)
    if octal := _OCTAL.fullmatch(text):
        return whole_number(octal[1], 8)
    if hexadecimal := _HEXADECIMAL.fullmatch(text):
        return whole_number(hexadecimal[1], 16)
    if _FLOAT.fullmatch(text):
        return finite(float(text))
    if NO_NUMBER.fullmatch(text):
        raise ValueError("is not a number that JSON has")
    return text


def whole_number(digits: str, base: int) -> int:
    """Return the number that the digits write; raise ValueError for more digits than anybody needs."""
    if len(digits) > _MAX_DIGITS:
        raise ValueError("is larger than the numbers that every reader keeps exactly")
    return int(digits, base)


def finite(value: float) -> float:
    """Return the number; raise ValueError for infinity."""
    if value in (float("inf"), float("-inf")):
        raise ValueError("is larger than the numbers that every reader keeps")
    return value
