"""Noticing the first wait of a coroutine, so that only a coroutine that waits is timed, watched and counted."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


@types.coroutine
def watched(coroutine: Coroutine[Any, Any, Any], when_it_waits: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run a coroutine in the task that awaits this, and call back once when it waits for the first time."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value
    when_it_waits()
    while True:
        try:
            value = yield waits_for
        except BaseException as error:
            step: Callable[[Any], Any] = coroutine.throw
            value = error
        else:
            step = coroutine.send
        try:
            waits_for = step(value)
        except StopIteration as end:
            return end.value
