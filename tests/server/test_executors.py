"""Where handlers run: on the loop, in threads, in processes; how long they may; generators; a full house."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Annotated, Any

import pytest
from tests.blocks import ROOT
from tests.cases import cases
from tests.server.process_handlers import asks, asynchronous, compute, draw, fail, hang
from tests.wireclient import MODERN, REVISIONS, connect

from toolwire import Context, Depends, Limits, Resource, Server, SyncContext, Tool, ToolError
from toolwire.client import sync
from toolwire.protocol.errors import ServerError
from toolwire.testing import elapse

PROGRESS = "notifications/progress"
TOKEN = {"_meta": {"progressToken": "t"}}


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def here() -> bool:
    return threading.current_thread() is threading.main_thread()


# --- Loop and threads ---


@pytest.mark.covers("S8")
async def test_async_handlers_share_the_loop() -> None:
    server = Server("s")
    meeting = asyncio.Barrier(2)

    @server.tool
    async def meet() -> str:
        await meeting.wait()
        return f"met {here()}"

    async with connect(server, MODERN) as client:
        both = await asyncio.gather(client.call("meet"), client.call("meet"))
    assert [text(each) for each in both] == ["met True"] * 2


async def test_a_def_handler_blocks_nobody() -> None:
    server = Server("s")
    release = threading.Event()

    @server.tool
    def block() -> str:
        release.wait(10)
        return f"done {here()}"

    @server.tool
    async def quick() -> str:
        release.set()
        return "quick"

    async with connect(server, MODERN) as client:
        blocked = client.start("tools/call", {"name": "block"})
        assert text(await client.call("quick")) == "quick"
        assert text((await blocked)["result"]) == "done False"


async def test_a_def_handler_may_run_on_the_loop() -> None:
    server = Server("s")
    server.tool(executor="loop")(here)
    async with connect(server, MODERN) as client:
        assert text(await client.call("here")) == "true"


@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_a_def_handler_may_hand_on_a_coroutine(executor: Any) -> None:
    server = Server("s")

    async def greeting(name: str) -> str:
        await asyncio.sleep(0)
        return f"Hello, {name}! {here()}"

    @server.tool(executor=executor)
    def greet(name: str) -> Any:
        return greeting(name)

    @server.tool(executor=executor)
    def greet_in_context(name: str, ctx: Context) -> Any:
        return greeting(f"{name} {ctx.cancelled}")

    async with connect(server, MODERN) as client:
        assert text(await client.call("greet", {"name": "Ada"})) == "Hello, Ada! True"
        assert text(await client.call("greet_in_context", {"name": "Ada"})) == "Hello, Ada False! True"


async def test_callables_of_every_kind() -> None:
    class Adder:
        def __init__(self, base: int) -> None:
            self.base = base

        def __call__(self, n: int) -> int:
            return self.base + n

        async def method(self, n: int) -> int:
            return self.base * n

        @classmethod
        def made(cls, n: int) -> int:
            return n

    async def scaled(factor: int, n: int) -> int:
        return factor * n

    adder = Adder(10)
    tools = [
        Tool(adder),
        Tool(adder.method),
        Tool(Adder.made),
        Tool(functools.partial(scaled, 3), name="scaled"),
    ]
    async with connect(Server("s", tools=tools), MODERN) as client:
        for name, expected in (("Adder", 12), ("method", 20), ("made", 2), ("scaled", 6)):
            assert text(await client.call(name, {"n": 2})) == str(expected)


async def test_arguments_reach_their_parameters_in_whatever_order_they_are_sent() -> None:
    server = Server("s")

    def plain(a: int, b: str, c: int = 7) -> str:
        return f"{a}{b}{c}"

    def by_name(a: int, *, b: str, c: int = 7) -> str:
        return f"{a}{b}{c}"

    def with_context(a: int, ctx: Context, b: str, c: int = 7) -> str:
        return f"{a}{b}{c}"

    async def waits(a: int, b: str, c: int = 7) -> str:
        return f"{a}{b}{c}"

    @functools.wraps(plain)
    def wraps(**arguments: Any) -> str:
        return plain(**arguments)

    functions = {"plain": plain, "by_name": by_name, "with_context": with_context, "waits": waits, "wraps": wraps}
    for name, function in functions.items():
        server.tool(function, name=name)
    async with connect(server, MODERN) as client:
        for name in functions:
            assert text(await client.call(name, {"c": 3, "b": "x", "a": 1})) == "1x3"
            assert text(await client.call(name, {"b": "x", "a": 1})) == "1x7"
            # What may stand for a number is read as one.
            assert text(await client.call(name, {"b": "x", "a": "1"})) == "1x7"
            assert text(await client.call(name, {"b": "x", "a": "one"})).startswith('Argument "a": expected')


async def test_positional_only_parameters() -> None:
    async def add(a: int, b: int, /, c: int = 0) -> int:
        return a + b + c

    def subtract(a: int, b: int, /) -> int:
        return a - b

    async with connect(Server("s", tools=[add, subtract]), MODERN) as client:
        assert text(await client.call("add", {"a": 1, "b": 2, "c": 4})) == "7"
        assert text(await client.call("subtract", {"a": 5, "b": 2})) == "3"


# --- Time ---


@pytest.mark.covers("R20")
@cases("revision", REVISIONS)
@cases("kind", ["async", "def"])
async def test_a_tool_that_takes_too_long_is_ended(revision: str, kind: str) -> None:
    server = Server("s")
    release, stopped = threading.Event(), asyncio.Event()

    @server.tool(name="async", timeout=0.01)
    async def in_loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @server.tool(name="def", timeout=0.01)
    def in_thread() -> None:
        release.wait(10)

    async with connect(server, revision) as client:
        result = await client.call(kind)
        release.set()
        assert result["isError"] is True
        assert text(result) == f"{kind} did not finish within 0.01 seconds"
        assert stopped.is_set() is (kind == "async")
        assert "tools" in await client.result("tools/list"), "the connection lives on"


@pytest.mark.parametrize(
    ("raised", "told"),
    [(OSError("no"), "hang did not finish within 0.01 seconds"), (ToolError("half is done"), "half is done")],
)
async def test_what_cleaning_up_raises_does_not_hide_the_timeout(raised: Exception, told: str) -> None:
    server = Server("s")

    @server.tool(timeout=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise raised

    async with connect(server, MODERN) as client:
        assert text(await client.call("hang")) == told


@pytest.mark.covers("R20")
async def test_the_default_time_is_a_limit_of_the_server() -> None:
    server = Server("s", limits=Limits(tool=0.01))

    @server.tool
    async def slow() -> None:
        await asyncio.Event().wait()

    @server.tool(timeout=30)
    async def patient() -> str:
        return "done"

    async with connect(server, MODERN) as client:
        assert "within 0.01 seconds" in text(await client.call("slow"))
        assert text(await client.call("patient")) == "done"


@pytest.mark.covers("R20")
@cases("kind", ["async", "def", "resource", "template", "prompt"])
async def test_every_kind_of_handler_is_ended_when_its_time_is_up(kind: str) -> None:
    server, seconds = Server("s"), 19.0
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async def hang_at(id: str) -> str:
        return await hang()

    def block() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(50)
        return ""

    server.tool(name="async", timeout=seconds)(hang)
    server.tool(name="def", timeout=seconds)(block)
    server.resource("note://a", timeout=seconds)(hang)
    server.resource("note://{id}/text", timeout=seconds)(hang_at)
    server.prompt(name="prompt", timeout=seconds)(hang)
    method, params = {
        "resource": ("resources/read", {"uri": "note://a"}),
        "template": ("resources/read", {"uri": "note://a/text"}),
        "prompt": ("prompts/get", {"name": "prompt"}),
    }.get(kind, ("tools/call", {"name": kind}))
    async with connect(server, MODERN) as client:
        waiting = client.start(method, params)
        await started.wait()
        await elapse(seconds + 20)
        response = await waiting
        release.set()
    said = text(response["result"]) if method == "tools/call" else response["error"]["message"]
    assert f"did not finish within {seconds:g} seconds" in said


async def test_a_resource_that_takes_too_long_is_an_error() -> None:
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    async with connect(Server("s", resources=Resource("note://a", slow, timeout=0.01)), MODERN) as client:
        error = await client.error("resources/read", {"uri": "note://a"})
    assert error["code"] == -32603
    assert "within 0.01 seconds" in error["message"]


async def test_time_stands_still_while_the_client_is_asked() -> None:
    server = Server("s")

    @server.tool(timeout=5)
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    async with connect(server, "2025-06-18", {"elicitation": {}}) as client:
        answer = client.start("tools/call", {"name": "ask"})
        (question,) = await client.until(lambda: client.requests)
        await elapse(10)
        client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}})
        assert text((await answer)["result"]) == "cancel"


# --- Generators ---


@pytest.mark.covers("R29", "E40")
@cases("kind", ["async", "thread", "loop"])
async def test_yields_are_progress_and_the_last_is_the_result(kind: str) -> None:
    server = Server("s")

    def values() -> Iterator[Any]:
        yield 1
        yield (2, 10)
        yield (3, 10, "third")
        yield "a text"
        yield (5, "Ann")
        yield (True, 7)
        yield (7, None, "seventh")
        yield (8, 9, 10)
        yield "result"

    @server.tool(name="async")
    async def in_loop() -> AsyncIterator[Any]:
        for value in values():
            yield value

    server.tool(name="thread")(values)
    server.tool(name="loop", executor="loop")(values)

    async with connect(server, MODERN) as client:
        assert text(await client.call(kind, **TOKEN)) == "result"
        assert client.of(PROGRESS) == [
            {"progressToken": "t", "progress": 1},
            {"progressToken": "t", "progress": 2, "total": 10},
            {"progressToken": "t", "progress": 3, "total": 10, "message": "third"},
            {"progressToken": "t", "progress": 4, "message": "a text"},
            # Rows that are no report of progress only count.
            {"progressToken": "t", "progress": 5},
            {"progressToken": "t", "progress": 6},
            {"progressToken": "t", "progress": 7, "message": "seventh"},
            {"progressToken": "t", "progress": 8},
        ]
        client.notifications.clear()
        assert text(await client.call(kind)) == "result"
        assert client.notifications == []


@pytest.mark.parametrize("executor", ["thread", "loop"])
async def test_a_generator_that_returns_a_value(executor: Any) -> None:
    server = Server("s")

    @server.tool(executor=executor)
    def work() -> Generator[int, None, dict[str, int]]:
        yield 1
        yield 2
        return {"n": 3}

    async with connect(server, MODERN) as client:
        result = await client.call("work", **TOKEN)
        assert result["structuredContent"] == {"n": 3}
        assert [each["progress"] for each in client.of(PROGRESS)] == [1, 2], "what is yielded is progress then"


async def test_a_generator_that_yields_nothing_returns_nothing() -> None:
    async def work() -> AsyncIterator[int]:
        return
        yield

    async with connect(Server("s", tools=work), MODERN) as client:
        assert (await client.call("work"))["content"] == []


async def test_a_cancelled_generator_is_closed() -> None:
    started, closed = asyncio.Event(), asyncio.Event()

    async def work() -> AsyncIterator[int]:
        try:
            yield 1
            started.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with connect(Server("s", tools=work), MODERN) as client:
        client.start("tools/call", {"name": "work"}, id="w")
        await started.wait()
        client.notify("notifications/cancelled", {"requestId": "w"})
        await closed.wait()


# --- Processes ---


@pytest.mark.covers("R29")
async def test_a_tool_in_a_process_of_its_own() -> None:
    server = Server("s", tools=[Tool(compute, executor="process"), Tool(fail, executor="process")])
    async with connect(server, "2025-11-25", principal="ann") as client:
        result = await client.call("compute", {"base": 3}, _meta={"progressToken": "t", "example.org/a": 1})
        value = json.loads(text(result))
        assert value.pop("pid") != os.getpid()
        assert value == {"base": 3, "meta": 1, "who": "ann"}
        assert client.of(PROGRESS) == [{"progressToken": "t", "progress": 1, "total": 2, "message": "half"}]
        assert client.of("notifications/message") == [{"level": "warning", "data": {"at": 3}}]
        assert text(await client.call("fail", {"how": "tool"})) == "No such account"
        masked = await client.call("fail", {"how": "other"})
        assert masked["isError"] is True
        assert "hunter2" not in text(masked)


@pytest.mark.covers("R20")
async def test_a_tool_in_a_process_is_stopped_for_real() -> None:
    server = Server("s", tools=Tool(hang, executor="process", timeout=0.3))
    async with connect(server, MODERN) as client:
        assert text(await client.call("hang")) == "hang did not finish within 0.3 seconds"


def test_what_cannot_run_in_a_process_is_refused_at_registration() -> None:
    def local() -> None: ...

    for function, reason in (
        (local, "define it with def at the top level of a module"),
        (asynchronous, "must be a plain def"),
    ):
        with pytest.raises(ServerError, match=reason):
            Tool(function, executor="process")


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_handler_in_a_process_is_refused_when_it_asks_or_detaches(revision: str) -> None:
    server = Server("s", tools=[Tool(asks, executor="process"), Tool(draw, executor="process")])
    async with connect(server, revision, {"elicitation": {"form": {}}}) as client:
        for how in ("elicit", "elicit_url", "sample", "list_roots", "detach"):
            refused = await client.call("asks", {"how": how})
            assert refused["isError"] is True
            assert text(refused) == f"ctx.{how}() does not work in a process: use executor='thread'"
        # Another object may have a method of the same name.
        assert text(await client.call("draw", {"values": [7, 7]})) == "7"


# --- A full house ---


async def test_a_handler_that_a_blocking_client_calls_has_its_time() -> None:
    server = Server("s")

    @server.tool(timeout=0.01)
    async def hang() -> None:
        await asyncio.Event().wait()

    def call() -> str:
        with sync.Client(server, timeout=5) as client:
            return client.call_tool("hang").text

    async with connect(server, MODERN) as here:
        await here.result("tools/list")  # From now on the server belongs to this loop.
        assert await asyncio.to_thread(call) == "hang did not finish within 0.01 seconds"


async def test_a_handler_in_the_only_thread_can_read_a_resource_that_needs_one() -> None:
    server = Server("s", limits=Limits(threads=1))

    def prefix() -> str:
        return "read in "

    @server.resource("note://a")
    def note(start: Annotated[str, Depends(prefix)]) -> str:
        return start + threading.current_thread().name

    @server.tool
    def read(ctx: SyncContext) -> str:
        return str(ctx.read_resource("note://a")[0].text)

    async with connect(server, MODERN) as client:
        assert text(await client.call("read")) == "read in toolwire beside a worker"


@pytest.mark.parametrize("revision", ["2025-06-18", MODERN])
async def test_a_call_too_many_is_refused_and_says_so(revision: str) -> None:
    server = Server("s", limits=Limits(threads=1, queue=0))
    release = threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @server.tool
    def block() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(10)
        return "done"

    async with connect(server, revision) as client:
        first = client.start("tools/call", {"name": "block"})
        await started.wait()
        refused = await client.call("block")
        assert refused["isError"] is True
        assert "try again later" in text(refused)
        release.set()
        assert text((await first)["result"]) == "done"


@pytest.mark.skipif(os.name != "posix", reason="asks for a process by its number as POSIX systems do")
async def test_blocking_clients_share_the_processes_of_a_server() -> None:
    server = Server("s", tools=Tool(compute, executor="process"))
    pids: set[int] = set()

    def elsewhere() -> None:
        with sync.Client(server) as client:
            pids.update(json.loads(client.call_tool("compute", {"base": base}).text)["pid"] for base in range(2))

    async with connect(server, MODERN) as client:
        here = (await client.call("compute", {"base": 1}))["content"][0]["text"]
        await asyncio.to_thread(elsewhere)
        again = (await client.call("compute", {"base": 1}))["content"][0]["text"]
        assert here == again, "the same process, still warm"
    assert pids == {json.loads(here)["pid"]}
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.covers("R20")
def test_default_timeout_of_a_tool_is_five_minutes() -> None:
    assert Limits().tool == 300
    text = (ROOT / "docs" / "concepts" / "tools.md").read_text("utf-8")
    assert "five minutes" in text
