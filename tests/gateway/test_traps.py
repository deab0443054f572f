"""Mistakes that other gateways have made, one test for each. Tests with other names prove the rest of the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.client.fake import FakeServer
from tests.gateway.backs import gateway_before, until

from toolwire import Client, Context, Server, testing
from toolwire.client import Accept, Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.gateway import Gateway
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.revisions import MODERN

LEGACY = "2025-11-25"
FRONT_AND_BACK = pytest.mark.parametrize(
    ("front", "back"), [(front, back) for front in (MODERN, LEGACY) for back in (MODERN, LEGACY)]
)

#: Members that no type here knows, numbers in an unusual form, and what proxies forget: `_meta`, `mimeType`.
CALLED = (
    b'"content":[{"type":"text","text":"x","_meta":{"com.example/a":1.10},"future":[1e2]},'
    b'{"type":"resource","resource":{"uri":"odd://a","mimeType":"text/x-odd","text":"y","_meta":{"com.example/c":3.0}}}],'
    b'"structuredContent":{"n":"not a number","m":1.50},"_meta":{"com.example/b":2.50},"coming":{"x":1.0}'
)
READ = (
    b'"contents":[{"uri":"odd://a","mimeType":"text/x-odd","text":"y","_meta":{"com.example/a":1.10},"future":[1e2]}]'
)
PROMPTED = (
    b'"messages":[{"role":"user","content":{"type":"text","text":"x","_meta":{"com.example/a":1.10}},"future":1.0}]'
)
TOOL = (
    b'"inputSchema":{"type":"object","x-odd":true},'
    b'"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},'
)


def odd() -> FakeServer:
    """Make a server whose answers hold what no type here knows, and a result that its schema does not allow."""

    def answer(method: str, members: bytes) -> Any:
        def send(request: Any, outlet: Any) -> Raw:
            more = b""
            if request.modern:
                more = b'"resultType":"complete",'
                if method.endswith(("list", "read")):
                    more += b'"ttlMs":5000,"cacheScope":"public",'
            return Raw(b"{" + more + members + b"}")

        return send

    tool = b'{"name":"run",' + TOOL + b'"future":{"x":1.0},"_meta":{"com.example/a":1.10}}'
    answers = {
        "tools/list": b'"tools":[' + tool + b"]",
        "tools/call": CALLED,
        "resources/list": b'"resources":[{"uri":"odd://a","name":"a","mimeType":"text/x-odd","future":[1e2]}]',
        "resources/templates/list": b'"resourceTemplates":[]',
        "resources/read": READ,
        "prompts/list": b'"prompts":[{"name":"say","future":[1e2]}]',
        "prompts/get": PROMPTED,
    }
    return FakeServer(
        {method: answer(method, members) for method, members in answers.items()},
        capabilities={"tools": {}, "resources": {}, "prompts": {}},
    )


async def looks(ctx: Any, call_next: Any) -> Any:
    """A middleware that looks at results, so that they are decoded on the way."""
    return await call_next(ctx)


@pytest.mark.covers("GW-3.23", "GW-11.4")
@pytest.mark.parametrize("reads", [False, True], ids=["raw", "read"])
@FRONT_AND_BACK
async def test_members_of_answers_and_definitions_are_not_dropped(front: str, back: str, reads: bool) -> None:
    gateway = Gateway("front")
    gateway.add("b", odd(), prefix="", revision=back)
    if reads:
        gateway.use(looks)
    heard: list[bytes] = []
    client = Client(gateway, revision=front, on_message=lambda way, data: heard.append(data) if way == "←" else None)
    async with client:

        async def raw(method: str, **params: Any) -> bytes:
            await client.request(method, params)
            return heard[-1]

        listed = await raw("tools/list")
        for part in (TOOL.strip(b","), b'"future":{"x":1.0}', b'"com.example/a":1.10'):
            assert part in listed, part
        called = await raw("tools/call", name="run", arguments={})
        for part in (
            b'{"type":"text","text":"x","_meta":{"com.example/a":1.10},"future":[1e2]}',
            b'"mimeType":"text/x-odd"',
            b'"com.example/c":3.0',
            b'"com.example/b":2.50',
            b'"coming":{"x":1.0}',
        ):
            assert part in called, part
        assert b'"future":[1e2]' in await raw("resources/list")
        read = await raw("resources/read", uri="odd://a")
        for part in (b'"mimeType":"text/x-odd"', b'"com.example/a":1.10', b'"future":[1e2]'):
            assert part in read, part
        assert b'"future":[1e2]' in await raw("prompts/list")
        got = await raw("prompts/get", name="say")
        assert b'"com.example/a":1.10' in got and b'"future":1.0' in got


@pytest.mark.covers("GW-11.5")
@pytest.mark.parametrize("reads", [False, True], ids=["raw", "read"])
@FRONT_AND_BACK
async def test_an_output_schema_is_not_policed_in_the_middle(front: str, back: str, reads: bool) -> None:
    gateway = Gateway("front")
    gateway.add("b", odd(), prefix="", revision=back)
    if reads:
        gateway.use(looks)
    async with testing.connect(gateway, revision=front) as (client, _):
        result = await client.request("tools/call", {"name": "run", "arguments": {}})
        assert msgspec.json.decode(msgspec.json.encode(result))["structuredContent"] == {"n": "not a number", "m": 1.5}


@pytest.mark.covers("GW-11.2")
async def test_a_page_to_open_keeps_its_id_and_its_end_is_told() -> None:
    server = Server("back")
    opened: list[str | None] = []

    @server.tool
    async def visit(ctx: Context) -> str:
        answer = await ctx.elicit_url("Sign in", "https://example.com/in")
        opened.append(answer.id)
        await ctx.elicitation_complete(answer.id)
        return answer.action

    shown: list[Any] = []
    done: asyncio.Queue[str] = asyncio.Queue()

    async def page(message: str, params: Any) -> Accept:
        shown.append(params.elicitation_id)
        return Accept()

    asks = Elicitation(url=page, completed=done.put_nowait)
    async with (
        gateway_before(server, "memory", LEGACY) as gateway,
        testing.connect(gateway, revision=LEGACY, elicit=asks) as (client, _),
    ):
        assert await client.call_tool("b_visit", returns=str) == "accept"
        assert [await done.get()] == shown == opened


@pytest.mark.covers("GW-11.13")
@pytest.mark.parametrize("front", [MODERN, LEGACY])
async def test_what_one_credential_sees_is_not_shown_to_another(front: str) -> None:
    """The same server twice, with two tokens: lists and sessions are those of each."""
    server = Server("back")

    @server.tool
    async def whose(ctx: Context) -> str:
        return str(ctx.headers["authorization"])

    @server.use
    async def of_token(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/list":
            result.tools[0].description = ctx.headers["authorization"]
        return result

    async with pool_of(server) as pool:
        gateway = Gateway("front")
        for name in ("one", "two"):
            gateway.add(name, HttpTarget("http://localhost/mcp", pool=pool, auth=f"token-{name}"))
        async with testing.connect(gateway, revision=front) as (client, _):
            described = {tool.name: tool.description for tool in await client.list_tools()}
            assert described == {"one_whose": "Bearer token-one", "two_whose": "Bearer token-two"}
            for name in ("one", "two"):
                assert await client.call_tool(f"{name}_whose", returns=str) == f"Bearer token-{name}"


@pytest.mark.covers("GW-11.14")
async def test_a_server_that_takes_the_name_of_another_gets_none_of_its_sessions() -> None:
    def back(says: str) -> Server:
        server = Server(says)

        @server.tool
        async def session(ctx: Context) -> str:
            return f"{says} {ctx.session_id}"

        return server

    gateway = Gateway("front")
    async with pool_of(back("old")) as old, pool_of(back("new")) as new:
        gateway.add("b", HttpTarget("http://localhost/mcp", pool=old), revision=LEGACY)
        async with testing.connect(gateway, revision=LEGACY, over="http") as (client, _):
            said, session = (await client.call_tool("b_session")).text.split()
            assert said == "old"
            gateway.remove("b")
            gateway.add("b", HttpTarget("http://localhost/mcp", pool=new), revision=LEGACY)
            await until(lambda: gateway.backs["b"].state == "ready")
            said, other = (await client.call_tool("b_session")).text.split()
            assert said == "new" and other != session


@pytest.mark.covers("GW-11.12")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_credential_says_nothing_about_the_era(status: int) -> None:
    server = Server("back")
    opened: list[Any] = []

    async def door(app: Any, scope: Any, receive: Any, send: Any) -> None:
        opened.append(scope)
        # The first request asks for the era. A server of either era would answer the next one.
        if len(opened) > 1:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with pool_of(server, door) as pool:
        target = HttpTarget("http://localhost/mcp", pool=pool)
        with pytest.raises(ToolwireError):
            async with Client(target):
                pass
        assert target.verdict is None
        gateway = Gateway("front")
        gateway.add("b", target)
        async with testing.connect(gateway):
            assert gateway.backs["b"].revision == MODERN


@asynccontextmanager
async def pool_of(server: Server, door: Any = None) -> AsyncIterator[AsgiPool]:
    """Yield the connections to a server over HTTP; `door` stands before it."""
    app = server.http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        await door(app, scope, receive, send)

    pool = AsgiPool(app if door is None else guarded)
    try:
        yield pool
    finally:
        app.drain()
        await pool.close()
        await app.stop()
