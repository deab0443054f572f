"""A session that a script serves, and its far end in plain JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.patience import patience
from tests.protocol.pair import Offer, modern

from toolwire.protocol import types as t
from toolwire.protocol.classifier import Notice
from toolwire.protocol.lifecycle import Incoming, ServerLifecycle
from toolwire.protocol.peer import Peer
from toolwire.wire.channel import Channel, MemoryChannel, memory_pair
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session

Handle = Callable[[Incoming, Outlet], Awaitable[Any]]


class Script:
    """A handler whose calls wait until the test lets them go, by the name in their params."""

    def __init__(self, handle: Handle | None = None) -> None:
        self._handle = handle
        self.started: list[str] = []
        self.ended: list[str] = []
        self.gates: dict[str, asyncio.Future[Any]] = {}
        self.requests: list[Incoming] = []
        self.outlets: list[Outlet] = []
        self.notices: list[Notice] = []
        self.closed = 0
        self._changed = asyncio.Event()

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        self.requests.append(request)
        self.outlets.append(outlet)
        if self._handle is not None:
            return await self._handle(request, outlet)
        name = request.params.name
        self.started.append(name)
        self._changed.set()
        try:
            return await self.gate(name)
        finally:
            self.ended.append(name)
            self._changed.set()

    def gate(self, name: str) -> asyncio.Future[Any]:
        return self.gates.setdefault(name, asyncio.get_running_loop().create_future())

    def let(self, *names: str) -> None:
        for name in names:
            self.gate(name).set_result({"name": name})

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            async with patience("a change of the session"):
                await self._changed.wait()

    def notified(self, notice: Notice, session: Session) -> None:
        self.notices.append(notice)
        if notice.method == "notifications/progress":
            session.progressed(notice.params)

    def closing(self, session: Session) -> None:
        self.closed += 1
        self._changed.set()


class Far:
    """The other end, in plain JSON."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.received: list[Any] = []
        self._arrived = asyncio.Event()
        channel.attach(self._take, lambda error: None)

    def _take(self, data: bytes) -> None:
        self.received.append(json.loads(data))
        self._arrived.set()

    def send(self, message: Any) -> None:
        self.channel.write(message if isinstance(message, bytes) else json.dumps(message).encode())

    def call(self, *names: str) -> None:
        """`tools/call` of each name, which is its id too."""
        for name in names:
            self.send({"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": modern(name=name)})

    def cancel(self, name: str) -> None:
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": name}})

    async def until(self, count: int) -> list[Any]:
        while len(self.received) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.received

    @property
    def answered(self) -> list[Any]:
        return [message["id"] for message in self.received if "method" not in message]


class Polled(MemoryChannel):
    """A channel that can only be read."""

    def attach(self, feed: Any, ended: Any) -> bool:
        return False


def polled_pair() -> tuple[MemoryChannel, MemoryChannel]:
    left, right = MemoryChannel(), Polled()
    left._peer, right._peer = right, left
    return left, right


@asynccontextmanager
async def serving(
    script: Script, pair: Callable[[], tuple[MemoryChannel, MemoryChannel]] = memory_pair, **options: Any
) -> AsyncIterator[tuple[Far, Session]]:
    ours, theirs = pair()
    session = Session(theirs, Peer(ServerLifecycle(Offer())), script, **options)
    running = asyncio.create_task(session.run())
    try:
        yield Far(ours), session
    finally:
        await session.close()
        await running


async def turns(count: int = 5) -> None:
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


def progress(value: float, token: str | int = "t") -> t.ProgressNotificationParams:
    return t.ProgressNotificationParams(progress_token=token, progress=value)
