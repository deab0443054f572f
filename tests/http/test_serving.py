"""A server behind real sockets: what it lets in, and how it comes to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http_process import Connection, Served, call, connected, modern, post, started, text_of_call
from uvicorn import Config
from uvicorn.server import ServerState

from toolwire import Limits, Server
from toolwire.http import serving as http_server
from toolwire.http import uvicorn_end as http_host
from toolwire.http1 import server_connection as http_protocol
from toolwire.protocol.errors import ServerError

ready_for_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")

# --- a server in this process -------------------------------------------------------------------------


def make_server() -> Server:
    server = Server("waiting", limits=Limits(drain=0.2))
    release = asyncio.Event()
    started = asyncio.Event()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait() -> str:
        started.set()
        await release.wait()
        return "done"

    server.test_release, server.test_started = release, started  # type: ignore[attr-defined]
    return server


def add_endless(server: Server) -> asyncio.Event:
    """A tool that never returns; gives what is set when it is cancelled."""
    cancelled = asyncio.Event()

    @server.tool
    async def endless() -> None:
        server.test_started.set()  # type: ignore[attr-defined]
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    return cancelled


@asynccontextmanager
async def serving(server: Server, **options: Any) -> AsyncIterator[int]:
    """Serve in this loop; gives the port."""
    sockets = http_server.listen("127.0.0.1", 0, public=False)
    running = http_server.HttpServer(server.http_app(**options), sockets, drain=server.limits.drain)
    ready = asyncio.Event()
    task = asyncio.create_task(running.serve(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        running.stop()
        await task


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(make_server()) as port:
        yield port


async def test_a_call(port: int) -> None:
    async with connected(port) as connection:
        for text in ("one", "two"):
            assert await text_of_call(connection, "echo", text=text) == text
        connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, headers, body = await connection.answer()
        assert (status, body) == (200, b"ok")
        assert "date" in headers
        assert "server" not in headers


async def test_requests_may_come_in_any_pieces(port: int) -> None:
    async with connected(port) as connection:
        whole = call("echo", text="x" * 1000) * 2
        for start in range(0, len(whole), 7):
            connection.send(whole[start : start + 7])
            await connection.writer.drain()
            await asyncio.sleep(0)
        for _ in range(2):
            status, _, body = await connection.answer()
            assert status == 200
            assert json.loads(body)["result"]["content"][0]["text"] == "x" * 1000


# --- headers ------------------------------------------------------------------------------------------


async def refused(connection: Connection, status: int) -> str:
    """The connection says this, and closes."""
    found, headers, body = await connection.answer()
    assert found == status, body
    assert headers["connection"] == "close"
    assert await connection.rest() == b""
    return body.decode()


def get(*headers: str) -> bytes:
    return "\r\n".join(["GET /livez HTTP/1.1", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(get("Host: localhost", "X: " + "x" * 65536), id="one header"),
        pytest.param(get("Host: localhost", *["X: " + "x" * 1000] * 70), id="many headers"),
        pytest.param(get("Host: localhost", *["X: x"] * 100), id="too many"),
        pytest.param(b"GET /" + b"x" * 65536 + b" HTTP/1.1\r\nHost: a\r\n\r\n", id="a long path"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2_000_000, id="an endless value"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"x" * 2_000_000, id="an endless name"),
        pytest.param(b"GET /" + b"x" * 2_000_000, id="an endless path"),
    ],
)
async def test_headers_over_the_limit_are_431(port: int, request_bytes: bytes) -> None:
    async with connected(port) as connection:
        connection.send(request_bytes)
        assert "limit of 65536 bytes" in (text := await refused(connection, 431)) or "more than 100" in text


async def test_the_limit_holds_for_the_second_of_two_requests_too(port: int) -> None:
    async with connected(port) as connection:
        connection.send(get("Host: localhost") + get("Host: localhost", "X: " + "x" * 65536))
        assert (await connection.answer())[0] == 200
        await refused(connection, 431)


async def test_headers_up_to_the_limit_are_served(port: int) -> None:
    async with connected(port) as connection:
        connection.send(get("Host: localhost", "X: " + "x" * 65000))
        assert (await connection.answer())[0] == 200
        connection.send(get("Host: localhost", *["X: x"] * 99))
        assert (await connection.answer())[0] == 200


@pytest.mark.parametrize(
    "hosts", [[], ["Host: localhost", "Host: evil.example"], ["host: localhost", "HOST: localhost"]]
)
async def test_no_host_or_two_are_400(port: int, hosts: list[str]) -> None:
    async with connected(port) as connection:
        connection.send(get(*hosts))
        assert "Host" in await refused(connection, 400)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
        b"GET /livez HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET bad-address HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_400(port: int, garbage: bytes) -> None:
    async with connected(port) as connection:
        connection.send(garbage)
        await refused(connection, 400)


@pytest.mark.parametrize("version", ["2.0", "0.9", "3.0"])
async def test_another_version_of_http_is_refused(port: int, version: str) -> None:
    async with connected(port) as connection:
        connection.send(f"GET /livez HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
        status = (await connection.answer())[0]
        # The parser knows some of them, and the others are not HTTP to it.
        assert status in (400, 505)
        assert await connection.rest() == b""


CHUNKS = b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("coding", "expected"),
    [
        (b"Transfer-Encoding: gzip, chunked", 501),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
        (b"Transfer-Encoding: identity, chunked", 501),
        (b"Transfer-Encoding: ,chunked", 501),
        (b"Transfer-Encoding: \tCHUNKED ", 400),  # Understood, and its message is no JSON-RPC.
        (b"Transfer-Encoding: chunked", 400),
    ],
)
async def test_chunks_are_the_only_coding(port: int, coding: bytes, expected: int) -> None:
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    async with connected(port) as connection:
        connection.send(head + coding + CHUNKS)
        status, _, body = await connection.answer()
        assert status == expected
        assert (b"chunked" in body) == (expected == 501)
        if expected == 501:
            assert await connection.rest() == b""


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked",  # Which has no codings.
        b"HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked",
        b"HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip",
    ],
)
async def test_codings_that_nobody_should_send(port: int, head: bytes) -> None:
    async with connected(port) as connection:
        connection.send(b"POST /mcp " + head + CHUNKS)
        await refused(connection, 400)


async def test_headers_that_never_end_are_408(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.05)
    async with connected(port) as connection:
        connection.send(b"GET /livez HTTP/1.1\r\nHost: local")
        assert "in time" in await refused(connection, 408)
    async with connected(port) as connection:
        connection.send(b"\r\n\r\n")
        assert "in time" in await refused(connection, 408)
    async with connected(port) as connection:
        connection.send(get("Host: localhost") + b"GET")
        assert (await connection.answer())[0] == 200
        assert "in time" in await refused(connection, 408)


async def test_a_connection_that_says_nothing_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.05)
    async with connected(port) as connection:
        assert await connection.rest() == b""


async def test_a_connection_that_is_not_used_any_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_SECONDS", 0.05)
    async with serving(make_server()) as port, connected(port) as connection:
        connection.send(get("Host: localhost"))
        assert (await connection.answer())[0] == 200
        assert await connection.rest() == b""


# --- bodies and what follows them ---------------------------------------------------------------------


async def test_garbage_after_a_request_is_refused_after_its_answer(port: int) -> None:
    async with connected(port) as connection:
        connection.send(call("echo", text="first") + b"GARBAGE\r\n\r\n")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "first")
        await refused(connection, 400)


async def test_garbage_during_a_call_waits_for_its_answer() -> None:
    server = make_server()
    async with serving(server) as port, connected(port) as connection:
        connection.send(call("wait"))
        await server.test_started.wait()  # type: ignore[attr-defined]
        connection.send(get("Host: localhost") + get("Host: a", "Host: b"))
        await connection.writer.drain()
        async with connected(port) as other:
            assert await text_of_call(other, "echo", text="meanwhile") == "meanwhile"
        server.test_release.set()  # type: ignore[attr-defined]
        assert [(await connection.answer())[0] for _ in range(2)] == [200, 200]
        await refused(connection, 400)


async def test_requests_that_wait_their_turn_are_bounded() -> None:
    server = make_server()
    async with serving(server) as port, connected(port) as connection:
        connection.send(call("wait"))
        await server.test_started.wait()  # type: ignore[attr-defined]
        connection.send(get("Host: localhost") * 1000)
        await connection.writer.drain()
        async with connected(port) as other:
            assert await text_of_call(other, "echo", text="meanwhile") == "meanwhile"
        server.test_release.set()  # type: ignore[attr-defined]
        statuses = [(await connection.answer())[0] for _ in range(http_protocol.PIPELINED + 1)]
        assert statuses == [200] * len(statuses)
        assert "may wait" in await refused(connection, 400)


async def test_a_client_that_leaves_while_another_request_waits_is_noticed() -> None:
    server = make_server()
    cancelled = add_endless(server)
    async with serving(server) as port:
        async with connected(port) as connection:
            connection.send(call("endless"))
            await server.test_started.wait()  # type: ignore[attr-defined]
            connection.send(get("Host: localhost"))
            connection.writer.transport.abort()
        await cancelled.wait()


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"5\r\nhello", b"5\r\nhelloXX", b"1;" + b"e" * 500_000, b"0\r\nX: " + b"x" * 500_000]
)
async def test_a_broken_body_is_refused(port: int, body: bytes) -> None:
    head = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    async with connected(port) as connection:
        connection.send(head + body)
        if body == b"5\r\nhello":
            connection.send(b"XX")
        status, _, _ = await connection.answer()
        assert status in (400, 431)
        assert await connection.rest() == b""


async def test_trailers_are_not_headers(port: int) -> None:
    body = call("echo", text="hello").partition(b"\r\n\r\n")[2]
    head = call("echo", text="hello").partition(b"\r\n\r\n")[0].replace(b"Content-Length", b"X-Length")
    chunked = b"%x\r\n%s\r\n0\r\nOrigin: http://evil.example\r\n\r\n" % (len(body), body)
    async with connected(port) as connection:
        connection.send(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
        assert (await connection.answer())[0] == 200


async def test_a_body_that_nobody_wants_does_not_hold_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 0.05)
    async with connected(port) as connection:
        connection.send(post(b"", {"Content-Length": "99999999"}) + b"x" * 1000)
        assert (await connection.answer())[0] == 413
        assert await connection.rest() == b""


async def test_a_client_that_sends_it_all_first_still_gets_its_413(port: int) -> None:
    async with connected(port) as connection:
        connection.send(post(b"x" * 5_000_000))
        assert (await connection.answer())[0] == 413
        connection.send(get("Host: localhost"))
        assert (await connection.answer())[0] == 200


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
async def test_an_upgrade_is_not_taken_up_and_costs_nothing(port: int, protocol: str) -> None:
    # The HTTP client of Java asks for it with the first request of every connection.
    upgrade = f"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAEAAEAA\r\n\r\n"
    request = call("echo", text="hello").replace(b"\r\n\r\n", upgrade.encode(), 1)
    async with connected(port) as connection:
        connection.send(request)
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "hello")
        connection.send(request[:-10])
        await connection.writer.drain()
        connection.send(request[-10:] + call("echo", text="again"))
        assert [(await connection.answer())[0] for _ in range(2)] == [200, 200]


FRAGMENTS = [
    get("Host: localhost"),
    get("Host: localhost", "Connection: close"),
    get("Host: localhost", "Connection: upgrade", "Upgrade: h2c"),
    get("Host: a", "Host: b"),
    post(b"hello"),
    post(b"", {"Content-Length": "100"}),
    post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"),
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"GET / HTTP/1.1\r\n",
    b"Host: localhost\r\n",
    b"\r\n",
    b"X: " + b"x" * 40_000,
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"\0",
    b"garbage",
]


class Sink(asyncio.Transport):
    """The other end of a connection that a property feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def answers_at_once(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def make_protocol(state: ServerState) -> Any:
    protocol = http_protocol.protocol_for(asyncio.get_running_loop())
    config = Config(answers_at_once, http=protocol, ws="none", log_config=None, interface="asgi3")
    config.load()
    return protocol(config=config, server_state=state, app_state={})


async def test_connections_are_read_into_one_buffer() -> None:
    first, second = (make_protocol(ServerState()).get_buffer(-1) for _ in range(2))
    assert first.obj is second.obj, "an idle connection has to stay small"


@settings(deadline=None)
@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=12), st.integers(1, 5000))
async def test_whatever_arrives_is_answered_or_refused(fragments: list[bytes], size: int) -> None:
    state = ServerState()
    protocol = make_protocol(state)
    transport = Sink()
    protocol.connection_made(transport)
    data = b"".join(fragments)
    for start in range(0, len(data), size):
        if transport.closed:
            break
        piece = data[start : start + size]
        protocol.get_buffer(len(piece))[: len(piece)] = piece
        protocol.buffer_updated(len(piece))
        await asyncio.sleep(0)
    for _ in range(http_protocol.PIPELINED + 5):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not state.tasks
    answers = transport.written.split(b"HTTP/1.1 ")[1:]
    assert all(answer[:3] in (b"204", b"400", b"431", b"100") for answer in answers)
    assert not any(answer[:1] == b"4" for answer in answers[:-1]), "after a refusal nothing is said"


