"""Records that this process has just ended are not read from the store once more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import begin, dialects, outcome, reaches, text_in

from toolwire.protocol import tasks as rules
from toolwire.server.tasks import task_records
from toolwire.server.tasks.task_records import Changed, Records, TasksUnreachable
from toolwire.stores import StoreFailed, Stores


async def ended(records: Records, number: int, clock: Clock, ttl_ms: int = 60_000) -> str:
    key = records.key("ada", str(number))
    await records.create(key, rules.new_record(str(number), clock.time(), ttl_ms, 1000, message="x" * 100))
    assert (await records.change(key, rules.cancel)).written
    return key


@dialects
async def test_a_poll_for_a_task_that_ended_here_asks_no_store(revision: str, clock: Clock) -> None:
    here = Replica(shared_stores(clock))
    async with here.serving(revision) as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        here.go.set()
        await reaches(client, task, "completed")
        [key] = await here.stores.kv.keys("toolwire:task2:")
        here.line.is_cut = True
        record = await here.tasks.records.find(key)
        assert record is not None
        assert record.status == "completed"
        here.line.is_cut = False
        assert text_in(await outcome(client, task)) == "once 1 by ada"


class Slow:
    """A queue whose changes wait until the test lets them go on, or fail."""

    def __init__(self, stores: Stores) -> None:
        self._queue = stores.queue
        self.go = asyncio.Event()
        self.failure: Exception | None = None

    async def change(self, *given: Any, **named: Any) -> bytes | None:
        await self.go.wait()
        if self.failure is not None:
            raise self.failure
        return await self._queue.change(*given, **named)


async def being_ended(clock: Clock) -> tuple[Records, str, Slow, asyncio.Task[Changed]]:
    stores = shared_stores(clock)
    slow = Slow(stores)
    records = Records("server", Stores(stores.kv, stores.log, stores.bus, cast(Any, slow)), 3600.0)
    key = records.key("ada", "1")
    slow.go.set()
    await records.create(key, rules.new_record("1", clock.time(), 60_000, 1000))
    slow.go.clear()
    writing = asyncio.create_task(records.change(key, rules.cancel))
    await settled()
    return records, key, slow, writing


async def test_a_poll_that_comes_while_the_end_is_written_waits_for_it(clock: Clock) -> None:
    records, key, slow, writing = await being_ended(clock)
    polls = [asyncio.create_task(records.find(key)) for _ in range(3)]
    await settled()
    polls[0].cancel()
    await settled()
    assert [each.done() for each in polls] == [True, False, False]
    slow.go.set()
    found = [await each for each in polls[1:]]
    assert [each.status for each in found if each is not None] == ["cancelled"] * 2
    assert (await writing).written


@pytest.mark.parametrize("trouble", ["fails", "is cancelled"])
async def test_an_end_that_is_not_written_is_not_told(trouble: str, clock: Clock) -> None:
    records, key, slow, writing = await being_ended(clock)
    poll = asyncio.create_task(records.find(key))
    await settled()
    if trouble == "fails":
        slow.failure = StoreFailed("The store is out of reach.")
        slow.go.set()
        with pytest.raises(TasksUnreachable):
            await writing
    else:
        writing.cancel()
    found = await poll
    assert found is not None
    assert found.status == "working"


async def test_a_record_is_kept_no_longer_than_by_the_store_and_not_for_long(clock: Clock) -> None:
    stores = shared_stores(clock)
    records = Records("server", stores, 3600.0)
    short, long = await ended(records, 1, clock, 2_000), await ended(records, 2, clock)
    await pass_time(clock, 3)
    assert await records.find(short) is None
    assert await stores.kv.delete(long)
    assert await records.find(long) is not None
    await pass_time(clock, 30)
    assert await records.find(long) is None


async def test_a_clock_that_is_set_back_ends_nothing_late(clock: Clock) -> None:
    stores = shared_stores(clock)
    records = Records("server", stores, 3600.0)
    key = await ended(records, 1, clock)
    await stores.kv.delete(key)
    clock._now -= 3600
    assert await records.find(key) is None


@pytest.mark.parametrize("bound", ["_RECENT_ENDS", "_RECENT_BYTES"])
async def test_they_are_bounded_by_number_and_size(bound: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_records, bound, 3 if bound == "_RECENT_ENDS" else 400)
    stores = shared_stores(clock)
    records = Records("server", stores, 3600.0)
    keys = [await ended(records, number, clock) for number in range(10)]
    for key in keys:
        await stores.kv.delete(key)
    kept = [await records.find(key) is not None for key in keys]
    assert kept[-1]
    assert not any(kept[:-3])
