"""Pins where a server lists a tool in other forms for some callers: what is withheld is withheld from these alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.client.fake import FakeServer, text
from tests.gateway.test_account_lists import Private, connect
from tests.gateway.test_account_lists import scene as scene

from toolwire import Client, Server
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.revisions import MODERN
from toolwire.server.shaping import pins as pins_module
from toolwire.shape import ArgumentShape, Shape, ToolPins, ToolShape
from toolwire.stores import Stores
from toolwire.wire.session import Session

LEGACY = "2025-11-25"
ASKS, PAYS, OTHER = "Order; asks before it pays.", "Order; pays at once.", "Order; asks the roots."
ABLE: dict[str, Any] = {
    "elicit": lambda message, params: {},
    "sample": lambda params: "It is.",
    "roots": ["file:///work"],
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every list looks for approvals of other processes.
    monkeypatch.setattr(pins_module, "FRESH_SECONDS", 0.0)


class Shop(FakeServer):
    """A server whose tool has another description for each kind of client."""

    def __init__(self, era: str) -> None:
        super().__init__(
            {"tools/list": self.list_tools, "tools/call": self.call},
            capabilities={"tools": {"listChanged": True}},
            revisions=(MODERN,) if era == MODERN else (LEGACY,),
        )
        self.texts = {"able": ASKS, "bare": PAYS, "roots": OTHER}
        self.grown: dict[Session, str] = {}
        """The sessions with a description of their own."""

    def list_tools(self, request: Any, outlet: Any) -> t.ListToolsResult:
        asked = request.capabilities
        kind = "able" if "elicitation" in asked else "roots" if "roots" in asked else "bare"
        description = self.grown.get(outlet.connection, self.texts[kind])
        tool = t.Tool(name="order", description=description, input_schema={"type": "object"})
        return t.ListToolsResult(tools=[tool], ttl_ms=3_600_000, cache_scope="private")

    def call(self, request: Any, outlet: Any) -> t.CallToolResult:
        if b"grow" in bytes(request.params.arguments or b""):
            self.grown[outlet.connection] = "Order; of one session."
            outlet.connection.notify("notifications/tools/list_changed", UNSET)
        return text("ordered")


def front(server: Any, pins: ToolPins | None = None, **options: Any) -> Gateway:
    return Gateway("front", **options).add("b", cast("Server", server), prefix="", shape=Shape(pins=pins or ToolPins()))


async def descriptions(client: Client) -> list[Any]:
    return [each.description for each in await client.list_tools()]


async def until_listed(client: Client, expected: list[Any]) -> None:
    async with asyncio.timeout(20):
        while await descriptions(client) != expected:
            await asyncio.sleep(0.01)


def waiting(gateway: Gateway) -> list[tuple[Any, Any]]:
    """Return the texts that were approved and those that wait."""
    found = gateway.backs["b"].quarantined
    return [(None if each.before is None else each.before["description"], each.after["description"]) for each in found]


@pytest.mark.covers("GW-8.10")
@cases("near", [MODERN, LEGACY])
@cases("era", [MODERN, LEGACY])
async def test_variant_for_clients_that_can_do_less_is_withheld_from_these_alone(near: str, era: str) -> None:
    gateway = front(Shop(era))
    async with Client(gateway, revision=near, **ABLE) as able, Client(gateway, revision=near) as bare:
        assert await descriptions(able) == [ASKS]
        await until_listed(bare, [])
        refused = await bare.call_tool("order")
        assert refused.is_error and "another one for you than the one that was approved" in refused.text
        for _ in range(2):
            assert await descriptions(able) == [ASKS]
            assert (await able.call_tool("order")).text == "ordered"
        assert waiting(gateway) == [(ASKS, PAYS)]


@cases("how", ["digest", "name", "all"])
async def test_approved_variant_comes_through_beside_the_definition_for_all(how: str) -> None:
    pins, stores = ToolPins(), Stores.memory()
    gateway = front(Shop(MODERN), pins, stores=stores)
    async with (
        Client(gateway, **ABLE) as able,
        Client(gateway) as bare,
        Client(gateway, roots=["file:///work"]) as rooted,
    ):
        assert await descriptions(able) == [ASKS]
        await until_listed(bare, [])
        await until_listed(rooted, [])
        assert sorted(waiting(gateway)) == [(ASKS, OTHER), (ASKS, PAYS)]
        digest = next(each.digest for each in gateway.backs["b"].quarantined if each.after["description"] == PAYS)
        names = {"digest": [f"order@{digest}"], "name": ["order"], "all": []}[how]
        assert await pins.approve("b", *names) == ["order"]
        await until_listed(bare, [PAYS])
        await until_listed(rooted, [] if how == "digest" else [OTHER])
        for client in (able, bare):
            assert (await client.call_tool("order")).text == "ordered"
        assert await descriptions(able) == [ASKS]
        assert waiting(gateway) == ([(ASKS, OTHER)] if how == "digest" else [])
    # The approvals are in the store.
    again = front(Shop(MODERN), stores=stores)
    async with Client(again) as bare, Client(again, **ABLE) as able:
        await until_listed(bare, [PAYS])
        assert await descriptions(able) == [ASKS]


async def test_variant_of_some_callers_is_no_approval_for_all() -> None:
    server, pins = Shop(LEGACY), ToolPins()
    gateway = front(server, pins)
    async with Client(gateway, **ABLE) as able, Client(gateway) as bare:
        assert await descriptions(able) == [ASKS]
        await until_listed(bare, [])
        await pins.approve("b")
        await until_listed(bare, [PAYS])
        server.texts["able"] = PAYS
        for session in server.sessions:
            session.notify("notifications/tools/list_changed", UNSET)
        await until_listed(able, [])
        assert "changed since it was approved" in (await able.call_tool("order")).text
        assert waiting(gateway) == [(ASKS, PAYS)]


async def test_change_for_all_and_variant_wait_side_by_side() -> None:
    server, pins = Shop(LEGACY), ToolPins()
    gateway = front(server, pins)
    async with Client(gateway, **ABLE) as able, Client(gateway) as bare:
        assert await descriptions(able) == [ASKS]
        await until_listed(bare, [])
        server.texts["able"] = "Order; asks twice."
        for session in server.sessions:
            session.notify("notifications/tools/list_changed", UNSET)
        await until_listed(able, [])
        assert waiting(gateway) == [(ASKS, "Order; asks twice."), (ASKS, PAYS)]
        await pins.approve("b")
        await until_listed(able, ["Order; asks twice."])
        await until_listed(bare, [PAYS])
        assert waiting(gateway) == []


@pytest.mark.covers("GW-6.20")
async def test_definition_of_one_session_is_withheld_in_that_session_alone() -> None:
    gateway = front(Shop(LEGACY))
    async with (
        Client(gateway, revision=LEGACY, **ABLE) as one,
        Client(gateway, revision=LEGACY, **ABLE) as other,
    ):
        assert await descriptions(one) == await descriptions(other) == [ASKS]
        await one.call_tool("order", {"grow": True})
        await until_listed(one, [])
        assert (await one.call_tool("order")).is_error
        assert await descriptions(other) == [ASKS]
        assert (await other.call_tool("order")).text == "ordered"
        assert (ASKS, "Order; of one session.") in waiting(gateway)


@pytest.mark.covers("GW-7.9")
@cases("back", [MODERN, LEGACY])
async def test_definition_of_one_account_is_withheld_from_that_account_alone(scene: Private, back: str) -> None:
    def of(user: str) -> Server:
        server = Server(user)

        @server.tool(visible_to=lambda principal: principal.subject == user, description=f"Order for {user}.")
        async def order() -> str:
            return user

        return server

    pins = ToolPins()
    async with scene.gateway(scene.per_user(), back, shape=Shape(pins=pins, allow=["order"])) as gateway:
        for user in ("alice", "bob"):
            scene.server.mount(of(user))
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            await until_listed(alice, ["Order for alice."])
            await until_listed(bob, [])
            assert await descriptions(alice) == ["Order for alice."]
            assert (await alice.call_tool("order")).text == "alice"
            assert (await bob.call_tool("order")).is_error
            await pins.approve("b")
            await until_listed(bob, ["Order for bob."])
            assert await descriptions(alice) == ["Order for alice."]


@cases("first", ["alice", "bob"])
async def test_shape_that_fits_no_tool_of_one_account_fits_those_of_others(scene: Private, first: str) -> None:
    alices, bobs = Server("alice"), Server("bob")

    @alices.tool(visible_to=lambda principal: principal.subject == "alice")
    async def order(note: str = "") -> str:
        return "alice"

    @bobs.tool(name="order", visible_to=lambda principal: principal.subject == "bob")
    async def order_for_bob() -> str:
        return "bob"

    shape = Shape(tools={"order": ToolShape(arguments={"note": ArgumentShape(hidden=True)})}, allow=["order"])
    async with scene.gateway(scene.per_user(), MODERN, shape=shape) as gateway:
        scene.server.mount(alices).mount(bobs)
        await connect(scene, gateway, "alice", "bob")
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            by_name = {"alice": alice, "bob": bob}
            for name in (first, *by_name.keys() - {first}):
                await by_name[name].list_tools()
            assert [each.input_schema.get("properties", {}) for each in await alice.list_tools()] == [{}]
            assert (await alice.call_tool("order")).text == "alice"
            assert await bob.list_tools() == []


def test_variants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_VARIANTS", 3)
    book = ToolPins().book("front", "b", Stores.memory)

    def tools(*texts: str) -> Iterator[pins_module.ListedTool]:
        yield pins_module.ListedTool("order", {"name": "order", "description": ASKS}, True)
        for each in texts:
            yield pins_module.ListedTool("order", {"name": "order", "description": each}, False)

    book._record, book._is_new = pins_module._Record(), True
    for number in range(5):
        assert book.judge(list(tools(str(number))))[0] is None
    waits = [each.after["description"] for each in book.quarantined()]
    assert waits == ["2", "3", "4"]
