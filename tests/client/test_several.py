"""A client of several servers: a client of a gateway in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.client.fake import FakeServer, text

from toolwire import Context, Server, Tool
from toolwire.client import Client, ResourceNotFound, ToolCall
from toolwire.client.target import Link
from toolwire.client.targets import ServerTarget
from toolwire.protocol import types as t
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Unreachable
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.wire.outlet import Outlet


@asynccontextmanager
async def grouped(revision: str | None = None, **servers: Server) -> AsyncIterator[Client]:
    async with Client(servers, revision=revision) as client:
        yield client


def make(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def who() -> str:
        return name

    @server.tool
    async def count(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step)
        return "counted"

    @server.resource(f"memo://{name}")
    def memo() -> str:
        return f"memo of {name}"

    @server.resource(f"note://{name}/{{key}}")
    def note(key: str) -> str:
        return f"{name} {key}"

    @server.prompt
    def greet(you: str) -> str:
        return f"{name} greets {you}"

    @server.completion(prompt="greet", argument="you")
    def people(partial: str) -> list[str]:
        return [f"{partial} of {name}"]

    return server


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_each_server_says_how_it_is_used(revision: str) -> None:
    a, b, c = Server("a", instructions="Ask first."), Server("b"), Server("c", instructions="Be brief.")
    async with grouped(revision, a=a, b=b, c=c) as client:
        assert client.instructions == "a: Ask first.\n\nc: Be brief."
    async with grouped(revision, b=b) as client:
        assert client.instructions is None


@pytest.mark.covers("GW-1.6")
@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_each_server_is_reached_by_its_name(revision: str) -> None:
    seen: list[float] = []
    async with grouped(revision, a=make("a"), a_b=make("a_b")) as client:
        assert sorted(tool.name for tool in await client.list_tools()) == ["a_b_count", "a_b_who", "a_count", "a_who"]
        assert (await client.call_tool("a_who")).text == "a"
        assert (await client.call_tool("a_b_who")).text == "a_b"
        await client.call_tool("a_count", on_progress=lambda params: seen.append(params.progress))
        assert {resource.uri for resource in await client.list_resources()} == {"memo://a", "memo://a_b"}
        assert (await client.read_resource("memo://a_b"))[0].text == "memo of a_b"
        assert (await client.read_resource("note://a_b/x"))[0].text == "a_b x"
        assert len(await client.list_resource_templates()) == 2
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_b_greet", "a_greet"]
        assert "a_b greets you" in str((await client.get_prompt("a_b_greet", {"you": "you"})).messages)
        completion = await client.complete(t.PromptReference("a_b_greet"), ("you", "x"))
        assert completion.values == ["x of a_b"]
    assert seen == [0, 1, 2]


async def test_what_would_be_taken_for_that_of_another_server_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Else `a` could catch the calls of `a_b`, or be called instead of it."""
    short, long = make("a"), make("a_b")

    @short.tool(name="b_who")
    async def catch() -> str:
        return "caught"

    @short.prompt(name="b_greet")
    def catch_prompt(you: str) -> str:
        return "caught"

    async with grouped(a=short, a_b=long) as client:
        assert [tool.name for tool in await client.list_tools()].count("a_b_who") == 1
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_b_greet", "a_greet"]
        assert (await client.call_tool("a_b_who")).text == "a_b"
    assert "a: 'b_who' is left out: 'a_b_who' would be one of a_b" in caplog.text


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_meta_and_progress_are_handed_on(revision: str) -> None:
    seen: list[dict[str, Any]] = []

    async def note(request: Incoming, outlet: Outlet) -> Any:
        assert request.raw is not UNSET
        seen.append(t.request_meta(request.raw))
        progress = t.ProgressNotificationParams(progress_token=seen[-1][t.PROGRESS_TOKEN_KEY], progress=0.5)
        outlet.notify("notifications/progress", progress)
        if request.method == "tools/call":
            return t.CallToolResult(content=[])
        if request.method == "prompts/get":
            return t.GetPromptResult(messages=[])
        return t.ReadResourceResult(contents=[], ttl_ms=0, cache_scope="private")

    fake = FakeServer(dict.fromkeys(["tools/call", "prompts/get", "resources/read"], note))
    given = {"com.example/tenant": "t1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    reported: list[float] = []

    def report(params: t.ProgressNotificationParams) -> None:
        reported.append(params.progress)

    members = {"a": fake, "b": Server("b")}
    async with Client(members, revision=revision) as client:
        await client.call_tool("a_x", meta=given, on_progress=report)
        await client.get_prompt("a_x", meta=given, on_progress=report)
        await client.read_resource("memo://a", meta=given, on_progress=report)
    assert reported == [0.5] * 3
    for meta in seen:
        own = {key: value for key, value in meta.items() if key in given}
        assert own == given
        assert (t.CLIENT_INFO_KEY in meta) == (revision == MODERN), "each connection says itself what it is"


@pytest.mark.covers("1.14.1")
async def test_new_roots_reach_every_server() -> None:
    async def ask(request: Incoming, outlet: Outlet) -> Any:
        return text(bytes(await outlet.request("roots/list", t.RequestParams(), timeout=5) or b"").decode())

    fakes = {name: FakeServer({"tools/call": ask}) for name in ("a", "b")}
    async with Client(fakes, revision=LATEST_LEGACY, roots=["file:///old"]) as client:
        await client.set_roots(["file:///new"])
        for name, fake in fakes.items():
            assert (await client.call_tool(f"{name}_x")).text == '{"roots":[{"uri":"file:///new"}]}'
            assert fake.notices[-1].method == "notifications/roots/list_changed"


async def test_what_no_server_has() -> None:
    async with grouped(a=make("a"), b=make("b")) as client:
        with pytest.raises(ProtocolError, match="Unknown tool: who"):
            await client.call_tool("who")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("a_nothing")
        with pytest.raises(ResourceNotFound):
            await client.read_resource("memo://nobody")


async def test_changes_of_any_server() -> None:
    second = make("b")
    async with grouped(a=make("a"), b=second) as client, client.listen(tools=True) as changes:
        second.remove("who")
        async for change in changes:
            assert change.kind == "tools"
            break
        assert "b_who" not in {tool.name for tool in await client.list_tools()}


async def test_who_approves_is_shown_what_a_tool_is_by_now() -> None:
    server, shown = make("a"), list[Any]()
    servers = {"a": server, "b": Server("b")}

    def approve(call: ToolCall) -> bool:
        shown.append(call.tool and call.tool.description)
        return True

    async def who() -> str:
        """Tells all."""
        return "all"

    async with Client(servers, revision=LATEST_LEGACY, approve=approve) as client:
        await client.call_tool("a_who")
        server.add(Tool(who))
        await client.call_tool("a_who")  # The announcement comes before the answer.
        await client.call_tool("a_who")
    assert shown[-1] == "Tells all."


@pytest.mark.covers("SUB-4")
@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_only_its_owner_is_asked_about_a_resource(revision: str) -> None:
    def subscribe(request: Incoming, outlet: Outlet) -> Any:
        if request.params.uri != "memo://b":
            raise ProtocolError(-32002, "no such resource")
        return t.EmptyResult()

    async def listen(request: Incoming, outlet: Outlet) -> Any:
        wanted = request.params.notifications
        accepted = t.SubscriptionFilter(resource_subscriptions=wanted.resource_subscriptions)
        meta = {t.SUBSCRIPTION_ID_KEY: request.id}
        outlet.notify("notifications/subscriptions/acknowledged", {"notifications": accepted, "_meta": meta})
        await asyncio.Event().wait()

    other = FakeServer(
        {
            "resources/list": lambda request, outlet: t.ListResourcesResult(
                resources=[t.Resource(uri="memo://b", name="b")], ttl_ms=0, cache_scope="private"
            ),
            "resources/subscribe": subscribe,
            "resources/unsubscribe": lambda request, outlet: t.EmptyResult(),
            "subscriptions/listen": listen,
        }
    )
    own = make("a")
    members = {"a": own, "b": other}
    async with (
        Client(members, revision=revision) as client,
        client.listen(resources_list=True, resources=["memo://a", "memo://b"]) as changes,
    ):
        assert changes.accepted is not None
        assert changes.accepted.resource_subscriptions == ["memo://a", "memo://b"]
        own.notify_updated("memo://a")
        async for change in changes:
            assert change.uri == "memo://a"
            break
        assert "memo://a" not in str([request.params for request in other.requests])


async def test_a_resource_that_its_server_no_longer_lists_is_looked_for_again() -> None:
    one, other = make("a"), Server("b")

    @other.resource("memo://{key}")
    def memo(key: str) -> str:
        return f"{key} of b"

    async with grouped(a=one, b=other) as client:
        await client.list_resources()
        one.remove("memo://a")
        await client.list_resources()
        assert (await client.read_resource("memo://a"))[0].text == "a of b"


@pytest.mark.covers("GW-1.6")
async def test_a_server_that_is_away_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    async with Client({"a": make("a"), "b": str(broken)}) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a_count", "a_who"]
        assert [*client.missing] == ["b"]
        assert "exited with code 3" in client.missing["b"]
        assert (await client.call_tool("a_who")).text == "a"
        for work in (client.call_tool("b_x"), client.get_prompt("b_x")):
            with pytest.raises(Unreachable, match=r"The server 'b' is away: broken\.py exited with code 3"):
                await work
    assert "the server 'b' is away" in caplog.text
    assert Client(make("a")).missing == {}


async def test_a_server_that_comes_later_is_there_then() -> None:
    server, begins = make("b"), asyncio.Event()

    class Late(ServerTarget):
        async def open(self) -> Link:
            if not begins.is_set():
                raise Unreachable("not yet")
            return await super().open()

    async with (
        Client({"a": Server("a"), "b": Late(server)}) as client,
        client.listen(tools=True, prompts=True) as changes,
    ):
        assert client.missing == {"b": "not yet"}
        assert await client.list_prompts() == []
        begins.set()
        assert (await client.call_tool("b_who")).text == "b"
        await anext(aiter(changes))
        assert [prompt.name for prompt in await client.list_prompts()] == ["b_greet"]
        assert client.missing == {}


async def test_servers_that_are_all_away_are_an_error() -> None:
    class Away(ServerTarget):
        async def open(self) -> Link:
            raise Unreachable("it is off")

    client = Client({"a": Away(Server("a")), "b": Away(Server("b"))})
    with pytest.raises(Unreachable, match="None of the servers can be reached: a: it is off; b: it is off"):
        await client.connect()
    assert not client.connected
    await client.close()


@pytest.mark.covers("GW-1.6")
async def test_a_client_may_have_any_number_of_servers() -> None:
    servers = {f"s{number}": make(str(number)) for number in range(120)}
    async with Client(servers) as client:
        assert len(await client.list_tools()) == 240
        assert (await client.call_tool("s119_who")).text == "119"


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_one_connection_carries_everything(revision: str) -> None:
    """A server that is started for a client keeps its state for all calls, also for those that ask."""
    server, opened = make("a"), 0

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"{(await ctx.elicit('Really?', bool)).data}"

    class Counted(ServerTarget):
        async def open(self) -> Link:
            nonlocal opened
            opened += 1
            return await super().open()

    together = asyncio.Barrier(2)

    async def elicit(message: str, params: Any) -> dict[str, bool]:
        await together.wait()
        return {"value": True}

    async with Client({"a": Counted(server), "b": make("b")}, revision=revision, elicit=elicit) as client:
        results = await asyncio.gather(client.call_tool("a_ask"), client.call_tool("a_ask"))
    assert [result.text for result in results] == ["True"] * 2
    assert opened == 1


async def test_an_error_is_the_one_of_the_server_behind(tmp_path: Path) -> None:
    file = tmp_path / "dies.py"
    file.write_text(
        "import os\nfrom toolwire import Server\nserver = Server('dies')\n"
        "@server.tool\ndef die() -> None:\n    os._exit(9)\nserver.run()\n"
    )
    async with Client({"a": make("a"), "b": str(file)}) as client:
        with pytest.raises(OutcomeUnknown, match="exited with code 9"):
            await client.call_tool("b_die")
        assert (await client.call_tool("a_who")).text == "a"


async def test_failed_task_raises_the_error_of_the_server_behind(tmp_path: Path) -> None:
    file = tmp_path / "dies.py"
    file.write_text(
        "import os\nfrom toolwire import Server\nserver = Server('dies')\n"
        "@server.tool(task='optional')\ndef die() -> None:\n    os._exit(9)\nserver.run()\n"
    )
    async with Client({"a": make("a"), "b": str(file)}) as client:
        with pytest.raises(OutcomeUnknown, match="exited with code 9"):
            await client.call_tool("b_die")
        assert (await client.call_tool("a_who")).text == "a"


async def test_cancelling_reaches_the_server_behind() -> None:
    server = Server("slow")
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with grouped(a=server, b=make("b")) as client:
        calling = asyncio.ensure_future(client.call_tool("a_hang"))
        await started.wait()
        calling.cancel()
        await stopped.wait()


async def test_headers_have_no_place_in_a_group() -> None:
    async with grouped(a=make("a"), b=make("b")) as client:
        with pytest.raises(NotSupported, match="headers="):
            await client.call_tool("a_who", headers={"x": "y"})
