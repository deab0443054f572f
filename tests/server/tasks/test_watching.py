"""Processes look after each other's tasks: nobody who lives is taken for dead, and nothing of the dead is forgotten."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec import Raw
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, LEASE, Replica, find_record, pass_time, settled, shared_stores
from tests.server.tasks.talking import answer, begin, look, outcome, reaches, status_of, text_in

from toolwire import Context
from toolwire.protocol import tasks as rules
from toolwire.server.tasks import recovery
from toolwire.stores import Held, Ready, Stores, Task
from toolwire.wire import process_identity
from toolwire.wire.process_lease import LOOKS_PER_LEASE

GONE = "The server lost contact with the process that ran this task; the task may have run"
LONG = {"state": 3600.0}


# --- those who live --------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-6")
@pytest.mark.parametrize("seconds", [5, 28, 40, 120, 600])
async def test_an_outage_of_the_store_ends_no_lease(seconds: int, clock: Clock) -> None:
    """Nobody renews while the store is away. Those who come back first find the others unrenewed, and wait."""
    shared = shared_stores(clock)
    replicas = [Replica(shared) for _ in range(3)]
    one, two, three = replicas
    async with (
        one.serving() as a,
        two.serving() as b,
        three.serving() as c,
        a(principal=ADA) as first,
        b(principal=ADA) as second,
        c(principal=ADA) as third,
    ):
        tasks = [
            (client, await begin(client, tool, {"number": number}))
            for number, (client, tool) in enumerate(itertools.product((first, second, third), ("once", "again")))
        ]
        for replica in replicas:
            replica.line.is_cut = True
        await pass_time(clock, seconds, 2.5)
        one.line.is_cut = False
        await pass_time(clock, 10)
        two.line.is_cut = three.line.is_cut = False
        await pass_time(clock, 60)
        for replica in replicas:
            replica.go.set()
        for client, task in tasks:
            await reaches(client, task, "completed")
    assert sorted(each for replica in replicas for each in replica.ran) == sorted(
        (tool, number, 1) for number, (_, tool) in enumerate(itertools.product(range(3), ("once", "again")))
    )
    assert all(replica.cancelled == [] for replica in replicas)


@pytest.mark.covers("FLT-4")
@pytest.mark.parametrize("jump", [27.0, 60.0, 3600.0, -60.0])
async def test_a_clock_that_jumps_ends_no_lease(jump: float, clock: Clock) -> None:
    shared = shared_stores(clock)
    one, two = Replica(shared), Replica(shared)
    async with one.serving() as a, two.serving() as b, a(principal=ADA) as first, b(principal=ADA) as second:
        tasks = [
            (first, await begin(first, "once", {"number": 1})),
            (second, await begin(second, "once", {"number": 2})),
        ]
        clock._now += jump  # The clock of the store, and not the time that passes.
        await pass_time(clock, 60)
        for replica in (one, two):
            replica.go.set()
        for client, task in tasks:
            await reaches(client, task, "completed")
    assert (one.ran, two.ran) == ([("once", 1, 1)], [("once", 2, 1)])


@pytest.mark.covers("FLT-6")
async def test_a_watcher_that_stood_still_ends_no_lease(clock: Clock) -> None:
    """Its loop was held: what it saw before and what it sees now are too far apart to say anything."""
    shared = shared_stores(clock)
    living, held = Replica(shared), Replica(shared)
    async with living.serving() as join, held.serving(), join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        living.line.is_cut = True
        await pass_time(clock, 18)
        await clock.elapse(45)
        living.line.is_cut = False
        await pass_time(clock, 20)
        living.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert (living.ran, held.ran) == ([("once", 1, 1)], [])


# --- those who are gone ----------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-8")
async def test_the_tasks_of_a_process_that_is_gone_are_run_again_or_have_failed(clock: Clock) -> None:
    """Any process that lives does it, without a new one being started: a fleet that shrinks loses nothing."""
    shared = shared_stores(clock)
    dying, alive = Replica(shared), Replica(shared)
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            lost = await begin(there, "once", {"number": 1})
            kept = await begin(there, "again", {"number": 2})
            stayed = await begin(there, "staying", {"number": 3})
            await settled()
        dying.die()
        await pass_time(clock, 2 * LEASE - 5)
        assert [await status_of(client, task) for task in (lost, kept, stayed)] == ["working"] * 3
        await pass_time(clock, 20)
        for task in (lost, stayed):
            shown = await look(client, task)
            assert (shown["status"], shown["statusMessage"]) == ("failed", GONE)
        await alive.started.wait()
        alive.go.set()
        assert text_in(await outcome(client, kept)) == "again 2 by ada"
        assert alive.ran == [("again", 2, 2)], "the second attempt, and nothing else"
        assert (alive.tasks.counts.retried, alive.tasks.counts.leases_lost) == (1, 1)


async def test_task_that_cannot_be_looked_after_stops_no_other(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared, lose_lease = shared_stores(clock), rules.lose_lease
    dying, alive = Replica(shared), Replica(shared)
    alive.go.set()
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            odd = await begin(there, "again", {"number": 1})
            kept = await begin(there, "again", {"number": 2})
            await settled()

        def lose(record: rules.Record, *given: Any, **named: Any) -> rules.Loss:
            if record.id == odd:
                raise RuntimeError("an odd record")
            return lose_lease(record, *given, **named)

        monkeypatch.setattr(rules, "lose_lease", lose)
        dying.die()
        await pass_time(clock, 2 * LEASE + 15)
        assert text_in(await outcome(client, kept)) == "again 2 by ada"
        assert await status_of(client, odd) == "working"
        assert f"the task {odd} is left to the next look" in caplog.text


async def test_tasks_that_waited_in_a_process_that_is_gone_are_accounted_for(clock: Clock) -> None:
    shared = shared_stores(clock)
    dying, alive = Replica(shared, limits={"tasks_running": 1}), Replica(shared, without=("once",))
    alive.go.set()
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            await begin(there, "once", {"number": 1})
            stayed = await begin(there, "staying", {"number": 2})
            queued = await begin(there, "again", {"number": 3})
            await settled()
        dying.die()
        assert text_in(await outcome(client, queued)) == "again 3 by ada", "others need not wait for its end"
        await pass_time(clock, 50)
        shown = await look(client, stayed)
        assert (shown["status"], shown["statusMessage"]) == (
            "failed",
            "The server lost contact with the process that was to run this task",
        )
        assert alive.ran == [("again", 3, 1)]


async def test_answers_given_before_the_end_are_not_asked_for_again(clock: Clock) -> None:
    shared = shared_stores(clock)

    def replica() -> Replica:
        made = Replica(shared)

        @made.server.tool(task="optional", annotations={"idempotentHint": True})
        async def two_questions(ctx: Context) -> str:
            first = await ctx.elicit("First?", str, key="first")
            second = await ctx.elicit("Second?", str, key="second")
            return f"{first.data} {second.data} {ctx.attempt}"

        return made

    dying, alive = replica(), replica()
    async with dying.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            task = await begin(there, "two_questions")
            await reaches(there, task, "input_required")
            await answer(there, task, first="one")
            while "second" not in (await look(there, task)).get("inputRequests", {}):
                await asyncio.sleep(0)
        dying.die()
        error = await client.error("tasks/cancel", {"taskId": "never was"})
        assert error["code"] == -32602
        await pass_time(clock, 60)
        await reaches(client, task, "input_required")
        assert list((await look(client, task))["inputRequests"]) == ["second"]
        await answer(client, task, second="two")
        assert text_in(await outcome(client, task)) == "one two 2"


@pytest.mark.covers("FLT-8")
async def test_each_attempt_waits_longer_and_the_last_leaves_a_dead_letter(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    watching = Replica(shared, without=("again",))
    ran: list[int] = []
    delays: list[float] = []
    change = shared.queue.change

    async def noted(*given: Any, **named: Any) -> bytes | None:
        if isinstance(named["place"], Ready):
            delays.append(named["place"].delay)
        return await change(*given, **named)

    monkeypatch.setattr(shared.queue, "change", noted)
    async with watching.serving():
        first = Replica(shared)
        async with first.serving() as there:
            async with there(principal=ADA) as maker:
                task = await begin(maker, "again", {"number": 1})
            await first.started.wait()
            first.die()
            await pass_time(clock, 50)
        for _ in range(2):
            assert (await find_record(watching, task)).status == "working"
            replica = Replica(shared)
            async with replica.serving():
                await pass_time(clock, 6)
                ran += [attempt for _, _, attempt in replica.ran]
                replica.die()
                await pass_time(clock, 50)
        shown = await find_record(watching, task)
        assert ran == [2, 3]
        assert delays == [1.0, 2.0]
        assert (shown.status, shown.message) == (
            "failed",
            "The server lost contact with 3 processes that ran this task; the task may have run",
        )
        (letter,) = await watching.server.tasks.dead_letters()
        assert (letter.id, letter.tool, letter.attempts) == (task, "again", 3)
        assert json.loads(bytes(letter.call.params))["arguments"] == {"number": 1}
        assert watching.tasks.counts.dead == 1
        # Sent again, it is a new task of the same owner.
        new = await watching.server.tasks.send_again(letter)
        assert new is not None
        assert (new.id != task, (await find_record(watching, new.id)).status) == (True, "working")
        assert await watching.server.tasks.dead_letters() == []
        assert await watching.server.tasks.send_again(letter) is None, "once"
        able = Replica(shared)
        able.go.set()
        async with able.serving() as there, there(principal=ADA) as client:
            assert text_in(await outcome(client, new.id)) == "again 1 by ada"
        assert able.ran == [("again", 1, 1)]


@pytest.mark.covers("FLT-8")
async def test_neither_errors_nor_tasks_that_were_handed_back_count_as_attempts(clock: Clock) -> None:
    shared = shared_stores(clock)
    watching = Replica(shared, without=("again",))
    async with watching.serving():
        task = ""
        for _ in range(5):
            replica = Replica(shared)
            async with replica.serving() as there:
                if not task:
                    async with there(principal=ADA) as maker:
                        task = await begin(maker, "again", {"number": 1})
                await pass_time(clock, 6)
                assert replica.ran == [("again", 1, 1)]
            assert (await find_record(watching, task)).status == "working"


@pytest.mark.covers("FLT-16")
async def test_dead_letters_are_bounded_by_number_and_age(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, limits={"tasks_dead": 3, "task_dead_ttl": 1000.0})
    async with replica.serving():
        letters, made = replica.tasks.letters, []
        call = rules.StoredCall(params=Raw(b"{}"), revision="2026-07-28", kind="again", idempotent=True)
        for _ in range(5):
            record = rules.new_record(replica.tasks.records.new_id(clock.time()), 0.0, 1, 1, tool="again", call=call)
            made.append(record.id)
            for _ in range(2):
                await letters.keep(replica.tasks.records.key("ada", record.id), record)
            await pass_time(clock, 1)
        assert [letter.id for letter in await letters.all()] == made[2:]
        await pass_time(clock, 1000, 250)
        assert await letters.all() == []


@pytest.mark.covers("FLT-25")
async def test_a_takeover_is_done_in_few_steps(clock: Clock) -> None:
    """The start of a process waits for no takeover, and its lease is renewed meanwhile."""
    shared = shared_stores(clock)
    dead = Replica(shared)
    async with dead.serving():
        name = await dead.tasks.process()
        await make_tasks(shared, dead, name, 1000)
        dead.die()
        await shared.queue.release(name)
        alive = Replica(shared)
        await alive.tasks.ready()
        assert "orphans" not in alive.line.calls
        async with alive.serving():
            while (await shared.queue.counts()).orphans:
                await asyncio.sleep(0)
            await settled()
            assert alive.line.calls.count("orphans") == 6, "in batches"
            assert alive.line.calls.count("get") == 0, "no record is read by itself"
            assert alive.line.calls.count("change") == 1000
            await alive.tasks.stop()


async def make_tasks(shared: Stores, replica: Replica, process: str, count: int) -> None:
    records = replica.tasks.records
    for _ in range(count):
        record = rules.new_record(records.new_id(0.0), 0.0, 60_000, 1000, tool="once", process=process, begun=True)
        await records.create(records.key("ada", record.id), record)


async def test_processes_of_the_same_machine_know_sooner_who_has_ended(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart does not wait for two leases: the number and the start of a process say that it is gone."""
    shared = shared_stores(clock)
    killed, after = Replica(shared), Replica(shared)
    after.go.set()
    async with killed.serving() as a:
        async with a(principal=ADA) as there:
            task = await begin(there, "again", {"number": 1})
        await killed.started.wait()
        gone = (await killed.tasks.process()).rpartition("/")[0]
        killed.die()
        monkeypatch.setattr(process_identity, "is_gone", lambda identity: identity == gone)
        machine = process_identity.own_machine()
        monkeypatch.setattr(process_identity, "own_identity", lambda: f"{machine}/1/2")
        async with after.serving() as b, b(principal=ADA) as client:
            await pass_time(clock, LEASE + 2)
            assert text_in(await outcome(client, task)) == "again 1 by ada"
            assert after.tasks.counts.leases_lost == 1
        monkeypatch.undo()


