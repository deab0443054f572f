"""A server behind real sockets: what it lets in."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.http.serving_here import add_endless, make_server, serving
from tests.http_process import Connection, call, connected, post, text_of_call
from uvicorn import Config
from uvicorn.server import ServerState

from toolwire import Client
from toolwire.http import serving as http_server
from toolwire.http1 import server_connection as http_protocol


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(make_server()) as port:
        yield port


# --- a server in this process ---


async def test_a_call(port: int) -> None:
    async with connected(port) as connection:
        for text in ("one", "two"):
            assert await text_of_call(connection, "echo", text=text) == text
        connection.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, headers, body = await connection.answer()
        assert (status, body) == (200, b"ok")
        assert "date" in headers
        assert "server" not in headers


@pytest.mark.parametrize(("revision", "tool"), [("2026-07-28", "waits"), ("2025-11-25", "echo")])
async def test_a_call_leaves_nothing_for_the_garbage_collector(revision: str, tool: str) -> None:
    server = make_server()

    @server.tool
    async def waits(text: str) -> str:
        await asyncio.sleep(0)
        return text

    async with serving(server) as port, Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as client:
        await client.call_tool(tool, {"text": "x"})
        gc.disable()
        gc.collect()
        gc.freeze()  # What earlier tests left is not looked at.
        try:
            # Threads of earlier tests may make garbage at any moment. A ring of a call is there every time.
            assert min([await _garbage_of_ten_calls(client, tool) for _ in range(5)]) < 10
        finally:
            gc.enable()


async def _garbage_of_ten_calls(client: Client, tool: str) -> int:
    gc.collect()
    for _ in range(10):
        await client.call_tool(tool, {"text": "x"})
    return gc.collect()


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


async def refused(connection: Connection, status: int) -> str:
    """The connection says this, and closes."""
    found, headers, body = await connection.answer()
    assert found == status, body
    assert headers["connection"] == "close"
    assert await connection.rest() == b""
    return body.decode()


def get(*headers: str) -> bytes:
    return "\r\n".join(["GET /livez HTTP/1.1", *headers, "", ""]).encode()


# --- headers ---


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


# --- bodies and what follows them ---


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