# --- where it listens ---------------------------------------------------------------------------------


@contextmanager
def listening(host: str, port: int = 0, *, public: bool = False) -> Iterator[list[socket.socket]]:
    sockets = http_server.listen(host, port, public=public)
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


@pytest.mark.covers("HTTP-3")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_a_public_address_needs_to_be_wanted(host: str) -> None:
    with pytest.raises(ServerError, match="allow_unauthenticated"):
        Server("open").run("http", host=host, port=0)


def test_a_public_address_that_is_wanted() -> None:
    with listening("0.0.0.0", public=True) as sockets:
        port = sockets[0].getsockname()[1]
        assert http_server.url_of(sockets, "0.0.0.0", "/mcp") == f"http://127.0.0.1:{port}/mcp"


def test_all_addresses_of_a_name_have_the_same_port() -> None:
    with listening("localhost") as sockets:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert http_server.url_of(sockets, "localhost", "/") == f"http://localhost:{sockets[0].getsockname()[1]}/"


@pytest.mark.covers("J90")
def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with listening("127.0.0.1") as sockets:
        port = sockets[0].getsockname()[1]
        with pytest.raises(ServerError, match=f"^Port {port} of 127.0.0.1 is in use[^\n]*$"):
            Server("late").run("http", port=port)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"host": "no such host.invalid"}, "not an address"),
        ({"port": 70000}, "not a port"),
        ({"port": "8000"}, "port"),
        ({"path": "mcp"}, "starts with a slash"),
        ({"public_url": "ftp://x"}, "public_url"),
        ({"workers": 0}, "at least one"),
        ({"allowed_hosts": "example.com"}, "allowed_hosts"),
        ({"colour": "red"}, "no option 'colour' for 'http'"),
        ({"log_level": "loud"}, "not a log level"),
    ],
)
def test_options_that_are_no_good_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ServerError, match=says):
        Server("picky").run("http", **{"port": 0, **options})


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(ServerError, match=r"^Serving HTTP needs httptools: pip install 'toolwire\[http\]'"):
        Server("bare").run("http", port=0)


