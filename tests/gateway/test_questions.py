"""Questions of servers behind a gateway that not every client can be asked, and headers that repeat arguments."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.gateway.backs import OVER, REVISIONS, Recorded, gateway_before, until

from toolwire import Context, Server, testing
from toolwire.auth import Principal
from toolwire.client import Accept, Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ToolFailed, UrlRequired
from toolwire.protocol.revisions import MODERN
from toolwire.server import asked_pages
from toolwire.server.binding import Header
from toolwire.stores.sqlite import SqliteStores

pytestmark = pytest.mark.filterwarnings("ignore:.* deprecated since protocol revision:DeprecationWarning")


def visiting() -> Server:
    server = Server("back")

    @server.tool
    async def visit(ctx: Context) -> str:
        return str((await ctx.elicit_url("Sign in", "https://example.com/in")).action)

    @server.tool
    async def folders(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    return server


@pytest.mark.covers("GW-3.6")
@cases("far", OVER)
@cases(
    ("front", "back"), [(MODERN, MODERN), (MODERN, "2025-11-25"), ("2025-11-25", MODERN), ("2025-11-25", "2025-11-25")]
)
async def test_pages_to_open_cross_with_their_address(front: str, back: str, far: str) -> None:
    shown: list[t.ElicitRequestParams] = []

    async def open_page(message: str, params: t.ElicitRequestParams) -> Accept:
        shown.append(params)
        return Accept()

    async with (
        gateway_before(visiting(), far, back) as gateway,
        testing.connect(gateway, revision=front, elicit=Elicitation(url=open_page)) as (client, _),
    ):
        assert await client.call_tool("b_visit", returns=str) == "accept"
    assert (shown[0].mode, shown[0].url, shown[0].message) == ("url", "https://example.com/in", "Sign in")
    # 2025-11-25 gives every page an id.
    assert (shown[0].elicitation_id is not t.UNSET) == (front == "2025-11-25")


@pytest.mark.covers("GW-3.6", "GW-11.2")
@cases("far", OVER)
@cases("back", REVISIONS)
async def test_a_client_that_cannot_be_shown_a_page_gets_an_error_and_never_an_empty_form(back: str, far: str) -> None:
    asked: list[Any] = []
    async with (
        gateway_before(visiting(), far, back) as gateway,
        testing.connect(gateway, revision="2025-06-18", elicit=lambda *given: asked.append(given)) as (client, _),
    ):
        with pytest.raises(ToolFailed):
            await client.call_tool("b_visit", returns=str)
    assert not asked


@pytest.mark.covers("GW-3.8")
@cases("far", OVER)
@cases(
    ("front", "back"),
    [(front, back) for front in REVISIONS for back in REVISIONS],
)
async def test_roots_cross(front: str, back: str, far: str) -> None:
    async with (
        gateway_before(visiting(), far, back) as gateway,
        testing.connect(gateway, revision=front, roots=["file:///work"]) as (client, _),
    ):
        assert await client.call_tool("b_folders", returns=list[str]) == ["file:///work"]


@pytest.mark.covers("GW-3.2")
@cases("back", REVISIONS)
@cases("front", REVISIONS)
async def test_a_client_that_declared_nothing_is_asked_nothing(front: str, back: str) -> None:
    async with (
        gateway_before(visiting(), "memory", back) as gateway,
        testing.connect(gateway, revision=front) as (client, wire),
    ):
        try:
            told = (await client.call_tool("b_visit")).text
        except ProtocolError as error:
            assert (front, error.code) == (MODERN, -32021)
            told = error.message
        assert "support" in told
        assert not [each for each in wire.received if each.get("method") == "elicitation/create"]


@pytest.mark.covers("GW-3.18", "GW-11.6")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_arguments_are_repeated_in_headers_from_the_first_call_on(over: Any) -> None:
    server = Server("back")

    @server.tool
    async def where(region: Annotated[str, Header("Region")]) -> str:
        return region

    seen: list[dict[str, str]] = []

    @server.tool
    async def headers(ctx: Context, region: Annotated[str, Header("Region")]) -> str:
        seen.append(dict(ctx.headers))
        return "seen"

    recorded = Recorded()
    async with (
        gateway_before(server, "http", MODERN, recorded) as gateway,
        testing.connect(gateway, over=over) as (client, _),
    ):
        assert await client.call_tool("b_where", {"region": "eu"}, returns=str) == "eu"
        assert await client.call_tool("b_headers", {"region": "eu"}, returns=str) == "seen"
    assert seen[0]["mcp-param-region"] == "eu"
    assert seen[0]["mcp-name"] == "headers"
    assert len(recorded.sent("tools/call")) == 2


@pytest.mark.covers("GW-11.8")
@cases("back", [MODERN, "2025-11-25"])
@cases("front", [MODERN, "2025-11-25"])
async def test_no_credential_of_a_client_reaches_the_server_behind(front: str, back: str) -> None:
    server = Server("back")
    seen: list[dict[str, str]] = []

    @server.tool
    async def headers(ctx: Context) -> str:
        seen.append(dict(ctx.headers))
        return "seen"

    async with (
        gateway_before(server, "http", back) as gateway,
        testing.connect(gateway, revision=front, over="http", auth="secret") as (client, _),
    ):
        sent = {"cookie": "secret", "x-other": "secret", "mcp-param-x": "1"}
        assert (await client.call_tool("b_headers", headers=sent)).text == "seen"
    assert "secret" not in str(seen)


@cases("front", REVISIONS)
async def test_tools_for_clients_that_can_be_asked_are_listed(front: str) -> None:
    """Some servers list a tool only if their client can do what the tool needs."""
    server = Server("back")

    @server.tool
    async def plain() -> str:
        return "plain"

    @server.use
    async def offer(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/list" and not ctx.supports("elicitation"):
            result.tools = []
        return result

    async with gateway_before(server, "memory", "2025-11-25") as gateway:
        async with testing.connect(gateway, revision=front, elicit=lambda message, params: {}) as (client, _):
            assert [tool.name for tool in await client.list_tools()] == ["b_plain"]
        async with testing.connect(gateway, revision=front) as (client, _):
            assert await client.list_tools() == []


@cases("near", OVER)
@cases("far", OVER)
async def test_a_question_outlives_another_call_of_its_client(near: Any, far: str) -> None:
    """A legacy server on one stream does not say which of two calls its question belongs to."""
    server = Server("back")
    asked, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def book(ctx: Context) -> str:
        await waiting.wait()
        return str((await ctx.elicit("Really?", bool)).data)

    waiting = asyncio.Event()

    @server.tool
    async def wait() -> str:
        waiting.set()
        await asked.wait()
        return "waited"

    async def answer(message: str, params: Any) -> dict[str, Any]:
        asked.set()
        await ended.wait()
        return {"value": True}

    async with (
        gateway_before(server, far, "2025-11-25") as gateway,
        testing.connect(gateway, revision="2025-11-25", over=near, elicit=answer) as (client, _),
    ):
        booking = asyncio.ensure_future(client.call_tool("b_book"))
        assert (await client.call_tool("b_wait")).text == "waited"
        ended.set()
        assert (await booking).text == "True"


@pytest.mark.covers("GW-3.17")
@cases("front", REVISIONS)
async def test_a_server_that_was_started_again_between_two_rounds_is_named(front: str) -> None:
    def asking() -> Server:
        server = Server("back")

        @server.tool
        async def name(ctx: Context) -> str:
            return str((await ctx.elicit("Your name?", str)).data)

        return server

    # Two processes of one program: neither can open a state of the other.
    apps = [asking().http_app(), asking().http_app()]

    async def newest(scope: Any, receive: Any, send: Any) -> None:
        await apps[-1](scope, receive, send)

    async def answer(message: str, params: t.ElicitRequestParams) -> Accept:
        apps.append(apps.pop(0))
        return Accept({"value": "Ada"})

    gateway, pool = Gateway("front"), AsgiPool(newest)
    gateway.add("b", HttpTarget("http://localhost/mcp", pool=pool), revision=MODERN)
    try:
        async with testing.connect(gateway, revision=front, elicit=answer) as (client, _):
            with pytest.raises(ProtocolError, match="The server 'b' behind this one did not go on with the request"):
                await client.call_tool("b_name")
    finally:
        await pool.close()
        for app in apps:
            app.drain()
            await app.stop()


@pytest.mark.parametrize("front", [MODERN, "2025-11-25"])
@pytest.mark.parametrize("back", [MODERN, "2025-11-25"])
@cases("far", OVER)
async def test_a_page_that_no_user_can_open_is_not_asked_for(
    front: str, back: str, far: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolwire.server.context.context.check_url", lambda url: None)
    server = Server("back")

    @server.tool
    async def visit(ctx: Context, url: str) -> str:
        return str((await ctx.elicit_url("Sign in", url)).action)

    async def open_page(message: str, params: t.ElicitRequestParams) -> Accept:
        assert params.url == "https://example.com/in"
        return Accept()

    async with (
        gateway_before(server, far, back) as gateway,
        testing.connect(gateway, revision=front, elicit=Elicitation(url=open_page)) as (client, _),
    ):
        for url in ("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "https://a:b@example.com/", ""):
            result = await client.call_tool("b_visit", {"url": url})
            assert result.is_error and "no http or https address" in result.text
            assert "'b'" in result.text or back != MODERN
        assert await client.call_tool("b_visit", {"url": "https://example.com/in"}, returns=str) == "accept"
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("way", ["question", "-32042"])
async def test_a_completion_reaches_the_client_that_the_same_server_asked_alone(
    way: str, replicas: int, tmp_path: Path
) -> None:
    """With two replicas, the server says so to another one than the one that handed its question on."""
    ids = ["the-id"]

    def asking(name: str) -> Server:
        server = Server(name)

        @server.tool
        async def visit(ctx: Context) -> str:
            if way == "-32042":
                raise UrlRequired("Sign in", "https://example.com/in", "the-id")
            asked = await ctx.elicit_url("Sign in", "https://example.com/in")
            ids.append(str(asked.id))
            return asked.action

        @server.tool
        async def done(ctx: Context) -> str:
            return str(await ctx.elicitation_complete(ids[-1]))

        return server

    def completed(wire: Any) -> list[Any]:
        return [each["params"] for each in wire.received if each.get("method") == "notifications/elicitation/complete"]

    async def open_page(message: str, params: t.ElicitRequestParams) -> Accept:
        return Accept()

    stores = SqliteStores(tmp_path / "stores.db")

    def make_replica() -> Gateway:
        gateway = Gateway("front", secret="s" * 32, stores=stores) if replicas == 2 else Gateway("front")
        gateway.add("a", asking("one"), revision="2025-11-25")
        return gateway.add("b", asking("two"), revision="2025-11-25")

    gateway, ask = make_replica(), Elicitation(url=open_page)
    other = make_replica() if replicas == 2 else gateway
    options: dict[str, Any] = {"revision": "2025-11-25", "elicit": ask}
    async with (
        testing.connect(gateway, principal=Principal("alice"), **options) as (alice, _),
        testing.connect(other, principal=Principal("alice"), **options) as (alice_there, at_alice),
        testing.connect(other, principal=Principal("bob"), **options) as (bob, at_bob),
    ):
        with suppress(ProtocolError):
            await alice.call_tool("a_visit")
        for client, tool in ((alice_there, "b_done"), (bob, "a_done"), (bob, "b_done")):
            await client.call_tool(tool)
        await asyncio.sleep(0.4)
        assert not completed(at_alice) and not completed(at_bob)
        await alice_there.call_tool("a_done")
        await until(lambda: completed(at_alice) == [{"elicitationId": ids[-1]}])
        assert not completed(at_bob)
    stores.close()


async def test_pages_that_a_server_invents_are_looked_up_a_few_at_a_time(tmp_path: Path) -> None:
    server, looked_up, may_answer = Server("back"), list[str](), asyncio.Event()

    @server.tool
    async def done(ctx: Context) -> str:
        for number in range(3 * asked_pages.MAX_AT_ONCE):
            await ctx.elicitation_complete(str(number))
        return "done"

    stores = SqliteStores(tmp_path / "stores.db")
    gateway = Gateway("front", secret="s" * 32, stores=stores).add("a", server, revision="2025-11-25")
    get = gateway.stores.kv.get

    async def slow(key: str) -> Any:
        if key.startswith("toolwire:page:"):
            looked_up.append(key)
            await may_answer.wait()
        return await get(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway.stores.kv, "get", slow)
        async with testing.connect(gateway, revision="2025-11-25") as (client, _):
            assert await client.call_tool("a_done", returns=str) == "done"
            await until(lambda: len(looked_up) >= asked_pages.MAX_AT_ONCE)
            assert len(looked_up) == asked_pages.MAX_AT_ONCE
            assert await client.call_tool("a_done", returns=str) == "done"
            may_answer.set()
            await until(lambda: not gateway.kernel.asked_pages._tasks)
    stores.close()
