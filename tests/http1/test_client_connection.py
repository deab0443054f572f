"""HTTP/1.1 as a client reads it: answers in every shape, whole, in pieces, broken, and without end."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.http1.raw_http import Serve, answered, answering, serving

from toolwire.http1 import client_connection
from toolwire.http1.client_connection import HELD_BYTES, HttpConnection, StreamedResponse
from toolwire.http1.pool import HttpPool
from toolwire.http1.response import MalformedResponse, TooLarge
from toolwire.http1.unpacking import Unpacker
from toolwire.protocol.errors import OutcomeUnknown, Unreachable

OK = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n"


def saying(*pieces: bytes) -> Serve:
    """A server that says this and closes, whatever was asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return serve


def staying(*pieces: bytes) -> Serve:
    """A server that says this and waits for the client to go away."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await saying(*pieces)(reader, writer)
        await reader.read()

    return serve


def receive(connection: HttpConnection, data: bytes) -> None:
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


# --- where a body ends ---


@cases(
    ("said", "body"),
    [
        (OK + b"content-length: 2\r\n\r\nok", b"ok"),
        (OK + b"content-length: 0\r\n\r\n", b""),
        (OK + b"transfer-encoding: Chunked\r\n\r\n2;x=y\r\nok\r\n1\r\n!\r\n0\r\nx-trailer: 1\r\n\r\n", b"ok!"),
        (b"HTTP/1.1 204 No\r\n\r\n", b""),
        (b"HTTP/1.1 304 Same\r\ncontent-length: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", b"ok"),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + OK + b"content-length: 1\r\n\r\n1",
            b"1",
        ),
    ],
)
@cases("step", [1, 1000])
async def test_an_answer_is_complete_before_the_connection_closes(said: bytes, body: bytes, step: int) -> None:
    pieces = [said[at : at + step] for at in range(0, len(said), step)]
    async with answered(staying(*pieces)) as response:
        assert await response.read(100) == body
        assert response.header("x-trailer") is None
        assert response.header("link") is None


@cases("head", [b"HTTP/1.0 200 OK\r\n\r\n", OK + b"\r\n", OK + b"connection: close\r\n\r\n"])
async def test_a_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    async with answered(saying(head, b"some", b"thing")) as response:
        assert await response.read(100) == b"something"


async def test_what_is_asked_with_head_has_no_body() -> None:
    async with answered(staying(OK + b"content-length: 5\r\n\r\n"), "HEAD") as response:
        assert await response.read(100) == b""
        assert response.header("content-length") == "5"


@pytest.mark.parametrize("body", ["fixed", "chunked"])
async def test_a_body_that_breaks_off_is_not_whole(body: str) -> None:
    length = b"content-length: 9\r\n\r\nabc" if body == "fixed" else b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    async with answered(saying(OK + length)) as response:
        chunks = response.chunks()
        assert await anext(chunks) == b"abc"
        with pytest.raises(OutcomeUnknown, match="broke off: it was closed by the server"):
            await anext(chunks)


# --- what is no answer ---


@cases(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/0.9 200 OK\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/1.1 099 OK\r\ncontent-length: 1\r\n\r\na",
        b"HTTP/1.1 101 Other\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
        OK + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        OK + b"content-encoding: br\r\ncontent-length: 1\r\n\r\na",
        OK + b"".join(b"x-%d: 1\r\n" % number for number in range(300)) + b"\r\n",
        OK + b"x: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Go\r\n\r\n" * 5_000,
    ],
)
async def test_what_can_not_be_an_answer_is_given_up_at_once(said: bytes) -> None:
    async with serving(staying(said)) as url, HttpPool() as pool:
        with pytest.raises(MalformedResponse, match="failed before it answered"):
            await pool.request("POST", url, body=b"{}", timeout=20)


async def test_trailers_without_end_are_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ")
        while True:
            writer.write(b"x" * 1_000)
            await writer.drain()

    async with answered(serve) as response:
        with pytest.raises(MalformedResponse, match="over the limit"):
            await response.read(100)


async def test_what_follows_an_answer_does_not_answer_the_next_request() -> None:
    connections: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        writer.write(OK + b"content-length: 1\r\n\r\n1" + OK + b"content-length: 5\r\n\r\nsmile")
        await reader.read()

    async with serving(serve) as url, HttpPool() as pool:
        for _ in range(2):
            async with await pool.request("GET", url) as response:
                assert await response.read(10) == b"1"
    assert len(connections) == 2


async def test_what_is_said_unasked_closes_the_connection() -> None:
    connections: list[bool] = []
    noticed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        writer.write(OK + b"content-length: 1\r\n\r\n1")
        await answered_once.wait()
        writer.write(b"HTTP/1.1 408 Late\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        noticed.set()

    answered_once = asyncio.Event()
    async with serving(serve) as url, HttpPool() as pool:
        async with await pool.request("GET", url) as response:
            assert await response.read(10) == b"1"
        answered_once.set()
        async with asyncio.timeout(30):
            await noticed.wait()
        async with await pool.request("POST", url, body=b"{}") as response:
            assert response.status == 200
    assert len(connections) == 2


# --- a reader that is behind ---


async def test_a_reader_that_is_behind_holds_the_server_back() -> None:
    size = 20_000_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"content-length: %d\r\n\r\n" % size + b"x" * size)
        await writer.drain()

    async with serving(serve) as url, HttpPool() as pool, await pool.request("GET", url) as response:
        assert isinstance(response, StreamedResponse)
        chunks = response.chunks()
        largest = total = 0
        async for chunk in chunks:
            largest, total = max(largest, len(chunk)), total + len(chunk)
            await asyncio.sleep(0)
        assert total == size
        assert largest <= 2 * HELD_BYTES


async def test_an_answer_before_the_request_was_sent() -> None:
    """The server does not read; what is left of the request is not sent on a connection that is used again."""
    connections: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        writer.write(b"HTTP/1.1 413 Large\r\ncontent-length: 0\r\n\r\n")
        await done.wait()

    done = asyncio.Event()
    async with serving(serve) as url, HttpPool(connections=1) as pool:
        for _ in range(2):
            async with await pool.request("POST", url, body=b"x" * 30_000_000, timeout=20) as response:
                assert response.status == 413
        done.set()
    assert len(connections) == 2


# --- giving up ---


async def test_an_end_that_is_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.http1.client_connection.END_SECONDS", 50.0)
    cut = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"content-length: 90000\r\n\r\n1")
        await let_go.wait()
        writer.write(b"x" * 10_000)
        await reader.read()
        cut.set()

    let_go = asyncio.Event()
    async with serving(serve) as url, HttpPool() as pool:
        response = await pool.request("GET", url)
        assert await anext(response.chunks()) == b"1"
        response.let_go()
        let_go.set()
        async with asyncio.timeout(30):
            await cut.wait()


async def test_closing_the_pool_ends_what_is_in_flight() -> None:
    reached = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()

    async with serving(serve) as url:
        pool = HttpPool()
        asking = asyncio.ensure_future(pool.request("POST", url, body=b"{}"))
        await reached.wait()
        await pool.close()
        with pytest.raises(OutcomeUnknown, match="failed before it answered: it was closed"):
            await asking


def made() -> tuple[HttpConnection, Mock]:
    """A connection without a loop, and its transport."""
    loop = Mock(asyncio.AbstractEventLoop)
    loop.create_future = Future
    connection = HttpConnection(loop, None, lambda _: None, lambda _: None)
    transport = Mock(asyncio.Transport)
    transport.get_extra_info.return_value.fileno.return_value = 0
    transport.is_closing.side_effect = lambda: transport.abort.called or transport.close.called
    transport.get_write_buffer_size.return_value = 0
    connection.connection_made(transport)
    return connection, transport


class Future(asyncio.Future[None]):
    def __init__(self) -> None:
        super().__init__(loop=Mock(asyncio.AbstractEventLoop))


def test_who_gives_up_late_does_not_cut_what_is_somebody_elses() -> None:
    connection, transport = made()
    first = connection.exchange("GET", "http://a/", b"")
    first.send(None)
    receive(connection, OK + b"content-length: 0\r\n\r\n")
    second = connection.exchange("GET", "http://a/", b"")
    second.send(None)
    with pytest.raises(asyncio.CancelledError):
        first.throw(asyncio.CancelledError)
    transport.abort.assert_not_called()
    with pytest.raises(asyncio.CancelledError):
        second.throw(asyncio.CancelledError)
    transport.abort.assert_called_once()


def read(pieces: list[bytes]) -> tuple[Any, ...]:
    """All that can be known about an answer that came in these pieces, up to the end of the connection."""
    connection, transport = made()
    asking = connection.exchange("POST", "http://a/", b"")
    began: Any = asking.send(None)
    response = connection._response
    assert response is not None
    for piece in pieces:
        if not transport.is_closing():
            receive(connection, piece)
    connection.connection_lost(None)
    failed = began.exception() if began.done() else None
    asking.close()
    return response.status, response.headers, b"".join(response._pieces), response._whole, response._error, str(failed)


ANSWERS = [
    OK + b"content-length: 12\r\nx: y\r\n\r\nhello, world",
    OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nyou\r\n0\r\nt: 1\r\n\r\n",
    INTERIM + b"HTTP/1.0 404 No\r\nContent-Type: a\r\n\r\nuntil the end",
    b"HTTP/1.1 202 Yes\r\ncontent-length: 0\r\n\r\n" + OK + b"\r\n",
]


@given(
    st.sampled_from(ANSWERS),
    st.lists(st.tuples(st.integers(0, 120), st.binary(max_size=3)), max_size=3),
    st.lists(st.integers(0, 150), max_size=5),
)
def test_an_answer_means_the_same_in_any_pieces(said: bytes, changes: list[tuple[int, bytes]], cuts: list[int]) -> None:
    for at, put in changes:
        said = said[:at] + put + said[at + len(put) :]
    ends = sorted({cut for cut in cuts if 0 < cut < len(said)} | {len(said)})
    pieces = [said[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    whole = read([said])
    assert read(pieces)[:4] == whole[:4]


async def test_an_answer_after_the_connection_is_gone_is_nobodys() -> None:
    connection = HttpConnection(asyncio.get_running_loop(), None, lambda _: None, lambda _: None)
    connection.connection_lost(None)
    receive(connection, OK + b"\r\n")
    assert connection.lost


# --- what is sent ---


@cases(
    "headers",
    [
        {"x": "a\r\ny: b"},
        {"x": "a\nb"},
        {"x": "a\0"},
        {"x": "\ud800"},
        {"": "a"},
        {"x y": "a"},
        {"x:": "a"},
        {"x\r\ny": "a"},
    ],
)
async def test_a_header_that_would_be_more_than_one_is_not_sent(headers: dict[str, str]) -> None:
    async with serving(answering(b"200 OK")) as url, HttpPool() as pool:
        with pytest.raises(Unreachable, match="cannot be sent"):
            await pool.request("GET", url, headers=headers)


async def test_how_a_request_looks() -> None:
    got: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
        writer.write(b"HTTP/1.1 204 No\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    headers = {"X-One": "ä", "Accept": "a/b", "Content-Length": "7", "Transfer-Encoding": "chunked", "host": "h"}
    async with HttpPool() as pool:
        url = f"http://me:pass%20word@127.0.0.1:{port}/ä b?q=1%202#part"
        (await pool.request("POST", url, headers=headers, body=b"{}")).close()
    server.close()
    head, _, body = got[0].partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    assert first == "POST /%C3%A4%20b?q=1%202 HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in rest)
    assert len(fields) == len(rest)
    assert fields.pop("user-agent").startswith("toolwire/")
    assert fields == {
        "host": "h",
        "accept": "a/b",
        "accept-encoding": "gzip, deflate",
        "authorization": "Basic bWU6cGFzcyB3b3Jk",
        "x-one": "ä",
        "content-length": "2",
    }
    assert body == b"{}"


# --- compressed bodies ---


def deflated_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@given(st.binary(max_size=2000), st.integers(1, 50), st.sampled_from(["gzip", "deflate", "raw"]))
def test_what_was_packed_is_unpacked_in_any_pieces(data: bytes, step: int, how: str) -> None:
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "raw": deflated_raw}[how](data)
    unpacker = Unpacker("gzip" if how == "gzip" else "deflate")
    got = b""
    for at in range(0, len(packed), step):
        got += b"".join(unpacker.feed(packed[at : at + step]))
    assert got == data
    assert unpacker.complete


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(1, 50), st.sampled_from([b"", b"\0" * 9]))
def test_all_members_of_gzip_are_unpacked(members: list[bytes], step: int, padding: bytes) -> None:
    packed = b"".join(map(gzip.compress, members)) + padding
    unpacker = Unpacker("gzip")
    got = [part for at in range(0, len(packed), step) for part in unpacker.feed(packed[at : at + step])]
    assert b"".join(got) == b"".join(members)
    assert unpacker.complete


def test_a_member_of_gzip_that_breaks_off() -> None:
    unpacker = Unpacker("gzip")
    assert b"".join(unpacker.feed(gzip.compress(b"a") + gzip.compress(b"b")[:-5])) == b"ab"
    assert not unpacker.complete


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]))
def test_garbage_is_not_unpacked(data: bytes, encoding: str) -> None:
    try:
        list(Unpacker(encoding).feed(data))
    except ValueError:
        pass


def test_parts_are_small_however_well_it_was_packed() -> None:
    parts = [len(part) for part in Unpacker("gzip").feed(gzip.compress(b"\0" * 3_000_000))]
    assert sum(parts) == 3_000_000
    assert max(parts) <= 64 * 1024


async def test_others_have_their_turn_between_the_parts_of_a_small_piece() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    packed = gzip.compress(b"\n" * 1_000_000)
    async with answered(answering(b"200 OK\r\ncontent-encoding: gzip", packed)) as response:
        running = asyncio.create_task(others())
        at = [turns async for _ in response.chunks()]
        running.cancel()
    assert len(at) > 10
    assert at == sorted(set(at))


async def test_a_packed_answer_is_read_unpacked() -> None:
    data = b"hello" * 1000
    async with answered(answering(b"200 OK\r\ncontent-encoding: GZIP", gzip.compress(data))) as response:
        assert await response.read(10_000) == data
    async with answered(answering(b"200 OK\r\ncontent-encoding: gzip", gzip.compress(data))) as response:
        with pytest.raises(TooLarge):
            await response.read(100)
    async with answered(answering(b"200 OK\r\ncontent-encoding: identity", data)) as response:
        assert await response.read(10_000) == data


@pytest.mark.parametrize("packed", [gzip.compress(b"hello", mtime=0)[:-9], b"not packed at all"])
async def test_a_packed_answer_that_is_broken(packed: bytes) -> None:
    async with answered(answering(b"200 OK\r\ncontent-encoding: gzip", packed)) as response:
        with pytest.raises(MalformedResponse, match="broke off"):
            await response.read(10_000)


# --- answers that look like earlier ones ---

JSON = OK + b"content-type: application/json\r\n"
LIKE = [
    JSON + b"content-length: 2\r\n\r\nok",
    JSON + b"content-length: 2\r\n\r\nno",
    JSON + b"content-length: 2\r\n\r\n",
    JSON + b"content-length: 2\r\n\r\nokay",
    JSON + b"content-length: 02\r\n\r\nok",
    JSON + b"content-length: 2\r\nconnection: close\r\n\r\nok",
    JSON + b"content-length: 4\r\ncontent-encoding: gzip\r\n\r\nokay",
    JSON + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 103 Soon\r\n\r\n" + JSON + b"content-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\ncontent-length: 6\n\na\r\n\r\nb",
    b"HTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nok",
    b"hello\r\n\r\n",
]


@cases("second", range(len(LIKE)))
@cases("first", range(len(LIKE)))
def test_an_answer_that_looks_like_an_earlier_one_is_read_like_any_other(
    first: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for is_usual in (True, False):
        monkeypatch.setattr(client_connection, "_usual_heads", {})
        learning, _ = made()
        _taken(learning, LIKE[first], is_usual=is_usual)
        connection, transport = made()
        seen.append([_taken(connection, LIKE[second], is_usual=is_usual), transport.abort.called])
    assert seen[0] == seen[1]


def _taken(connection: HttpConnection, said: bytes, *, is_usual: bool) -> Any:
    """Return all that is known of an answer when it has arrived."""
    response = connection.start("POST", "http://a/", b"", is_usual=is_usual)
    receive(connection, said)
    if not response.began.done():
        return None
    if response.began.exception() is not None:
        return str(response.began.exception())
    return response.status, response.headers, response.media_type, response.whole(100)


def test_heads_of_answers_are_remembered_in_a_small_number(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[bytes, Any] = {}
    monkeypatch.setattr(client_connection, "_usual_heads", known)
    monkeypatch.setattr(client_connection, "_MANY_HEADS", 3)
    for length in (1, 2, 3, 4, 3_000):
        connection, _ = made()
        _taken(connection, JSON + b"x: %s\r\ncontent-length: 1\r\n\r\n1" % (b"x" * length), is_usual=True)
    assert len(known) == 1
