"""A store that loses records, places or leases: those who know them write them again, and every task has an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cases import cases
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, LEASE, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import CORE, DIALECTS, begin, look, outcome, reaches, text_in

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INVALID_PARAMS
from toolwire.stores import Evictions, Held, MemoryQueue, Ready, Stores, Task

GONE = "The server lost contact with the process that ran this task; the task may have run"
Loses = Callable[[Stores, str, bytes | None], Awaitable[None]]


async def key_of(shared: Stores, task: str) -> str:
    (key,) = [key for key in await shared.kv.keys("toolwire:task2:") if key.endswith(task)]
    return key


def lose_place(shared: Stores, key: str) -> None:
    assert isinstance(shared.queue, MemoryQueue)
    with shared.queue._lock:
        shared.queue.forget(key)


def lose_lease(shared: Stores, process: str) -> None:
    assert isinstance(shared.queue, MemoryQueue)
    del shared.queue._leases[process]


async def lose_record(shared: Stores, key: str, earlier: bytes | None) -> None:
    """Lose the record, or all changes since an earlier one, in which the task waited to be taken."""
    await shared.kv.delete(key)
    if earlier is not None:
        await shared.queue.change(key, earlier, ttl=600.0, expect=None, place=Ready("none", "ada"))


def fail_over(*replicas: Replica) -> None:
    """Tell replicas, as a store does, that the last changes may be lost."""
    for replica in replicas:
        replica.tasks.following.missed()


def waiting_record(data: bytes) -> bytes:
    record = rules.decode(data)
    record.process, record.begun, record.updated = "", False, record.updated - 1
    return rules.encode(record)


# --- tasks that run --------------------------------------------------------------------------------------------------


@pytest.mark.pairwise
@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("tool", ["once", "again"])
@pytest.mark.parametrize("loss", ["record", "begin", "place", "record and lease"])
@pytest.mark.parametrize("is_heard", [True, False])
async def test_a_running_task_survives_what_the_store_lost(tool: str, loss: str, is_heard: bool, clock: Clock) -> None:
    """`is_heard`: the process learns of the failover. Otherwise it notices when it writes the end."""
    shared = shared_stores(clock)
    replica = Replica(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, tool, {"number": 1})
        await replica.started.wait()
        key = await key_of(shared, task)
        data = await shared.kv.get(key)
        assert data is not None
        process = rules.decode(data).process
        if loss == "place":
            lose_place(shared, key)
        else:
            await lose_record(shared, key, waiting_record(data) if loss == "begin" else None)
        if "lease" in loss:
            lose_lease(shared, process)
        if is_heard:
            fail_over(replica)
            await settled()
            if loss != "place":  # Nothing in the record says that its place is missing.
                assert await shared.queue.place(key) == Held(process, f"{replica.tasks.records.server}:{tool}")
            assert (await look(client, task))["status"] == "working"
        replica.go.set()
        assert text_in(await outcome(client, task)) == f"{tool} 1 by ada"
        await pass_time(clock, 2 * LEASE)
        stored = await shared.kv.get(key)
        assert stored is not None
        assert rules.decode(stored).status == "completed"
        assert replica.ran == [(tool, 1, 1)]


@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("revision", DIALECTS)
async def test_no_task_is_unknown_while_the_process_that_runs_it_may_write_it_again(
    revision: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    methods = ("tasks/get", "tasks/cancel") + (("tasks/result",) if revision == CORE else ())
    async with (
        here.serving(revision) as a,
        there.serving(revision) as b,
        a(principal=ADA) as client,
        b(principal=ADA) as other,
    ):
        task = await begin(client, "once", {"number": 1})
        await here.started.wait()
        await shared.kv.delete(await key_of(shared, task))
        with monkeypatch.context() as failover:
            failover.setattr(Stores, "may_lack_writes", lambda self: True)
            for method in methods:
                answer = await other.error(method, {"taskId": task})
                assert answer["message"] == "The tasks cannot be reached now; try again later"
        for method in methods:
            assert (await other.error(method, {"taskId": task}))["code"] == INVALID_PARAMS
        fail_over(here)
        await settled()
        here.go.set()
        assert text_in(await outcome(other, task)) == "once 1 by ada"


@pytest.mark.covers("FLT-9")
async def test_a_process_whose_lease_was_taken_away_restores_nothing(clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with here.serving() as a, there.serving() as b, a(principal=ADA) as client, b(principal=ADA):
        task = await begin(client, "again", {"number": 1})
        await here.started.wait()
        key = await key_of(shared, task)
        await shared.queue.release(await here.tasks.process())
        await there.tasks._watcher.look()
        fail_over(here)
        await pass_time(clock, 10)
        await there.started.wait()
        there.go.set()
        assert text_in(await outcome(client, task)) == "again 1 by ada"
        assert (here.cancelled, there.ran) == ([1], [("again", 1, 2)])
        assert rules.decode(await shared.kv.get(key) or b"").attempt == 2


# --- tasks that ended ------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("loss", ["record", "end"])
@pytest.mark.parametrize("tool", ["once", "again"])
async def test_a_lost_end_is_written_again_for_every_process_to_read(tool: str, loss: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with here.serving() as a, there.serving() as b, a(principal=ADA) as client, b(principal=ADA) as other:
        task = await begin(client, tool, {"number": 1})
        await here.started.wait()
        key = await key_of(shared, task)
        before = await shared.kv.get(key)
        here.go.set()
        await reaches(client, task, "completed")
        await shared.kv.delete(key)
        if loss == "end":
            process = await here.tasks.process()
            await shared.queue.change(key, before or b"", ttl=600.0, expect=None, place=Held(process))
        fail_over(there, here)
        await settled()
        assert text_in(await outcome(other, task)) == f"{tool} 1 by ada"
        assert await shared.queue.place(key) is None
        assert (here.ran, there.ran) == ([(tool, 1, 1)], [])


async def test_damaged_record_keeps_no_other_end_from_being_restored(clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    here.go.set()
    async with here.serving() as a, there.serving() as b, a(principal=ADA) as client, b(principal=ADA) as other:
        tasks = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        for task in tasks:
            await reaches(client, task, "completed")
        damaged, lost = [await key_of(shared, task) for task in tasks]
        await shared.kv.put(damaged, b"{", ttl=600.0)
        await shared.kv.delete(lost)
        fail_over(here)
        await settled()
        for number, task in enumerate(tasks, 1):
            assert text_in(await outcome(other, task)) == f"once {number} by ada"


# --- tasks that wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "status"), [("again", "completed"), ("once", "failed")])
async def test_a_waiting_task_that_the_store_lost_is_written_again(tool: str, status: str, clock: Clock) -> None:
    """A process that is gone may have run it, so only an idempotent one is run."""
    shared = shared_stores(clock)
    replica = Replica(shared, limits={"tasks_running": 1})
    async with replica.serving() as join, join(principal=ADA) as client:
        await begin(client, "again", {"number": 1})
        waiting = await begin(client, tool, {"number": 2})
        await shared.kv.delete(await key_of(shared, waiting))
        fail_over(replica)
        await pass_time(clock, 2 * LEASE)
        replica.go.set()
        shown = await reaches(client, waiting, status)
        text = "The store of the server lost this task; the task may have run"
        assert shown.get("statusMessage") == (text if status == "failed" else None)
        assert replica.ran.count((tool, 2, 1)) == (status == "completed")


# --- places that are lost --------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-8")
async def test_every_task_without_a_place_comes_to_its_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The index is gone, and with it who runs what; one process is gone, too."""
    shared = shared_stores(clock)
    dying, alive = Replica(shared), Replica(shared, limits={"tasks_running": 3})
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            lost = await begin(there, "once", {"number": 1})
            moved = await begin(there, "again", {"number": 2})
        process = await dying.tasks.process()
        dying.die()
        hosted = await alive.server.tasks.create(principal=ADA)
        running = await begin(client, "once", {"number": 3})
        for number in (4, 5):
            await begin(client, "again", {"number": number})
        queued = await begin(client, "once", {"number": 6})
        await shared.queue.release(process)
        for key in await shared.kv.keys("toolwire:task2:"):
            lose_place(shared, key)
        found = [True]

        async def has_gaps() -> bool:
            return bool(found and found.pop())

        monkeypatch.setattr(shared.queue, "has_gaps", has_gaps)
        await pass_time(clock, 200, 5.0)
        alive.go.set()
        shown = await reaches(client, lost, "failed")
        assert shown["statusMessage"] == GONE
        for task, text in ((moved, "again 2"), (running, "once 3"), (queued, "once 6")):
            assert text_in(await outcome(client, task)) == f"{text} by ada"
        assert (await look(client, hosted.id))["status"] == "working", "the host drives it"
        assert sorted(alive.ran) == [("again", 2, 2), ("again", 4, 1), ("again", 5, 1), ("once", 3, 1), ("once", 6, 1)]
        assert (await shared.queue.counts())[:2] == ({}, {})
    assert "the store had lost the places of" in caplog.text


