"""The tools that the tests of tasks call, on a new server each time."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from tests.patience import SILENCE, patience

from toolwire import Context, Limits, ProtocolError, Server, ToolError


class Sign(asyncio.Event):
    """An event that a test waits for. It fails the test when it does not come."""

    async def wait(self) -> Literal[True]:
        async with patience("a sign of a handler"):
            return await super().wait()


class Held:
    """A server whose tools wait until the test lets them go on."""

    def __init__(self, **options: Any) -> None:
        limits = options.pop("limits", None) or Limits(task_window=0.0)
        self.server = Server("tasks", limits=limits, **options)
        self.go = asyncio.Event()
        self.go_on = asyncio.Event()
        self.started = Sign()
        self.seen: list[Any] = []
        self.stopped = Sign()
        self._loop = asyncio.get_running_loop()
        self._register()

    def _register(self) -> None:
        server = self.server

        @server.tool
        async def plain(name: str = "you") -> str:
            return f"Hello, {name}!"

        @server.tool(task="optional")
        async def hold(ctx: Context, label: str = "x") -> str:
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.seen.append(("cancelled", ctx.is_task))
                self.stopped.set()
                raise
            self.seen.append(("done", ctx.is_task))
            return f"held {label}"

        @server.tool(task="required")
        async def only() -> str:
            await self.go.wait()
            return "only as a task"

        @server.tool(task="optional")
        async def broken() -> str:
            await asyncio.sleep(0)
            raise ToolError("it broke")

        @server.tool(task="optional")
        async def refused() -> str:
            await asyncio.sleep(0)
            raise ProtocolError(-32099, "not like this", {"why": "because"})

        @server.tool(task="optional")
        async def crashing() -> str:
            await asyncio.sleep(0)
            raise ValueError("a secret detail")

        @server.tool(task="optional")
        async def reporting(ctx: Context) -> str:
            await ctx.progress(1, 4, "a quarter")
            await ctx.info("for the log")
            await self.go.wait()
            await ctx.progress(4, 4, "all of it")
            return "reported"

        @server.tool(task="optional")
        def computing(ctx: Context) -> str:
            self.seen.append(ctx.cancelled)
            ctx.progress(1, 2)
            # A handler that never sees its cancellation ends, too: its thread would hold up the end of the test.
            end = time.monotonic() + SILENCE / 2
            while not ctx.cancelled and time.monotonic() < end:
                sum(range(1000))
            self.seen.append(ctx.cancelled)
            self._loop.call_soon_threadsafe(self.stopped.set)
            return "too late"

        @server.tool(task="optional")
        async def stubborn() -> str:
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.set()
            return "too late"

        @server.tool(task="optional")
        async def staged(ctx: Context) -> str:
            await self.go.wait()
            name = await ctx.elicit("name", str, key="name")
            await self.go_on.wait()
            return f"Hello, {name.data}!"

        @server.tool(task="optional")
        async def asking(ctx: Context) -> str:
            first, second = await asyncio.gather(
                ctx.elicit("First?", str, key="first"), ctx.elicit("Second?", str, key="second")
            )
            return f"{first.data} and {second.data}"

        @server.tool(task="optional")
        def asking_in_thread(ctx: Context) -> str:
            return f"Hello, {ctx.elicit('Name?', str).data}!"

        @server.tool(task="optional", detaches=True, replay=False)
        async def detaching(ctx: Context, ask: bool = False) -> str:
            await ctx.detach()
            if ask:
                await ctx.elicit("Really?", bool)
            return f"detached: {ctx.is_task}"

        @server.tool(task="optional", detaches=True)
        async def rounds_first(ctx: Context) -> str:
            name = await ctx.elicit("Name?", str, key="name")
            await ctx.detach()
            color = await ctx.elicit("Colour?", str, key="colour")
            return f"{name.data} likes {color.data}; {ctx.is_task}"

        @server.tool(task="optional")
        async def large(size: int) -> str:
            await asyncio.sleep(0)
            return "x" * size