async def test_a_process_of_a_machine_from_the_same_snapshot_keeps_its_lease(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both machines have one name, and the number of the process is free on the machine that looks."""
    shared = shared_stores(clock)
    there, here = Replica(shared), Replica(shared)
    async with there.serving() as a, here.serving() as b, a(principal=ADA) as client, b(principal=ADA) as other:
        task = await begin(client, "once", {"number": 1})
        await begin(other, "once", {"number": 2})
        far = (await there.tasks.process()).rpartition("/")[0]
        monkeypatch.setattr(process_identity, "is_gone", lambda identity: identity == far)
        monkeypatch.setattr(process_identity, "own_machine", lambda: far.partition("/")[0])
        await pass_time(clock, 4 * LEASE)
        there.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        monkeypatch.undo()
        here.go.set()


# --- fencing ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-9")
async def test_an_attempt_that_lost_its_lease_writes_nothing(clock: Clock) -> None:
    """A process that was cut off for long, and comes back with a result when another has run the task."""
    shared = shared_stores(clock)
    slow, fast = Replica(shared), Replica(shared)
    async with slow.serving() as a, fast.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            task = await begin(there, "again", {"number": 1})
        await slow.started.wait()
        (run,) = [each for each in slow.tasks.following.all() if each.id == task]
        slow.line.is_cut = True
        slow.go.set()
        await pass_time(clock, 50)
        await fast.started.wait()
        slow.line.is_cut = False
        await pass_time(clock, 15)
        assert await status_of(client, task) == "working", "the result of the first attempt is not taken"
        assert run.worker.done()  # type: ignore[attr-defined]
        fast.go.set()
        assert text_in(await outcome(client, task)) == "again 1 by ada"
        assert (slow.ran, fast.ran) == ([("again", 1, 1)], [("again", 1, 2)])


@pytest.mark.covers("FLT-5")
async def test_a_process_that_lost_its_lease_ends_its_handlers_and_goes_on_under_another_name(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        await replica.started.wait()
        before = await replica.tasks.process()
        ((name, renewal),) = await shared.queue.leases()
        assert name == before
        assert await shared.queue.bury(name, renewal)
        await pass_time(clock, 12)
        assert replica.cancelled == [1]
        assert (await look(client, task))["statusMessage"] == GONE
        assert await replica.tasks.process() != before
        replica.go.set()
        assert text_in(await outcome(client, await begin(client, "once", {"number": 2}))) == "once 2 by ada"


async def test_a_client_that_changes_an_orphan_is_asked_to_try_again(clock: Clock) -> None:
    shared = shared_stores(clock)
    dead, alive = Replica(shared), Replica(shared)
    async with dead.serving() as a, alive.serving() as b, b(principal=ADA) as client:
        async with a(principal=ADA) as there:
            task = await begin(there, "asking", {"number": 1})
            await reaches(there, task, "input_required")
        dead.die()
        await shared.queue.release(await dead.tasks.process())
        answers = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        error = await client.error("tasks/update", {"taskId": task, "inputResponses": answers})
        assert error["message"].endswith("try again in a moment")


# --- tasks that nobody takes -----------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-15")
async def test_a_task_that_nobody_starts_in_time_fails_and_says_why(clock: Clock) -> None:
    shared = shared_stores(clock)
    limits = {"tasks_running": 1, "task_wait": 600.0}
    full, lacking = Replica(shared, limits=limits), Replica(shared, limits=limits, without=("again", "once"))
    async with full.serving() as join, lacking.serving(), join(principal=ADA) as client:
        await begin(client, "once", {"number": 0})
        queued = await begin(client, "once", {"number": 1})
        unknown = await begin(client, "again", {"number": 2})
        await settled()
        full.server.remove("again")
        await pass_time(clock, 590, 5)
        assert [(await find_record(full, task)).status for task in (queued, unknown)] == ["working", "working"]
        await pass_time(clock, 20)
        shown = await look(client, queued)
        assert (shown["status"], shown["statusMessage"]) == (
            "failed",
            "The server had no slot for this task within 600 seconds",
        )
        assert (await find_record(full, unknown)).status == "working", "perhaps another replica has its tool"
        await pass_time(clock, 60, 5)
        record = await find_record(full, unknown)
        assert (record.status, record.message) == (
            "failed",
            "No server process that has the tool again took this task within 600 seconds",
        )
        full.go.set()


async def test_task_waits_by_the_limit_of_the_process_that_accepted_it(clock: Clock) -> None:
    shared = shared_stores(clock)
    patient = Replica(shared, limits={"tasks_running": 1, "task_wait": 3600.0})
    hasty = Replica(shared, limits={"task_wait": 10.0}, without=("once",))
    async with patient.serving() as join, hasty.serving(), join(principal=ADA) as client:
        await begin(client, "once", {"number": 0})
        queued = await begin(client, "once", {"number": 1})
        await pass_time(clock, 300, 5)
        assert await status_of(client, queued) == "working"
        patient.go.set()
        assert text_in(await outcome(client, queued)) == "once 1 by ada"


async def test_task_is_run_again_by_the_limit_of_the_process_that_accepted_it(clock: Clock) -> None:
    shared = shared_stores(clock)
    patient, hasty = Replica(shared), Replica(shared, limits={"task_attempts": 1}, without=("again",))
    async with hasty.serving():
        async with patient.serving() as there:
            async with there(principal=ADA) as maker:
                task = await begin(maker, "again", {"number": 1})
            await patient.started.wait()
            patient.die()
            await pass_time(clock, 50)
        assert (await find_record(hasty, task)).status == "working"
        able = Replica(shared)
        able.go.set()
        async with able.serving() as there, there(principal=ADA) as client:
            await pass_time(clock, 6)
            assert text_in(await outcome(client, task)) == "again 1 by ada"


async def test_a_record_of_a_process_that_is_gone_may_be_unreadable(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    await shared.queue.renew("gone", 5.0)
    await shared.queue.change("toolwire:task2:s:o:i", b"\x00", ttl=60.0, expect=None, place=Held("gone"))
    await shared.queue.release("gone")
    assert await shared.queue.orphans(10) == [Task("toolwire:task2:s:o:i", b"\x00", "gone")]
    async with replica.serving():
        await pass_time(clock, 6)
        assert await shared.queue.orphans(10) == []
        data = await shared.kv.get("toolwire:task2:s:o:i")
        assert data is not None and rules.decode(data).status == "failed"


@pytest.mark.covers("FLT-19")
async def test_records_of_the_version_before_are_left_alone(clock: Clock) -> None:
    """In a rolling upgrade processes of both versions share a store, and each looks after its own tasks."""
    shared = shared_stores(clock)
    replica = Replica(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        key = next(iter(replica.tasks.following.held_keys()))
        record = await shared.kv.get(key)
        assert record is not None
        before = key.replace("toolwire:task2:", "toolwire:task:").replace(task, "of-the-version-before")
        await shared.kv.put(before, record.replace(task.encode(), b"of-the-version-before"), ttl=3600.0)
        written = await shared.kv.get(before)
        await pass_time(clock, 60, 5)
        error = await client.error("tasks/get", {"taskId": "of-the-version-before"})
        assert error["code"] == -32602
        replica.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
    assert await shared.kv.get(before) == written


# --- tasks that a process does not know of ---------------------------------------------------------------------------


@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("tool", ["again", "once"])
async def test_an_end_that_the_store_has_lost_is_written_again(tool: str, is_known: bool, clock: Clock) -> None:
    """A failover lost the last writes: the store says that a process holds a task which the process has ended.

    A process that has dropped the end runs the task again, as the same attempt, or says that it may have run.
    """
    shared = shared_stores(clock)
    replica = Replica(shared)
    replica.go.set()
    async with replica.serving() as join, join(principal=ADA) as client:
        running = await begin(client, "reporting", {"number": 1})
        key = next(iter(replica.tasks.following.held_keys()))
        process = await replica.tasks.process()
        task = await begin(client, tool, {"number": 2})
        key = key.replace(running, task)
        before = await shared.kv.get(key)
        assert before is not None
        await reaches(client, task, "completed")
        after = await shared.kv.get(key)
        assert await shared.queue.change(key, before, ttl=600.0, expect=after, place=Held(process)) is None
        if not is_known:
            replica.tasks.records.drop_recent_end(key)
        await pass_time(clock, 30)
        shown = await look(client, task)
        is_failed = tool == "once" and not is_known
        assert (shown["status"], shown.get("statusMessage")) == (("failed", GONE) if is_failed else ("completed", None))
        assert replica.ran.count((tool, 2, 1)) == (2 if tool == "again" and not is_known else 1)
        stored = await shared.kv.get(key)
        assert stored is not None
        assert rules.decode(stored).status == shown["status"]


@pytest.mark.covers("FLT-9")
async def test_a_handler_whose_task_a_failover_gave_to_another_process_ends(clock: Clock) -> None:
    """The process hears that messages were lost while it does not reach the store, and has to look again later."""
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)
    async with here.serving() as a, there.serving() as b, a(principal=ADA) as client, b(principal=ADA):
        await begin(client, "again", {"number": 1})
        await here.started.wait()
        key = next(iter(here.tasks.following.held_keys()))
        before = await shared.kv.get(key)
        assert before is not None
        record = rules.decode(before)
        record.process = other = await there.tasks.process()
        after = rules.encode(record)
        assert await shared.queue.change(key, after, ttl=600.0, expect=before, place=Held(other)) is None
        here.line.is_cut = True
        here.tasks.following.missed()
        await settled()
        assert here.cancelled == []
        here.line.is_cut = False
        await pass_time(clock, 6)
        assert here.cancelled == [1]


@pytest.mark.parametrize("number", [1, 40])
async def test_what_a_process_holds_is_counted_and_not_named(
    number: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys are named page by page when the store has more tasks of the process than it knows of."""
    monkeypatch.setattr(recovery, "_HELD_AT_ONCE", 10)
    shared = shared_stores(clock)
    replica = Replica(shared)
    asked: list[int] = []
    held = shared.queue.held

    async def counted(process: str, *, after: str = "", limit: int = 1000) -> tuple[int, list[str]]:
        asked.append(limit)
        return await held(process, after=after, limit=limit)

    monkeypatch.setattr(shared.queue, "held", counted)
    async with replica.serving() as join, join(principal=ADA) as client:
        tasks = [await begin(client, "once", {"number": each}) for each in range(number)]
        await pass_time(clock, 2 * LEASE)
        asked.clear()
        await pass_time(clock, 4 * LEASE)
        assert asked == [0] * 4
        # A failover of the store has lost the write of an end.
        process = replica.tasks.bells.process
        lost = replica.tasks.records.key("ada", "0")
        record = rules.new_record("0", clock.time(), 600_000, 1000, tool="once", process=process, begun=True)
        await shared.queue.change(lost, rules.encode(record), ttl=600.0, expect=None, place=Held(process, "once"))
        await pass_time(clock, LEASE)
        assert asked == [0] * 5 + [10] * (1 + (number + 1) // 10)
        found = await replica.tasks.records.find(lost)
        assert found is not None
        assert (found.status, found.message) == ("failed", GONE)
        assert {await status_of(client, task) for task in tasks} == {"working"}
        replica.go.set()
        assert text_in(await outcome(client, tasks[0])) == "once 0 by ada"


async def test_the_answer_to_a_take_that_is_under_way_is_waited_for(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits={"tasks_running": 1}), Replica(shared)
    free.go.set()
    slow = asyncio.Event()
    take = shared.queue.take

    async def slowly(*given: Any, **named: Any) -> list[Task]:
        taken = await take(*given, **named)
        if taken:
            await slow.wait()
        return taken

    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        first = await begin(client, "once", {"number": 1})
        shared.queue.take = slowly  # type: ignore[method-assign]
        second = await begin(client, "once", {"number": 2})
        free.tasks.doubt()
        await pass_time(clock, 3 * LEASE)
        assert await status_of(client, second) == "working"
        slow.set()
        assert text_in(await outcome(client, second)) == "once 2 by ada"
        assert free.ran == [("once", 2, 1)]
        full.go.set()
        assert text_in(await outcome(client, first)) == "once 1 by ada"


async def test_a_process_asks_the_store_as_often_whatever_the_number_of_the_others(clock: Clock) -> None:
    asked: list[Counter[str]] = []
    for others in (1, 12):
        shared = shared_stores(clock)
        replica = Replica(shared)
        async with AsyncExitStack() as stack:
            for each in [replica, *(Replica(shared) for _ in range(others))]:
                await stack.enter_async_context(each.serving())
            await pass_time(clock, 2 * LEASE)
            replica.line.calls.clear()
            await pass_time(clock, 4 * LEASE)
            asked.append(Counter(replica.line.calls))
    assert asked[0] == asked[1]
    assert asked[0]["stale"] == 4 * LOOKS_PER_LEASE


async def test_tasks_that_a_process_runs_are_not_taken_for_lost(clock: Clock) -> None:
    replica = Replica(shared_stores(clock))
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        replica.tasks.doubt()
        await pass_time(clock, 60, 5)
        replica.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
