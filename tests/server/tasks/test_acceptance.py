"""A call is accepted before its handler starts: with a slot, or as a task that waits; or it is refused at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.server.tasks.conftest import Clock
from tests.server.tasks.handlers import Held
from tests.server.tasks.replicas import ADA, EVE, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import (
    CORE,
    FORMS,
    Way,
    accepted,
    answer,
    begin,
    look,
    outcome,
    reaches,
    status_of,
    talk,
    task_in,
    text_in,
    ways,
)
from tests.wireclient import MODERN

from toolwire import Context, Limits, Policy, Server
from toolwire.audit import AuditLog
from toolwire.protocol.tasks import WAITING
from toolwire.stores import StoreFailed

TASK = {"arguments": {}, "task": {}}


def counting(**limits: Any) -> tuple[Server, asyncio.Event, list[int]]:
    """A server with a tool that waits, and the numbers of the calls that have begun."""
    server, go, begun = Server("s", limits=Limits(**{"share": 1.0, **limits})), asyncio.Event(), []

    @server.tool(task="optional")
    async def work(number: int) -> int:
        begun.append(number)
        await go.wait()
        return number

    return server, go, begun


@pytest.mark.covers("FLT-10")
@ways
async def test_without_a_slot_a_task_waits_and_starts_when_one_is_free(way: Way) -> None:
    server, go, begun = counting(task_window=0.0, tasks_running=1)
    async with way.talk(server, principal=ADA) as client:
        tasks = [await begin(client, "work", {"number": number}) for number in range(3)]
        await settled()
        assert begun == [0]
        shown = [await look(client, task) for task in tasks]
        assert [each["status"] for each in shown] == ["working"] * 3
        assert [each.get("statusMessage") for each in shown] == [None, WAITING, WAITING]
        go.set()
        assert [text_in(await outcome(client, task)) for task in tasks] == ["0", "1", "2"]
        assert begun == [0, 1, 2], "first come, first served"
        assert "statusMessage" not in await look(client, tasks[1])


@ways
async def test_a_task_that_waits_is_cancelled_and_never_begins(way: Way) -> None:
    server, go, begun = counting(task_window=0.0, tasks_running=1)
    async with way.talk(server, principal=ADA) as client:
        first, second, third = [await begin(client, "work", {"number": number}) for number in range(3)]
        await client.result("tasks/cancel", {"taskId": second})
        go.set()
        for task in (first, third):
            assert (await reaches(client, task, "completed"))["status"] == "completed"
        assert await status_of(client, second) == "cancelled"
        assert begun == [0, 2]


@pytest.mark.covers("FLT-10")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_no_handler_begins_for_a_call_that_has_no_slot(over: Any) -> None:
    """Calls that may become tasks, all at once: those without a slot are answered with a task that has not begun."""
    server, go, begun = counting(task_window=3600.0, tasks_running=3)
    async with talk(server, MODERN, over, principal=ADA) as client:
        calls = [client.start("tools/call", {"name": "work", "arguments": {"number": each}}) for each in range(8)]
        while sum(call.done() for call in calls) < 5:
            await asyncio.sleep(0)
        await settled()
        assert begun == [0, 1, 2]
        queued = [task_in(call.result()["result"])["taskId"] for call in calls if call.done()]
        go.set()
        answered = [text_in((await call)["result"]) for call in calls[:3]]
        assert answered + [text_in(await outcome(client, task)) for task in queued] == [str(each) for each in range(8)]


@pytest.mark.covers("FLT-10")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_the_quota_is_reserved_before_a_handler_starts(over: Any) -> None:
    server, go, begun = counting(task_window=3600.0, tasks=3)
    async with talk(server, MODERN, over, principal=ADA) as client:
        calls = [client.start("tools/call", {"name": "work", "arguments": {"number": each}}) for each in range(8)]
        while sum(call.done() for call in calls) < 5:
            await asyncio.sleep(0)
        await settled()
        assert begun == [0, 1, 2]
        refused = [call.result()["error"]["message"] for call in calls if call.done()]
        assert set(refused) == {"You have too many tasks; try again when some of them have expired"}
        go.set()
        assert [text_in((await call)["result"]) for call in calls[:3]] == ["0", "1", "2"]


async def test_a_call_that_did_not_become_a_task_gives_its_place_back() -> None:
    server, go, begun = counting(task_window=3600.0, tasks=1, tasks_running=1)
    go.set()
    async with talk(server, MODERN, principal=ADA) as client:
        for number in range(5):
            assert text_in(await client.call("work", {"number": number})) == str(number)
    assert begun == [0, 1, 2, 3, 4]


@pytest.mark.covers("FLT-10")
@ways
async def test_a_call_is_refused_only_when_too_many_wait(way: Way) -> None:
    server, go, begun = counting(task_window=0.0, tasks_running=1, tasks_waiting=2)
    async with way.talk(server, principal=ADA) as client:
        tasks = [await begin(client, "work", {"number": number}) for number in range(3)]
        params = {"name": "work", "arguments": {"number": 3}, "task": {}}
        assert "tasks waiting" in (await client.error("tools/call", params))["message"]
        await client.result("tasks/cancel", {"taskId": tasks.pop()})
        tasks.append(await begin(client, "work", {"number": 4}))
        go.set()
        for task in tasks:
            await reaches(client, task, "completed")
    assert begun == [0, 1, 4]


@pytest.mark.covers("FLT-10")
async def test_the_bound_of_the_queue_holds_for_all_replicas_together(clock: Clock) -> None:
    shared = shared_stores(clock)
    limits = {"tasks_running": 1, "tasks_waiting": 2, "share": 1.0}
    one, two = Replica(shared, limits=limits), Replica(shared, limits=limits)
    async with (
        one.serving() as join_one,
        two.serving() as join_two,
        join_one(principal=ADA) as ada,
        join_two(principal=EVE) as eve,
    ):
        for client in (ada, eve, ada, eve):
            await begin(client, "once", {"number": 1})
        for client in (ada, eve):
            error = await client.error("tools/call", {"name": "once", "arguments": {"number": 2}})
            assert "2 tasks waiting at once" in error["message"]
        one.go.set()
        two.go.set()


async def test_a_handler_that_has_begun_is_answered_also_when_no_task_can_be_made(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"task_window": 5.0})
    async with replica.serving() as join, join(principal=ADA) as client:
        calling = client.start("tools/call", {"name": "once", "arguments": {"number": 7}})
        await replica.started.wait()
        replica.line.is_cut = True
        await clock.elapse(6)
        await settled()
        assert not calling.done()
        replica.go.set()
        assert text_in((await calling)["result"]) == "once 7 by ada"
        assert replica.cancelled == []


async def test_while_the_store_is_away_a_call_that_may_be_a_task_is_a_call(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"task_window": 5.0})
    replica.go.set()
    async with replica.serving() as join, join(principal=ADA) as client:
        for is_cut in (False, True):
            replica.line.is_cut = is_cut
            # The tasks of an owner are counted now and then, and now the store would be asked.
            replica.tasks.quota._counts.clear()
            assert text_in(await client.call("once", {"number": 7})) == "once 7 by ada"


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-12")
async def test_a_task_gives_its_slot_back_while_its_client_is_asked(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"tasks_running": 1})
    async with replica.serving() as join, join(principal=ADA) as client:
        asking = await begin(client, "asking", {"number": 1})
        await reaches(client, asking, "input_required")
        working = await begin(client, "once", {"number": 2})
        await replica.started.wait()
        assert replica.ran == [("asking", 1, 1), ("once", 2, 1)]
        await answer(client, asking, name="Ada")
        await settled()
        assert await status_of(client, asking) == "working"
        assert ("answered", 1, 1) not in replica.ran, "it waits for a slot to go on"
        replica.go.set()
        assert text_in(await outcome(client, asking)) == "Hello, Ada!"
        assert text_in(await outcome(client, working)) == "once 2 by ada"


@pytest.mark.covers("FLT-12")
async def test_a_task_whose_question_nobody_answers_takes_a_slot_again(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"tasks_running": 1, "state": 60.0, "task_ttl": 60.0})
    async with replica.serving() as join, join(principal=ADA) as client:
        asking = await begin(client, "asking", {"number": 1})
        await reaches(client, asking, "input_required")
        await pass_time(clock, 61)
        assert (await outcome(client, asking))["isError"] is True
        assert replica.tasks.slots.running == 0


async def test_answers_of_earlier_rounds_are_those_of_a_task_that_waits() -> None:
    held = Held(limits=Limits(task_window=0.0, tasks_running=1))
    async with talk(held.server, MODERN, "http", principal=ADA) as client:
        asked = await client.call("rounds_first")
        blocking = await begin(client, "hold")
        brought = {"requestState": asked["requestState"], "inputResponses": {"name": accepted("Ada")}}
        task = task_in(await client.call("rounds_first", **brought))["taskId"]
        error = await client.error("tools/call", {"name": "rounds_first", **brought})
        assert "were used already" in error["message"], "the state was used up when the call was accepted"
        held.go.set()
        await reaches(client, blocking, "completed")
        shown = await reaches(client, task, "input_required")
        assert list(shown["inputRequests"]) == ["colour"]
        await answer(client, task, colour="green")
        assert text_in(await outcome(client, task)) == "Ada likes green; True"


# --- tasks that stay -------------------------------------------------------------------------------------------------


class Unknown:
    """A principal of the host's own kind, which nobody can write down."""

    subject = "ada"
    provider = "elsewhere"
    scopes: frozenset[str] = frozenset()


