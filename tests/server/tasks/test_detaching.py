"""Questions that are asked around `ctx.detach()`: each reaches the user once, in the call or in the task."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.server.tasks.talking import (
    Over,
    accepted,
    answer,
    begin,
    dialects,
    outcome,
    over,
    reaches,
    talk,
    task_in,
    text_in,
)
from tests.wireclient import MODERN

from toolwire import Context, Limits, Server, SyncContext, testing
from toolwire.client import Accept
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.server.tasks.manager import TaskManager


def make_server(ended: list[str]) -> Server:
    server = Server("s", limits=Limits(task_poll=0.05))

    async def ask(ctx: Context) -> str:
        answered = str((await ctx.elicit("Name?", str)).data)
        ended.append(answered)
        return answered

    @server.tool(task="optional", detaches=True)
    async def question_first(ctx: Context) -> str:
        answered, _ = await asyncio.gather(ask(ctx), ctx.detach())
        return answered

    @server.tool(task="optional", detaches=True)
    async def detach_first(ctx: Context) -> str:
        _, answered = await asyncio.gather(ctx.detach(), ask(ctx))
        return answered

    @server.tool(task="optional", detaches=True)
    async def tolerant(ctx: Context) -> str:
        answered, _ = await asyncio.gather(ask(ctx), ctx.detach(), return_exceptions=True)
        return str(answered)

    @server.tool(task="optional", detaches=True)
    async def group(ctx: Context) -> str:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.detach())
            asking = tasks.create_task(ask(ctx))
        return asking.result()

    @server.tool(task="optional", detaches=True)
    async def created(ctx: Context) -> str:
        asking = asyncio.create_task(ask(ctx))
        await ctx.detach()
        return await asking

    @server.tool(task="optional", detaches=True)
    def threaded(ctx: SyncContext) -> str:
        with ThreadPoolExecutor(1) as threads:
            detaching = threads.submit(ctx.detach)
            answered = str(ctx.elicit("Name?", str).data)
            detaching.result()
        ended.append(answered)
        return answered

    @server.tool(task="optional", detaches=True, replay=False)
    async def without_replay(ctx: Context) -> str:
        _, answered = await asyncio.gather(ctx.detach(), ask(ctx))
        return answered

    return server


WAYS = ("question_first", "detach_first", "tolerant", "group", "created", "without_replay", "threaded")


@dialects
@pytest.mark.parametrize("name", WAYS)
async def test_question_beside_detach_is_asked_once_and_the_handler_ends(revision: str, name: str) -> None:
    asked: list[str] = []
    ended: list[str] = []

    def elicit(message: str, form: Any) -> Accept:
        asked.append(message)
        return Accept({"value": "Ada"})

    async with testing.connect(make_server(ended), revision=revision, elicit=elicit) as (client, _):
        result = await (await client.call_tool_as_task(name)).wait()
    assert (result.text, asked, ended) == ("Ada", ["Name?"], ["Ada"])


@over
@pytest.mark.parametrize("name", ["detach_first", "group", "created", "without_replay"])
async def test_question_asked_while_detach_is_under_way_belongs_to_the_task(over: Over, name: str) -> None:
    ended: list[str] = []
    async with talk(make_server(ended), MODERN, over) as client:
        task = await begin(client, name)
        (key,) = (await reaches(client, task, "input_required"))["inputRequests"]
        await answer(client, task, **{key: "Ada"})
        assert text_in(await outcome(client, task)) == "Ada"


@over
@pytest.mark.parametrize("name", ["question_first", "tolerant"])
async def test_question_asked_before_detach_in_the_same_run_belongs_to_the_call(over: Over, name: str) -> None:
    ended: list[str] = []
    async with talk(make_server(ended), MODERN, over) as client:
        asked = await client.call(name)
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        again = {"requestState": asked["requestState"], "inputResponses": {key: accepted("Ada")}}
        task = task_in(await client.call(name, **again))["taskId"]
        assert text_in(await outcome(client, task)) == "Ada"


async def test_question_belongs_to_the_call_when_the_detach_under_way_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    server, go = Server("s"), asyncio.Event()

    async def refuse(*_: Any) -> None:
        await go.wait()
        raise ProtocolError(INTERNAL_ERROR, "no room")

    monkeypatch.setattr(TaskManager, "open", refuse)

    @server.tool(task="optional", detaches=True)
    async def work(ctx: Context) -> str:
        detaching = asyncio.create_task(ctx.detach())
        asking = asyncio.create_task(ctx.elicit("Name?", str))
        for _ in range(50):
            await asyncio.sleep(0)
        assert go.is_set() or not asking.done()
        go.set()
        with pytest.raises(ProtocolError, match="no room"):
            await detaching
        return f"{(await asking).data}: {ctx.is_task}"

    async with talk(server, MODERN) as client:
        asked = await client.call("work")
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        again = {"requestState": asked["requestState"], "inputResponses": {key: accepted("Ada")}}
        assert text_in(await client.call("work", **again)) == "Ada: False"


async def test_step_of_an_earlier_round_is_not_made_again_in_the_task() -> None:
    server, made = Server("s"), []

    @server.tool(task="optional", detaches=True)
    async def work(ctx: Context) -> str:
        async def charge() -> Any:
            if made:
                await detached.wait()
            return await ctx.step("charge", lambda: made.append("charged") or "receipt")

        async def detach() -> None:
            await ctx.detach()
            detached.set()

        detached = asyncio.Event()
        answered, receipt, _ = await asyncio.gather(ctx.elicit("Name?", str), charge(), detach())
        return f"{answered.data}: {receipt}"

    async with talk(server, MODERN) as client:
        asked = await client.call("work")
        (key,) = asked["inputRequests"]
        again = {"requestState": asked["requestState"], "inputResponses": {key: accepted("Ada")}}
        task = task_in(await client.call("work", **again))["taskId"]
        assert (text_in(await outcome(client, task)), made) == ("Ada: receipt", ["charged"])


async def test_task_fails_that_ends_with_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end_with_questions(_: Any, run: Any) -> Any:
        await run.open()
        return t.InputRequiredResult(request_state="x")

    monkeypatch.setattr(TaskManager, "call", end_with_questions)
    async with talk(make_server([]), MODERN) as client:
        task = await begin(client, "created")
        assert (await reaches(client, task, "completed", "failed"))["status"] == "failed"
