"""A server with a tool for each thing that may happen in an exchange."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from toolwire import Context, Server
from toolwire.server.header_arguments import Header


class Stage:
    """Where handlers report what becomes of them, and wait to be let on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.starts = 0
        self.stops = 0

    async def passes(self) -> None:
        self.reached.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def make_server(stage: Stage | None = None, **options: Any) -> Server:
    server = Server("almanac", secret="a secret of at least sixteen bytes", **options)
    stage = stage or Stage()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def report(ctx: Context, text: str = "reported") -> str:
        await ctx.info("first")
        await ctx.progress(1, total=2)
        return text

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.info("about to ask")
        answer = await ctx.elicit("Your name?", str)
        return f"{answer.action}: {answer.data}"

    @server.tool
    async def hold(ctx: Context) -> str:
        """Says something, then waits."""
        await ctx.info("holding")
        await stage.passes()
        await ctx.info("going on")
        return "held"

    @server.tool
    async def silent() -> str:
        """Waits without a word."""
        await stage.passes()
        return "silence"

    @server.tool
    async def fail() -> str:
        raise ValueError("broken")

    @server.tool
    async def route(region: Annotated[str, Header("Region")], count: Annotated[int, Header("Count")] = 0) -> str:
        return f"{region} {count}"

    @server.tool
    async def whoami(ctx: Context, after: int = 0) -> str:
        for _ in range(after):
            await asyncio.sleep(0)
        return f"{ctx.principal} {ctx.session_id} {ctx.revision}"

    @server.resource("memo://ü")
    async def memo() -> str:
        return "dear"

    return server
