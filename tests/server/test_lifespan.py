"""The lifespan of a server: entered once, left once, whatever happens."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.runtimes import clients_of, runtime_of
from tests.wireclient import MODERN, connect

from toolwire import Client, Context, Server, Tool
from toolwire.client import sync
from toolwire.protocol.errors import ServerError
from toolwire.server.runtime import Runtime
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


async def test_the_lifespan_is_shared_with_blocking_clients_and_left_after_the_last_of_them() -> None:
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

    async with connect(server, MODERN) as here:
        await here.result("tools/list")  # From now on the server belongs to this loop.
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
        beside = asyncio.create_task(asyncio.Event().wait())
        yield "shared"
        log.append(f"down, {beside.done()}")
        beside.cancel()

    server = Server("s", lifespan=lifespan)

    @server.tool
    def look(ctx: Context) -> str:
        return f"{ctx.lifespan} {log}"

    first, second = sync.Client(server).connect(), sync.Client(server).connect()
    first.close()
    assert second.call_tool("look").text == "shared ['up']"
    second.close()
    assert log == ["up", "down, False"]


def test_a_loop_that_ends_without_leaving_the_lifespan_is_followed_by_another() -> None:
    server = Server("s", tools=[ping_tool, Tool(ping_tool, name="task", task="optional")])
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # It ends with a task that is not done.
    loop.run_until_complete(server.process(HELLO))
    loop.run_until_complete(server.process(legacy_text(1, "tools/call", name="ping_tool")))
    assert server.loop is loop
    loop.close()
    assert server.loop is None
    assert asyncio.run(server.call_tool("ping_tool")).text == "pong"
    assert not clients_of(server)


def test_leaving_where_nothing_was_entered_does_no_harm() -> None:
    server = Server("s")

    async def enter() -> Runtime:
        runtime = runtime_of(server)
        await runtime.enter()
        return runtime

    before = asyncio.run(enter())

    async def again() -> None:
        await before.exit()
        async with runtime_of(server).held():
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


async def test_a_server_that_is_mounted_while_another_runs_begins_and_ends_with_its_mount() -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        happened.append("begins")
        yield
        happened.append("ends")

    host, guest = Server("host"), Server("guest", lifespan=lifespan)
    async with Client(host):
        host.mount(guest)
        while happened != ["begins"]:
            await asyncio.sleep(0)
        host.unmount(guest)
        while happened != ["begins", "ends"]:
            await asyncio.sleep(0)
        host.mount(guest)
        while happened != ["begins", "ends", "begins"]:
            await asyncio.sleep(0)
    assert happened == ["begins", "ends", "begins", "ends"]


async def test_a_mounted_lifespan_that_fails_while_the_host_runs_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("broken")
        yield

    host = Server("host")

    @host.tool
    async def fine() -> str:
        return "fine"

    async with Client(host) as client:
        host.mount(Server("guest", lifespan=lifespan))
        while "the lifespan of 'guest' failed" not in caplog.text:
            await asyncio.sleep(0)
        assert await client.call_tool("fine", returns=str) == "fine"


async def test_a_plain_async_generator_is_a_lifespan() -> None:
    order: list[str] = []

    async def pool(server: Server) -> AsyncIterator[str]:
        order.append("opened")
        try:
            yield server.name
        finally:
            order.append("closed")

    server = Server("s", lifespan=pool)

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with connect(server, MODERN) as client:
        assert (await client.call("value"))["content"][0]["text"] == "s"
    assert order == ["opened", "closed"]


def test_a_lifespan_that_cannot_be_one_is_refused_by_the_server() -> None:
    async def no_yield(server: Server) -> None: ...

    def not_async(server: Server) -> Iterator[None]:
        yield

    async def without_an_argument() -> AsyncIterator[None]:
        yield

    async def called(server: Server) -> AsyncIterator[None]:
        yield

    class Pool:
        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *error: object) -> None: ...

    given: dict[Any, str] = {
        no_yield: "write `async def`, and `yield` in it",
        not_async: "write `async def`, and `yield` in it",
        "pool": "not str",
        without_an_argument: "without_an_argument has to take one argument, the server",
        Pool: "Pool has to take one argument, the server",
        Pool(): "give the function itself, and do not call it",
        asynccontextmanager(called)(Server("x")): "give the function itself, and do not call it",
    }
    for lifespan, text in given.items():
        with pytest.raises(ServerError, match="lifespan= is an async function that yields once") as caught:
            Server("s", lifespan=lifespan)
        assert text in str(caught.value)


async def test_start_names_a_lifespan_of_another_kind() -> None:
    @contextmanager
    def not_async(server: Server) -> Iterator[None]:
        yield

    async def never_yields(server: Server) -> AsyncIterator[None]:
        if server is None:
            yield

    given: dict[Any, str] = {
        not_async: "that of 's' returned _GeneratorContextManager; write `async def`",
        never_yields: "that of 's' ended without a `yield`",
        asynccontextmanager(never_yields): "that of 's' ended without a `yield`",
        lambda server: None: "that of 's' returned NoneType",
    }
    for lifespan, text in given.items():
        with pytest.raises(ServerError, match="lifespan= is an async function that yields once") as caught:
            await Server("s", lifespan=lifespan, tools=ping_tool).call_tool("ping_tool")
        assert text in str(caught.value)


async def test_a_lifespan_that_yields_twice_is_named_at_the_end() -> None:
    async def twice(server: Server) -> AsyncIterator[None]:
        yield
        yield

    runtime = runtime_of(Server("s", lifespan=twice))
    await runtime.enter()
    with pytest.raises(ServerError, match=r"lifespan= .* that of 's' yields twice"):
        await runtime.exit()
