"""The end of a tool's time: what the caller hears, and that the tool cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.cases import cases

from toolwire import Depends, Limits, Policy, Server, testing


@pytest.mark.covers("R32")
async def test_a_tool_is_stopped_and_has_cleaned_up() -> None:
    started, events = asyncio.Event(), list[str]()

    async def connection() -> AsyncIterator[str]:
        try:
            yield "connection"
        finally:
            events.append("connection closed")

    server = Server("s")

    @server.tool(timeout=30)
    async def report(rows: int, database: str = Depends(connection)) -> str:
        try:
            started.set()
            await asyncio.Event().wait()
            return "never"
        finally:
            events.append("report ended")

    async with testing.no_leaks(server):
        stopped = await testing.time_out(server, "report", {"rows": 1}, when=started.wait)
    assert stopped == testing.TimedOut("report did not finish within 30 seconds", 30.0)
    assert events == ["report ended", "connection closed"]
    # Nothing of the helper stays with the server.
    assert server.kernel.middleware == []
    assert server.kernel._entry is None


@cases(
    ("server", "allowed"),
    [
        (Server("limits", limits=Limits(tool=7)), 7),
        (Server("policy", policy=Policy(timeout=3)), 3),
        (Server("none"), 300),
    ],
)
async def test_the_time_that_it_would_have_had_is_told(server: Server, allowed: float) -> None:
    @server.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    assert (await testing.time_out(server, "wait")).allowed == allowed


async def test_a_tool_that_finishes_by_itself_was_not_stopped() -> None:
    server = Server("s")

    @server.tool
    async def quick() -> str:
        return "done"

    with pytest.raises(AssertionError, match="quick finished by itself: done"):
        await testing.time_out(server, "quick")


@pytest.mark.covers("R32")
async def test_a_tool_that_does_not_stop_is_found() -> None:
    server, enough = Server("s", limits=Limits(drain=0.01)), asyncio.Event()

    @server.tool
    async def stubborn() -> str:
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_later(0.05, enough.set)
        return "at last"

    with pytest.raises(AssertionError, match=r"stubborn had to stop and continued for 0\.01 seconds"):
        await testing.time_out(server, "stubborn", patience=0.01)
