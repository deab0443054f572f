"""A transport that we did not write: TCP, brought by a user as a `Channel` of twenty lines, both eras over it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.wireclient import LEGACY, MODERN, REVISIONS, modern_meta

from toolwire import Client, Context, Resource, Server, testing
from toolwire.client import Decline
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.transports import Channel, LineDecoder


class SocketChannel(Channel):
    """One message a line over a socket: connected by whoever makes it, cancelled by the messages of the protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = LineDecoder()
        self._messages: deque[bytes] = deque()

    async def read(self) -> bytes | None:
        while not self._messages:
            chunk = await self._reader.read(65536)
            self._messages.extend(self._lines.feed(chunk) if chunk else self._lines.finish())
            if not chunk and not self._messages:
                return None
        return self._messages.popleft()

    def write(self, message: bytes) -> None:
        if self._writer.is_closing():
            raise Unreachable("the socket is closed")
        self._writer.write(message + b"\n")

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


class Trip:
    """A server with one of everything that a connection is used for, and what its handlers saw."""

    def __init__(self) -> None:
        self.metas: list[dict[str, Any]] = []
        self.waiting = asyncio.Event()
        self.stopped = asyncio.Event()
        self.server = server = Server("trip", instructions="Travel light.")

        @server.tool
        async def book(city: str, ctx: Context) -> str:
            self.metas.append(ctx.meta)
            await ctx.progress(1, total=1)
            answer = await ctx.elicit(f"Really {city}?", bool)
            return f"{city}: {answer.data if answer.accepted else 'not booked'}"

        @server.tool
        async def wait() -> None:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

        @server.resource("map://{city}")
        def map(city: str) -> str:
            return f"a map of {city} \n with two lines"


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[tuple[str, int]]:
    """The address at which `server` takes connections."""
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        channel = SocketChannel(reader, writer)
        try:
            await server.serve(channel)
        finally:
            await channel.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()
    finally:
        listener.close()
        # Every connection ends by itself once its client is gone.
        await asyncio.gather(*connections)


@pytest.mark.covers("TRN-2")
@cases("revision", REVISIONS)
async def test_calls_reports_questions_and_errors_travel_over_any_channel(revision: str) -> None:
    trip, asked, reports = Trip(), list[str](), list[float]()

    def answer(message: str, params: t.ElicitRequestParams) -> Any:
        asked.append(message)
        return Decline() if "Rome" in message else {"value": True}

    async with listening(trip.server) as address:
        channel = SocketChannel(*await asyncio.open_connection(*address))
        async with Client(channel, revision=revision, elicit=answer) as client:
            assert (client.revision, client.instructions) == (revision, "Travel light.")
            assert {tool.name for tool in await client.list_tools()} == {"book", "wait"}
            [found] = await client.read_resource("map://Oslo")
            assert found.text == "a map of Oslo \n with two lines"
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await client.call_tool("no-such-tool")
            booked = [
                (await client.call_tool("book", {"city": city}, on_progress=lambda p: reports.append(p.progress))).text
                for city in ("Oslo", "Rome")
            ]
            if revision in ("2024-11-05", "2025-03-26"):
                assert asked == []  # These know no elicitation, whatever carries them.
            else:
                assert asked == ["Really Oslo?", "Really Rome?"]
                assert booked == ["Oslo: True", "Rome: not booked"]
            assert set(reports) == {1.0}
    # 2026-07-28 basic/transports: each request says who sends it; the earlier revisions said so once.
    for meta in trip.metas:
        assert "progressToken" in meta
        assert meta.get(t.PROTOCOL_VERSION_KEY) == (MODERN if revision == MODERN else None)
        assert (t.CLIENT_CAPABILITIES_KEY in meta) == (revision == MODERN)


@pytest.mark.covers("TRN-2")
@pytest.mark.parametrize("revision", [LEGACY[-1], MODERN])
async def test_giving_up_reaches_the_server_over_any_channel(revision: str) -> None:
    trip = Trip()
    async with listening(trip.server) as address:
        channel = SocketChannel(*await asyncio.open_connection(*address))
        async with Client(channel, revision=revision) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await trip.waiting.wait()
            call.cancel()
            await trip.stopped.wait()
            await client.ping()


@pytest.mark.covers("TRN-3")
async def test_the_bytes_on_the_socket_are_those_of_stdio() -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}}
    reading = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "resources/read",
        "params": {"uri": "map://Oslo", "_meta": modern_meta()},
    }
    sent = b"".join(json.dumps(each).encode() + b"\n" for each in (listing, reading))
    async with listening(Trip().server) as address:
        reader, writer = await asyncio.open_connection(*address)
        # Cut in the middle of a message: where a chunk ends means nothing.
        for piece in (sent[:25], sent[25:-30], sent[-30:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        answers = {answer["id"]: answer for answer in [json.loads(await reader.readline()) for _ in range(2)]}
        assert {tool["name"] for tool in answers[1]["result"]["tools"]} == {"book", "wait"}
        assert answers[2]["result"]["contents"][0]["text"] == "a map of Oslo \n with two lines"
        writer.close()
        assert await reader.read() == b""
        await writer.wait_closed()


OVER: tuple[Any, ...] = ("memory", "stdio", "http", "port")


@pytest.mark.covers("TRN-1")
@cases("over", OVER)
async def test_only_the_client_asks_and_only_the_server_answers(over: Any) -> None:
    """On 2026-07-28 a transport carries requests and notifications one way, responses and notifications the other."""
    server = Server("s", resources=Resource("note://a", content="x"))
    waiting = asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.progress(1)
        answer = await ctx.elicit("Really?", bool)
        return str(answer.data)

    @server.tool
    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with testing.connect(server, revision=MODERN, over=over, elicit=lambda message, schema: {"value": True}) as (
        client,
        wire,
    ):
        reports: list[Any] = []
        assert (await client.call_tool("ask", on_progress=reports.append)).text == "True"
        assert reports
        async with client.listen(resources=["note://a"]) as changes:
            server.notify_updated("note://a")
            async for _ in changes:
                break
        given_up = asyncio.create_task(client.call_tool("wait"))
        await waiting.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
    kinds: dict[str, set[str]] = {"→": set(), "←": set()}
    for direction, message in wire.messages:
        kind = "response" if "method" not in message else "request" if "id" in message else "notification"
        kinds[direction].add(kind)
    assert kinds["→"] <= {"request", "notification"}
    assert kinds["←"] == {"response", "notification"}
    asked = {message["id"] for message in wire.sent if "id" in message}
    answered = [message["id"] for message in wire.received if "method" not in message]
    assert set(answered) <= asked
    assert len(answered) == len(set(answered))
