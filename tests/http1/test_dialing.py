"""How connections are made: addresses, TLS, and tunnels through proxies."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.http1.raw_http import answering, certificate, serving

from toolwire.http1.client_connection import HttpConnection
from toolwire.http1.dialing import Destination, parse_proxy
from toolwire.http1.pool import HttpPool
from toolwire.http1.url import parse_url
from toolwire.protocol.errors import Unreachable

LOOPS = ["asyncio"] if sys.platform == "win32" else ["asyncio", "uvloop"]


def new_loop(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


@pytest.fixture
def terms(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server on 127.0.0.1, and of a client that trusts it."""
    file = certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(file)
    return own, ssl.create_default_context(cafile=str(file))


@asynccontextmanager
async def speaking_tls(own: ssl.SSLContext) -> AsyncIterator[str]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=own)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


@asynccontextmanager
async def proxy(
    said: bytes = b"HTTP/1.1 200 Established\r\n\r\n", own: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A proxy that makes tunnels: its port, and what it was asked."""
    asked: list[bytes] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head)
        writer.write(said)
        if b" 200 " not in said:
            writer.close()
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    server = await asyncio.start_server(one, "127.0.0.1", 0, ssl=own)
    yield server.sockets[0].getsockname()[1], asked
    server.close()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("said", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"])
def test_tls_through_a_proxy_is_spoken_with_the_server(
    terms: tuple[ssl.SSLContext, ssl.SSLContext], loop: str, secure: bool, said: bytes
) -> None:
    async def main() -> None:
        own, trusting = terms
        scheme = "https" if secure else "http"
        async with (
            speaking_tls(own) as url,
            proxy(said, own if secure else None) as (port, asked),
            HttpPool(tls=trusting, proxy=f"{scheme}://me:word@127.0.0.1:{port}") as pool,
        ):
            for _ in range(2):
                async with await pool.request("POST", url, headers={"x-token": "1"}, body=b"") as response:
                    assert await response.read(100) == b"secret"
            there = url.removeprefix("https://").strip("/")
            # One tunnel for both, and nothing of what is said in it.
            assert asked == [
                f"CONNECT {there} HTTP/1.1\r\nhost: {there}\r\nproxy-authorization: Basic bWU6d29yZA==\r\n\r\n".encode()
            ]

    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        runner.run(main())


async def test_the_certificate_is_checked_through_a_proxy_too(terms: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with (
        speaking_tls(terms[0]) as url,
        proxy() as (port, _),
        HttpPool(proxy=f"127.0.0.1:{port}") as pool,
    ):
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await pool.request("GET", url, timeout=20)


@cases(
    ("said", "told"),
    [
        (b"HTTP/1.1 407 Who\r\ncontent-length: 0\r\n\r\n", "wants a user and a password"),
        (b"HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n", "answered 502"),
        (b"", "the proxy ended the connection"),
        (b"what?\r\n\r\n", "the proxy ended the connection: it is not HTTP"),
    ],
)
async def test_a_proxy_that_makes_no_tunnel(said: bytes, told: str) -> None:
    async with proxy(said) as (port, _), HttpPool(proxy=f"http://me:hidden@127.0.0.1:{port}") as pool:
        with pytest.raises(Unreachable, match=told) as caught:
            await pool.request("POST", "https://far.example/", body=b"{}", timeout=20)
    assert "hidden" not in str(caught.value)


async def test_a_plain_request_tells_a_proxy_who_asks() -> None:
    heads: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No\r\nconnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    address = f"http://me:word@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with HttpPool(proxy=address) as pool, await pool.request("GET", "http://far.example:81/x?y") as response:
        assert response.status == 204
    server.close()
    assert heads[0].startswith(b"GET http://far.example:81/x?y HTTP/1.1\r\nhost: far.example:81\r\n")
    assert b"\r\nproxy-authorization: Basic bWU6d29yZA==\r\n" in heads[0]


@cases("url", ["socks5://127.0.0.1:1", "http://", "http://a b/"])
def test_a_proxy_of_another_kind_is_not_used(url: str) -> None:
    with pytest.raises(Unreachable, match="proxy that is named"):
        parse_proxy(url)


# --- addresses ---


def resolving(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Every name resolves to these addresses."""

    async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        families = [socket.AF_INET6 if ":" in each else socket.AF_INET for each in hosts]
        return [(family, None, 0, "", (each, port)) for family, each in zip(families, hosts, strict=True)]

    # Other tests may have loops in other threads.
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def reaching(monkeypatch: pytest.MonkeyPatch, silent: set[str], refused: set[str]) -> list[str]:
    """Some addresses are silent and some refuse; all that were tried, in their order."""
    tried: list[str] = []
    loop = asyncio.get_running_loop()
    before = loop.sock_connect

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        tried.append(address[0])
        if address[0] in silent:
            await asyncio.Event().wait()
        if address[0] in refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "")
        await before(sock, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    return tried


@pytest.mark.parametrize("loop", LOOPS)
def test_small_requests_go_at_once_and_quiet_connections_are_watched(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    connection_made = HttpConnection.connection_made

    def note(connection: HttpConnection, transport: asyncio.Transport) -> None:
        connection_made(connection, transport)
        made = transport.get_extra_info("socket")
        found.append(bool(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        found.append(bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))

    async def main() -> None:
        async with serving(answering(b"200 OK")) as url, HttpPool() as pool, await pool.request("GET", url):
            assert found == [True, True]

    monkeypatch.setattr(HttpConnection, "connection_made", note)
    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        runner.run(main())


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.9", "127.0.0.8", "127.0.0.1", "::2")
    tried = reaching(monkeypatch, {"127.0.0.9"}, {"::2", "127.0.0.8"})
    monkeypatch.setattr("toolwire.http1.dialing._STAGGER_SECONDS", 0.01)
    async with serving(answering(b"204 No")) as url, HttpPool() as pool:
        response = await pool.request("GET", url.replace("127.0.0.1", "some.example"), timeout=20)
        assert response.status == 204
    # The families take turns.
    assert tried == ["127.0.0.9", "::2", "127.0.0.8", "127.0.0.1"]


async def test_no_address_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.9", "127.0.0.8")
    reaching(monkeypatch, {"127.0.0.9"}, {"127.0.0.8"})
    async with HttpPool(connect_timeout=0.05) as pool:
        with pytest.raises(Unreachable, match=r"http://some\.example cannot be reached: it did not answer in 0\.05 s"):
            await pool.request("GET", "http://some.example/", timeout=20)
    reaching(monkeypatch, set(), {"127.0.0.9"})
    async with HttpPool() as pool:
        with pytest.raises(Unreachable, match="Connection refused"):
            await pool.request("GET", "http://some.example/", timeout=20)


async def test_one_bad_address_among_good_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.1", "127.0.0.2")
    tried = reaching(monkeypatch, set(), set())
    async with HttpPool(vet=lambda address: str(address) != "127.0.0.2") as pool:
        with pytest.raises(Unreachable, match=r"some\.example was not contacted"):
            await pool.request("GET", "http://some.example/", timeout=20)
    assert tried == []


async def test_a_name_is_resolved_anew_for_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was good may lead elsewhere the next time."""
    async with serving(answering(b"204 No")) as url, HttpPool(vet=lambda a: str(a) == "127.0.0.1") as pool:
        named = url.replace("127.0.0.1", "some.example")
        resolving(monkeypatch, "127.0.0.1")
        async with await pool.request("GET", named) as response:
            assert response.status == 204
        resolving(monkeypatch, "169.254.169.254")
        with pytest.raises(Unreachable, match="was not contacted"):
            await pool.request("GET", named)


async def test_who_gives_up_while_connecting_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.9", "127.0.0.8")
    tried = reaching(monkeypatch, {"127.0.0.9", "127.0.0.8"}, set())
    async with HttpPool() as pool:
        asking = asyncio.ensure_future(pool.request("GET", "http://some.example/"))
        while not tried:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()


def test_a_destination_is_shown_without_secrets() -> None:
    to = parse_url("http://me:word@[::1]:8000/x?token=1")
    assert Destination(to.secure, to.host, to.port, None).origin_text == "http://[::1]:8000"


# --- URLs ---


@cases(
    ("url", "host", "authority", "target"),
    [
        ("http://Host.example", "host.example", "host.example", "/"),
        ("https://host.example:443/a%2Fb;c?d=e&f", "host.example", "host.example", "/a%2Fb;c?d=e&f"),
        ("https://host.example:80", "host.example", "host.example:80", "/"),
        ("http://bücher.example/ä", "xn--bcher-kva.example", "xn--bcher-kva.example", "/%C3%A4"),
        ("http://[fe80::1%25eth0]:1/", "fe80::1%eth0", "[fe80::1]:1", "/"),
        ('http://host/x y"<>?z"#part', "host", "host", "/x%20y%22%3C%3E?z%22"),
    ],
)
def test_what_a_url_says(url: str, host: str, authority: str, target: str) -> None:
    parts = parse_url(url)
    assert (parts.host, parts.authority, parts.target) == (host, authority, target)


@cases("url", ["http://a b/", "ws://a/", "http://a:x/", "http://" + "a" * 300, "http://[1", "http:///"])
def test_a_host_is_a_name_or_an_address(url: str) -> None:
    with pytest.raises(ValueError):
        parse_url(url)
