"""Requests of one client over HTTP: their turns, and requests that are handed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.client.scripted_http import DISCOVERED, event, rpc

from toolwire.client.http_target import HttpTarget
from toolwire.client.relay import RelayConnection, relay_opener
from toolwire.http.client.session import HttpSession
from toolwire.http.client.turns import RequestTurns
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, Timeout, ToolwireError
from toolwire.protocol.revisions import MODERN
from toolwire.testing import elapse
from toolwire.wire.shares import Shares


async def waiting(turns: RequestTurns) -> asyncio.Task[None]:
    """Return a task that waits for its turn."""
    assert not turns.take()
    task = asyncio.ensure_future(turns.wait(SimpleNamespace(identifier=1)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return task


async def test_turns_come_in_their_order() -> None:
    turns = RequestTurns(Shares(2, 1.0, "requests"))
    assert turns.take() and turns.take()
    first, second = await waiting(turns), await waiting(turns)
    turns.give_back(1)
    await first
    assert not second.done()
    turns.give_back(1)
    await second
    turns.give_back(1)
    assert turns.take()
    assert not turns.take()


@pytest.mark.parametrize("has_come", [False, True])
async def test_a_turn_that_nobody_takes_goes_to_the_next(has_come: bool) -> None:
    turns = RequestTurns(Shares(1, 1.0, "requests"))
    assert turns.take()
    first, second = await waiting(turns), await waiting(turns)
    if has_come:
        turns.give_back(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not has_come:
        turns.give_back(1)
    await second
    turns.give_back(1)
    assert turns.take()


# --- requests that are handed on ---

PARAMS = {"name": "x", "_meta": {}}
#: The bytes of an answer to a message, or None for the end of the connection.
Answers = Callable[[dict[str, Any]], bytes | None]


class RawServer:
    """A server behind one TCP port. `answers` answers all requests but the first one, which asks what it is."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
                message = msgspec.json.decode(await reader.readexactly(length))
                if message["method"] == "server/discover":
                    writer.write(answer(rpc(id=message["id"], result={"resultType": "complete", **DISCOVERED})))
                    continue
                self.heads.append(head)
                self.asked.set()
                reply = self.answers(message)
                if reply is None:
                    return
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def answer(body: bytes, status: int = 200, *headers: str, media_type: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {media_type}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def relaying(server: RawServer) -> AsyncIterator[HttpSession]:
    """Open a session that has an idle connection."""
    listener = await asyncio.start_server(server, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    try:
        opener = relay_opener(
            HttpTarget(url),
            t.Implementation("relay", "1"),
            {},
            changed=lambda method, uri: None,
            timeout=10.0,
            probe_timeout=5.0,
            revision=MODERN,
        )
        connection = await opener.open()
        assert isinstance(connection, RelayConnection) and isinstance(connection.session, HttpSession)
        try:
            yield connection.session
        finally:
            await connection.close()
    finally:
        listener.close()


def in_pieces(message: dict[str, Any]) -> bytes:
    body = rpc(id=message["id"], result={"a": 1})
    head = b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


def moved(message: dict[str, Any]) -> bytes:
    return answer(b"", 307, "location: /elsewhere")


REPLIES: dict[str, Answers] = {
    "a result": lambda message: answer(rpc(id=message["id"], result={"a": 1})),
    "a result of another media type": lambda message: answer(rpc(id=message["id"], result={}), media_type="text/x"),
    "a result with a status of its own": lambda message: answer(rpc(id=message["id"], result={}), 203),
    "a result in pieces": in_pieces,
    "a result and the end of the connection": lambda message: answer(
        rpc(id=message["id"], result={}), 200, "connection: close"
    ),
    "an error": lambda message: answer(rpc(id=message["id"], error={"code": 7, "message": "no"})),
    "an error with its status": lambda message: answer(rpc(id=message["id"], error={"code": -1, "message": "no"}), 400),
    "an error without an id": lambda message: answer(rpc(error={"code": -1, "message": "no"}), 400),
    "a stream": lambda message: answer(event(rpc(id=message["id"], result={"a": 2})), media_type="text/event-stream"),
    "a stream without an answer": lambda message: answer(b": nothing\n\n", media_type="text/event-stream"),
    "an answer to another request": lambda message: answer(rpc(id=-1, result={})),
    "no message": lambda message: answer(b"{"),
    "nothing": lambda message: answer(b""),
    "a redirect in circles": moved,
    "a redirect to elsewhere": lambda message: answer(b"", 307, "location: http://example.com/"),
    "a refusal of the caller": lambda message: answer(b"who?", 401, media_type="text/plain"),
    "a page": lambda message: answer(b"<html>", 404, media_type="text/html"),
    "a failure": lambda message: answer(b"", 500),
    "an overload": lambda message: answer(b"", 503, "retry-after: 3"),
    "no HTTP": lambda message: b"hello\r\n\r\n",
    "the end of the connection": lambda message: None,
}


@cases("reply", REPLIES)
async def test_a_request_that_is_handed_on_ends_as_any_other(reply: str) -> None:
    outcomes = []
    for forwards in (True, False):
        server = RawServer(REPLIES[reply])
        async with relaying(server) as session:
            sending = session.forward if forwards else _request(session)
            outcome: list[Any] = []
            for number in (101, 102):
                try:
                    outcome.append(await sending("tools/call", PARAMS, 5.0, number))
                except ToolwireError as error:
                    # The port differs.
                    told = str(error).replace(session._endpoint.url, "URL").split("127.0.0.1")[0]
                    outcome.append((type(error), told, getattr(error, "status", None)))
            heads = [head.partition("\r\n")[2].partition("\r\n")[2] for head in server.heads]
            outcomes.append((outcome, heads, server.connections, dict(session.peer.outgoing)))
            assert session.turns._left == 97
    assert outcomes[0] == outcomes[1]
    assert "mcp-name: x" in outcomes[0][1][0].lower()


def _request(session: HttpSession) -> Any:
    return lambda method, params, timeout, identifier: session.request(method, params, timeout, None, identifier)


async def test_a_request_that_is_handed_on_is_sent_at_once() -> None:
    server = RawServer(lambda message: None)
    async with relaying(server) as session:
        sending = asyncio.ensure_future(session.forward("tools/call", PARAMS, None, 101))
        await asyncio.sleep(0)
        assert 101 in session.peer.outgoing  # It waits for the answer, and for nothing before.
        await server.asked.wait()
        with pytest.raises(OutcomeUnknown):
            await sending


def silent(message: dict[str, Any]) -> bytes:
    return b""


async def test_a_redirect_is_followed_once() -> None:
    server = RawServer(moved)

    def reply(message: dict[str, Any]) -> bytes:
        is_there = server.heads[-1].startswith("POST /elsewhere ")
        return answer(rpc(id=message["id"], result={})) if is_there else moved(message)

    server.answers = reply
    async with relaying(server) as session:
        for number in (101, 102, 103):
            result = await session.forward("tools/call", PARAMS, 5.0, number)
            assert result is not None and bytes(result) == b"{}"
    assert [head.split()[1] for head in server.heads] == ["/", "/elsewhere", "/elsewhere", "/elsewhere"]


async def test_cancelling_a_request_that_is_handed_on_closes_its_connection() -> None:
    server = RawServer(silent)
    async with relaying(server) as session:
        waiting = asyncio.ensure_future(session.forward("tools/call", PARAMS, 5.0, 101))
        await server.asked.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.left.wait()
        assert not session.peer.outgoing


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n: begun\n\n"])
async def test_the_deadline_of_a_request_that_is_handed_on(begun: bytes) -> None:
    server = RawServer(lambda message: begun)
    async with relaying(server) as session:
        waiting = asyncio.ensure_future(session.forward("tools/call", PARAMS, 5.0, 101))
        await server.asked.wait()
        await elapse(5)
        with pytest.raises(Timeout, match="tools/call was not answered within 5 seconds"):
            await waiting
        await server.left.wait()


async def test_closing_ends_a_request_that_is_handed_on() -> None:
    server = RawServer(silent)
    async with relaying(server) as session:
        waiting = asyncio.ensure_future(session.forward("tools/call", PARAMS, None, 101))
        await server.asked.wait()
        await session.close()
        with pytest.raises(OutcomeUnknown, match="closed before tools/call was answered"):
            await waiting


async def test_a_deadline_between_the_headers_and_their_reader_counts() -> None:
    server = RawServer(silent)
    async with relaying(server) as session:
        sending = session.forward("tools/call", PARAMS, None, 101)
        waiting = asyncio.ensure_future(sending)
        await server.asked.wait()
        exchange = session.peer.outgoing[101]
        began = exchange.response.began
        exchange.response.status = 200
        began.set_result(None)
        assert exchange.interrupt(Timeout("late"))
        with pytest.raises(Timeout, match="late"):
            await waiting
        await server.left.wait()
