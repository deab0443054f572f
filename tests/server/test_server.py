"""Servers: how they are made, and what they say that they can do."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, WireClient, connect

from toolwire import Client, Context, Limits, Prompt, Resource, ResourceTemplate, Server, Tool, testing, types
from toolwire.transports import memory_pair

ICON = {"src": "https://example.net/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "light"}


async def ping_tool() -> str:
    return "pong"


# --- Making one ---


@pytest.mark.covers("J1", "J58")
async def test_a_name_is_enough() -> None:
    server = Server("almanac")
    async with connect(server) as client:
        result = await client.initialize("2025-11-25")
    assert result["serverInfo"] == {"name": "almanac", "version": "1.0.0"}
    assert result["protocolVersion"] == "2025-11-25"
    assert "instructions" not in result
    assert (server.tools, server.resources, server.templates, server.prompts) == ([], [], [], [])


@pytest.mark.covers("J1", "J58", "S9")
async def test_everything_in_one_call(tmp_path: Any) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "found.py").write_text("def found() -> str:\n    return 'found'\n")
    server = Server(
        "almanac",
        version="2.1",
        title="Almanac",
        description="Days and tides.",
        icons=[ICON],
        website_url="https://almanac.example",
        instructions="Dates are UTC.",
        capabilities={"experimental": {"x": {}}},
        tools=[ping_tool],
        resources=[Resource("note://a", content="x")],
        templates=[ResourceTemplate("note://{id}")],
        prompts=[Prompt.text("x", name="p")],
        directory=tmp_path,
    )
    async with connect(server) as client:
        result = await client.initialize("2025-11-25")
    assert result["serverInfo"]["version"] == "2.1"
    assert result["instructions"] == "Dates are UTC."
    assert result["capabilities"]["experimental"] == {"x": {}}
    assert [tool.name for tool in server.tools] == ["found", "ping_tool"]
    assert (len(server.resources), len(server.templates), len(server.prompts)) == (1, 1, 1)


@pytest.mark.covers("J2")
@cases(
    ("chosen", "count"),
    [(lambda items: items[0], 1), (lambda items: items[:1], 1), (list, 2), (tuple, 2), (lambda items: None, 0)],
)
def test_one_component_several_or_none(chosen: Callable[[list[Any]], Any], count: int) -> None:
    server = Server(
        "s",
        tools=chosen([Tool(ping_tool, name=name) for name in ("one", "two")]),
        resources=chosen([Resource(f"note://{name}", content="x") for name in ("one", "two")]),
        templates=chosen([ResourceTemplate(f"note://{name}/{{id}}") for name in ("one", "two")]),
        prompts=chosen([Prompt.text("x", name=name) for name in ("one", "two")]),
    )
    assert [len(each) for each in (server.tools, server.resources, server.templates, server.prompts)] == [count] * 4


def test_components_may_come_from_any_iterable() -> None:
    server = Server(
        "s", tools=(Tool(ping_tool, name=name) for name in "ab"), prompts=iter([Prompt.text("x", name="p")])
    )
    assert [tool.name for tool in server.tools] == ["a", "b"]
    assert len(server.prompts) == 1


@pytest.mark.covers("J5")
async def test_adding_chains() -> None:
    server = Server("s")
    assert (
        server.add(Tool(ping_tool))
        .add(Resource("note://a", content="x"))
        .add(ResourceTemplate("note://{id}"))
        .add(Prompt.text("x", name="p"))
        .remove("p")
        is server
    )
    assert (len(server.tools), len(server.resources), len(server.templates), len(server.prompts)) == (1, 1, 1, 0)


@pytest.mark.covers("J6")
@cases("revision", REVISIONS)
async def test_the_server_shows_what_it_is_made_of_and_who_is_there(revision: str) -> None:
    server = Server(
        "s",
        version="3",
        title="T",
        instructions="Be brief.",
        resources=Resource("note://a", content="x"),
        templates=ResourceTemplate("note://{id}/text", lambda id: id),
        prompts=Prompt.text("x", name="p"),
        limits=Limits(tool=7),
    )
    started, go = asyncio.Event(), asyncio.Event()

    @server.tool(task="optional")
    async def wait(ctx: Context) -> None:
        progress = ctx.track(total=4)
        progress.advance(3)
        started.set()
        await go.wait()

    assert (server.name, server.version, server.limits.tool, server.active) == ("s", "3", 7, False)
    assert (server.identity.title, server.instructions) == ("T", "Be brief.")
    assert server.capabilities(revision)["resources"] == {"subscribe": True, "listChanged": True}
    shown = [server.tools, server.resources, server.templates, server.prompts]
    assert [[each.key for each in kind] for kind in shown] == [["wait"], ["note://a"], ["note://{id}/text"], ["p"]]
    assert repr(server) == "Server('s', version='3')"
    assert callable(server.tasks.create)
    assert (server.connections, server.subscriptions, server.progress) == ([], {}, [])
    server.subscribe("note://a", print)
    async with connect(server, revision) as client:
        if revision == MODERN:
            listening = client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://a"]}})
            await client.notified("notifications/subscriptions/acknowledged")
        else:
            await client.result("resources/subscribe", {"uri": "note://a"})
        call = client.start("tools/call", {"name": "wait"}, id="w")
        await started.wait()
        (connection,) = server.connections
        assert connection.transport.is_connected
        assert "w" in connection.requests
        assert connection.revision == (None if revision == MODERN else revision)
        assert connection.subscriptions == (set() if revision == MODERN else {"note://a"})
        assert (connection.client is None) is (revision == MODERN)
        assert server.subscriptions == {"note://a": 2}
        (progress,) = server.progress
        assert (progress.request_id, progress.done, progress.total) == ("w", 3, 4)
        del progress
        go.set()
        await call
        assert "w" not in connection.requests
        if revision == MODERN:
            listening.cancel()
    assert (server.connections, server.subscriptions) == ([], {"note://a": 1})


@pytest.mark.covers("J6", "J3")
async def test_the_server_shows_the_transport_that_it_was_given() -> None:
    server = Server("s", tools=ping_tool)
    ours, theirs = memory_pair()
    serving = asyncio.create_task(server.serve(theirs))
    client = WireClient(ours)
    await client.initialize("2025-11-25", name="seen")
    (connection,) = server.connections
    assert connection.transport is theirs
    assert connection.client is not None
    assert connection.client.name == "seen"
    await ours.close()
    await serving


@pytest.mark.covers("J9", "J17")
@cases("revision", LEGACY)
async def test_identity_of_the_server_by_revision(revision: str) -> None:
    server = Server("s", title="T", description="D", icons=ICON, website_url="https://x.example")
    async with connect(server) as client:
        identity = (await client.initialize(revision))["serverInfo"]
    full = {"name": "s", "version": "1.0.0", "title": "T", "description": "D", "icons": [ICON]}
    full["websiteUrl"] = "https://x.example"
    known = {
        "2024-11-05": ["name", "version"],
        "2025-03-26": ["name", "version"],
        "2025-06-18": ["name", "version", "title"],
        "2025-11-25": list(full),
    }
    assert identity == {key: full[key] for key in known[revision]}


@pytest.mark.covers("J9", "META-8")
async def test_identity_on_the_current_revision_is_in_every_result() -> None:
    server = Server("s", title="T", description="D", icons=ICON, tools=ping_tool)
    async with connect(server, MODERN) as client:
        for method in ("server/discover", "tools/list"):
            identity = (await client.result(method))["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert identity == {"name": "s", "version": "1.0.0", "title": "T", "description": "D", "icons": [ICON]}


@pytest.mark.covers("J9", "J59")
async def test_the_identity_and_capabilities_of_the_client_reach_the_handler() -> None:
    seen: list[Any] = []

    async def look(ctx: Context) -> None:
        seen.append((ctx.client, dict(ctx.client_capabilities)))

    capabilities = {"experimental": {"x": {"y": 1}}, "roots": {"listChanged": True}, "sampling": {}, "later": {"a": 1}}
    async with connect(Server("s", tools=look)) as client:
        await client.initialize("2025-11-25", capabilities, title="Raw", description="By hand.")
        await client.call("look")
    identity, declared = seen[0]
    assert (identity.name, identity.title, identity.description) == ("raw", "Raw", "By hand.")
    assert declared == capabilities


@pytest.mark.covers("T-1")
@cases(
    ("asked", "answered"),
    [(each, each) for each in LEGACY]
    + [("1999-01-01", "2025-11-25"), ("2099-01-01", "2025-11-25"), ("", "2025-11-25")],
)
async def test_versions_are_negotiated(asked: str, answered: str) -> None:
    async with connect(Server("s")) as client:
        assert (await client.initialize(asked))["protocolVersion"] == answered


# --- Capabilities ---


@pytest.mark.covers("J64", "DIS-1")
async def test_the_default_set() -> None:
    async with connect(Server("s"), MODERN) as client:
        assert (await client.result("server/discover"))["capabilities"] == {
            "logging": {},
            "tools": {"listChanged": True},
        }


@pytest.mark.covers("J64")
async def test_overrides_win_and_none_takes_away() -> None:
    server = Server(
        "s",
        tools=ping_tool,
        resources=Resource("note://a", content="x"),
        capabilities={
            "tools": {"listChanged": False},
            "resources": {"subscribe": False},
            "logging": None,
            "experimental": {"a": {}},
        },
    )
    async with connect(server) as client:
        assert (await client.initialize("2025-11-25"))["capabilities"] == {
            "tools": {"listChanged": False},
            "resources": {"subscribe": False, "listChanged": True},
            "experimental": {"a": {}},
        }


@pytest.mark.covers("J64", "J65")
@cases("revision", REVISIONS)
async def test_none_never_reaches_the_wire_however_deep(revision: str) -> None:
    override = {
        "tools": {"listChanged": None},
        "experimental": {"a": {"limit": None, "deep": {"gone": None, "kept": 0}}, "b": None},
        "prompts": {"listChanged": None},
    }
    async with connect(Server("s", tools=ping_tool, capabilities=override)) as client:
        if revision == MODERN:
            await client.open(revision)
            declared = (await client.result("server/discover"))["capabilities"]
        else:
            declared = (await client.initialize(revision))["capabilities"]
    assert declared == {
        "logging": {},
        "tools": {},
        "prompts": {},
        "experimental": {"a": {"deep": {"kept": 0}}},
    }


@pytest.mark.covers("DIS-1", "1.8.1")
@cases("revision", LEGACY)
async def test_a_method_behind_a_capability_that_is_not_there_is_not_found(revision: str) -> None:
    server = Server("s", tools=ping_tool, capabilities={"logging": None})
    async with connect(server, revision) as client:
        for method, params in [
            ("resources/list", {}),
            ("resources/read", {"uri": "note://a"}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "p"}),
            ("logging/setLevel", {"level": "info"}),
        ]:
            assert (await client.error(method, params))["code"] == -32601, method


@pytest.mark.covers("DIS-1", "VER-3")
async def test_what_is_declared_on_the_current_revision_works_and_the_rest_does_not() -> None:
    methods = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
    full = Server("f", tools=ping_tool, resources=Resource("n://a", content=1), prompts=Prompt.text("x", name="p"))
    for server in (Server("e"), full, Server("r", resources=Resource("n://a", content=1))):
        async with connect(server, MODERN) as client:
            declared = (await client.result("server/discover"))["capabilities"]
            for capability, method in methods.items():
                response = await client.request(method)
                assert ("result" in response) is (capability in declared), (server, method)
                assert capability in declared or response["error"]["code"] == -32601


@pytest.mark.covers("STL-6")
async def test_lists_are_the_same_on_every_connection() -> None:
    server = Server("s", tools=ping_tool, prompts=Prompt.text("x", name="p"))
    async with connect(server, MODERN) as one, connect(server, MODERN) as other:
        await one.call("ping_tool")
        assert await one.result("tools/list") == await other.result("tools/list")
        assert await one.result("prompts/list") == await other.result("prompts/list")


@pytest.mark.covers("STL-1", "STL-2", "STL-4")
async def test_state_under_a_handle_outlives_the_connection() -> None:
    server = Server("s")

    @server.tool
    async def put(handle: str, value: str, ctx: Context) -> None:
        await ctx.server.stores.kv.put(f"cart:{handle}", value.encode())

    @server.tool
    async def get(handle: str, ctx: Context) -> str:
        return (await ctx.server.stores.kv.get(f"cart:{handle}") or b"empty").decode()

    async with connect(server, MODERN) as client:
        await client.call("put", {"handle": "a", "value": "apples"})
        assert (await client.call("get", {"handle": "b"}))["content"][0]["text"] == "empty"
    async with connect(server, "2025-06-18") as client:
        assert (await client.call("get", {"handle": "a"}))["content"][0]["text"] == "apples"


@pytest.mark.covers("STL-3")
async def test_requests_of_unrelated_conversations_interleave() -> None:
    server = Server("s")
    gates: dict[str, asyncio.Event] = {}

    @server.tool
    async def wait(name: str, ctx: Context) -> str:
        ctx.state["name"] = name
        gates[name] = asyncio.Event()
        await gates[name].wait()
        return str(ctx.state["name"])

    async with connect(server, MODERN) as client:
        first = client.start("tools/call", {"name": "wait", "arguments": {"name": "a"}})
        second = client.start("tools/call", {"name": "wait", "arguments": {"name": "b"}})
        await client.result("server/discover")
        while len(gates) < 2:
            await asyncio.sleep(0)
        gates["b"].set()
        assert (await second)["result"]["content"][0]["text"] == "b"
        assert not first.done()
        gates["a"].set()
        assert (await first)["result"]["content"][0]["text"] == "a"


# --- Leaving ---


@cases("revision", REVISIONS)
def test_a_server_that_nobody_needs_any_more_is_freed(revision: str) -> None:
    async def used() -> weakref.ref[Server]:
        server = Server("short", tools=ping_tool)
        server.mount(Server("inner", tools=ping_tool), "inner")
        async with Client(server, revision=revision) as client:
            await client.list_tools()
            await client.call_tool("ping_tool")
        return weakref.ref(server)

    left = asyncio.run(used())
    gc.collect()
    assert left() is None


# --- Protocol helpers ---


@pytest.mark.covers("J54", "J55")
def test_versions_and_features_can_be_asked_for() -> None:
    assert [each for each in types.REVISIONS if types.is_supported(each)] == list(REVISIONS)
    assert not types.is_supported("2023-01-01")
    first = {
        "tasks": "2025-11-25",
        "sse_priming": "2025-11-25",
        "icons": "2025-11-25",
        "sampling_tools": "2025-11-25",
        "oidc_discovery": "2025-11-25",
        "incremental_scope_consent": "2025-11-25",
        "url_elicitation": "2025-11-25",
        "streamable_http": "2025-03-26",
        "resource_links": "2025-06-18",
    }
    for feature, revision in first.items():
        assert next(each for each in REVISIONS if types.supports(each, feature)) == revision


@pytest.mark.covers("J63", "R9")
async def test_an_error_of_a_handlers_own() -> None:
    from toolwire import ProtocolError

    server = Server("s")

    @server.tool
    async def refuse() -> None:
        raise ProtocolError(-31999, "Out of paper", {"tray": 2})

    async with connect(server, MODERN) as client:
        error = await client.error("tools/call", {"name": "refuse"})
    assert error == {"code": -31999, "message": "Out of paper", "data": {"tray": 2}}


@cases("revision", REVISIONS)
async def test_the_client_and_the_server_go_together(revision: str) -> None:
    async with testing.connect(Server("s", tools=ping_tool), revision=revision) as (client, _):
        assert (await client.call_tool("ping_tool")).text == "pong"
