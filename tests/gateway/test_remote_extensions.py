"""Extensions of servers behind a gateway: declared, called, told of, in all combinations of the eras that have them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.gateway.backs import OVER, Recorded, behind, gateway_before, until
from tests.wireclient import connect

from toolwire import Client, Context, Policy, Server, testing
from toolwire.gateway import Gateway
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.errors import ProtocolError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.types import RequestParams
from toolwire.server.context import call_of

#: The revisions whose capabilities carry extensions.
CARRYING = (MODERN, "2025-11-25")
NOTES = "com.example/notes"
OTHER = "org.example/other"


def noting(identifier: str = NOTES, prefix: str = "notes", *, needs_client: bool = True) -> Server:
    """Make a server with an extension that nobody else knows."""
    server = Server("back")
    extension = server.extension(identifier, {"depth": 3}, needs_client=needs_client)
    heard: list[Any] = []
    server.heard = heard  # type: ignore[attr-defined]

    @server.tool
    async def look() -> str:
        return "seen"

    @extension.method(f"{prefix}/find")
    async def find(params: RequestParams, ctx: Context) -> dict[str, Any]:
        return {"found": params.extra, "unknown": {"of": prefix}, "_meta": {"com.example/kept": [1, 2]}}

    @extension.notification(f"notifications/{prefix}/touched")
    def touched(params: Any) -> None:
        heard.append(params.extra)

    return server


@pytest.mark.covers("GW-3.24")
@cases("over", OVER)
@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_an_extension_that_one_server_has_crosses(front: str, back: str, over: str) -> None:
    server, recorded = noting(), Recorded()
    async with (
        gateway_before(server, over, back, recorded) as gateway,
        Client(gateway, revision=front, extensions={NOTES: {"mine": True}}) as client,
    ):
        assert client.capabilities["extensions"] == {NOTES: {"depth": 3}}
        found = await client.request("notes/find", {"text": "x", "more": {"a": 1}}, extension=NOTES)
    assert found["found"] == {"text": "x", "more": {"a": 1}}
    assert found["unknown"] == {"of": "notes"}
    assert found["_meta"]["com.example/kept"] == [1, 2]
    (sent,) = recorded.sent("notes/find")
    assert sent["params"]["text"] == "x"
    if back == MODERN:
        told = sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert told["extensions"] == {NOTES: {"mine": True}}
    else:
        openings = [each["params"]["capabilities"] for each in recorded.sent("initialize")]
        assert {"mine": True} in [each.get("extensions", {}).get(NOTES) for each in openings]


@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_a_client_that_lacks_a_declaration_is_told_so_by_the_server_behind(front: str, back: str) -> None:
    async with gateway_before(noting(), "memory", back) as gateway, Client(gateway, revision=front) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.request("notes/find")
    assert refused.value.code == -32021 or "declares com.example/notes" in refused.value.message


@pytest.mark.covers("GW-3.24")
@pytest.mark.parametrize("front", CARRYING)
async def test_methods_of_different_extensions_find_their_servers(front: str) -> None:
    gateway = Gateway("front")
    gateway.add("one", noting(NOTES, "unlike")).add("two", noting(OTHER, "neither"))
    declared: dict[str, Any] = {NOTES: {}, OTHER: {}}
    async with Client(gateway, revision=front, extensions=declared) as client:
        assert set(client.capabilities["extensions"]) == {NOTES, OTHER}
        for _ in range(2):
            for prefix in ("neither", "unlike"):
                assert (await client.request(f"{prefix}/find"))["unknown"] == {"of": prefix}
        with pytest.raises(ProtocolError) as unknown:
            await client.request("nobody/has")
    assert unknown.value.code == -32601


async def test_a_method_is_sent_to_the_likeliest_server_first() -> None:
    gateway, recorded, two = Gateway("front"), Recorded(), noting(OTHER, "other")
    async with behind(noting(NOTES, "notes"), "memory", recorded) as one:
        gateway.add("one", one).add("two", two)
        async with Client(gateway, extensions={NOTES: {}, OTHER: {}}) as client:
            await client.request("other/find")
            await client.notify("notifications/other/touched", {"which": 7})
            await until(lambda: two.heard)  # type: ignore[attr-defined]
    assert not recorded.sent("other/find")
    assert not recorded.sent("notifications/other/touched")


@pytest.mark.covers("GW-3.24")
@cases("over", ["memory", "http"])
@cases("front", CARRYING)
@cases("similar", ["org.evil/notes", "com.example/Notes", "notes.com/example", "com.example/notes.more"])
async def test_server_gets_nothing_of_an_extension_that_the_client_did_not_declare(
    similar: str, front: str, over: str
) -> None:
    """It stands first, and its extension has a name as similar as that of the other."""
    gateway, recorded, good = Gateway("front"), Recorded(), noting(needs_client=False)
    async with behind(noting(similar, needs_client=False), "memory", recorded) as evil:
        gateway.add("evil", evil).add("good", good)
        async with testing.connect(gateway, over=over, revision=front, extensions={NOTES: {}}) as (client, _):
            assert set(client.capabilities["extensions"]) == {NOTES, similar}
            for _ in range(2):
                assert (await client.request("notes/find", {"text": "for good"}))["found"] == {"text": "for good"}
            await client.notify("notifications/notes/touched", {"which": 7})
            await until(lambda: good.heard)  # type: ignore[attr-defined]
            if front == MODERN:
                async with client.listen(extensions={"notes": ["a"]}):
                    assert not recorded.sent("subscriptions/listen")[1:]
    assert not [each for each in recorded.sent() if "notes/" in each.get("method", "")]


@cases("front", CARRYING)
async def test_client_is_told_which_extensions_it_may_declare(front: str) -> None:
    gateway, recorded = Gateway("front"), Recorded()
    async with behind(noting(needs_client=False), "memory", recorded) as one:
        gateway.add("one", one).add("two", noting("org.example/notes", needs_client=False))
        async with testing.connect(gateway, revision=front) as (client, _):
            with pytest.raises(ProtocolError) as undeclared:
                await client.request("notes/find")
            with pytest.raises(ProtocolError) as unknown:
                await client.request("nobody/has")
            await client.notify("notifications/notes/touched", {"which": 7})
    assert (undeclared.value.code, unknown.value.code) == (-32021, -32601)
    assert undeclared.value.data == {"requiredCapabilities": {"extensions": {NOTES: {}, "org.example/notes": {}}}}
    assert not [each for each in recorded.sent() if "notes/" in each.get("method", "")]


@pytest.mark.covers("GW-3.24")
async def test_an_extension_that_two_servers_have_is_not_offered(caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    gateway = Gateway("front")
    async with behind(noting(), "memory", recorded) as one:
        gateway.add("one", one)
        async with Client(gateway, extensions={NOTES: {}, OTHER: {}}) as client:
            assert NOTES in client.capabilities["extensions"]
            gateway.add("two", noting())
            await until(lambda: gateway.backs["two"].withheld == (NOTES,))
            assert gateway.backs["one"].withheld == (NOTES,)
            with pytest.raises(ProtocolError) as unknown:
                await client.request("notes/find")
            assert unknown.value.code == -32601
            await until(
                lambda: "'one' and 'two' have the extension com.example/notes, which is not offered" in caplog.text
            )
            # The servers are not told that the client declares what it was not offered.
            await client.call_tool("one_look")
            (called,) = recorded.sent("tools/call")
            assert called["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] == {OTHER: {}}
            gateway.remove("two")
            await until(lambda: gateway.backs["one"].withheld == ())
            assert (await client.request("notes/find"))["unknown"] == {"of": "notes"}


async def test_a_server_here_keeps_its_own_extension() -> None:
    gateway = Gateway("front")
    own = gateway.extension(NOTES, {"depth": 1})

    @own.method("notes/find")
    async def find(params: RequestParams, ctx: Context) -> dict[str, Any]:
        return {"found": "here"}

    gateway.add("back", noting())
    async with Client(gateway, extensions={NOTES: {}}) as client:
        assert client.capabilities["extensions"] == {NOTES: {"depth": 1}}
        assert (await client.request("notes/find"))["found"] == "here"
        assert gateway.backs["back"].withheld == (NOTES,)


async def test_methods_of_the_protocol_never_pass_as_those_of_an_extension() -> None:
    async with gateway_before(noting(), "memory", None) as gateway, Client(gateway):
        accepted = gateway.kernel.offer.extension_method
        assert accepted("notes/find") is not None
        for name in (
            "Tools/Call",
            "tools//call",
            "/tools/call/",
            "skills/list",
            "Skills//Get",
            "tasks/list",
            "x y",
            "",
        ):
            assert accepted(name) is None


@pytest.mark.covers("GW-3.24")
@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_a_notification_of_a_client_reaches_the_server(front: str, back: str) -> None:
    server = noting()
    async with (
        gateway_before(server, "memory", back) as gateway,
        Client(gateway, revision=front, extensions={NOTES: {}}) as client,
    ):
        await client.notify("notifications/notes/touched", {"which": 7})
        await until(lambda: server.heard)  # type: ignore[attr-defined]
    assert server.heard == [{"which": 7}]  # type: ignore[attr-defined]


# --- what an extension adds to calls ---


def asking() -> Server:
    """Make a server with an extension whose method asks, and whose server tells of things in calls."""
    server = Server("back")
    extension = server.extension(NOTES)
    extension.result_type("com.example.later")

    @extension.method("notes/later")
    async def later(params: RequestParams, ctx: Context) -> dict[str, Any]:
        return {"resultType": "com.example.later", "after": 5}

    @server.tool
    async def watch(ctx: Context) -> str:
        call_of(ctx).outlet.notify("notifications/notes/seen", {"which": 7, "_meta": {"com.example/of": "watch"}})
        return "watched"

    return server


@cases("over", OVER)
@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_a_notification_in_a_call_reaches_its_client(front: str, back: str, over: str) -> None:
    async with gateway_before(asking(), over, back) as gateway:
        client = Client(gateway, revision=front, extensions={NOTES: {}})
        seen: list[Any] = []
        client.on_notification("notifications/notes/seen", seen.append)
        async with client:
            assert await client.call_tool("b_watch", returns=str) == "watched"
            await until(lambda: seen)
    assert seen == [{"which": 7, "_meta": {"com.example/of": "watch"}}]


async def _passing(context: Context, call_next: Any) -> Any:
    return await call_next(context)


@pytest.mark.parametrize("middleware", [[], [_passing]])
async def test_a_result_type_of_an_extension_crosses_between_modern_sides(middleware: list[Any]) -> None:
    async with gateway_before(asking(), "memory", MODERN, middleware=middleware) as gateway:
        async with Client(gateway, extensions={NOTES: {}}) as client:
            result = await client.request("notes/later", result_types=["com.example.later"])
            assert (result["resultType"], result["after"]) == ("com.example.later", 5)
        async with Client(gateway, revision="2025-11-25", extensions={NOTES: {}}) as client:
            with pytest.raises(ProtocolError, match="result type"):
                await client.request("notes/later")


# --- members that an extension adds to subscriptions ---


def publishing(identifier: str, filter: str) -> Server:
    """Make a server with an extension that adds a member to the filter of subscriptions."""
    server = Server("back")
    server.extension(identifier).listen_filter(filter, lambda asked: [each for each in asked if each != "hidden"])
    return server


@pytest.mark.parametrize("over", OVER)
async def test_a_filter_of_an_extension_is_asked_for_at_the_server_that_has_it(over: str) -> None:
    one, two = publishing(NOTES, "notes"), publishing(OTHER, "others")
    gateway = Gateway("front")
    async with behind(one, over) as first, behind(two, over) as second:
        gateway.add("one", first).add("two", second)
        async with (
            Client(gateway, extensions={NOTES: {}, OTHER: {}}) as client,
            client.listen(extensions={"notes": ["a", "hidden"], "others": ["b"], "nobody": True}) as changes,
        ):
            assert changes.accepted is not None
            assert changes.accepted.extra == {"notes": ["a"], "others": ["b"]}
            told = aiter(changes)
            two.publish("others", "b", "notifications/others/changed", {"key": "b", "_meta": {"com.example/n": 1}})
            change = await anext(told)
            assert change.method == "notifications/others/changed"
            assert change.params is not None
            assert change.params["key"] == "b"
            assert change.params["_meta"]["com.example/n"] == 1
            one.publish("notes", "hidden", "notifications/notes/changed", {"key": "hidden"})
            one.publish("notes", "a", "notifications/notes/changed", {"key": "a"})
            change = await anext(told)
            assert change.params is not None
            assert change.params["key"] == "a"


async def test_a_filter_of_an_extension_is_not_honoured_by_a_server_before_2026_07_28() -> None:
    async with gateway_before(publishing(NOTES, "notes"), "memory", "2025-11-25") as gateway:
        client = Client(gateway, extensions={NOTES: {}})
        async with client, client.listen(extensions={"notes": ["a"]}) as changes:
            assert changes.accepted is not None
            assert not changes.accepted.extra


# --- user interfaces ---

UI = "io.modelcontextprotocol/ui"


@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_user_interfaces_are_declared_to_both_sides(front: str, back: str) -> None:
    def showing(*kinds: str) -> Server:
        server = Server("back")
        server.extension(UI, {"mimeTypes": list(kinds)}, needs_client=False)
        server.add(noting().catalog.tools["look"])
        return server

    recorded, html = Recorded(), "text/html;profile=mcp-app"
    gateway = Gateway("front")
    async with behind(showing(html), "memory", recorded) as one, behind(showing(html, "text/x"), "memory") as two:
        gateway.add("one", one, revision=back).add("two", two, revision=back)
        async with Client(gateway, revision=front, extensions={UI: {"mimeTypes": [html]}}) as client:
            assert client.capabilities["extensions"] == {UI: {"mimeTypes": [html, "text/x"]}}
            await client.call_tool("one_look")
        assert gateway.backs["one"].withheld == gateway.backs["two"].withheld == ()
    told = [each["params"] for each in recorded.sent("tools/list" if back == MODERN else "initialize")]
    called = [each["params"] for each in recorded.sent("tools/call")]
    for params in (told[0], called[0] if back == MODERN else told[-1]):
        key = "io.modelcontextprotocol/clientCapabilities"
        capabilities = params["_meta"][key] if back == MODERN else params["capabilities"]
        assert capabilities["extensions"][UI] == {"mimeTypes": [html]}


# --- requests of a server ---


@cases(
    ("front", "declares", "said"),
    [("2025-11-25", True, "of the client"), ("2025-11-25", False, "-32601"), (MODERN, True, "-32601")],
)
async def test_a_request_of_an_extension_reaches_a_client_of_the_same_era(
    front: str, declares: bool, said: str
) -> None:
    server = Server("back")
    server.extension(NOTES)

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            answer = await call_of(ctx).outlet.request("notes/ask", Raw(b'{"deep":{"n":1.10}}'), timeout=10)
        except ProtocolError as error:
            return str(error.code)
        return str(msgspec.json.decode(answer)["found"])

    async with gateway_before(server, "memory", "2025-11-25") as gateway, connect(gateway) as client:
        await client.open(front, {"extensions": {NOTES: {}}} if declares else {})
        client.answers["notes/ask"] = lambda params: {"found": "of the client"}
        result = await client.call("b_ask")
        assert result["content"][0]["text"] == said
        assert [each["params"] for each in client.requests if each["method"] == "notes/ask"] == (
            [{"deep": {"n": 1.1}}] if said == "of the client" else []
        )


@cases("middle", CARRYING)
@cases("front", CARRYING)
async def test_an_extension_comes_through_several_gateways(front: str, middle: str) -> None:
    inner, gateway = Gateway("inner"), Gateway("front")
    inner.add("back", noting())
    gateway.add("inner", inner, revision=middle)
    async with Client(gateway, revision=front, extensions={NOTES: {}}) as client:
        assert client.capabilities["extensions"] == {NOTES: {"depth": 3}}
        assert (await client.request("notes/find", {"text": "x"}))["found"] == {"text": "x"}


@pytest.mark.parametrize("front", CARRYING)
async def test_a_method_of_an_extension_may_ask_its_client(front: str) -> None:
    server = Server("back")
    extension = server.extension(NOTES)
    extension.result_types.add("input_required")

    @extension.method("notes/ask")
    async def ask(params: RequestParams, ctx: Context) -> dict[str, Any]:
        if "inputResponses" not in params.extra:
            schema = {"type": "object", "properties": {"value": {"type": "string"}}}
            question = {"mode": "form", "message": "Which?", "requestedSchema": schema}
            asked = {"which": {"method": "elicitation/create", "params": question}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": "mine"}
        answer = params.extra["inputResponses"]["which"]["content"]["value"]
        return {"said": [params.extra["requestState"], params.extra["text"], answer]}

    async def choose(message: str, schema: Any) -> dict[str, str]:
        return {"value": "this"}

    async with (
        gateway_before(server, "memory", MODERN) as gateway,
        Client(gateway, revision=front, extensions={NOTES: {}}, elicit=choose) as client,
    ):
        assert (await client.request("notes/ask", {"text": "x"}))["said"] == ["mine", "x", "this"]


@cases("front", [MODERN, "2025-11-25"])
@cases("back", [MODERN, "2025-11-25"])
async def test_a_server_without_an_extension_sends_no_notifications_of_one(front: str, back: str) -> None:
    names = ("notifications/notes/SECRET-1234", "notifications/other", "rpc.x")

    def listed(request: Any, outlet: Any) -> Raw:
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        page = {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return Raw(msgspec.json.encode(page))

    async def called(request: Any, outlet: Any) -> Raw:
        for name in names:
            outlet.connection.notify(name, {"a": "SECRET-1234"})
        await asyncio.sleep(0)
        return Raw(b'{"content":[],"resultType":"complete"}')

    gateway = Gateway("front", policy=Policy(mask=["SECRET-[0-9]{4}"]))
    for name, extensions in (("none", {}), ("known", {UI_EXTENSION: {}}), ("own", {NOTES: {}})):
        server = FakeServer(
            {"tools/list": listed, "tools/call": called}, capabilities={"tools": {}, "extensions": extensions}
        )
        gateway.add(name, server, revision=back)
    async with testing.connect(gateway, revision=front, extensions={NOTES: {}, UI_EXTENSION: {}}) as (client, wire):

        def crossed() -> list[str]:
            return [each["method"] for each in wire.received if "a" in each.get("params", {})]

        for name in ("none", "known"):
            await client.call_tool(f"{name}_t")
        assert crossed() == []
        await client.call_tool("own_t")
        await until(lambda: len(crossed()) == 3)
        assert crossed() == ["notifications/notes/[redacted]", "notifications/other", "rpc.x"]
        assert "SECRET" not in str(wire.received)
