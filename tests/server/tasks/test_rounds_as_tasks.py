"""Requests that bring answers to questions of a call, where the next run of the call becomes a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.tasks.talking import (
    FORMS,
    Over,
    accepted,
    answer,
    begin,
    open_to,
    outcome,
    over,
    reaches,
    task_in,
    text_in,
)
from tests.wireclient import MODERN

from toolwire import Context, Limits, Server
from toolwire.stores import Stores

#: How the tool of the second replica is registered, and the time in which its calls need not become tasks.
SECOND = pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"task": "optional"}, {"task_window": 60}),
        ({"task": "optional"}, {"task_window": 0.0}),
        ({"task": "required"}, {"task_window": 60}),
        ({"task": "optional", "detaches": True}, {"task_window": 60}),
    ],
    ids=["optional", "at once", "required", "detaches"],
)


def paying(done: list[str], stores: Stores, limits: dict[str, Any] | None = None, **options: Any) -> Server:
    server = Server("shop", stores=stores, secret="s" * 32, limits=Limits(**(limits or {})))

    @server.tool(**options)
    async def pay(ctx: Context) -> str:
        async def charge() -> int:
            done.append("charge")
            return 5

        await ctx.step("charge", charge)
        sure = await ctx.elicit("Sure?", bool, key="sure")
        done.append(f"paid {sure.data}")
        more = await ctx.elicit("More?", bool, key="more")
        return f"paid {more.data}"

    return server


@over
@SECOND
async def test_answers_and_steps_hold_where_the_call_becomes_a_task(
    over: Over, options: dict[str, Any], limits: dict[str, Any]
) -> None:
    done: list[str] = []
    stores = Stores.memory()
    first, second = paying(done, stores), paying(done, stores, limits, **options)
    async with open_to(first, MODERN, over) as join, join() as client:
        asked = await client.call("pay")
        assert list(asked["inputRequests"]) == ["sure"] and done == ["charge"]
    brought = {"requestState": asked["requestState"], "inputResponses": {"sure": accepted(True)}}
    async with open_to(second, MODERN, over) as join, join() as client:
        created = await client.call("pay", **brought)
        if created["resultType"] == "task":
            task = task_in(created)["taskId"]
            await reaches(client, task, "input_required")
            await answer(client, task, more=False)
            assert text_in(await outcome(client, task)) == "paid False"
        else:
            assert list(created["inputRequests"]) == ["more"]
        assert done == ["charge", "paid True"], "the step ran once, and the answer was used"
        refused = await client.error("tools/call", {"name": "pay", **brought})
        assert "used already" in refused["message"]
        assert done == ["charge", "paid True"]


@over
async def test_answers_and_steps_hold_where_the_task_waits_for_a_slot(over: Over) -> None:
    done: list[str] = []
    stores = Stores.memory()
    first = paying(done, stores)
    second = paying(done, stores, {"task_window": 0.0, "tasks_running": 1}, task="optional")
    go = asyncio.Event()

    @second.tool(task="required")
    async def hold() -> str:
        await go.wait()
        return "held"

    async with open_to(first, MODERN, over) as join, join() as client:
        asked = await client.call("pay")
    brought = {"requestState": asked["requestState"], "inputResponses": {"sure": accepted(True)}}
    async with open_to(second, MODERN, over) as join, join() as client:
        await begin(client, "hold")
        task = task_in(await client.call("pay", **brought))["taskId"]
        assert done == ["charge"], "it waits for its slot"
        go.set()
        await reaches(client, task, "input_required")
        await answer(client, task, more=True)
        assert text_in(await outcome(client, task)) == "paid True"
        assert done == ["charge", "paid True"]


@over
async def test_state_of_a_client_without_tasks_holds_for_a_request_with_them(over: Over) -> None:
    done: list[str] = []
    server = paying(done, Stores.memory(), {"task_window": 0.0}, task="optional")
    async with open_to(server, MODERN, over) as join, join(capabilities=FORMS) as plain, join() as able:
        asked = await plain.call("pay")
        brought = {"requestState": asked["requestState"], "inputResponses": {"sure": accepted(True)}}
        task = task_in(await able.call("pay", **brought))["taskId"]
        await reaches(able, task, "input_required")
        assert done == ["charge", "paid True"]


@over
async def test_invalid_state_is_refused_before_a_task_is_made(over: Over) -> None:
    done: list[str] = []
    server = paying(done, Stores.memory(), {"task_window": 0.0}, task="optional")
    async with open_to(server, MODERN, over) as join, join() as client:
        params = {"name": "pay", "arguments": {}, "requestState": "garbage", "inputResponses": {}}
        refused = await client.error("tools/call", params)
        assert refused["code"] == -32602 and "requestState" in refused["message"]
        assert done == []