@pytest.mark.covers("FLT-14")
@pytest.mark.parametrize(
    ("tool", "principal", "is_ready"), [("once", ADA, 1), ("staying", ADA, 0), ("once", Unknown(), 0)]
)
async def test_tasks_that_cannot_leave_their_process_wait_there(
    tool: str, principal: Any, is_ready: int, clock: Clock
) -> None:
    shared = shared_stores(clock)
    busy, idle = Replica(shared, limits={"tasks_running": 1}), Replica(shared, without=("once", "staying"))
    async with busy.serving() as join, idle.serving(), join(principal=principal) as client:
        first, second = [await begin(client, tool, {"number": number}) for number in range(2)]
        await settled()
        assert sum((await shared.queue.counts()).ready.values()) == is_ready
        busy.go.set()
        for task in (first, second):
            await reaches(client, task, "completed")
        assert [number for _, number, _ in busy.ran] == [0, 1]


@pytest.mark.covers("FLT-14")
async def test_tasks_of_stdio_wait_in_their_process(clock: Clock) -> None:
    """The client of stdio is the one of this process, and may do what others may not."""
    shared = shared_stores(clock)
    busy, idle = Replica(shared, limits={"tasks_running": 1}), Replica(shared)
    async with idle.serving(), talk(busy.server, MODERN, "stdio") as client:
        tasks = [await begin(client, "once", {"number": number}) for number in range(2)]
        await settled()
        assert ((await shared.queue.counts()).ready, idle.ran) == ({}, [])
        busy.go.set()
        for task in tasks:
            await reaches(client, task, "completed")
        assert [number for _, number, _ in busy.ran] == [0, 1]


