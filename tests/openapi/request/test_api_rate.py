"""The rate of requests to an API: shared by all callers, with a short wait, or a refusal that says when to retry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.openapi.stub_api import Reply, json_reply, stub_api

from toolwire import Client, Server
from toolwire.errors import ServerError
from toolwire.openapi import ALL, openapi
from toolwire.openapi.request import api_rate
from toolwire.openapi.request.api_rate import ApiRate
from toolwire.protocol.errors import CallRefused


class Clock:
    """Time that passes by waiting alone."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class NoDeadline:
    """A call that may take any time."""

    deadline = None


class Deadline:
    """A call with a few seconds left."""

    def __init__(self, seconds: float) -> None:
        self.deadline = self
        self.time_left = seconds


def rate(given: Any, clock: Clock) -> ApiRate:
    return ApiRate(given, clock, clock.sleep)


async def test_requests_wait_for_their_turn() -> None:
    clock = Clock()
    limited = rate("2/second", clock)
    for _ in range(5):
        await limited.wait(NoDeadline())  # type: ignore[arg-type]
    assert len(clock.waited) == 2
    assert clock.now >= 102


@pytest.mark.parametrize(("call", "given"), [(NoDeadline(), "1/minute"), (Deadline(3), "1/5 seconds")])
async def test_a_request_that_would_wait_too_long_is_refused(call: Any, given: str) -> None:
    clock = Clock()
    limited = rate(given, clock)
    await limited.wait(call)
    with pytest.raises(CallRefused) as caught:
        await limited.wait(call)
    assert caught.value.retry_after is not None and caught.value.retry_after > 3
    assert str(caught.value).startswith("Too many calls: the API allows 1 call ")
    assert clock.waited == []


async def test_the_number_of_waiting_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_rate, "MAX_WAITING", 2)
    go_ahead = asyncio.Event()
    clock = Clock()

    async def sleep(seconds: float) -> None:
        await go_ahead.wait()
        clock.now += seconds

    limited = ApiRate("1/second", clock, sleep)
    await limited.wait(NoDeadline())  # type: ignore[arg-type]
    waiting = [asyncio.ensure_future(limited.wait(NoDeadline())) for _ in range(2)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    with pytest.raises(CallRefused):
        await limited.wait(NoDeadline())  # type: ignore[arg-type]
    go_ahead.set()
    await asyncio.gather(*waiting)


def test_a_wrong_rate_is_refused_when_the_api_is_read() -> None:
    with pytest.raises(ServerError, match="'often' is not a rate"):
        ApiRate("often")


DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "paths": {
        f"/{name}": {"get": {"operationId": name, "responses": {"200": {"description": ""}}}} for name in ("one", "two")
    },
}


@pytest.mark.parametrize("shape", ["tools", "bridge"])
async def test_all_callers_and_operations_share_the_rate_of_an_api(shape: Any) -> None:
    async with stub_api() as stub:
        api = openapi(DESCRIPTION, keep=ALL, base_url=stub.url, rate=["2/hour", "100/day"], shape=shape, cache=False)
        server = Server("s").include(api)
        async with Client(server) as first, Client(server) as second:
            assert not (await first.call_tool("one", {})).is_error
            assert not (await second.call_tool("two", {})).is_error
            refused = await first.call_tool("two", {})
        assert refused.is_error
        assert "the API allows 2 calls an hour for all callers together. Try again in" in refused.text
        assert 0 < refused.meta["toolwire/retryAfterMs"] <= 3_600_000
        assert len(stub.arrived) == 2


async def test_repeated_requests_count_as_well() -> None:
    async with stub_api() as stub:
        stub.answers(
            lambda arrived: Reply(503, headers={"retry-after": "0"}) if len(stub.arrived) < 2 else json_reply({})
        )
        server = Server("s").include(openapi(DESCRIPTION, keep=ALL, base_url=stub.url, rate="2/hour"))
        async with Client(server) as client:
            assert not (await client.call_tool("one", {})).is_error
            assert (await client.call_tool("one", {})).is_error
        assert len(stub.arrived) == 2
