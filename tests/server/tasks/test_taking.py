"""Tasks that wait are taken by processes that have a free slot and the tool; each begins where its record says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runtimes import runtime_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, EVE, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import CORE, RELATED, begin, look, outcome, reaches, status_of, text_in
from tests.wireclient import MODERN

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.stores import Held, Ready, Stores, Task

FULL = {"tasks_running": 1}


async def fill(client: Any, replica: Replica) -> str:
    """Take the only slot of a replica."""
    task = await begin(client, "once", {"number": 0})
    await replica.started.wait()
    return task


@pytest.mark.parametrize("revision", [CORE, MODERN])
async def test_a_task_runs_where_a_slot_is_free(revision: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    free.go.set()
    async with full.serving(revision) as join, free.serving(revision), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "once", {"number": 1})
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert (full.ran, free.ran) == ([("once", 0, 1)], [("once", 1, 1)])
        full.go.set()


@pytest.mark.covers("FLT-3")
async def test_a_replica_takes_no_more_than_it_has_slots_for(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, small = Replica(shared, limits=FULL), Replica(shared, limits={"tasks_running": 2, "share": 1.0})
    async with full.serving() as join, small.serving(), join(principal=ADA) as client:
        await fill(client, full)
        tasks = [await begin(client, "once", {"number": number}) for number in range(1, 6)]
        await settled()
        assert [number for _, number, _ in small.ran] == [1, 2]
        small.go.set()
        for task in tasks:
            await reaches(client, task, "completed")
        assert [number for _, number, _ in small.ran] == [1, 2, 3, 4, 5]
        full.go.set()


@pytest.mark.covers("FLT-3")
async def test_a_replica_takes_only_tasks_of_tools_that_it_has(clock: Clock) -> None:
    """A rolling upgrade: some replicas have a tool that others do not have yet."""
    shared = shared_stores(clock)
    full, without = Replica(shared, limits=FULL), Replica(shared, without=("again",))
    async with full.serving() as join, without.serving(), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "again", {"number": 1})
        await pass_time(clock, 60, 5)
        assert (await status_of(client, task), without.ran) == ("working", [])
        late = Replica(shared)
        late.go.set()
        async with late.serving():
            assert text_in(await outcome(client, task)) == "again 1 by ada"
        full.go.set()


async def test_a_tool_that_is_added_later_has_its_tasks_run(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, late = Replica(shared, limits=FULL), Replica(shared, without=("again",))
    async with full.serving() as join, late.serving(), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "again", {"number": 1})
        await settled()

        async def again(number: int) -> str:
            return f"added {number}"

        late.server.tool(task="optional", annotations={"idempotentHint": True})(again)
        await pass_time(clock, 6)
        assert text_in(await outcome(client, task)) == "added 1"
        full.go.set()


@pytest.mark.covers("FLT-2")
async def test_owners_take_turns(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits={**FULL, "share": 1.0}), Replica(shared, limits={**FULL, "share": 1.0})
    free.go.set()
    async with full.serving() as join, join(principal=ADA) as ada, join(principal=EVE) as eve:
        await fill(ada, full)
        tasks = [(ada, await begin(ada, "once", {"number": number})) for number in range(1, 4)]
        tasks += [(eve, await begin(eve, "once", {"number": number})) for number in range(4, 6)]
        async with free.serving():
            for client, task in tasks:
                await reaches(client, task, "completed")
        assert [number for _, number, _ in free.ran] == [1, 4, 2, 5, 3]
        full.go.set()


async def test_one_caller_takes_its_share_of_the_slots_also_by_way_of_the_queue(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared, limits={"tasks_running": 4, "share": 0.5})
    async with full.serving() as join, free.serving(), join(principal=ADA) as ada, join(principal=EVE) as eve:
        await fill(ada, full)
        mine = [await begin(ada, "once", {"number": number}) for number in range(1, 5)]
        await settled()
        assert [number for _, number, _ in free.ran] == [1, 2], "two of four slots are left for others"
        await begin(eve, "once", {"number": 9})
        await settled()
        assert [number for _, number, _ in free.ran] == [1, 2, 9]
        free.go.set()
        for task in mine:
            await reaches(ada, task, "completed")
        full.go.set()


# --- a take that is under way ----------------------------------------------------------------------------------------

TWO = {"tasks_running": 2, "share": 1.0}


async def free_slots_during_take(client: Any, replica: Replica, tasks: list[str]) -> asyncio.Event:
    """End tasks so that one slot is for a take that is under way, and one is free. Return the event that ends it."""
    gate = replica.line.gates["take"] = asyncio.Event()
    for task in tasks:
        await client.result("tasks/cancel", {"taskId": task})
        await settled()
    assert replica.tasks.slots.free == 1
    return gate


@pytest.mark.covers("FLT-45")
@pytest.mark.parametrize("is_accepted_here", [True, False])
async def test_no_call_overtakes_waiting_tasks_of_its_owner(is_accepted_here: bool, clock: Clock) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared, limits=TWO), Replica(shared, limits=FULL)
    async with here.serving() as join, there.serving() as join_there, join(principal=ADA) as ada:
        running = [await begin(ada, "once", {"number": number}) for number in (1, 2)]
        async with join_there(principal=ADA) as other:
            await fill(other, there)
            accepting = ada if is_accepted_here else other
            waiting = [await begin(accepting, "once", {"number": number}) for number in (3, 4)]
            gate = await free_slots_during_take(ada, here, running)
            late = asyncio.create_task(begin(ada, "once", {"number": 5}))
            await settled()
            assert [number for _, number, _ in here.ran] == [1, 2]
            gate.set()
            await settled()
            assert [number for _, number, _ in here.ran] == [1, 2, 3, 4]
            here.go.set()
            for task in (*waiting, await late):
                await reaches(ada, task, "completed")
            assert [number for _, number, _ in here.ran] == [1, 2, 3, 4, 5]
            there.go.set()


async def test_call_starts_at_once_when_a_take_finds_nothing(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits=TWO)
    async with replica.serving() as join, join(principal=ADA) as client:
        running = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        replica.tasks.may_take()
        gate = await free_slots_during_take(client, replica, running)
        late = asyncio.create_task(begin(client, "once", {"number": 3}))
        await settled()
        gate.set()
        task = await late
        assert "statusMessage" not in await look(client, task), "it never waited in the queue"
        assert replica.ran[-1] == ("once", 3, 1)
        replica.go.set()


async def test_call_starts_when_a_take_fails(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits=TWO)
    async with replica.serving() as join, join(principal=ADA) as client:
        running = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        replica.tasks.may_take()
        gate = await free_slots_during_take(client, replica, running)
        late = client.start("tools/call", {"name": "once", "arguments": {"number": 3}})
        await settled()
        assert not late.done()
        replica.line.lost_answers.add("take")
        gate.set()
        await late
        replica.go.set()
        await settled()
        assert replica.ran[-1] == ("once", 3, 1)


# --- beginning -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-7")
@pytest.mark.parametrize("waits", [False, True])
async def test_the_beginning_is_written_before_the_first_line_of_the_handler(waits: bool, clock: Clock) -> None:
    shared, seen = shared_stores(clock), []
    replica = Replica(shared, limits=FULL if waits else {})

    @replica.server.tool(task="optional")
    async def looking() -> str:
        for key in await shared.kv.keys("toolwire:task2:"):
            record = rules.decode(await shared.kv.get(key) or b"")
            if record.tool == "looking":
                seen.append((record.begun, record.process == replica.tasks._lease.name))
        return "looked"

    async with replica.serving() as join, join(principal=ADA) as client:
        if waits:
            await fill(client, replica)
        task = await begin(client, "looking")
        replica.go.set()
        assert text_in(await outcome(client, task)) == "looked"
    assert seen == [(True, True)]


@pytest.mark.covers("FLT-7")
async def test_a_task_begins_only_when_the_store_says_so(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    free.go.set()
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        free.line.lost_answers.add("take")
        task = await begin(client, "once", {"number": 1})
        await settled()
        assert free.ran == [], "the answer that gave it the task was lost"
        await pass_time(clock, 6)
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        free.line.lost_answers.add("change")
        task = await begin(client, "once", {"number": 2})
        await pass_time(clock, 6)
        assert text_in(await outcome(client, task)) == "once 2 by ada"
        assert free.ran == [("once", 1, 1), ("once", 2, 1)], "each once"
        full.go.set()


@pytest.mark.covers("FLT-7")
async def test_a_task_that_was_taken_and_not_begun_goes_to_anybody(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, dying, alive = Replica(shared, limits=FULL), Replica(shared), Replica(shared)
    alive.go.set()
    async with full.serving() as join, dying.serving(), join(principal=ADA) as client:
        await fill(client, full)
        dying.line.lost_answers.add("take")
        task = await begin(client, "once", {"number": 1})
        await settled()
        dying.die()
        async with alive.serving():
            await pass_time(clock, 60)
            assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert (dying.ran, alive.ran) == ([], [("once", 1, 1)]), "it is still its first attempt"
        full.go.set()


async def test_a_task_that_is_cancelled_while_it_is_taken_never_begins(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        free.line.lost_answers.add("take")
        task = await begin(client, "once", {"number": 1})
        await settled()
        await client.result("tasks/cancel", {"taskId": task})
        await pass_time(clock, 6)
        assert (await status_of(client, task), free.ran) == ("cancelled", [])
        assert free.tasks.slots.running == 0
        full.go.set()


async def while_taking(shared: Stores, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any], *, reads: bool) -> None:
    """Act once, after tasks were taken; `reads`: before their records are read, as Redis does in a second step."""
    take, has_acted = shared.queue.take, False

    async def slowly(*given: Any, **named: Any) -> list[Task]:
        nonlocal has_acted
        taken = await take(*given, **named)
        if not taken or has_acted:
            return taken
        has_acted = True
        await act()
        values = [await shared.kv.get(each.key) for each in taken]
        return [each._replace(value=value) for each, value in zip(taken, values, strict=True)] if reads else taken

    monkeypatch.setattr(shared.queue, "take", slowly)


@pytest.mark.parametrize("drains", [False, True])
@pytest.mark.parametrize("reads", [True, False])
async def test_task_that_is_cancelled_between_two_steps_of_taking_is_left_alone(
    reads: bool, drains: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared, limits={"tasks_running": 2, "share": 0.5})
    async with full.serving() as join, join(principal=ADA) as client:
        await fill(client, full)
        # The second has no slot after all, and is handed back.
        tasks = [await begin(client, "once", {"number": number}) for number in (1, 2)]

        async def cancel() -> None:
            await client.result("tasks/cancel", {"taskId": tasks[1]})
            if drains:
                runtime_of(free.server).drain()

        await while_taking(shared, monkeypatch, cancel, reads=reads)
        async with free.serving():
            await settled()
            assert await status_of(client, tasks[1]) == "cancelled"
            assert free.ran == ([] if drains else [("once", 1, 1)])
            assert free.tasks.slots.running == len(free.ran)
        assert [each.message for each in caplog.records if each.name == "toolwire.tasks"] == []
        full.go.set()


async def test_waiting_task_that_is_cancelled_while_its_process_drains_is_left_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = shared_stores(clock)
    replica, other = Replica(shared, limits=FULL), Replica(shared, limits=FULL)
    async with replica.serving() as join, other.serving() as there, join(principal=ADA) as client:
        await fill(client, replica)
        other.tasks.slots.take(None, 1)
        task = await begin(client, "once", {"number": 1})
        async with there(principal=ADA) as elsewhere:

            async def cancel() -> None:
                await elsewhere.result("tasks/cancel", {"taskId": task})
                runtime_of(replica.server).drain()

            await while_taking(shared, monkeypatch, cancel, reads=True)
            replica.go.set()
            await reaches(elsewhere, task, "cancelled")
            await settled()
        assert other.ran == []
        assert replica.ran == [("once", 0, 1)]
        assert (replica.tasks.slots.running, replica.tasks.following.runs()) == (0, [])
    assert [each.message for each in caplog.records if each.name == "toolwire.tasks"] == []


async def test_task_that_changes_before_it_is_handed_back_waits_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared, limits={"tasks_running": 2, "share": 0.5})
    async with full.serving() as join, join(principal=ADA) as client:
        await fill(client, full)
        tasks = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        key = full.tasks.records.key(next(iter(full.tasks.quota._counts)), tasks[1])

        async def watch() -> None:
            await full.tasks.records.change(key, lambda record: rules.watch(record, "a process"), is_news=False)

        await while_taking(shared, monkeypatch, watch, reads=False)
        async with free.serving():
            await settled()
            assert isinstance(await shared.queue.place(key), Ready)
            free.go.set()
            assert text_in(await outcome(client, tasks[1])) == "once 2 by ada"
        assert "could not be put back" not in caplog.text
        full.go.set()


@pytest.mark.parametrize("is_damaged", [True, False])
async def test_task_whose_record_is_lost_before_it_is_handed_back_leaves_the_queue(
    is_damaged: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared, limits={"tasks_running": 2, "share": 0.5})
    async with full.serving() as join, join(principal=ADA) as client:
        await fill(client, full)
        tasks = [await begin(client, "once", {"number": number}) for number in (1, 2)]
        key = full.tasks.records.key(next(iter(full.tasks.quota._counts)), tasks[1])

        async def lose() -> None:
            value, place = await shared.kv.get(key), await shared.queue.place(key)
            if is_damaged:
                assert await shared.queue.change(key, b"\x00", ttl=60.0, expect=value, place=place) is None
            else:
                await shared.kv.delete(key)

        await while_taking(shared, monkeypatch, lose, reads=False)
        async with free.serving():
            await settled()
            assert (await shared.queue.place(key), free.ran) == (None, [("once", 1, 1)])
            assert free.tasks.slots.running == 1
        assert "could not be put back" not in caplog.text
        full.go.set()


async def test_a_creation_whose_answer_was_lost_leaves_no_task_behind(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    async with replica.serving() as join, join(principal=ADA) as client:
        replica.line.lost_answers.add("change")
        error = await client.error("tools/call", {"name": "once", "arguments": {"number": 1}})
        assert error["message"] == "The tasks cannot be reached now; try again later"
        await pass_time(clock, 2)
        (key,) = await shared.kv.keys("toolwire:task2:")
        assert rules.decode(await shared.kv.get(key) or b"").status == "cancelled"
        assert (replica.ran, replica.tasks.slots.running) == ([], 0)


async def test_a_client_learns_that_a_waiting_task_may_run_whose_creation_was_not_confirmed(clock: Clock) -> None:
    """Another process may take it before it is cancelled, so that a client must not try again."""
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        full.line.lost_answers.add("change")
        error = await client.error("tools/call", {"name": "once", "arguments": {"number": 1}})
        assert error["message"] == "The store did not confirm the task; it may have been accepted, and may run"
        await pass_time(clock, 2)
        assert free.ran in ([], [("once", 1, 1)])
        full.go.set()


@pytest.mark.covers("FLT-7")
async def test_a_task_that_its_process_takes_twice_begins_once(clock: Clock) -> None:
    """Another process notes that it watches the record, which puts the task back before its beginning is written."""
    shared = shared_stores(clock)
    full, watching, free = Replica(shared, limits=FULL), Replica(shared), Replica(shared)
    async with full.serving() as join, join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "once", {"number": 1})
        key = full.tasks.records.key(next(iter(full.tasks.quota._counts)), task)
        begins = free.line.gates["change"] = asyncio.Event()
        async with free.serving():
            await settled()
            process = await free.tasks.process()
            assert isinstance(place := await shared.queue.place(key), Held) and place.process == process
            async with watching.serving():
                watching.tasks.drain()
                await watching.tasks.following.watch(key, rules.decode(await shared.kv.get(key) or b""))
                assert isinstance(await shared.queue.place(key), Ready)
                free.tasks.may_take()
                await settled()
                assert isinstance(await shared.queue.place(key), Held)
                begins.set()
                del free.line.gates["change"]
                await settled()
                assert (free.ran, watching.ran) == ([("once", 1, 1)], [])
                free.go.set()
                assert text_in(await outcome(client, task)) == "once 1 by ada"
            assert free.tasks.slots.running == 0
        full.go.set()


async def test_a_record_that_cannot_be_read_leaves_the_queue(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving() as join, join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "once", {"number": 1})
        key = full.tasks.records.key(next(iter(full.tasks.quota._counts)), task)
        value = await shared.kv.get(key)
        place = await shared.queue.place(key)
        assert await shared.queue.change(key, b"\x00", ttl=60.0, expect=value, place=place) is None
        async with free.serving():
            await settled()
        assert await shared.queue.place(key) is None
        full.go.set()


# --- the client of another process -----------------------------------------------------------------------------------


@pytest.mark.covers("FLT-13")
async def test_the_client_hears_of_a_task_on_the_connection_that_it_made_it_on(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving(CORE) as join, free.serving(CORE), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "reporting", {"number": 1}, _meta={"progressToken": "p7"})
        await client.notified("notifications/progress")
        free.go.set()
        told = await client.notified("notifications/progress", 2)
        assert [(each["progress"], each["progressToken"]) for each in told] == [(1, "p7"), (2, "p7")]
        assert all(each["_meta"][RELATED] == {"taskId": task} for each in told)
        ended = await client.notified("notifications/tasks/status")
        assert [(each["taskId"], each["status"]) for each in ended] == [(task, "completed")]
        assert free.ran == [("reporting", 1, 1)]
        full.go.set()


async def test_a_task_that_runs_elsewhere_is_cancelled_there(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "once", {"number": 1})
        await free.started.wait()
        await client.result("tasks/cancel", {"taskId": task})
        while not free.cancelled:
            await asyncio.sleep(0)
        assert (free.cancelled, await status_of(client, task)) == ([1], "cancelled")
        full.go.set()


async def test_a_listen_stream_and_a_question_reach_a_task_that_runs_elsewhere(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, free = Replica(shared, limits=FULL), Replica(shared)
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "asking", {"number": 1})
        client.start("subscriptions/listen", {"notifications": {"taskIds": [task]}})
        await client.notified("notifications/subscriptions/acknowledged")
        await reaches(client, task, "input_required")
        answers = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
        assert text_in(await outcome(client, task)) == "Hello, Ada!"
        told = [each["status"] for each in await client.notified("notifications/tasks", 2)]
        assert told[-1] == "completed"
        full.go.set()


async def test_tools_of_a_list_handler_wait_too(clock: Clock) -> None:
    shared = shared_stores(clock)

    def replica(**limits: int) -> Replica:
        made = Replica(shared, limits=limits)

        @made.server.on_list_tools
        def listed() -> list[t.Tool]:
            execution = t.ToolExecution(task_support="optional")
            return [t.Tool(name="made_up", input_schema={"type": "object"}, execution=execution)]

        @made.server.on_call_tool
        async def called(name: str, arguments: dict[str, Any]) -> str:
            made.ran.append((name, 0, 1))
            return f"called {name}"

        return made

    full, free = replica(**FULL), replica()
    async with full.serving() as join, free.serving(), join(principal=ADA) as client:
        await fill(client, full)
        task = await begin(client, "made_up")
        assert text_in(await outcome(client, task)) == "called made_up"
        assert free.ran == [("made_up", 0, 1)]
        assert (await look(client, task))["status"] == "completed"
        full.go.set()


async def test_a_call_that_comes_when_the_lease_was_lost_is_asked_to_come_again(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared)
    replica.go.set()
    async with replica.serving() as join, join(principal=ADA) as client:
        await outcome(client, await begin(client, "once", {"number": 1}))
        for name, renewal in await shared.queue.leases():
            assert await shared.queue.bury(name, renewal)
        error = await client.error("tools/call", {"name": "once", "arguments": {"number": 2}})
        assert error["message"] == "The tasks cannot be reached now; try again later"
        await pass_time(clock, 6)
        assert text_in(await outcome(client, await begin(client, "once", {"number": 3}))) == "once 3 by ada"


async def test_messages_that_are_lost_while_a_task_is_made_do_not_end_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    replica, change = Replica(shared), shared.queue.change

    async def slowly(*given: Any, **named: Any) -> Any:
        replica.tasks.following.missed()
        await settled()
        return await change(*given, **named)

    async with replica.serving() as join, join(principal=ADA) as client:
        monkeypatch.setattr(shared.queue, "change", slowly)
        task = await begin(client, "once", {"number": 1})
        replica.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"