@pytest.mark.covers("FLT-14")
async def test_a_task_that_cannot_leave_its_process_fails_when_it_waits_too_long(clock: Clock) -> None:
    replica = Replica(shared_stores(clock), limits={"tasks_running": 1, "task_wait": 100.0})
    async with replica.serving() as join, join(principal=ADA) as client:
        _, waiting = [await begin(client, "staying", {"number": number}) for number in range(2)]
        await pass_time(clock, 101, 20)
        shown = await reaches(client, waiting, "failed")
        assert shown["statusMessage"] == "The server had no slot for this task within 100 seconds"
        assert [number for _, number, _ in replica.ran] == [0]


# --- once ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-11")
async def test_what_is_around_a_call_sees_it_once_wherever_it_runs(clock: Clock) -> None:
    """Middleware, rates and the audit log see a call when it is accepted; masks and times hold where it runs."""
    shared, lines, seen = shared_stores(clock), [], []
    policy = Policy(rate="2/hour", mask=["sk-[0-9]+"], timeout=1000.0)

    def replica(**limits: int) -> Replica:
        made = Replica(shared, limits=limits, policy=policy, audit=AuditLog(lines.append, key="a key of 16 bytes"))

        @made.server.use
        async def watching(ctx: Context, call_next: Any) -> Any:
            if ctx.method == "tools/call":
                seen.append(ctx.params.name)
            return await call_next(ctx)

        @made.server.tool(task="optional")
        async def leak(ctx: Context) -> str:
            made.ran.append(("leak", 0, ctx.attempt))
            await ctx.progress(1, message="using sk-1234")
            return "the key is sk-1234"

        return made

    full, free = replica(tasks_running=1), replica()
    async with full.serving() as join, join(principal=ADA) as client:
        await begin(client, "once", {"number": 1})
        task = await begin(client, "leak")
        async with free.serving():
            assert text_in(await outcome(client, task)) == "the key is [redacted]"
            assert free.ran == [("leak", 0, 1)]
        full.go.set()
    assert seen == ["once", "leak"]
    entries = [json.loads(line) for line in lines]
    told = [entry["outcome"] for entry in entries if entry["kind"] == "call" and entry["name"] == "leak"]
    assert told == ["task", "ok"], "the process that accepted the call tells its end, too"


