"""Lists of a server that depend on what its clients declare, through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.client.fake import FakeServer, text

from toolwire import Client, Server, testing
from toolwire.auth import Principal
from toolwire.gateway import Gateway, capability_lists, list_follower
from toolwire.gateway.capability_lists import relevant_capabilities
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.server.policy import Policy
from toolwire.server.shaping import ResourceShape, Shape
from toolwire.wire.session import Session

LEGACY = "2025-11-25"
ASKED: dict[str, dict[str, Any]] = {
    "elicitation": {"elicit": lambda message, params: {}},
    "sampling": {"sample": lambda params: "It is."},
    "roots": {"roots": ["file:///work"]},
}
SETS: list[tuple[str, ...]] = [(), ("elicitation",), ("sampling", "roots"), ("elicitation", "sampling", "roots")]


def tool(name: str) -> t.Tool:
    return t.Tool(name=name, input_schema={"type": "object"})


class Choosing(FakeServer):
    """A server that lists one tool for each capability of its client, as server-everything does."""

    def __init__(self, era: str, *, varies: bool = True) -> None:
        super().__init__(
            {"tools/list": self.list_tools, "tools/call": self.call},
            capabilities={"tools": {"listChanged": True}},
            revisions=(MODERN,) if era == MODERN else (LEGACY,),
        )
        self.varies = varies
        self.ttl_ms = 3_600_000
        self.added: list[str] = []
        self.added_for_bare: list[str] = []
        self.asked: list[Mapping[str, Any]] = []
        """The capabilities of the clients that asked for a list."""

    def list_tools(self, request: Any, outlet: Any) -> t.ListToolsResult:
        self.asked.append(request.capabilities)
        own = [name for name in ASKED if name in request.capabilities] if self.varies else list(ASKED)
        names = ["always", *own, *self.added]
        if self.varies and not own:
            names += ["plain", *self.added_for_bare]  # They stand in for those that ask.
        return t.ListToolsResult(tools=[tool(name) for name in names], ttl_ms=self.ttl_ms, cache_scope="private")

    def call(self, request: Any, outlet: Any) -> t.CallToolResult:
        return text(request.params.name)

    def tell(self) -> None:
        for session in self.sessions:
            session.notify("notifications/tools/list_changed", UNSET)


async def names(client: Client) -> set[str]:
    return {each.name.removeprefix("b_") for each in await client.list_tools()}


def declaring(*asked: str) -> dict[str, Any]:
    return {name: value for each in asked for name, value in ASKED[each].items()}


def wanted(asked: tuple[str, ...]) -> set[str]:
    return {"always", *(asked or ("plain",))}


@pytest.mark.covers("GW-6.26")
@cases("front", [MODERN, LEGACY])
@cases("era", [MODERN, LEGACY])
@cases("hops", [1, 2])
async def test_clients_get_the_tools_that_the_server_has_for_their_capabilities(
    front: str, era: str, hops: int
) -> None:
    server = Choosing(era)
    gateway = Gateway("front").add("b", cast("Server", server))
    if hops == 2:
        gateway = Gateway("outer").add("in", gateway, prefix="")
    async with Client(gateway, revision=front):
        for _ in range(2):
            for asked in SETS:
                async with Client(gateway, revision=front, **declaring(*asked)) as client:
                    assert await names(client) == wanted(asked), asked
                    for name in wanted(asked):
                        assert (await client.call_tool(f"b_{name}")).text == name


class Templates(Choosing):
    """A server with templates: two for all of its clients, and one for those with roots."""

    def __init__(self, era: str) -> None:
        super().__init__(era)
        self.declared["resources"] = {}
        self.handlers |= {"resources/templates/list": self.list_templates, "resources/read": self.read}

    def list_templates(self, request: Any, outlet: Any) -> t.ListResourceTemplatesResult:
        kinds = ["open", "hidden", *(["rooted"] if "roots" in request.capabilities else [])]
        found = [t.ResourceTemplate(uri_template=f"{kind}://{{name}}", name=kind) for kind in kinds]
        return t.ListResourceTemplatesResult(resource_templates=found, ttl_ms=self.ttl_ms, cache_scope="private")

    def read(self, request: Any, outlet: Any) -> t.ReadResourceResult:
        contents: list[Any] = [t.ResourceContents(uri=request.params.uri, text=request.params.uri)]
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")


@cases("front", [MODERN, LEGACY])
@cases("era", [MODERN, LEGACY])
@cases("asked", SETS)
async def test_templates_of_a_set_are_read_where_restrictions_hide_others(
    asked: tuple[str, ...], era: str, front: str
) -> None:
    rules = Shape(resources={"hidden://{name}": ResourceShape(visible_to=["admin"])})
    gateway = Gateway("front").add("b", cast("Server", Templates(era)), shape=rules)
    for caller, sees in ((Principal("ann"), False), (Principal("eve", scopes=frozenset({"admin"})), True)):
        options = {"principal": caller, "revision": front, **declaring(*asked)}
        async with testing.connect(gateway, **options) as (client, _):
            listed = {each.uri_template for each in await client.list_resource_templates()}
            read = {"open", *(["hidden"] if sees else []), *(["rooted"] if "roots" in asked else [])}
            assert listed == {f"{kind}://{{name}}" for kind in read}
            for kind in ("open", "hidden", "rooted"):
                if kind in read:
                    assert (await client.read_resource(f"{kind}://x"))[0].text == f"{kind}://x"
                elif kind == "hidden":
                    with pytest.raises(ProtocolError, match="not found"):
                        await client.read_resource(f"{kind}://x")


@cases("era", [MODERN, LEGACY])
async def test_lists_that_are_the_same_for_all_are_read_twice(era: str) -> None:
    server = Choosing(era, varies=False)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with Client(gateway) as client, Client(gateway, **declaring("roots")) as other:
        for each in (client, other, client, other):
            assert await names(each) == {"always", *ASKED}
        assert len(server.asked) == 2
        assert {*server.asked[0]} >= set(ASKED) and not {*server.asked[1]} & set(ASKED)


@cases("era", [MODERN, LEGACY])
async def test_lists_of_each_set_are_read_once_for_all_its_clients(era: str) -> None:
    server = Choosing(era)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with Client(gateway):
        for _ in range(3):
            for asked in SETS:
                async with Client(gateway, **declaring(*asked)) as client:
                    assert await names(client) == wanted(asked)
    # Those that declare everything, those that declare nothing, and three sets between them.
    assert len(server.asked) == 1 + len(SETS)


async def test_connection_that_reads_lists_for_other_clients_is_closed() -> None:
    server = Choosing(LEGACY)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with Client(gateway) as client:
        assert await names(client) == wanted(())
        assert len(server.sessions) == 2
        async with asyncio.timeout(20):
            while not server.sessions[1].over:
                await asyncio.sleep(0)
        assert gateway.backs["b"].connections == 1


async def test_lists_that_come_late_are_told_as_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_lists, "ANNOUNCED_SECONDS", 0.01)
    server, may_answer = Choosing(LEGACY), asyncio.Event()

    async def list_tools(request: Any, outlet: Any) -> t.ListToolsResult:
        if "roots" not in request.capabilities:
            await may_answer.wait()
        return server.list_tools(request, outlet)

    server.handlers["tools/list"] = list_tools
    gateway = Gateway("front").add("b", cast("Server", server))
    async with Client(gateway, revision=LEGACY) as client, client.listen(tools=True) as changes:
        assert await names(client) == {"always", *ASKED}
        may_answer.set()
        async with asyncio.timeout(20):
            assert (await anext(aiter(changes))).kind == "tools"
        assert await names(client) == wanted(())


async def test_lists_of_each_set_change_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_lists, "LEGACY_SECONDS", 0.0)
    server = Choosing(LEGACY)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with (
        Client(gateway, revision=LEGACY) as bare,
        Client(gateway, revision=LEGACY, **declaring("roots")) as rooted,
        bare.listen(tools=True) as changes,
    ):
        assert await names(bare) == wanted(()) and await names(rooted) == {"always", "roots"}
        server.added.append("late")
        server.tell()
        async with asyncio.timeout(20):
            assert (await anext(aiter(changes))).kind == "tools"
        assert await names(bare) == {*wanted(()), "late"}
        assert await names(rooted) == {"always", "roots", "late"}
        assert (await rooted.call_tool("b_late")).text == "late"


async def test_call_of_an_unlisted_tool_reads_the_lists_of_its_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_lists, "UNLISTED_SECONDS", 0.0)
    server = Choosing(MODERN)
    gateway = Gateway("front").add("b", cast("Server", server))
    async with Client(gateway) as client:
        assert await names(client) == wanted(())
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("b_late")
        server.added.append("late")
        assert (await client.call_tool("b_late")).text == "late"


async def test_there_are_lists_for_a_bounded_number_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_lists, "MAX_SETS", 2)
    server = Choosing(MODERN)
    gateway = Gateway("front").add("b", cast("Server", server))
    remote = cast(Any, gateway.catalog.mounts[0].catalog.owner)
    async with (
        Client(gateway) as bare,
        Client(gateway, **declaring("roots")) as rooted,
        Client(gateway, **declaring("sampling")) as sampling,
    ):
        assert await names(bare) == wanted(()) and await names(rooted) == {"always", "roots"}
        # There is no room for a third one: it gets the shared lists.
        assert await names(sampling) == {"always", *ASKED}
        monkeypatch.setattr(capability_lists, "UNUSED_SECONDS", 0.0)
        assert await names(sampling) == {"always", "sampling"}
        assert len(remote.catalog.mounts) == 2
    assert not remote.catalog.mounts


async def until_asked(server: Choosing, client: Client, expected: set[str]) -> None:
    """Announce a change, and wait until a client sees it."""
    before = len(server.asked)
    if server.ttl_ms:
        server.tell()
    async with asyncio.timeout(20):
        while await names(client) != expected or len(server.asked) == before:
            await asyncio.sleep(0)


@cases("era", [MODERN, LEGACY])
async def test_lists_of_a_set_are_read_again_when_the_shared_ones_did_not_change(era: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capability_lists, "LEGACY_SECONDS", 0.0)
        patch.setattr(capability_lists, "LEGACY_UNLISTED_SECONDS", 0.0)
        patch.setattr(list_follower, "LEAST_SECONDS", 0.0)
        server = Choosing(era)
        server.ttl_ms = 0 if era == MODERN else 3_600_000  # It announces changes on the old era alone.
        gateway = Gateway("front").add("b", cast("Server", server))
        async with Client(gateway, revision=era) as bare, Client(gateway, revision=era, **declaring("roots")) as rooted:
            assert await names(bare) == wanted(()) and await names(rooted) == {"always", "roots"}
            server.added_for_bare.append("late")
            await until_asked(server, bare, {*wanted(()), "late"})
            assert await names(rooted) == {"always", "roots"}


@cases("era", [MODERN, LEGACY])
@cases("is_bare", [True, False])
async def test_lists_that_do_not_differ_any_more_are_shared_again(era: str, is_bare: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capability_lists, "LEGACY_SECONDS", 0.0)
        patch.setattr(capability_lists, "LEGACY_UNLISTED_SECONDS", 0.0)
        patch.setattr(list_follower, "LEAST_SECONDS", 0.0)
        server = Choosing(era)
        server.ttl_ms = 0 if era == MODERN else 3_600_000  # It announces changes on the old era alone.
        gateway = Gateway("front").add("b", cast("Server", server))
        remote = cast(Any, gateway.catalog.mounts[0].catalog.owner)
        asking = declaring() if is_bare else declaring("roots")
        async with Client(gateway, revision=era, **asking) as client:
            assert await names(client) == ({"always", "plain"} if is_bare else {"always", "roots"})
            assert len(remote.catalog.mounts) == (1 if is_bare else 2)
            patch.setattr(capability_lists, "COMPARE_SECONDS", 0.0)
            server.varies = False
            await until_asked(server, client, {"always", *ASKED})
            async with asyncio.timeout(20):
                while remote.catalog.mounts:
                    await names(client)
            patch.setattr(capability_lists, "COMPARE_SECONDS", 300.0)
            read = len(server.asked)
            for asked in SETS:
                async with Client(gateway, revision=era, **declaring(*asked)) as other:
                    assert await names(other) == {"always", *ASKED}
            assert all({*ASKED} <= {*each} for each in server.asked[read:])
            # And they may differ again.
            patch.setattr(capability_lists, "COMPARE_SECONDS", 0.0)
            server.varies = True
            await until_asked(server, client, {"always", "plain"} if is_bare else {"always", "roots"})


async def test_rules_of_the_gateway_hold_for_the_tools_of_a_set() -> None:
    server = Choosing(MODERN)
    gateway = Gateway("front")
    gateway.add("b", cast("Server", server), shape=Shape(deny=["plain"]), policy=Policy(mask=["alw.ys"]))
    async with Client(gateway) as client:
        assert await names(client) == {"always"}
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("b_plain")
        assert "always" not in (await client.call_tool("b_always")).text


async def test_server_that_fails_for_other_clients_shows_them_the_shared_lists() -> None:
    class Failing(Choosing):
        def list_tools(self, request: Any, outlet: Any) -> t.ListToolsResult:
            if "roots" not in request.capabilities:
                raise ProtocolError(-32603, "not for you")
            return super().list_tools(request, outlet)

    gateway = Gateway("front").add("b", cast("Server", Failing(MODERN)))
    async with Client(gateway) as client:
        assert await names(client) == {"always", *ASKED}


async def test_session_with_lists_of_its_own_keeps_them() -> None:
    server = Choosing(LEGACY)
    grown: set[Session] = set()

    def call(request: Any, outlet: Any) -> t.CallToolResult:
        grown.add(outlet.connection)
        outlet.connection.notify("notifications/tools/list_changed", UNSET)
        return text("grown")

    def list_tools(request: Any, outlet: Any) -> t.ListToolsResult:
        listed = server.list_tools(request, outlet)
        if outlet.connection in grown:
            listed.tools.append(tool("extra"))
        return listed

    server.handlers.update({"tools/call": call, "tools/list": list_tools})
    gateway = Gateway("front").add("b", cast("Server", server))
    async with (
        Client(gateway, revision=LEGACY) as one,
        Client(gateway, revision=LEGACY) as other,
        one.listen(tools=True) as changes,
    ):
        assert await names(one) == wanted(())
        await one.call_tool("b_always")
        async with asyncio.timeout(20):
            await anext(aiter(changes))
        assert await names(one) == {*wanted(()), "extra"}
        assert await names(other) == wanted(())


def test_sets_differ_only_in_what_lists_may_depend_on() -> None:
    views = {UI_EXTENSION: {"mimeTypes": ["text/plain", APP_MIME_TYPE]}, "x/y": {"a": 1}}
    declared = {
        "elicitation": {},
        "sampling": {"tools": {"a": 1}, "other": {}},
        "roots": {"listChanged": True},
        "extensions": views,
        "experimental": {"z": 1},
    }
    assert relevant_capabilities(declared, {UI_EXTENSION}) == {
        "elicitation": {"form": {}},
        "sampling": {"tools": {}},
        "roots": {},
        "extensions": {UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}},
    }
    assert relevant_capabilities(declared, {"x/y"})["extensions"] == {"x/y": {}}
    for broken in (
        {"elicitation": 7, "sampling": [], "roots": None, "extensions": 7},
        {"extensions": {UI_EXTENSION: 7}},
    ):
        assert relevant_capabilities(broken, {UI_EXTENSION}) == {}
    assert relevant_capabilities({"elicitation": {"url": {}}}, set()) == {"elicitation": {"url": {}}}
