"""Which calls become tasks, and what they are answered with: over each transport, in each dialect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.cases import cases
from tests.http.serving_here import serving
from tests.server import process_handlers
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import (
    ABLE,
    CORE,
    DIALECTS,
    EXTENSION,
    FORMS,
    Over,
    Way,
    begin,
    dialects,
    look,
    outcome,
    over,
    says,
    status_of,
    talk,
    task_in,
    text_in,
    ways,
)
from tests.wireclient import LEGACY, MODERN, Message, WireClient

from toolwire import Client, Context, Limits, Server
from toolwire.protocol.errors import ProtocolError
from toolwire.testing.connecting import _pipes
from toolwire.wire.channel import Channel

TASK_FIELDS = {
    CORE: {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"},
    MODERN: {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "resultType", "_meta"},
}


QUICK = Limits(task_poll=0.01)


@asynccontextmanager
async def piped(server: Server) -> AsyncIterator[Channel]:
    """Serve over two pipes; gives the client's end of them."""
    with ExitStack() as descriptors:
        ours, theirs, hang_up = _pipes(descriptors)
        serving = asyncio.create_task(server.serve(theirs))
        yield ours
        hang_up()
        await serving
        await theirs.close()


@asynccontextmanager
async def on_a_port(server: Server, **options: Any) -> AsyncIterator[str]:
    """Serve by HTTP; gives the address of the endpoint."""
    async with serving(server, **options) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def elsewhere(served: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """Enter a context manager in a thread that has a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        target = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_entered(served), loop))
        try:
            yield target
        finally:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_left(served), loop))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _entered(served: AbstractAsyncContextManager[Any]) -> Any:
    return await served.__aenter__()


async def _left(served: AbstractAsyncContextManager[Any]) -> None:
    await served.__aexit__(None, None, None)


# HTTP+SSE is missing: it speaks 2024-11-05, which has no tasks.
SERVED: dict[str, tuple[str, Callable[[Server], AbstractAsyncContextManager[Any]]]] = {
    "stdio-core": (CORE, piped),
    "stdio-modern": (MODERN, piped),
    "http-session": (CORE, on_a_port),
    "http-stateless": (CORE, lambda server: on_a_port(server, stateless=True)),
    "http-modern": (MODERN, on_a_port),
}


@pytest.mark.covers("J86")
@cases("talks", [False, True], ids=["one answer", "stream"])
@cases("served", SERVED)
async def test_the_answer_leaves_before_the_work_begins(served: str, talks: bool) -> None:
    """A handler that computes without awaiting holds the loop of its server from its first step on.

    The client has another loop: it must have its answer while that of the server is held. Where a middleware says
    something before, the answer is the end of an event stream.
    """
    revision, serve = SERVED[served]
    server, answered = Server("computes", limits=QUICK), threading.Event()

    @server.tool(task="required")
    async def compute() -> bool:
        return answered.wait(20)

    @server.use
    async def talk_first(ctx: Context, call_next: Any) -> Any:
        if talks and ctx.method == "tools/call":
            await ctx.progress(1)
        return await call_next(ctx)

    async with elsewhere(serve(server)) as target, Client(target, revision=revision) as client:
        handle = await client.call_tool_as_task("compute", on_progress=lambda *_: None)
        answered.set()
        result = await handle.wait()
        assert result.text == "true"


@dialects
@pytest.mark.covers("J86")
async def test_in_memory_the_client_goes_on_before_the_work_begins(revision: str) -> None:
    server, order = Server("computes", limits=QUICK), []

    @server.tool(task="required")
    async def compute() -> None:
        order.append("work")

    async with Client(server, revision=revision) as client:
        handle = await client.call_tool_as_task("compute")
        order.append("answer")
        await handle.wait()
    assert order == ["answer", "work"]


@ways
@pytest.mark.parametrize("end", ["raises", "is cancelled"])
async def test_the_work_begins_also_where_the_answer_never_leaves(way: Way, end: str) -> None:
    """The task is there for its owner, whatever becomes of the request that made it."""
    server, made, worked = Server("works"), asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def work() -> None:
        worked.set()

    @server.use
    async def fail_late(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "tools/call":
            made.set()
            if end == "raises":
                raise ProtocolError(-32099, "Too late")
            await asyncio.Event().wait()
        return result

    async with way.talk(server) as client:
        calling = client.start("tools/call", {"name": "work", "arguments": {}, "task": {}}, id="call")
        await made.wait()
        if end == "raises":
            assert (await calling)["error"]["code"] == -32099
        elif way == Way("http", MODERN):
            await client.channel.answers[-1].disconnect()  # type: ignore[attr-defined]
        else:
            client.notify("notifications/cancelled", {"requestId": "call"})
        await worked.wait()


@over
@pytest.mark.covers("TSK-2")
@pytest.mark.parametrize("wish", [{}, {"ttl": 5}, True, None], ids=str)
async def test_a_client_of_2026_07_28_cannot_ask_for_a_task(over: Over, wish: Any) -> None:
    held = Held(limits=Limits(task_window=3600.0))
    held.go.set()
    async with talk(held.server, MODERN, over) as client:
        # The work is done within the window, so the answer is the result; the wish changes nothing.
        result = await client.call("hold", task=wish)
        assert (result["resultType"], text_in(result)) == ("complete", "held x")
        assert held.seen == [("done", False)]
        assert text_in(await client.call("plain", task=wish)) == "Hello, you!"


@ways
@pytest.mark.covers("J66", "TSK-2", "TSK-6", "TSK-7")
@pytest.mark.usefixtures("clock")
async def test_a_call_is_answered_at_once_with_a_task_and_goes_on(way: Way) -> None:
    # On 2025-11-25 the client asks for the task, and the window in which calls may end first does not matter.
    held = Held() if way.modern else Held(limits=Limits(task_window=0.5))
    async with way.talk(held.server) as client:
        created = task_in(await client.call("hold", {"label": "a"}, task={"ttl": 60_000}))
        assert created.keys() == TASK_FIELDS[way.revision]
        shown = await look(client, created["taskId"])
        if way.modern:
            assert created.pop("ttlMs") == shown.pop("ttlMs") == 300_000, "the server decides"
            assert (created.pop("resultType"), shown.pop("resultType")) == ("task", "complete")
        else:
            assert created["ttl"] == 60_000
        assert shown == created
        assert created["status"] == "working"
        await held.started.wait()
        assert held.seen == []
        held.go.set()
        assert text_in(await outcome(client, created["taskId"])) == "held a"
        assert held.seen == [("done", True)]
        if not way.modern:
            again = task_in(await client.call("hold", {"label": "b"}, task={}))
            assert text_in(await outcome(client, again["taskId"])) == "held b"


# What becomes of a call: of a tool that is forbidden, optional or required as a task, without and with `task`.
IN_CORE = {"plain": ("call", -32601), "hold": ("call", "task"), "only": (-32601, "task")}
DECLARED = {"plain": ("call", "call"), "hold": ("task", "task"), "only": ("task", "task")}
UNDECLARED = {"plain": ("call", "call"), "hold": ("call", "call"), "only": (-32021, -32021)}


@ways
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
@pytest.mark.covers("J67", "J68", "J69", "J70", "S16")
async def test_each_mode_of_a_tool(way: Way, declared: bool) -> None:
    held = Held()
    held.go.set()
    expected = IN_CORE if not way.modern else DECLARED if declared else UNDECLARED
    async with way.talk(held.server, capabilities=ABLE if declared else FORMS) as client:
        for tool, (without, wanted) in expected.items():
            assert await what_becomes_of(client, {"name": tool}) == without, tool
            assert await what_becomes_of(client, {"name": tool, "task": {}}) == wanted, tool


async def lambda_tool() -> str:
    return "done"


async def what_becomes_of(client: WireClient, params: Message) -> str | int:
    response = await client.request("tools/call", params)
    if "error" in response:
        return int(response["error"]["code"])
    if "content" in response["result"]:
        return "call"
    assert task_in(response["result"])
    return "task"


@ways
@pytest.mark.covers("T-30")
async def test_a_call_that_lacks_its_task_is_refused_with_the_code_of_tools(way: Way) -> None:
    """Not with -32600, which the general rule of 2025-11-25 allows: the rule for tools is a MUST."""
    held = Held()
    async with way.talk(held.server, capabilities=FORMS) as client:
        response = await client.request("tools/call", {"name": "only"})
    assert response["error"]["code"] == (-32021 if way.modern else -32601)
    assert not held.started.is_set()
    without = Server("s", tools=lambda_tool)
    async with way.talk(without, capabilities=FORMS) as client:
        # A server that declares no tasks runs the call as any other.
        assert await what_becomes_of(client, {"name": "lambda_tool", "task": {"ttl": 1000}}) == "call"


@ways
@pytest.mark.covers("E15")
async def test_long_running_tools_are_tasks_whatever_shape_their_handler_has(way: Way) -> None:
    server = Server("s", limits=Limits(task_window=0.0))
    go = threading.Event()

    @server.tool(long_running=True)
    async def export(ctx: Context, table: str) -> dict[str, int]:
        await ctx.progress(1, 2, f"half of {table}")
        await asyncio.to_thread(go.wait)
        return {"rows": 3}

    @server.tool(long_running=True)
    def render(ctx: Context, table: str) -> dict[str, int]:
        ctx.progress(1, 2, f"half of {table}")
        go.wait()
        return {"rows": 3}

    async with way.talk(server) as client:
        try:
            tasks = [await begin(client, name, {"table": "t"}) for name in ("export", "render")]
            for task in tasks:
                assert (await says(client, task, "half of t"))["status"] == "working"
        finally:
            go.set()  # Whatever went wrong, no thread waits for it any more.
        for task in tasks:
            assert (await outcome(client, task))["structuredContent"] == {"rows": 3}
            assert (await outcome(client, task))["structuredContent"] == {"rows": 3}, "and it is kept"


@dialects
async def test_a_handler_in_a_process_of_its_own_is_a_task_too(revision: str) -> None:
    server = Server("processes", limits=Limits(task_window=0.0))
    server.tool(task="optional", executor="process")(process_handlers.compute)
    server.tool(task="optional", executor="process")(process_handlers.hang)
    async with talk(server, revision) as client:
        hanging = await begin(client, "hang")
        computed = await outcome(client, await begin(client, "compute", {"base": 7}))
        assert '"base":7' in text_in(computed)
        await client.result("tasks/cancel", {"taskId": hanging})
        assert await status_of(client, hanging) == "cancelled"


# --- what is declared ------------------------------------------------------------------------------------------------


@ways
@pytest.mark.covers("J71")
async def test_the_setting_is_listed_where_it_is_known(way: Way) -> None:
    async with way.talk(Held().server) as client:
        tools = {tool["name"]: tool.get("execution") for tool in (await client.result("tools/list"))["tools"]}
    assert tools["hold"] == (None if way.modern else {"taskSupport": "optional"})
    assert tools["only"] == (None if way.modern else {"taskSupport": "required"})
    assert tools["plain"] is None


@ways
@pytest.mark.covers("J72", "T-29")
async def test_tasks_are_declared_as_the_dialect_has_them(way: Way) -> None:
    plain = Server("no tasks")
    plain.tool("quick")(lambda: "done")
    for server, has_tasks in ((Held().server, True), (plain, False)):
        async with way.talk(server, principal="ada") as client:
            declared = await capabilities(client)
            if way.modern:
                assert declared.get("extensions") == ({EXTENSION: {}} if has_tasks else None)
                assert "tasks" not in declared
            else:
                core: Message = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
                assert declared.get("tasks") == (core if has_tasks else None)
                assert "extensions" not in declared, "the extension does not exist here"
            code = (await client.error("tasks/get", {"taskId": "t"}))["code"]
            assert code == (-32602 if has_tasks else -32601)


@over
@pytest.mark.parametrize("revision", [revision for revision in LEGACY if revision != CORE])
@pytest.mark.covers("J72", "2.2.26", "T-49")
async def test_older_clients_run_everything_synchronously(revision: str, over: Over) -> None:
    held = Held()
    held.go.set()
    async with talk(held.server, revision, over) as client:
        declared = await capabilities(client)
        assert not declared.keys() & {"tasks", "extensions"}
        assert not [tool for tool in (await client.result("tools/list"))["tools"] if "execution" in tool]
        assert text_in(await client.call("hold", task={"ttl": 1})) == "held x"
        assert text_in(await client.call("only")) == "only as a task"
        assert (await client.error("tasks/get", {"taskId": "x"}))["code"] == -32601
    assert held.seen == [("done", False)]


async def capabilities(client: WireClient) -> Message:
    said = await client.result("server/discover") if client.revision == MODERN else client.initialized
    declared: Message = said["capabilities"]
    return declared


# Methods of one dialect, of both, and of a proposal that neither took up.
METHODS = {
    "tasks/get": DIALECTS,
    "tasks/cancel": DIALECTS,
    "tasks/result": (CORE,),
    "tasks/list": (CORE,),
    "tasks/update": (MODERN,),
    "tasks/delete": (),
}


@ways
@pytest.mark.covers("E33", "T-29")
async def test_each_dialect_has_its_own_methods(way: Way) -> None:
    async with way.talk(Held().server, principal="ada") as client:
        for method, known_to in METHODS.items():
            response = await client.request(method, {"taskId": "never was", "inputResponses": {}})
            if way.revision not in known_to:
                assert response["error"]["code"] == -32601, method
            elif method == "tasks/list":
                assert response["result"] == {"tasks": []}
            else:
                assert response["error"]["code"] == -32602, method
