"""What a gateway says in the words of its client's revision: errors, pings, results, sessions, headers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.gateway.backs import Recorded, gateway_before
from tests.http.httpclient import SessionClient
from tests.http.modernclient import ModernClient

from toolwire import Context, Server, testing
from toolwire.client import Accept, Elicitation
from toolwire.gateway import Gateway
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ResourceNotFound
from toolwire.protocol.revisions import MODERN
from toolwire.shape import Shape

LEGACY = "2025-11-25"
FRONT_AND_BACK = pytest.mark.parametrize(
    ("front", "back"), [(front, back) for front in (MODERN, LEGACY) for back in (MODERN, LEGACY)]
)
PAGE = {"mode": "url", "elicitationId": "7", "url": "https://example.com/pay", "message": "Pay"}
ERRORS: dict[int, Any] = {
    -32021: {"requiredCapabilities": {"sampling": {}}},
    -32042: {"elicitations": [PAGE]},
    -32077: {"detail": 1},
}


UNUSABLE_PAGES: list[Any] = [
    *(
        {"elicitations": [{**PAGE, "url": url}]}
        for url in ("javascript:alert(1)", "file:///etc/passwd", "", "https://user:pass@pay.example/", "/pay")
    ),
    {"elicitations": [PAGE, {**PAGE, "url": "javascript:alert(1)"}]},
    {"elicitations": [{"mode": "url", "message": "Pay"}]},
    {"elicitations": [{**PAGE, "url": 5}]},
    {"elicitations": []},
    {"elicitations": 5},
    {},
    5,
]


def failing(code: int) -> FakeServer:
    """Make a server whose tool answers with an error."""
    tool = {"name": "run", "inputSchema": {"type": "object"}}

    def listed(request: Any, outlet: Any) -> Raw:
        return Raw(
            msgspec.json.encode({"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
        )

    def called(request: Any, outlet: Any) -> Raw:
        raise ProtocolError(code, "wrong", ERRORS[code])

    return FakeServer({"tools/list": listed, "tools/call": called}, capabilities={"tools": {}})


@pytest.mark.covers("GW-3.2", "GW-3.17")
@FRONT_AND_BACK
async def test_a_missing_capability_is_an_error_of_modern_clients_and_a_text_for_others(front: str, back: str) -> None:
    gateway = Gateway("front")
    gateway.add("b", failing(-32021), revision=back)
    async with testing.connect(gateway, revision=front) as (client, _):
        if front == MODERN:
            with pytest.raises(ProtocolError) as refused:
                await client.call_tool("b_run")
            assert (refused.value.code, refused.value.data) == (-32021, ERRORS[-32021])
        else:
            result = await client.call_tool("b_run")
            assert result.is_error and "'b'" in result.text


@pytest.mark.covers("GW-3.17")
@cases("front", [MODERN, LEGACY, "2025-06-18"])
@cases("asks", [True, False])
async def test_a_page_that_is_required_is_asked_for_in_the_way_of_the_client(front: str, asks: bool) -> None:
    """-32042 belongs to 2025-11-25. A modern client is asked, and nobody else gets a code that it does not know."""
    gateway = Gateway("front")
    gateway.add("b", failing(-32042), revision=LEGACY)
    opened: list[Any] = []

    async def page(message: str, params: t.ElicitRequestParams) -> Accept:
        opened.append((message, params.url))
        return Accept()

    elicit = Elicitation(url=page) if asks else None
    async with testing.connect(gateway, revision=front, elicit=elicit) as (client, wire):
        if front == LEGACY:
            with pytest.raises(ProtocolError) as required:
                await client.call_tool("b_run")
            assert (required.value.code, required.value.data) == (-32042, ERRORS[-32042])
        elif front == MODERN and not asks:
            with pytest.raises(ProtocolError) as required:
                await client.call_tool("b_run")
            assert required.value.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}
        else:
            assert PAGE["url"] in (await client.call_tool("b_run")).text
            assert "-32042" not in str(wire.received)
    if asks and front != "2025-06-18":
        assert opened == [("Pay", PAGE["url"])]


@pytest.mark.covers("GW-3.17")
@cases("front", [MODERN, LEGACY, "2025-06-18"])
@cases("asks", [True, False])
async def test_server_that_requires_a_page_that_cannot_be_opened_is_named(
    front: str, asks: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def page(message: str, params: t.ElicitRequestParams) -> Accept:
        raise AssertionError(params.url)

    caplog.clear()
    gateway = Gateway("front")
    gateway.add("b", failing(-32042), revision=LEGACY)
    elicit = Elicitation(url=page) if asks else None
    async with testing.connect(gateway, revision=front, elicit=elicit) as (client, _):
        for data in UNUSABLE_PAGES:
            monkeypatch.setitem(ERRORS, -32042, data)
            result = await client.call_tool("b_run")
            assert result.is_error, data
            assert result.text == (
                "The server 'b' behind this one failed: it wants a page to be opened before the call, "
                "and names none that can be opened"
            ), data
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.covers("GW-3.17")
@FRONT_AND_BACK
async def test_a_code_of_the_servers_own_crosses_with_its_data(front: str, back: str) -> None:
    gateway = Gateway("front")
    gateway.add("b", failing(-32077), revision=back)
    async with testing.connect(gateway, revision=front) as (client, _):
        with pytest.raises(ProtocolError) as raised:
            await client.call_tool("b_run")
    assert (raised.value.code, raised.value.message, raised.value.data) == (-32077, "wrong", {"detail": 1})


@pytest.mark.covers("GW-3.17")
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_a_missing_resource_has_the_code_of_the_client_whatever_the_server_says(front: str) -> None:
    """Old servers in Python answer every failure with the code 0."""

    def listed(request: Any, outlet: Any) -> Raw:
        return Raw(b'{"resources":[{"uri":"note://today","name":"today"}]}')

    def read(request: Any, outlet: Any) -> Raw:
        raise ProtocolError(0, "Unknown resource: nothing://here")

    server = FakeServer({"resources/list": listed, "resources/read": read}, capabilities={"resources": {}})
    gateway = Gateway("front")
    gateway.add("b", server, revision=LEGACY)
    async with testing.connect(gateway, revision=front) as (client, _):
        with pytest.raises(ResourceNotFound) as missing:
            await client.read_resource("nothing://here")
    assert missing.value.code == (-32602 if front == MODERN else -32002)


@pytest.mark.covers("GW-3.14")
@FRONT_AND_BACK
async def test_a_ping_is_answered_here_where_there_are_pings(front: str, back: str) -> None:
    recorded = Recorded()
    async with (
        gateway_before(Server("back"), "memory", back, recorded) as gateway,
        testing.connect(gateway, revision=front) as (client, wire),
    ):
        before = len(recorded.sent("ping"))
        if front == MODERN:
            with pytest.raises(ProtocolError) as unknown:
                await client.request("ping", {})
            assert unknown.value.code == -32601
        else:
            await client.ping()
            assert [each["method"] for each in wire.sent][-1] == "ping"
        assert len(recorded.sent("ping")) == before


@pytest.mark.covers("GW-3.16", "GW-3.20")
@FRONT_AND_BACK
async def test_members_of_one_era_stay_in_it(front: str, back: str) -> None:
    """`resultType`, `ttlMs` and `cacheScope` are for modern clients, who get them from legacy servers, too."""
    server = Server("back")

    @server.tool
    async def names() -> list[str]:
        return ["Oslo"]

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    async with (
        gateway_before(server, "memory", back) as gateway,
        testing.connect(gateway, revision=front) as (client, wire),
    ):
        await client.list_tools()
        await client.read_resource("note://today")
        called = await client.call_tool("b_names")
        results = [each["result"] for each in wire.received if "result" in each][1:]
    modern = {"resultType", "ttlMs", "cacheScope"}
    if front == MODERN:
        listed, read, result = results
        for each in (listed, read):
            assert (each["resultType"], each["cacheScope"]) == ("complete", "private")
        assert listed["ttlMs"] == 0
        assert result["resultType"] == "complete"
    else:
        assert all(modern.isdisjoint(each) for each in results)
    # A list is an object for clients and servers of the older revisions.
    assert called.structured == (["Oslo"] if front == back == MODERN else {"result": ["Oslo"]})


@pytest.mark.covers("GW-3.19")
@FRONT_AND_BACK
async def test_the_session_of_a_server_is_shown_to_nobody_else(front: str, back: str) -> None:
    server = Server("back")

    @server.tool
    async def session(ctx: Context) -> str:
        return str(ctx.session_id)

    async with gateway_before(server, "http", back) as gateway:
        app = gateway.http_app()
        heads: list[Any] = []

        async def noting(scope: Any, receive: Any, send: Any) -> None:
            async def told(message: Any) -> None:
                if message["type"] == "http.response.start":
                    heads.extend(message["headers"])
                await send(message)

            await app(scope, receive, told)

        async with testing.connect(_Noting(app, noting), revision=front, over="http") as (client, _):
            behind = await client.call_tool("b_session", returns=str)
    shown = {value.decode() for name, value in heads if name == b"mcp-session-id"}
    assert behind not in shown
    assert bool(shown) == (front != MODERN)
    assert (behind == "None") == (back == MODERN)


class _Noting:
    """A server whose application another one stands before."""

    def __init__(self, app: Any, before: Any) -> None:
        self._app = app
        self._before = before

    def http_app(self, **options: Any) -> Any:
        return self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._before(scope, receive, send)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def serve(self, channel: Any, *, principal: Any = None) -> None:
        raise NotImplementedError


@pytest.mark.covers("GW-3.18", "HDR-6")
async def test_undeclared_parameter_headers_stop_at_the_gateway() -> None:
    server = Server("back")

    @server.tool
    async def headers(ctx: Context) -> str:
        return str([name for name in ctx.headers if name.startswith(("mcp-param-", "x-"))])

    async with (
        gateway_before(server, "http", MODERN) as gateway,
        testing.connect(gateway, over="http") as (client, _),
    ):
        result = await client.call_tool("b_headers", headers={"Mcp-Param-Future": "1", "X-Other": "2"})
        assert result.text == "[]"


@pytest.mark.covers("HDR-6")
async def test_gateway_judges_the_body_and_refuses_repeated_headers_that_differ() -> None:
    server = Server("back")
    server.tool("open")(lambda: "open")
    server.tool("closed")(lambda: "closed")
    gateway = Gateway("front")
    gateway.add("b", server, shape=Shape(deny=["closed"]))
    app = gateway.http_app()
    async with app.lifespan():
        modern, session = ModernClient(app), SessionClient(app)
        answer = await modern.call("b_closed", headers={"mcp-name": "b_open"})
        assert (answer.status, answer.json()["error"]["code"]) == (400, -32020)
        # A revision that does not repeat them: the header says nothing, and the body is judged.
        await session.initialize()
        answer = await session.post(session.request("tools/call", {"name": "b_closed"}), {"mcp-name": "b_open"})
        assert "Unknown tool" in answer.answer()["error"]["message"]
