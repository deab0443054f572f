"""The queue on Redis, when Redis is full, away, or loses connections; and the keys that its scripts declare."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.redis_server import RedisServer, running, until_answered

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


# --- a key that was lost ---------------------------------------------------------------------------------------------

QUEUE_KEYS = (
    *("places", "ends", "ages", "delays", "lines", "turns", "held", "counts"),
    *("leases", "renewals", "processes", "gone", "buried"),
)
LOST_KEYS = (*(f"queue-{key}" for key in QUEUE_KEYS), "kv-names", "kv-deadlines", "kv-sizes", "kv-bytes")
#: Keys that are lost together. One of those that name the records is always left.
LOST_TOGETHER = (
    "kv-names kv-sizes",
    "kv-names kv-sizes kv-bytes",
    "kv-names kv-sizes kv-deadlines",
    "kv-names kv-deadlines",
    "kv-sizes kv-deadlines",
    "kv-names queue-places",
    "kv-sizes queue-places",
    "kv-names kv-sizes queue-places",
    "kv-names kv-sizes queue-ages queue-ends",
    "queue-places queue-lines queue-ages queue-counts queue-turns queue-held queue-delays queue-ends",
)


@pytest.mark.covers("FLT-8")
@pytest.mark.parametrize("use_first", [True, False])
@pytest.mark.parametrize("groups", [LOST_KEYS, LOST_TOGETHER], ids=["one", "several"])
async def test_every_operation_works_when_keys_were_evicted(
    redis: RedisServer, use_first: bool, groups: tuple[str, ...]
) -> None:
    """The index is built again. `use_first`: the queue is used before that, with new tasks."""
    for lost in groups:
        stores = RedisStores(redis.url, prefix=lost, timeout=60.0)
        queue = stores.queue
        wanted: dict[str, Ready | Held] = {
            **{f"{kind}{owner}{number}": Ready(kind, owner) for kind in "xy" for owner in "op" for number in (1, 2)},
            "later": Ready("x", "o", 600.0),
            "mine": Held("living", "x"),
            "orphan": Held("dead", "y"),
        }
        for process in ("living", "dead"):
            await queue.renew(process, 600)
        for key, place in wanted.items():
            assert await queue.change(key, key.encode(), ttl=600, expect=None, place=place) is None
        assert await queue.has_gaps(), "nothing was compared yet"
        assert await queue.rebuild() == ""
        assert not await queue.has_gaps(), "nothing is missing yet"
        assert await queue.bury("dead", 1)
        keys = lost.split()
        assert redis.command("DEL", *(f"{{{lost}}}:{key}" for key in keys)) == b":%d\r\n" % len(keys), lost

        async with asyncio.timeout(60):
            if use_first:
                for kind in "xyz":
                    await queue.change(f"new {kind}", b"new", ttl=600, expect=None, place=Ready(kind, "o"))
                    wanted[f"new {kind}"] = Ready(kind, "o")
                for task in await queue.take("living", ["x", "y", "z"], 1):
                    wanted[task.key] = Held("living")
            await queue.counts()
            await queue.orphans(10)
            await queue.waiting(0, 100)
            await queue.held("living")
            await queue.places("")
            await queue.stale()
            assert lost in ("queue-ends", "queue-buried", "kv-deadlines", "kv-bytes") or (
                await queue.has_gaps() or lost in ("queue-leases", "queue-renewals", "queue-processes", "queue-gone")
            )
            after = await queue.rebuild(limit=5)
            while after:
                after = await queue.rebuild(after, limit=5)
            for key, place in await queue.places(""):
                if place is None:  # The part of those who write the records.
                    value = await stores.kv.get(key)
                    assert value is not None
                    if isinstance(wanted[key], Held) and wanted[key].process == "dead":
                        await queue.change(key, value, ttl=600, expect=value, place=Held("living", "y"))
                        wanted[key] = Held("living")
                    else:
                        await queue.change(key, value, ttl=600, expect=value, place=wanted[key])
            assert not await queue.has_gaps(), lost

            assert [name for name, _ in await queue.leases()] == ["living"], lost
            assert await queue.renew("living", 600)
            orphans = [task.key for task in await queue.orphans(10)]
            assert orphans == [key for key, place in wanted.items() if place == Held("dead", "y")], lost
            held = sorted(key for key, place in wanted.items() if isinstance(place, Held) and place.process == "living")
            assert sorted((await queue.held("living"))[1]) == held, lost
            ready = sorted(key for key, place in wanted.items() if isinstance(place, Ready) and key != "later")
            assert sorted(task.key for task in await queue.waiting(0, 100)) == ready, lost
            assert sorted(task.key for task in await queue.take("living", ["x", "y", "z"], 100)) == ready, lost
            counts = await queue.counts()
            assert (sum(counts.ready.values()), sum(counts.held.values())) == (1, len(wanted) - 1), lost
        stores.close()


#: Kinds of keys that may be lost in any combination, beside the values.
KINDS = (" ".join(f"queue-{key}" for key in QUEUE_KEYS), "kv-names", "kv-sizes", "kv-deadlines kv-bytes")
#: A prefix in which a pattern of Redis has a meaning.
PATTERN = "a*b?[c]\\"


@pytest.mark.slow
@pytest.mark.covers("FLT-8")
@pytest.mark.parametrize("use_first", [True, False])
async def test_values_are_named_again_whichever_indexes_are_lost_together(redis: RedisServer, use_first: bool) -> None:
    for lost in (kinds for size in range(1, 5) for kinds in itertools.combinations(KINDS, size)):
        redis.command("FLUSHALL")
        stores = RedisStores(redis.url, prefix=PATTERN, timeout=60.0, max_items=1610)
        queue, kv = stores.queue, stores.kv
        await queue.renew("p", 600)
        await asyncio.gather(*(kv.put(f"{number:04}", b"value", ttl=600) for number in range(1600)))
        await queue.change("task", b"1", ttl=600, expect=None, place=Ready("x", "o"))
        for foreign in ("aXbYc\\", "a*b?[c]", "other"):
            redis.command("SET", f"{{{foreign}}}:kv:foreign", "1")
        redis.command("SADD", f"{{{PATTERN}}}:kv:no value", "1")
        await rebuild(queue)
        assert not await queue.has_gaps()
        redis.command("DEL", *(f"{{{PATTERN}}}:{key}" for kind in lost for key in kind.split()))
        if use_first:
            await kv.put("later", b"value", ttl=600)
            await kv.delete("0001")
            await queue.change("next", b"1", ttl=600, expect=None, place=Ready("x", "o"))
        # Lost deadlines and sums alone harm no task.
        assert await queue.has_gaps() or lost == (KINDS[3],)
        await rebuild(queue)
        names = [f"{number:04}" for number in range(1600) if number != 1 or not use_first]
        names += ["later", "next", "task"] if use_first else ["task"]
        assert await kv.keys("", limit=2000) == names, lost
        assert not await queue.has_gaps(), lost
        if lost != (KINDS[3],):
            sizes = sum(len(name) + (1 if name in ("next", "task") else 5) for name in names)
            await kv.put("0000", b"again")
            assert redis.command("GET", f"{{{PATTERN}}}:kv-bytes").split()[1] == b"%d" % sizes, lost
        for number in range(1610 - len(names)):
            await kv.put(f"more {number}", b"")
        with pytest.raises(StoreFull):
            await kv.put("too many", b"")
        stores.close()


async def rebuild(queue: Queue) -> None:
    after = await queue.rebuild(limit=1000)
    while after:
        after = await queue.rebuild(after, limit=1000)


async def test_names_that_are_lost_during_a_round_are_found_in_the_next_one(redis: RedisServer) -> None:
    stores = RedisStores(redis.url, timeout=60.0)
    for number in range(30):
        await stores.kv.put(f"{number:02}", b"1", ttl=600)
    for lost in (("kv-names", "kv-sizes"), ("kv-names",), ("kv-sizes",)):
        redis.command("DEL", "{toolwire}:kv-names", "{toolwire}:kv-sizes")
        after = await stores.queue.rebuild(limit=10)
        assert after == "09"
        redis.command("DEL", *(f"{{toolwire}}:{key}" for key in lost))
        while after:
            after = await stores.queue.rebuild(after, limit=10)
        assert await stores.queue.has_gaps(), lost
        await rebuild(stores.queue)
        assert not await stores.queue.has_gaps()
        assert len(await stores.kv.keys("")) == 30
    stores.close()


async def test_a_user_without_scan_is_served_and_the_log_says_once_what_is_not_found_again(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    redis.command("ACL", "SETUSER", "blind", "on", ">secret", "~*", "+@all", "-scan")
    stores = RedisStores(f"unix://blind:secret@{redis.socket}", timeout=30.0)
    for _ in range(2):
        await stores.kv.put("a", b"1", ttl=600)
        redis.command("DEL", *(f"{{toolwire}}:kv-{key}" for key in ("names", "sizes", "deadlines")))
        await stores.kv.put("b", b"1", ttl=600)
        await rebuild(stores.queue)
        assert await stores.kv.keys("") == ["b"]
        assert not await stores.queue.has_gaps()
    stores.close()
    assert len([each for each in caplog.records if "may not run SCAN" in each.getMessage()]) == 1


async def test_tasks_are_taken_when_no_index_names_their_records(redis: RedisServer, stores: RedisStores) -> None:
    """No script takes a record for gone because the names, sizes and deadlines of all records were lost."""
    queue = stores.queue
    await queue.renew("p", 100)
    for number in range(450):
        place = Held("p", "x") if number == 0 else Ready("x", f"o{number % 2}", 300.0 * (number == 1))
        await queue.change(f"{number:03}", b"1", ttl=100, expect=None, place=place)
    assert redis.command("DEL", *(f"{{toolwire}}:kv-{key}" for key in ("names", "sizes", "deadlines"))) == b":3\r\n"
    # Two records are gone as well.
    assert redis.command("DEL", "{toolwire}:kv:005", "{toolwire}:kv:007") == b":2\r\n"
    assert await queue.place("004") == Ready("x", "o0")
    assert await queue.place("005") is None
    assert await queue.has_gaps()
    taken = [task.key for task in await queue.take("p", ["x"], 500)]
    assert sorted(taken) == [f"{number:03}" for number in range(2, 450) if number not in (5, 7)]
    assert await queue.held("p", limit=0) == (447, [])
    counts = await queue.counts()
    assert (counts.ready, counts.held, counts.delayed) == ({"x": 1}, {"x": 447}, 1)


async def test_a_dead_process_is_found_after_its_renewals_were_evicted(redis: RedisServer, stores: RedisStores) -> None:
    queue = stores.queue
    await queue.renew("dead", 0.001)
    await queue.change("a", b"1", ttl=100, expect=None, place=Held("dead", "x"))
    assert redis.command("DEL", "{toolwire}:queue-renewals") == b":1\r\n"
    while (stale := await queue.stale()) != [("dead", 0)]:
        assert stale == []
    assert await queue.leases() == [("dead", 0)]
    assert await queue.bury("dead", 1) is False, "it was not renewed once"
    assert await queue.bury("dead", 0)
    assert [task.key for task in await queue.orphans(10)] == ["a"]


async def test_a_value_that_was_evicted_leaves_nothing_in_the_index(redis: RedisServer, stores: RedisStores) -> None:
    queue = stores.queue
    await queue.renew("p", 100)
    await queue.change("ready", b"1", ttl=100, expect=None, place=Ready("x", "o"))
    await queue.change("held", b"1", ttl=100, expect=None, place=Held("p", "x"))
    for key in ("ready", "held"):
        assert redis.command("DEL", f"{{toolwire}}:kv:{key}") == b":1\r\n"
    assert await queue.rebuild() == ""
    assert await stores.kv.keys("") == []
    assert (await queue.counts())[:2] == ({}, {})
    assert redis.command("GET", "{toolwire}:kv-bytes") == b"$1\r\n0\r\n"
    assert await queue.held("p") == (0, [])


async def test_no_task_is_taken_for_a_while_after_another_redis_began_to_answer(redis: RedisServer) -> None:
    """The process that had taken it, which the new Redis does not know, writes its record first."""
    stores = RedisStores(redis.url, timeout=60.0)
    queue = stores.queue
    await queue.renew("p", 100)
    await queue.change("a", b"1", ttl=100, expect=None, place=Ready("x", "o"))
    assert redis.command("SAVE") == b"+OK\r\n"
    redis.kill()
    redis.start()
    await until_answered(stores.check)
    assert await queue.take("p", ["x"], 1) == []
    assert await queue.place("a") == Ready("x", "o")
    while not (tasks := await queue.take("p", ["x"], 1)):
        await asyncio.sleep(0.05)
    assert tasks == [Task("a", b"1", "p")]
    stores.close()