@pytest.mark.parametrize("cause", ["eviction", "failover", "time"])
async def test_the_comparison_begins_for_a_reason_and_once_for_a_fleet(
    cause: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    rounds: list[str] = []

    async def rebuild(after: str = "", limit: int = 200) -> str:
        rounds.append(after)
        return ""

    monkeypatch.setattr(shared.queue, "rebuild", rebuild)
    one, two = Replica(shared), Replica(shared)
    async with one.serving() as a, two.serving() as b, a(principal=ADA) as client, b(principal=ADA) as other:
        for each in (client, other):
            await begin(each, "once", {"number": 1})
        await pass_time(clock, 2 * LEASE, 5.0)
        assert rounds == []
        if cause == "eviction":
            for replica in (one, two):
                monkeypatch.setattr(type(replica.stores), "evictions", lambda self: Evictions(evicts=True, keys=1))
        elif cause == "failover":
            fail_over(one, two)
        await pass_time(clock, 300 if cause == "time" else 30, 5.0)
        assert rounds == [""], "the other process leaves it to the first"


async def test_ends_are_read_once_by_the_comparison(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    replica.go.set()
    async with replica.serving() as join, join(principal=ADA) as client:
        for number in range(5):
            await reaches(client, await begin(client, "once", {"number": number}), "completed")
        for expected in (5, 0):
            replica.tasks._watcher.repair.want()
            replica.line.calls.clear()
            await pass_time(clock, 61, 5.0)
            assert replica.line.calls.count("get") == expected


async def test_comparison_forgets_lost_tasks_whose_records_expired(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "again", {"number": 1})
        await replica.started.wait()
        own = await shared.kv.get(await key_of(shared, task))
        record = rules.decode(own or b"")
        record.id, record.process = "lost", "gone"
        key = replica.tasks.records.key("ada", "lost")
        await shared.kv.put(key, rules.encode(record), ttl=600.0)
        repair = replica.tasks._watcher.repair
        repair.want()
        await repair.step()
        assert [*repair._lost_since] == [key]
        await shared.kv.delete(key)
        await shared.kv.delete("toolwire:task-repair2")
        await repair.step()
        assert not repair._lost_since


async def test_orphans_that_cannot_be_taken_over_do_not_keep_the_watcher_busy(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    looks = 0

    async def orphans(limit: int) -> list[Task]:
        nonlocal looks
        looks += 1
        return [Task("toolwire:task2:s:o:id", rules.encode(rules.new_record("id", 0.0, 1, 1, process="gone")), "gone")]

    async with replica.serving() as join, join(principal=ADA) as client:
        await begin(client, "once", {"number": 1})
        monkeypatch.setattr(shared.queue, "orphans", orphans)
        async with asyncio.timeout(15):
            await replica.tasks._watcher.look()
    assert looks == 2


def restored(own: dict[str, Any], present: dict[str, Any] | None) -> str:
    def record(details: dict[str, Any]) -> rules.Record:
        return rules.Record("id", 0.0, details.pop("updated", 5.0), 1, 1, **details)

    mine, there = record({"process": "p", "begun": True, **own}), None if present is None else record(present)
    chosen = rules.choose_record(mine, there)
    return "nothing" if chosen is None else "own" if chosen is mine else "present"


@cases(
    ("present", "chosen"),
    [
        (None, "own"),
        ({"process": ""}, "own"),
        ({"process": "p", "updated": 4.0}, "own"),
        ({"process": "p"}, "present"),
        ({"process": "p", "updated": 6.0}, "present"),
        ({"process": "q"}, "nothing"),
        ({"process": "", "attempt": 2}, "nothing"),
        ({"process": "", "status": "cancelled"}, "nothing"),
    ],
)
def test_the_record_that_knows_more_is_chosen(present: dict[str, Any] | None, chosen: str) -> None:
    assert restored({}, present) == chosen


def test_watchers_of_an_earlier_record_are_not_lost() -> None:
    own = rules.Record("id", 0.0, 5.0, 1, 1, process="p", watchers=["a"])
    chosen = rules.choose_record(own, rules.Record("id", 0.0, 4.0, 1, 1, process="p", watchers=["a", "b"]))
    assert chosen is own
    assert own.watchers == ["a", "b"]
