"""Finding out whether a coroutine waits at all, so that only those that do are timed, watched or given a task."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any


@types.coroutine
def _driven(coroutine: Coroutine[Any, Any, Any], when_it_waits: Callable[[], None]) -> Generator[Any, Any, Any]:
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    first = True
    while True:
        try:
            waits_for = step(value)
        except StopIteration as end:
            return end.value
        if first:
            first = False
            when_it_waits()
        try:
            value = yield waits_for
            step = coroutine.send
        except BaseException as error:
            value, step = error, coroutine.throw


def watched(coroutine: Coroutine[Any, Any, Any], when_it_waits: Callable[[], None]) -> Awaitable[Any]:
    """Run a coroutine in the task that awaits this; the callback comes once, when it waits for the first time."""
    return _driven(coroutine, when_it_waits)
