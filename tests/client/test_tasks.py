"""A client and tasks: calls driven to their result, and handles that can be kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from tests.cases import cases
from tests.client.fake import FakeServer
from tests.server.tasks.handlers import Held
from tests.server.tasks.talking import CORE, EXTENSION, RELATED, WAYS, Way, dialects
from tests.wireclient import LEGACY, MODERN, PREFIX

from toolwire import Client, Context, Limits, Server, testing, types
from toolwire.client import Accept, Decline, InvalidResponse, TaskCancelled, TaskHandle, TaskState
from toolwire.client.tasks import poll_seconds
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Timeout, ToolFailed
from toolwire.testing import elapse
from toolwire.wire.deadlines import CallClock

FAST = Limits(task_window=0.0, task_poll=0.01)


@asynccontextmanager
async def connected(held: Held, revision: str, **options: Any) -> AsyncIterator[tuple[Client, testing.Wire]]:
    async with testing.connect(held.server, revision=revision, **options) as (client, wire):
        yield client, wire


def sent(wire: testing.Wire, method: str) -> list[dict[str, Any]]:
    return [message["params"] for message in wire.sent if message.get("method") == method]


# --- call_tool -------------------------------------------------------------------------------------------------------


@dialects
@pytest.mark.covers("TSK-3", "TSK-9")
async def test_call_tool_drives_a_task_to_its_result(revision: str) -> None:
    held = Held(limits=FAST)
    held.go.set()
    async with connected(held, revision) as (client, wire):
        assert (await client.call_tool("only")).text == "only as a task"
        assert await client.call_tool("only", returns=str) == "only as a task"
        await client.list_tools()
        assert await client.call_tool("only", returns=str) == "only as a task", "also when the tools are known"
        if revision == CORE:
            tries = [params.get("task") for params in sent(wire, "tools/call")]
            assert tries == [None, {}, None, {}, {}], "after the listing it is asked for at once"
        else:
            assert sent(wire, "tasks/get")


@dialects
async def test_failures_of_a_task_are_failures_of_the_call(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (client, _):
        handle = await client.call_tool_as_task("broken")
        assert (await handle.wait()).is_error
        with pytest.raises(ToolFailed, match="it broke"):
            await handle.wait(returns=str)
        with pytest.raises(ProtocolError) as caught:
            await (await client.call_tool_as_task("refused")).wait()
        assert (caught.value.code, caught.value.data) == (-32099, {"why": "because"})


@pytest.mark.covers("TSK-13", "MRTR-12")
async def test_questions_of_a_modern_task_are_answered_once() -> None:
    held, asked = Held(limits=FAST), []

    async def answer(message: str, params: types.ElicitRequestParams) -> dict[str, Any]:
        asked.append(message)
        return {"value": message.lower()}

    async with connected(held, MODERN, elicit=answer) as (client, wire):
        assert (await client.call_tool("asking")).text == "first? and second?"
        assert sorted(asked) == ["First?", "Second?"]
        (update,) = sent(wire, "tasks/update")
        assert sorted(update["inputResponses"]) == ["first", "second"]


@pytest.mark.covers("T-32")
async def test_questions_of_a_core_task_are_answered_with_its_name() -> None:
    held = Held(limits=FAST)
    async with connected(held, CORE, elicit=lambda message, params: {"value": "yes"}) as (client, wire):
        handle = await client.call_tool_as_task("asking")
        assert (await handle.wait()).text == "yes and yes"
        answers = [message["result"] for message in wire.sent if "result" in message]
        assert [answer["_meta"][RELATED] for answer in answers] == [{"taskId": handle.id}] * 2


@dialects
@pytest.mark.covers("T-12")
async def test_progress_reaches_the_caller_while_the_task_runs(revision: str) -> None:
    held, told = Held(limits=FAST), []

    def on_progress(params: types.ProgressNotificationParams) -> None:
        told.append(params.message)
        held.go.set()

    async with connected(held, revision) as (client, _):
        handle = await client.call_tool_as_task("reporting", on_progress=on_progress)
        assert (await handle.wait(on_progress=on_progress)).text == "reported"
        assert told[0] == "a quarter"
        connection = await client._connector.usable()
        assert connection.reports == {}, "and nothing is left of it"


@pytest.mark.covers("PRG-1")
@pytest.mark.parametrize("numbers", [True, False], ids=["with numbers", "with words alone"])
async def test_progress_never_runs_backwards_when_a_call_becomes_a_task(
    numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("steps", limits=Limits(task_window=3600.0, task_poll=0.01))
    told: list[tuple[float, Any, Any]] = []
    seen = {f"step {step}": asyncio.Event() for step in range(1, 7)}

    @server.tool(task="optional")
    async def work(ctx: Context) -> str:
        for step in range(1, 7):
            if step == 3:
                await ctx.elicit("Go on?", bool)  # Asking makes it a task.
            await ctx.progress(step, 12, f"step {step}")
            await seen[f"step {step}"].wait()
        return "done"

    if not numbers:
        # As with a server that is not made with Toolwire.
        monkeypatch.setattr("toolwire.client.tasks.PROGRESS_KEY", "not there")

    def on_progress(params: types.ProgressNotificationParams) -> None:
        told.append((params.progress, params.total, params.message))
        seen[str(params.message)].set()

    async with Client(server, on_progress=on_progress, elicit=lambda message, form: Accept({"value": True})) as client:
        assert (await client.call_tool("work")).text == "done"
    if numbers:
        assert told == [(step, 12, f"step {step}") for step in range(1, 7)]
    else:
        reported = [number for number, _, _ in told]
        assert reported == sorted(set(reported))


@dialects
@pytest.mark.covers("T-11", "TSK-15")
async def test_a_call_that_is_given_up_cancels_its_task(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (client, wire):
        await client.list_tools()
        calling = asyncio.create_task(client.call_tool("only" if revision == CORE else "hold"))
        await wire.until(lambda direction, message: message.get("method") in ("tasks/get", "tasks/result"))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await wire.until(lambda direction, message: message.get("method") == "tasks/cancel")
        (cancelled,) = sent(wire, "tasks/cancel")
        assert [state async for state in client.task(cancelled["taskId"]).updates()][-1].status == "cancelled"
        made = [message["id"] for message in wire.sent if message.get("method") == "tools/call"]
        assert not [params for params in sent(wire, "notifications/cancelled") if params["requestId"] in made]


@dialects
async def test_a_call_that_takes_too_long_is_given_up(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (client, wire):
        await client.list_tools()
        calling = asyncio.create_task(client.call_tool("only" if revision == CORE else "hold", timeout=5))
        await wire.until(lambda direction, message: message.get("method") in ("tasks/get", "tasks/result"))
        await elapse(5)
        with pytest.raises(Timeout):
            await calling
        await wire.until(lambda direction, message: message.get("method") == "tasks/cancel")
        assert len(sent(wire, "tasks/cancel")) == 1


@cases("way", WAYS, ids=str)
async def test_everything_works_over_every_transport(way: Way) -> None:
    held, told = Held(limits=FAST), []

    def on_progress(params: types.ProgressNotificationParams) -> None:
        told.append(params.message)
        held.go.set()

    answer = {"value": "yes"}
    async with connected(held, way.revision, over=way.over, elicit=lambda message, params: answer) as (client, _):
        await client.list_tools()
        handle = await client.call_tool_as_task("reporting", on_progress=on_progress)
        assert (await handle.wait(on_progress=on_progress)).text == "reported"
        assert "a quarter" in told
        assert (await (await client.call_tool_as_task("asking")).wait()).text == "yes and yes"
        assert (await client.call_tool("only")).text == "only as a task"
        held.go.clear()
        stopped = await client.call_tool_as_task("hold")
        await stopped.cancel()
        assert (await client.task(stopped.id).status()).status == "cancelled"


# --- handles ---------------------------------------------------------------------------------------------------------


@dialects
async def test_a_handle_says_how_the_task_is_doing(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (client, _):
        handle = await client.call_tool_as_task("hold", {"label": "z"}, ttl=30)
        state = await handle.status()
        assert (state.id, state.status, state.over) == (handle.id, "working", False)
        # The ttl counts from the end of the task, so that of a running task grows.
        assert state.ttl is not None and state.ttl >= (30 if revision == CORE else 300)
        assert state.poll_interval == 0.1  # The server asks for 0.01.
        held.go.set()
        assert (await handle.wait()).text == "held z"
        assert (await handle.status()).status == "completed"
        await handle.cancel()
        assert (await handle.status()).status == "completed"


@dialects
@pytest.mark.covers("TSK-9")
async def test_a_handle_can_be_kept_and_taken_up_by_another_client(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (other, _):
        async with connected(held, revision) as (client, _):
            kept = (await client.call_tool_as_task("hold")).id
        held.go.set()
        assert (await other.task(kept, "hold").wait()).text == "held x"
        with pytest.raises(ProtocolError) as caught:
            await other.task("never was").status()
        assert caught.value.code == -32602


@dialects
async def test_task_is_asked_for_again_where_a_process_lacks_its_tool(revision: str) -> None:
    asked: list[str] = []
    result = {"content": [{"type": "text", "text": "done"}]}

    def answer(request: Any, outlet: Any) -> Any:
        asked.append(request.method)
        if len(asked) < 3:
            raise ProtocolError(-32603, "The task cannot be shown now; try again later", {"retryAfterMs": 1})
        over = {"taskId": "t-1", "status": "completed", "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": None}
        return result if request.method == "tasks/result" else {**over, "result": result}

    server = task_server(revision)
    server.handlers.update({"tasks/get": answer, "tasks/result": answer})
    async with Client(server) as client:
        assert (await client.task("t-1").wait()).text == "done"
    assert len(asked) == 3


@pytest.mark.parametrize("states", [["working", "working"], ["working"], []], ids=len)
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "input_required"])
async def test_outcome_is_fetched_after_the_end_where_the_server_does_not_wait(states: list[str], end: str) -> None:
    asked: list[str] = []
    left = list(states)
    is_early = True

    def look(request: Any, outlet: Any) -> Any:
        nonlocal is_early
        asked.append("get")
        status = left.pop(0) if left else end
        is_early = status in ("working", "input_required", "cancelled")
        return {
            "taskId": "t-1",
            "status": status,
            "createdAt": "x",
            "lastUpdatedAt": "x",
            "ttl": None,
            "pollInterval": 1,
        }

    def fetch(request: Any, outlet: Any) -> Any:
        asked.append("result")
        if is_early:
            raise ProtocolError(-32602, f"Task not completed yet (current state: {end})")
        return {"content": [{"type": "text", "text": "done"}], "isError": end == "failed"}

    server = task_server(CORE)
    server.handlers.update({"tasks/get": look, "tasks/result": fetch})
    async with Client(server) as client:
        waiting = asyncio.ensure_future(client.task("t-1").wait())
        while not waiting.done():
            await elapse(0.1)
        if end in ("completed", "failed"):
            result = await waiting
            assert (result.text, result.is_error) == ("done", end == "failed")
        elif end == "cancelled":
            with pytest.raises(TaskCancelled):
                await waiting
        else:
            with pytest.raises(ProtocolError, match="not completed yet"):
                await waiting
    assert asked.count("result") <= 3


async def test_error_of_a_task_is_that_of_the_call() -> None:
    asked: list[str] = []

    def look(request: Any, outlet: Any) -> Any:
        return {"taskId": "t-1", "status": "failed", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None}

    def fetch(request: Any, outlet: Any) -> Any:
        asked.append("result")
        raise ProtocolError(-32603, "it broke")

    server = task_server(CORE)
    server.handlers.update({"tasks/get": look, "tasks/result": fetch})
    async with Client(server) as client:
        with pytest.raises(ProtocolError, match="it broke"):
            await client.task("t-1").wait()
    assert asked == ["result"]


@dialects
async def test_updates_end_with_the_task(revision: str) -> None:
    held = Held(limits=FAST)
    seen = []
    async with connected(held, revision) as (client, _):
        handle = await client.call_tool_as_task("reporting")
        async for state in handle.updates():
            seen.append((state.status, state.message))
            if state.message == "a quarter":
                held.go.set()
    assert seen[-1][0] == "completed"
    assert ("working", "a quarter") in seen


@dialects
async def test_waiting_has_an_end_of_its_own(revision: str) -> None:
    held = Held(limits=FAST)
    async with connected(held, revision) as (client, _):
        handle = await client.call_tool_as_task("hold")
        with pytest.raises(Timeout):
            await handle.wait(timeout=0.02)
        assert (await handle.status()).status == "working", "the task goes on"
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.wait()


async def test_questions_are_answered_by_hand() -> None:
    held = Held(limits=FAST)
    async with connected(held, MODERN, elicit=lambda message, params: {"value": "never asked"}) as (client, _):
        handle = await client.call_tool_as_task("asking")
        async for state in handle.updates():
            if state.questions:
                assert state.questions["first"].params.message == "First?"
                await handle.provide_input({"first": {"value": "one"}, "second": Accept({"value": "two"})})
        assert (await handle.wait()).text == "one and two"
        declined = await client.call_tool_as_task("asking_in_thread")
        async for state in declined.updates():
            if state.questions:
                await declined.provide_input(dict.fromkeys(state.questions, Decline()))
        assert (await declined.wait()).text == "Hello, None!"
        with pytest.raises(TypeError, match="content of the form"):
            await declined.provide_input({"key": 5})
    async with connected(held, CORE) as (client, _):
        with pytest.raises(NotSupported, match="wait"):
            await client.task("t").provide_input({})


@dialects
async def test_what_the_server_answers_at_once_is_done(revision: str) -> None:
    server = Server("quick")

    @server.tool(task="optional")
    async def quick() -> str:
        return "at once"

    async with testing.connect(server, revision=revision) as (client, _):
        handle = await client.call_tool_as_task("quick")
        assert (await handle.wait(returns=str)) == "at once"
        assert bool(handle.id) == (revision == CORE)
        assert (await handle.status()).over
        await handle.cancel()


@cases("revision", ["2024-11-05", "2025-06-18", CORE])
async def test_a_server_without_tasks_is_not_asked_for_one(revision: str) -> None:
    server = Server("plain")

    @server.tool
    async def plain() -> str:
        return "plain"

    async with testing.connect(server, revision=revision) as (client, wire):
        with pytest.raises(NotSupported, match="task"):
            await client.call_tool_as_task("plain")
        with pytest.raises(NotSupported):
            await client.task("t").status()
        assert not sent(wire, "tools/call")


# --- what is declared, and what is no answer -------------------------------------------------------------------------


@pytest.mark.parametrize("way", [*WAYS, *(Way("memory", revision) for revision in LEGACY[:-1])], ids=str)
@pytest.mark.covers("J87")
async def test_the_client_runs_no_tasks_itself(way: Way) -> None:
    async with connected(Held(), way.revision, over=way.over, elicit=lambda m, p: {}) as (client, wire):
        await client.list_tools()
    if way.modern:
        declared = [message["params"]["_meta"][f"{PREFIX}clientCapabilities"] for message in wire.sent]
    else:
        declared = [message["params"]["capabilities"] for message in wire.sent[:1]]
    assert declared
    for capabilities in declared:
        assert "tasks" not in capabilities
        assert (EXTENSION in str(capabilities)) == way.modern


@pytest.mark.covers("TSK-3")
async def test_a_task_as_the_answer_to_anything_else_is_no_answer() -> None:
    task = {"resultType": "task", "taskId": "t", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttlMs": 1}
    async with Client(FakeServer({"prompts/get": lambda request, outlet: task})) as client:
        with pytest.raises(InvalidResponse, match="'task'"):
            await client.get_prompt("p")


def task_server(revision: str, **answers: Any) -> FakeServer:
    """A server that answers each method of tasks, given by its last word, with fixed members."""
    state = {"status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttl": None, "ttlMs": None}

    def answer(members: Any) -> Any:
        return lambda request, outlet: {**state, **members}

    handlers = {f"tasks/{name}": answer(members) for name, members in answers.items()}
    declared = {"tasks": {"cancel": {}}} if revision == CORE else {"extensions": {EXTENSION: {}}}
    return FakeServer(handlers, capabilities=declared, revisions=(revision,))


@dialects
@pytest.mark.parametrize("name", ["t-2", 7, None, ["t-1"], ""], ids=repr)
async def test_answer_about_another_task_is_refused(name: Any, revision: str) -> None:
    other = {"taskId": name}
    async with Client(task_server(revision, get=other, cancel=other, update=other)) as client:
        handle = client.task("t-1")
        asked = [("get", handle.status()), ("cancel", handle.cancel())]
        if revision == MODERN:
            asked.append(("update", handle.provide_input({"q": {"value": 1}})))
        for method, request in asked:
            with pytest.raises(InvalidResponse, match=f"tasks/{method} is broken: .*taskId") as caught:
                await request
            assert repr(name) in str(caught.value)


@pytest.mark.parametrize("related", [{"taskId": "t-2"}, {"taskId": 7}, {}, "t-2"], ids=repr)
async def test_result_of_another_task_is_refused(related: Any) -> None:
    result = {"content": [], "_meta": {RELATED: related}}
    async with Client(task_server(CORE, result=result)) as client:
        with pytest.raises(InvalidResponse, match="tasks/result is broken: its taskId is"):
            await client.task("t-1").wait()


@dialects
async def test_answers_that_name_no_task_are_taken_where_the_name_is_no_part_of_them(revision: str) -> None:
    """Answers to `tasks/update` and `tasks/cancel` may be empty; a member of a result is the tool's own."""
    result = {"content": [{"type": "text", "text": "done"}], "taskId": "of the tool"}
    async with Client(task_server(revision, cancel={}, update={}, result=result)) as client:
        handle = client.task("t-1")
        await handle.cancel()
        if revision == MODERN:
            await handle.provide_input({"q": {"value": 1}})
        else:
            assert (await handle.wait()).text == "done"


