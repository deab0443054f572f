"""`executor="thread"` for `async def`: the handler computes in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from tests.cases import cases
from tests.server.tasks.talking import ABLE, begin, outcome, text_in
from tests.wireclient import MODERN, connect

from toolwire import Context, Depends, Limits, Server, SyncContext, Tool
from toolwire.protocol.errors import ServerError

ERAS = ["2025-11-25", MODERN]
eras = cases("revision", ERAS)
ASKABLE = {**ABLE, "sampling": {}, "roots": {}}
SECONDS = 20.0


class Block:
    """Work that holds its thread until the test releases it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._release = threading.Event()
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def compute(self) -> None:
        self._loop.call_soon_threadsafe(self.began.set)
        assert self._release.wait(SECONDS)

    def release(self) -> None:
        self._release.set()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self.ended.set)


@eras
@pytest.mark.parametrize("as_task", [False, True])
@pytest.mark.covers("J86")
async def test_ping_is_answered_while_an_async_tool_computes(revision: str, as_task: bool) -> None:
    server, block = Server("s", limits=Limits(task_window=0.0)), Block()

    @server.tool(task="optional" if as_task else None, executor="thread")
    async def work(ctx: Context) -> str:
        block.compute()
        await asyncio.sleep(0)
        return f"task: {ctx.is_task}"

    async with asyncio.timeout(SECONDS), connect(server, revision, ABLE) as client:
        call = asyncio.ensure_future(begin(client, "work") if as_task else client.call("work"))
        await block.began.wait()
        assert await client.result("tools/list")
        assert not as_task or await client.result("tasks/get", {"taskId": await call})
        block.release()
        result = await outcome(client, await call) if as_task else await call
        assert text_in(result) == f"task: {as_task}"


@eras
async def test_the_context_works_in_the_loop_of_the_handler(revision: str) -> None:
    server = Server("s", limits=Limits(threads=1))
    loops: set[asyncio.AbstractEventLoop] = set()
    here = asyncio.get_running_loop()

    @server.resource("note://a")
    def note() -> str:
        return "noted"

    @server.tool(executor="thread")
    async def work(name: str, ctx: Context) -> str:
        loops.add(asyncio.get_running_loop())
        assert Context.current() == ctx
        assert await Context.current().progress(1, 2, "half")
        assert await ctx.info("said") is (revision != MODERN)
        ctx.track(total=4).advance(3)
        (content,) = await ctx.read_resource("note://a")
        return f"{name} {content.text} {threading.current_thread().name}"

    async with asyncio.timeout(SECONDS), connect(server, revision) as client:
        result = await client.call("work", {"name": "a"}, _meta={"progressToken": "t"})
        assert text_in(result) == "a noted toolwire worker"
        assert [each["progress"] for each in client.of("notifications/progress")] == [1, 3]
        assert len(client.of("notifications/message")) == (revision != MODERN)
    assert here not in loops


@eras
async def test_a_handler_in_its_own_loop_asks_and_runs_steps_once(revision: str) -> None:
    server = Server("s")
    ran: list[str] = []
    loops: set[asyncio.AbstractEventLoop] = set()

    @server.tool(executor="thread")
    async def work(ctx: Context) -> str:
        loop = asyncio.get_running_loop()
        ran.append("began")

        async def pay() -> str:
            loops.add(asyncio.get_running_loop())
            assert loop is asyncio.get_running_loop()
            ran.append("paid")
            return "paid"

        paid = await ctx.step("pay", pay)
        first, second = await asyncio.gather(ctx.elicit("First?", str, key="a"), ctx.elicit("Second?", str, key="b"))
        sampled = await ctx.sample("Think!", key="c")
        roots = await ctx.list_roots(key="d")
        return f"{paid} {first.data} {second.data} {sampled.content.text} {roots[0].uri}"  # type: ignore[union-attr]

    async with asyncio.timeout(SECONDS), connect(server, revision, ASKABLE) as client:
        client.answers["elicitation/create"] = lambda params: {
            "action": "accept",
            "content": {"value": params["message"]},
        }
        client.answers["sampling/createMessage"] = lambda params: {
            "role": "assistant",
            "model": "m",
            "content": {"type": "text", "text": "thought"},
        }
        client.answers["roots/list"] = lambda params: {"roots": [{"uri": "file:///a"}]}
        result, rounds = await client.call("work"), 1
        asked: list[set[str]] = []
        while result.get("resultType") == "input_required":
            questions = result["inputRequests"]
            asked.append(set(questions))
            answers = {key: client.answers[each["method"]](each.get("params", {})) for key, each in questions.items()}
            result = await client.call("work", requestState=result["requestState"], inputResponses=answers)
            rounds += 1
        assert text_in(result) == "paid First? Second? thought file:///a"
    assert ran.count("paid") == 1
    assert ran.count("began") == rounds
    assert asked == ([{"a", "b"}, {"c"}, {"d"}] if revision == MODERN else [])


async def test_a_handler_has_cleaned_up_before_its_question_is_sent() -> None:
    server = Server("s")
    order: list[str] = []

    @server.tool(executor="thread")
    async def work(ctx: Context) -> str:
        order.append("begins")
        try:
            return str((await ctx.elicit("Sure?", bool, key="a")).data)
        finally:
            await asyncio.sleep(0.01)
            order.append("ends")

    async with asyncio.timeout(SECONDS), connect(server, MODERN, ABLE) as client:
        asked = await client.call("work")
        assert order == ["begins", "ends"]
        answers = {"a": {"action": "accept", "content": {"value": True}}}
        result = await client.call("work", requestState=asked["requestState"], inputResponses=answers)
        assert text_in(result) == "True"


