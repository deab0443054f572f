"""Tasks of a server are judged by what was decided when they were accepted, and by what holds now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from tests.cases import cases
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, Replica, find_record, pass_time, settled, shared_stores
from tests.server.tasks.talking import CORE, DIALECTS, begin, look, outcome, reaches, talk, text_in
from tests.wireclient import MODERN

from toolwire import Context, Limits, Policy, Server
from toolwire.auth import Principal
from toolwire.protocol import tasks as rules
from toolwire.server.judgements import Judgement
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.own_tasks import HostTask

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
    tasks = server.kernel.tasks._tasks
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
