"""Many calls, several at a time, and what became of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from msgspec import Struct

from toolwire.testing.outcomes import outcome_of


class Load(Struct, frozen=True, kw_only=True):
    """What became of the calls. The counts are to be asserted; the times are for people, and never twice the same."""

    calls: int
    errors: dict[str, int]
    """How many failed, by kind: `refused`, `isError`, `ProtocolError -32602`, or the name of the exception."""
    at_once: int
    """How many were under way at the same time, at most."""
    seconds: float
    """The time for all of them."""
    p50: float
    """Milliseconds that half of the calls took at most."""
    p95: float
    max: float

    @property
    def succeeded(self) -> int:
        return self.calls - sum(self.errors.values())

    @property
    def per_second(self) -> float:
        return self.calls / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {kind}" for kind, count in sorted(self.errors.items())) or "no errors"
        return (
            f"{self.calls} calls, {self.at_once} at once: {failed}; p50 {self.p50:.2f} ms, p95 {self.p95:.2f} ms, "
            f"max {self.max:.2f} ms, {self.per_second:.0f} a second"
        )


async def load(call: Callable[[int], Awaitable[Any]], *, calls: int = 200, at_once: int = 20) -> Load:
    """Make calls, several at a time: `await load(lambda at: client.call_tool("search", {"query": str(at)}))`.

    The function is given the number of the call, from 0. What it raises that is no error of a call, a failed assertion
    say, ends the whole.
    """
    __tracebackhide__ = True
    if calls < 1 or at_once < 1:
        raise ValueError("calls= and at_once= are at least 1")
    run = _Run(call, calls)
    started = time.perf_counter()
    workers = [asyncio.ensure_future(run.work()) for _ in range(min(at_once, calls))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    seconds = time.perf_counter() - started
    times = sorted(run.times)
    return Load(
        calls=calls,
        errors=dict(run.errors),
        at_once=run.most,
        seconds=round(seconds, 6),
        p50=_share(times, 0.5),
        p95=_share(times, 0.95),
        max=_share(times, 1.0),
    )


class _Run:
    def __init__(self, call: Callable[[int], Awaitable[Any]], calls: int) -> None:
        self._call = call
        self._calls = calls
        self._next = count()
        self._running = 0
        self.most = 0
        self.times: list[float] = []
        self.errors: Counter[str] = Counter()

    async def work(self) -> None:
        while (at := next(self._next)) < self._calls:
            self._running += 1
            self.most = max(self.most, self._running)
            started = time.perf_counter()
            kind = (await outcome_of(self._call(at))).kind
            self.times.append((time.perf_counter() - started) * 1000)
            self._running -= 1
            if kind is not None:
                self.errors[kind] += 1


def _share(times: list[float], share: float) -> float:
    """The time that this share of the calls took at most."""
    return round(times[math.ceil(len(times) * share) - 1], 3)
