"""Many calls: `load` counts how they end, `exhaust` calls until it is refused."""

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
    """The outcome of many calls.

    Assert on the counts; the times are for people and differ from run to run.
    """

    calls: int
    errors: dict[str, int]
    """The number of failed calls by kind: `refused`, `isError`, `ProtocolError -32602`, or the name of an error."""
    at_once: int
    """The largest number of calls under way at the same time."""
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

    The function gets the number of the call, from 0. An exception that is not an error of a call, such as a failed
    assertion, ends all of them.
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
    """Return the time within which this share of the calls ended."""
    return round(times[math.ceil(len(times) * share) - 1], 3)


class Refusal(Struct, frozen=True):
    """The first call that the server refused."""

    calls: int
    """The number of calls before it."""
    text: str
    """The text that the caller got."""
    retry_after: float
    """The seconds after which the caller may try again."""


async def exhaust(call: Callable[[], Awaitable[Any]], *, most: int = 1000) -> Refusal:
    """Make a call again and again until it is refused for coming too often.

    `await exhaust(lambda: client.call_tool("search", {"query": "x"}))`; reading resources and getting prompts count
    as well. Fail if nothing is refused within `most` calls, or if a call fails without a time to try again.
    """
    __tracebackhide__ = True
    for made in range(most):
        outcome = await outcome_of(call())
        if outcome.retry_after is not None:
            return Refusal(made, outcome.text, outcome.retry_after)
        if outcome.kind is not None:
            raise AssertionError(f"call {made + 1} failed without saying when to try again: {outcome.text}")
    raise AssertionError(f"{most} calls were made, and none was refused")
