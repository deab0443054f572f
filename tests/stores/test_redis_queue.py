"""The queue on Redis, when Redis is full, away, or loses connections; and the keys that its scripts declare."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.redis_server import RedisServer, running

from toolwire.stores import Held, LeaseLost, Queue, Ready, StoreFailed, StoreFull, Task
from toolwire.stores.redis import RedisStores
from toolwire.stores.redis_queue_scripts import QUEUE_SCRIPTS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture
async def stores(redis: RedisServer) -> AsyncIterator[RedisStores]:
    stores = RedisStores(redis.url, timeout=60.0)
    yield stores
    stores.close()


async def renewals(queue: Queue, process: str) -> int:
    while True:
        try:
            return dict(await queue.leases(process)).get(process, 0)
        except StoreFailed:
            await asyncio.sleep(0.01)


async def test_a_full_redis_refuses_new_tasks_and_nothing_else(redis: RedisServer, stores: RedisStores) -> None:
    queue = stores.queue
    await queue.renew("p", 10)
    for key in "abcd":
        await queue.change(key, b"12", ttl=10, expect=None, place=Ready("x", "o"))
    await queue.change("e", b"12", ttl=10, expect=None, place=Held("p", "x"))
    redis.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreFull, match="raise its maxmemory"):
        await queue.change("f", b"1", ttl=10, expect=None, place=Ready("x", "o"))
    with pytest.raises(StoreFull, match="raise its maxmemory"):
        await queue.change("e", b"123", ttl=10, expect=b"12", place=None, holder="p")
    assert await queue.place("e") == Held("p", "x")
    assert await queue.place("f") is None
    assert await queue.take("p", ["x"], 3) == [Task(key, b"12", "p") for key in "abc"]
    assert await queue.change("a", b"34", ttl=10, expect=b"12", place=Held("p"), holder="p") is None
    assert await queue.change("b", b"1", ttl=10, expect=b"12", place=Ready("y", "o", 5.0), holder="p") is None
    assert await queue.change("c", b"", ttl=10, expect=b"12", place=None, holder="p") is None
    assert await queue.renew("p", 10)
    assert await queue.renew("q", 10), "a new process can take tasks over"
    assert await queue.bury("p", 2)
    assert [task.key for task in await queue.orphans(10)] == ["a", "e"]
    assert await queue.change("e", b"12", ttl=10, expect=b"12", place=Held("q"), orphan_of="p") is None
    assert (await queue.counts())[:2] == ({"x": 1, "y": 1}, {"x": 2})
    await queue.release("q")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert await queue.change("f", b"1", ttl=10, expect=None, place=Ready("x", "o")) is None


async def test_a_change_whose_answer_was_lost_is_sent_again_and_made_once(redis: RedisServer) -> None:
    stores = RedisStores(redis.url)
    queue = stores.queue
    await queue.renew("p", 100)

    async def life(number: int) -> None:
        key = str(number)
        assert await queue.change(key, b"ready", ttl=100, expect=None, place=Ready("x", key)) is None
        assert await queue.change(key, b"begun", ttl=100, expect=b"ready", place=Held("p")) is None
        assert await queue.change(key, b"back", ttl=100, expect=b"begun", place=Ready("x", key), holder="p") is None

    for start in range(0, 100, 5):
        lives = asyncio.gather(*(life(number) for number in range(start, start + 5)))
        for _ in range(start % 3 + 1):
            await asyncio.sleep(0)
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        await lives
    assert (await queue.counts())[:2] == ({"x": 100}, {})
    stores.close()


async def test_what_a_take_brought_and_was_lost_is_found(redis: RedisServer) -> None:
    stores = RedisStores(redis.url)
    queue = stores.queue
    await queue.renew("p", 100)
    for number in range(60):
        await queue.change(str(number), b"1", ttl=100, expect=None, place=Ready("x", "o"))
    known: set[str] = set()
    while len(known) < 60:
        redis.command("CLIENT", "KILL", "TYPE", "normal")
        try:
            tasks = await queue.take("p", ["x"], 2)
        except StoreFailed as error:
            assert "nobody knows whether the change was made" in str(error)
            known.update((await queue.held("p"))[1])
            continue
        assert known.isdisjoint(task.key for task in tasks)
        known |= {task.key for task in tasks}
    assert (await queue.counts())[:2] == ({}, {"x": 60})
    stores.close()


async def test_the_heartbeat_of_a_process_costs_the_same_whatever_the_number_of_the_others(
    redis: RedisServer, stores: RedisStores
) -> None:
    queue = stores.queue

    async def heartbeat() -> None:
        await queue.renew("here/p", 15)
        await queue.leases("here/")
        await queue.stale()
        await queue.orphans(200)
        await queue.held("here/p", limit=0)
        await queue.waiting(3600, 200)
        await queue.take("here/p", ["x"], 100)

    async def commands() -> int:
        """Return the number of commands of some heartbeats, those of their scripts included."""
        redis.command("CONFIG", "RESETSTAT")
        for _ in range(5):
            await heartbeat()
        stats = redis.command("INFO", "commandstats")
        return sum(map(int, re.findall(rb"cmdstat_(?!xread|info|config)[^:]*:calls=(\d+)", stats)))

    await heartbeat()
    alone = await commands()
    for number in range(100):
        await queue.renew(f"there/{number}", 15)
        await queue.change(f"t{number}", b"1", ttl=100, expect=None, place=Held(f"there/{number}", "x"))
    assert await commands() == alone


async def test_a_lease_is_kept_over_an_absence_of_redis(redis: RedisServer) -> None:
    stores = RedisStores(redis.url, timeout=0.3)
    lost: list[str] = []
    stop = stores.queue.keep("p", 0.05, lambda: lost.append("p"))
    while await renewals(stores.queue, "p") < 2:
        await asyncio.sleep(0.001)
    redis.kill()
    for _ in range(3):
        with pytest.raises(StoreFailed):
            await stores.kv.get("a")
    # It comes back empty: the lease begins anew.
    redis.start()
    while await renewals(stores.queue, "p") < 3:
        await asyncio.sleep(0.001)
    assert lost == []
    stop()
    stores.close()


async def test_a_lease_is_kept_when_the_thread_of_the_store_fails(
    redis: RedisServer, stores: RedisStores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from toolwire.stores import redis_link, redis_pipeline

    monkeypatch.setattr(redis_link, "LONGEST_PAUSE", 0.01)
    watching = RedisStores(redis.url)
    stop = stores.queue.keep("p", 0.05, lambda: None)
    while await renewals(watching.queue, "p") < 2:
        await asyncio.sleep(0.001)
    exchange = redis_pipeline.RedisPipeline._exchange
    failed: list[object] = []

    async def fails_once(self: redis_pipeline.RedisPipeline, calls: list[redis_pipeline.ScriptCall]) -> object:
        if self._queue is stores._link._queue and not failed:
            failed.append(self)
            raise RuntimeError("on purpose")
        return await exchange(self, calls)

    monkeypatch.setattr(redis_pipeline.RedisPipeline, "_exchange", fails_once)
    before = await renewals(watching.queue, "p")
    while not failed or await renewals(watching.queue, "p") < before + 4:
        await asyncio.sleep(0.001)
    assert "on purpose" in caplog.text
    stop()
    watching.close()


async def test_closing_ends_what_is_kept(redis: RedisServer) -> None:
    stores = RedisStores(redis.url)
    stores.queue.keep("p", 0.05, lambda: None)
    await stores.check()
    stores.close()
    assert not stores._link._thread.is_alive()  # type: ignore[union-attr]


WATCHED = """
local original = redis
local redis = setmetatable({call = function(command, key, ...)
    local is_declared = command == 'TIME'
    for _, declared in ipairs(KEYS) do is_declared = is_declared or declared == key end
    if not is_declared then error('undeclared key ' .. tostring(key) .. ' of ' .. command) end
    if key == nil then return original.call(command) end
    return original.call(command, key, ...)
end}, {__index = original})
"""


async def test_the_scripts_declare_every_key(stores: RedisStores, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in QUEUE_SCRIPTS:
        text = WATCHED + script.text
        monkeypatch.setattr(script, "text", text)
        monkeypatch.setattr(script, "sha", hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    queue = stores.queue
    for process in "pq":
        assert await queue.renew(process, 10)
    await queue.change("a", b"1", ttl=10, expect=None, place=Ready("x", "o"), most_ready=10)
    await queue.change("b", b"1", ttl=None, expect=None, place=Ready("x", "o", 0.001))
    await queue.change("c", b"1", ttl=0.001, expect=None, place=Ready("x", "o"))
    await queue.change("d", b"1", ttl=10, expect=None, place=Held("p", "x"))
    with pytest.raises(LeaseLost):
        await queue.change("d", b"2", ttl=10, expect=b"1", place=None, holder="q")
    assert await queue.change("a", b"2", ttl=10, expect=b"0", place=None) == b"1"
    while (await queue.counts()).ready != {"x": 2}:
        await asyncio.sleep(0.001)
    assert [task.key for task in await queue.waiting(0, 10)] == ["a", "b"]
    assert [task.key for task in await queue.take("p", ["x"], 10, passing_over=["q"])] == ["a", "b"]
    assert await queue.held("p") == (3, ["a", "b", "d"])
    assert await queue.change("a", b"2", ttl=10, expect=b"1", place=Ready("x", "o"), holder="p") is None
    assert await queue.stale() == []
    assert await queue.leases("p") == [("p", 1)]
    assert await queue.bury("p", 1)
    assert [task.key for task in await queue.orphans(10)] == ["b", "d"]
    assert await queue.place("b") == Held("p", "x")
    await queue.release("q")


async def test_what_is_left_in_redis_after_all_tasks_are_over(redis: RedisServer, stores: RedisStores) -> None:
    queue = stores.queue
    await queue.renew("p", 10)
    for number in range(10):
        await queue.change(str(number), b"1", ttl=10, expect=None, place=Ready(f"kind {number % 3}", str(number % 2)))
    for task in await queue.take("p", ["kind 0", "kind 1", "kind 2"], 10):
        await queue.change(task.key, b"2", ttl=10, expect=b"1", place=None, holder="p")
    await queue.release("p")
    left = {key for key in redis.command("KEYS", "*queue*").split(b"\r\n") if key.startswith(b"{")}
    assert left == {b"{toolwire}:queue-counts", b"{toolwire}:queue-buried"}
    assert redis.command("HLEN", "{toolwire}:queue-counts") == b":1\r\n", "the number that was given last"


async def test_counting_the_tasks_takes_as_many_commands_for_many_as_for_few(
    redis: RedisServer, stores: RedisStores
) -> None:
    queue = stores.queue
    for process in "pq":
        await queue.renew(process, 1000)
    await queue.release("q")

    async def commands() -> dict[str, str]:
        await queue.counts()
        redis.command("CONFIG", "RESETSTAT")
        await queue.counts()
        lines = redis.command("INFO", "commandstats").decode().splitlines()
        calls = (line.partition(":calls=") for line in lines if line.startswith("cmdstat_"))
        # Others are those of the connection that waits for messages.
        names = {f"cmdstat_{name}" for name in ("zcount", "zlexcount", "zrange", "zrangebyscore", "zcard", "hgetall")}
        return {name: rest.partition(",")[0] for name, _, rest in calls if name in names}

    seen = []
    for amount in (30, 600):
        for number in range(amount):
            place = (Ready("x", "o"), Ready("x", "o", 500.0), Held("p", "y"))[number % 3]
            await queue.change(f"{amount} {number}", b"1", ttl=1000, expect=None, place=place)
        seen.append(await commands())
    assert seen[0] == seen[1]
    assert "cmdstat_zcount" in seen[0]
