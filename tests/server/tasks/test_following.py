"""A change of a task reaches the processes that have to know of it, and no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import CORE, begin, dialects, look, outcome, text_in

from toolwire.protocol import tasks as rules
from toolwire.protocol.tasks import EVERY_PROCESS, MOST_WATCHERS, Record, new_record
from toolwire.stores import MemoryBus


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The topics of all messages about tasks."""
    topics: Counter[str] = Counter()
    publish = MemoryBus.publish

    async def counted(self: MemoryBus, topic: str, data: bytes) -> None:
        topics[topic] += topic.startswith("toolwire:task")
        await publish(self, topic, data)

    monkeypatch.setattr(MemoryBus, "publish", counted)
    return topics


async def record_of(replica: Replica, task: str) -> Record:
    keys = [key for key in await replica.stores.kv.keys("toolwire:task2:") if key.endswith(task)]
    found = await replica.tasks.records.find(keys[0])
    assert found is not None
    return found


async def waits(replica: Replica, task: str) -> None:
    """Return when a request in this replica waits for a task of another."""
    while replica.tasks.bells.watcher() not in (await record_of(replica, task)).watchers:
        await asyncio.sleep(0)


@dialects
async def test_a_task_that_nobody_watches_rings_no_bell(revision: str, clock: Clock, published: Counter[str]) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with (
        here.serving(revision) as join,
        there.serving(revision) as other,
        join(principal=ADA) as client,
        other(principal=ADA) as poller,
    ):
        published.clear()
        task = await begin(client, "once", {"number": 1})
        assert (await look(poller, task))["status"] == "working"
        here.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert published.total() == 0


async def test_a_request_hears_of_a_task_that_another_process_ends(clock: Clock, published: Counter[str]) -> None:
    shared = shared_stores(clock)
    here, there, third = Replica(shared), Replica(shared), Replica(shared)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        a, b, c = [await enter((await enter(each.serving(CORE)))(principal=ADA)) for each in (here, there, third)]
        task = await begin(a, "once", {"number": 1})
        before = await look(c, task)
        waiting = [b.start("tasks/result", {"taskId": task}) for _ in range(2)]
        await waits(there, task)
        assert await look(c, task) == before, "who waits for a task does not change what others see of it"
        published.clear()
        here.go.set()
        assert {text_in((await each)["result"]) for each in waiting} == {"once 1 by ada"}
        assert published.total() == 1, "one bell for the process, however many of its requests wait"
        assert (await record_of(here, task)).watchers == []


async def test_a_request_in_the_process_that_runs_the_task_changes_nothing(clock: Clock) -> None:
    here = Replica(shared_stores(clock))
    async with here.serving(CORE) as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        here.line.calls.clear()
        waiting = client.start("tasks/result", {"taskId": task})
        await settled()
        assert set(here.line.calls) == {"get"}
        here.go.set()
        assert text_in((await waiting)["result"]) == "once 1 by ada"


@pytest.mark.parametrize("trouble", ["full", "orphan"])
async def test_a_request_whose_interest_the_store_does_not_take_looks_by_itself(trouble: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with (
        here.serving(CORE) as join,
        there.serving(CORE) as other,
        join(principal=ADA) as a,
        other(principal=ADA) as b,
    ):
        task = await begin(a, "once", {"number": 1})
        name, kv, queue = here.tasks.bells.process, cast(Any, shared.kv), cast(Any, shared.queue)
        lease, most = queue._leases[name], kv.max_bytes
        if trouble == "full":
            kv.max_bytes = 0
        else:
            del queue._leases[name]
        waiting = b.start("tasks/result", {"taskId": task})
        await pass_time(clock, 2)
        assert (await record_of(here, task)).watchers == []
        queue._leases[name], kv.max_bytes = lease, most
        await pass_time(clock, 2)
        assert len((await record_of(here, task)).watchers) == 1
        here.go.set()
        assert text_in((await waiting)["result"]) == "once 1 by ada"


def test_the_watchers_of_a_task_are_bounded() -> None:
    record = new_record("1", 0.0, 1000, 1000)
    named: list[Any] = [str(number) for number in range(MOST_WATCHERS)]
    assert all(rules.watch(record, each) for each in named)
    assert not rules.watch(record, "0")
    assert [rules.watch(record, str(number)) for number in range(100, 103)] == [True, False, False]
    assert record.watchers == [*named, EVERY_PROCESS]
    assert rules.cancel(record)
    assert record.watchers == []
    assert not rules.watch(record, "0"), "a task that is over does not change any more"


async def test_all_hear_of_a_task_that_very_many_watch(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_WATCHERS", 1)
    shared = shared_stores(clock)
    here, others = Replica(shared), [Replica(shared) for _ in range(3)]
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        clients = [await enter((await enter(each.serving(CORE)))(principal=ADA)) for each in (here, *others)]
        task = await begin(clients[0], "once", {"number": 1})
        waiting = [each.start("tasks/result", {"taskId": task}) for each in clients[1:]]
        await settled(500)
        record = await record_of(here, task)
        assert all(replica.tasks.following.is_told(record) for replica in others)
        assert len(record.watchers) == 2
        here.go.set()
        assert {text_in((await each)["result"]) for each in waiting} == {"once 1 by ada"}


async def test_a_stream_that_ended_leaves_nothing_behind(clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with here.serving() as join, there.serving() as other, join(principal=ADA) as a:
        task = await begin(a, "once", {"number": 1})
        async with other(principal=ADA) as b:
            b.start("subscriptions/listen", {"notifications": {"taskIds": [task]}})
            await b.notified("notifications/subscriptions/acknowledged")
            await pass_time(clock, 60)
            assert there.tasks.following._listened, "it is heard of for as long as the stream is open"
        await pass_time(clock, 60)
        assert not there.tasks.following._listened
        here.go.set()
