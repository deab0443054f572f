"""Servers that hang, die, refuse and come back, by HTTP and without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toolwire import Server
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import OutcomeUnknown, Unreachable

#: What may be wrong with a server: nobody listens, it accepts and closes, it is silent, it answers with a status.
FAULTS = ("refuses", "closes", "hangs", "500", "503")


class FaultyPool(Pool):
    """HTTP requests to servers by their hosts, each of which may have a fault. `sent` are the requests that arrived."""

    def __init__(self, **servers: Server) -> None:
        self.faults: dict[str, str] = {}
        self.retry_after = ""
        self.answers_500 = b""
        """Part of the calls that all hosts answer with 500; empty for none."""
        self.sent: list[tuple[str, bytes]] = []
        self.headers: dict[str, Mapping[str, str]] = {}
        """The headers of the last request to a host."""
        self.once: set[str] = set()
        """The hosts whose fault ends with the first call that it meets."""
        self._apps = {host: server.http_app(allowed_hosts=[host]) for host, server in servers.items()}
        self._pools = {host: AsgiPool(app) for host, app in self._apps.items()}
        self._refusing = AsgiPool(self._refuse)
        self._healed = asyncio.Event()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        host = url.split("/")[2]
        fault = self.faults.get(host)
        if fault == "refuses":
            raise Unreachable("nobody listens there")
        self.sent.append((host, body or b""))
        self.headers[host] = headers
        if host in self.once and b'"tools/call"' in (body or b""):
            self.once.discard(host)
            del self.faults[host]
        if fault == "closes":
            raise OutcomeUnknown("the connection was closed")
        if fault == "hangs":
            await self._healed.wait()
            raise OutcomeUnknown("the server was started again")
        if self.answers_500 and b'"tools/call"' in (body or b"") and self.answers_500 in (body or b""):
            fault = "500"
        if fault is not None:
            return await self._refusing.send(method, f"{url}?{fault}", headers, body)
        return await self._pools[host].send(method, url, headers, body)

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"retry-after", self.retry_after.encode())] if self.retry_after else []
        await send({"type": "http.response.start", "status": int(scope["query_string"]), "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    def heal(self) -> None:
        """Take all faults away. Requests that hang are lost."""
        self.faults.clear()
        self._healed.set()
        self._healed = asyncio.Event()

    def calls(self, host: str) -> int:
        """Return how many calls of tools arrived at a host."""
        return sum(b'"tools/call"' in body for each, body in self.sent if each == host)

    async def close(self) -> None:
        for app in self._apps.values():
            app.drain()
        for pool in (*self._pools.values(), self._refusing):
            await pool.close()
        for app in self._apps.values():
            await app.stop()


@asynccontextmanager
async def faulty(**servers: Server) -> AsyncIterator[FaultyPool]:
    pool = FaultyPool(**servers)
    try:
        yield pool
    finally:
        pool.heal()
        await pool.close()
