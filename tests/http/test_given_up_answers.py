"""Calls whose clients have gone leave nothing in memory that only the garbage collector would free."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.http.modernclient import ModernClient
from tests.http.serving_here import serving
from tests.http_process import Connection, connected, post
from tests.patience import patience
from tests.wireclient import MODERN, modern_meta

from toolwire import Context, Server, ToolError
from toolwire.http import app_runtime
from toolwire.http.exchange import ExchangeOutlet

LARGE = 8 * 1024 * 1024


class Work:
    """A value of a handler, which is in memory for as long as its frame is."""


class Made:
    """A server whose handlers leave weak references to their values, and its exchanges."""

    def __init__(self) -> None:
        self.left: list[weakref.ref[Any]] = []
        self.reached = asyncio.Event()
        self.server = server = Server("given up")

        @server.tool
        async def waits() -> str:
            work = self._note(Work())
            await asyncio.Event().wait()
            return str(work)

        @server.tool
        async def reports(ctx: Context) -> str:
            work = self._note(Work())
            await ctx.progress(1, 2)
            await asyncio.Event().wait()
            return str(work)

        @server.tool
        async def large(ctx: Context, later: bool = False, report: bool = False) -> str:
            if report:
                await ctx.progress(1, 2)
            if later:
                await asyncio.sleep(0)
            self._note(Work())
            return "x" * LARGE

        @server.tool
        async def stubborn() -> str:
            work = self._note(Work())
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            return "x" * LARGE + str(work)

        @server.tool
        async def fails(kind: str) -> str:
            work = self._note(Work())
            await asyncio.sleep(0)
            raise ToolError("no") if kind == "expected" else RuntimeError(str(work))

        @server.resource("file:///gone")
        async def gone() -> str:
            work = self._note(Work())
            await asyncio.sleep(0)
            raise ToolError(str(work))

    def _note(self, work: Work) -> Work:
        self.left.append(weakref.ref(work))
        self.reached.set()
        return work

    def alive(self) -> list[Any]:
        return [each() for each in self.left if each() is not None]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    made = Made()

    class NotedOutlet(ExchangeOutlet):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.left.append(weakref.ref(self))

    monkeypatch.setattr(app_runtime, "ExchangeOutlet", NotedOutlet)
    return made


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


META = modern_meta(progress_token="p")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("waits", {}),
    ("reports", {}),
    ("stubborn", {}),
    ("large", {}),
    ("large", {"later": True}),
    ("large", {"report": True}),
]
calls = pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=lambda value: json.dumps(value))


@asynccontextmanager
async def sent(made: Made, tool: str, arguments: dict[str, Any]) -> AsyncIterator[Connection]:
    """Send a call, and read nothing of its answer."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    async with serving(made.server) as port, connected(port) as connection:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        connection.send(post(body, headers))
        async with patience("the handler"):
            await made.reached.wait()
        yield connection


async def freed(made: Made) -> None:
    async with patience("the end of the call", 5.0):
        while made.alive():
            await asyncio.sleep(0)


@calls
@pytest.mark.usefixtures("collector_off")
async def test_a_call_whose_connection_breaks_is_freed_at_once(
    made: Made, tool: str, arguments: dict[str, Any]
) -> None:
    async with sent(made, tool, arguments) as connection:
        connection.writer.transport.abort()
        await freed(made)


@calls
@pytest.mark.usefixtures("collector_off")
async def test_a_call_whose_client_leaves_is_freed_at_once_on_any_asgi_server(
    made: Made, tool: str, arguments: dict[str, Any]
) -> None:
    app = made.server.http_app()
    client = ModernClient(app)
    call = client.start_call(tool, arguments, meta=META)
    call.stop_reading()
    async with patience("the handler"):
        await made.reached.wait()
    call.vanish()
    async with patience("the end of the call"):
        await asyncio.wait([call.task])
    client, call = None, None  # type: ignore[assignment]
    await freed(made)
    await app.stop()


@pytest.mark.usefixtures("collector_off")
async def test_a_listen_stream_whose_client_leaves_is_freed_at_once(made: Made) -> None:
    app = made.server.http_app()
    client = ModernClient(app)
    stream = await client.listen(toolsListChanged=True)
    await stream.disconnect()
    client, stream = None, None  # type: ignore[assignment]
    await freed(made)
    await app.stop()


@pytest.mark.parametrize("kind", ["expected", "unexpected"])
@pytest.mark.usefixtures("collector_off")
async def test_a_call_that_fails_is_freed_at_once(made: Made, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="toolwire.server")  # A record has the exception, and that has the frames.
    app = made.server.http_app()
    client = ModernClient(app)
    await client.call("fails", {"kind": kind})
    await client.close()
    client = None  # type: ignore[assignment]
    await freed(made)
    await app.stop()


@pytest.mark.usefixtures("collector_off")
async def test_a_read_that_fails_is_freed_at_once(made: Made) -> None:
    app = made.server.http_app()
    client = ModernClient(app)
    await client.request("resources/read", {"uri": "file:///gone"})
    await client.close()
    client = None  # type: ignore[assignment]
    await freed(made)
    await app.stop()
