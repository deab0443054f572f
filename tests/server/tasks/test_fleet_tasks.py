"""The tasks of a fleet as an operator sees them: from the store alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.runtimes import runtime_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, EVE, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import begin, look, outcome, reaches, text_in

from toolwire.protocol import tasks as rules
from toolwire.server.tasks import fleet_tasks
from toolwire.server.tasks.fleet_tasks import STATES, FleetTasks, NoSuchTask, TaskRefused
from toolwire.server.tasks.replicas import Replica as Description
from toolwire.server.tasks.replicas import all_replicas
from toolwire.server.tasks.task_records import Records, kind_of, short_name
from toolwire.stores import Stores

ONE_SLOT = {"tasks_running": 1, "state": 3600.0}


async def states(tasks: FleetTasks, *wanted: str, **more: Any) -> dict[str, str]:
    return {task.id: task.state for task in (await tasks.search(wanted or STATES, **more)).tasks}


SECRETS = {"number": 1, "api_key": "k", "inner": {"password": "p", "plain": "text"}}


def stored_call(kind: str = "again", arguments: Any = None, **more: Any) -> rules.StoredCall:
    params = Raw(json.dumps({"name": "again", "arguments": arguments or {"number": 1}}).encode())
    return rules.StoredCall(params=params, revision="2026-07-28", kind=kind, idempotent=True, **more)


async def make(
    stores: Stores, clock: Clock, count: int = 1, *, owner: str = "ada", is_over: bool = False, **details: Any
) -> list[str]:
    """Write records as a server would, one second apart."""
    records, made = Records(short_name("fleet"), stores, 1000.0), []
    for _ in range(count):
        await clock.elapse(1)
        now = clock.time()
        record = rules.new_record(records.new_id(now), now, 60_000, 1000, **{"tool": "again", **details})
        if is_over:
            rules.complete(record, Raw(b"{}"))
        await records.create(records.key(owner, record.id), record)
        made.append(record.id)
    return made


# --- looking ---------------------------------------------------------------------------------------------------------


async def test_each_state_of_a_task_is_seen_with_its_holder(clock: Clock) -> None:
    shared = shared_stores(clock)
    one, two = Replica(shared, limits=ONE_SLOT), Replica(shared, limits=ONE_SLOT, without=("asking",))
    tasks = FleetTasks(shared)
    async with one.serving() as a, two.serving() as b, a(principal=ADA) as first, b(principal=EVE) as second:
        asking = await begin(first, "asking", {"number": 0})
        await reaches(first, asking, "input_required")
        runs = await begin(first, "once", {"number": 1})
        other = await begin(second, "once", {"number": 2})
        waits = await begin(first, "again", {"number": 3})
        stays = await begin(second, "staying", {"number": 4})
        hosted = await one.server.tasks.create(principal=ADA)
        await settled()
        assert await states(tasks) == {
            asking: "input_required",
            runs: "running",
            other: "running",
            waits: "waiting",
            stays: "waiting",
            hosted.id: "working",
        }
        for state, ids in {
            "waiting": {waits, stays},
            "running": {runs, other},
            "input_required": {asking},
            "working": {hosted.id},
            "completed": set(),
        }.items():
            assert set(await states(tasks, state)) == ids, state
        assert set(await states(tasks, tool="once")) == {runs, other}
        assert await states(tasks, "waiting", tool="once") == {}
        found = {task.id: task.shown(clock.time() + 5) for task in (await tasks.search()).tasks}
        assert hosted.id not in found, "unless it is asked for"
        assert [found[each]["process"] for each in (runs, other, waits)] == [
            await one.tasks.process(),
            await two.tasks.process(),
            "",
        ]
        assert found[runs]["owner"] == found[waits]["owner"] != found[other]["owner"]
        assert (found[runs]["tool"], found[runs]["attempt"], found[runs]["age"]) == ("once", 1, 5.0)
        fleet = await tasks.fleet()
        assert (sum(fleet.counts.ready.values()), sum(fleet.counts.held.values())) == (1, 4)
        assert [len(fleet.replicas), fleet.letters] == [2, 0]
        for replica in (one, two):
            replica.go.set()
        await outcome(first, runs)
        await tasks.cancel(asking)
        assert (await states(tasks, "completed", "cancelled")).items() >= {
            runs: "completed",
            asking: "cancelled",
        }.items()


async def test_the_oldest_in_the_queue_come_first_and_of_the_others_the_newest(clock: Clock) -> None:
    shared = shared_stores(clock)
    # The order of the keys is another one: owners come before times.
    ended = [*await make(shared, clock, 3, owner="z", is_over=True), *await make(shared, clock, 2, is_over=True)]
    call = stored_call()
    waiting = [*await make(shared, clock, 3, owner="z", call=call), *await make(shared, clock, 2, call=call)]
    tasks = FleetTasks(shared)
    assert list(await states(tasks)) == [*waiting, *reversed(ended)]
    for limit in range(1, 10):
        listing = await tasks.search(STATES, limit=limit)
        assert [task.id for task in listing.tasks] == [*waiting, *reversed(ended)][:limit]
        assert listing.is_cut is True
    assert (await tasks.search(STATES, limit=10)).is_cut is False


async def test_a_search_reads_records_only_where_it_must_and_at_most_so_many(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    await make(shared, clock, 20, is_over=True)
    waiting = await make(shared, clock, 5, call=stored_call())
    await make(shared, clock, 5, call=stored_call("other"), tool="other")
    tasks = FleetTasks(replica.stores)
    assert set(await states(tasks, "waiting", tool="again")) == set(waiting)
    assert replica.line.calls.count("get") == 5
    replica.line.calls.clear()
    assert (await tasks.search(limit=100)).is_cut is False
    assert replica.line.calls == ["places", "places", *["get"] * 10]
    monkeypatch.setattr(fleet_tasks, "_MOST_READ", 4)
    replica.line.calls.clear()
    listing = await tasks.search(limit=100)
    assert [task.id for task in listing.tasks] == waiting[:4]
    assert listing.is_cut is True
    assert replica.line.calls.count("get") == 4
    monkeypatch.setattr(fleet_tasks, "_PAGE", 7)
    assert [task.id for task in (await tasks.search(limit=100)).tasks] == waiting[:4]
    assert (await tasks.find(waiting[-1])).id == waiting[-1]


async def test_tasks_of_one_server_and_of_all(clock: Clock) -> None:
    shared = shared_stores(clock)
    mine = await make(shared, clock, 2, call=stored_call())
    tasks = FleetTasks(shared, "fleet")
    assert list(await states(tasks)) == list(await states(FleetTasks(shared))) == mine
    assert (await tasks.fleet()).counts.ready == {"again": 2}
    other = FleetTasks(shared, "another")
    assert await states(other) == {}
    assert (await other.fleet()).counts.ready == {}
    with pytest.raises(NoSuchTask):
        await other.find(mine[0])


@pytest.mark.parametrize("damaged", [b"{", b'{"id":"\xff"}', b"[" * 5000])
async def test_damaged_entries_are_left_out(damaged: bytes, clock: Clock) -> None:
    shared = shared_stores(clock)
    (made,) = await make(shared, clock, call=stored_call())
    (task,) = await shared.queue.waiting(0, 1)
    await shared.kv.put(task.key, damaged)
    tasks = FleetTasks(shared)
    assert await states(tasks) == {}
    with pytest.raises(TaskRefused, match="is damaged"):
        await tasks.find(made)
    await shared.kv.put("toolwire:dead-task2:x:1", damaged)
    await shared.kv.put("toolwire:task-replica2:x", damaged)
    assert await tasks.letters() == ([], False)
    assert await tasks.replicas() == []


# --- why a task waits ------------------------------------------------------------------------------------------------


async def test_why_a_task_waits(clock: Clock) -> None:
    shared = shared_stores(clock)
    tasks = FleetTasks(shared)

    async def why(identifier: str) -> str:
        return str((await tasks.describe(identifier))["why"])

    (orphaned,) = await make(shared, clock, call=stored_call())
    assert await why(orphaned) == "no replica of the server runs"
    lame = Replica(shared, without=("again",))
    async with lame.serving():
        assert await why(orphaned) == "no replica has the tool again, of 1 replica"
        busy = Replica(shared, limits=ONE_SLOT)
        async with busy.serving() as join, join(principal=ADA) as client, join(principal=EVE) as other:
            runs = await busy.server.kernel.stores.kv.keys("toolwire:task2:")
            assert len(runs) == 1, "it runs the task that waited"
            waits = await begin(client, "again", {"number": 2})
            stays = await begin(other, "staying", {"number": 3})
            await pass_time(clock, 6)
            assert await why(orphaned) == ""
            assert await why(waits) == "no slot is free in 1 replica with the tool"
            assert await why(stays) == "it stays in its process, which has no free slot for it"
            asking = Replica(shared)
            async with asking.serving() as there, there(principal=EVE) as asked:
                assert await why(waits) == ""
                question = await begin(asked, "asking", {"number": 4})
                await reaches(asked, question, "input_required")
                assert await why(question) == "the client has not answered"
                asking.die()
                while not (reason := await why(waits)):
                    await pass_time(clock, 0.25)
                assert reason == "backoff: 1 attempt lost, and the next begins in 1 second"
    (free,) = await make(shared, clock, call=stored_call())
    able = Description("p", short_name("fleet"), "fleet", "h", 1, (kind_of(short_name("fleet"), "again"),), 5, True)
    await shared.kv.put("toolwire:task-replica2:p", msgspec.json.encode(able))
    assert await why(free) == "no replica of the server runs", "a process without a lease has ended"
    await shared.queue.renew("p", 10)
    assert await why(free) == (
        "a replica has a free slot: the task is about to be taken, or its owner has its share of the slots"
    )


async def test_a_replica_describes_itself_for_as_long_as_it_lives(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, limits={"tasks_running": 7})
    async with replica.serving():
        (seen,) = await all_replicas(shared.kv)
        assert (seen.process, seen.name, seen.slots, seen.has_free_slot) == (
            await replica.tasks.process(),
            "fleet",
            7,
            True,
        )
        assert kind_of(short_name("fleet"), "again") in seen.kinds
        replica.server.remove("again")
        replica.line.calls.clear()
        await pass_time(clock, 60)
        (seen,) = await all_replicas(shared.kv)
        assert kind_of(short_name("fleet"), "again") not in seen.kinds
        assert replica.line.calls.count("put") == 1, "it is written when it changes"
        runtime_of(replica.server).drain()
        await pass_time(clock, 6)
        assert (await all_replicas(shared.kv))[0].has_free_slot is False
    assert await all_replicas(shared.kv) == []
    gone = Replica(shared)
    async with gone.serving():
        gone.die()
        await pass_time(clock, 31)
        assert await all_replicas(shared.kv) == []


async def test_a_full_store_has_no_room_for_descriptions_and_tasks_are_looked_after_all_the_same(clock: Clock) -> None:
    shared = shared_stores(clock, max_items=1)
    await shared.kv.put("full", b"")
    replica = Replica(shared)
    async with replica.serving():
        await pass_time(clock, 10)
        assert await all_replicas(shared.kv) == []
        assert replica.line.calls.count("stale") >= 2


# --- acting ----------------------------------------------------------------------------------------------------------


async def test_a_cancelled_task_stops_where_it_runs(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, limits=ONE_SLOT)
    tasks = FleetTasks(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        runs, waits = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        await replica.started.wait()
        assert (await tasks.cancel(waits)).state == "cancelled"
        assert (await tasks.cancel(runs)).state == "cancelled"
        await settled()
        assert replica.cancelled == [1], "a bell tells its process"
        assert {(await look(client, each))["status"] for each in (runs, waits)} == {"cancelled"}
        with pytest.raises(TaskRefused, match="has ended: it is cancelled"):
            await tasks.cancel(runs)
        with pytest.raises(NoSuchTask, match="There is no task 'unknown', or it has expired"):
            await tasks.cancel("unknown")
        with pytest.raises(TaskRefused, match="is no dead letter: it is cancelled"):
            await tasks.send_again(runs)
        with pytest.raises(NoSuchTask):
            await tasks.send_again("unknown")
    assert replica.ran == [("once", 1, 1)]


@pytest.mark.covers("FLT-16")
async def test_a_dead_letter_is_sent_again_as_a_task_of_the_same_owner(clock: Clock) -> None:
    shared = shared_stores(clock)
    limits = {"task": 200_000.0, "task_attempts": 1}
    watching = Replica(shared, without=("again",), limits=limits)
    tasks = FleetTasks(shared)
    async with watching.serving():
        first = Replica(shared, limits=limits)
        async with first.serving() as there, there(principal=ADA) as maker:
            task = await begin(maker, "again", {"number": 1})
            await first.started.wait()
            first.die()
            await pass_time(clock, 50)
        ((letter,), is_cut) = await tasks.letters()
        assert (letter.id, letter.attempts, is_cut) == (task, 1, False)
        assert await tasks.letters("once") == ([], False)
        described = await tasks.describe(task)
        assert (described["state"], described["isDeadLetter"]) == ("failed", True)
        assert (await tasks.fleet()).letters == 1
        await pass_time(clock, 400, 10)
        described = await tasks.describe(task)
        assert (described["state"], described["caller"]) == ("dead", {"subject": "ada", "provider": "tests"}), (
            "it has expired"
        )
        created = await tasks.send_again(task)
        (waiting,) = await shared.queue.waiting(0, 10)
        assert rules.decode(waiting.value).id == created
        with pytest.raises(NoSuchTask):
            await tasks.send_again(task)
    # It is kept by the limits of its server, and not by those of the program that sent it again.
    await clock.elapse(150_000)
    assert [task.key for task in await shared.queue.waiting(0, 10)] == [waiting.key]


async def test_a_letter_that_was_sent_again_runs_at_once(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    replica.go.set()
    tasks = FleetTasks(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        owner = (await tasks.find(await begin(client, "again", {"number": 1}))).shown(0.0)["owner"]
        record = rules.new_record(
            replica.tasks.records.new_id(clock.time()), 0.0, 60_000, 1, tool="again", call=stored_call()
        )
        await replica.tasks.letters.keep(replica.tasks.records.key(owner, record.id), record)
        created = await tasks.send_again(record.id)
        assert text_in(await outcome(client, created)) == "again 1 by nobody"


async def test_neither_secrets_nor_claims_are_shown(clock: Clock) -> None:
    shared = shared_stores(clock)
    principal = Raw(json.dumps({"subject": "ada", "provider": "p", "claims": {"email": "ada@claims.example"}}).encode())
    (made,) = await make(shared, clock, call=stored_call(arguments=SECRETS, principal=principal))
    tasks = FleetTasks(shared)
    described = await tasks.describe(made)
    assert described["arguments"] == dict.fromkeys(["number", "api_key", "inner"], "[redacted]")
    assert described["caller"] == {"subject": "ada", "provider": "p"}
    with_values = await tasks.describe(made, with_values=True)
    assert with_values["arguments"] == {
        "number": 1,
        "api_key": "[redacted]",
        "inner": {"password": "[redacted]", "plain": "text"},
    }
    assert "claims" not in json.dumps([described, with_values])


async def test_loser_of_two_retries_reads_that_the_letter_was_sent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(shared_stores(clock))
    letters, records = replica.tasks.letters, replica.tasks.records
    record = rules.new_record(records.new_id(clock.time()), 0.0, 60_000, 1, tool="again", call=stored_call())
    await letters.keep(records.key("ada", record.id), record)
    first, second = FleetTasks(replica.stores), FleetTasks(replica.stores)
    created: list[str] = []
    create = Records.create

    async def create_second(self: Records, key: str, made: rules.Record) -> bytes:
        monkeypatch.setattr(Records, "create", create)
        created.append(await first.send_again(record.id))
        made.created += 1.0  # Two equal records would count as one.
        return await create(self, key, made)

    monkeypatch.setattr(Records, "create", create_second)
    with pytest.raises(TaskRefused, match="is not a dead letter any more"):
        await second.send_again(record.id)
    assert len(created) == 1


async def test_a_letter_that_is_sent_twice_at_once_or_after_a_lost_answer_is_one_task(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    letters, records = replica.tasks.letters, replica.tasks.records
    for lost in ((), ("delete",), ("change",)):
        record = rules.new_record(records.new_id(clock.time()), 0.0, 60_000, 1, tool="again", call=stored_call())
        await letters.keep(records.key("ada", record.id), record)
        replica.line.lost_answers.update(lost)
        first = await asyncio.gather(
            *(FleetTasks(replica.stores).send_again(record.id) for _ in range(2)), return_exceptions=True
        )
        with contextlib.suppress(NoSuchTask):
            await FleetTasks(replica.stores).send_again(record.id)
        (task,) = await shared.queue.waiting(0, 10)
        assert {each for each in first if isinstance(each, str)} <= {rules.decode(task.value).id}
        assert await letters.all() == []
        await shared.kv.delete(task.key)
        await clock.elapse(1)
