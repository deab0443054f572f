"""A gateway in front of one server over HTTP, with the names of its tools as they are.

Usage: gateway_server.py toolwire|fastmcp|relay URL [REVISION]

The address is printed when connections are accepted. Toolwire's gateway speaks `REVISION` to the server. `relay` passes
on bytes and reads none of them, which no gateway can beat.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast
from urllib.parse import urlsplit

from serve_http import PATH, ready, serve


def toolwire(back: str, revision: str | None) -> None:
    from toolwire.gateway import Gateway

    gateway = Gateway("gateway")
    gateway.add("back", back, prefix="", revision=revision)
    gateway.run("http", port=0, path=PATH, on_ready=ready)


def fastmcp(back: str) -> None:
    from fastmcp.server import create_proxy

    serve(create_proxy(back).http_app(path=PATH, json_response=True))


class Way(asyncio.Protocol):
    """One direction of a connection; `other` is the opposite one."""

    def __init__(self, back: tuple[str, int] | None = None) -> None:
        self.back = back
        self.other: Way | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # That of uvloop is no subclass of it.
        if self.back is not None:
            self.connecting = asyncio.get_running_loop().create_task(self.connect(*self.back))

    async def connect(self, host: str, port: int) -> None:
        _, other = await asyncio.get_running_loop().create_connection(Way, host, port)
        self.other, other.other = other, self
        other.transport.writelines(self.early)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


def relay(back: str) -> None:
    import uvloop

    where = urlsplit(back)
    address = (str(where.hostname), int(where.port or 80))

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Way(address), "127.0.0.1", 0, backlog=2048)
        ready(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}")
        await server.serve_forever()

    uvloop.run(main())


def main() -> None:
    contender, back, *rest = sys.argv[1:]
    if contender == "toolwire":
        toolwire(back, rest[0] if rest else None)
    else:
        {"fastmcp": fastmcp, "relay": relay}[contender](back)


if __name__ == "__main__":
    main()
