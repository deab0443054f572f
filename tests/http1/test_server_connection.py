"""Our own HTTP/1.1, with any ASGI application behind it."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.http_process import Connection, connected

from toolwire.http import serving as http_server
from toolwire.http1 import request_cycle as http_cycle
from toolwire.http1 import server_connection as http_protocol
from toolwire.http1.asgi_types import DIRECT

Answering = Callable[[Any, Any, Any], Awaitable[None]]
JSON = (b"content-type", b"application/json")


class Application:
    """What `answering` says, with a lifespan that is never of interest."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._answering(scope, receive, send)
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})

    def drain(self) -> None:
        return

    def give_up(self) -> None:
        return


@asynccontextmanager
async def serving(answering: Answering) -> AsyncIterator[Connection]:
    """A connection to a server with this application."""
    sockets = http_server.listen("127.0.0.1", 0, public=False)
    running = http_server.HttpServer(Application(answering), sockets, drain=0.2)
    ready = asyncio.Event()
    task = asyncio.create_task(running.serve(ready.set))
    await ready.wait()
    try:
        async with connected(sockets[0].getsockname()[1]) as connection:
            yield connection
    finally:
        running.stop()
        await task


def request(method: str = "GET", *headers: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = [f"{method} /some%20where?a=b HTTP/{version}", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def body_of(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    return body


async def reply(send: Any, body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await reply(send, await body_of(receive), (b"x-method", scope["method"].encode()))


# --- requests -------------------------------------------------------------------------------------------------


async def test_the_scope_says_what_was_asked() -> None:
    scopes: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await reply(send, b"")

    async with serving(application) as connection:
        connection.send(request("PATCH", "X-One: 1", "x-one: 2"))
        await connection.answer()
    scope = scopes[0]
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("PATCH", "/some where", b"/some%20where")
    assert (scope["query_string"], scope["http_version"], scope["scheme"]) == (b"a=b", "1.1", "http")
    assert scope["headers"] == [(b"host", b"localhost"), (b"x-one", b"1"), (b"x-one", b"2")]
    assert scope["server"][0] == scope["client"][0] == "127.0.0.1"


@pytest.mark.parametrize("address", ["http://localhost/path?q", "/path?q"])
async def test_the_address_may_be_complete(address: str) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, scope["path"].encode() + scope["query_string"])

    async with serving(application) as connection:
        connection.send(f"GET {address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert (await connection.answer())[2] == b"/pathq"


@cases("size", [1, 100, 200_000])
async def test_a_body_comes_whole_in_whatever_pieces_it_was_sent(size: int) -> None:
    body = bytes(range(256)) * 2000
    async with serving(echo) as connection:
        data = request("POST", body=body) if size > 100 else request("POST", body=body[:1000])
        for start in range(0, len(data), size):
            connection.send(data[start : start + size])
            await connection.writer.drain()
        answer = (await connection.answer())[2]
        assert answer == (body if size > 100 else body[:1000])


async def test_many_small_chunks_are_one_body() -> None:
    async with serving(echo) as connection:
        connection.send(request("POST", "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")
        assert (await connection.answer())[2] == b"x" * 5000


async def test_whoever_asks_first_is_told_to_continue() -> None:
    async with serving(echo) as connection:
        connection.send(request("POST", "Expect: 100-continue", "Content-Length: 5"))
        assert (await connection.reader.readuntil(b"\r\n\r\n")) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(b"hello")
        assert (await connection.answer())[2] == b"hello"


async def test_a_body_that_nobody_reads_is_not_read_to_the_end() -> None:
    paused, go_on = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while scope[DIRECT]._size <= http_cycle.HIGH_WATER:
            await asyncio.sleep(0)
        paused.set()
        await go_on.wait()
        await reply(send, b"%d" % len(await body_of(receive)))

    async with serving(application) as connection:
        connection.send(request("POST", body=b"x" * 8_000_000))
        await paused.wait()
        assert connection.writer.transport.get_write_buffer_size() > 0
        go_on.set()
        assert (await connection.answer())[2] == b"8000000"


async def test_the_end_of_a_client_is_told_once_the_body_was_read() -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([(await receive())["type"], (await receive())["type"], (await receive())["type"]])
        await reply(send, b"nobody hears this")
        done.set()

    async with serving(application) as connection:
        connection.send(request("POST", body=b"x"))
        await connection.writer.drain()
        connection.writer.transport.abort()
        await done.wait()
    assert seen == ["http.request", "http.disconnect", "http.disconnect"]


async def test_after_the_answer_there_is_nothing_to_receive() -> None:
    seen: list[Any] = []
    done = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"")
        seen.append(await receive())
        done.set()

    async with serving(application) as connection:
        connection.send(request())
        await connection.answer()
        await done.wait()
    assert seen == [{"type": "http.disconnect"}]


# --- answers --------------------------------------------------------------------------------------------------


async def test_a_stream_arrives_as_it_is_sent() -> None:
    go_on = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]})
        await go_on.wait()
        for part in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(application) as connection:
        connection.send(request())
        status, headers = await connection.head()  # Before there is a body.
        assert (status, headers["x"], headers["transfer-encoding"]) == (200, "y", "chunked")
        go_on.set()
        assert [part async for part in connection.chunks()] == [b"one", b"two"]
        connection.send(request())
        assert (await connection.answer())[0] == 200


async def test_http_1_0_gets_a_stream_without_chunks_and_nothing_to_continue() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await body_of(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(application) as connection:
        connection.send(request("POST", "Expect: 100-continue", body=b"body", version="1.0"))
        status, headers = await connection.head()
        assert (status, headers["connection"], "transfer-encoding" in headers) == (200, "close", False)
        assert await connection.rest() == b"onetwo"


async def test_the_answer_to_head_has_no_body() -> None:
    async with serving(echo) as connection:
        connection.send(request("HEAD") + request("GET"))
        status, headers = await connection.head()
        assert (status, headers["x-method"], headers["content-length"]) == (200, "HEAD", "0")
        assert (await connection.answer())[1]["x-method"] == "GET"


@pytest.mark.parametrize("asked", [request("GET", "Connection: close"), request("GET", version="1.0")])
async def test_a_connection_that_is_not_to_be_kept_is_closed(asked: bytes) -> None:
    async with serving(echo) as connection:
        connection.send(asked)
        assert (await connection.answer())[1]["connection"] == "close"
        assert await connection.rest() == b""


async def test_the_application_may_close_the_connection() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"bye", (b"connection", b"close"))

    async with serving(application) as connection:
        connection.send(request())
        assert (await connection.answer())[1]["connection"] == "close"
        assert await connection.rest() == b""


async def says_nothing(scope: Any, receive: Any, send: Any) -> None:
    return


async def raises(scope: Any, receive: Any, send: Any) -> None:
    raise KeyError("internal")


async def says_too_little(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
    await send({"type": "http.response.body", "body": b"short"})


async def says_too_much(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": b"long"})


async def breaks_lines(scope: Any, receive: Any, send: Any) -> None:
    await reply(send, b"", (b"x", b"y\r\nset-cookie: evil"))


async def breaks_lines_at_once(scope: Any, receive: Any, send: Any) -> None:
    scope[DIRECT].answer(200, ((b"x", b"y\nset-cookie: evil"),), b"")


async def begins_with_the_body(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.body", "body": b"x"})


@pytest.mark.parametrize(
    "application",
    [says_nothing, raises, says_too_little, says_too_much, breaks_lines, breaks_lines_at_once, begins_with_the_body],
)
async def test_without_a_proper_answer_there_is_a_500(application: Answering, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "toolwire.http")
    async with serving(application) as connection:
        connection.send(request())
        status, headers, body = await connection.answer()
        assert (status, body, headers["connection"]) == (500, b"Internal Server Error", "close")
        assert "set-cookie" not in headers
        assert await connection.rest() == b""


async def test_an_answer_that_breaks_off_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise KeyError("internal")

    async with serving(application) as connection:
        connection.send(request())
        assert (await connection.head())[0] == 200
        assert await connection.rest() == b"1\r\nx\r\n"  # And not the end of the chunks.
    assert "could not be answered" in caplog.text


async def test_a_second_answer_is_an_error_of_the_application(caplog: pytest.LogCaptureFixture) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, b"first")
        await reply(send, b"second")

    async with serving(application) as connection:
        connection.send(request() + request())
        assert [(await connection.answer())[2] for _ in range(2)] == [b"first", b"first"]
    assert "out of place" in caplog.text


# --- what an application that knows us does -------------------------------------------------------------------


async def test_a_whole_body_is_there_without_waiting() -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        direct = scope[DIRECT]
        while (body := direct.whole_body()) is None:
            await asyncio.sleep(0)
        assert direct.whole_body() is None
        assert direct.answer(200, (JSON,), body)
        assert not direct.answer(200, (JSON,), body)

    async with serving(application) as connection:
        for _ in range(2):
            data = request("POST", body=b'{"a":1}')
            connection.send(data[:-3])
            await connection.writer.drain()
            connection.send(data[-3:])
            status, headers, body = await connection.answer()
            assert (status, headers["content-type"], body) == (200, "application/json", b'{"a":1}')
            assert "date" in headers


async def test_answers_that_nobody_takes_do_not_pile_up() -> None:
    big = b"x" * 1_000_000
    answered: list[bool] = []
    full = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        done = scope[DIRECT].answer(200, (JSON,), big)
        answered.append(done)
        if not done:
            full.set()
            await reply(send, big)

    async with serving(application) as connection:
        connection.send(request() * 10)
        await full.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert answered.count(False) == 1  # It waits, and so does everything after it.
        assert len(answered) < 10
        for _ in range(10):
            assert (await connection.answer())[2] == big
    assert len(answered) == 10


@pytest.mark.parametrize("early", [True, False])
async def test_whoever_wants_to_know_hears_of_a_client_that_goes_away(early: bool) -> None:
    lost, begun = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        direct = scope[DIRECT]
        while direct.whole_body() is None:
            await asyncio.sleep(0)
        if early:
            direct.on_lost = lost.set
            direct.watch()
        begun.set()
        while not direct.disconnected:
            await asyncio.sleep(0)
        if not early:
            direct.on_lost = lost.set
            direct.watch()

    async with serving(application) as connection:
        # Large enough for reading to be paused, and small enough to arrive nevertheless.
        connection.send(request("POST", body=b"x" * (http_cycle.HIGH_WATER + 1 if early else 10)))
        await begun.wait()
        assert not lost.is_set()
        connection.writer.transport.abort()
        await lost.wait()


async def test_nobody_is_told_of_a_client_that_has_its_answer() -> None:
    told: list[bool] = []
    cycles: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        cycles.append(scope[DIRECT])
        scope[DIRECT].on_lost = lambda: told.append(True)
        scope[DIRECT].answer(200, (JSON,), b"{}")

    async with serving(application) as connection:
        connection.send(request("GET", "Connection: close"))
        await connection.answer()
        assert await connection.rest() == b""
    assert told == []
    assert cycles[0].on_lost is None


@pytest.mark.parametrize("waits", [True, False])
async def test_a_connection_that_has_ended_leaves_nothing_for_the_garbage_collector(waits: bool) -> None:
    left: list[weakref.ref[Any]] = []
    begun = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        left.append(weakref.ref(scope[DIRECT]))
        begun.set()
        if waits:
            assert (await receive())["type"] == "http.request"
            assert (await receive())["type"] == "http.disconnect"
        else:
            await reply(send, b"done")

    gc.collect()
    gc.disable()
    try:
        async with serving(application) as connection:
            connection.send(request())
            await begun.wait()
            if not waits:
                await connection.answer()
            connection.writer.transport.abort()
        assert [each() for each in left] == [None]
    finally:
        gc.enable()


# --- clients that do not read ---------------------------------------------------------------------------------


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the server is rid of a connection; it has little patience."""
    monkeypatch.setattr(http_protocol, "STALL_SECONDS", 0.05)
    event = asyncio.Event()
    was_lost = http_protocol.HttpProtocol.connection_lost

    def connection_lost(self: http_protocol.HttpProtocol, exc: Exception | None) -> None:
        was_lost(self, exc)
        event.set()

    monkeypatch.setattr(http_protocol.HttpProtocol, "connection_lost", connection_lost)
    return event


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
async def test_an_answer_that_nobody_reads_is_dropped(lost: asyncio.Event, headers: tuple[str, ...]) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, bytes(20_000_000))

    async with serving(application) as connection:
        connection.send(request("GET", *headers))
        await asyncio.wait_for(lost.wait(), 30)


async def test_a_stream_that_nobody_reads_comes_to_its_end(lost: asyncio.Event) -> None:
    ended = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not lost.is_set():
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        ended.set()

    async with serving(application) as connection:
        connection.send(request("GET"))
        await asyncio.wait_for(ended.wait(), 30)


async def test_what_is_left_of_an_answer_does_not_keep_a_connection_that_is_closed(
    lost: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is too little to hold up whoever writes."""
    made = http_protocol.HttpProtocol.connection_made

    def connection_made(self: http_protocol.HttpProtocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        transport.set_write_buffer_limits(high=100_000_000)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await reply(send, bytes(20_000_000))

    monkeypatch.setattr(http_protocol.HttpProtocol, "connection_made", connection_made)
    async with serving(application) as connection:
        connection.send(request("GET", "Connection: close"))
        await asyncio.wait_for(lost.wait(), 30)