async def test_older_clients_and_others_without_tasks_need_no_slot() -> None:
    held = Held(limits=Limits(task_window=0.0, tasks_running=1))
    async with talk(held.server, MODERN, "http", principal=ADA) as client:
        await begin(client, "hold")
        async with talk(held.server, MODERN, principal=ADA, capabilities=FORMS) as plain:
            held.go.set()
            assert text_in(await plain.call("hold")) == "held x"


# --- attempts --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("FLT-9")
@pytest.mark.parametrize("revision", [CORE, MODERN])
async def test_a_handler_knows_its_attempt(revision: str) -> None:
    server = Server("s", limits=Limits(task_window=0.0))

    @server.tool(task="optional")
    async def on_the_loop(ctx: Context) -> int:
        return ctx.attempt

    @server.tool(task="optional")
    def in_a_thread(ctx: Context) -> int:
        return ctx.attempt

    @server.tool
    def plain(ctx: Context) -> int:
        return ctx.attempt

    async with talk(server, revision) as client:
        for tool in ("on_the_loop", "in_a_thread"):
            assert text_in(await outcome(client, await begin(client, tool))) == "1"
        assert text_in(await client.call("plain")) == "1"


async def test_a_task_that_waits_here_for_its_share_keeps_no_slot_from_others(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica, full = (
        Replica(shared, limits={"tasks_running": 2, "share": 0.5}),
        Replica(shared, limits={"tasks_running": 1}),
    )
    async with replica.serving() as a, full.serving() as b, a(principal=ADA) as ada, b(principal=EVE) as eve:
        for number in range(2):
            await begin(ada, "staying", {"number": number})
            await begin(eve, "once", {"number": 10 + number})
        await settled()
        assert [number for _, number, _ in replica.ran] == [0, 11]
        for each in (replica, full):
            each.go.set()


async def test_a_question_is_asked_when_the_store_is_back(clock: Clock) -> None:
    replica = Replica(shared_stores(clock))
    async with replica.serving() as join, join(principal=ADA) as client:
        blocking = asyncio.Event()

        @replica.server.tool(task="optional")
        async def later(ctx: Context) -> str:
            await blocking.wait()
            return f"Hello, {(await ctx.elicit('Name?', str, key='name')).data}!"

        task = await begin(client, "later")
        await settled()
        replica.line.is_cut = True
        blocking.set()
        await pass_time(clock, 60, 5)
        replica.line.is_cut = False
        await pass_time(clock, 12)
        await reaches(client, task, "input_required")
        await answer(client, task, name="Ada")
        assert text_in(await outcome(client, task)) == "Hello, Ada!"


async def test_an_answer_and_a_cancellation_are_noticed_when_their_bells_are_lost(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    here, there = Replica(shared), Replica(shared)

    async def nothing(topic: str, data: bytes) -> None:
        return

    async with here.serving() as a, there.serving() as b, a(principal=ADA) as client, b(principal=ADA) as other:
        asking = await begin(client, "asking", {"number": 1})
        cancelled = await begin(client, "reporting", {"number": 2})
        await reaches(client, asking, "input_required")
        monkeypatch.setattr(shared.bus, "publish", nothing)
        await answer(other, asking, name="Ada")
        await other.result("tasks/cancel", {"taskId": cancelled})
        await pass_time(clock, 20)
        assert text_in(await outcome(client, asking)) == "Hello, Ada!"
        here.go.set()
        await pass_time(clock, 2)
        assert await status_of(client, cancelled) == "cancelled"
        assert here.tasks.slots.running == 0


@pytest.mark.parametrize("answers", [True, False], ids=["late", "late and unanswered"])
@pytest.mark.parametrize("way", ["at once", "after the window", "waiting", "hosted"])
async def test_record_that_is_written_after_its_request_was_given_up_is_cancelled(
    way: str, answers: bool, clock: Clock
) -> None:
    """A store may do late what it was asked in time, also where nobody waits for that any more."""
    shared = shared_stores(clock)
    window = 5.0 if way == "after the window" else 0.0
    replica = Replica(shared, limits={"task_window": window, "tasks_running": 1}, tasks=True)
    change, may_write, asked, works = shared.queue.change, asyncio.Event(), asyncio.Event(), list[asyncio.Future[Any]]()

    async def write(*given: Any, **named: Any) -> Any:
        await may_write.wait()
        return await change(*given, **named)

    async def change_late(*given: Any, **named: Any) -> Any:
        if named["expect"] is not None or given[0] in known:
            return await change(*given, **named)
        works.append(asyncio.ensure_future(write(*given, **named)))
        asked.set()
        if not answers:
            raise StoreFailed("no answer in time")
        return await asyncio.shield(works[-1])

    @replica.server.tool
    async def submit(ctx: Context) -> str:
        return str(await replica.server.tasks.create(ctx, ttl=3600))

    known = set[str]()
    async with talk(replica.server, MODERN, "memory", principal=ADA) as client:
        if way == "waiting":
            await begin(client, "once", {"number": 1})
            known |= {each.key for each in replica.tasks.following.all()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shared.queue, "change", change_late)
            tool = "submit" if way == "hosted" else "once"
            arguments = {} if way == "hosted" else {"number": 2}
            client.start("tools/call", {"name": tool, "arguments": arguments}, id="late")
            await settled()
            await pass_time(clock, window)
            await asked.wait()
            client.notify("notifications/cancelled", {"requestId": "late"})
            await settled()
            may_write.set()
            await pass_time(clock, 12)
        await asyncio.gather(*works)
        records = [await replica.tasks.records.find(key) for key in await shared.kv.keys(replica.tasks.records.prefix)]
        left = sorted(each.status for each in records if each is not None)
        assert left == (["cancelled", "working"] if way == "waiting" else ["cancelled"])
        assert [number for _, number, _ in replica.ran if number == 2] == ([2] if window else [])
        counts = replica.tasks.quota._counts
        assert [count.reserved for count in counts.values()] == [0] * len(counts)
