"""A server on a port, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from toolwire import Limits, Server
from toolwire.http import serving as http_server


def make_server() -> Server:
    server = Server("waiting", limits=Limits(drain=0.2))
    release = asyncio.Event()
    started = asyncio.Event()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait() -> str:
        started.set()
        await release.wait()
        return "done"

    server.test_release, server.test_started = release, started  # type: ignore[attr-defined]
    return server


def add_endless(server: Server) -> asyncio.Event:
    """A tool that never returns; gives what is set when it is cancelled."""
    cancelled = asyncio.Event()

    @server.tool
    async def endless() -> None:
        server.test_started.set()  # type: ignore[attr-defined]
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    return cancelled


@asynccontextmanager
async def serving(server: Server, **options: Any) -> AsyncIterator[int]:
    """Serve in this loop; gives the port."""
    sockets = http_server.listen("127.0.0.1", 0, public=False)
    running = http_server.HttpServer(server.http_app(**options), sockets, drain=server.limits.drain)
    ready = asyncio.Event()
    task = asyncio.create_task(running.serve(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        running.stop()
        await task
