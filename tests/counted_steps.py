"""Counts the lines of Python that a call runs, so that a test can bound work without looking at a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps_of(call: Callable[[], Any], most: int = 10_000_000) -> int:
    """Run a call and count its lines, those of every library in Python included; stop it when it takes too many.

    Each turn of a loop or of a comprehension counts, and so does each call of a function.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise AssertionError(f"more than {most} steps")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
