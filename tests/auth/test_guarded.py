"""Fetches of URLs that servers name: where they may go, how much they read, how long they wait."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.auth.stand_in import Reply, Request, Site
from tests.cases import cases

from toolwire.auth.client import guarded
from toolwire.auth.client.guarded import MAX_BYTES, MAX_HOPS, Fetcher
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.messages import get, post_form
from toolwire.auth.flow.urls import Reach


async def test_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site() as site, Fetcher(Reach(site.url)) as fetcher:
        site.routes["/x"] = lambda request: Reply(201, {"a": 1}, {"DPoP-Nonce": "n"})
        answer = await fetcher.fetch(get(f"{site.url}/x"))
    assert answer.status == 201
    assert answer.body == b'{"a": 1}'
    assert answer.headers["dpop-nonce"] == "n"


@pytest.mark.covers("6.2.6")
@cases(
    "location",
    [
        "http://example.org/",  # Not https.
        "file:///etc/passwd",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:10.0.0.1]/",
        "https://[fe80::1]/",
        "https://0.0.0.0/",
        "//user@127.0.0.1/",
        "http://[",
    ],
)
async def test_every_hop_of_a_redirect_is_vetted(location: str) -> None:
    async with Site() as site, Fetcher(Reach(f"{site.url}/mcp")) as fetcher:
        site.routes["/x"] = lambda request: Reply(302, headers={"location": location})
        with pytest.raises(SignInFailed):
            await fetcher.fetch(get(f"{site.url}/x"))


@pytest.mark.covers("6.2.6")
async def test_a_name_that_resolves_to_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []

    def resolve(host: str, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        resolved.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.168.7.7", int(port or 0)))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with Fetcher(Reach("https://api.example.org/mcp"), seconds=5) as fetcher:
        with pytest.raises(SignInFailed, match="not one that may be reached"):
            await fetcher.fetch(get("https://login.example.org/.well-known/openid-configuration"))
    assert resolved == ["login.example.org"]


@pytest.mark.covers("6.2.6")
@cases("url", ["http://127.0.0.1:1/", "https://127.0.0.1:1/", "https://localhost:1/", "https://[::1]:1/"])
async def test_a_remote_server_does_not_reach_this_machine(url: str) -> None:
    async with Fetcher(Reach("https://api.example.org/mcp")) as fetcher:
        with pytest.raises(SignInFailed, match=r"https|on this machine"):
            await fetcher.fetch(get(url))


async def test_redirects_that_are_followed() -> None:
    async with Site() as site, Site() as other, Fetcher(Reach(site.url)) as fetcher:
        site.routes["/x"] = lambda request: Reply(307, headers={"location": f"{other.url}/y"})
        other.routes["/y"] = lambda request: Reply(document="there")
        assert (await fetcher.fetch(get(f"{site.url}/x"))).body == b'"there"'
        # A form holds secrets, and goes nowhere else.
        assert (await fetcher.fetch(post_form(f"{site.url}/x", {"code": "c"}))).status == 307
        assert len(other.requests) == 1


async def test_redirects_that_go_round() -> None:
    async with Site() as site, Fetcher(Reach(site.url)) as fetcher:
        site.routes["/x"] = lambda request: Reply(302, headers={"location": "/x"})
        with pytest.raises(SignInFailed, match="too often"):
            await fetcher.fetch(get(f"{site.url}/x"))
        assert len(site.requests) == MAX_HOPS + 1


async def test_too_much() -> None:
    async with Site() as site, Fetcher(Reach(site.url)) as fetcher:
        site.routes["/x"] = lambda request: Reply(raw=b"x" * (MAX_BYTES + 1))
        with pytest.raises(SignInFailed, match="more than"):
            await fetcher.fetch(get(f"{site.url}/x"))


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"])
async def test_too_slow(said: bytes) -> None:
    left = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        writer.close()
        left.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with Fetcher(Reach(url), seconds=0.05) as fetcher:
        with pytest.raises(SignInFailed, match="did not answer within"):
            await fetcher.fetch(get(url))
    await left.wait()
    server.close()
    assert guarded.SECONDS <= 30


async def test_nobody_there() -> None:
    async with Site() as site:
        url = site.url
    async with Fetcher(Reach(url)) as fetcher:
        with pytest.raises(SignInFailed, match="could not be asked"):
            await fetcher.fetch(get(url))


async def test_a_flow_that_fails_is_closed() -> None:
    def check(request: Request) -> Reply:
        return Reply(404)

    async with Site() as site, Fetcher(Reach(site.url)) as fetcher:
        site.routes["/x"] = check
        closed = False

        def flow() -> Any:
            nonlocal closed
            try:
                yield get("file:///x")
            finally:
                closed = True

        with pytest.raises(SignInFailed):
            await fetcher.run(flow())
        assert closed
