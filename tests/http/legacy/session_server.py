"""A server with a tool for each thing that happens in a legacy session."""

from __future__ import annotations

import asyncio
from typing import Any

from toolwire import Context, Server
from toolwire.http.asgi import HttpApp

SESSION_REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25")


SECRET = "a secret of at least sixteen bytes"


ASKING = {"elicitation": {}, "sampling": {}, "roots": {}}


class Gate:
    """Where handlers report that they got somewhere, and wait to be let on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.finished = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def passes(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def make_server(gate: Gate | None = None, **options: Any) -> Server:
    server = Server("almanac", secret=SECRET, **options)
    gate = gate or Gate()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.info("first")
        await ctx.progress(1, total=2)
        return "reported"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        gate.finished.set()
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def hold(ctx: Context) -> str:
        """Says something, then waits."""
        await ctx.info("holding")
        await gate.passes()
        await ctx.info("going on")
        gate.finished.set()
        return "held"

    @server.tool
    async def silent() -> str:
        """Waits without a word."""
        await gate.passes()
        gate.finished.set()
        return "silence"

    @server.tool
    async def poll(ctx: Context) -> str:
        await ctx.close_stream(retry_ms=70)
        await gate.passes()
        return "polled"

    @server.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        return {
            "client": None if ctx.client is None else ctx.client.name,
            "capabilities": dict(ctx.client_capabilities),
            "session": ctx.session_id,
            "revision": ctx.revision,
            "principal": ctx.principal,
        }

    @server.tool
    async def large(size: int, ctx: Context) -> str:
        await gate.passes()
        return "x" * size

    @server.resource("note://today")
    async def today() -> str:
        return "sunny"

    @server.prompt
    async def forecast() -> str:
        return "What will it be like?"

    return server


def text_of(response: dict[str, Any]) -> str:
    text: str = response["result"]["content"][0]["text"]
    return text


def nothing_is_left(app: HttpApp) -> bool:
    assert app.sessions is not None
    return len(app.sessions.calls) == 0 and len(app.sessions.streams) == 0
