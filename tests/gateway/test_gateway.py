"""`Gateway`: several servers as one, while they come, change and go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.gateway.backs import (
    OVER,
    REVISIONS,
    Away,
    Recorded,
    behind,
    everything,
    gateway_before,
    listens,
    one,
    told,
    tool_named,
    until,
)

from toolwire import Client, Context, Server, ToolResult, testing
from toolwire.client.target import Link
from toolwire.gateway import Gateway, list_follower
from toolwire.protocol import types as t
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import GATEWAYS_KEY
from toolwire.server.limits import Limits

FRONT_AND_BACK = pytest.mark.parametrize(
    ("front", "back", "far"), [(front, back, far) for front in REVISIONS for back in REVISIONS for far in OVER]
)


# --- names ---


@pytest.mark.covers("GW-4.1")
async def test_two_servers_with_the_same_tools_stay_apart() -> None:
    gateway = Gateway("front")
    gateway.add("one", one("first", "run")).add("two", one("second", "run"))
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("one_run", returns=str) == "first"
        assert await client.call_tool("two_run", returns=str) == "second"


@cases("first", ["x", "x_admin"])
@cases("revision", ["2025-11-25", MODERN])
async def test_tool_name_belongs_to_the_server_with_the_longest_prefix(revision: str, first: str) -> None:
    backs = {"x": one("taken over", "admin_delete", "admin_other"), "x_admin": one("own", "delete")}
    gateway = Gateway("front")
    for name in sorted(backs, key=lambda each: each != first):
        gateway.add(name, backs[name])
    async with testing.connect(gateway, revision=revision) as (client, _):
        assert await client.call_tool("x_admin_delete", returns=str) == "own"
        assert await client.call_tool("x_admin_other", returns=str) == "taken over"
        assert gateway.backs["x"].hidden == ("x_admin_delete",)


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_names_of_a_server_that_was_never_reached_are_withheld_from_others(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    target = Away(one("own", "delete"))
    gateway = Gateway("front").add("x", one("taken over", "admin_delete", "look"))
    gateway.add("x_admin", target, list_timeout=0.1)
    async with testing.connect(gateway, revision=revision) as (client, _):
        assert [each.name for each in await client.list_tools()] == ["x_look"]
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("x_admin_delete")
        await until(lambda: "two servers have 'x_admin_delete', or may have it" in caplog.text)
        assert gateway.backs["x"].hidden == ("x_admin_delete",)
        target.is_there = True
        await until(lambda: gateway.backs["x_admin"].state == "ready")
        assert await client.call_tool("x_admin_delete", returns=str) == "own"


@pytest.mark.covers("GW-4.1", "GW-4.3")
async def test_names_are_looked_up_and_never_taken_apart(caplog: pytest.LogCaptureFixture) -> None:
    gateway = Gateway("front")
    gateway.add("a_b", one("long", "c", "x")).add("a", one("short", "b_c", "b_y"))
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("a_b_x", returns=str) == "long"
        assert await client.call_tool("a_b_y", returns=str) == "short"
        assert await client.call_tool("a_b_c", returns=str) == "long"
        assert gateway.backs["a"].hidden == ("a_b_c",)
    assert "two servers have 'a_b_c'" in caplog.text


@pytest.mark.covers("GW-4.2")
async def test_long_names_are_cut_and_found_again() -> None:
    long = "n" * 100 + "_search"
    gateway = Gateway("front")
    gateway.add("back", one("b", long))
    async with testing.connect(gateway) as (client, _):
        (tool,) = await client.list_tools()
        assert len(tool.name) == 64 and tool.name.startswith("back_") and tool.name.endswith("_search")
        assert await client.call_tool(tool.name, returns=str) == "b"


@pytest.mark.parametrize("prefix", ["", "x."])
async def test_the_prefix_is_what_was_given(prefix: str) -> None:
    gateway = Gateway("front")
    gateway.add("back", one("b", "run"), prefix=prefix)
    async with testing.connect(gateway) as (client, _):
        assert [tool.name for tool in await client.list_tools()] == [f"{prefix}run"]


@cases(
    ("wrong", "text"),
    [
        (lambda gateway: gateway.add("one", Server("x")), "already"),
        (lambda gateway: gateway.add("", Server("x")), "printable"),
        (lambda gateway: gateway.add("n" * 33, Server("x")), "1 to 32"),
        (lambda gateway: gateway.add("two", 3), "cannot be added"),
        (lambda gateway: gateway.add("two", Server("x"), revision="1999-01-01"), "'two' cannot have the revision"),
        (lambda gateway: gateway.remove("two"), "neither a server nor a component 'two'; its servers: 'one'"),
    ],
)
def test_mistakes_are_named(wrong: Any, text: str) -> None:
    gateway = Gateway("front")
    gateway.add("one", Server("x"))
    with pytest.raises(ServerError, match=text):
        wrong(gateway)


async def test_a_gateway_has_components_of_its_own_too() -> None:
    gateway = Gateway("front", instructions="Mine.")
    gateway.add("back", everything())
    gateway.add(tool_named("own", "here"))
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("own", returns=str) == "here"
        assert client.instructions == "Mine.\n\nback: Ask the back."
    gateway.remove("own")


# --- addresses ---


def notes(name: str) -> Server:
    server = Server(name)

    @server.resource("note://today")
    def today() -> str:
        return name

    @server.resource("day://{day}")
    def at(day: str) -> str:
        return f"{name} {day}"

    @server.tool(meta={"ui": {"resourceUri": "note://today"}, "ui/resourceUri": "note://today"})
    async def link() -> Any:
        return ToolResult(
            [
                t.ResourceLink(name="n", uri="note://today"),
                t.EmbeddedResource(resource=t.ResourceContents(uri="day://monday", text="x")),
                t.TextContent("note://today"),
            ],
            meta={"ui": {"resourceUri": "note://today"}},
        )

    return server


@pytest.mark.covers("GW-4.5")
@cases("revision", REVISIONS)
async def test_the_second_server_with_an_address_carries_its_name_everywhere(revision: str) -> None:
    gateway = Gateway("front")
    gateway.add("one", notes("first")).add("two", notes("second"))
    async with testing.connect(gateway, revision=revision) as (client, _):
        assert {each.uri for each in await client.list_resources()} == {"note://today", "note://two/today"}
        templates = {each.uri_template for each in await client.list_resource_templates()}
        assert templates == {"day://{day}", "day://two/{day}"}
        read = await client.read_resource("note://two/today")
        assert (read[0].uri, read[0].text) == ("note://two/today", "second")
        assert (await client.read_resource("note://today"))[0].text == "first"
        assert (await client.read_resource("day://two/monday"))[0].text == "second monday"
        assert (await client.read_resource("day://monday"))[0].text == "first monday"
        for tool in await client.list_tools():
            ui = "note://two/today" if tool.name == "two_link" else "note://today"
            assert isinstance(tool.meta, dict)
            assert (tool.meta["ui"], tool.meta["ui/resourceUri"]) == ({"resourceUri": ui}, ui)
        plain = await client.call_tool("one_link")
        named = await client.call_tool("two_link")
        link, embedded, text = named.to_wire().content
        assert (link.uri, embedded.resource.uri, text.text) == ("note://two/today", "day://two/monday", "note://today")
        assert named.meta is not None and named.meta["ui"] == {"resourceUri": "note://two/today"}
        assert plain.to_wire().content[0].uri == "note://today"


@pytest.mark.covers("GW-4.4")
async def test_adding_a_server_renames_nothing() -> None:
    gateway = Gateway("front")
    gateway.add("two", notes("second"))
    async with testing.connect(gateway) as (client, _):
        assert (await client.read_resource("note://today"))[0].text == "second"
        async with client.listen(resources_list=True) as changes:
            gateway.add("one", notes("first"))
            assert await told(changes) == "resources"
        await until(lambda: gateway.backs["one"].state == "ready" and gateway.backs["one"].resources == 2)
        assert (await client.read_resource("note://today"))[0].text == "second"
        assert (await client.read_resource("note://one/today"))[0].text == "first"


@pytest.mark.covers("GW-4.4")
async def test_an_address_that_becomes_free_renames_nothing_that_is_there() -> None:
    first, second = notes("first"), notes("second")
    gateway = Gateway("front")
    gateway.add("one", first).add("two", second)
    async with testing.connect(gateway) as (client, _):
        gateway.remove("one")
        second.notify_changed("resources")
        assert (await client.read_resource("note://two/today"))[0].text == "second"
        gateway.add("three", notes("third"))
        await until(lambda: gateway.backs["three"].resources == 2)
        assert (await client.read_resource("note://today"))[0].text == "third"
        assert (await client.read_resource("note://two/today"))[0].text == "second"


async def test_an_address_of_the_gateway_itself_stays_its_own() -> None:
    gateway = Gateway("front")

    @gateway.resource("note://today")
    def own() -> str:
        return "own"

    gateway.add("one", notes("first"))
    async with testing.connect(gateway) as (client, _):
        assert (await client.read_resource("note://today"))[0].text == "own"
        assert (await client.read_resource("note://one/today"))[0].text == "first"


# --- changes ---


@pytest.mark.covers("GW-3.9", "GW-7.2", "GW-11.10")
@FRONT_AND_BACK
async def test_changes_of_a_server_are_told_once(front: str, back: str, far: str) -> None:
    server = one("b", "run")
    recorded = Recorded()
    async with (
        gateway_before(server, far, back, recorded) as gateway,
        testing.connect(gateway, revision=front) as (client, wire),
    ):
        assert [tool.name for tool in await client.list_tools()] == ["b_run"]
        async with client.listen(tools=True) as changes:
            await until(lambda: listens(recorded, back))
            server.add(tool_named("more", "b"))
            assert await told(changes) == "tools"
            assert {tool.name for tool in await client.list_tools()} == {"b_run", "b_more"}
            # The list is the same as before, so that nobody is told.
            before = len(recorded.sent("tools/list"))
            server.notify_changed("tools")
            await until(lambda: len(recorded.sent("tools/list")) > before)
            await client.call_tool("b_more")
        announced = [each for each in wire.received if each.get("method") == "notifications/tools/list_changed"]
        assert len(announced) == 1


@pytest.mark.covers("GW-11.10")
@pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
async def test_a_change_that_is_told_in_one_conversation_only_is_followed(front: str) -> None:
    """Legacy servers in Python announce changes in the session whose call made them, and in no other."""
    names = ["grow"]

    def listed(request: Any, outlet: Any) -> Raw:
        return Raw(
            msgspec.json.encode({"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in names]})
        )

    def called(request: Any, outlet: Any) -> Any:
        if "sprout" not in names:
            names.append("sprout")
            outlet.connection.notify("notifications/tools/list_changed", t.NotificationParams())
        return text(request.params.name)

    server = FakeServer({"tools/list": listed, "tools/call": called}, capabilities={"tools": {"listChanged": True}})
    gateway = Gateway("front")
    gateway.add("b", server, revision="2025-11-25")
    async with testing.connect(gateway, revision=front) as (client, _), client.listen(tools=True) as changes:
        await client.call_tool("b_grow")
        assert await told(changes) == "tools"
        assert (await client.call_tool("b_sprout")).text == "sprout"


@pytest.mark.covers("GW-3.10")
@pytest.mark.parametrize("back", REVISIONS)
@pytest.mark.parametrize("front", REVISIONS)
async def test_a_client_reads_again_what_changed_while_a_server_was_too_slow_to_tell(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_follower, "SUBSCRIBE_SECONDS", 0.05)
    monkeypatch.setattr(list_follower, "FIRST_LISTEN_SECONDS", 0.01)
    is_slow, refused = True, asyncio.Event()

    async def slow(ctx: Context, call_next: Any) -> Any:
        if is_slow and ctx.method in ("resources/subscribe", "subscriptions/listen"):
            refused.set()
            await asyncio.Event().wait()
        return await call_next(ctx)

    server = everything()
    server.use(slow)
    async with (
        gateway_before(server, "memory", back) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
        client.listen(resources=["note://today"]) as changes,
    ):
        await refused.wait()
        server.notify_updated("note://today")  # Which nobody hears.
        is_slow = False
        heard = aiter(changes)
        assert await told(heard) == "resource"
        server.notify_updated("note://today")
        assert await told(heard) == "resource"


@pytest.mark.covers("GW-3.10")
@FRONT_AND_BACK
async def test_updates_of_a_resource_reach_its_subscribers(front: str, back: str, far: str) -> None:
    server = everything()
    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
        client.listen(resources=["note://today"]) as changes,
    ):
        # The server was subscribed before the client was told so, and no update is missed.
        server.notify_updated("note://today")
        change = await anext(aiter(changes))
        assert (change.kind, change.uri) == ("resource", "note://today")


@pytest.mark.covers("GW-1.2")
async def test_servers_come_and_go_while_a_client_is_connected() -> None:
    gateway = Gateway("front")
    gateway.add("one", one("first", "run"))
    async with testing.connect(gateway) as (client, _):
        async with client.listen(tools=True) as changes:
            gateway.add("two", one("second", "run"))
            await told(changes)
        await until(lambda: gateway.backs["two"].tools == 1)
        assert await client.call_tool("two_run", returns=str) == "second"
        gateway.remove("two")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("two_run")
        assert await client.call_tool("one_run", returns=str) == "first"
        gateway.add("two", one("third", "run"))
        await until(lambda: gateway.backs["two"].tools == 1)
        assert await client.call_tool("two_run", returns=str) == "third"


@pytest.mark.covers("GW-1.2")
async def test_a_call_ends_where_it_began_when_its_server_is_removed() -> None:
    server = Server("b")
    begun, go_on = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await go_on.wait()
        return "ended well"

    gateway = Gateway("front")
    gateway.add("b", server)
    async with testing.connect(gateway) as (client, _):
        call = asyncio.ensure_future(client.call_tool("b_wait", returns=str))
        await begun.wait()
        gateway.remove("b")
        assert await client.list_tools() == []
        go_on.set()
        assert await call == "ended well"


# --- servers that are away ---


@pytest.mark.covers("GW-7.4", "GW-11.9")
@cases("revision", REVISIONS)
async def test_a_server_that_is_away_is_named_and_the_others_are_served(revision: str) -> None:
    gateway = Gateway("front")
    gateway.add("gone", Away()).add("there", one("b", "run"))
    async with testing.connect(gateway, revision=revision) as (client, wire):
        assert [tool.name for tool in await client.list_tools()] == ["there_run"]
        listed = next(each["result"] for each in reversed(wire.received) if "tools" in each.get("result", {}))
        assert listed["_meta"][MISSING_KEY] == ["gone"]
        assert gateway.backs["gone"].state == "away"
        assert "nobody is at home" in (gateway.backs["gone"].error or "")
        assert await client.call_tool("there_run", returns=str) == "b"


@pytest.mark.covers("GW-7.7")
async def test_a_server_that_hangs_holds_nobody_up() -> None:
    class Hanging(Away):
        async def open(self) -> Link:
            await asyncio.Event().wait()
            raise AssertionError

    gateway = Gateway("front")
    gateway.add("hangs", Hanging(), list_timeout=0.01).add("hangs too", Hanging(), list_timeout=0.01)
    gateway.add("there", one("b", "run"))
    async with testing.connect(gateway) as (client, _):
        await until(lambda: gateway.backs["there"].tools == 1)
        assert [tool.name for tool in await client.list_tools()] == ["there_run"]
        assert gateway.backs["hangs"].state == "away"


async def test_a_server_that_comes_late_is_told_as_a_change() -> None:
    late = Away(one("b", "run"))
    gateway = Gateway("front")
    gateway.add("late", late)
    async with testing.connect(gateway) as (client, wire):
        assert await client.list_tools() == []
        async with client.listen(tools=True) as changes:
            late.is_there = True
            assert await told(changes) == "tools"
        assert await client.call_tool("late_run", returns=str) == "b"
        await client.list_tools()
        listed = next(each["result"] for each in reversed(wire.received) if "tools" in each.get("result", {}))
        assert MISSING_KEY not in listed["_meta"]


@pytest.mark.covers("GW-12.1")
async def test_a_call_to_a_server_that_went_away_names_it() -> None:
    target = Away(one("b", "run"))
    target.is_there = True
    gateway = Gateway("front")
    gateway.add("fragile", target)
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("fragile_run", returns=str) == "b"
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        failed = await client.call_tool("fragile_run")
        assert failed.is_error
        assert "The server 'fragile' behind this one failed: nobody is at home" in failed.text
        target.is_there = True
        await until(lambda: gateway.backs["fragile"].state == "ready")
        assert await client.call_tool("fragile_run", returns=str) == "b"


@pytest.mark.covers("GW-11.11")
async def test_a_server_that_was_upgraded_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_follower, "ERA_SECONDS", 0.02)
    monkeypatch.setattr("toolwire.client.target.VERDICT_SECONDS", 0.01)
    async with behind(one("b", "run"), "http") as target:
        target.verdict = "legacy"
        gateway = Gateway("front")
        gateway.add("b", target)
        async with testing.connect(gateway) as (client, _):
            await until(lambda: gateway.backs["b"].revision == MODERN)
            assert await client.call_tool("b_run", returns=str) == "b"


@pytest.mark.covers("GW-4.6")
async def test_endless_pages_end() -> None:
    server = Server("b", page_size=1)
    for number in range(70):
        server.add(tool_named(f"t{number:02}", "x"))
    gateway = Gateway("front")
    gateway.add("b", server)
    async with testing.connect(gateway) as (client, wire):
        assert len(await client.list_tools()) == 64
        listed = next(each["result"] for each in reversed(wire.received) if "tools" in each.get("result", {}))
        assert listed["_meta"][MISSING_KEY] == ["b"]


async def test_a_list_has_the_mark_of_its_gateway_however_many_servers_are_behind_it() -> None:
    """A gateway in a circle reads a bounded number of marks, and its own has to be among them."""
    gateway = Gateway("front")
    for number in range(3):
        gateway.add(f"b{number}", everything())
    async with testing.connect(gateway) as (client, wire):
        await client.list_tools()
        listed = next(each["result"] for each in reversed(wire.received) if "tools" in each.get("result", {}))
        assert listed["_meta"][GATEWAYS_KEY] == [gateway.catalog.mark]


@pytest.mark.covers("GW-4.6", "GW-11.7")
async def test_three_servers_with_three_pages_each() -> None:
    gateway = Gateway("front")
    for name in ("a", "b", "c"):
        server = Server(name, page_size=2)
        for number in range(6):
            server.add(tool_named(f"t{number}", name))
        gateway.add(name, server)
    async with testing.connect(gateway) as (client, wire):
        assert len(await client.list_tools()) == 18
        assert len([each for each in wire.sent if each["method"] == "tools/list"]) == 1


# --- any server ---


@pytest.mark.covers("GW-1.3")
@pytest.mark.parametrize("over", ["stdio", "port"])
async def test_any_server_mounts_what_a_client_connects_to(over: str, tmp_path: Any) -> None:
    file = tmp_path / "back.py"
    file.write_text(
        "from toolwire import Server\n"
        "server = Server('back')\n"
        "@server.tool\n"
        "async def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "if __name__ == '__main__':\n"
        "    server.run()\n"
    )
    front = Server("front")
    if over == "stdio":
        front.mount(str(file), prefix="far")
        async with Client(front) as client:
            assert await client.call_tool("far_add", {"a": 1, "b": 2}, returns=int) == 3
        return
    async with testing.connect(everything(), over="port") as (direct, _):
        front.mount(direct_url(direct), prefix="far")
        async with Client(front) as client:
            assert await client.call_tool("far_add", {"a": 1, "b": 2}, returns=int) == 3


def direct_url(client: Client) -> str:
    return repr(client).removeprefix("<Client of ").partition(",")[0]


async def test_instructions_of_all_servers_are_bounded() -> None:
    gateway = Gateway("front", instructions="Own.")
    for number in range(12):
        gateway.add(f"b{number}", Server("back", instructions=str(number % 10) * 5_000))
    async with testing.connect(gateway) as (client, _):
        instructions = client.instructions
        assert instructions is not None
        blocks = instructions.split("\n\n")
        assert blocks[0] == "Own."
        assert blocks[1] == "b0: " + "0" * 4_000
        assert len(blocks) == 9
        assert len(instructions) < 33_000


@cases(
    ("options", "pages"),
    [({}, 1), ({"limits": Limits(depth=64)}, 1), ({"page_size": 700}, 2), ({"limits": Limits(page=500)}, 3)],
)
async def test_list_comes_in_one_page_unless_the_operator_sets_a_size(options: dict[str, Any], pages: int) -> None:
    server = Server("b")
    for number in range(1_200):
        server.add(tool_named(f"t{number}", "x"))
    gateway = Gateway("front", **options).add("b", server)
    async with testing.connect(gateway) as (client, wire):
        assert len(await client.list_tools()) == 1_200
        assert sum("tools" in each.get("result", {}) for each in wire.received) == pages