def test_run_in_a_thread_and_stop_from_another() -> None:
    server = make_server()
    ready = threading.Event()
    urls: list[str] = []

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    with pytest.raises(ServerError, match="not running"):
        server.stop()
    for _ in range(2):
        ready.clear()
        thread = threading.Thread(target=lambda: server.run("http", port=0, on_ready=on_ready))
        thread.start()
        assert ready.wait(30)
        assert server.active
        with pytest.raises(ServerError, match="already running"):
            server.run("http", port=0)
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
    assert all(url.startswith("http://127.0.0.1:") and url.endswith("/mcp") for url in urls)


@pytest.mark.parametrize(("transport", "has_sse"), [("streamable-http", False), ("sse", True)])
def test_run_knows_the_names_of_other_libraries(transport: str, has_sse: bool) -> None:
    server = make_server()
    found: Queue[tuple[int, str | None]] = Queue()

    def look(url: str) -> None:
        try:
            address = urlsplit(url)
            connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
            connection.request("GET", "/sse", headers={"Accept": "text/event-stream"})
            response = connection.getresponse()
            found.put((response.status, response.getheader("content-type")))
            connection.close()
        finally:
            server.stop()

    server.run(transport=transport, port=0, on_ready=lambda url: threading.Thread(target=look, args=(url,)).start())
    status, content_type = found.get(timeout=30)
    assert (status == 200 and content_type == "text/event-stream") is has_sse


