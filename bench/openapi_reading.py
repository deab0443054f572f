"""From the file of an API description to a list of its tools that a client reads: seconds and memory, as JSON.

Usage: openapi_reading.py toolwire|fastmcp FILE

The seconds are those of the processor. The memory is how much this process grew. The list is asked for in this process,
from the bytes of HTTP requests to those of their answers, without a socket, page by page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from asgi_requests import answered
from spawned import resident_kib

sys.path.insert(0, str(Path(__file__).parent / "servers"))

from stub_api import description


# The list is counted and not kept: its values would be memory of a client.
class Tool(Struct):
    name: str


class Page(Struct, rename="camel"):
    tools: list[Tool]
    next_cursor: str | None = None


class Answer(Struct):
    result: Page


_decode = msgspec.json.Decoder(Answer).decode
Serving = Callable[[Any], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def toolwire(source: Path | dict[str, Any]) -> AsyncIterator[Any]:
    from toolwire import Server
    from toolwire.openapi import ALL, openapi

    server = Server("bench")
    server.include(openapi(source, keep=ALL))
    app: Any = server.http_app()
    yield app
    await app.stop()


@asynccontextmanager
async def fastmcp(source: Path | dict[str, Any]) -> AsyncIterator[Any]:
    from fastmcp import FastMCP

    read = source if isinstance(source, dict) else json.loads(source.read_bytes())
    app = FastMCP.from_openapi(read).http_app(path="/mcp", json_response=True)
    async with app.router.lifespan_context(app):
        yield app


async def listed(app: Any) -> int:
    """Read the whole list; return how many tools it has."""
    count, cursor = 0, None
    while True:
        page = _decode(await answered(app, "tools/list", cursor)).result
        count += len(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            return count


async def main(contender: str, file: Path) -> dict[str, float]:
    logging.disable()
    serving: Serving = {"toolwire": toolwire, "fastmcp": fastmcp}[contender]
    async with serving(description("http://127.0.0.1:8000")) as app:
        await listed(app)  # Imports are not what is measured.
    before, started = resident_kib(), time.process_time()
    async with serving(file) as app:
        tools = await listed(app)
        seconds, grown = time.process_time() - started, resident_kib() - before
    return {"seconds": seconds, "memory": grown / 1024, "tools": tools}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2])))))
