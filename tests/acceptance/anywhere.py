"""A client whose every request may arrive in another process, and a server that has something to do for it."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.http_process import Connection, connected

from toolwire.protocol.framing import Event, SSEDecoder

Message = dict[str, Any]

SERVER = """
import asyncio, os
from toolwire import Context, Server, Tool

server = Server("shared by workers")

@server.tool
async def process() -> int:
    return os.getpid()

@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", str)
    return f"{answer.action}: {answer.data}"

@server.tool
async def hold(number: int, ctx: Context) -> str:
    await ctx.info("holding")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        server.notify_updated(f"note://{number}/cancelled")
        raise
    return "never"

@server.tool
async def touch(uri: str) -> int:
    server.notify_updated(uri)
    return os.getpid()

@server.tool
async def grow() -> int:
    async def another() -> str:
        return "here"
    server.add(Tool(another, name=f"another_{len(server.tools)}"))
    return os.getpid()

@server.resource("note://{number}/{part}")
def note(number: int, part: str) -> str:
    return f"{part} of {number}"
"""


class EventStream:
    """The events of one answer, as they come."""

    def __init__(self, connection: Connection) -> None:
        self._chunks = connection.chunks()
        self._decoder = SSEDecoder()
        self._events: list[Event] = []

    @property
    def last_event_id(self) -> str:
        """What a client comes back with: the id of the last event that it looked at."""
        return self._decoder.last_event_id

    async def next(self) -> Message | None:
        """The next message; None at the end of the stream."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if event.data:
                    message: Message = json.loads(event.data)
                    return message
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                return None
            self._events += [each for each in self._decoder.feed(chunk) if isinstance(each, Event)]

    async def until(self, method: str) -> Message:
        while (message := await self.next()) is not None:
            if message.get("method") == method:
                return message
        raise AssertionError(f"the stream ended without {method}")

    async def updated(self) -> str:
        """The next resource that has changed."""
        uri: str = (await self.until("notifications/resources/updated"))["params"]["uri"]
        return uri

    async def answer(self) -> Message:
        """The response, which ends the stream."""
        while (message := await self.next()) is not None:
            if "method" not in message:
                assert await self.next() is None, "something came after the answer"
                return message
        raise AssertionError("the stream ended without an answer")


class Session:
    """A legacy session; nothing that it sends goes over a connection that was used before.

    `ports` says where the next one goes."""

    def __init__(self, ports: Iterator[int], revision: str) -> None:
        self._ports = ports
        self._headers = {"MCP-Protocol-Version": revision}
        self._last_id = 0
        self.revision = revision

    async def open(self) -> None:
        params = {
            "protocolVersion": self.revision,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "raw", "version": "0"},
        }
        status, headers, body = await self.post(self.request("initialize", params))
        assert (status, json.loads(body)["result"]["protocolVersion"]) == (200, self.revision)
        self._headers["Mcp-Session-Id"] = headers["mcp-session-id"]
        await self.notify("notifications/initialized")

    def request(self, method: str, params: Message | None = None) -> Message:
        self._last_id += 1
        return {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}

    def _send(self, connection: Connection, verb: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        given = {"Host": "localhost", **self._headers, **headers, "Content-Length": str(len(body))}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
        connection.send("\r\n".join(lines).encode("latin-1") + body)

    def _send_post(self, connection: Connection, message: Message) -> None:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._send(connection, "POST", headers, json.dumps(message).encode())

    async def post(self, message: Message) -> tuple[int, dict[str, str], bytes]:
        async with connected(next(self._ports)) as connection:
            self._send_post(connection, message)
            return await connection.answer()

    async def notify(self, method: str, params: Message | None = None) -> None:
        status, _, _ = await self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})
        assert status == 202

    async def respond(self, question: Message, result: Message) -> None:
        status, _, _ = await self.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert status == 202

    async def result(self, method: str, params: Message | None = None) -> Message:
        status, _, body = await self.post(self.request(method, params))
        assert status == 200, body
        result: Message = json.loads(body)["result"]
        return result

    async def touch(self, uri: str) -> None:
        result = await self.result("tools/call", {"name": "touch", "arguments": {"uri": uri}})
        assert not result.get("isError")

    @asynccontextmanager
    async def call(self, tool: str, **arguments: Any) -> AsyncIterator[tuple[int, EventStream]]:
        """A call that is answered by a stream: its id, and the stream. The connection ends with the block."""
        request = self.request("tools/call", {"name": tool, "arguments": arguments})
        async with connected(next(self._ports)) as connection:
            self._send_post(connection, request)
            status, headers = await connection.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            yield request["id"], EventStream(connection)

    @asynccontextmanager
    async def get(self, last_event_id: str = "") -> AsyncIterator[EventStream]:
        async with connected(next(self._ports)) as connection:
            await self.start_get(connection, last_event_id)
            yield EventStream(connection)

    async def start_get(self, connection: Connection, last_event_id: str = "") -> None:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        self._send(connection, "GET", headers)
        status, _ = await connection.head()
        assert status == 200

    async def status_of(self, verb: str) -> int:
        async with connected(next(self._ports)) as connection:
            self._send(connection, verb, {"Accept": "text/event-stream"})
            status, _, _ = await connection.answer()
            return status


