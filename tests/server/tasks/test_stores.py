"""Tasks in a SQLite file: several processes answer for them, and they outlive every one of these."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.runtimes import manager_of
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    CORE,
    Over,
    accepted,
    begin,
    dialects,
    look,
    outcome,
    reaches,
    status_of,
    talk,
    text_in,
)
from tests.wireclient import MODERN

from toolwire import Context, Policy, Server
from toolwire.auth import Principal
from toolwire.protocol.errors import InsufficientScope
from toolwire.server.policy import Call
from toolwire.stores.sqlite import SqliteStores

ADA = Principal("ada", provider="tests", scopes=frozenset({"work"}))


class Process(Held):
    """A server as it would run in a process of its own: its own stores, on the same file."""

    def __init__(self, file: Path, ran: list[Any] | None = None) -> None:
        self.stores = SqliteStores(file, clock=lambda: time.time() + self._ahead)
        self._ahead = 0.0
        self.ran = [] if ran is None else ran
        super().__init__(stores=self.stores)

    def later(self, seconds: float) -> None:
        """Let time pass in the store, and look for tasks that can be taken then."""
        self._ahead += seconds
        manager_of(self.server).may_take()

    def _register(self) -> None:
        super()._register()

        @self.server.tool(task="optional", annotations={"idempotentHint": True})
        async def again(ctx: Context, number: int) -> str:
            self.ran.append((number, ctx.principal))
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            name = await ctx.elicit("Name?", str, key="name") if number == 2 else None
            return f"done {number}" if name is None else f"done by {name.data}"


@asynccontextmanager
async def closing(held: Process) -> AsyncIterator[Process]:
    try:
        yield held
    finally:
        held.stores.close()


@asynccontextmanager
async def process(file: Path, revision: str, **options: Any) -> AsyncIterator[tuple[Process, Any]]:
    ran = options.pop("ran", None)
    async with closing(Process(file, ran)) as held, talk(held.server, revision, principal=ADA, **options) as client:
        yield held, client


async def seem_dead(held: Process) -> None:
    """Take the lease of a process away, as from one that was killed."""
    for name, renewal in await held.stores.queue.leases():
        assert await held.stores.queue.bury(name, renewal)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


# --- several processes -----------------------------------------------------------------------------------------------


@dialects
@pytest.mark.usefixtures("clock")
async def test_any_process_answers_for_any_task(revision: str, file: Path) -> None:
    async with process(file, revision) as (here, a), process(file, revision) as (_, b):
        task = await begin(a, "hold")
        assert await look(a, task) == await look(b, task)
        if revision == CORE:
            waiting = b.start("tasks/result", {"taskId": task})
            here.go.set()
            assert text_in((await waiting)["result"]) == "held x"
            assert [each["taskId"] for each in (await b.result("tasks/list"))["tasks"]] == [task]
        else:
            here.go.set()
            assert text_in(await outcome(b, task)) == "held x"


@dialects
async def test_cancelling_reaches_the_process_that_runs_the_task(revision: str, file: Path) -> None:
    async with process(file, revision) as (here, a), process(file, revision) as (_, b):
        task = await begin(a, "hold")
        await here.started.wait()
        await b.result("tasks/cancel", {"taskId": task})
        await here.stopped.wait()
        assert await status_of(a, task) == "cancelled"
        if revision == CORE:
            (told,) = await a.notified("notifications/tasks/status")
            assert told["status"] == "cancelled"


@dialects
async def test_answers_reach_the_process_that_asked(revision: str, file: Path) -> None:
    async with process(file, revision) as (_, a), process(file, revision) as (_, b):
        task = await begin(a, "asking")
        if revision == CORE:
            b.answers["elicitation/create"] = lambda params: accepted(params["message"])
            assert text_in(await b.result("tasks/result", {"taskId": task})) == "First? and Second?"
        else:
            await reaches(b, task, "input_required")
            answers = {"first": accepted("one"), "second": accepted("two")}
            await b.result("tasks/update", {"taskId": task, "inputResponses": answers})
            assert text_in(await outcome(b, task)) == "one and two"


async def test_a_listen_stream_hears_of_tasks_that_run_elsewhere(file: Path) -> None:
    async with process(file, MODERN) as (here, a), process(file, MODERN) as (_, b):
        task = await begin(a, "hold")
        b.start("subscriptions/listen", {"notifications": {"taskIds": [task]}})
        await b.notified("notifications/subscriptions/acknowledged")
        here.go.set()
        (told,) = await b.notified("notifications/tasks")
        assert (told["status"], text_in(told["result"])) == ("completed", "held x")


# --- the end of a process --------------------------------------------------------------------------------------------


@dialects
async def test_finished_results_survive_a_restart(revision: str, file: Path) -> None:
    async with process(file, revision) as (held, client):
        held.go.set()
        task = await begin(client, "hold", {"label": "kept"})
        before = await reaches(client, task, "completed")
    async with process(file, revision) as (_, client):
        assert await look(client, task) == before
        assert text_in(await outcome(client, task)) == "held kept"


@dialects
async def test_what_runs_when_the_server_stops_has_failed_or_goes_on(revision: str, file: Path) -> None:
    async with process(file, revision) as (held, client):
        kept = await begin(client, "again", {"number": 1})
        await held.started.wait()
        held.started.clear()
        lost = await begin(client, "hold")
        await held.started.wait()
    assert held.seen == [("cancelled", True)]
    async with process(file, revision) as (held, client):
        shown = await look(client, lost)
        assert (shown["status"], shown["statusMessage"]) == ("failed", "The server stopped while the task was running")
        await held.started.wait()
        assert await status_of(client, kept) == "working"
        held.go.set()
        assert text_in(await outcome(client, kept)) == "done 1"
        assert held.ran == [(1, ADA)], "with the principal that it was begun for"


@dialects
async def test_the_tasks_of_a_process_that_was_killed_are_taken_over(revision: str, file: Path) -> None:
    async with process(file, revision) as (dead, a):
        lost, kept = await begin(a, "hold"), await begin(a, "again", {"number": 1})
        await dead.started.wait()
        dead.server.remove("again")  # It lives on in this test, and would take the task itself.
        await seem_dead(dead)
        async with process(file, revision) as (alive, b):
            shown = await reaches(b, lost, "failed")
            assert (
                shown["statusMessage"]
                == "The server lost contact with the process that ran this task; the task may have run"
            )
            alive.go.set()
            await manager_of(alive.server)._watcher.look()  # It puts the other one back.
            alive.later(2.0)
            assert text_in(await outcome(b, kept)) == "done 1"
            assert [number for number, _ in alive.ran] == [1]


async def test_answers_given_before_the_end_are_not_asked_for_again(file: Path) -> None:
    async with process(file, MODERN) as (held, client):
        held.go.set()
        task = await begin(client, "again", {"number": 2})
        await reaches(client, task, "input_required")
        held.go.clear()
    async with process(file, MODERN) as (held, client):
        held.go.set()
        # The question of the run before is asked again, under the same key; a client that knows it answers once.
        await reaches(client, task, "input_required")
        await client.result("tasks/update", {"taskId": task, "inputResponses": {"name": accepted("Ada")}})
        assert text_in(await outcome(client, task)) == "done by Ada"
        assert len(await held.stores.kv.keys("toolwire:task2:")) == 1


async def test_a_call_that_is_run_again_has_the_answers_that_it_was_begun_with(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWIRE_SECRET", "s" * 32)

    def started() -> Process:
        held = Process(file)

        async def approve(ctx: Context, call: Call) -> bool:
            return (await ctx.elicit("Name?", str, key="name")).data == "Ada"

        @held.server.tool(task="required", annotations={"idempotentHint": True}, policy=Policy(approve=approve))
        async def confirmed() -> str:
            held.started.set()
            await held.go.wait()
            return "done"

        return held

    async with closing(started()) as first, talk(first.server, MODERN, principal=ADA) as client:
        asked = await client.call("confirmed")
        answers = {"requestState": asked["requestState"], "inputResponses": {"name": accepted("Ada")}}
        task = await begin(client, "confirmed", **answers)
        await first.started.wait()
    async with closing(started()) as second, talk(second.server, MODERN, principal=ADA) as client:
        second.go.set()
        assert text_in(await outcome(client, task)) == "done"
        # The answers are used up for everybody else.
        error = await client.error("tools/call", {"name": "confirmed", **answers})
        assert "were used already" in error["message"]


@pytest.mark.covers("FLT-8")
async def test_a_task_that_takes_its_process_down_is_not_run_for_ever(file: Path) -> None:
    ran: list[Any] = []
    async with process(file, CORE, ran=ran) as (held, client):
        task = await begin(client, "again", {"number": 1})
        await held.started.wait()
        await seem_dead(held)
    for _ in range(2):
        async with process(file, CORE, ran=ran) as (held, client):
            while not held.started.is_set():
                held.later(10.0)
                await held.stores.queue.counts()  # Meanwhile the store does what it was asked to do before.
            await seem_dead(held)
    async with process(file, CORE, ran=ran) as (_, client):
        shown = await reaches(client, task, "failed")
        assert (
            shown["statusMessage"]
            == "The server lost contact with 3 processes that ran this task; the task may have run"
        )
    assert len(ran) == 3


@pytest.mark.covers("FLT-11")
async def test_a_call_that_is_run_again_does_not_go_through_the_middleware_again(file: Path) -> None:
    async with process(file, MODERN) as (_, client):
        task = await begin(client, "again", {"number": 1})
    held = Process(file)
    held.go.set()
    seen: list[str] = []

    @held.server.use
    async def watching(ctx: Context, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    try:
        async with talk(held.server, MODERN, principal=ADA) as client:
            assert text_in(await outcome(client, task)) == "done 1"
    finally:
        held.stores.close()
    assert "tools/call" not in seen


@pytest.mark.parametrize(("over", "expected"), [("memory", "the salaries"), ("http", "This needs the scope hr")])
@dialects
async def test_a_call_that_is_run_again_may_do_what_its_caller_may(
    revision: str, over: Over, expected: str, file: Path
) -> None:
    def started() -> Process:
        held = Process(file)
        held.server.resource("x://payroll", name="payroll", scopes="hr")(lambda: "the salaries")

        @held.server.tool(task="optional", annotations={"idempotentHint": True})
        async def summary(ctx: Context) -> str:
            held.started.set()
            await held.go.wait()
            try:
                return (await ctx.read_resource("x://payroll"))[0].text or ""
            except InsufficientScope as refusal:
                return refusal.message

        return held

    async with closing(started()) as first, talk(first.server, revision, over) as client:
        task = await begin(client, "summary")
        await first.started.wait()
    async with closing(started()) as second, talk(second.server, revision, over) as client:
        second.go.set()
        assert text_in(await outcome(client, task)) == expected


@pytest.mark.covers("FLT-3")
async def test_the_tasks_of_a_tool_that_is_gone_wait_for_a_process_that_has_it(file: Path) -> None:
    async with process(file, MODERN) as (_, client):
        task = await begin(client, "again", {"number": 1})
    held = Process(file)
    held.server.remove("again")
    async with closing(held), talk(held.server, MODERN, principal=ADA) as client:
        held.later(10.0)
        refused = await client.error("tasks/get", {"taskId": task})
        assert refused["message"] == "The task cannot be shown now: its tool is not known here; try again later"
        assert refused["data"] == {"retryAfterMs": 1000}
    async with process(file, MODERN) as (held, client):
        held.go.set()
        assert text_in(await outcome(client, task)) == "done 1"


async def test_tasks_of_the_host_wait_for_their_host(file: Path) -> None:
    async with process(file, CORE) as (held, client):
        task = await held.server.tasks.create(principal=ADA, message="on paper")
    async with process(file, CORE) as (held, client):
        assert (await look(client, task.id))["statusMessage"] == "on paper"
        assert await held.server.tasks.finish(task, "stamped")
        assert text_in(await outcome(client, task.id)) == "stamped"


async def test_a_process_that_stops_leaves_no_lease_behind(file: Path) -> None:
    async with process(file, CORE) as (held, client):
        await begin(client, "hold")
        assert len(await held.stores.queue.leases()) == 1
    stores = SqliteStores(file)
    assert await stores.queue.leases() == []
    stores.close()


async def test_nothing_is_left_running(file: Path) -> None:
    async with process(file, MODERN) as (_, client):
        await begin(client, "hold")
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []


def test_each_loop_takes_part_anew(file: Path) -> None:
    stores = SqliteStores(file)
    server = Server("s", stores=stores)

    async def takes_part() -> None:
        await manager_of(server).ready()
        await manager_of(server).ready()
        watchers = [task for task in asyncio.all_tasks() if "Watcher.watch" in repr(task)]
        assert len(watchers) == 1

    for _ in range(2):
        asyncio.run(takes_part())
    stores.close()
