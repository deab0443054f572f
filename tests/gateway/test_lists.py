"""Lists of servers behind a gateway: kept fresh, partial and saying so, never waiting for the slowest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import Away, Recorded, behind, gateway_before, listens, one, told, tool_named, until

from toolwire import Client, Gateway, Policy, Server, ToolResult, testing
from toolwire.gateway import availability, list_follower
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN
from toolwire.server import list_changes
from toolwire.server.components import Cache

ERAS = (MODERN, "2025-11-25")
FRONT_AND_BACK = pytest.mark.parametrize(("front", "back"), [(front, back) for front in ERAS for back in ERAS])
FRONT = pytest.mark.parametrize("front", ERAS)


@asynccontextmanager
async def fragile(front: str, back: str, **options: Any) -> AsyncIterator[tuple[Gateway, Away, Client, Any]]:
    """Yield a gateway before a server that can leave, and one that stays."""
    target = Away(one("b", "run"), is_there=True)
    gateway = Gateway("front", **options)
    gateway.add("fragile", target, revision=back).add("there", one("t", "run"))
    async with testing.connect(gateway, revision=front) as (client, wire):
        yield gateway, target, client, wire


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


def last_list(wire: Any) -> dict[str, Any]:
    listed = (each["result"] for each in reversed(wire.received) if "tools" in each.get("result", {}))
    return next(iter(listed))


def announced(wire: Any, family: str = "tools") -> int:
    return sum(each.get("method") == f"notifications/{family}/list_changed" for each in wire.received)


# --- servers that are away ---


@pytest.mark.covers("GW-7.4")
@FRONT_AND_BACK
async def test_the_part_of_a_server_that_went_away_is_missing_until_it_is_back(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "GRACE_SECONDS", 0.01)
    async with fragile(front, back) as (_, target, client, wire):
        assert await names(client) == ["fragile_run", "there_run"]
        assert MISSING_KEY not in last_list(wire)["_meta"]
        async with client.listen(tools=True) as changes:
            await target.leave()
            assert await told(changes) == "tools"
            assert await names(client) == ["there_run"]
            assert last_list(wire)["_meta"][MISSING_KEY] == ["fragile"]
            failed = await client.call_tool("fragile_run")
            assert failed.is_error and "The server 'fragile' behind this one failed" in failed.text
            target.is_there = True
            assert await told(changes) == "tools"
        assert await names(client) == ["fragile_run", "there_run"]
        assert MISSING_KEY not in last_list(wire)["_meta"]
        assert announced(wire) == 2


@pytest.mark.covers("GW-7.6")
@FRONT_AND_BACK
async def test_a_stale_list_is_served_where_that_is_wanted(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "GRACE_SECONDS", 0.0)
    async with fragile(front, back, stale=True) as (gateway, target, client, wire):
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        failed = await client.call_tool("fragile_run")
        assert failed.is_error and "The server 'fragile' behind this one failed: nobody is at home" in failed.text
        assert await names(client) == ["fragile_run", "there_run"]
        assert last_list(wire)["_meta"][MISSING_KEY] == ["fragile"]
        assert announced(wire) == 0


@pytest.mark.covers("GW-7.5")
@FRONT_AND_BACK
async def test_a_strict_gateway_refuses_a_list_that_is_not_complete(front: str, back: str) -> None:
    async with fragile(front, back, strict=True, capabilities={"resources": {}, "prompts": {}}) as (
        gateway,
        target,
        client,
        _,
    ):
        assert await names(client) == ["fragile_run", "there_run"]
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        for listing in (client.list_tools, client.list_resources, client.list_prompts, client.list_resource_templates):
            with pytest.raises(ProtocolError, match="The list is not complete: fragile cannot be reached"):
                await listing()
        assert await client.call_tool("there_run", returns=str) == "t"
        target.is_there = True
        await until(lambda: gateway.backs["fragile"].state == "ready")
        assert await names(client) == ["fragile_run", "there_run"]


@pytest.mark.covers("GW-7.2")
async def test_a_server_that_comes_back_soon_is_no_change() -> None:
    target = Away(one("b", "run"), is_there=True)
    gateway = Gateway("front").add("fragile", target)
    async with testing.connect(gateway, revision="2025-11-25") as (client, wire):
        await target.leave()
        await until(lambda: gateway.backs["fragile"].state == "away")
        target.is_there = True
        await until(lambda: gateway.backs["fragile"].state == "ready")
        assert await client.call_tool("fragile_run", returns=str) == "b"
        assert announced(wire) == 0


@FRONT_AND_BACK
async def test_somebody_who_asks_for_a_list_makes_the_next_attempt_come_sooner(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_follower, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(list_follower.Backoff, "after", lambda self, retry: 600.0)
    target = Away(one("b", "run"))
    gateway = Gateway("front").add("late", target, revision=back)
    async with testing.connect(gateway, revision=front) as (client, _):
        assert await names(client) == []
        target.is_there = True
        async with client.listen(tools=True) as changes:
            await client.list_tools()
            assert await told(changes) == "tools"
        assert await names(client) == ["late_run"]


async def test_a_call_that_fails_shows_that_its_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server announces no changes over HTTP, so that no stream ends with it."""
    async with behind(quiet(), "http") as target:
        gateway = Gateway("front").add("b", target)
        async with testing.connect(gateway) as (client, _):
            assert await client.call_tool("b_run", returns=str) == "b"

            async def refuse(*_: Any, **__: Any) -> Any:
                raise Unreachable("nobody is at home")

            monkeypatch.setattr(AsgiPool, "send", refuse)
            assert (await client.call_tool("b_run")).is_error
            await until(lambda: gateway.backs["b"].state == "away")


