"""The lifespan of a server: entered once, left once, whatever happens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.wireclient import MODERN, connect

from toolwire import Context, Server
from toolwire.client import sync
from toolwire.server.lifespan import Life
from toolwire.transports import memory_pair


async def ping_tool() -> str:
    return "pong"


def legacy_text(identifier: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})


HELLO = legacy_text(
    0,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={"elicitation": {}},
    clientInfo={"name": "x", "version": "1"},
)


@pytest.mark.covers("S9")
async def test_the_lifespan_is_entered_once_for_all_connections() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"enter {server.name}")
        yield "value"
        events.append("leave")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with connect(server, MODERN) as one, connect(server, "2025-06-18") as other:
        assert (await one.call("look"))["content"][0]["text"] == "value"
        assert (await other.call("look"))["content"][0]["text"] == "value"
        assert events == ["enter s"]
    assert events == ["enter s", "leave"]


async def test_the_lifespan_is_shared_by_loops_and_left_when_the_last_of_them_is_done() -> None:
    log: list[str] = []
    entered, release = threading.Event(), threading.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("up")
        yield "shared"
        log.append("down")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    def elsewhere() -> str:
        with sync.Client(server) as client:
            entered.set()
            release.wait(10)
            return client.call_tool("look").text

    async with connect(server, MODERN):
        there = asyncio.create_task(asyncio.to_thread(elsewhere))
        await asyncio.to_thread(entered.wait, 10)
    assert log == ["up"]
    release.set()
    assert await there == "shared"
    assert log == ["up", "down"]


def test_the_lifespan_outlives_the_blocking_client_that_came_first() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("up")
        threads.append(threading.current_thread())
        beside = asyncio.create_task(asyncio.Event().wait())
        yield "shared"
        log.append(f"down, {beside.done()}")
        beside.cancel()

    threads: list[threading.Thread] = []
    server = Server("s", lifespan=lifespan)

    @server.tool
    def look(ctx: Context) -> str:
        return f"{ctx.lifespan} {log}"

    first, second = sync.Client(server).connect(), sync.Client(server).connect()
    first.close()
    assert second.call_tool("look").text == "shared ['up']"
    second.close()
    assert log == ["up", "down, False"]
    threads[0].join(10)
    assert not threads[0].is_alive()


async def test_the_lifespan_moves_to_another_loop_when_its_own_ends() -> None:
    log: list[str] = []
    names: dict[asyncio.AbstractEventLoop, str] = {}
    taken, busy, ended = threading.Event(), threading.Event(), threading.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        name = names[asyncio.get_running_loop()]
        log.append(f"{name} up")
        try:
            yield name
        finally:
            log.append(f"{name} down")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    @server.tool
    def work(ctx: Context) -> str:
        busy.set()
        ended.wait(10)
        return str(ctx.lifespan)

    def first() -> None:
        async def main() -> None:
            names[asyncio.get_running_loop()] = "first"
            async with connect(server, MODERN) as client:
                await client.call("look")
                taken.set()
                await asyncio.to_thread(busy.wait, 10)

        asyncio.run(main())
        ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    await asyncio.to_thread(taken.wait, 10)
    names[asyncio.get_running_loop()] = "second"
    async with connect(server, MODERN) as client:
        assert (await client.call("look"))["content"][0]["text"] == "first"
        assert (await client.call("work"))["content"][0]["text"] == "second"
        assert log == ["first up", "second up", "first down"]
    assert log == ["first up", "second up", "first down", "second down"]
    thread.join()


async def test_a_lifespan_that_cannot_move_is_entered_by_the_next_who_comes(caplog: pytest.LogCaptureFixture) -> None:
    taken, here = threading.Event(), threading.Event()
    troubles: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        if troubles:
            raise RuntimeError(troubles.pop())
        yield "up"

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async def elsewhere() -> None:
        async with connect(server, MODERN) as client:
            await client.call("look")
            taken.set()
            await asyncio.to_thread(here.wait, 10)
            troubles.append("no database")

    there = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await asyncio.to_thread(taken.wait, 10)
    async with connect(server, MODERN) as first:
        await first.call("look")
        here.set()
        await there
        assert "no database" in caplog.text
        async with connect(server, MODERN) as client:
            assert (await client.call("look"))["content"][0]["text"] == "up"
    assert server._life.holders == 0


async def test_what_was_held_on_a_loop_that_is_gone_keeps_no_lifespan_alive() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        log.append("down")

    server = Server("s", lifespan=lifespan, tools=ping_tool)
    async with connect(server, MODERN) as client:
        await client.call("ping_tool")
        await asyncio.to_thread(lambda: asyncio.run(server.process(HELLO)))
        assert server._life.holders == 2
    assert log == ["down"]


def test_leaving_where_nothing_was_entered_does_no_harm() -> None:
    life = Life(Server("s"))
    asyncio.run(life.enter())

    async def again() -> None:
        await life.exit()
        async with life.held():
            pass

    asyncio.run(again())


async def test_a_lifespan_that_fails_fails_serving() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    server = Server("s", lifespan=lifespan, tools=ping_tool)
    _, theirs = memory_pair()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no database"):
            await server.serve(theirs)
    with pytest.raises(RuntimeError, match="no database"):
        await server.call_tool("ping_tool")
