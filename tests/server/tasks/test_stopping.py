"""A process that stops: how long its tasks may run on, and which of them another process continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.httpwire import connect_http
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, find_record, pass_time, settled, shared_stores
from tests.server.tasks.talking import ABLE, CORE, answer, begin, look, outcome, reaches, text_in
from tests.server.tasks.test_ends import STOPPED, stopping
from tests.wireclient import MODERN

from toolwire import Context
from toolwire.stores import StoreFull, Stores


def asking_replica(shared: Stores, **limits: Any) -> Replica:
    """Make a replica with tools that ask in different ways. None of them is idempotent."""
    replica = Replica(shared, limits=limits)
    ran = replica.ran

    @replica.server.tool(task="optional")
    async def in_steps(ctx: Context) -> str:
        async def charge() -> str:
            ran.append(("charged", 0, ctx.attempt))
            return "charge 1"

        charged = await ctx.step("charge", charge)
        first = await ctx.elicit("First?", str, key="first")
        second = await ctx.elicit("Second?", str, key="second")
        return f"{charged}: {first.data} and {second.data}"

    @replica.server.tool(task="optional")
    async def without_key(ctx: Context) -> str:
        return f"Hello, {(await ctx.elicit('Name?', str)).data}!"

    @replica.server.tool(task="optional")
    def in_thread(ctx: Context) -> str:
        return f"Hello, {ctx.elicit('Name?', str, key='name').data}!"

    @replica.server.tool(task="optional", replay=False, detaches=True)
    async def unreplayed(ctx: Context) -> str:
        await ctx.detach()
        return str((await ctx.elicit("Name?", str, key="name")).data)

    @replica.server.tool(task="optional", task_stays=True)
    async def stays(ctx: Context) -> str:
        return str((await ctx.elicit("Name?", str, key="name")).data)

    @replica.server.tool(task="optional")
    async def with_step(ctx: Context) -> str:
        async def book() -> str:
            await asyncio.Event().wait()
            return "booked"

        await asyncio.gather(ctx.elicit("Name?", str, key="name"), ctx.step("book", book))
        return ""

    @replica.server.tool(task="optional")
    async def half_answered(ctx: Context) -> str:
        async def book() -> None:
            await ctx.elicit("Seats?", int, key="seats")
            ran.append(("booked", 0, ctx.attempt))

        await asyncio.gather(ctx.elicit("Name?", str, key="name"), book())
        return ""

    @replica.server.tool(task="optional")
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.elicit("Name?", str, key="name")
        except asyncio.CancelledError:
            await replica.go.wait()
        return "too late"

    return replica


@asynccontextmanager
async def begun(
    replica: Replica, tool: str, revision: str = MODERN, **arguments: Any
) -> AsyncIterator[tuple[Any, str]]:
    """Begin a task over an application of its own. Yield the application, and the id of the task that asks."""
    app = replica.server.http_app()
    async with connect_http(app, revision, ABLE, principal=ADA) as client:
        task = await begin(client, tool, arguments)
        await reaches(client, task, "input_required")
        yield app, task


async def stop(app: Any) -> None:
    ending = await stopping(app)
    await ending


@pytest.mark.covers("FLT-46")
@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("tool", ["asking", "without_key", "in_thread"])
async def test_task_that_waits_for_an_answer_is_continued_by_another_process(
    tool: str, revision: str, clock: Clock
) -> None:
    shared = shared_stores(clock)
    leaving, other = asking_replica(shared), asking_replica(shared)
    async with other.serving(revision) as join, join(principal=ADA) as client:
        arguments = {"number": 1} if tool == "asking" else {}
        async with begun(leaving, tool, revision, **arguments) as (app, task):
            (name,) = (await find_record(leaving, task)).questions
        await stop(app)
        await settled()
        record = await find_record(other, task)
        assert (list(record.questions), record.attempt) == ([name], 1)
        if revision == MODERN:
            await answer(client, task, **{name: "Ada"})
        else:
            await answer(client, task, **{"Name?": "Ada"})
        assert text_in(await outcome(client, task)) == "Hello, Ada!"


@pytest.mark.covers("FLT-46")
async def test_answers_and_steps_of_a_stopped_process_are_kept(clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, other = asking_replica(shared), asking_replica(shared)
    async with other.serving() as join, join(principal=ADA) as client:
        async with begun(leaving, "in_steps") as (app, task):
            await answer(client, task, first="one")
            await settled()
            assert list((await look(client, task))["inputRequests"]) == ["second"]
        await stop(app)
        await settled()
        assert list((await look(client, task))["inputRequests"]) == ["second"]
        await answer(client, task, second="two")
        assert text_in(await outcome(client, task)) == "charge 1: one and two"
        assert (leaving.ran, other.ran) == ([("charged", 0, 1)], [])


@pytest.mark.covers("FLT-46")
async def test_answer_is_taken_while_no_process_runs_the_task(clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, full = asking_replica(shared), asking_replica(shared, tasks_running=1)
    async with full.serving() as join, join(principal=ADA) as client:
        await begin(client, "once", {"number": 0})
        async with begun(leaving, "asking", number=1) as (app, task):
            pass
        await stop(app)
        shown = await look(client, task)
        assert (shown["status"], list(shown["inputRequests"])) == ("input_required", ["name"])
        await answer(client, task, name="Ada")
        assert (await look(client, task))["statusMessage"] == "Waiting to be started"
        full.go.set()
        assert text_in(await outcome(client, task)) == "Hello, Ada!"
        assert full.ran[-2:] == [("asking", 1, 1), ("answered", 1, 1)]


@pytest.mark.covers("FLT-46")
@pytest.mark.parametrize("tool", ["unreplayed", "stays", "with_step", "half_answered", "stubborn"])
async def test_task_that_does_more_than_wait_is_not_run_again(tool: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, other = asking_replica(shared), asking_replica(shared)
    async with other.serving() as join, join(principal=ADA) as client:
        async with begun(leaving, tool) as (app, task):
            if tool == "half_answered":
                await answer(client, task, seats=2)
                await settled()
                assert leaving.ran == [("booked", 0, 1)]
        ending = await stopping(app)
        await pass_time(clock, 2)
        leaving.go.set()
        await pass_time(clock, 2)
        await ending
        shown = await look(client, task)
        assert (shown["status"], shown["statusMessage"], other.ran) == ("failed", STOPPED, [])


async def test_task_that_waits_for_an_answer_fails_where_the_store_has_no_room(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    leaving, other = asking_replica(shared), asking_replica(shared)
    change = shared.queue.change

    async def full(key: str, value: bytes, **named: Any) -> Any:
        if named["expect"] is not None and len(value) > len(named["expect"]):
            raise StoreFull("full")
        return await change(key, value, **named)

    async with other.serving() as join, join(principal=ADA) as client:
        async with begun(leaving, "asking", number=1) as (app, task):
            monkeypatch.setattr(shared.queue, "change", full)
        await stop(app)
        shown = await look(client, task)
        assert (shown["status"], shown["statusMessage"]) == ("failed", STOPPED)


# --- the time of tasks, and that of calls ----------------------------------------------------------------------------


@pytest.mark.covers("FLT-18")
async def test_tasks_and_calls_have_times_of_their_own(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica, other = Replica(shared, limits={"drain": 60.0, "drain_tasks": 5.0}), Replica(shared)
    async with other.serving() as join, join(principal=ADA) as client:
        app = replica.server.http_app()
        async with connect_http(app, MODERN, ABLE, principal=ADA) as there:
            task = await begin(there, "once", {"number": 1})
            app.drain()
            await pass_time(clock, 50)
            # Calls may run for another ten seconds. Meanwhile the process still takes no tasks.
            waiting = await begin(there, "again", {"number": 2})
            await settled()
            assert [number for _, number, _ in replica.ran] == [1]
        await stop(app)
        assert (await look(client, task))["statusMessage"] == STOPPED
        other.go.set()
        assert text_in(await outcome(client, waiting)) == "again 2 by ada"


@pytest.mark.covers("FLT-46")
async def test_stopping_process_waits_for_no_person(clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, other = asking_replica(shared, drain_tasks=600.0), Replica(shared)
    async with other.serving() as join, join(principal=ADA) as client:
        async with begun(leaving, "asking", number=1) as (app, task):
            pass
        await stop(app)  # At once: nothing runs.
        await reaches(client, task, "input_required")
        assert other.ran == [("asking", 1, 1)]


@pytest.mark.covers("FLT-46")
async def test_task_that_begins_to_wait_while_its_process_stops_is_put_back(clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, other = Replica(shared, limits={"drain_tasks": 600.0}), Replica(shared)
    for replica in (leaving, other):

        @replica.server.tool(task="optional")
        async def later(ctx: Context) -> str:
            await asyncio.sleep(20)
            return str((await ctx.elicit("Name?", str, key="name")).data)

    async with other.serving() as join, join(principal=ADA) as client:
        app = leaving.server.http_app()
        async with connect_http(app, MODERN, ABLE, principal=ADA) as there:
            task = await begin(there, "later")
        ending = await stopping(app)
        await pass_time(clock, 15)
        assert not ending.done()
        await pass_time(clock, 8)
        await ending
        await reaches(client, task, "input_required", "working")
        await pass_time(clock, 21)
        await answer(client, task, name="Ada")
        assert text_in(await outcome(client, task)) == "Ada"


async def test_drain_can_be_shortened(clock: Clock) -> None:
    shared = shared_stores(clock)
    leaving, other = Replica(shared, limits={"drain_tasks": 600.0}), Replica(shared)
    async with other.serving() as join, join(principal=ADA) as client:
        app = leaving.server.http_app()
        async with connect_http(app, MODERN, ABLE, principal=ADA) as there:
            task = await begin(there, "once", {"number": 1})
            await leaving.started.wait()
            tasks = leaving.tasks
        ending = await stopping(app)
        await pass_time(clock, 20)
        for seconds in (700.0, 0.0):
            assert not ending.done()
            tasks.drain(seconds)
            await settled()
        await ending
        assert (await look(client, task))["statusMessage"] == STOPPED