@FRONT_AND_BACK
async def test_a_client_that_connects_while_a_server_is_away_uses_all_of_it_later(front: str, back: str) -> None:
    server = one("b", "run")

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    @server.prompt
    def brief() -> str:
        return "Be brief."

    target = Away(server)
    gateway = Gateway("front").add("late", target, revision=back)
    async with testing.connect(gateway, revision=front) as (client, _):
        assert await client.list_resources() == [] and await client.list_prompts() == []
        async with client.listen(resources_list=True, prompts=True) as changes:
            target.is_there = True
            await told(changes)
        assert [each.uri for each in await client.list_resources()] == ["note://today"]
        assert [each.name for each in await client.list_prompts()] == ["late_brief"]


# --- servers that are slow ---


@pytest.mark.covers("GW-7.7")
@FRONT_AND_BACK
async def test_a_list_that_comes_late_is_told_as_a_change(front: str, back: str) -> None:
    server = Server("slow")
    go_on = asyncio.Event()

    @server.on_list_tools
    async def listed() -> list[Any]:
        await go_on.wait()
        return [{"name": "run", "inputSchema": {"type": "object"}}]

    @server.on_call_tool
    async def called(name: str, arguments: Any) -> str:
        return "late"

    gateway = Gateway("front")
    gateway.add("slow", server, revision=back, list_timeout=0.01).add("there", one("t", "run"))
    async with testing.connect(gateway, revision=front) as (client, wire):
        assert await names(client) == ["there_run"]
        assert last_list(wire)["_meta"][MISSING_KEY] == ["slow"]
        async with client.listen(tools=True) as changes:
            go_on.set()
            assert await told(changes) == "tools"
        assert await names(client) == ["slow_run", "there_run"]
        assert await client.call_tool("slow_run", returns=str) == "late"


# --- changes ---


@pytest.mark.covers("GW-7.2")
@FRONT
async def test_a_change_that_does_not_show_in_the_merged_list_is_not_told(front: str) -> None:
    first, second = one("first", "run"), one("second", "run")
    recorded = Recorded()
    async with behind(second, "memory", recorded) as target:
        gateway = Gateway("front")
        gateway.add("one", first, prefix="").add("two", target, prefix="")
        async with testing.connect(gateway, revision=front) as (client, wire), client.listen(tools=True) as changes:
            await until(lambda: listens(recorded, MODERN))
            before = gateway.backs["two"].last_change
            second.remove("run")
            await until(lambda: gateway.backs["two"].last_change != before)
            # The next change is told, and it is the first one.
            first.add(tool_named("more", "first"))
            assert await told(changes) == "tools"
            assert await names(client) == ["more", "run"]
            assert announced(wire) == 1


