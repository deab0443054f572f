"""Every way to reach a server: in memory, over stdio, over HTTP with sessions, over HTTP without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.httpwire import HttpLine, connect_http
from tests.wireclient import MODERN, WireClient, connect

from toolwire import Server

WAYS = ("memory", "stdio", "http", "stateless")
#: The revisions whose capabilities carry extensions.
CARRY = ("2025-11-25", MODERN)


@asynccontextmanager
async def reach(
    server: Server, way: str, revision: str, capabilities: dict[str, Any] | None = None, *, principal: Any = None
) -> AsyncIterator[WireClient]:
    """A client of the server."""
    if way == "http":
        async with connect_http(server.http_app(), revision, capabilities, principal=principal) as client:
            yield client
    elif way == "stateless":
        line = HttpLine(server.http_app(stateless=True), principal=principal)
        client = WireClient(line)
        try:
            await client.open(revision, capabilities)
            yield client
        finally:
            await line.close()
    else:
        async with connect(server, revision, capabilities, over=way, principal=principal) as client:  # type: ignore[arg-type]
            yield client


async def told_by(client: WireClient) -> dict[str, Any]:
    """The result in which the server describes itself."""
    return client.initialized if client.revision != MODERN else await client.result("server/discover")


async def settled(client: WireClient) -> None:
    """Wait until the server has taken everything that was sent."""
    await client.result("server/discover" if client.revision == MODERN else "ping")
    if isinstance(client.channel, HttpLine):
        for answer in client.channel.answers:
            if answer.status == 202 or answer.status is None:
                await answer.finished()