def test_a_lifespan_that_fails_is_raised_where_it_was_run() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise ConnectionError("the database is not there")
        yield

    with pytest.raises(ConnectionError, match="the database"):
        Server("broken", lifespan=broken).run("http", port=0)


# --- the end, in this process -------------------------------------------------------------------------


async def test_the_end_waits_for_calls_and_then_cuts_them_off() -> None:
    server = make_server()
    cancelled = add_endless(server)
    async with serving(server) as port:
        connection = await _opened(port)
        connection.send(call("endless"))
        await server.test_started.wait()  # type: ignore[attr-defined]
    assert cancelled.is_set()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await connection.answer()
    connection.writer.close()


async def test_the_end_lets_calls_finish() -> None:
    server = make_server()
    async with serving(server) as port:
        connection = await _opened(port)
        connection.send(call("wait"))
        await server.test_started.wait()  # type: ignore[attr-defined]
        asyncio.get_running_loop().call_later(0.05, server.test_release.set)  # type: ignore[attr-defined]
    assert (await connection.answer())[0] == 200
    assert await connection.rest() == b""
    connection.writer.close()


async def _opened(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port))


async def test_ready_is_over_when_draining() -> None:
    server = make_server()
    application = server.http_app()
    sent: list[Any] = []

    async def ask() -> int:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": [(b"host", b"localhost")]}
        await application(scope, receive, send)
        status: int = sent[-2]["status"]
        return status

    assert await ask() == 200
    application.drain()
    assert await ask() == 503


