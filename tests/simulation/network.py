"""The network between clients and replicas: HTTP over connections that keep their order, and break.

A connection loses no single message, as TCP does not: it delivers everything in order, late perhaps, or it breaks, and
each side learns of that at a time of its own. A load balancer sends each request to a replica that accepts connections.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from tests.simulation.world import Process, World

from toolwire.protocol.framing import Event, SSEDecoder

if TYPE_CHECKING:
    from tests.simulation.fleet import Replica

#: How many bytes a sender may be ahead of the reader.
WINDOW: Final = 64 * 1024
Fate = Literal["delayed", "lost", "repeated"]


class Broken(Exception):
    """The connection broke before the response ended."""


class Network:
    """All connections. Faults set what happens to the next messages."""

    def __init__(self, world: World, replicas: list[Replica]) -> None:
        self.world = world
        self.replicas = replicas
        self.open: dict[Exchange, None] = {}
        self.fates: deque[Fate] = deque()
        """What happens to the next messages, one entry each."""
        self._random = random.Random(f"{world.seed}/network")
        self._count = 0

    def request(
        self, client: Process, method: str, headers: Mapping[str, str], body: bytes, principal: Any, repeatable: bool
    ) -> Exchange:
        """Send a request to the load balancer."""
        exchange = self._exchange(client, method, headers, body, principal)
        exchange.to_server(self._route, exchange, may_repeat=repeatable)
        return exchange

    def _exchange(
        self, client: Process, method: str, headers: Mapping[str, str], body: bytes, principal: Any
    ) -> Exchange:
        self._count += 1
        exchange = Exchange(self, self._count, client, method, headers, body, principal)
        self.open[exchange] = None
        return exchange

    def _route(self, exchange: Exchange) -> None:
        """Choose a replica, as a load balancer does that tries another one when a connection is refused."""
        accepting = [each for each in self.replicas if each.accepts]
        if exchange.broken:
            return
        if not accepting:
            exchange.refuse()
            return
        replica = self._random.choice(accepting)
        exchange.connect(replica)
        if exchange.is_repeated and len(accepting) > 1:
            again = self._exchange(
                exchange.client, exchange.method, exchange.headers, exchange.body, exchange.principal
            )
            again.nobody_reads = True
            again.connect(self._random.choice([each for each in accepting if each is not replica]))

    def fate(self, *, may_repeat: bool = False) -> Fate | None:
        """Return what happens to a message that is sent now; only some requests may arrive twice."""
        if self.fates and (self.fates[0] != "repeated" or may_repeat):
            return self.fates.popleft()
        return None

    def latency(self) -> float:
        return self._random.uniform(0.0002, 0.008)

    def lateness(self) -> float:
        return self._random.choice((0.05, 0.5, 3.0, 12.0)) * self._random.uniform(0.5, 1.5)

    def cut(self, replica: Replica) -> None:
        """Break every connection of a process that is gone."""
        for exchange in [each for each in self.open if each.replica is replica]:
            exchange.cut()


class Exchange:
    """One HTTP request and its response, with both ends."""

    def __init__(
        self,
        network: Network,
        number: int,
        client: Process,
        method: str,
        headers: Mapping[str, str],
        body: bytes,
        principal: Any,
    ) -> None:
        self.network = network
        self.number = number
        self.client = client
        self.method = method
        self.headers = headers
        self.body = body
        self.principal = principal
        self.replica: Replica | None = None
        self.is_repeated = False
        self.nobody_reads = False
        self.broken = False
        # Messages in one direction keep their order.
        self._arrives_there = self._arrives_here = 0.0
        # The end of the client.
        self.status = 0
        self.answered: dict[str, str] = {}
        self._inbox: deque[bytes | None] = deque()
        self._client_told = False
        self._ended = False
        self._news: asyncio.Event | None = None
        self.slow_until = 0.0
        # The end of the replica.
        self._unread = 0
        self._is_body_read = False
        self._gone: asyncio.Event | None = None
        self._room: asyncio.Event | None = None

    # --- on the way ---

    def to_server(self, callback: Any, *args: Any, may_repeat: bool = False) -> None:
        world = self.network.world
        match self.network.fate(may_repeat=may_repeat):
            case "lost":
                self.cut(later=True)
                return
            case "delayed":
                self._arrives_there = max(self._arrives_there, world.now + self.network.lateness())
            case "repeated":
                self.is_repeated = True
        self._arrives_there = max(self._arrives_there, world.now + self.network.latency())
        world.at(self._arrives_there, lambda: self._at_server(callback, args))

    def _at_server(self, callback: Any, args: tuple[Any, ...]) -> None:
        if self.replica is None:
            callback(*args)
        elif not self.broken:
            self.network.world.send(self.network.world.now, self.replica.process, callback, *args)

    def to_client(self, callback: Any, *args: Any) -> None:
        if self.broken:
            return  # The replica does not know it yet. Nothing comes through after what was lost.
        world = self.network.world
        match self.network.fate():
            case "lost":
                self.cut(later=True)
                return
            case "delayed":
                self._arrives_here = max(self._arrives_here, world.now + self.network.lateness())
        self._arrives_here = max(self._arrives_here, world.now + self.network.latency())
        world.send(self._arrives_here, self.client, callback, *args)

    def cut(self, *, later: bool = False) -> None:
        """Break the connection. Each side learns of it, perhaps later."""
        if self.broken:
            return
        self.broken = True
        self.network.open.pop(self, None)
        network, world = self.network, self.network.world
        self._arrives_here = max(self._arrives_here, world.now + (network.lateness() if later else network.latency()))
        world.send(self._arrives_here, self.client, self._client_breaks)
        if self.replica is not None and not self.replica.process.dead:
            world.send(
                world.now + (network.lateness() if later else network.latency()), self.replica.process, self._leave
            )

    def refuse(self) -> None:
        """Nobody serves the request: the load balancer answers by itself."""
        self.network.open.pop(self, None)
        self.to_client(self._begin, 502, {"content-type": "text/plain"})
        self.to_client(self._receive, None)

    # --- the end of the client ---

    def _changed(self) -> None:
        if self._news is not None:
            self._news.set()

    def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.answered = status, headers
        self._changed()

    def _receive(self, data: bytes | None) -> None:
        self._inbox.append(data)
        self._changed()

    def _client_breaks(self) -> None:
        self._client_told = True
        self._changed()

    async def _wait(self) -> None:
        self._news = asyncio.Event()
        await self._news.wait()

    async def started(self) -> int:
        """Wait for the headers; raise `Broken`."""
        while not self.status:
            if self._client_told:
                raise Broken
            await self._wait()
        return self.status

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the body, slowly where a fault says so; raise `Broken`."""
        while True:
            while not self._inbox:
                if self._client_told:
                    raise Broken
                await self._wait()
            if (slow := self.slow_until - self.network.world.now) > 0:
                await asyncio.sleep(min(slow, 5.0))
            data = self._inbox.popleft()
            if data is None:
                return
            if not self.broken:
                self.to_server(self._read, len(data))
            yield data

    async def whole(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def events(self) -> AsyncIterator[Event]:
        decoder = SSEDecoder()
        async for chunk in self.chunks():
            for item in decoder.feed(chunk):
                if isinstance(item, Event):
                    yield item

    def close(self) -> None:
        """Go away. The replica learns of it when the message arrives."""
        if not self.broken and not self._ended:
            self.network.open.pop(self, None)
            self._client_told = True
            self._changed()
            self.to_server(self._leave)

    # --- the end of the replica ---

    def connect(self, replica: Replica) -> None:
        self.replica = replica
        self._arrives_there = max(self._arrives_there, self.network.world.now + self.network.latency())
        self.network.world.send(self._arrives_there, replica.process, replica.serve, self)

    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": "/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()],
            "server": ("127.0.0.1", 8000),
            "client": ("10.0.0.1", 50000 + self.number % 10000),
            "toolwire.principal": self.principal,
        }

    def opened(self) -> None:
        """Begin to serve, in the process of the replica."""
        self._gone, self._room = asyncio.Event(), asyncio.Event()
        if self.broken or self._client_told:
            self._gone.set()

    async def receive(self) -> dict[str, Any]:
        assert self._gone is not None
        if not self._is_body_read:
            self._is_body_read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        assert self._gone is not None and self._room is not None
        while self._unread > WINDOW and not self._gone.is_set():
            self._room.clear()
            await self._room.wait()
        if self._gone.is_set() or self._ended:
            return  # Nobody reads it, and nobody says so to the application.
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
            if not self.nobody_reads:
                self.to_client(self._begin, message["status"], headers)
            return
        data: bytes = message.get("body", b"")
        if not self.nobody_reads:
            if data:
                self._unread += len(data)
                self.to_client(self._receive, data)
            if not message.get("more_body"):
                self.to_client(self._receive, None)
        if not message.get("more_body"):
            self.finish()

    def finish(self) -> None:
        """The response is complete."""
        assert self._gone is not None
        self._ended = True
        self.network.open.pop(self, None)
        self._gone.set()  # ASGI: what is received after the response is a disconnect.

    def served(self) -> None:
        """The application has returned. A response without an end is a connection that is closed."""
        if not self._ended and not self.broken:
            self.cut()

    def _read(self, count: int) -> None:
        self._unread -= count
        if self._room is not None:
            self._room.set()

    def _leave(self) -> None:
        if self._gone is not None and self._room is not None:
            self._gone.set()
            self._room.set()
