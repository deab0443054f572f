"""One server inside another: a live merge of what they offer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, WireClient, connect

from toolwire import Client, Context, Policy, Prompt, ProtocolError, Resource, Server, Tool, ToolError, testing
from toolwire.protocol.errors import ServerError
from toolwire.server.policy import Call


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def tool(name: str) -> Tool:
    async def function(ctx: Context) -> str:
        return f"{name} of {ctx.server.name}"

    return Tool(function, name=name)


def inner() -> Server:
    server = Server("inner", tools=tool("work"), prompts=Prompt.text("Hi {name}", name="hi"))
    server.add(Resource("note://a", content="x", name="a"))
    server.resource("t://{id}")(template)
    server.completion(prompt="hi", argument="name")(names)
    return server


async def template(id: str) -> str:
    return id


async def names(partial: str) -> list[str]:
    return [partial + "n"]


async def test_names_of_tools_and_prompts_get_the_prefix_and_addresses_do_not() -> None:
    server = Server("outer", tools=tool("own")).mount(inner(), prefix="in")
    async with connect(server, MODERN) as client:
        assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == ["in_work", "own"]
        assert [each["name"] for each in (await client.result("prompts/list"))["prompts"]] == ["in_hi"]
        assert text(await client.call("in_work")) == "work of inner"
        assert text(await client.call("own")) == "own of outer"
        assert (await client.error("tools/call", {"name": "work"}))["code"] == -32602
        got = await client.result("prompts/get", {"name": "in_hi", "arguments": {"name": "Ann"}})
        assert got["messages"][0]["content"]["text"] == "Hi Ann"
        for uri, expected in (("note://a", "x"), ("t://7", "7")):
            assert (await client.result("resources/read", {"uri": uri}))["contents"][0]["text"] == expected
        ref = {"type": "ref/prompt", "name": "in_hi"}
        completion = await client.result(
            "completion/complete", {"ref": ref, "argument": {"name": "name", "value": "A"}}
        )
        assert completion["completion"]["values"] == ["An"]
    assert [each.name for each in server.tools] == ["work", "own"]


async def test_without_a_prefix_the_nearest_wins() -> None:
    server = Server("outer", tools=tool("work")).mount(inner())
    async with connect(server, MODERN) as client:
        assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == ["work"]
        assert text(await client.call("work")) == "work of outer"


@pytest.mark.covers("S21", "E39")
@cases("revision", LEGACY)
async def test_the_merge_is_live(revision: str) -> None:
    mounted = inner()
    server = Server("outer").mount(Server("middle").mount(mounted, prefix="b"), prefix="a")
    async with connect(server, revision) as client:
        await client.result("ping")
        mounted.add(tool("late"))
        await client.notified("notifications/tools/list_changed")
        names = [each["name"] for each in (await client.result("tools/list"))["tools"]]
        assert names == ["a_b_late", "a_b_work"]
        mounted.remove("late")
        await client.notified("notifications/tools/list_changed", 2)
        assert (await client.error("tools/call", {"name": "a_b_late"}))["code"] == -32602


async def test_updates_of_a_mounted_server_reach_subscribers() -> None:
    mounted = inner()
    server = Server("outer").mount(mounted, prefix="in")
    async with connect(server, "2025-06-18") as client:
        await client.result("resources/subscribe", {"uri": "note://a"})
        mounted.notify_updated("note://a")
        assert await client.notified("notifications/resources/updated") == [{"uri": "note://a"}]


async def test_each_server_has_its_own_lifespan() -> None:
    events: list[str] = []

    def lifespan(value: str) -> Any:
        @asynccontextmanager
        async def manager(server: Server) -> AsyncIterator[str]:
            events.append(f"enter {server.name}")
            yield value
            events.append(f"leave {server.name}")

        return manager

    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    mounted = Server("inner", tools=look, lifespan=lifespan("theirs"))
    server = Server("outer", tools=look, lifespan=lifespan("ours")).mount(mounted, prefix="in")
    async with connect(server, MODERN) as client:
        assert text(await client.call("look")) == "ours"
        assert text(await client.call("in_look")) == "theirs"
    assert events == ["enter outer", "enter inner", "leave inner", "leave outer"]


@pytest.mark.parametrize("middle", [False, True])
async def test_what_is_mounted_twice_lives_once_and_tells_once(middle: bool) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        events.append("enter")
        yield
        events.append("leave")

    mounted = inner()
    mounted.lifespan = lifespan
    server = Server("outer")
    for prefix in ("a", "b"):
        server.mount(Server("middle").mount(mounted) if middle else mounted, prefix=prefix)
    async with connect(server, "2025-06-18") as client:
        await client.result("resources/subscribe", {"uri": "note://a"})
        mounted.add(tool("late"))
        mounted.notify_updated("note://a")
        names = [each["name"] for each in (await client.result("tools/list"))["tools"]]
        assert names == ["a_late", "a_work", "b_late", "b_work"]
        assert len(await client.notified("notifications/tools/list_changed")) == 1
        assert len(await client.notified("notifications/resources/updated")) == 1
    assert events == ["enter", "leave"]


def test_a_server_is_not_mounted_inside_itself() -> None:
    one, other = Server("one"), Server("other")
    one.mount(other)
    for host, guest in ((one, one), (other, one)):
        with pytest.raises(ServerError, match="A server cannot be mounted inside itself"):
            host.mount(guest)


# --- middleware of mounted servers ---


def watching(seen: list[str]) -> Any:
    async def watch(ctx: Context, call_next: Any) -> Any:
        about = getattr(ctx.params, "ref", ctx.params)
        seen.append(f"{ctx.server.name} {ctx.method} {getattr(about, 'name', None) or about.uri}")
        return await call_next(ctx)

    return watch


async def use_everything(client: WireClient, prefix: str) -> None:
    await client.call(f"{prefix}work")
    await client.result("prompts/get", {"name": f"{prefix}hi", "arguments": {"name": "Ann"}})
    for uri in ("note://a", "t://7"):
        await client.result("resources/read", {"uri": uri})
    ref = {"type": "ref/prompt", "name": f"{prefix}hi"}
    found = await client.result("completion/complete", {"ref": ref, "argument": {"name": "name", "value": "A"}})
    assert found["completion"]["values"] == ["An"]
    ref = {"type": "ref/resource", "uri": "t://{id}"}
    await client.result("completion/complete", {"ref": ref, "argument": {"name": "id", "value": "A"}})


USED = [
    "tools/call work",
    "prompts/get hi",
    "resources/read note://a",
    "resources/read t://7",
    "completion/complete hi",
    "completion/complete t://{id}",
]


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
async def test_the_middleware_of_a_mounted_server_runs_around_what_is_its_own(revision: str) -> None:
    seen: list[str] = []
    mounted = inner()
    mounted.use(watching(seen))
    server = Server("outer", tools=tool("own")).mount(mounted, prefix="in")
    async with connect(server, revision) as client:
        assert len((await client.result("tools/list"))["tools"]) == 2
        assert text(await client.call("own")) == "own of outer"
        assert (await client.error("tools/call", {"name": "in_none"}))["code"] == -32602
        await use_everything(client, "in_")
        assert text(await client.call("in_work")) == "work of inner"
    assert seen == [f"inner {each}" for each in [*USED, USED[0]]]


async def test_it_runs_at_every_depth_and_whenever_it_comes() -> None:
    seen: list[str] = []
    mounted, middle = inner(), Server("middle")
    server = Server("outer", middleware=watching(seen)).mount(middle.mount(mounted, prefix="b"), prefix="a")
    mounted.use(watching(seen))
    middle.use(watching(seen))
    async with connect(server, MODERN) as client:
        await client.call("a_b_work")
        await client.result("prompts/get", {"name": "a_b_hi", "arguments": {"name": "Ann"}})
    assert seen == [
        "outer tools/call a_b_work",
        "middle tools/call b_work",
        "inner tools/call work",
        "outer prompts/get a_b_hi",
        "middle prompts/get b_hi",
        "inner prompts/get hi",
    ]


async def test_a_mounted_server_that_its_middleware_guards_stays_guarded(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [ToolError("not for you"), RuntimeError("hunter2"), ProtocolError(-31000, "no"), None]
    mounted = inner()

    @mounted.use
    async def guard(ctx: Context, call_next: Any) -> Any:
        answer = answers.pop(0)
        if answer is None:
            return None
        raise answer

    async with connect(Server("outer").mount(mounted, prefix="in"), MODERN) as client:
        assert text(await client.call("in_work")) == "not for you"
        assert "hunter2" not in str(await client.call("in_work"))
        assert (await client.error("tools/call", {"name": "in_work"}))["code"] == -31000
        assert text(await client.call("in_work")).startswith("Internal error")
    assert "guard returned NoneType" in caplog.text


@pytest.mark.parametrize("revision", [MODERN, "2025-06-18"])
async def test_the_middleware_of_a_mounted_server_asks_and_changes_what_is_called(revision: str) -> None:
    mounted = Server("inner")

    @mounted.tool
    async def echo(word: str) -> str:
        return word

    @mounted.use
    async def ask(ctx: Context, call_next: Any) -> Any:
        answer = await ctx.elicit("Really?", bool)
        ctx.params.name, ctx.params.arguments = "echo", Raw(b'{"word":"%d"}' % bool(answer.data))
        return await call_next(ctx)

    def agree(message: str, schema: Any) -> dict[str, Any]:
        return {"value": True}

    async with testing.connect(Server("outer").mount(mounted, prefix="in"), revision=revision, elicit=agree) as (
        client,
        _,
    ):
        assert (await client.call_tool("in_echo", {"word": "x"})).text == "1"


async def test_a_policy_of_a_mounted_server_is_enforced_once() -> None:
    asked: list[str] = []

    async def approve(ctx: Context, call: Call) -> bool:
        asked.append(call.name)
        return True

    mounted = Server("inner", tools=tool("work"), policy=Policy(approve=approve), middleware=watching([]))
    async with connect(Server("outer").mount(mounted, prefix="in"), MODERN) as client:
        assert text(await client.call("in_work")) == "work of inner"
    assert asked == ["in_work"]


def test_what_mounting_would_leave_out_is_refused() -> None:
    async def handler(name: str, arguments: dict[str, Any]) -> str:
        return name

    lowlevel, mounted = Server("low"), Server("mounted")
    lowlevel.on_call_tool(handler)
    outer = Server("outer").mount(mounted)
    with pytest.raises(ServerError, match="'low' cannot have low-level handlers and be mounted"):
        outer.mount(lowlevel)
    for late in (lambda: mounted.on_call_tool(handler), lambda: mounted.on_list_tools(handler)):
        with pytest.raises(ServerError, match="low-level handlers"):
            late()


@pytest.mark.parametrize("count", [2, 20])
async def test_names_are_found_however_many_servers_are_mounted(count: int) -> None:
    host = Server("host")
    for number in range(count):
        guest = Server(f"guest{number}")

        @guest.tool
        async def run(number: int = number) -> int:
            return number

        host.mount(guest, prefix=f"g{number}")
        host.mount(guest)
    async with Client(host) as client:
        for number in range(count):
            assert await client.call_tool(f"g{number}_run", returns=int) == number
        # The first one that was mounted without a prefix has the name.
        assert await client.call_tool("run", returns=int) == 0
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("g_run")
