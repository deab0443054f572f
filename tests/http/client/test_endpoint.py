"""Requests of a client to one URL: what is sent again, and with which credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolwire.auth.client.signing import ProofKey
from toolwire.auth.contract import Bearer
from toolwire.http.client.endpoint import Endpoint
from toolwire.http1.pool import HttpPool
from toolwire.http1.response import CrossedClosing

DONE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def closing_when_reused() -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """Serve one request for each connection, and close it at the next one. Yield the URL, and the headers of all."""
    heads: list[dict[str, str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for reply in (DONE, b""):
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
                heads.append(dict(line.lower().split(": ", 1) for line in lines))
                await reader.readexactly(int(heads[-1].get("content-length", "0")))
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", heads
    finally:
        server.close()


class Proving:
    """An `Auth` with a proof for each request, as `OAuth(dpop=True)` has."""

    def __init__(self) -> None:
        self._key = ProofKey()

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"authorization": "DPoP token", "dpop": self._key.proof(method, url, "token")}

    async def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> bool:
        return False


async def send(endpoint: Endpoint, method: str) -> int:
    async with await endpoint.send(method, {}, b"{}" if method == "POST" else None) as response:
        await response.read(100)
        return response.status


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("auth", [Proving(), Bearer("token"), None], ids=["proofs", "bearer", "none"])
async def test_request_that_crossed_the_closing_of_its_connection_is_sent_again(method: str, auth: Any) -> None:
    async with closing_when_reused() as (url, heads), HttpPool() as pool:
        endpoint = Endpoint(pool, url, auth=auth)
        assert [await send(endpoint, method) for _ in range(2)] == [200, 200]
        assert len(heads) == 3
        proofs = [each["dpop"] for each in heads if "dpop" in each]
        # A server takes each proof once.
        assert len(set(proofs)) == (3 if isinstance(auth, Proving) else 0)


async def test_post_that_crossed_the_closing_of_its_connection_is_not_sent_again() -> None:
    async with closing_when_reused() as (url, heads), HttpPool() as pool:
        endpoint = Endpoint(pool, url, auth=Proving())
        assert await send(endpoint, "POST") == 200
        with pytest.raises(CrossedClosing):
            await send(endpoint, "POST")
        assert len(heads) == 2
