"""One server after another: clients stay connected, are told what changed, and calls end where they began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from tests.http.httpclient import serving
from tests.http.modernclient import ModernClient, text_of

from toolwire import Client, Context, Header, Limits, Server, testing
from toolwire.protocol.errors import ProtocolError
from toolwire.server.hot_reload import Stage

both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def make_server(answer: str, *, name: str = "work", extra: str | None = None, lifespan: Any = None) -> Server:
    server = Server("sample", lifespan=lifespan)

    async def work() -> str:
        return answer

    server.tool(work) if name == "work" else server.tool(name=name)(work)
    if extra is not None:

        @server.prompt(name=extra)
        def prompt() -> str:
            return extra

    return server


@both_eras
async def test_a_client_stays_connected_and_is_told_what_changed(revision: str) -> None:
    stage = Stage(make_server("first"))
    async with Client(stage, revision=revision) as client, client.listen(tools=True, prompts=True) as changes:
        assert (await client.call_tool("work")).text == "first"
        assert await stage.replace(make_server("second", extra="brief")) == ["prompts"]
        async for change in changes:
            assert change.kind == "prompts"
            break
        assert (await client.call_tool("work")).text == "second"
        assert [prompt.name for prompt in await client.list_prompts()] == ["brief"]


@both_eras
async def test_what_the_successor_changes_later_is_told_too(revision: str) -> None:
    stage = Stage(make_server("first"))
    async with Client(stage, revision=revision) as client, client.listen(tools=True, resources_list=True) as changes:
        old = stage.current
        new = make_server("second")
        assert await stage.replace(new) == []
        old.notify_changed("resources")  # Told to nobody: it has left the stage.
        new.notify_changed("tools")
        async for change in changes:
            assert change.kind == "tools"
            break


async def test_a_call_ends_where_it_began() -> None:
    arrived, leave = asyncio.Event(), asyncio.Event()
    server = Server("sample")

    @server.tool
    async def slow() -> str:
        arrived.set()
        await leave.wait()
        return "first"

    stage = Stage(server)
    async with Client(stage) as client:
        calling = asyncio.create_task(client.call_tool("slow"))
        await arrived.wait()
        await stage.replace(make_server("second", name="slow"))
        assert (await client.call_tool("slow")).text == "second"
        leave.set()
        assert (await calling).text == "first"


async def test_lifespans_follow_each_other() -> None:
    seen: list[str] = []
    left = asyncio.Event()

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def span(server: Server) -> AsyncIterator[str]:
            seen.append(f"enter {name}")
            yield name
            seen.append(f"leave {name}")
            left.set()

        return span

    stage = Stage(make_server("first", lifespan=lifespan("one")))
    async with Client(stage) as client:
        await stage.replace(make_server("second", lifespan=lifespan("two")))
        await left.wait()
        assert seen == ["enter one", "enter two", "leave one"]
        assert (await client.call_tool("work")).text == "second"
    assert seen[-1] == "leave two"


async def test_a_successor_that_cannot_start_changes_nothing() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    stage = Stage(make_server("first"))
    async with Client(stage) as client:
        with pytest.raises(RuntimeError, match="no database"):
            await stage.replace(make_server("second", lifespan=broken))
        assert (await client.call_tool("work")).text == "first"


async def test_a_question_asked_before_is_answered_after() -> None:
    def asking(answer: str) -> Server:
        server = Server("sample")

        @server.tool
        async def ask(ctx: Context) -> str:
            given = await ctx.elicit("Sure?", bool)
            return f"{answer}: {given.action}"

        return server

    stage = Stage(asking("first"))

    async def elicit(message: str, params: Any) -> Any:
        await stage.replace(asking("second"))
        return {"value": True}

    async with Client(stage, revision="2026-07-28", elicit=elicit) as client:
        assert (await client.call_tool("ask")).text == "second: accept"


async def test_sessions_over_http_survive() -> None:
    stage = Stage(make_server("first"))
    async with serving(stage.http_app()) as [client]:
        await client.initialize()
        stream = await client.get()
        assert (await client.result("tools/call", {"name": "work"}))["content"][0]["text"] == "first"
        await stage.replace(make_server("second", extra="brief"))
        await stream.message("notifications/prompts/list_changed")
        assert (await client.result("tools/call", {"name": "work"}))["content"][0]["text"] == "second"


async def test_exchanges_over_http_meet_the_successor() -> None:
    stage = Stage(make_server("first"))
    async with serving(stage.http_app()) as [client]:
        modern = ModernClient(client.app)
        stream = await modern.listen(toolsListChanged=True)
        assert text_of((await modern.call("work")).answer()) == "first"
        await stage.replace(make_server("second", name="other"))
        await stream.message("notifications/tools/list_changed")
        assert text_of((await modern.call("other")).answer()) == "second"
        await modern.close()


async def test_an_unknown_tool_beside_one_with_a_header_is_answered_over_http() -> None:
    server = make_server("first")

    @server.tool
    async def forecast(region: Annotated[str, Header("Region")]) -> str:
        return region

    inner = Server("inner").mount(server, "in")
    async with testing.connect(Stage(inner), over="http", revision="2026-07-28") as (client, _):
        assert (await client.call_tool("in_forecast", {"region": "eu"})).text == "eu"
        with pytest.raises(ProtocolError, match="Unknown tool: nothing"):
            await client.call_tool("nothing")


def make_task_server(
    answer: str, seen: list[str], *, drain: float = 5.0
) -> tuple[Server, asyncio.Event, asyncio.Event]:
    """Return a server with a task that begins, goes on when it is told to, and notes how it ends."""
    server = Server("sample", limits=Limits(drain=drain, task_window=0.0))
    begun, leave = asyncio.Event(), asyncio.Event()

    @server.tool(task="optional")
    async def slow() -> str:
        begun.set()
        try:
            await leave.wait()
        except asyncio.CancelledError:
            seen.append(f"{answer} was cancelled")
            raise
        seen.append(f"{answer} ended")
        return answer

    return server, begun, leave


@both_eras
async def test_a_task_ends_where_it_began(revision: str) -> None:
    seen: list[str] = []
    old, begun, leave = make_task_server("first", seen)
    new, begun_later, leave_later = make_task_server("second", seen)
    stage = Stage(old)
    async with testing.connect(stage, over="http", revision=revision) as (client, _):
        task = await client.call_tool_as_task("slow")
        await begun.wait()
        await stage.replace(new)
        later = await client.call_tool_as_task("slow")
        await begun_later.wait()
        await asyncio.sleep(0.05)
        assert not seen
        leave.set()
        assert (await task.wait()).text == "first"
        leave_later.set()
        assert (await later.wait()).text == "second"
        assert seen == ["first ended", "second ended"]


async def test_a_task_has_the_time_of_the_drain() -> None:
    seen: list[str] = []
    old, begun, _ = make_task_server("first", seen, drain=0.3)
    stage = Stage(old)
    async with testing.connect(stage, over="http") as (client, _clock):
        await client.call_tool_as_task("slow")
        await begun.wait()
        began = asyncio.get_running_loop().time()
        await stage.replace(make_task_server("second", seen)[0])
        while not seen:
            await asyncio.sleep(0.01)
        assert seen == ["first was cancelled"]
        assert asyncio.get_running_loop().time() - began >= 0.25


async def test_a_stop_waits_for_the_tasks_of_a_predecessor() -> None:
    seen: list[str] = []
    old, begun, leave = make_task_server("first", seen)
    stage = Stage(old)
    async with testing.connect(stage, over="http") as (client, _):
        await client.call_tool_as_task("slow")
        await begun.wait()
        await stage.replace(make_task_server("second", seen)[0])
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.2, leave.set)
    assert seen == ["first ended"]
