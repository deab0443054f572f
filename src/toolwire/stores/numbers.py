"""The numbers that all stores take alike: times, limits, and values that are added to."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Final

from toolwire.lazy_patterns import lazy_pattern

#: The largest number that `add` takes or returns, with either sign. Redis counts scripts' numbers as floats.
MOST_SUM: Final = 2**53 - 1
_NUMBER: Final = lazy_pattern(rb"-?[0-9]+")


def check_seconds(seconds: float, what: str) -> None:
    """Raise `ValueError` for a time that is not a number of seconds."""
    given: object = seconds
    if isinstance(given, int | float) and not isinstance(given, bool):
        with suppress(OverflowError):
            if not math.isnan(given):
                return
    raise ValueError(f"{what} is a number of seconds that a float can hold, not {_format_value(given)}")


def check_ttl(ttl: float | None) -> None:
    """Raise `ValueError` for a time to live that is not a number."""
    if ttl is not None:
        check_seconds(ttl, "a time to live")


def check_limit(limit: int) -> int:
    """Return a limit that every store can count to; raise `ValueError` where it is no whole number."""
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"a limit is a whole number, not {_format_value(given)}")
    return min(max(given, 0), MOST_SUM)


def check_amount(amount: int) -> None:
    """Raise `ValueError` for an amount that cannot be added exactly."""
    given: object = amount
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"an amount is a whole number, not {_format_value(given)}")
    if abs(given) > MOST_SUM:
        raise ValueError(f"an amount is at most {MOST_SUM}, with either sign")


def _format_value(value: object) -> str:
    return f"{value!r:.40}" if isinstance(value, float | bool) else f"a {type(value).__name__}"


def make_value_error() -> ValueError:
    """Return the error for a value that cannot be added to."""
    return ValueError(f"the value is not a number, or the sum is beyond {MOST_SUM}")


def add_to(value: bytes | None, amount: int) -> int:
    """Return the sum of a value and an amount; raise `ValueError` where there is none."""
    if value is not None and _NUMBER.fullmatch(value) is None:
        raise make_value_error()
    number = 0 if value is None else int(value)
    if max(abs(number), abs(number + amount)) > MOST_SUM:
        raise make_value_error()
    return number + amount
