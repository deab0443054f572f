"""The end of a task is written down, whatever the store does meanwhile; and a process that stops loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from tests.httpwire import connect_http
from tests.runtimes import manager_of, runtime_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import ABLE, CORE, begin, look, outcome, reaches, status_of, talk, text_in
from tests.wireclient import MODERN

from toolwire import Limits, ProtocolError, Server, ToolError
from toolwire.protocol import tasks as rules
from toolwire.stores import StoreFull

STOPPED = "The server stopped while the task was running"


@pytest.mark.covers("FLT-17")
@pytest.mark.parametrize("seconds", [28, 120, 3600])
async def test_the_end_of_a_task_is_kept_over_an_outage(seconds: int, clock: Clock) -> None:
    replica = Replica(shared_stores(clock))
    async with replica.serving() as join, join(principal=ADA) as client:
        tasks = [await begin(client, "once", {"number": number}) for number in range(6)]
        await settled()
        replica.line.is_cut = True
        replica.go.set()
        await pass_time(clock, seconds, 20)
        replica.line.is_cut = False
        await pass_time(clock, 12)
        assert [text_in(await outcome(client, task)) for task in tasks] == [f"once {each} by ada" for each in range(6)]


async def test_the_end_of_a_task_is_kept_once_although_its_answer_was_lost(clock: Clock) -> None:
    replica = Replica(shared_stores(clock))
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        await replica.started.wait()
        replica.line.lost_answers.add("change")
        replica.go.set()
        await pass_time(clock, 2)
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert replica.tasks.slots.running == 0


@pytest.mark.covers("FLT-17")
async def test_the_end_of_a_task_is_kept_when_a_full_store_has_room_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes nothing at all, not even what is shorter."""
    shared = shared_stores(clock)
    replica, change = Replica(shared), shared.queue.change
    is_full = True

    async def refuse(*given: Any, **named: Any) -> Any:
        if is_full and named["expect"] is not None:
            raise StoreFull("full")
        return await change(*given, **named)

    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        monkeypatch.setattr(shared.queue, "change", refuse)
        replica.go.set()
        await pass_time(clock, 120, 10)
        assert await status_of(client, task) == "working"
        is_full = False
        await pass_time(clock, 12)
        shown = await reaches(client, task, "failed")
        assert shown["statusMessage"] == "The result could not be kept: the store of the server is full"