async def test_step_that_runs_during_a_question_is_recorded() -> None:
    server, block = Server("s"), Block()
    ran: list[str] = []

    @server.tool(executor="thread")
    async def work(ctx: Context) -> str:
        async def pay() -> str:
            block._loop.call_soon_threadsafe(block.began.set)
            while not block._release.is_set():
                await asyncio.sleep(0.001)
            ran.append("paid")
            return "paid"

        paid, answer = await asyncio.gather(ctx.step("pay", pay), ctx.elicit("Sure?", bool, key="a"))
        return f"{paid} {answer.data}"

    async with asyncio.timeout(SECONDS), connect(server, MODERN, ABLE) as client:
        calling = asyncio.ensure_future(client.call("work"))
        await block.began.wait()
        block.release()
        asked = await calling
        answers = {"a": {"action": "accept", "content": {"value": True}}}
        result = await client.call("work", requestState=asked["requestState"], inputResponses=answers)
        assert text_in(result) == "paid True"
    assert ran == ["paid"]


@eras
@pytest.mark.parametrize("computes", [True, False])
async def test_a_cancellation_reaches_the_handler(revision: str, computes: bool) -> None:
    server, block = Server("s"), Block()
    seen: list[Any] = []

    @server.tool(executor="thread")
    async def work(ctx: Context) -> None:
        try:
            if computes:
                block.compute()
                seen.append(ctx.cancelled)
            else:
                block._loop.call_soon_threadsafe(block.began.set)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            with pytest.raises(asyncio.CancelledError):
                await ctx.info("too late")
            raise
        finally:
            block.end()

    async with asyncio.timeout(SECONDS), connect(server, revision) as client:
        client.start("tools/call", {"name": "work"}, id="w")
        await block.began.wait()
        client.notify("notifications/cancelled", {"requestId": "w"})
        await client.result("tools/list")
        block.release()
        await block.ended.wait()
    assert seen == ([True, "cancelled"] if computes else ["cancelled"])


async def test_a_handler_in_its_own_loop_has_its_time() -> None:
    server, block = Server("s"), Block()

    @server.tool(executor="thread", timeout=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            block.end()

    async with asyncio.timeout(SECONDS), connect(server, MODERN) as client:
        assert text_in(await client.call("hang")) == "hang did not finish within 0.01 seconds"
        await block.ended.wait()


@pytest.mark.parametrize("fails", [False, True])
async def test_dependencies_are_made_in_the_loop_of_the_handler(fails: bool) -> None:
    server = Server("s")
    order: list[str] = []

    async def session(ctx: Context) -> AsyncIterator[asyncio.AbstractEventLoop]:
        await ctx.info("opening")
        try:
            yield asyncio.get_running_loop()
        except ValueError:
            order.append("rolled back")
            raise
        order.append("committed")

    def name(ctx: SyncContext) -> str:
        ctx.info("blocking")
        return threading.current_thread().name

    @server.tool(executor="thread")
    async def work(
        loop: Annotated[asyncio.AbstractEventLoop, Depends(session)], thread: Annotated[str, Depends(name)]
    ) -> str:
        assert loop is asyncio.get_running_loop()
        if fails:
            raise ValueError("no")
        return thread

    async with asyncio.timeout(SECONDS), connect(server, "2025-11-25") as client:
        result = await client.call("work")
        assert result.get("isError", False) is fails
        assert fails or text_in(result) == "toolwire worker"
        assert [each["data"] for each in client.of("notifications/message")] == ["opening", "blocking"]
    assert order == ["rolled back" if fails else "committed"]


async def test_an_async_generator_reports_from_its_own_loop() -> None:
    server = Server("s")

    @server.tool(executor="thread")
    async def count() -> AsyncIterator[Any]:
        yield 1
        yield 2
        yield "done"

    async with asyncio.timeout(SECONDS), connect(server, MODERN) as client:
        result = await client.call("count", _meta={"progressToken": "t"})
        assert text_in(result) == "done"
        assert [each["progress"] for each in client.of("notifications/progress")] == [1, 2]


@eras
async def test_detach_works_in_the_loop_of_the_handler(revision: str) -> None:
    server = Server("s", limits=Limits(task_window=60))

    @server.tool(task="optional", executor="thread")
    async def work(ctx: Context) -> str:
        await ctx.detach()
        return f"task: {ctx.is_task}"

    async with asyncio.timeout(SECONDS), connect(server, revision, ABLE) as client:
        assert text_in(await outcome(client, await begin(client, "work"))) == "task: True"


async def test_prompts_and_resources_run_in_their_own_loop_too() -> None:
    server = Server("s")
    here = asyncio.get_running_loop()

    @server.resource("note://a", executor="thread")
    async def note() -> str:
        return str(asyncio.get_running_loop() is not here)

    @server.prompt(executor="thread")
    async def greet(ctx: Context) -> str:
        await ctx.info("hello")
        return str(asyncio.get_running_loop() is not here)

    async with asyncio.timeout(SECONDS), connect(server, MODERN) as client:
        read = await client.result("resources/read", {"uri": "note://a"})
        got = await client.result("prompts/get", {"name": "greet"})
    assert (read["contents"][0]["text"], got["messages"][0]["content"]["text"]) == ("True", "True")


def test_a_blocking_context_is_refused_for_an_async_handler() -> None:
    async def work(ctx: SyncContext) -> None: ...

    with pytest.raises(ServerError, match="runs on a loop: it takes Context"):
        Tool(work, executor="thread")