@pytest.mark.parametrize("own", [[], ["own"]])
async def test_a_server_that_is_added_later_is_told_of_when_its_components_are_known(
    own: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(list_changes, "TOGETHER_SECONDS", 0.0)
    monkeypatch.setattr(list_follower, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(list_follower.Backoff, "after", lambda self, retry: 0.01)
    gateway = Gateway("front", tools=[tool_named(each, each) for each in own])
    async with testing.connect(gateway) as (client, wire), client.listen(tools=True) as changes:
        target = Away(one("b", "run"))
        gateway.add("late", target)
        await until(lambda: gateway.backs["late"].state == "away")
        assert await names(client) == own
        assert announced(wire) == 0
        target.is_there = True
        assert await told(changes) == "tools"
        assert await names(client) == ["late_run", *own]
        assert announced(wire) == 1
    assert [each.message for each in caplog.records] == [
        "the server 'late' is away: nobody is at home",
        "the server 'late' is there now",
    ]


@pytest.mark.covers("GW-7.2")
@pytest.mark.parametrize(("front", "back"), [ERAS, ERAS[::-1]])
async def test_changes_of_several_servers_are_told_once(front: str, back: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_changes, "TOGETHER_SECONDS", 0.3)
    servers = [one(f"s{number}", "run") for number in range(3)]
    gateway = Gateway("front")
    for server in servers:
        gateway.add(server.name, server, revision=back)
    async with testing.connect(gateway, revision=front) as (client, wire), client.listen(tools=True) as changes:
        for server in servers:
            server.add(tool_named("more", server.name))
        assert await told(changes) == "tools"
        assert len(await names(client)) == 6
        assert announced(wire) == 1


@pytest.mark.covers("GW-3.10")
@pytest.mark.parametrize("back", ERAS)
async def test_all_clients_share_one_subscription_at_the_server(back: str) -> None:
    server = one("b", "run")
    recorded = Recorded()
    async with (
        gateway_before(server, "memory", back, recorded) as gateway,
        Client(gateway) as first,
        Client(gateway, revision="2025-11-25") as second,
        first.listen(tools=True) as changes,
        second.listen(tools=True) as others,
    ):
        await until(lambda: listens(recorded, back))
        server.add(tool_named("more", "b"))
        assert [await told(changes), await told(others)] == ["tools", "tools"]
        assert len(recorded.sent("subscriptions/listen")) == (back == MODERN)
        assert len(recorded.sent("tools/list")) == 2


def quiet(cache: Cache | None = None) -> Server:
    """Make a server that does not announce its changes."""
    server = Server("b", capabilities={"tools": {"listChanged": None}}, cache=cache)
    server.add(tool_named("run", "b"))
    return server


@pytest.mark.covers("GW-7.3")
@FRONT
@pytest.mark.parametrize(("ttl", "is_read_again"), [(0, True), (60_000, False)])
async def test_lists_are_kept_as_long_as_the_server_allows(
    front: str, ttl: int, is_read_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_follower, "LEAST_SECONDS", 0.0)
    server = quiet(Cache(ttl))
    async with (
        gateway_before(server, "memory", MODERN) as gateway,
        testing.connect(gateway, revision=front) as (client, _),
    ):
        assert await names(client) == ["b_run"]
        server.add(tool_named("more", "b"))
        assert await names(client) == (["b_more", "b_run"] if is_read_again else ["b_run"])


@pytest.mark.covers("GW-7.3")
@cases("back", ERAS)
@cases("answers", ["error", "result"])
async def test_a_tool_that_the_server_does_not_know_any_more_leaves_the_list(back: str, answers: str) -> None:
    server = Server("b", capabilities={"tools": {"listChanged": None}})
    tools = ["run", "stay"]

    @server.on_list_tools
    async def listed() -> list[Any]:
        return [{"name": name, "inputSchema": {"type": "object"}} for name in tools]

    @server.on_call_tool
    async def called(name: str, arguments: Any) -> Any:
        if answers == "error":
            raise ProtocolError(-32602, f"Tool {name} not found")
        return ToolResult(f"Unknown tool: {name}", is_error=True)

    async with (
        gateway_before(server, "memory", back) as gateway,
        testing.connect(gateway) as (client, _),
        client.listen(tools=True) as changes,
    ):
        assert await names(client) == ["b_run", "b_stay"]
        tools.remove("run")
        try:
            assert (await client.call_tool("b_run")).is_error
        except ProtocolError as error:
            assert error.code == -32602
        assert await told(changes) == "tools"
        assert await names(client) == ["b_stay"]


# --- who may keep them ---


@pytest.mark.covers("GW-7.1")
@pytest.mark.parametrize(("trust", "scope"), [(False, "private"), (True, "public")])
async def test_what_a_server_calls_public_is_private_unless_the_operator_trusts_it(trust: bool, scope: str) -> None:
    public = Cache(60_000, "public")
    server = Server("b", cache=public)
    server.add(tool_named("run", "b"))

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    gateway = Gateway("front", cache=public)
    gateway.add("b", server, trust=trust)
    async with testing.connect(gateway) as (client, wire):
        await client.list_tools()
        assert last_list(wire)["cacheScope"] == scope
        await client.read_resource("note://today")
        read = next(each["result"] for each in reversed(wire.received) if "contents" in each.get("result", {}))
        assert (read["cacheScope"], read["ttlMs"]) == (scope, 60_000)


@pytest.mark.covers("GW-7.1")
async def test_what_depends_on_the_caller_stays_private_whoever_is_trusted() -> None:
    server = Server("b", cache=Cache(60_000, "public"))

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    restricted = Policy(rate="100/minute", by_principal=lambda principal: None)
    gateway = Gateway("front", cache=Cache(60_000, "public"), policy=restricted)
    gateway.add("b", server, trust=True)
    async with testing.connect(gateway) as (client, wire):
        await client.read_resource("note://today")
        read = next(each["result"] for each in reversed(wire.received) if "contents" in each.get("result", {}))
        assert read["cacheScope"] == "private"
