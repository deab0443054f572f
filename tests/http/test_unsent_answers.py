"""Answers that a client does not read: they are counted for its caller until they are sent, and bounded."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
import uvicorn
from tests.http.httpclient import initialize_request
from tests.wireclient import modern_meta

from toolwire import Server
from toolwire.http import serving as http_server
from toolwire.http import unsent_answers
from toolwire.http.legacy import http_sse_2024
from toolwire.http.legacy.event_log import EventLog
from toolwire.http.legacy.post_stream import PostStream
from toolwire.http.unsent_answers import PIECE_BYTES, PacedSend, UnsentAnswers
from toolwire.protocol.errors import Unreachable
from toolwire.stores import MemoryLog
from toolwire.wire.shares import Shares, Taken

MIB = 1024 * 1024
SIZE = 12 * MIB


def make_server() -> Server:
    server = Server("large")

    @server.tool
    async def large() -> str:
        await asyncio.sleep(0)
        return "x" * SIZE

    @server.tool
    def small() -> str:
        return "small"

    @server.resource("data://large")
    def data() -> str:
        return "x" * SIZE

    return server


def make_streams() -> Any:
    """Return the streams of a process that has no others."""
    streams = MagicMock()
    streams.process, streams.events = "here", EventLog(MemoryLog())
    streams.lease = AsyncMock(return_value="")
    return streams


@asynccontextmanager
async def own_host(app: Any) -> AsyncIterator[int]:
    sockets = http_server.listen("127.0.0.1", 0, public=False)
    running = http_server.HttpServer(app, sockets, drain=0.2)
    ready = asyncio.Event()
    task = asyncio.create_task(running.serve(ready.set))
    await ready.wait()
    try:
        yield sockets[0].getsockname()[1]
    finally:
        running.stop()
        await task


@asynccontextmanager
async def uvicorn_host(app: Any) -> AsyncIterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    async with app.lifespan():
        task = asyncio.create_task(running.serve([listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            running.should_exit = True
            await task
            listening.close()


class Caller:
    """Sends requests, each on a connection of its own, and reads as little of the answer as it is asked to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.headers: dict[str, str] = {}
        self.writers: list[asyncio.StreamWriter] = []

    async def begin(
        self, message: dict[str, Any], path: str = "/mcp", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request, and return the status and the headers of its answer. The body is left unread."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
        self.writers.append(writer)
        body = json.dumps(message).encode()
        sent = {
            "host": f"127.0.0.1:{self._port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "content-length": str(len(body)),
            **self.headers,
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        answered = {name.lower(): value for name, value in pairs}
        return int(head[0].split()[1]), reader, answered

    async def call(self, name: str, *, modern: bool) -> tuple[int, Any, dict[str, str]]:
        if name.startswith("data:"):
            method, params = "resources/read", {"uri": name}
        else:
            method, params = "tools/call", {"name": name}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": len(self.writers), "method": method, "params": params}
        if not modern:
            return await self.begin(message)
        message["params"]["_meta"] = modern_meta()
        marks = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": name}
        return await self.begin(message, **marks)

    async def initialize(self) -> None:
        status, _, headers = await self.begin(initialize_request("2025-11-25"))
        assert status == 200
        self.headers = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        assert (await self.begin({"jsonrpc": "2.0", "method": "notifications/initialized"}))[0] == 202

    def leave(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@pytest.mark.parametrize(
    ("host", "what", "modern", "accept"),
    [
        (own_host, "large", True, ""),
        (own_host, "data://large", True, ""),
        (own_host, "large", True, "text/event-stream"),
        (own_host, "large", False, ""),
        (uvicorn_host, "large", True, ""),
        (uvicorn_host, "data://large", False, ""),
    ],
)
async def test_requests_are_refused_while_large_answers_stay_unread(
    monkeypatch: pytest.MonkeyPatch, host: Any, what: str, modern: bool, accept: str
) -> None:
    monkeypatch.setattr(unsent_answers, "UNSENT_BYTES", 40 * MIB, raising=False)
    app = make_server().http_app()
    async with asyncio.timeout(20), host(app) as port:
        caller, other = Caller(port), Caller(port)
        if accept:
            caller.headers["accept"] = accept
        if not modern:
            await caller.initialize()
            other.headers = dict(caller.headers)
        for _ in range(2):
            assert (await caller.call(what, modern=modern))[0] == 200
        status, _, headers = await other.call("small", modern=modern)
        assert (status, headers.get("retry-after")) == (503, "5")
        assert app.runtime().unsent.shares.total > 2 * SIZE
        caller.leave()
        while (await other.call("small", modern=modern))[0] != 200:
            await asyncio.sleep(0.01)
        assert app.runtime().unsent.shares.total == 0
        other.leave()


async def test_answer_that_is_read_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(20), own_host(make_server().http_app()) as port:
        caller = Caller(port)
        status, reader, headers = await caller.call("large", modern=True)
        body = await reader.readexactly(int(headers["content-length"]))
        assert status == 200
        assert json.loads(body)["result"]["content"][0]["text"] == "x" * SIZE
        caller.leave()


@pytest.mark.parametrize("modern", [True, False])
async def test_answers_of_running_calls_are_dropped_above_the_limit(
    monkeypatch: pytest.MonkeyPatch, modern: bool
) -> None:
    monkeypatch.setattr(unsent_answers, "UNSENT_BYTES", SIZE)
    async with asyncio.timeout(20), own_host(make_server().http_app()) as port:
        caller = Caller(port)
        if not modern:
            await caller.initialize()
        status, reader, headers = await caller.call("large", modern=modern)
        body = await reader.readexactly(int(headers["content-length"]))
        assert status == 200
        assert "too many earlier answers are unread" in json.loads(body)["error"]["message"]
        caller.leave()


class Answers:
    """A client without a connection of its own: it notes the bytes that arrive, and takes them when it is told."""

    def __init__(self) -> None:
        self.body = b""
        self.reads = asyncio.Event()

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.body += message.get("body", b"")

    async def receive(self) -> Any:
        await asyncio.Event().wait()


async def test_legacy_answers_count_for_their_caller_while_they_wait_in_streams() -> None:
    """Ten calls end together. What exceeds the share is replaced by errors, before anything is sent."""
    ids, size = range(10), MIB
    unsent, streams = UnsentAnswers(0.25), make_streams()
    unsent.shares.own = 3 * size + size // 2
    clients = [Answers() for _ in ids]
    posts: list[PostStream] = []
    for number, client in zip(ids, clients, strict=True):
        paced = PacedSend(client.send, unsent, "a", asyncio.current_task())
        stream = PostStream(streams, "session", f"p{number}", "2025-11-25", client.receive, paced, ())
        stream.expect(number)
        stream._start()
        posts.append(stream)
    for number, stream in zip(ids, posts, strict=True):
        stream.settle(number, b'{"jsonrpc":"2.0","id":%d,"result":"%s"}' % (number, b"x" * size))
    waiting = sum(stream._queue.size for stream in posts)
    assert waiting < unsent.shares.own + 10 * 1000
    assert 3 * size <= unsent.shares.held_by("a") <= unsent.shares.own
    for client in clients:
        client.reads.set()
    async with asyncio.timeout(20):
        for stream in posts:
            await stream.serve()
            await stream.finished()
    assert [b"too many earlier answers are unread" in client.body for client in clients] == [False] * 3 + [True] * 7
    assert all(b'"id":%d' % number in client.body for number, client in zip(ids, clients, strict=True))
    assert unsent.shares.total == 0
    await streams.events.close()


async def test_legacy_answers_stop_counting_when_their_client_leaves() -> None:
    unsent, client, streams = UnsentAnswers(0.25), Answers(), make_streams()
    paced = PacedSend(client.send, unsent, "a", asyncio.current_task())
    stream = PostStream(streams, "session", "p", "2025-11-25", client.receive, paced, (), [])
    stream.expect(1)
    stream.expect(2)
    stream.settle(1, b"x" * MIB)
    assert unsent.shares.held_by("a") == MIB
    stream.detach()
    assert unsent.shares.total == 0
    stream.settle(2, b"x" * MIB)
    assert unsent.shares.total == 0


async def test_answers_of_a_batch_without_a_session_count_while_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("batch")
    finish, begun = asyncio.Event(), asyncio.Event()

    @server.tool
    async def large() -> str:
        await asyncio.sleep(0)
        return "x" * MIB

    @server.tool
    async def slow() -> str:
        begun.set()
        await finish.wait()
        return "slow"

    app = server.http_app(stateless=True)
    async with asyncio.timeout(20), own_host(app) as port:
        caller = Caller(port)
        calls = [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}
            for number, name in enumerate(["large", "large", "slow"])
        ]
        begins = asyncio.create_task(caller.begin(calls, **{"mcp-protocol-version": "2025-03-26"}))  # type: ignore[arg-type]
        while app.runtime().unsent.shares.total < 2 * MIB:
            await asyncio.sleep(0.01)
        assert begun.is_set()
        finish.set()
        assert (await begins)[0] == 200
        caller.leave()
        while app.runtime().unsent.shares.total:
            await asyncio.sleep(0.01)


async def test_old_stream_counts_answers_that_wait_and_replaces_those_above_the_limit() -> None:
    client, unsent = Answers(), UnsentAnswers(0.25)
    unsent.shares.own = 2 * MIB
    paced = PacedSend(client.send, unsent, "a", asyncio.current_task())
    channel = http_sse_2024.SseServerChannel(paced)
    for number in range(4):
        channel.write(b'{"jsonrpc":"2.0","id":%d,"result":"%s"}' % (number, b"x" * (MIB - 100)))
    assert 2 * (MIB - 100) < unsent.shares.held_by("a") <= 2 * MIB
    client.reads.set()
    await channel.close()
    async with asyncio.timeout(20):
        await channel.pump()
    assert client.body.count(b"too many earlier answers are unread") == 2
    assert unsent.shares.total == 0


def test_one_caller_is_refused_before_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent_answers, "UNSENT_BYTES", 80)
    unsent = UnsentAnswers(0.25)
    unsent.shares.take("a", 10)
    unsent.check("b")
    with pytest.raises(Taken, match="You have 10 bytes of unread answers") as refusal:
        unsent.check("a")
    assert refusal.value.own
    for caller in "bcd":
        unsent.shares.take(caller, 10)
    with pytest.raises(Taken, match="The server has 40 bytes of unread answers"):
        unsent.check("e")


async def test_request_is_cancelled_when_its_client_takes_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent_answers, "PIECE_SECONDS", 0.01)
    unsent = UnsentAnswers(0.25)
    sent: list[int] = []

    async def send(message: Any) -> None:
        if sent:
            await asyncio.Event().wait()
        sent.append(len(message["body"]))

    async def serve() -> None:
        await PacedSend(send, unsent, "a")({"type": "http.response.body", "body": b"x" * 3 * PIECE_BYTES})

    task = asyncio.create_task(serve())
    async with asyncio.timeout(20):
        await asyncio.wait({task})
    assert task.cancelled()
    assert sent == [PIECE_BYTES]
    assert unsent.shares.total == 0


async def test_old_stream_ends_when_its_answers_stay_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sse_2024, "MOST_UNREAD", 1000)

    async def send(message: Any) -> None:
        await asyncio.Event().wait()

    channel = http_sse_2024.SseServerChannel(PacedSend(send, UnsentAnswers(0.25), "a"))
    channel.write(b"x" * 900)
    with pytest.raises(Unreachable, match="unread"):
        channel.write(b"x" * 900)
    assert not channel.is_connected
    assert await channel.read() is None


async def test_old_stream_refuses_calls_while_it_is_full() -> None:
    class Outlet:
        full = True

    handler = http_sse_2024._Counting(None, None, Shares(9, 1.0, "requests"), UnsentAnswers(0.25))  # type: ignore[arg-type]
    with pytest.raises(Taken, match="bytes of unread answers"):
        await handler.handle(None, Outlet())  # type: ignore[arg-type]
