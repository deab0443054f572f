"""Servers behind a gateway, and every way to put them there."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.patience import patience

from toolwire import Context, Server
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Link, Target
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.revisions import MODERN
from toolwire.wire.channel import MemoryChannel, memory_pair
from toolwire.wire.tapped_channel import Direction

#: The two eras, and a revision before the last of the old one.
REVISIONS = (MODERN, "2025-11-25", "2025-06-18")
#: The ways in which a gateway reaches a server: in this process, by messages or by HTTP.
OVER = ("memory", "http")


class Recorded:
    """The messages between a gateway and a server behind it."""

    def __init__(self) -> None:
        self.messages: list[tuple[Direction, dict[str, Any]]] = []

    def record(self, direction: Direction, data: bytes) -> None:
        self.messages.append((direction, msgspec.json.decode(data)))

    def sent(self, method: str | None = None) -> list[dict[str, Any]]:
        """Return what the gateway sent: all messages, or those of one method."""
        sent = [message for direction, message in self.messages if direction == "→"]
        return sent if method is None else [each for each in sent if each.get("method") == method]


class _Tapped(ServerTarget):
    """A server in this process whose messages are recorded."""

    def __init__(self, server: Server, recorded: Recorded) -> None:
        super().__init__(server)
        self._recorded = recorded

    async def open(self) -> Link:
        link = await super().open()
        link.tap(self._recorded.record)
        return link


@asynccontextmanager
async def behind(server: Server, over: str, recorded: Recorded | None = None) -> AsyncIterator[Target]:
    """Yield a target that leads to a server."""
    recorded = recorded or Recorded()
    if over == "memory":
        yield _Tapped(server, recorded)
        return
    app = server.http_app()
    pool = AsgiPool(app)
    try:
        yield HttpTarget("http://localhost/mcp", pool=pool, tap=recorded.record)
    finally:
        app.drain()
        await pool.close()
        await app.stop()


@asynccontextmanager
async def gateway_before(
    server: Server, over: str, revision: str | None, recorded: Recorded | None = None, **options: Any
) -> AsyncIterator[Gateway]:
    """Yield a gateway with one server behind it, named `b`."""
    async with behind(server, over, recorded) as target:
        gateway = Gateway("front", **options)
        gateway.add("b", target, revision=revision)
        yield gateway


def everything() -> Server:
    """Make a server with one of each."""
    server = Server("back", instructions="Ask the back.")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def words(count: int) -> list[str]:
        return ["word"] * count

    @server.tool
    async def steps(ctx: Context) -> str:
        await ctx.progress(1, total=2, message="half")
        await ctx.progress(2, total=2)
        return "done"

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.debug("too quiet")
        await ctx.warning("loud")
        return "said"

    @server.tool
    async def fail() -> str:
        raise ValueError("a secret of the server")

    @server.tool
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Really?", bool)
        return f"{answer.accepted} {answer.data}"

    @server.resource("note://today")
    def today() -> str:
        return "sunny"

    @server.resource("note://{day}/{hour}")
    def at(day: str, hour: int) -> str:
        return f"{day} {hour}"

    @server.prompt
    def brief(city: str) -> str:
        return f"Brief me on {city}."

    @server.completion(prompt="brief", argument="city")
    def cities(partial: str) -> list[str]:
        return [each for each in ("Oslo", "Olten") if each.startswith(partial)]

    return server


async def until(holds: Any) -> None:
    """Let others run until something holds."""
    async with patience("a condition"):
        for turn in itertools.count():
            if holds():
                return
            # What needs more turns waits for a timer, a thread or a process, which needs the processor.
            await asyncio.sleep(0 if turn < 50 else 0.001)


def listens(recorded: Recorded, revision: str) -> bool:
    return bool(recorded.sent("subscriptions/listen" if revision == MODERN else "ping"))


def one(name: str, *tools: str) -> Server:
    server = Server(name)
    for each in tools:
        server.add(tool_named(each, name))
    return server


def tool_named(name: str, says: str) -> Any:
    async def answer() -> str:
        return says

    answer.__name__ = name
    return answer


async def told(changes: Any) -> str:
    change = await anext(aiter(changes))
    return str(change.kind)


class Away(Target):
    """A server that cannot be reached, until it is told to come."""

    restartable = True

    def __init__(self, server: Server | None = None, *, is_there: bool = False) -> None:
        self.label = "a server that is away"
        self.server = server
        self.is_there = is_there
        self.serving: asyncio.Task[None] | None = None
        self._served: list[MemoryChannel] = []

    async def open(self) -> Link:
        if not self.is_there or self.server is None:
            raise Unreachable("nobody is at home")
        ours, theirs = memory_pair()
        self._served.append(theirs)
        self.serving = asyncio.ensure_future(self.server.serve(theirs))
        return Link(ours, self.label)

    async def leave(self) -> None:
        """Break all connections, and let no other one begin."""
        self.is_there = False
        while self._served:
            await self._served.pop().close()
