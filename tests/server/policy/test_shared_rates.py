"""Rates and quotas that several servers count together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import Policy, Server
from toolwire.protocol.errors import CallRefused
from toolwire.server.policy import Rate
from toolwire.server.policy.rates import Counted, compile_rates
from toolwire.server.policy.shared_rates import SharedCounters
from toolwire.stores import MemoryKV, StoreFailed, Stores


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.5

    def __call__(self) -> float:
        return self.now


def shared(kind: Any, calls: str, **options: Any) -> list[Counted]:
    return compile_rates(kind, Rate(calls, shared=True, **options), "s")


async def echo() -> str:
    return "hi"


@pytest.mark.covers("R16")
async def test_servers_with_the_same_stores_count_together() -> None:
    stores = Stores.memory()
    policy = Policy(rate=Rate("3/day", shared=True), quota=Rate("100/day", shared=True))
    servers = [Server("s", tools=echo, policy=policy, stores=stores) for _ in range(2)]
    results = [await servers[number % 2].call_tool("echo") for number in range(5)]
    assert [result.is_error for result in results] == [False, False, False, True, True]
    assert (results[3].text or "").startswith("Too many calls: this server allows 3 calls a day for you. Try again in ")
    elsewhere = Server("s", tools=echo, policy=policy)
    assert not (await elsewhere.call_tool("echo")).is_error
    assert not (await Server("another", tools=echo, policy=policy, stores=stores).call_tool("echo")).is_error


async def test_callers_are_counted_apart_unless_said_otherwise() -> None:
    stores = Stores.memory()
    counters = SharedCounters(lambda: stores)
    for caller in ("ann", "bob"):
        await counters.take(shared("rate", "1/day"), caller, "echo")
        with pytest.raises(CallRefused):
            await counters.take(shared("rate", "1/day"), caller, "echo")
    everyone = shared("rate", "1/day", per="everyone")
    await counters.take(everyone, "ann", "echo")
    with pytest.raises(CallRefused, match="for all callers together"):
        await counters.take(everyone, "bob", "echo")


async def test_what_is_refused_by_one_counts_against_none() -> None:
    clock = Clock()
    stores = Stores.memory()
    counters = SharedCounters(lambda: stores, clock)
    both = [*shared("rate", "5/hour"), *shared("quota", "1/minute")]
    await counters.take(both, "ann", "echo")
    for _ in range(10):
        with pytest.raises(CallRefused, match="1 call a minute"):
            await counters.take(both, "ann", "echo")
    for _ in range(4):
        await counters.take(both[:1], "ann", "echo")
    with pytest.raises(CallRefused, match="5 calls an hour"):
        await counters.take(both[:1], "ann", "echo")


async def test_a_local_refusal_gives_back_what_was_counted_everywhere() -> None:
    stores = Stores.memory()
    shared_rate = Rate("2/day", shared=True)
    server = Server("s", tools=echo, policy=Policy(rate=["1/day", shared_rate]), stores=stores)
    assert [(await server.call_tool("echo")).is_error for _ in range(4)] == [False, True, True, True]
    another = Server("s", tools=echo, policy=Policy(rate=shared_rate), stores=stores)
    assert [(await another.call_tool("echo")).is_error for _ in range(2)] == [False, True]


async def test_a_quota_ends_with_its_window() -> None:
    clock = Clock()
    stores = Stores.memory()
    counters = SharedCounters(lambda: stores, clock)
    quota = shared("quota", "2/minute")
    for _ in range(2):
        await counters.take(quota, "ann", "echo")
    with pytest.raises(CallRefused) as refused:
        await counters.take(quota, "ann", "echo")
    clock.now += refused.value.retry_after or 0
    assert clock.now % 60 == 0
    await counters.take(quota, "ann", "echo")


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60), st.integers(1, 5))
async def test_who_waits_as_long_as_told_gets_through_and_the_rate_is_kept(pauses: list[float], amount: int) -> None:
    clock = Clock()
    stores = Stores.memory()
    counters = SharedCounters(lambda: stores, clock)
    rate = shared("rate", f"{amount}/10 seconds")
    passed: list[float] = []
    for pause in pauses:
        clock.now += pause
        try:
            await counters.take(rate, "ann", "echo")
        except CallRefused as refused:
            assert refused.retry_after is not None
            assert refused.retry_after <= 20
            # A moment more than told, for what floating point leaves out.
            clock.now += refused.retry_after + 1e-6
            await counters.take(rate, "ann", "echo")
        passed.append(clock.now)
    for moment in passed:
        window = [each for each in passed if each // 10 == moment // 10]
        assert len(window) <= amount


class BrokenKV(MemoryKV):
    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        raise StoreFailed("The store redis://secret.internal:6379/0 cannot be used: it is not reached")


async def test_calls_that_cannot_be_counted_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    memory = Stores.memory()
    stores = Stores(BrokenKV(), memory.log, memory.bus)
    server = Server("s", tools=echo, policy=Policy(rate=Rate("9/day", shared=True)), stores=stores)
    result = await server.call_tool("echo")
    assert result.is_error
    assert result.text == "The calls of echo cannot be counted now. Try again in 5 seconds."
    assert "is not reached" in caplog.text


async def test_calls_of_the_last_window_count_for_the_part_that_is_still_in_the_time() -> None:
    clock = Clock()
    stores = Stores.memory()
    counters = SharedCounters(lambda: stores, clock)
    rate = shared("rate", "4/10 seconds")
    clock.now = 1_000_009.0
    for _ in range(4):
        await counters.take(rate, "ann", "echo")
    with pytest.raises(CallRefused) as refused:
        await counters.take(rate, "ann", "echo")
    assert refused.value.retry_after == pytest.approx(1.0 + 10 * (1 - 3 / 4))
    clock.now = 1_000_010.5
    with pytest.raises(CallRefused) as refused:
        await counters.take(rate, "ann", "echo")
    assert refused.value.retry_after == pytest.approx(2.0)
    clock.now += 2.01
    await counters.take(rate, "ann", "echo")
    with pytest.raises(CallRefused):
        await counters.take(rate, "ann", "echo")
