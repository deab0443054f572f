"""The bytes that a caller's tasks have in the store: one caller gets its share of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.runtimes import manager_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, EVE, settled, shared_stores
from tests.server.tasks.talking import FORMS, accepted, begin, dialects, open_to, reaches, talk, task_in
from tests.wireclient import MODERN, WireClient

from toolwire import Context, Limits, Server
from toolwire.stores import Stores

ROOM = 400_000
LONG = "x" * 30_000
TOO_MANY = "You have 100000 bytes of tasks kept at once"


def make_server(stores: Stores, **limits: Any) -> tuple[Server, asyncio.Event]:
    """A server whose store has room for thirteen long calls."""
    server, go = Server("s", stores=stores, limits=Limits(**{"task_window": 0.0, **limits})), asyncio.Event()

    @server.tool(task="optional")
    async def work(text: str) -> int:
        await go.wait()
        return len(text)

    @server.tool(task="optional", annotations={"idempotentHint": True})
    async def again(text: str) -> int:
        await go.wait()
        return len(text)

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        text = (await ctx.elicit("which", str)).data or ""
        await go.wait()
        return str(len(text))

    return server, go


async def fill(client: WireClient, tool: str) -> tuple[list[str], str]:
    """Call a tool until a call is refused. Return the tasks, and the refusal."""
    tasks: list[str] = []
    while len(tasks) < 20:
        response = await client.request("tools/call", {"name": tool, "arguments": {"text": LONG}, "task": {}})
        if "error" in response:
            return tasks, response["error"]["message"]
        result = response["result"]
        tasks.append(result["task"]["taskId"] if "task" in result else result["taskId"])
    return tasks, ""


@dialects
@pytest.mark.parametrize(("tool", "running"), [("work", 1), ("again", 1), ("again", 1000)])
async def test_one_caller_cannot_fill_the_store_with_arguments(
    tool: str, running: int, revision: str, clock: Clock
) -> None:
    stores = shared_stores(clock, max_bytes=ROOM)
    server, go = make_server(stores, tasks_running=running)
    async with open_to(server, revision, "http") as join, join(principal=EVE) as eve, join(principal=ADA) as ada:
        tasks, refusal = await fill(eve, tool)
        assert TOO_MANY in refusal and len(tasks) in (3, 4)
        others, _ = await fill(ada, tool)
        assert len(others) in (3, 4)
        go.set()
        for task in tasks:
            await reaches(eve, task, "completed")
        for task in others:
            await reaches(ada, task, "completed")
        await settled()
        assert manager_of(server).kept.total == 0
        assert await fill(eve, "work") != ([], refusal), "bytes of ended tasks are free"


async def test_calls_that_arrive_together_share_the_bytes_of_their_caller(clock: Clock) -> None:
    server, go = make_server(shared_stores(clock, max_bytes=ROOM), tasks_running=1)
    async with talk(server, MODERN, "http", principal=EVE) as eve:
        params = {"name": "work", "arguments": {"text": LONG}}
        answers = await asyncio.gather(*(eve.request("tools/call", params) for _ in range(20)))
        assert sum("result" in each for each in answers) in (3, 4)
        go.set()


async def test_cancelled_waiting_task_gives_its_bytes_back(clock: Clock) -> None:
    server, go = make_server(shared_stores(clock, max_bytes=ROOM), tasks_running=1)
    async with talk(server, MODERN, "http", principal=EVE) as eve:
        tasks, refusal = await fill(eve, "work")
        assert TOO_MANY in refusal
        await eve.result("tasks/cancel", {"taskId": tasks[-1]})
        await settled()
        await begin(eve, "work", {"text": LONG})
        go.set()


async def test_answers_count_for_the_bytes_of_their_caller(clock: Clock) -> None:
    server, go = make_server(shared_stores(clock, max_bytes=ROOM))
    async with talk(server, MODERN, "http", principal=EVE) as eve:
        tasks = [await begin(eve, "ask", {}) for _ in range(5)]
        refused = 0
        for task in tasks:
            shown = await reaches(eve, task, "input_required")
            (name,) = shown["inputRequests"]
            params = {"taskId": task, "inputResponses": {name: accepted(LONG)}}
            response = await eve.request("tasks/update", params)
            refused += "error" in response and TOO_MANY in response["error"]["message"]
            await settled()
        assert refused in (2, 3)
        go.set()


async def test_answers_that_a_call_brings_count_for_the_bytes_of_its_caller(clock: Clock) -> None:
    server, go = make_server(shared_stores(clock, max_bytes=ROOM))
    async with (
        open_to(server, MODERN, "http") as join,
        join(capabilities=FORMS, principal=EVE) as plain,
        join(principal=EVE) as able,
    ):
        tasks: list[str] = []
        refusals: list[str] = []
        for _ in range(6):
            asked = await plain.call("ask")
            (name,) = asked["inputRequests"]
            brought = {"requestState": asked["requestState"], "inputResponses": {name: accepted(LONG)}}
            response = await able.request("tools/call", {"name": "ask", **brought})
            if "error" in response:
                refusals.append(response["error"]["message"])
            else:
                tasks.append(task_in(response["result"])["taskId"])
        assert len(tasks) == 3
        assert len(refusals) == 3 and all(TOO_MANY in each for each in refusals)
        go.set()
        for task in tasks:
            await reaches(able, task, "completed")
        await settled()
        assert manager_of(server).kept.total == 0