# --- the end, of a process ----------------------------------------------------------------------------

SCRIPT = """
import asyncio, sys
from pathlib import Path
from toolwire import Limits, Server

server = Server("process", limits=Limits(drain={drain}))

def say(text):
    print(text, file=sys.stderr, flush=True)

@server.resource("note://today")
def today() -> str:
    return "sunny"

@server.tool
async def read(fifo: str) -> str:
    say("started")
    return await asyncio.to_thread(Path(fifo).read_text)

@server.tool
async def endless() -> str:
    say("started")
    try:
        await asyncio.Event().wait()
    finally:
        say("cancelled")
    return ""

app = server.http_app()
"""

RUN = """
if __name__ == "__main__":
    server.run("http", port=0)
"""

UVICORN = [sys.executable, "-m", "uvicorn", "--port", "0", "--app-dir"]
LISTEN = modern("subscriptions/listen", {"notifications": {"resourcesListChanged": True}}, "subscription")


@asynccontextmanager
async def script(folder: Path, drain: float = 30.0) -> AsyncIterator[Served]:
    path = folder / "program.py"
    path.write_text(SCRIPT.format(drain=drain) + RUN, encoding="utf-8")
    async with started([sys.executable, path]) as served:
        yield served


@asynccontextmanager
async def under_uvicorn(folder: Path, *options: str) -> AsyncIterator[Served]:
    (folder / "program.py").write_text(SCRIPT.format(drain=30.0), encoding="utf-8")
    async with started([*UVICORN, folder, *options, "program:app"]) as served:
        yield served


async def listen(connection: Connection) -> AsyncIterator[Any]:
    connection.send(LISTEN)
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    events = connection.events()
    assert (await anext(events))["method"] == "notifications/subscriptions/acknowledged"
    return events


@ready_for_signals
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
async def test_a_signal_ends_streams_properly_and_the_process_with_zero(tmp_path: Path, number: str) -> None:
    async with script(tmp_path) as served, connected(served.port) as one, connected(served.port) as two:
        streams = [await listen(one), await listen(two)]
        served.signal(getattr(signal, number))
        for events in streams:
            rest = [event async for event in events]
            assert [event["id"] for event in rest] == ["subscription"]
            assert "result" in rest[0]
        assert await one.rest() == b""
        status, said = await served.end()
    assert status == 0
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


