"""The client and the server of this library over HTTP, on every revision: in process, on a port, and over HTTP+SSE."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Client, Context, Server, testing
from toolwire.client import http_target
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import HttpPool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import OutcomeUnknown, TransportError, Unreachable
from toolwire.protocol.revisions import MODERN, REVISIONS, supports

WAYS = [
    *(("http", revision) for revision in REVISIONS),
    ("sse", "2024-11-05"),
    ("port", "2025-11-25"),
    ("port", MODERN),
]


def make() -> Server:
    server = Server("both")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(ctx: Context, to: int) -> str:
        for step in range(to):
            await ctx.progress(step, total=to)
        return "counted"

    @server.tool
    async def who(ctx: Context) -> str:
        return str(ctx.principal)

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", str)).data or ""

    @server.resource("memo://a")
    async def memo() -> str:
        return "text"

    @server.prompt
    def hello(name: str) -> str:
        return f"Hello {name}"

    return server


def name_it(message: str, params: Any) -> dict[str, str]:
    return {"value": "anna"}


@pytest.mark.covers("R1", "HTTP-10")
@cases(("over", "revision"), WAYS)
async def test_everything_works_on_every_revision(over: Any, revision: str) -> None:
    seen: list[float] = []
    async with testing.connect(make(), revision=revision, over=over, elicit=name_it) as (client, wire):
        assert client.revision == revision
        assert [tool.name for tool in await client.list_tools()] == ["add", "ask", "count", "who"]
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        await client.call_tool("count", {"to": 3}, on_progress=lambda params: seen.append(params.progress))
        if supports(revision, "elicitation"):
            assert await client.call_tool("ask", returns=str) == "anna"
        assert (await client.read_resource("memo://a"))[0].uri == "memo://a"
        assert (await client.get_prompt("hello", {"name": "you"})).messages
        await client.ping()
    assert seen == [0, 1, 2]
    assert any(message.get("method") == "tools/call" for message in wire.sent)
    assert any("result" in message for message in wire.received)


@cases(("over", "revision"), WAYS)
async def test_changes_arrive_on_every_revision(over: Any, revision: str) -> None:
    server = make()
    async with (
        testing.connect(server, revision=revision, over=over) as (client, _),
        client.listen(tools=True) as changes,
    ):

        @server.tool
        def new() -> None: ...

        async for change in changes:
            assert change.kind == "tools"
            break


@cases("over", ["http", "port", "memory"])
@cases("revision", ["2025-11-25", MODERN])
async def test_the_principal_arrives(over: Any, revision: str) -> None:
    async with testing.connect(make(), revision=revision, over=over, principal="anna") as (client, _):
        assert await client.call_tool("who", returns=str) == "anna"


async def test_many_calls_at_once() -> None:
    async with testing.connect(make(), over="port") as (client, _):
        results = await asyncio.gather(*[client.call_tool("add", {"a": n, "b": n}, returns=int) for n in range(200)])
    assert results == [2 * n for n in range(200)]


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_closing_ends_what_is_in_flight(revision: str) -> None:
    server = Server("slow")
    started = asyncio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    async with testing.connect(server, over="http", revision=revision) as (client, _):
        calling = asyncio.ensure_future(client.call_tool("hang"))
        await started.wait()
        await client.close()
        with pytest.raises(Exception, match="was closed before tools/call"):
            await calling


async def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9 cannot be reached"):
        await Client("http://127.0.0.1:9/mcp").connect()


async def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="over= is one of memory, stdio, http, sse, port"):
        async with testing.connect(make(), over="pigeon"):  # type: ignore[arg-type]
            pass


async def test_an_answer_finds_a_connection_however_many_calls_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_target, "HttpPool", partial(HttpPool, connections=4))
    async with testing.connect(make(), revision="2025-11-25", over="port", elicit=name_it) as (client, _):
        answers = await asyncio.gather(*(client.call_tool("ask", returns=str) for _ in range(12)))
    assert answers == ["anna"] * 12


class Breaking(AsgiPool):
    """A way to a server on which the first posts of answers are lost, after they arrived or before."""

    def __init__(self, server: Server, lost: list[TransportError], *, arrives: bool) -> None:
        super().__init__(server.http_app())
        self.lost = lost
        self._arrives = arrives

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        if self.lost and body is not None and b'"result"' in body:
            if self._arrives:
                (await super().send(method, url, headers, body)).close()
            raise self.lost.pop()
        return await super().send(method, url, headers, body)


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_answer_that_may_be_lost_is_posted_again(arrives: bool) -> None:
    server = make()
    broken = OutcomeUnknown("answered with status 502")
    broken.status = 502
    pool = Breaking(server, [OutcomeUnknown("broke off"), broken], arrives=arrives)
    target = http_target.HttpTarget("http://localhost/mcp", pool=pool)
    async with Client(target, revision="2025-11-25", elicit=lambda message, params: {"value": "Anna"}) as client:
        assert (await client.call_tool("ask")).text == "Anna"
    assert pool.lost == []
    await pool.close()
