"""One limited request: bytes, time, redirects, addresses, and bodies that are not wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.http1.raw_http import answering, serving

from toolwire.base_errors import Timeout, TransportError, Unreachable
from toolwire.http1.fetch import fetch
from toolwire.http1.pool import Pool
from toolwire.http1.public_addresses import is_public
from toolwire.http1.response import HttpResponse, TooLarge
from toolwire.http1.url import origin


async def test_response_is_read_to_its_end() -> None:
    async with serving(answering(b"404 Not Found\r\nx-a: 1", b"nothing")) as url:
        response, body = await fetch("GET", url, max_bytes=7, seconds=30)
    assert (response.status, response.header("X-A"), body) == (404, "1", b"nothing")


async def test_body_over_the_limit_is_refused() -> None:
    async with serving(answering(b"200 OK", b"12345678")) as url:
        with pytest.raises(TooLarge, match="more than 7 bytes"):
            await fetch("GET", url, max_bytes=7, seconds=30)


async def test_body_that_is_not_wanted_is_not_read() -> None:
    async with serving(answering(b"200 OK", b"12345678")) as url:
        response, body = await fetch("GET", url, max_bytes=1, seconds=30, wants_body=lambda it: it.status != 200)
    assert (response.status, body) == (200, b"")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"])
async def test_request_times_out_when_server_is_silent(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()

    async with serving(serve) as url:
        with pytest.raises(Timeout) as caught:
            await fetch("GET", url, max_bytes=100, seconds=0.05)
    assert str(caught.value) == f"{origin(url)} did not answer in 0.05 s"


async def test_private_address_is_not_contacted_when_vetted() -> None:
    async with serving(answering(b"200 OK")) as url:
        with pytest.raises(Unreachable, match="not one that may be reached"):
            await fetch("GET", url, max_bytes=1, seconds=30, vet=is_public)


class Scripted(HttpResponse):
    def __init__(self, url: str, status: int, location: str | None) -> None:
        self.url, self.status = url, status
        self._location = location

    def header(self, name: str) -> str | None:
        return self._location if name == "location" else None

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    async def chunks(self):  # type: ignore[no-untyped-def]
        yield self.url.encode()

    def close(self) -> None:
        pass


class Redirecting(Pool):
    """A pool that answers each URL of `targets` by a redirect, and notes its requests."""

    def __init__(self, targets: Mapping[str, str], status: int = 302) -> None:
        self.targets, self.status = targets, status
        self.requests: list[tuple[str, str, bytes | None]] = []

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        self.requests.append((method, url, body))
        target = self.targets.get(url)
        return Scripted(url, 200 if target is None else self.status, target)

    async def close(self) -> None:
        pass


CHAIN = {"https://a/1": "/2", "https://a/2": "/3", "https://a/3": "https://b/4"}


@pytest.mark.parametrize(("redirects", "last"), [(0, "https://a/1"), (1, "https://a/2"), (9, "https://a/3")])
async def test_redirects_end_at_their_number_and_their_origin(redirects: int, last: str) -> None:
    response, body = await fetch(
        "GET", "https://a/1", max_bytes=100, seconds=30, redirects=redirects, pool=Redirecting(CHAIN)
    )
    assert (response.url, response.status, body.decode()) == (last, 302, last)


async def test_pool_is_chosen_for_each_url_of_a_redirect() -> None:
    chosen: list[str] = []
    pool = Redirecting(CHAIN)

    def pool_of(url: str) -> Pool:
        chosen.append(url)
        return pool

    response, _ = await fetch("GET", "https://a/1", max_bytes=100, seconds=30, redirects=9, pool_of=pool_of)
    assert (response.url, response.status) == ("https://b/4", 200)
    assert chosen == ["https://a/1", "https://a/2", "https://a/3", "https://b/4"]


async def test_pool_of_a_url_can_refuse_a_redirect() -> None:
    def pool_of(url: str) -> Pool:
        if origin(url) == "https://b":
            raise TransportError("not there")
        return pool

    pool = Redirecting(CHAIN)
    with pytest.raises(TransportError, match="not there"):
        await fetch("GET", "https://a/1", max_bytes=100, seconds=30, redirects=9, pool_of=pool_of)
    assert len(pool.requests) == 3


@pytest.mark.parametrize(
    ("method", "status", "sent"),
    [
        ("GET", 301, [b"x", None]),
        ("GET", 308, [b"x", b"x"]),
        ("POST", 307, [b"x", b"x"]),
        ("POST", 302, [b"x"]),
    ],
)
async def test_redirects_repeat_the_body_only_where_the_method_stays(
    method: str, status: int, sent: list[bytes | None]
) -> None:
    pool = Redirecting({"https://a/1": "/2"}, status)
    await fetch(method, "https://a/1", body=b"x", max_bytes=100, seconds=30, redirects=1, pool=pool)
    assert [body for _, _, body in pool.requests] == sent
