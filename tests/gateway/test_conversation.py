"""Lists and subscriptions that a legacy upstream keeps for each client session."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.gateway import backs
from tests.gateway.backs import behind, until
from tests.gateway.test_sessions import client_of, replicas
from tests.runtimes import runtime_of

from toolwire import Client, Context, Server, testing
from toolwire.client.http_target import HttpTarget
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway, conversation, list_follower
from toolwire.gateway.bridge import Bridge
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.server.access import identity_of
from toolwire.server.policy import Policy
from toolwire.server.shaping import Shape, ToolPins, ToolShape
from toolwire.wire.session import Session

BACK = [sys.executable, str(Path(__file__).with_name("stateful_back.py"))]
OVER = ("memory", "http")
LEGACY = "2025-11-25"
MakeClient = Callable[[], Client]


@asynccontextmanager
async def clients(over: str, gateway: Server) -> AsyncIterator[MakeClient]:
    """Yield what makes clients of a gateway."""
    if over == "memory":
        yield lambda: Client(gateway, revision=LEGACY)
        return
    app = gateway.http_app()
    pool = AsgiPool(app)
    try:
        yield lambda: Client(HttpTarget("http://localhost/mcp", pool=pool), revision=LEGACY)
    finally:
        app.drain()
        await pool.close()
        await app.stop()


def gateway_before(*arguments: str, **options: Any) -> Gateway:
    gateway = Gateway("front")
    gateway.add("b", [*BACK, *arguments], **options)
    return gateway


async def names(client: Client) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


async def next_change(changes: Any) -> Any:
    async with asyncio.timeout(20):
        return await anext(changes)


@pytest.mark.covers("GW-6.20")
@cases("over", OVER)
async def test_tool_of_one_session_is_listed_and_called_in_that_session_only(over: str) -> None:
    gateway = gateway_before()
    async with (
        clients(over, gateway) as make,
        make() as one,
        make() as other,
        one.listen(tools=True) as changes,
        other.listen(tools=True) as unheard,
    ):
        told, untold = aiter(changes), aiter(unheard)
        assert await one.call_tool("b_grow", returns=str) == "grow of 5"
        assert (await next_change(told)).kind == "tools"
        assert "b_extra" in await names(one)
        assert await one.call_tool("b_extra", returns=str) == "extra of 5"
        assert "b_extra" not in await names(other)
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await other.call_tool("b_extra")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(untold)
        assert {each.uri for each in await one.list_resources()} == {"note://shared", "note://extra"}
        assert {each.uri for each in await other.list_resources()} == {"note://shared"}


class Announcing(FakeServer):
    """A server of 2025-11-25 that adds a tool to a session, and announces what it adds for all in one session alone."""

    def __init__(self) -> None:
        handlers = {"tools/list": self.list, "tools/call": self.grow}
        super().__init__(handlers, capabilities={"tools": {"listChanged": True}}, revisions=(LEGACY,))
        self.common = ["grow"]
        self.grown: set[Session] = set()

    def list(self, request: Any, outlet: Any) -> t.ListToolsResult:
        extra = ["extra"] if outlet.connection in self.grown else []
        return t.ListToolsResult(
            tools=[t.Tool(name=name, input_schema={"type": "object"}) for name in self.common + extra]
        )

    def grow(self, request: Any, outlet: Any) -> Any:
        self.grown.add(outlet.connection)
        self.announce(outlet.connection)
        return text("grown")

    def announce(self, session: Session) -> None:
        session.notify("notifications/tools/list_changed", UNSET)


@pytest.mark.covers("GW-6.20")
@cases("over", OVER)
async def test_tool_that_is_added_for_all_is_listed_beside_those_of_one_session(over: str) -> None:
    server = Announcing()
    gateway = Gateway("front").add("b", ServerTarget(server))  # type: ignore[arg-type]
    async with clients(over, gateway) as make, make() as one, one.listen(tools=True) as changes:
        await one.call_tool("b_grow")
        await next_change(aiter(changes))
        assert await names(one) == {"b_grow", "b_extra"}
        server.common.append("common")
        server.announce(server.sessions[0])  # The gateway reads the shared lists there.
        async with asyncio.timeout(20):
            while await names(one) != {"b_grow", "b_extra", "b_common"}:
                await next_change(aiter(changes))


@pytest.mark.covers("GW-6.20")
async def test_tool_of_one_session_is_found_again_for_what_was_kept_of_its_calls() -> None:
    gateway = gateway_before()
    async with Client(gateway, revision=LEGACY) as one, one.listen(tools=True) as changes:
        access = gateway.kernel.access
        before = access.find_tool(None, True, "b_grow", None)
        await one.call_tool("b_grow")
        await next_change(aiter(changes))
        overlaid = [each for each in gateway.catalog.each() if each.component.key == "grow" and len(each.way) == 2]
        assert before is not None and [identity_of(each) for each in overlaid] == [identity_of(before)]
        assert access.find_tool(None, True, "b_extra", None) is not None


@pytest.mark.covers("GW-6.21")
@cases("over", OVER)
async def test_update_reaches_the_session_that_subscribed(over: str) -> None:
    gateway = gateway_before()
    async with (
        clients(over, gateway) as make,
        make() as one,
        make() as other,
        one.listen(resources=["note://shared"]) as changes,
        other.listen(resources=["note://shared"]) as unheard,
    ):
        told, untold = aiter(changes), aiter(unheard)
        await one.call_tool("b_touch")
        assert (await next_change(told)).uri == "note://shared"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await anext(untold)


@pytest.mark.covers("GW-6.20")
@cases("over", OVER)
async def test_overlay_ends_with_its_reason_and_with_its_session(over: str) -> None:
    gateway = gateway_before()
    async with clients(over, gateway) as make, make() as one:
        back = gateway.catalog.mounts[0].catalog.owner
        async with one.listen(tools=True) as changes:
            told = aiter(changes)
            await one.call_tool("b_grow")
            await next_change(told)
            assert len(back.catalog.mounts) == 1  # type: ignore[attr-defined]
            await one.call_tool("b_shrink")
            await next_change(told)
            assert "b_extra" not in await names(one)
            assert not back.catalog.mounts  # type: ignore[attr-defined]
        async with make() as other:
            async with other.listen(tools=True) as changes:
                told = aiter(changes)
                await other.call_tool("b_grow")
                await next_change(told)
            assert len(back.catalog.mounts) == 1  # type: ignore[attr-defined]
        await until(lambda: not back.catalog.mounts)  # type: ignore[attr-defined]


class Growing:
    """A server whose tool `grow` adds the tool `extra` for the session that calls it."""

    def __init__(self) -> None:
        self.server: Server = Server("back")
        self.grown: set[str] = set()
        self.server.tool(self.grow)
        self.server.resource("note://shared")(lambda: "words")
        self.server.use(self.answer)

    def grow(self, ctx: Context) -> str:
        self.grown.add(str(ctx.session_id))
        self.tell(Change("tools"))
        return "grown"

    def tell(self, change: Change) -> None:
        for session in self.grown:
            runtime_of(self.server).hub.tell_client(session, change)

    async def answer(self, ctx: Context, call_next: Any) -> Any:
        is_grown = str(ctx.session_id) in self.grown
        if ctx.method == "tools/call" and ctx.params.name == "extra" and is_grown:
            return t.CallToolResult(content=[t.TextContent(text="extra")])
        result = await call_next(ctx)
        if ctx.method == "tools/list" and is_grown:
            result.tools = [*result.tools, t.Tool(name="extra", input_schema={"type": "object"})]
        return result


@pytest.mark.covers("GW-6.22")
async def test_session_that_moves_keeps_its_tools_and_subscriptions() -> None:
    growing = Growing()
    async with (
        behind(growing.server, "http") as target,
        replicas([{"b": target}, {"b": target}], LEGACY) as balancer,
        client_of(balancer, LEGACY) as client,
        client_of(balancer, LEGACY) as other,
        client.listen(tools=True, resources=["note://shared"]) as changes,
    ):
        told = aiter(changes)
        await client.call_tool("b_grow")
        assert (await next_change(told)).kind == "tools"
        for replica in (1, 0, 1):
            balancer.current = replica
            assert "b_extra" in await names(client)
            assert (await client.call_tool("b_extra")).text == "extra"
            assert "b_extra" not in await names(other)
        growing.tell(Change("updated", "note://shared"))
        while (await next_change(told)).kind != "resource":
            pass
        balancer.current = 1
        await balancer.stop(0)
        assert (await client.call_tool("b_extra")).text == "extra"
        assert "b_extra" not in await names(other)


@pytest.mark.covers("GW-6.22")
async def test_update_reaches_a_session_whose_replica_has_ended() -> None:
    growing = Growing()
    async with (
        behind(growing.server, "http") as target,
        replicas([{"b": target}, {"b": target}], LEGACY) as balancer,
        client_of(balancer, LEGACY) as client,
        client.listen(resources=["note://shared"]) as changes,
    ):
        told = aiter(changes)
        await client.call_tool("b_grow")
        balancer.current = 1
        await balancer.stop(0)
        assert (await client.call_tool("b_extra")).text == "extra"
        updated = asyncio.ensure_future(next_change(told))
        # The client itself counts a resource as changed when it opens its stream again.
        await asyncio.wait({updated}, timeout=20)
        updated = asyncio.ensure_future(next_change(told))
        while not (await asyncio.wait({updated}, timeout=1))[1]:
            updated = asyncio.ensure_future(next_change(told))
        growing.tell(Change("updated", "note://shared"))
        assert (await updated).uri == "note://shared"


@pytest.mark.covers("GW-6.22")
async def test_first_call_of_a_tool_that_another_replica_knows_is_made() -> None:
    growing = Growing()
    async with (
        behind(growing.server, "http") as target,
        replicas([{"b": target}, {"b": target}], LEGACY) as balancer,
        client_of(balancer, LEGACY) as client,
        client.listen(tools=True) as changes,
    ):
        await client.call_tool("b_grow")
        await next_change(aiter(changes))
        balancer.current = 1
        assert (await client.call_tool("b_extra")).text == "extra"


@pytest.mark.covers("GW-6.20")
@pytest.mark.parametrize("back", ["stdio", "http"])
async def test_bridge_hands_on_the_changes_of_a_session(back: str) -> None:
    async with AsyncExitStack() as stack:
        upstream = Growing().server if back == "http" else gateway_before()
        name = "grow" if back == "http" else "b_grow"
        direct, _ = await stack.enter_async_context(testing.connect(upstream, over="port", revision=LEGACY))
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        bridge = Bridge(url, revision=LEGACY)
        client, _ = await stack.enter_async_context(testing.connect(bridge, over="stdio", revision=LEGACY))
        changes = await stack.enter_async_context(client.listen(tools=True))
        await client.call_tool(name)
        assert (await next_change(aiter(changes))).kind == "tools"
        assert name.replace("grow", "extra") in await names(client)


@pytest.mark.covers("GW-6.23")
async def test_rules_of_the_gateway_hold_for_tools_of_one_session() -> None:
    gateway = Gateway("front")
    shape = Shape(deny=["extra"])
    gateway.add("denied", BACK, shape=shape)
    gateway.add("renamed", BACK, shape=Shape(tools={"extra": ToolShape(rename="more", description="Renamed")}))
    gateway.add("masked", BACK, policy=Policy(mask=[r"extra of \d"]))
    gateway.add("refused", BACK, policy=Policy(rate="1/hour"))
    gateway.add("pinned", BACK, shape=Shape(pins=ToolPins()))
    async with Client(gateway, revision=LEGACY) as client, client.listen(tools=True) as changes:
        told = aiter(changes)
        await client.list_tools()
        for back in ("denied", "renamed", "masked", "refused", "pinned"):
            await client.call_tool(f"{back}_grow")
        await next_change(told)
        await until_listed(client, "masked_extra", "refused_extra", "renamed_more")
        listed = await names(client)
        assert not {"denied_extra", "renamed_extra", "pinned_extra"} & listed
        assert (await client.call_tool("renamed_more")).text == "extra of 5"
        assert "extra of 5" not in (await client.call_tool("masked_extra")).text
        assert (await client.call_tool("refused_extra")).is_error
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("denied_extra")
        assert (await client.call_tool("pinned_extra")).is_error


async def until_listed(client: Client, *wanted: str) -> None:
    async with asyncio.timeout(20):
        while not set(wanted) <= await names(client):
            await asyncio.sleep(0.05)


# --- lists that are out of date ---


class Silent:
    """A server that may add a tool with or without an announcement."""

    def __init__(self) -> None:
        self.server: Server = Server("back")
        self.has_extra = False
        self.server.tool(self.grow)
        self.server.tool(self.announce)
        self.server.use(self.answer)

    def extra(self) -> str:
        return "a secret of 7"

    def grow(self) -> str:
        self.has_extra = True
        return "grown"

    def announce(self) -> str:
        self.server.tool(self.extra)
        return "announced"

    async def answer(self, ctx: Context, call_next: Any) -> Any:
        if ctx.method == "tools/call" and ctx.params.name == "extra" and self.has_extra:
            return t.CallToolResult(content=[t.TextContent(text=self.extra())])
        result = await call_next(ctx)
        if ctx.method == "tools/list":
            result.ttl_ms = 0
            if self.has_extra:
                result.tools = [*result.tools, t.Tool(name="extra", input_schema={"type": "object"})]
        return result


@pytest.mark.covers("GW-6.24")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("back", [MODERN, LEGACY])
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_list_after_the_call_that_changed_it_is_the_new_one(front: str, back: str, over: str) -> None:
    async with backs.gateway_before(Silent().server, over, back) as gateway, Client(gateway, revision=front) as client:
        assert "b_extra" not in await names(client)
        await client.call_tool("b_announce")
        assert "b_extra" in await names(client)


@pytest.mark.covers("GW-6.24")
async def test_list_that_may_not_be_kept_is_read_again_without_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_follower, "LEAST_SECONDS", 0.05)
    silent = Silent()
    async with backs.gateway_before(silent.server, "http", MODERN) as gateway, Client(gateway) as client:
        assert "b_extra" not in await names(client)
        silent.has_extra = True
        await asyncio.sleep(0.1)
        assert "b_extra" in await names(client)


@pytest.mark.covers("GW-6.24")
@pytest.mark.parametrize("back", [MODERN, LEGACY])
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_call_of_an_unlisted_tool_reads_the_list_first(
    front: str, back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_follower, "UNLISTED_SECONDS", 0.0)
    silent = Silent()
    policy = Policy(mask=["secret"], rate="3/hour")
    gateway = Gateway("front", policy=policy)
    async with backs.behind(silent.server, "http") as target:
        gateway.add("b", target, revision=back, policy=Policy(mask=["7"]))
        async with Client(gateway, revision=front) as client:
            await client.list_tools()
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await client.call_tool("b_extra")
            silent.has_extra = True
            for _ in range(2):
                text = (await client.call_tool("b_extra")).text
                assert "7" not in text and "secret" not in text
            assert (await client.call_tool("b_extra")).is_error, "the call of the unlisted tool was counted"


@pytest.mark.covers("GW-6.24")
@cases("over", OVER)
async def test_call_of_an_unlisted_tool_of_a_session_reads_the_list_of_the_session(over: str) -> None:
    gateway = gateway_before()
    async with clients(over, gateway) as make, make() as one, make() as other:
        await one.call_tool("b_grow", {"quiet": True})
        assert (await one.call_tool("b_extra")).text == "extra of 5"
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await other.call_tool("b_extra")


@pytest.mark.covers("GW-6.20")
async def test_session_of_a_process_of_its_principal_has_lists_of_its_own() -> None:
    gateway = gateway_before(isolation="principal")
    async with Client(gateway, revision=LEGACY) as one, one.listen(tools=True) as changes:
        await one.call_tool("b_grow")
        await next_change(aiter(changes))
        assert "b_extra" in await names(one)


# --- what is declared ---


@pytest.mark.covers("GW-6.25")
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_empty_families_are_declared_and_subscriptions_only_where_they_are_supported(front: str) -> None:
    plain = Gateway("front").add("b", [*BACK, "plain"])
    async with Client(plain, revision=front) as client:
        assert await client.list_prompts() == []
        assert client.capabilities is not None and "subscribe" not in client.capabilities["resources"]
    both = Gateway("front").add("b", [*BACK, "plain"]).add("c", BACK)
    async with Client(both, revision=front) as client:
        assert client.capabilities is not None and client.capabilities["resources"]["subscribe"] is True


# --- bounds, and the end of a connection ---


@pytest.mark.covers("GW-6.21")
async def test_upstream_announces_no_more_updates_after_unsubscribe() -> None:
    gateway = gateway_before()
    async with Client(gateway, revision=LEGACY) as client:
        async with client.listen(resources=["note://shared"]) as changes:
            assert (await client.call_tool("b_touch")).text == "touch of 4 for 1"
            assert (await next_change(aiter(changes))).uri == "note://shared"
        async with asyncio.timeout(20):
            while (await client.call_tool("b_touch")).text != "touch of 4 for 0":
                await asyncio.sleep(0.01)


@pytest.mark.covers("GW-6.20", "GW-6.21")
async def test_session_whose_process_ended_gets_the_shared_lists_and_its_subscription_again() -> None:
    gateway = gateway_before()
    async with (
        Client(gateway, revision=LEGACY) as client,
        client.listen(tools=True, resources=["note://shared"]) as changes,
    ):
        told = aiter(changes)
        await client.call_tool("b_grow")
        while (await next_change(told)).kind != "tools":
            pass
        assert (await client.call_tool("b_die")).is_error
        async with asyncio.timeout(20):
            while "b_extra" in await names(client):
                await asyncio.sleep(0.05)
            while (await client.call_tool("b_touch")).text != "touch of 4 for 1":
                await asyncio.sleep(0.05)


@pytest.mark.covers("GW-6.20")
async def test_lists_of_a_session_that_are_too_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_BYTES_OF_CALLER", 100)
    gateway = gateway_before()
    async with Client(gateway, revision=LEGACY) as client:
        await client.call_tool("b_grow")
        await asyncio.sleep(0.3)
        assert "b_extra" not in await names(client)
        assert "b_grow" in await names(client)


@pytest.mark.covers("GW-6.20")
async def test_tool_of_one_session_is_no_conflict_of_names(caplog: pytest.LogCaptureFixture) -> None:
    gateway = gateway_before()
    async with Client(gateway, revision=LEGACY) as client, client.listen(tools=True) as changes:
        await client.call_tool("b_grow")
        await next_change(aiter(changes))
        assert "b_extra" in await names(client)
        assert gateway.backs["b"].hidden == ()
    assert "two servers have" not in caplog.text
