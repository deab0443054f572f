"""What policies, records and metrics say holds for a call that goes on as a task."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.server.tasks.talking import ABLE, CORE, begin, look, outcome, reaches, says, text_in
from tests.wireclient import MODERN, connect

from toolwire import Context, Limits, Policy, Server, ToolError
from toolwire.audit import AuditLog
from toolwire.server.policy import Slots

SECRET = "sk-live-1234"


class Working:
    """A server whose tools go on as tasks."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("s", **options)
        self.go, self.started = asyncio.Event(), asyncio.Event()
        self.running = self.most = 0
        for tool in (self.work, self.report, self.leak, self.fail, self.large):
            self.server.tool(task="optional")(tool)

    async def work(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.set()
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return "done"

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, message=f"using {SECRET}")
        return await self.work()

    async def leak(self, ctx: Context) -> dict[str, str]:
        await ctx.progress(1, message=f"using {SECRET}")
        return {"key": SECRET}

    async def fail(self) -> str:
        raise ToolError(f"denied for {SECRET}")

    async def large(self) -> str:
        return "x" * 5000


async def test_slots_hold_while_tasks_run_and_not_only_while_they_begin() -> None:
    working = Working(policy=Policy(concurrency=Slots(1, queue=5)))
    async with connect(working.server, CORE) as client:
        tasks = [await begin(client, "work") for _ in range(3)]
        await working.started.wait()
        enforcer = working.server.enforcer
        assert enforcer is not None
        while enforcer.gates.waiting != 2:
            await asyncio.sleep(0)
        working.go.set()
        for task in tasks:
            await reaches(client, task, "completed")
    assert working.most == 1


async def test_a_task_that_finds_no_slot_fails_and_says_when_to_try_again() -> None:
    working = Working(policy=Policy(concurrency=Slots(1, queue=0)))
    async with connect(working.server, CORE) as client:
        first = await begin(client, "work")
        await working.started.wait()
        refused = await client.result("tasks/result", {"taskId": await begin(client, "work")})
        assert "This server is busy" in text_in(refused)
        working.go.set()
        await reaches(client, first, "completed")


@pytest.mark.parametrize("timeout", [0.01, 0.04])
async def test_the_timeout_of_a_policy_holds_for_tasks_even_where_calls_have_less_time(timeout: float) -> None:
    working = Working(policy=Policy(timeout=timeout), limits=Limits(tool=0.02))
    async with connect(working.server, CORE) as client:
        ended = await client.result("tasks/result", {"taskId": await begin(client, "work")})
        assert text_in(ended) == f"work did not finish within {timeout} seconds"


async def test_secrets_and_sizes_are_looked_at_when_a_task_ends() -> None:
    working = Working(policy=Policy(mask=["sk-live-[0-9]+"], result=1000))
    async with connect(working.server, CORE) as client:
        for name, said in (("leak", "[redacted]"), ("fail", "denied for [redacted]"), ("large", "may have 1000")):
            task = await begin(client, name)
            assert said in text_in(await client.result("tasks/result", {"taskId": task})), name
            await look(client, task)
        assert SECRET not in str(client.received)


@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("limit", [100, 250])
async def test_the_limit_of_results_does_not_hold_for_the_state_of_a_task(revision: str, limit: int) -> None:
    working = Working(policy=Policy(result=limit), limits=Limits(task_window=0))
    async with connect(working.server, revision, ABLE) as client:
        task = await begin(client, "work")
        await working.started.wait()
        assert (await look(client, task))["status"] == "working"
        working.go.set()
        await reaches(client, task, "completed")
        large = await begin(client, "large")
        assert f"may have {limit}" in str(await outcome(client, large))


async def test_the_status_message_of_a_task_is_masked() -> None:
    working = Working(policy=Policy(mask=["sk-live-[0-9]+"]))
    async with connect(working.server, CORE) as client:
        task = await begin(client, "report")
        await says(client, task, "using [redacted]")
        working.go.set()
        await reaches(client, task, "completed")


@pytest.mark.covers("R21")
async def test_a_task_has_a_line_when_it_begins_and_one_when_it_ends() -> None:
    lines: list[str] = []
    working = Working(audit=AuditLog(lines.append, key="a key of sixteen bytes"), metrics=True)
    async with connect(working.server, CORE) as client:
        done = await begin(client, "work")
        await working.started.wait()
        assert working.server.metrics is not None
        assert "toolwire_tasks{" in working.server.metrics.render()
        assert " 1\n" in working.server.metrics.render().split("toolwire_tasks{")[1]
        working.go.set()
        await reaches(client, done, "completed")
        failed = await begin(client, "fail")
        await client.result("tasks/result", {"taskId": failed})
        working.go.clear()
        working.started.clear()
        cancelled = await begin(client, "work")
        await working.started.wait()
        await client.result("tasks/cancel", {"taskId": cancelled})
        await reaches(client, cancelled, "cancelled")
    entries = [entry for line in lines if (entry := json.loads(line))["kind"] == "call"]
    told = {task: [each["outcome"] for each in entries if each["task"] == task] for task in (done, failed, cancelled)}
    assert told == {done: ["task", "ok"], failed: ["task", "error"], cancelled: ["task", "cancelled"]}
