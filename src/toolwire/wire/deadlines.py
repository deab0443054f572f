"""Timeouts of which nearly all are called off: those of one length share one timer of the loop.

A timer of the loop is dear to make and to take back, and every call that waits needs one or two. Those that are equally
long end in the order in which they began, so that only the first of them has to be watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Final
from weakref import WeakKeyDictionary, proxy

Callback = Callable[[], object]
#: Different lengths that are shared on a loop.
SHARED: Final = 64
#: From how many seconds on a second or two more do not matter: whoever waits that long is looked at now and then,
#: and whoever is done before the first look never asked for the time.
LONG: Final = 20.0
LOOK_EVERY: Final = 1.0


class Timeouts:
    """Timeouts of one length on one loop."""

    __slots__ = ("_due", "_loop", "_seconds", "_watching")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        # Neither the loop nor a timer, which knows its loop: they are found by the loop, and would keep it for ever.
        self._loop: asyncio.AbstractEventLoop = proxy(loop)
        self._seconds = seconds
        self._due: dict[Callback, float] = {}
        self._watching = False

    def start(self, callback: Callback) -> None:
        """Call back when the time is over, once; a callback stands for one timeout at a time."""
        self._due.pop(callback, None)  # Or it would keep its place in the order.
        self._due[callback] = self._loop.time() + self._seconds
        if not self._watching:
            self._watching = True
            self._loop.call_later(self._seconds, self._ring)

    def stop(self, callback: Callback) -> None:
        """Call it off. The timer is left alone: it will find out."""
        self._due.pop(callback, None)

    def _ring(self) -> None:
        self._watching = False
        now = self._loop.time()
        try:
            for callback in [each for each, _ in takewhile(lambda item: item[1] <= now, self._due.items())]:
                if self._due.pop(callback, None) is not None:  # Or one of those before has called it off.
                    callback()
        finally:
            first = next(iter(self._due.values()), None)
            if first is not None and not self._watching:
                self._watching = True
                self._loop.call_at(first, self._ring)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, Timeouts]] = WeakKeyDictionary()


def timeouts(loop: asyncio.AbstractEventLoop, seconds: float) -> Timeouts:
    """Those of a length. Few lengths are shared, as settings are; what is beyond gets a timer of its own."""
    lengths = _of_loops.get(loop)
    if lengths is None:
        lengths = _of_loops[loop] = {}
    found = lengths.get(seconds)
    if found is None:
        found = Timeouts(loop, seconds)
        if len(lengths) < SHARED:
            lengths[seconds] = found
    return found