def test_a_handle_shows_its_id() -> None:
    assert "t-1" in repr(Client(Server("tasks")).task("t-1"))


async def test_a_task_in_a_context_is_told_by_the_context() -> None:
    server = Server("s", limits=FAST)

    @server.tool(long_running=True)
    async def tell(ctx: Context) -> bool:
        return ctx.is_task

    async with testing.connect(server, revision=MODERN) as (client, _):
        assert await client.call_tool("tell", returns=bool) is True
    async with testing.connect(server, revision="2025-06-18") as (client, _):
        assert await client.call_tool("tell", returns=bool) is False


async def test_a_wait_that_is_lost_every_time_is_taken_up_as_often_as_the_server_wants_to_be_asked() -> None:
    asked: list[str] = []

    class Lossy:
        timeout = 60.0

        @property
        def connector(self) -> Any:
            return self

        def start_clock(self, timeout: float | None) -> CallClock:
            return CallClock(timeout, asyncio.get_running_loop())

        async def usable(self, clock: CallClock) -> Any:
            return SimpleNamespace(modern=False)

        async def ask(self, method: str, params: Any, decode: Any, **options: Any) -> Any:
            asked.append(method)
            await asyncio.sleep(0)
            if method == "tasks/result":
                raise OutcomeUnknown("cut off")
            return TaskState("t", "working", None, "", "", None, poll_interval=1.0)

    waiting = asyncio.ensure_future(TaskHandle(SimpleNamespace(sender=Lossy()), "t").wait())  # type: ignore[arg-type]
    for times in (1, 2, 3):
        for _ in range(50):
            await asyncio.sleep(0)
        assert asked == ["tasks/result", "tasks/get"] * times
        await elapse(1.0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@cases(("milliseconds", "seconds"), [(0, 0.1), (-5, 0.1), (1, 0.1), (250, 0.25), (10**9, 60.0), (UNSET, 1.0)])
def test_poll_interval_of_the_server_stays_within_bounds(milliseconds: Any, seconds: float) -> None:
    assert poll_seconds(milliseconds) == seconds


async def test_client_waits_between_polls_when_server_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    several = asyncio.Event()

    async def pause(clock: CallClock, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            several.set()
        await asyncio.sleep(0)

    monkeypatch.setattr(CallClock, "sleep", pause)
    held = Held(limits=Limits(task_window=0.0, task_poll=0.001))
    async with connected(held, MODERN) as (client, _):
        waiting = asyncio.ensure_future((await client.call_tool_as_task("hold", {"label": "z"})).wait())
        await several.wait()
        held.go.set()
        await waiting
    assert set(pauses) == {0.1}


# --- the list --------------------------------------------------------------------------------------------------------


async def test_list_has_the_tasks_of_the_caller() -> None:
    held = Held(limits=FAST)
    async with connected(held, CORE) as (client, _):
        assert await client.list_tasks() == []
        handles = [await client.call_tool_as_task("only") for _ in range(3)]
        listed = await client.list_tasks()
        assert {state.id for state in listed} == {handle.id for handle in handles}
        assert {state.status for state in listed} == {"working"}
        held.go.set()
        assert (await client.task(listed[0].id).wait()).text == "only as a task"


async def test_list_is_read_to_its_last_page() -> None:
    held = Held(limits=FAST, page_size=2)
    async with connected(held, CORE) as (client, wire):
        handles = [await client.call_tool_as_task("only") for _ in range(5)]
        assert {state.id for state in await client.list_tasks()} == {handle.id for handle in handles}
        assert len(sent(wire, "tasks/list")) > 1
        held.go.set()


async def test_revision_without_a_list_is_named() -> None:
    held = Held(limits=FAST)
    async with connected(held, MODERN) as (client, wire):
        with pytest.raises(NotSupported, match=MODERN):
            await client.list_tasks()
        assert not sent(wire, "tasks/list")
    async with Client({"a": held.server, "b": Server("other")}) as client:
        with pytest.raises(NotSupported, match="several servers"):
            await client.list_tasks()
