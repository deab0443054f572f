"""Rates that are used up, by a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolwire import Policy, Server, ToolError, testing
from toolwire.auth import Principal
from toolwire.server.policy import Rate


def make_server(**policy: Any) -> Server:
    server = Server("s", policy=Policy(**policy))

    @server.tool
    def search(query: str) -> str:
        if query == "bad":
            raise ToolError("that is no query")
        return query

    @server.resource("note://today")
    def today() -> str:
        return "fine"

    return server


@pytest.mark.covers("R32")
@pytest.mark.parametrize("returns", [None, str])
async def test_a_rate_is_used_up_and_comes_back(returns: Any) -> None:
    server = make_server(rate="3/minute", quota="5/day")
    with testing.clock(server) as clock:
        async with testing.connect(server, principal=Principal("ann")) as (client, _):

            def search() -> Any:
                return client.call_tool("search", {"query": "x"}, returns=returns)

            refusal = await testing.exhaust(search)
            assert (
                refusal.text == "Too many calls: this server allows 3 calls a minute for you. Try again in 60 seconds."
            )
            assert refusal == testing.Refusal(3, refusal.text, 60.0)
            await clock.advance(refusal.retry_after)
            refusal = await testing.exhaust(search)
            assert (refusal.calls, refusal.retry_after) == (2, 24 * 3600 - 60)
            # Another caller has a count of their own.
        async with testing.connect(server, principal=Principal("bob")) as (client, _):
            assert (await testing.exhaust(search)).calls == 3
    # Neither what was counted nor the clock outlives the block.
    with testing.clock(server):
        async with testing.connect(server, principal=Principal("ann")) as (client, _):
            assert (await testing.exhaust(search)).calls == 3


async def test_a_rate_that_all_processes_count_goes_by_the_clock_too() -> None:
    server = make_server(rate=Rate("3/minute", shared=True), quota=Rate("4/day", shared=True))
    for _ in range(2):
        with testing.clock(server) as clock:
            async with testing.connect(server) as (client, _wire):
                assert (await testing.exhaust(lambda: client.call_tool("search", {"query": "x"}))).calls == 3
                await clock.advance(120)
                refusal = await testing.exhaust(lambda: client.call_tool("search", {"query": "x"}))
                assert (refusal.calls, refusal.retry_after) == (1, 24 * 3600 - 120)


async def test_resources_are_used_up_too() -> None:
    server = make_server(rate="2/minute")
    with testing.clock(server):
        async with testing.connect(server) as (client, _):
            assert (await testing.exhaust(lambda: client.read_resource("note://today"))).calls == 2


@pytest.mark.covers("R32")
async def test_a_server_that_never_refuses_is_found() -> None:
    async with testing.connect(make_server()) as (client, _):
        with pytest.raises(AssertionError, match="10 calls were made, and none was refused"):
            await testing.exhaust(lambda: client.call_tool("search", {"query": "x"}), most=10)


async def test_a_failure_of_another_kind_is_none_of_it() -> None:
    async with testing.connect(make_server(rate="9/minute")) as (client, _):
        with pytest.raises(AssertionError, match="call 1 failed without saying when to try again: that is no query"):
            await testing.exhaust(lambda: client.call_tool("search", {"query": "bad"}))
        with pytest.raises(AssertionError, match=r"call 1 failed .*Unknown tool"):
            await testing.exhaust(lambda: client.call_tool("gone"))


async def test_timers_of_the_loop_go_by_the_same_clock() -> None:
    with testing.clock(Server("s")) as clock:
        before = clock()
        waiting = asyncio.ensure_future(asyncio.sleep(3600, "over"))
        await clock.advance(3600)
        assert await waiting == "over"
        assert clock() - before == 3600


def test_a_loop_whose_time_is_its_own_is_told_so() -> None:
    uvloop = pytest.importorskip("uvloop")
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(RuntimeError, match="use asyncio's own in this test"),
    ):
        runner.run(testing.elapse(1))
