"""Tasks of a server are judged by what was decided when they were accepted, and by what holds now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace
from tests.cases import cases
from tests.runtimes import manager_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, find_record, pass_time, settled, shared_stores
from tests.server.tasks.talking import (
    CORE,
    DIALECTS,
    Over,
    answer,
    begin,
    changes,
    look,
    outcome,
    reaches,
    says,
    talk,
    text_in,
    wait_for_end,
)
from tests.wireclient import MODERN

from toolwire import Context, Limits, Policy, Server
from toolwire.auth import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import ProtocolError
from toolwire.server.judgements import Judgement
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.own_tasks import HostTask
from toolwire.stores import Stores

UNKNOWN = "There is no such task, or it has expired"
ANN = Principal("ann", scopes=frozenset({"read"}))
ANN_WITHOUT = Principal("ann")
FULL = {"tasks_running": 1}


def leaking(**options: Any) -> Server:
    server = Server("s", limits=Limits(task_window=0.0))

    @server.tool(task="optional", **options)
    async def leak() -> str:
        return "sk-1234"

    return server


async def rewrite(server: Server, task: str, edit: Callable[[rules.Record], None]) -> None:
    """Change the record of a finished task of Ann in the store."""
    tasks = manager_of(server)
    key = tasks.records.key(principal_key(ANN), task)
    data = await server.stores.kv.get(key)
    assert data is not None
    record = rules.decode(data)
    edit(record)
    await server.stores.kv.put(key, rules.encode(record))
    tasks.records.drop_recent_end(key)


@cases("front", DIALECTS)
@cases("judgement", [UNSET, Raw(b"[[],[],[]]")], ids=["none", "without a tool"])
async def test_record_of_an_earlier_version_is_judged_by_the_tool_of_now(judgement: Any, front: str) -> None:
    server = leaking(scopes=["read"])
    async with talk(server, front, principal=ANN) as client, talk(server, front, principal=ANN_WITHOUT) as poorer:
        task = await begin(client, "leak")
        await reaches(client, task, "completed")

        def edit(record: rules.Record) -> None:
            record.judgement = judgement

        await rewrite(server, task, edit)
        assert text_in(await outcome(client, task)) == "sk-1234"
        refused = await poorer.error("tasks/get", {"taskId": task})
        assert refused["message"] == "This needs the scope read"
        server.remove("leak")
        for each in (client, poorer):
            assert (await each.error("tasks/get", {"taskId": task}))["message"] == UNKNOWN


async def test_task_with_a_damaged_judgement_is_hidden() -> None:
    server = leaking()
    async with talk(server, MODERN, principal=ANN) as client:
        task = await begin(client, "leak")
        await reaches(client, task, "completed")

        def edit(record: rules.Record) -> None:
            record.judgement = Raw(b'["x"]')

        await rewrite(server, task, edit)
        assert (await client.error("tasks/get", {"taskId": task}))["message"] == UNKNOWN


SECRET = "sk-1234"


def with_masks(stores: Stores, *masks: str) -> Server:
    """A process of a fleet whose tools say a secret in each place of a task."""
    policy = Policy(mask=masks) if masks else None
    server = Server("s", stores=stores, secret="x" * 32, limits=Limits(task_window=0.0), policy=policy)

    @server.tool(task="optional")
    async def leak(ctx: Context) -> dict[str, str]:
        await ctx.progress(1, message=f"using {SECRET}")
        return {"key": SECRET}

    @server.tool(task="optional")
    async def fail() -> str:
        raise ProtocolError(-32000, f"denied for {SECRET}", {"key": SECRET})

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        await ctx.progress(1, message=f"using {SECRET}")
        return str((await ctx.elicit(f"Use {SECRET}?", bool, key="use")).data)

    @server.tool(task="optional")
    async def choose(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Literal["sk-1234", "none"], key="which")
        return "right" if answer.data == SECRET else "wrong"

    return server


@cases("front", DIALECTS)
async def test_choice_that_is_masked_later_can_be_chosen(front: str, clock: Clock) -> None:
    stores = shared_stores(clock)
    before, after = with_masks(stores), with_masks(stores, "sk-[0-9]+")
    async with talk(before, front, principal=ANN) as old, talk(after, front, principal=ANN) as new:
        task = await begin(old, "choose")
        await reaches(old, task, "input_required")
        await answer(new, task, **{"which" if front == MODERN else "Which?": "[redacted]"})
        assert text_in(await outcome(old, task)) == "right"
        assert SECRET not in str(new.received)


@cases("front", DIALECTS)
async def test_mask_that_is_added_later_holds_for_what_is_read_of_a_task(front: str, clock: Clock) -> None:
    stores = shared_stores(clock)
    before, after = with_masks(stores), with_masks(stores, "sk-[0-9]+")
    async with talk(before, front, principal=ANN) as old, talk(after, front, principal=ANN) as new:
        leaked, failed, asked = [await begin(old, name) for name in ("leak", "fail", "ask")]
        await reaches(old, leaked, "completed")
        await reaches(old, failed, "failed")
        await reaches(old, asked, "input_required")
        assert SECRET in str(await outcome(old, leaked)), "no mask held where it ran"
        for task in (leaked, failed, asked):
            assert "[redacted]" in str(await look(new, task)) or front == CORE
        if front == CORE:
            assert "[redacted]" in str(await outcome(new, leaked))
            assert "denied for [redacted]" in str(await new.error("tasks/result", {"taskId": failed}))
            assert len((await new.result("tasks/list", {}))["tasks"]) == 3
            waiting = asyncio.create_task(new.result("tasks/result", {"taskId": asked}))
            while "Use [redacted]?" not in str(new.received):
                await asyncio.sleep(0)
            waiting.cancel()
        assert SECRET not in str(new.received)


@cases("over", ["memory", "http"])
@cases("front", DIALECTS)
async def test_mask_that_is_added_while_a_task_runs_holds_for_what_its_client_is_told(front: str, over: Over) -> None:
    server, go = Server("s", limits=Limits(task_window=0.0)), asyncio.Event()

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        await ctx.progress(1, message=f"using {SECRET}")
        await go.wait()
        return str((await ctx.elicit("Sure?", bool, key="sure")).data)

    async with talk(server, front, over, principal=ANN) as client:
        task = await begin(client, "ask")
        await says(client, task, f"using {SECRET}")
        if front == MODERN:
            await wait_for_end(client, task)
        server.apply_settings(replace(server.settings, policy=Policy(mask=["sk-[0-9]+"])))
        before = len(client.received)
        go.set()
        (told,) = await changes(client, 1)
        assert told["status"] == "input_required"
        assert told["statusMessage"] == "using [redacted]"
        assert SECRET not in str(client.received[before:])


@cases("masks", [(), ("sk-[0-9]+",), ("redacted",)], ids=["none", "the same", "another"])
async def test_mask_is_applied_once_to_what_is_read_of_a_task(masks: tuple[str, ...], clock: Clock) -> None:
    stores = shared_stores(clock)
    before, after = with_masks(stores, "sk-[0-9]+"), with_masks(stores, *masks)
    async with talk(before, MODERN, principal=ANN) as old, talk(after, MODERN, principal=ANN) as new:
        task = await begin(old, "leak")
        await reaches(old, task, "completed")
        shown = (await look(new, task))["result"]["structuredContent"]
        assert shown == ({"key": "[[redacted]]"} if masks == ("redacted",) else {"key": "[redacted]"})


async def test_every_mask_holds_for_a_task_of_an_earlier_version() -> None:
    server = leaking()
    server.tool(len, name="other", policy=Policy(mask=["sk-[0-9]+"]))
    async with talk(server, MODERN, principal=ANN) as client:
        task = await begin(client, "leak")
        await reaches(client, task, "completed")

        def edit(record: rules.Record) -> None:
            record.judgement = UNSET

        assert text_in(await outcome(client, task)) == "sk-1234"
        await rewrite(server, task, edit)
        assert text_in(await outcome(client, task)) == "[redacted]"


class Hosting:
    """A mounted server whose tool and resource make tasks of its own program."""

    def __init__(self, **options: Any) -> None:
        self.inner = Server("inner", tasks=True)
        self.front = Server("front", tasks=True, limits=Limits(task_window=0.0))
        self.made: list[HostTask] = []
        self.inner.tool(self.make, **options)
        self.inner.resource("note://make", **options)(self.make)
        self.front.mount(self.inner)

    async def make(self, ctx: Context) -> str:
        self.made.append(await self.inner.tasks.create(ctx, message="in the clear"))
        return "made"


@cases("front", DIALECTS)
async def test_task_of_the_program_is_hidden_with_the_tool_that_made_it(front: str) -> None:
    hosting = Hosting()
    async with talk(hosting.front, front, principal=ANN) as client:
        await client.call("make")
        of_program = await hosting.front.tasks.create(principal=ANN, message="of nobody's call")
        (made,) = hosting.made
        assert (await look(client, made.id))["statusMessage"] == "in the clear"
        hosting.front.unmount(hosting.inner)
        assert (await client.error("tasks/get", {"taskId": made.id}))["message"] == UNKNOWN
        assert (await client.error("tasks/cancel", {"taskId": made.id}))["message"] == UNKNOWN
        assert (await look(client, of_program.id))["statusMessage"] == "of nobody's call"
        if front == CORE:
            listed = (await client.result("tasks/list"))["tasks"]
            assert [each["taskId"] for each in listed] == [of_program.id]
        # The program still has its task.
        assert await hosting.front.tasks.finish(made, "done")


@cases("front", DIALECTS)
@cases("by", ["tool", "resource"])
async def test_task_of_the_program_needs_the_scopes_of_what_made_it(by: str, front: str) -> None:
    hosting = Hosting(scopes=["read"])
    async with (
        talk(hosting.front, front, principal=ANN) as client,
        talk(hosting.front, front, principal=ANN_WITHOUT) as poorer,
    ):
        await (client.call("make") if by == "tool" else client.result("resources/read", {"uri": "note://make"}))
        (made,) = hosting.made
        assert (await look(client, made.id))["statusMessage"] == "in the clear"
        refused = await poorer.error("tasks/get", {"taskId": made.id})
        assert refused["message"] == "This needs the scope read"


@pytest.mark.parametrize("is_listed", [True, False])
async def test_client_is_told_of_its_task_while_the_tool_is_known(is_listed: bool) -> None:
    server, go = Server("s", limits=Limits(task_window=0.0)), asyncio.Event()

    @server.tool(task="optional")
    async def wait() -> str:
        await go.wait()
        return "done"

    async with talk(server, CORE, principal=ANN) as client:
        await begin(client, "wait")
        if not is_listed:
            server.remove("wait")
        go.set()
        await settled()
        await client.request("ping")
        told = [each for each in client.notifications if each["method"] == "notifications/tasks/status"]
        assert len(told) == is_listed


async def test_masks_of_then_hold_where_another_replica_runs_the_call(clock: Clock) -> None:
    shared = shared_stores(clock)
    full = Replica(shared, limits=FULL, policy=Policy(mask=["by ada"], result=2000))
    async with full.serving() as join, join(principal=ADA) as client:
        await begin(client, "once", {"number": 0})
        await full.started.wait()
        task = await begin(client, "once", {"number": 1})
        free = Replica(shared)
        free.go.set()
        async with free.serving() as there, there(principal=ADA) as other:
            await pass_time(clock, 6)
            assert text_in(await outcome(other, task)) == "once 1 [redacted]"
        assert free.ran == [("once", 1, 1)]
        full.go.set()


async def test_dead_letter_keeps_what_was_decided(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, policy=Policy(mask=["secret"]))
    async with replica.serving() as join, join(principal=ADA) as client:
        task = await begin(client, "again", {"number": 1})
        await replica.started.wait()
        record = await find_record(replica, task)
        await replica.tasks.letters.keep(replica.tasks.records.key(principal_key(ADA), task), record)
        (letter,) = await replica.server.tasks.dead_letters()
        new = await replica.server.tasks.send_again(letter)
        assert new is not None
        kept = (await find_record(replica, new.id)).judgement
        assert kept == record.judgement
        assert [each.pattern for each in msgspec.json.decode(bytes(kept), type=Judgement).masks] == ["secret"]
        replica.go.set()
