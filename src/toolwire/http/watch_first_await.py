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
            yield waits_for  # A loop sends nothing back.
            break
        except BaseException as error:
            try:
                waits_for = coroutine.throw(error)
            except StopIteration as end:
                return end.value
    return (yield from coroutine)
