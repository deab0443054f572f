"""The numbers that all stores take alike: times to live, and values that are added to."""

from __future__ import annotations

import math
import re
from typing import Final

#: The largest number that `add` takes or returns, with either sign. Redis counts scripts' numbers as floats.
MOST_SUM: Final = 2**53 - 1
_NUMBER: Final = re.compile(rb"-?[0-9]+")


def check_ttl(ttl: float | None) -> None:
    """Raise `ValueError` for a time to live that is not a number."""
    if ttl is not None and math.isnan(ttl):
        raise ValueError("a time to live is a number of seconds, not NaN")


def check_amount(amount: int) -> None:
    """Raise `ValueError` for an amount that cannot be added exactly."""
    if abs(amount) > MOST_SUM:
        raise ValueError(f"{amount} is beyond {MOST_SUM}")


def make_value_error() -> ValueError:
    """Return the error for a value that cannot be added to."""
    return ValueError(f"the value is not a number, or the sum is beyond {MOST_SUM}")


def add_to(value: bytes | None, amount: int) -> int:
    """Return the sum of a value and an amount; raise `ValueError` where there is none."""
    check_amount(amount)
    if value is not None and _NUMBER.fullmatch(value) is None:
        raise make_value_error()
    number = 0 if value is None else int(value)
    if max(abs(number), abs(number + amount)) > MOST_SUM:
        raise make_value_error()
    return number + amount
