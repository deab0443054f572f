"""`/readyz` tells whether the store takes changes and messages, whatever the store is."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.http.httpclient import HttpClient
from tests.redis_server import running

from toolwire import Server
from toolwire.http import readiness
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.stores.redis import RedisStores


class CountingKV(MemoryKV):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def put(self, key: str, value: bytes, **options: Any) -> bool:
        self.writes += 1
        await self.gate.wait()
        return await super().put(key, value, **options)


class DeafBus(MemoryBus):
    async def publish(self, topic: str, data: bytes) -> None:
        return


@asynccontextmanager
async def served(stores: Stores) -> AsyncIterator[Any]:
    app = Server("s", stores=stores).http_app()
    yield app
    await app.stop()


async def probe(app: Any, path: str = "/readyz") -> int | None:
    answer = await HttpClient(app, path=path).start("GET").finished()
    return answer.status


async def test_many_probes_cost_one_look() -> None:
    kv = CountingKV()
    async with served(Stores(kv, MemoryLog(), MemoryBus())) as app:
        kv.gate.clear()
        probes = [asyncio.ensure_future(probe(app)) for _ in range(20)]
        while not kv.writes:
            await asyncio.sleep(0)
        probes[0].cancel()
        kv.gate.set()
        assert await asyncio.gather(*probes[1:]) == [200] * 19
        assert await probe(app) == 200
        assert kv.writes == 1, "what one has found counts for a second"


async def test_the_result_of_a_look_does_not_count_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "COUNTS_SECONDS", 0.0)
    kv = CountingKV()
    async with served(Stores(kv, MemoryLog(), MemoryBus())) as app:
        assert [await probe(app), await probe(app)] == [200, 200]
        assert kv.writes == 2


async def test_a_store_that_takes_too_long_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readiness, "LOOK_SECONDS", 0.01)
    kv = CountingKV()
    kv.gate.clear()
    async with served(Stores(kv, MemoryLog(), MemoryBus())) as app:
        assert await probe(app) == 503
        assert await probe(app, "/livez") == 200
    assert "this process is not ready: the store took too long to answer" in caplog.text


@pytest.mark.covers("FLT-26")
async def test_slow_store_that_answers_stays_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """All replicas share the store: if slowness alone were not ready, no replica would be left."""
    monkeypatch.setattr(readiness, "COUNTS_SECONDS", 0.0)
    kv = CountingKV()
    async with served(Stores(kv, MemoryLog(), MemoryBus())) as app:
        assert await probe(app) == 200
        monkeypatch.setattr(readiness, "PROBE_SECONDS", 0.01)
        kv.gate.clear()
        assert [await probe(app), await probe(app)] == [200, 200], "what the look before has found"
        assert kv.writes == 2, "one look is under way"
        monkeypatch.setattr(readiness, "PROBE_SECONDS", 15.0)
        kv.gate.set()
        assert await probe(app) == 200


async def test_a_slow_store_is_not_ready_before_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PROBE_SECONDS", 0.01)
    kv = CountingKV()
    kv.gate.clear()
    async with served(Stores(kv, MemoryLog(), MemoryBus())) as app:
        assert await probe(app) == 503
        monkeypatch.setattr(readiness, "PROBE_SECONDS", 15.0)
        kv.gate.set()
        assert await probe(app) == 200


@pytest.mark.covers("FLT-26")
async def test_a_bus_that_carries_nothing_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LOOK_SECONDS", 0.01)
    async with served(Stores(MemoryKV(), MemoryLog(), DeafBus())) as app:
        assert await probe(app) == 503


async def test_a_full_store_is_ready() -> None:
    async with served(Stores(MemoryKV(max_items=0), MemoryLog(), MemoryBus(max_subscribers=10))) as app:
        assert await probe(app) == 200


@pytest.mark.covers("FLT-26")
@pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "min-replicas-to-write", "1"), ("CONFIG", "SET", "min-replicas-to-write", "0")),
        (("ACL", "SETUSER", "default", "-xread"), ("ACL", "SETUSER", "default", "+xread")),
        (("ACL", "SETUSER", "default", "-set"), ("ACL", "SETUSER", "default", "+set")),
    ],
    ids=["it became a replica", "it has too few replicas", "nobody may listen", "nobody may write"],
)
async def test_a_redis_that_takes_no_changes_or_no_listeners_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, begin: tuple[str, ...], end: tuple[str, ...]
) -> None:
    monkeypatch.setattr(readiness, "COUNTS_SECONDS", 0.0)
    with running() as redis:
        stores = RedisStores(redis.url, timeout=0.3)
        async with served(stores) as app:
            # A busy machine may take longer for an answer than the store waits for it.
            while await probe(app) != 200:
                await asyncio.sleep(0.01)
            redis.command(*begin)
            redis.command("CLIENT", "KILL", "TYPE", "normal")
            while await probe(app) != 503:
                await asyncio.sleep(0.01)
            assert await probe(app) == 503
            redis.command(*end)
            while await probe(app) != 200:
                await asyncio.sleep(0.01)
        stores.close()


FULL_DISK = """
import asyncio, resource, sys
from toolwire import Server
from toolwire.http import readiness
from toolwire.stores.sqlite import SqliteStores

readiness.COUNTS_SECONDS = 0.0

async def main():
    stores = SqliteStores(sys.argv[1])
    app = Server("s", stores=stores).http_app()

    async def probe():
        sent = []
        async def send(message): sent.append(message)
        async def receive(): return {"type": "http.request", "body": b"", "more_body": False}
        scope = {"type": "http", "method": "GET", "path": "/readyz", "root_path": "", "headers": [], "scheme": "http",
                 "query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "http_version": "1.1"}
        await app(scope, receive, send)
        return sent[0]["status"]

    print(await probe())
    # No file can be written from now on, as on a disk that is full.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    full = await probe()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    print(full)
    print(await probe())
    await app.stop()
    stores.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="such limits are not there")
def test_a_file_on_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["200", "503", "200"], done.stderr
