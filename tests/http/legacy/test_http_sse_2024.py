"""The HTTP+SSE transport of 2024-11-05, behind its switch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient, initialize_request
from tests.wireclient import modern_meta

from toolwire import Context, Limits, Server
from toolwire.http.asgi import HttpApp
from toolwire.stores import Stores

Message = dict[str, Any]
SECRET = "a secret of at least sixteen bytes"


class Stage:
    """Where a handler that waits reports what becomes of it, and is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()


def make_server(stage: Stage | None = None, **options: Any) -> Server:
    server = Server("almanac", secret=SECRET, **options)
    stage = stage or Stage()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Why?")).content.text  # type: ignore[union-attr]

    @server.tool
    async def wait() -> str:
        stage.reached.set()
        try:
            await stage.go.wait()
        except asyncio.CancelledError:
            stage.cancelled.set()
            raise
        return "done"

    return server


class OldClient(HttpClient):
    """A client of 2024-11-05: one stream, and an address to post to."""

    stream: Answer
    address: str

    async def connect(self, **options: Any) -> OldClient:
        self.stream = self.start_get(path="/sse", **options)
        await self.stream.started()
        assert self.stream.status == 200, self.stream.body
        first = (await self.stream.until(lambda: self.stream.events))[0]
        assert first.event == "endpoint"
        self.address = first.data
        return self

    async def send(self, message: Any, app: Any = None, **options: Any) -> Answer:
        parts = urlsplit(self.address)
        sender = self if app is None else HttpClient(app)
        sender.principal = self.principal
        return await sender.post(message, path=parts.path, query=parts.query, **options)

    async def request(self, method: str, params: Message | None = None, *, id: Any = 1, app: Any = None) -> Message:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
        answer = await self.send(message, app)
        assert (answer.status, answer.body) == (202, b"")
        return await self.message(lambda each: each.get("id") == id and "method" not in each)

    async def message(self, wanted: Callable[[Message], bool]) -> Message:
        def find() -> Message | None:
            data = [json.loads(event.data) for event in self.stream.events if event.event == "message"]
            return next((each for each in data if wanted(each)), None)

        found: Message = await self.stream.until(find)
        return found

    async def initialize(self, capabilities: Message | None = None) -> Message:
        answer = await self.send(initialize_request("2024-11-05", capabilities))
        assert answer.status == 202
        result = await self.message(lambda each: each.get("id") == "init")
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result


@asynccontextmanager
async def connected(*apps: HttpApp) -> AsyncIterator[OldClient]:
    client = OldClient(apps[0])
    try:
        yield await client.connect()
    finally:
        await client.close()
        for app in apps:
            await app.stop()


@pytest.mark.covers("3.2.1", "3.2.2", "3.2.3", "3.2.5", "2.1.5")
async def test_answers_come_on_the_stream_and_posts_are_202() -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        assert client.stream.headers["content-type"] == "text/event-stream"
        assert client.address.startswith("/messages?session=")
        result = await client.initialize()
        assert result["result"]["protocolVersion"] == "2024-11-05"
        called = await client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 5}})
        assert called["result"]["content"][0]["text"] == "7"
        assert all(event.event == "message" and not event.id for event in client.stream.events[1:])


@cases("wanted", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01"])
async def test_the_transport_speaks_its_own_revision_only(wanted: str) -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        await client.send(initialize_request(wanted))
        result = await client.message(lambda each: each.get("id") == "init")
        assert result["result"]["protocolVersion"] == "2024-11-05"
        answer = await client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 5}})
        assert "structuredContent" not in answer["result"]


async def test_the_transport_takes_no_request_that_carries_its_version() -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        answer = await client.request("tools/list", {"_meta": modern_meta()})
        assert answer["error"]["code"] == -32022
        assert answer["error"]["data"]["supported"] == ["2024-11-05"]


async def test_the_server_can_ask() -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        await client.initialize({"sampling": {}})
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask"}}
        await client.send(call)
        question = await client.message(lambda each: each.get("method") == "sampling/createMessage")
        result = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Because."}}
        await client.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
        answer = await client.message(lambda each: each.get("id") == 2 and "result" in each)
        assert answer["result"]["content"][0]["text"] == "Because."


@pytest.mark.covers("3.2.6")
async def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    stage = Stage()
    app = make_server(stage, limits=Limits(drain=0.0)).http_app(sse=True)
    async with connected(app) as client:
        await client.initialize()
        await client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait"}})
        await stage.reached.wait()
        await client.stream.disconnect()
        await stage.cancelled.wait()
        assert app.sse is not None
        assert len(app.sse) == 0
        assert (await client.send({"jsonrpc": "2.0", "id": 3, "method": "ping"})).status == 404


