"""Checks of numbers that a person sets: an error names the field, what is allowed, and what was given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeGuard

from toolwire.base_errors import ServerError

#: More of anything is a mistake: seconds are 31 years then, and timers of some platforms fail.
MOST: Final = 1_000_000_000
#: The most bytes: 1 TiB.
MOST_BYTES: Final = 1 << 40
_SHOWN: Final = 60


class InvalidNumber(ServerError, ValueError):
    """A limit or a time that makes no sense. It is a `ValueError`, too, so that msgspec adds the place in a file."""


class Allowed(NamedTuple):
    """The values that a number may have.

    `is_above`: it must be above `least`, not at least that. `may_be_infinite`: infinity stands for no limit.
    """

    least: float = 0
    most: float = MOST
    is_whole: bool = False
    is_above: bool = False
    may_be_infinite: bool = False


#: The usual kinds of numbers.
COUNT: Final = Allowed(1, is_whole=True)
COUNT_OR_NONE: Final = Allowed(0, is_whole=True)
BYTES: Final = Allowed(1, MOST_BYTES, is_whole=True)
BYTES_OR_NONE: Final = Allowed(0, MOST_BYTES, is_whole=True)
SECONDS: Final = Allowed(0, is_above=True)
SECONDS_OR_NONE: Final = Allowed(0)
TIMEOUT: Final = Allowed(0, is_above=True, may_be_infinite=True)
PING_INTERVAL: Final = Allowed(1)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number. True and False are none, although Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_fields(owner: str, allowed: Mapping[str, Allowed], values: object, *, may_be_none: bool = False) -> None:
    """Check the fields of an object, such as the limits of a server; raise `InvalidNumber` for the first bad one."""
    for name, each in allowed.items():
        value = getattr(values, name)
        if value is not None or not may_be_none:
            check_number(owner, name, value, each)


def check_number(owner: str, name: str, value: Any, allowed: Allowed) -> None:
    """Raise `InvalidNumber` for a value that is not a number, not a finite one, too small or too large."""
    least, most, is_whole, is_above, may_be_infinite = allowed
    if not is_number(value):
        raise InvalidNumber(f"{owner}: {name} must be a number (got {_format_value(value)})")
    if is_whole and not isinstance(value, int):
        raise InvalidNumber(f"{owner}: {name} must be a whole number (got {_format_value(value)})")
    if is_above and not value > least:
        raise InvalidNumber(f"{owner}: {name} must be above {least:,} (got {_format_value(value)})")
    if not value >= least:  # Neither is what is not a number at all.
        raise InvalidNumber(f"{owner}: {name} must be at least {least:,} (got {_format_value(value)})")
    if value > most and not (may_be_infinite and value == math.inf):
        raise InvalidNumber(f"{owner}: {name} must be at most {most:,} (got {_format_value(value)})")


def _format_value(value: Any) -> str:
    # Python refuses to write a whole number of very many digits.
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
