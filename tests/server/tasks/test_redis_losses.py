"""Tasks on a real Redis that loses keys, or all that was written lately: each comes to its one true end."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import pytest
from tests.redis_server import RedisServer, running, until_answered
from tests.server.tasks.replicas import ADA, Replica
from tests.server.tasks.talking import begin, look, outcome, reaches, text_in

from toolwire.server.tasks import recovery
from toolwire.server.tasks.fleet_tasks import FleetTasks
from toolwire.stores.redis import RedisStores

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis has no server for Windows")

GONE = "The server lost contact with the process that ran this task; the task may have run"
LEASE = {"task_lease": 1.5}
QUEUE_KEYS = (
    *("places", "ends", "ages", "delays", "lines", "turns", "held", "counts"),
    *("leases", "renewals", "processes", "gone", "buried"),
)
KEYS = (*(f"queue-{key}" for key in QUEUE_KEYS), "kv-names", "kv-deadlines", "kv-sizes", "kv-bytes")
INDEX = "kv-names kv-deadlines kv-sizes kv-bytes"
TOGETHER = (
    "kv-names kv-sizes",
    "kv-names kv-sizes kv-deadlines",
    "kv-names kv-sizes queue-places",
    "queue-places queue-lines queue-ages queue-counts queue-turns queue-held",
    " ".join(f"queue-{key}" for key in QUEUE_KEYS),
    INDEX,
)
#: All keys but the records: those that begin so, in each combination.
KINDS = ("queue", "kv", "log", "bus")
COMBINED = tuple(" ".join(kinds) for size in range(2, 5) for kinds in itertools.combinations(KINDS, size))


@pytest.mark.slow
@pytest.mark.covers("FLT-8")
@pytest.mark.parametrize("groups", [KEYS, TOGETHER, COMBINED], ids=["one", "several", "combined"])
async def test_every_task_ends_whichever_keys_of_the_queue_are_evicted(
    groups: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is gone as well, so that recovery is needed while the index is damaged."""
    monkeypatch.setattr(recovery, "CLAIM_SECONDS", 0.3)
    with running() as redis:
        await asyncio.gather(*(lose(redis, keys) for keys in groups))


async def lose(redis: RedisServer, lost: str) -> None:
    stores = RedisStores(redis.url, prefix=lost, timeout=60.0)
    dying, alive = Replica(stores, limits=LEASE), Replica(stores, limits={**LEASE, "tasks_running": 4, "share": 1.0})
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            failing = await begin(there, "once", {"number": 1})
            moving = await begin(there, "again", {"number": 2})
        await dying.started.wait()
        dying.die()
        running_here = await begin(client, "once", {"number": 3})
        for number in (4, 5, 6):
            await begin(client, "again", {"number": number})
        waiting = await begin(client, "once", {"number": 7})
        delete(redis, lost)
        # A person who looks at the fleet meanwhile gets an answer.
        await FleetTasks(stores).search()
        await FleetTasks(stores).fleet()
        shown = await reaches(client, failing, "failed")
        assert shown["statusMessage"] == GONE, lost
        alive.go.set()
        for task, text in ((moving, "again 2"), (running_here, "once 3"), (waiting, "once 7")):
            assert text_in(await outcome(client, task)) == f"{text} by ada", lost
        for number in (3, 7):
            assert alive.ran.count(("once", number, 1)) == 1, lost
    stores.close()


def delete(redis: RedisServer, lost: str) -> None:
    """Delete the keys with these names; of a kind, all but its values and streams."""
    start = f"{{{lost}}}:".encode()
    present = [line for line in redis.command("KEYS", "*").split(b"\r\n") if line.startswith(start)]
    keys = set()
    for each in lost.split():
        begins = tuple(start + each.encode() + mark for mark in ((b"-", b":") if each == "bus" else (b"-",)))
        keys |= {key for key in present if key.startswith(begins)} if each in KINDS else {start + each.encode()}
    redis.command("DEL", *keys)


@pytest.mark.covers("FLT-8")
async def test_waiting_tasks_end_when_the_index_is_lost_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "CLAIM_SECONDS", 0.3)
    index = ("kv-names", "kv-deadlines", "queue-lines", "queue-ages", "queue-held", "queue-delays", "queue-gone")
    with running() as redis:
        stores = RedisStores(redis.url, prefix="twice", timeout=60.0)
        replica = Replica(stores, limits=LEASE)
        async with replica.serving() as serving, serving(principal=ADA) as client:
            await begin(client, "once", {"number": 1})
            await replica.started.wait()
            for number in (2, 3):
                waiting = await begin(client, "again", {"number": number})
                redis.command("DEL", *(f"{{twice}}:{key}" for key in index))
                end = asyncio.get_running_loop().time() + 20
                while await stores.queue.has_gaps():
                    assert asyncio.get_running_loop().time() < end, "the index is not built again"
                    await asyncio.sleep(0.1)
            replica.go.set()
            assert text_in(await outcome(client, waiting)) == "again 3 by ada"
        stores.close()


@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("tool", ["once", "again"])
async def test_tasks_survive_a_crash_of_redis_that_loses_the_last_writes(
    tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Redis is killed, and comes back with the snapshot of a moment before."""
    with running() as redis:
        stores = RedisStores(redis.url, timeout=30.0)
        replica = Replica(stores, limits={"task_lease": 600.0, "tasks_running": 10, "share": 1.0})
        gates: dict[int, asyncio.Event] = {}

        @replica.server.tool(task="optional", annotations={"idempotentHint": tool == "again"})
        async def gated(number: int) -> str:
            replica.ran.append(("gated", number, 1))
            await gates.setdefault(number, asyncio.Event()).wait()
            return f"gated {number}"

        async with replica.serving() as join, join(principal=ADA) as client:
            ended_later = await begin(client, "gated", {"number": 1})
            runs_on = await begin(client, "gated", {"number": 2})
            while len(gates) < 2:
                await asyncio.sleep(0.01)
            assert redis.command("SAVE") == b"+OK\r\n"
            gates[1].set()
            await reaches(client, ended_later, "completed")
            gates[3] = asyncio.Event()
            gates[3].set()
            begun_and_ended = await begin(client, "gated", {"number": 3})
            await reaches(client, begun_and_ended, "completed")
            begun = await begin(client, "gated", {"number": 4})
            while 4 not in gates:
                await asyncio.sleep(0.01)

            assert not stores.may_lack_writes()
            redis.kill()
            redis.start()
            await until_answered(stores.check)
            assert stores.may_lack_writes()

            async def stored(task: str) -> Any:
                """The task as another process reads it: from the store."""
                found = await FleetTasks(stores).search(states=("completed", "running", "failed"))
                return {each.id: each.state for each in found.tasks}.get(task)

            for task in (ended_later, begun_and_ended):
                while await stored(task) != "completed":
                    await asyncio.sleep(0.02)
            for task in (runs_on, begun):
                while await stored(task) != "running":
                    await asyncio.sleep(0.02)
                assert (await look(client, task))["status"] == "working"
            for number in (2, 4):
                gates[number].set()
            for number, task in enumerate((ended_later, runs_on, begun_and_ended, begun), 1):
                assert text_in(await outcome(client, task)) == f"gated {number}"
            assert sorted(replica.ran) == [("gated", number, 1) for number in (1, 2, 3, 4)]
        stores.close()
    assert "another process of Redis answers for the store" in caplog.text
    assert "a subscriber was behind" not in caplog.text