@pytest.mark.covers("J91")
async def test_changes_come_on_the_stream() -> None:
    server = make_server()
    async with connected(server.http_app(sse=True)) as client:
        await client.initialize()
        await client.request("ping", id=5)
        server.notify_changed("tools")
        await client.message(lambda each: each.get("method") == "notifications/tools/list_changed")


async def test_a_post_may_reach_another_replica() -> None:
    stores = Stores.memory()
    apps = [make_server(stores=stores).http_app(sse=True) for _ in range(2)]
    async with connected(*apps) as client:
        await client.initialize()
        params = {"name": "add", "arguments": {"a": 1, "b": 1}}
        answer = await client.request("tools/call", params, app=apps[1])
        assert answer["result"]["content"][0]["text"] == "2"


async def test_addresses_that_are_forged_stolen_or_over_are_404() -> None:
    app = make_server().http_app(sse=True)
    client = OldClient(app)
    client.principal = "alice"
    try:
        await client.connect()
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.send(ping)).status == 202
        mallory = HttpClient(app)
        query = urlsplit(client.address).query
        for who, wrong in ((mallory, query), (client, ""), (client, "session=x"), (client, f"{query}&{query}")):
            assert (await who.post(ping, path="/messages", query=wrong)).status == 404
        # An id of the other transport is none of this one.
        opened = await client.post(initialize_request())
        other = f"session={opened.headers['mcp-session-id']}"
        assert (await client.post(ping, path="/messages", query=other)).status == 404
    finally:
        await client.close()
        await app.stop()


@pytest.mark.covers("3.2.4")
async def test_a_foreign_origin_is_refused_on_both_addresses() -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        foreign = {"origin": "https://evil.example"}
        assert (await client.start_get(foreign, path="/sse").finished()).status == 403
        assert (await client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=foreign)).status == 403


async def test_methods_types_and_limits() -> None:
    app = make_server(limits=Limits(sessions=1, line=1000)).http_app(sse=True)
    async with connected(app) as client:
        assert (await client.start("DELETE", path="/sse").finished()).status == 405
        assert (await client.start_get(path="/messages").finished()).status == 405
        assert (await client.start_get({"accept": "application/json"}, path="/sse").finished()).status == 406
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.send(ping, headers={"content-type": "text/plain"})).status == 415
        assert (await client.send(b"[" + b" " * 1000 + b"]")).status == 413
        full = await client.start_get(path="/sse").finished()
        assert full.status == 503
        assert "retry-after" in full.headers


async def test_a_broken_message_is_answered_on_the_stream() -> None:
    async with connected(make_server().http_app(sse=True)) as client:
        assert (await client.send(b"{")).status == 202
        error = await client.message(lambda each: "error" in each)
        assert error["error"]["code"] == -32700


async def test_the_address_is_below_the_prefix_of_the_mount() -> None:
    app = make_server().http_app(sse=True)
    client = OldClient(app)
    try:
        await client.connect(root_path="/tools")
        assert client.address.startswith("/tools/messages?session=")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        query = urlsplit(client.address).query
        assert (await client.post(ping, path="/tools/messages", query=query, root_path="/tools")).status == 202
    finally:
        await client.close()
        await app.stop()


async def test_draining_ends_the_stream() -> None:
    app = make_server().http_app(sse=True)
    async with connected(app) as client:
        await client.initialize()
        app.drain()
        await client.stream.finished()


async def test_calls_in_flight_are_answered_before_the_stream_ends() -> None:
    stage = Stage()
    app = make_server(stage).http_app(sse=True)
    async with connected(app) as client:
        await client.initialize()
        await client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait"}})
        await stage.reached.wait()
        app.drain()
        assert (await client.send({"jsonrpc": "2.0", "id": 3, "method": "ping"})).status == 503
        stopping = asyncio.create_task(app.stop())
        stage.go.set()
        answer = await client.message(lambda each: each.get("id") == 2)
        assert answer["result"]["content"][0]["text"] == "done"
        await client.stream.finished()
        await stopping


async def test_a_call_that_goes_on_and_on_does_not_keep_the_server_from_stopping() -> None:
    stage = Stage()
    app = make_server(stage, limits=Limits(drain=0.0)).http_app(sse=True)
    async with connected(app) as client:
        await client.initialize()
        await client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait"}})
        await stage.reached.wait()
        await app.stop()
        await stage.cancelled.wait()
        await client.stream.finished()


async def test_the_transport_is_off_unless_asked_for() -> None:
    app = make_server().http_app()
    client = HttpClient(app)
    assert (await client.start_get(path="/sse").finished()).status == 404
    assert (await client.post({}, path="/messages")).status == 404
    await app.stop()
