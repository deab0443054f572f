"""A small HTTP server on a port of its own, for what has to go over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Respond = Callable[[Any], Awaitable[tuple[int, dict[str, str], bytes]]]


@asynccontextmanager
async def served(respond: Respond) -> AsyncIterator[str]:
    """The address of a server that answers with what `respond` returns: status, headers and body."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            method, target, _ = first.split(" ")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            path, _, query = target.partition("?")
            request = {"method": method, "path": path, "query": query, "headers": headers, "body": body}
            status, given, content = await respond(request)
            fields = {"content-length": str(len(content)), "connection": "close", **given}
            shown = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"HTTP/1.1 {status} X\r\n{shown}\r\n".encode() + content)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()