async def open_legacy_stream(port: int, connection: Connection) -> None:
    """A session of 2025-06-18, and its stream of what the server has to say."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with connected(port) as other:
        other.send(post(json.dumps(hello).encode()))
        status, headers, _ = await other.answer()
        assert status == 200
        session = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
        other.send(post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session))
        assert (await other.answer())[0] == 202
    request = post(b"", session).replace(b"POST", b"GET", 1).replace(b"application/json, ", b"")
    connection.send(request)
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream")


@ready_for_signals
@pytest.mark.parametrize("host", ["ours", "uvicorn"])
async def test_a_signal_ends_the_streams_of_sessions_properly(tmp_path: Path, host: str) -> None:
    serves = script if host == "ours" else under_uvicorn
    async with serves(tmp_path) as served, connected(served.port) as connection:
        await open_legacy_stream(served.port, connection)
        served.signal(signal.SIGTERM)
        # A stream that was cut off would have no end.
        assert [chunk async for chunk in connection.chunks() if b"data:" in chunk] == []
        status, said = await served.end()
    assert status == (0 if host == "ours" else -signal.SIGTERM)
    assert "Traceback" not in said


@ready_for_signals
async def test_a_call_in_flight_is_finished_and_nobody_new_is_let_in(tmp_path: Path) -> None:
    async with script(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        os.mkfifo(tmp_path / "fifo")
        connection.send(call("read", fifo=str(tmp_path / "fifo")))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note"
        await asyncio.to_thread((tmp_path / "fifo").write_text, "finished")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "finished")
        assert (await served.end())[0] == 0
        with pytest.raises(OSError):
            await _opened(served.port)


@ready_for_signals
async def test_a_call_that_does_not_finish_in_time_is_cancelled(tmp_path: Path) -> None:
    async with script(tmp_path, drain=0.1) as served, connected(served.port) as connection:
        connection.send(call("endless"))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    assert status == 0
    assert said.splitlines()[1:] == ["started", "cancelled"]


@ready_for_signals
async def test_the_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    async with script(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        connection.send(call("endless"))
        assert await served.line() == "started\n"
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note of the first"
        served.signal(signal.SIGTERM)
        status, said = await served.end()
    assert status == -signal.SIGTERM
    assert "Traceback" not in said


# --- the same application under the user's own uvicorn ------------------------------------------------


@ready_for_signals
@pytest.mark.parametrize("options", [(), ("--lifespan", "off"), ("--loop", "asyncio", "--http", "h11")])
async def test_under_uvicorn_a_signal_ends_streams_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    async with under_uvicorn(tmp_path, *options) as served, connected(served.port) as connection:
        events = await listen(connection)
        served.signal(signal.SIGTERM)
        rest = [event async for event in events]
        assert [event["id"] for event in rest] == ["subscription"]
        status, said = await served.end()
    assert status in (0, -signal.SIGTERM), "uvicorn raises the signal again in the end"
    assert "Traceback" not in said


@ready_for_signals
async def test_under_uvicorn_a_limit_on_requests_ends_streams_too(tmp_path: Path) -> None:
    options = ("--limit-max-requests", "1")
    async with under_uvicorn(tmp_path, *options) as served, connected(served.port) as connection:
        events = await listen(connection)
        async with connected(served.port) as other:
            other.send(get("Host: localhost"))
            assert (await other.answer())[0] == 200
        assert [event["id"] async for event in events] == ["subscription"]
        assert (await served.end())[0] == 0


@ready_for_signals
async def test_under_uvicorn_calls_are_finished(tmp_path: Path) -> None:
    async with under_uvicorn(tmp_path) as served, connected(served.port) as connection, connected(served.port) as idle:
        idle.send(get("Host: localhost"))
        assert (await idle.answer())[0] == 200
        os.mkfifo(tmp_path / "fifo")
        connection.send(call("read", fifo=str(tmp_path / "fifo")))
        while "started" not in await served.line():
            pass
        served.signal(signal.SIGTERM)
        assert await idle.rest() == b"", "it has taken note"
        await asyncio.to_thread((tmp_path / "fifo").write_text, "finished")
        status, _, body = await connection.answer()
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "finished")


async def test_no_signal_handler_is_touched_and_no_other_host_is_watched() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(make_server()) as port, connected(port) as connection:
        assert await text_of_call(connection, "echo", text="x") == "x"
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert http_host.watch_host(lambda: None, None) is http_host._nothing
