"""The rate limit of one API, over all callers of this process, with short waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from threading import Lock
from time import monotonic
from typing import Final

from toolwire.protocol.errors import CallRefused
from toolwire.server.call import Call
from toolwire.server.policy.rates import Counters, Rate, compile_rates

#: How many seconds a request waits for its turn at most, and how many requests may wait.
MAX_SECONDS: Final = 10.0
MAX_WAITING: Final = 100


class ApiRate:
    """Limits all requests to an API: calls, further pages, repeated requests, polls."""

    def __init__(
        self,
        given: str | Iterable[str],
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`given`: `"60/minute"`, or several of them. Raise `ServerError` for an invalid rate."""
        rates = [given] if isinstance(given, str) else list(given)
        self._counted = compile_rates("rate", [Rate(each, per="everyone") for each in rates], "api")
        # Imported here because it needs an extra, which was checked just now.
        from toolwire.server.policy.rate_counters import CounterMemory

        self._counters = Counters(CounterMemory(clock=clock))
        self._clock = clock
        self._sleep = sleep
        # An API may be called on several event loops, each in a thread.
        self._lock = Lock()
        self._waiting = 0

    async def wait(self, call: Call) -> None:
        """Wait for the turn of a request. Raise `CallRefused` if it is too far."""
        refusal = self._count()
        if refusal is None:
            return
        end = self._clock() + min(MAX_SECONDS, seconds_left(call))
        if self._waiting >= MAX_WAITING:
            raise refusal
        self._waiting += 1
        try:
            while refusal is not None:
                pause = refusal.retry_after or 0.0
                if self._clock() + pause >= end:
                    raise refusal
                await self._sleep(pause)
                refusal = self._count()
        finally:
            self._waiting -= 1

    def _count(self) -> CallRefused | None:
        """Count a request; return the refusal where there are too many."""
        try:
            with self._lock:
                self._counters.take(self._counted, "", "the API")
        except CallRefused as refusal:
            return refusal
        return None


def seconds_left(call: Call) -> float:
    """Return how many seconds the handler of a call has left."""
    return inf if call.deadline is None else call.deadline.time_left
