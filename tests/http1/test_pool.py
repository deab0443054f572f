"""The pool of HTTP connections, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.http1.raw_http import answered, answering, certificate, serving

from toolwire.http1.client_connection import HttpConnection
from toolwire.http1.pool import HttpPool
from toolwire.http1.pool_connections import Connections
from toolwire.http1.public_addresses import is_public, parse
from toolwire.http1.response import TooLarge
from toolwire.http1.url import origin
from toolwire.protocol.errors import OutcomeUnknown, Timeout, ToolwireError, Unreachable


async def test_a_body_arrives_chunk_by_chunk() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; x=y\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await writer.drain()

    async with serving(serve) as url, HttpPool() as pool, await pool.request("POST", url, body=b"{}") as response:
        assert (response.status, response.media_type) == (200, "text/event-stream")
        chunks = response.chunks()
        assert await anext(chunks) == b"one"
        go_on.set()  # The second chunk is sent only when the first one has arrived.
        assert await anext(chunks) == b"two"
        assert [chunk async for chunk in chunks] == []


@pytest.mark.parametrize("begun", [False, True])
async def test_giving_up_closes_the_connection(begun: bool) -> None:
    reached, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if begun:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        reached.set()
        try:
            assert await reader.read(1) == b""
        finally:
            closed.set()

    async def use() -> None:
        async with await pool.request("GET", url) as response:
            async for _ in response.chunks():
                pass

    async with serving(serve) as url, HttpPool() as pool:
        using = asyncio.ensure_future(use())
        await reached.wait()
        using.cancel()
        await asyncio.wait({using})
        async with asyncio.timeout(30):
            await closed.wait()


async def test_connections_are_used_again() -> None:
    peers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        for _ in range(2):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await reader.readuntil(b"\r\n\r\n")

    async with serving(serve) as url, HttpPool() as pool:
        for _ in range(2):
            async with await pool.request("GET", url) as response:
                assert await response.read(10) == b"ok"
    assert len(peers) == 1


@pytest.mark.parametrize("ends", [True, False])
async def test_a_stream_that_has_said_all_gives_its_connection_back(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.http1.client_connection.END_SECONDS", 5.0 if ends else 0.01)
    settled = asyncio.Event()
    for told in ("_kept", "_gone"):

        def note(self: Connections, connection: HttpConnection, before: Any = getattr(Connections, told)) -> None:
            before(self, connection)
            settled.set()

        monkeypatch.setattr(Connections, told, note)
    connections: list[bool] = []
    let_go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(True)
        while True:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            await let_go.wait()
            if ends:
                writer.write(b"0\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")

    async with serving(serve) as url, HttpPool() as pool:
        for _ in range(2):
            let_go.clear()
            settled.clear()
            response = await pool.request("GET", url)
            assert await anext(response.chunks()) == b"one"
            response.let_go()
            let_go.set()
            await settled.wait()
    assert len(connections) == (1 if ends else 2)


async def test_headers_are_joined_and_found_in_any_case() -> None:
    head = b"401 No\r\nWWW-Authenticate: A x=1\r\nwww-authenticate: B y=2\r\nX-One: 1"
    async with serving(answering(head)) as url, HttpPool() as pool, await pool.request("GET", url) as response:
        assert response.headers["www-authenticate"] == "A x=1, B y=2"
        assert response.header("x-one") == response.header("X-ONE") == "1"
        assert response.header("absent") is None


# --- limits and time ---


@pytest.mark.parametrize("size", [9, 200_000])
async def test_a_body_over_the_limit(size: int) -> None:
    async with serving(answering(b"200 OK", b"x" * size)) as url, HttpPool() as pool:
        async with await pool.request("GET", url) as response:
            with pytest.raises(TooLarge, match="more than 8 bytes"):
                await response.read(8)
        async with await pool.request("GET", url) as response:
            assert len(await response.read(size)) == size


async def test_a_compressed_body_is_measured_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    async with (
        serving(answering(b"200 OK\r\ncontent-encoding: gzip", bomb)) as url,
        HttpPool() as pool,
        await pool.request("GET", url) as response,
    ):
        with pytest.raises((TooLarge, OutcomeUnknown)):
            await response.read(1_000_000)


async def test_headers_without_end_are_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-a: " + b"a" * 1000 + b"\r\n")
            await writer.drain()

    async with serving(serve) as url, HttpPool() as pool:
        with pytest.raises(OutcomeUnknown):
            await pool.request("GET", url, timeout=20)


async def test_headers_that_do_not_come() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with serving(serve) as url, HttpPool() as pool:
        with pytest.raises(Timeout, match=r"did not answer in 0\.05 s"):
            await pool.request("GET", url, timeout=0.05)


# --- who is to blame ---


async def test_nobody_listens() -> None:
    async with serving(answering(b"200 OK")) as url:
        pass
    async with HttpPool() as pool:
        with pytest.raises(Unreachable, match="cannot be reached: Connection refused"):
            await pool.request("POST", url, body=b"{}")


async def test_tls_with_somebody_who_has_none() -> None:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with HttpPool() as pool:
        with pytest.raises(Unreachable, match="is it http:// instead of https://"):
            await pool.request("GET", f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout=20)
    server.close()


async def test_certificates_are_checked(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=own)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with HttpPool() as pool:
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await pool.request("GET", url, timeout=20)
    trusting = ssl.create_default_context(cafile=str(file))
    async with HttpPool(tls=trusting) as pool, await pool.request("GET", url, timeout=20) as response:
        assert response.status == 204
    server.close()


@cases("url", ["nonsense", "http://", "ftp://host/", "http://host:99999/", "http://bad host/"])
async def test_a_url_that_is_none(url: str) -> None:
    async with HttpPool() as pool:
        with pytest.raises(Unreachable):
            await pool.request("GET", url)


@cases("said", [b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"])
async def test_a_connection_that_breaks_leaves_the_outcome_open(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async with serving(serve) as url, HttpPool() as pool:
        with pytest.raises(OutcomeUnknown):
            async with await pool.request("POST", url, body=b"{}") as response:
                await response.read(100)


async def test_a_closed_pool() -> None:
    pool = HttpPool()
    await pool.close()
    await pool.close()
    with pytest.raises(Unreachable, match="closed"):
        await pool.request("GET", "http://127.0.0.1:9/")


async def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    async with HttpPool() as pool:
        with pytest.raises(ToolwireError, match=r"URL needs httptools: pip install 'toolwire\[http\]'"):
            await pool.request("GET", "http://127.0.0.1:9/")


# --- redirects ---


async def test_a_redirect_within_the_origin_repeats_the_request() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 307 There\r\nlocation: /mcp/\r\ncontent-length: 0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split()[1] + await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with answered(serve, "POST", "/mcp") as response:
        assert response.status == 200
        assert response.url.endswith("/mcp/")
    assert asked == [b"{}", b"/mcp/{}"]


@cases("location", ["http://169.254.169.254/latest", "//other.example/", "https://127.0.0.1/", "http://[broken/"])
async def test_a_redirect_to_elsewhere_is_not_followed(location: str) -> None:
    head = b"307 There\r\nlocation: " + location.encode()
    async with serving(answering(head)) as url, HttpPool() as pool, await pool.request("GET", url) as response:
        assert response.status == 307
        assert response.header("location") == location


async def test_a_post_is_not_turned_into_something_else() -> None:
    async with answered(answering(b"302 There\r\nlocation: /x"), "POST") as response:
        assert response.status == 302


async def test_redirects_without_end() -> None:
    async with answered(answering(b"307 There\r\nlocation: /x")) as response:
        assert response.status == 307


# --- addresses ---


@cases(
    "text",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "fec0::1",
        "feff::1",
        "::127.0.0.1",
        "::10.0.0.1",
        "::169.254.169.254",
        "::ffff:0:127.0.0.1",
        "::ffff:0:169.254.169.254",
    ],
)
def test_addresses_that_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@cases(
    "text",
    ["93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "::8.8.8.8", "::ffff:0:8.8.8.8"],
)
def test_addresses_that_are_public(text: str) -> None:
    assert is_public(ip_address(text))


def test_what_is_an_address() -> None:
    assert parse("[::1]") == ip_address("::1")
    assert parse("fe80::1%eth0") == ip_address("fe80::1")
    assert parse("localhost") is None


@cases("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "0x7f.1"])
async def test_a_vetted_pool_contacts_nobody_in_private(host: str) -> None:
    contacted: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        contacted.append(True)

    async with serving(serve) as url, HttpPool(vet=is_public) as pool:
        with pytest.raises(Unreachable):
            await pool.request("GET", url.replace("127.0.0.1", host))
    assert not contacted


async def test_a_vetted_pool_reaches_what_is_allowed() -> None:
    judged = []

    def vet(address: object) -> bool:
        judged.append(str(address))
        return True

    async with serving(answering(b"204 No")) as url, HttpPool(vet=vet) as pool:
        response = await pool.request("GET", url.replace("127.0.0.1", "localhost"))
        assert response.status == 204
        response.close()
    assert "127.0.0.1" in judged


async def test_a_vetted_pool_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with answered(answering(b"204 No"), vet=lambda _: True) as response:
        assert response.status == 204
    with pytest.raises(ValueError, match="vet= or proxy="):
        HttpPool(vet=is_public, proxy="http://127.0.0.1:9")


async def test_a_proxy_is_asked_instead() -> None:
    lines: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(one, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    async with HttpPool(proxy=address) as pool, await pool.request("GET", "http://far.example/x") as response:
        assert response.status == 200
    proxy.close()
    assert lines == [b"GET http://far.example/x HTTP/1.1\r\n"]


async def test_the_environment_names_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    proxy = await asyncio.start_server(one, "127.0.0.1", 0)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    async with serving(answering(b"204 No")) as url, HttpPool() as pool:
        for address, status in (("http://far.example/x", 200), (url, 204)):
            response = await pool.request("GET", address)
            assert response.status == status
            response.close()
    proxy.close()
    assert lines == [b"GET http://far.example/x HTTP/1.1\r\n"]


def test_an_origin_shows_no_secret() -> None:
    assert origin("https://user:secret@Host.example:443/path?token=1") == "https://host.example"
    assert origin("http://[::1]:8000/x") == "http://[::1]:8000"
    assert origin("http://host:99999/") == "http://host:?"
    assert origin("http://user:secret") == "http://user:?"