def text_of(response: Message) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


async def live(ports: Iterator[int], number: int) -> None:
    """Everything that a session can do while its requests arrive anywhere."""
    session = Session(ports, "2025-11-25" if number % 2 else "2025-06-18")
    await session.open()
    for part in ("cancelled", "first", "away", "back", "last"):
        await session.result("resources/subscribe", {"uri": f"note://{number}/{part}"})
    await elicits(session)
    await elicits_and_comes_back(session)
    async with session.get() as stream:
        await cancels(session, number, stream)
        await session.touch(f"note://{number}/first")
        assert await stream.updated() == f"note://{number}/first"
    last_event_id = stream.last_event_id
    await session.touch(f"note://{number}/away")
    touching = asyncio.create_task(session.touch(f"note://{number}/back"))
    async with session.get(last_event_id) as stream:
        missed = sorted([await stream.updated(), await stream.updated()])
        assert missed == [f"note://{number}/away", f"note://{number}/back"]
        await touching
        await session.touch(f"note://{number}/last")
        assert await stream.updated() == f"note://{number}/last"
        assert await session.status_of("DELETE") == 200
        assert await stream.next() is None
    status, _, _ = await session.post(session.request("tools/list"))
    assert (status, await session.status_of("GET"), await session.status_of("DELETE")) == (404, 404, 404)


async def elicits(session: Session) -> None:
    async with session.call("ask") as (_, stream):
        question = await stream.until("elicitation/create")
        await session.respond(question, elicited(question))
        assert text_of(await stream.answer()) == "accept: Ada"


async def elicits_and_comes_back(session: Session) -> None:
    """The connection breaks after the question; the answer to the call is on the stream that is resumed."""
    async with session.call("ask") as (_, stream):
        question = await stream.until("elicitation/create")
    await session.respond(question, elicited(question))
    async with session.get(stream.last_event_id) as resumed:
        assert text_of(await resumed.answer()) == "accept: Ada"


def elicited(question: Message) -> Message:
    [field] = question["params"]["requestedSchema"]["properties"]
    return {"action": "accept", "content": {field: "Ada"}}


async def cancels(session: Session, number: int, listening: EventStream) -> None:
    async with session.call("hold", number=number) as (request, stream):
        await stream.until("notifications/message")
        await session.notify("notifications/cancelled", {"requestId": request})
        # 2025-03-26 basic/utilities/cancellation: no response to a request that was cancelled.
        assert await stream.next() is None
    assert await listening.updated() == f"note://{number}/cancelled"


def where(failure: BaseException) -> str:
    """What a session was doing when it failed."""
    steps = traceback.extract_tb((failure.__cause__ or failure).__traceback__)
    own = [f"{step.name}, line {step.lineno}" for step in steps if step.filename == __file__]
    return f"{failure!r} in {' > '.join(own[1:])}"


async def live_all(ports: Iterator[int], sessions: int, at_once: int) -> None:
    """Many sessions, each of which does everything."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with places, asyncio.timeout(60):
            await live(ports, number)

    outcomes = await asyncio.gather(*(one(number) for number in range(sessions)), return_exceptions=True)
    failures = [f"session {number}: {where(outcome)}" for number, outcome in enumerate(outcomes) if outcome is not None]
    assert not failures, f"{len(failures)} of {sessions} sessions failed:\n" + "\n".join(failures[:10])
