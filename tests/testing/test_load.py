"""Many calls at once, and the counts of what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from toolwire import Policy, Server, ToolError, testing
from toolwire.protocol.errors import Unreachable


def make_server() -> Server:
    server = Server("s")

    @server.tool
    async def echo(number: int) -> int:
        if number % 10 == 7:
            raise ToolError("not seven")
        if number % 10 == 8:
            raise RuntimeError("eight")
        return number

    @server.tool(policy=Policy(rate="5/minute"))
    async def limited() -> str:
        return "yes"

    return server


@pytest.mark.covers("R32")
async def test_counts_can_be_asserted_and_times_are_told() -> None:
    numbers: list[int] = []
    async with testing.connect(make_server()) as (client, _):

        def call(at: int) -> object:
            numbers.append(at)
            return client.call_tool("echo", {"number": at if at != 3 else "x"})

        report = await testing.load(call, calls=100, at_once=8)  # type: ignore[arg-type]
    assert sorted(numbers) == list(range(100))
    assert report.errors == {"isError": 20, "ProtocolError -32602": 1} or report.errors == {"isError": 21}
    assert (report.calls, report.succeeded, report.at_once) == (100, 79, 8)
    assert 0 < report.p50 <= report.p95 <= report.max
    assert report.per_second > 0
    assert str(report).startswith("100 calls, 8 at once: 21 isError; p50 ")


async def test_refusals_and_other_errors_have_their_kinds() -> None:
    async with testing.connect(make_server()) as (client, _):
        report = await testing.load(lambda at: client.call_tool("limited"), calls=9, at_once=3)
        assert report.errors == {"refused": 4}
        report = await testing.load(lambda at: client.call_tool("gone"), calls=2)
        assert report.errors == {"ProtocolError -32602": 2}

    async def lost(at: int) -> None:
        raise Unreachable("gone")

    assert (await testing.load(lost, calls=3)).errors == {"Unreachable": 3}


async def test_a_server_that_lets_too_many_in_is_found() -> None:
    """The report shows what a limit of slots did, or that there was none."""
    running, most, free = 0, 0, asyncio.Event()

    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 2:
            free.set()
        await free.wait()
        running -= 1
        return "done"

    guarded = Server("s", tools=work, policy=Policy(concurrency=2))
    async with testing.connect(guarded) as (client, _):
        report = await testing.load(lambda at: client.call_tool("work"), calls=12, at_once=6)
    assert (report.succeeded, report.at_once, most) == (12, 6, 2)


async def test_a_failed_assertion_ends_the_whole() -> None:
    begun: Iterator[int] = iter(range(1000))

    async def call(at: int) -> None:
        next(begun)
        await asyncio.sleep(0)
        assert at != 5, "five"

    with pytest.raises(AssertionError, match="five"):
        await testing.load(call, calls=1000, at_once=4)
    assert next(begun) < 20
    with pytest.raises(ValueError, match="at least 1"):
        await testing.load(call, calls=0)
