"""The fixture of the golden transcripts over HTTP, on a port that the system chooses; it prints its address.

`python -m tests.interop.serve_http` serves every revision at `/mcp`, and the transport of 2024-11-05 at `/sse`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.golden.fixture import make_server

from toolwire import Context
from toolwire.protocol import types as t


class Waits:
    """A middleware that holds every other request up while the tool `wait` runs.

    Only a cancellation ends that tool, so a client whose cancellation does not arrive is never answered again.
    """

    def __init__(self) -> None:
        self._none_runs = asyncio.Event()
        self._none_runs.set()

    async def __call__(self, ctx: Context, call_next: Any) -> Any:
        if isinstance(ctx.params, t.CallToolRequestParams) and ctx.params.name == "wait":
            self._none_runs.clear()
            try:
                return await call_next(ctx)
            finally:
                self._none_runs.set()
        await self._none_runs.wait()
        return await call_next(ctx)


async def interrupt(ctx: Context, call_next: Any) -> Any:
    """A middleware that closes the stream of the tool `cities`, so that the client has to come back for the answer.

    Only clients of 2025-11-25 know how to; the others keep their stream.
    """
    if isinstance(ctx.params, t.CallToolRequestParams) and ctx.params.name == "cities":
        await ctx.close_stream(retry_ms=1)
    return await call_next(ctx)


def announce(address: str) -> None:
    print(address, flush=True)


if __name__ == "__main__":
    server = make_server()
    server.use(Waits())
    server.use(interrupt)
    server.run("http", port=0, sse=True, on_ready=announce)
