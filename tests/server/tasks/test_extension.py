"""What only the extension of 2026-07-28 has: the server decides, a task carries its questions, others listen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import cases
from tests.http.modernclient import ModernClient
from tests.httpwire import connect_http
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    ABLE,
    CORE,
    EXTENSION,
    FORMS,
    Over,
    accepted,
    answer,
    begin,
    look,
    open_to,
    outcome,
    over,
    reaches,
    status_of,
    talk,
    task_in,
    text_in,
)
from tests.wireclient import MODERN, modern_meta

from toolwire import Context, Limits, Server, SyncContext
from toolwire.protocol.errors import ServerError


@over
@pytest.mark.covers("TSK-2")
async def test_what_is_done_in_a_moment_is_answered_inline(over: Over) -> None:
    held = Held(limits=Limits(task_window=60))
    held.go.set()
    async with talk(held.server, MODERN, over) as client:
        result = await client.call("hold")
        assert (result["resultType"], text_in(result)) == ("complete", "held x")
        refused = await client.error("tools/call", {"name": "refused", "arguments": {}})
        assert refused["code"] == -32099
        assert (await client.call("only"))["resultType"] == "task", "what only runs as a task is always one"
    assert held.seen == [("done", False)]


@over
@pytest.mark.covers("TSK-1", "TSK-4", "TSK-5")
async def test_a_client_that_did_not_declare_it_never_gets_a_task(over: Over) -> None:
    held = Held()
    held.go.set()
    async with open_to(held.server, MODERN, over) as join, join(capabilities=FORMS) as client, join() as able:
        assert (await able.call("only"))["resultType"] == "task"
        assert text_in(await client.call("hold")) == "held x"
        missing = await client.error("tools/call", {"name": "only", "arguments": {}})
        assert missing["code"] == -32021
        assert missing["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await client.error(method, {"taskId": "t", "inputResponses": {}})
            assert (error["code"], error["data"]) == (-32021, missing["data"])
        listen = await client.error("subscriptions/listen", {"notifications": {"taskIds": ["t"]}})
        assert listen["code"] == -32021


@over
@pytest.mark.covers("TSK-11", "TSK-12")
async def test_questions_are_in_the_task_and_answered_by_update(over: Over) -> None:
    async with talk(Held().server, MODERN, over) as client:
        task = await begin(client, "asking")
        asked = await reaches(client, task, "input_required")
        assert {key: each["method"] for key, each in asked["inputRequests"].items()} == {
            "first": "elicitation/create",
            "second": "elicitation/create",
        }
        answers: dict[str, Any] = {"first": accepted("one"), "unknown": accepted("nobody asked")}
        updated = await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
        assert updated.keys() == {"resultType", "_meta"}
        partly = await look(client, task)
        assert (partly["status"], list(partly["inputRequests"])) == ("input_required", ["second"])
        twice = {"first": accepted("other"), "second": accepted("two")}
        await client.result("tasks/update", {"taskId": task, "inputResponses": twice})
        assert text_in(await outcome(client, task)) == "one and two", "the first answer counts"


@over
async def test_a_blocking_handler_asks_too(over: Over) -> None:
    async with talk(Held().server, MODERN, over) as client:
        task = await begin(client, "asking_in_thread")
        (key,) = (await reaches(client, task, "input_required"))["inputRequests"]
        await client.result("tasks/update", {"taskId": task, "inputResponses": {key: accepted("Ada")}})
        assert text_in(await outcome(client, task)) == "Hello, Ada!"


async def test_an_answer_that_does_not_fit_the_form_is_a_tool_error() -> None:
    async with talk(Held().server, MODERN) as client:
        task = await begin(client, "asking_in_thread")
        (key,) = (await reaches(client, task, "input_required"))["inputRequests"]
        await client.result("tasks/update", {"taskId": task, "inputResponses": {key: accepted(5)}})
        result = await outcome(client, task)
        assert result["isError"]
        assert "does not fit" in text_in(result)


@over
@pytest.mark.covers("TSK-8")
async def test_a_handler_decides_when_its_call_becomes_a_task(over: Over) -> None:
    async with talk(Held().server, MODERN, over) as client:
        asked = await client.call("rounds_first")
        assert (asked["resultType"], list(asked["inputRequests"])) == ("input_required", ["name"])
        assert "taskId" not in asked
        created = await client.call(
            "rounds_first", requestState=asked["requestState"], inputResponses={"name": accepted("Ada")}
        )
        task = task_in(created)["taskId"]
        question = await reaches(client, task, "input_required")
        assert list(question["inputRequests"]) == ["colour"]
        answers = {"colour": accepted("red")}
        await client.result("tasks/update", {"taskId": task, "inputResponses": answers})
        assert text_in(await outcome(client, task)) == "Ada likes red; True"


@cases("detaches", [True, False])
@cases("by_helper", [True, False])
async def test_questions_before_detach_are_rounds_only_where_the_tool_declares_detaches(
    detaches: bool, by_helper: bool
) -> None:
    server = Server("s")

    async def run_as_task(ctx: Context) -> None:
        await ctx.detach()

    @server.tool(task="optional", detaches=detaches)
    async def work(ctx: Context) -> str:
        name = await ctx.elicit("Name?", str, key="name")
        await (run_as_task(ctx) if by_helper else ctx.detach())
        return f"{name.data}: {ctx.is_task}"

    async with talk(server, MODERN, "stdio") as client:
        asked = await client.call("work")
        assert asked["resultType"] == ("input_required" if detaches else "task")
        if detaches:
            answered = {"requestState": asked["requestState"], "inputResponses": {"name": accepted("Ada")}}
            task = task_in(await client.call("work", **answered))["taskId"]
        else:
            task = task_in(asked)["taskId"]
            await reaches(client, task, "input_required")
            await answer(client, task, name="Ada")
        assert text_in(await outcome(client, task)) == "Ada: True"


class Tensor:
    """An object with methods that are called like those of the context."""

    def detach(self) -> Tensor:
        return self

    def sample(self) -> str:
        return "a value"


async def test_method_named_detach_of_another_object_does_not_affect_tasks() -> None:
    server, go, started = Server("s", limits=Limits(task_window=0.001)), asyncio.Event(), asyncio.Event()

    @server.tool
    async def predict() -> str:
        return Tensor().detach().sample()

    @server.tool(task="optional")
    async def train() -> str:
        started.set()
        await go.wait()
        return Tensor().detach().sample()

    async with talk(server, MODERN) as client:
        assert text_in(await client.call("predict")) == "a value"
        # The window counts: the call becomes a task although its code has the name.
        task = await begin(client, "train")
        go.set()
        assert text_in(await outcome(client, task)) == "a value"


@pytest.mark.parametrize("by_helper", [True, False])
async def test_detach_works_and_the_window_counts_in_any_tool_with_task(by_helper: bool) -> None:
    server, go = Server("s", limits=Limits(task_window=0.001)), asyncio.Event()

    async def run_as_task(ctx: Context) -> None:
        await ctx.detach()

    @server.tool(task="optional")
    async def work(ctx: Context, wait: bool) -> str:
        if wait:
            await go.wait()
        else:
            await (run_as_task(ctx) if by_helper else ctx.detach())
        return f"task: {ctx.is_task}"

    async with talk(server, MODERN) as client:
        assert text_in(await outcome(client, await begin(client, "work", {"wait": False}))) == "task: True"
        waiting = await begin(client, "work", {"wait": True})
        go.set()
        assert text_in(await outcome(client, waiting)) == "task: True"


@pytest.mark.parametrize("ask", [False, True])
async def test_detaching_without_rounds(ask: bool) -> None:
    async with talk(Held().server, MODERN) as client:
        task = await begin(client, "detaching", {"ask": ask})
        if ask:
            # Nothing is replayed in a task, so a handler that cannot be replayed can ask.
            (key,) = (await reaches(client, task, "input_required"))["inputRequests"]
            await client.result("tasks/update", {"taskId": task, "inputResponses": {key: accepted(True)}})
        assert text_in(await outcome(client, task)) == "detached: True"


@cases("revision", ["2025-06-18", CORE, MODERN])
async def test_detaching_does_nothing_where_the_client_cannot_take_a_task(revision: str) -> None:
    async with talk(Held().server, revision, capabilities=FORMS) as client:
        assert text_in(await client.call("detaching")) == "detached: False"


async def test_a_call_that_is_a_task_already_is_not_detached_again() -> None:
    async with talk(Held().server, CORE) as client:
        task = await begin(client, "detaching")
        assert text_in(await outcome(client, task)) == "detached: True"


@over
@pytest.mark.covers("TSK-18")
async def test_a_listen_stream_hears_of_its_own_tasks(over: Over) -> None:
    held = Held()
    async with open_to(held.server, MODERN, over) as join, join(principal="ada") as ada, join(principal="eve") as eve:
        own, foreign = await begin(ada, "hold"), await begin(eve, "hold")
        wanted = {"notifications": {"taskIds": [own, foreign, "never was"]}}
        stream = ada.start("subscriptions/listen", wanted)
        (acknowledged,) = await ada.notified("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"taskIds": [own]}
        held.go.set()
        await reaches(eve, foreign, "completed")
        (told,) = await ada.notified("notifications/tasks")
        assert told["taskId"] == own
        assert not stream.done()


@pytest.mark.covers("TSK-15")
async def test_a_client_that_hangs_up_after_the_task_was_made_cancels_nothing() -> None:
    held = Held()
    app = held.server.http_app()
    client = ModernClient(app)
    answer = await client.call("hold", meta=modern_meta(ABLE))
    await answer.disconnect()
    held.go.set()
    task = answer.answer()["result"]["taskId"]
    async with connect_http(app, MODERN, ABLE) as other:
        assert text_in(await outcome(other, task)) == "held x"
    await client.close()
    await app.stop()


async def test_a_client_that_hangs_up_before_there_is_a_task_cancels_the_call() -> None:
    held = Held(limits=Limits(task_window=60))
    app = held.server.http_app()
    client = ModernClient(app)
    answer = client.start_call("hold", meta=modern_meta(ABLE))
    await held.started.wait()
    await answer.disconnect()
    await held.stopped.wait()
    assert held.seen == [("cancelled", False)]
    await client.close()
    await app.stop()


async def test_tasks_of_one_dialect_can_be_looked_at_in_the_other() -> None:
    held = Held()
    async with talk(held.server, CORE) as old, talk(held.server, MODERN) as new:
        task = await begin(old, "hold")
        assert await status_of(new, task) == "working"
        held.go.set()
        assert text_in(await outcome(new, task)) == "held x"
        assert text_in(await outcome(old, await begin(new, "hold"))) == "held x"


async def test_calls_in_the_same_process_wait_for_the_result() -> None:
    held = Held()
    held.go.set()
    assert (await held.server.call_tool("only")).text == "only as a task"
    assert (await held.server.call_tool("detaching")).text == "detached: False"


@pytest.mark.covers("J67")
def test_a_tool_that_declares_detaches_has_task() -> None:
    server = Server("s")
    with pytest.raises(ServerError, match="task='optional'"):

        @server.tool(detaches=True)
        async def never(ctx: Context) -> None: ...

    with pytest.raises(ServerError, match="'forbidden', 'optional' or 'required'"):
        server.tool("named", task="sometimes")(lambda: "x")


@cases("revision", ["2025-06-18", CORE, MODERN])
async def test_detach_without_task_is_refused_when_it_is_called(revision: str) -> None:
    server, mounted = Server("s", debug=True, limits=Limits(task_window=60)), Server("m")
    seen: list[str] = []

    async def run_as_task(ctx: Context) -> None:
        await ctx.detach()

    @server.tool
    @mounted.tool
    async def call(ctx: Context) -> str:
        seen.append("began")
        await run_as_task(ctx)
        return "never"

    @server.tool
    def call_in_thread(ctx: SyncContext) -> str:
        ctx.detach()
        return "never"

    @server.resource("note://a")
    async def note(ctx: Context) -> str:
        await ctx.detach()
        return "never"

    @server.tool(task="optional")
    async def read(ctx: Context) -> str:
        return str(await ctx.read_resource("note://a"))

    server.mount(mounted, prefix="m")
    async with talk(server, revision) as client:
        for name in ("call", "m_call", "call_in_thread"):
            refused = await client.call(name)
            assert refused["isError"]
            assert "ctx.detach() needs task='optional'" in text_in(refused)
        assert seen == ["began", "began"]
        assert "ctx.detach() needs task='optional'" in text_in(await client.call("read"))


async def test_long_running_is_another_word_for_optional() -> None:
    server = Server("s")

    @server.tool(long_running=True)
    async def export() -> str:
        return "exported"

    @server.tool(long_running=True, task="forbidden")
    async def short() -> str:
        return "short"

    assert [tool.task for tool in server.tools] == ["optional", None]
