"""Questions that are open while Redis is unreachable, with two replicas: each call ends, and is carried out once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.redis_server import RedisServer, running

from toolwire import Client, Context, Server
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ToolwireError
from toolwire.stores import StoreFailed
from toolwire.stores.redis import RedisStores

SECRET = "a secret of at least sixteen bytes"
CALLS = 6
REVISIONS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


class Proxy:
    """A way to Redis whose connections can be cut, with the answers to commands that were carried out."""

    def __init__(self, redis: RedisServer, path: Path) -> None:
        self._redis = redis
        self._path = path
        self._writers: set[asyncio.StreamWriter] = set()
        self._copying: set[asyncio.Future[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = f"unix://{path}"
        self._is_mute = False
        self.cuts = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._close_all()
        await asyncio.gather(*self._copying)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._redis.socket)
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            copying = asyncio.ensure_future(self._copy(source, sink))
            self._copying.add(copying)
            copying.add_done_callback(self._copying.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if self._is_mute:
                    continue
                writer.write(data)
                if b"toolwire:used:" in data and self.cuts:
                    # Redis gets the command, and its answer is lost.
                    self.cuts -= 1
                    self._is_mute = True
                    await writer.drain()
                    await asyncio.to_thread(self._redis.command, "PING")
                    self._close_all()
                    self._is_mute = False
        except OSError:
            pass
        finally:
            writer.close()
            self._writers.discard(writer)

    def _close_all(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()


class Replicas:
    """Two processes of one server, with one Redis; requests go to them in turn."""

    def __init__(self, url: str, timeout: float) -> None:
        self.ran: list[str] = []
        self.failed = asyncio.Event()
        """Set when an operation of a store failed."""
        self.stores = [RedisStores(url, timeout=timeout) for _ in range(2)]
        for stores in self.stores:
            for part, name in ((stores.kv, "get"), (stores.kv, "put"), (stores.log, "append")):
                setattr(part, name, self._watched(getattr(part, name)))
        self.apps = [self._server(stores).http_app() for stores in self.stores]
        self._turns = cycle(self.apps)

    def _watched(self, operation: Any) -> Any:
        async def watched(*arguments: Any, **options: Any) -> Any:
            try:
                return await operation(*arguments, **options)
            except StoreFailed:
                self.failed.set()
                raise

        return watched

    def _server(self, stores: RedisStores) -> Server:
        server = Server("asking", secret=SECRET, stores=stores)

        @server.tool
        async def book(name: str, ctx: Context) -> str:
            answer = await ctx.elicit("Sure?")
            self.ran.append(name)
            return f"{name}: {answer.action}"

        return server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await next(self._turns)(scope, receive, send)

    async def close(self) -> None:
        for app in self.apps:
            await app.stop()
        for stores in self.stores:
            stores.close()


@asynccontextmanager
async def connected(replicas: Replicas, revision: str, **options: Any) -> AsyncIterator[Client]:
    target = HttpTarget("http://localhost/mcp", pool=AsgiPool(replicas))
    try:
        async with Client(target, revision=revision, **options) as client:
            yield client
    finally:
        await replicas.close()


async def outcome(call: Any) -> str:
    try:
        return str((await call).text)
    except ToolwireError as error:
        return f"error: {error}"


@REVISIONS
async def test_answers_arrive_after_redis_was_unreachable(redis: RedisServer, revision: str) -> None:
    asked = asyncio.Barrier(CALLS + 1)
    away = asyncio.Event()

    async def answer(message: str, params: Any) -> dict[str, Any]:
        await asked.wait()
        await away.wait()
        return {"value": True}

    replicas = Replicas(redis.url, timeout=1.0)
    async with connected(replicas, revision, elicit=answer, timeout=60) as client:
        for _ in range(2):
            away.clear()
            names = [f"call {number}" for number in range(CALLS)]
            calls = [asyncio.create_task(outcome(client.call_tool("book", {"name": name}))) for name in names]
            await asked.wait()
            redis.pause()
            away.set()
            await replicas.failed.wait()
            redis.resume()
            replicas.failed.clear()
            assert await asyncio.gather(*calls) == [f"{name}: accept" for name in names]
            assert sorted(replicas.ran) == names
            replicas.ran.clear()


async def test_lost_answer_of_redis_does_not_use_up_a_state(redis: RedisServer) -> None:
    async with Proxy(redis, Path(redis.socket).with_name("cut.sock")) as proxy:
        replicas = Replicas(proxy.url, timeout=5.0)
        async with connected(replicas, "2026-07-28", elicit=lambda *_: {"value": True}, timeout=60) as client:
            for number in range(3):
                proxy.cuts = 1
                assert (await client.call_tool("book", {"name": str(number)})).text == f"{number}: accept"
                assert not proxy.cuts
    assert replicas.ran == ["0", "1", "2"]