@pytest.mark.covers("FLT-17")
async def test_trying_ends_when_the_record_has_expired(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(shared_stores(clock), limits={"task": 100.0, "state": 10.0, "task_wait": 10.0})
    async with replica.serving() as join, join(principal=ADA) as client:
        await begin(client, "once", {"number": 1})
        await settled()
        replica.line.is_cut = True
        replica.go.set()
        await pass_time(clock, 4000, 50)
        assert "the end of a task could not be kept" in caplog.text
        assert replica.tasks.slots.running == 0
        replica.line.is_cut = False


@pytest.mark.covers("FLT-15")
@pytest.mark.parametrize("ahead", [60.0, 3600.0, -60.0])
async def test_the_ttl_runs_on_the_clock_of_the_store_from_the_end_on(
    ahead: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine that ends a task is not that of the store, nor that of the machine that made it."""
    shared = shared_stores(clock)
    replica = Replica(shared, limits={"task_ttl": 60.0})

    class Ahead:
        time = staticmethod(lambda: clock.time() + ahead)

    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        for module in ("manager", "task_records", "methods", "running_tasks", "following"):
            monkeypatch.setattr(f"toolwire.server.tasks.{module}.time", Ahead)
        await pass_time(clock, 100, 10)
        replica.go.set()
        await reaches(client, task, "completed")
        await pass_time(clock, 59, 59)
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        await pass_time(clock, 1)
        assert (await client.error("tasks/get", {"taskId": task}))["code"] == -32602


# --- the end of a process --------------------------------------------------------------------------------------------


async def stopping(app: Any) -> asyncio.Task[None]:
    """Stop an application, as a signal does it."""
    task = asyncio.create_task(app.stop())
    await settled()
    return task


@pytest.mark.covers("FLT-18")
@pytest.mark.parametrize("revision", [CORE, MODERN])
async def test_a_process_that_stops_waits_for_its_tasks(revision: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    replica, other = Replica(shared, limits={"drain_tasks": 30.0}), Replica(shared)
    async with other.serving(revision) as join, join(principal=ADA) as client:
        app = replica.server.http_app()
        async with connect_http(app, revision, ABLE, principal=ADA) as there:
            task = await begin(there, "once", {"number": 1})
            await replica.started.wait()
        ending = await stopping(app)
        await pass_time(clock, 20)
        assert (ending.done(), await status_of(client, task)) == (False, "working")
        replica.go.set()
        await ending
        assert text_in(await outcome(client, task)) == "once 1 by ada"
        assert replica.cancelled == []


@pytest.mark.covers("FLT-18")
async def test_what_is_not_done_in_the_time_of_the_drain_is_handed_back(clock: Clock) -> None:
    shared = shared_stores(clock)
    limits = {"drain_tasks": 5.0, "tasks_running": 3, "share": 1.0}
    replica, other = Replica(shared, limits=limits), Replica(shared)
    other.go.set()
    async with other.serving() as join, join(principal=ADA) as client:
        app = replica.server.http_app()
        async with connect_http(app, MODERN, ABLE, principal=ADA) as there:
            lost = await begin(there, "once", {"number": 1})
            kept = await begin(there, "again", {"number": 2})
            stays = await begin(there, "staying", {"number": 3})
            waiting = await begin(there, "staying", {"number": 4})
            await settled()
        ending = await stopping(app)
        await pass_time(clock, 6)
        await ending
        for task in (lost, stays, waiting):
            shown = await look(client, task)
            assert (shown["status"], shown["statusMessage"]) == ("failed", STOPPED)
        assert text_in(await outcome(client, kept)) == "again 2 by ada"
        assert other.ran == [("again", 2, 1)], "at once, and still as the first attempt"
        assert sorted(replica.cancelled) == [1, 2, 3]
        assert len(await shared.queue.leases()) == 1


@pytest.mark.covers("FLT-18")
async def test_a_process_that_is_about_to_stop_takes_no_tasks(clock: Clock) -> None:
    shared = shared_stores(clock)
    full, leaving = Replica(shared, limits={"tasks_running": 1}), Replica(shared, limits={"drain_tasks": 30.0})
    async with full.serving() as join, leaving.serving() as there, join(principal=ADA) as client:
        await begin(client, "once", {"number": 0})
        runtime_of(leaving.server).drain()
        task = await begin(client, "once", {"number": 1})
        await settled()
        async with there(principal=ADA) as late:
            other = await begin(late, "once", {"number": 2})
        assert leaving.ran == []
        full.go.set()
        for each in (task, other):
            await reaches(client, each, "completed")
        assert [number for _, number, _ in full.ran] == [0, 1, 2]


async def test_an_application_that_stops_beside_another_does_not_end_the_tasks(clock: Clock) -> None:
    """One server may have several applications: tasks are taken again when it goes on after the drain."""
    shared = shared_stores(clock)
    replica = Replica(shared, limits={"drain_tasks": 5.0})
    async with replica.serving() as join, join(principal=ADA) as client:
        runtime_of(replica.server).drain()
        task = await begin(client, "once", {"number": 1})
        await pass_time(clock, 25)
        replica.go.set()
        assert text_in(await outcome(client, task)) == "once 1 by ada"


async def test_in_memory_a_task_that_is_handed_back_goes_on_with_the_next_connection() -> None:
    server, go = Server("s", limits=Limits(task_window=0.0)), asyncio.Event()
    started: list[int] = []

    @server.tool(task="optional", annotations={"idempotentHint": True})
    async def again() -> str:
        started.append(1)
        await go.wait()
        return "done"

    async with talk(server, MODERN, principal=ADA) as client:
        task = await begin(client, "again")
        while not started:
            await asyncio.sleep(0)
    go.set()
    async with talk(server, MODERN, principal=ADA) as client:
        assert text_in(await outcome(client, task)) == "done"
    assert len(started) == 2


# --- the record ------------------------------------------------------------------------------------------------------


def test_a_task_keeps_its_length_while_it_changes_hands() -> None:
    """A store that is full takes what is no longer than what it replaces."""
    call = rules.StoredCall(params=Raw(b'{"name":"x"}'), revision="2026-07-28", kind="x", idempotent=True)
    record = rules.new_record("id", 0.0, 1, 1, tool="x", call=call, message=rules.WAITING)
    rules.leave_room(record)
    length = len(rules.encode(record))
    for attempt in range(1, 4):
        assert rules.begin(record, "p" * rules.LONGEST_PROCESS)
        assert len(rules.encode(record)) <= length
        assert len(record.room) >= 512
        assert rules.lose_lease(record, 10) == "run again"
        assert len(rules.encode(record)) <= length
        assert record.attempt == attempt + 1
    assert rules.begin(record, "p")
    assert rules.hand_back(record)
    assert (record.attempt, len(rules.encode(record)) <= length) == (4, True)


@pytest.mark.parametrize(
    "error",
    [
        ToolError("There is no \ud800"),
        ProtocolError(-32000, "There is no \ud800", {"\ud800": 1}),
        ProtocolError(-32000, "There is no file", {"path": object()}),
        ProtocolError(10**30, "There is no code"),
        ExceptionGroup("\ud800", [ToolError("There is no \ud800")]),
    ],
    ids=["text", "message", "data", "code", "group"],
)
async def test_task_whose_error_is_not_json_ends_and_frees_its_slot(error: Exception, clock: Clock) -> None:
    server = Server("odd", stores=shared_stores(clock), limits=Limits(task_window=0.0))

    @server.tool(task="optional")
    async def odd() -> str:
        raise error

    async with talk(server, MODERN) as client:
        task = await begin(client, "odd", {})
        await settled()
        assert "There is no" in (await look(client, task))["statusMessage"]
        assert manager_of(server).slots.running == 0


async def test_end_that_cannot_be_written_becomes_an_internal_error(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, complete = Replica(shared_stores(clock)), rules.complete

    def spoil(record: rules.Record, *given: Any, **named: Any) -> bool:
        changed = complete(record, *given, **named)
        record.message = "\ud800"
        return changed

    monkeypatch.setattr(rules, "complete", spoil)
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "once", {"number": 1})
        replica.go.set()
        await settled()
        shown = await look(client, task)
        assert (shown["status"], shown["statusMessage"]) == ("failed", "Internal error")
        assert replica.tasks.slots.running == 0


@pytest.mark.parametrize("idempotent", [False, True])
async def test_handler_that_cancels_itself_fails_its_task_once(idempotent: bool, clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"task_attempts": 3})
    runs = 0

    @replica.server.tool(task="optional", annotations={"idempotentHint": idempotent})
    async def gives_up() -> None:
        nonlocal runs
        runs += 1
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.Event().wait()

    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "gives_up", {})
        await pass_time(clock, 60)
        shown = await look(client, task)
    assert (shown["status"], shown["statusMessage"], runs) == ("failed", "The tool cancelled its own call", 1)
