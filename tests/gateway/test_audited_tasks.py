"""Calls that become tasks of servers behind a gateway, in the audit log of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.cases import cases
from tests.gateway.backs import until
from tests.gateway.test_remote_tasks import CORE, Impatient, backs, before, fronts, held_tools, pairs
from tests.server.tasks.talking import answer, begin, outcome, reaches, talk, text_in
from tests.wireclient import MODERN, WireClient

from toolwire import Gateway, Limits, Server
from toolwire.audit import AuditLog
from toolwire.gateway import front as front_module
from toolwire.gateway import remote_tasks, task_ends
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import OutcomeUnknown, ProtocolError
from toolwire.server_texts import ServerTexts

Line = dict[str, Any]


@asynccontextmanager
async def audited(
    server: Any, front: str, back: str, **options: Any
) -> AsyncIterator[tuple[WireClient, list[Line], Gateway]]:
    """Yield a client of a gateway with an audit log, and the lines of its calls."""
    every: list[Line] = []
    lines: list[Line] = []

    def take(line: bytes) -> None:
        every.append(msgspec.json.decode(line))
        lines[:] = [each for each in every if "method" in each]

    audit = AuditLog(take, key="k" * 32)
    async with before(server, back, audit=audit, **options) as gateway, talk(gateway, front) as client:
        yield client, lines, gateway


@pairs
async def test_a_task_has_a_line_when_it_begins_and_one_when_it_ends(front: str, back: str) -> None:
    held = held_tools()
    async with audited(held.server, front, back) as (client, lines, _):
        task = await begin(client, "hold", {"label": "y"})
        await until(lambda: lines)
        assert [(each["outcome"], each["back"], each["arguments"]) for each in lines] == [("task", "b", {"label": "y"})]
        held.go.set()
        assert text_in(await outcome(client, task)) == "held y"
        await until(lambda: len(lines) == 2)
        assert [(each["outcome"], each["task"]) for each in lines] == [("task", task), ("ok", task)]
        assert [each["name"] for each in lines] == ["hold", "hold"]


@pairs
@cases(("tool", "ending"), [("broken", ("error", None)), ("refused", ("error", -32099)), ("only", ("ok", None))])
async def test_the_end_of_a_task_is_recorded_though_nobody_asks_for_it(
    front: str, back: str, tool: str, ending: tuple[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_ends, "FIRST_LOOK_SECONDS", 0.01)
    held = held_tools()
    async with audited(held.server, front, back) as (client, lines, _):
        await begin(client, tool)
        held.go.set()
        await until(lambda: len(lines) == 2)
    assert [each["outcome"] for each in lines] == ["task", ending[0]]
    assert lines[1].get("code") == ending[1]


@pairs
async def test_a_task_that_was_cancelled_is_recorded_as_that(front: str, back: str) -> None:
    held = held_tools()
    async with audited(held.server, front, back) as (client, lines, _):
        task = await begin(client, "hold")
        await held.started.wait()
        await client.result("tasks/cancel", {"taskId": task})
        await reaches(client, task, "cancelled")
        await until(lambda: len(lines) == 2)
    assert [each["outcome"] for each in lines] == ["task", "cancelled"]


@backs
async def test_a_call_that_ends_at_once_is_recorded_once_it_is_a_task(back: str) -> None:
    """A 2025-11-25 client gets the task that it asked for, whatever its server does."""
    server = Server("at_once")

    @server.tool(task="optional")
    async def add(a: int, b: int) -> int:
        return a + b

    async with audited(server, CORE, back) as (client, lines, _):
        task = await begin(client, "add", {"a": 1, "b": 2})
        assert text_in(await outcome(client, task)) == "3"
        await until(lambda: len(lines) == 2)
    assert [(each["outcome"], each["task"]) for each in lines] == [("task", task), ("ok", task)]


@pytest.mark.parametrize("window", [0.0, 20.0])
async def test_a_task_that_its_client_never_knows_of_is_no_task_in_the_log(window: float) -> None:
    limits = Limits(task_window=window, task_poll=0.02)
    async with audited(Impatient("optional"), MODERN, CORE, limits=limits) as (client, lines, _):
        answer = await client.call("job")
        await until(lambda: len(lines) == (1 if window else 2))
    assert ("taskId" in answer) == (window == 0.0)
    assert [each["outcome"] for each in lines] == (["ok"] if window else ["task", "ok"])


async def test_the_end_of_a_task_that_its_server_forgot_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_ends, "FIRST_LOOK_SECONDS", 0.01)
    server = Impatient("optional")
    server.handlers["tasks/get"] = lambda request, outlet: (_ for _ in ()).throw(ProtocolError(-32602, "Unknown task"))
    async with audited(server, CORE, CORE) as (client, lines, _):
        await begin(client, "job")
        await until(lambda: len(lines) == 2)
    assert [(each["outcome"], each.get("code")) for each in lines] == [("task", None), ("error", -32602)]


@pairs
async def test_a_task_that_runs_when_the_gateway_stops_has_an_end(front: str, back: str) -> None:
    """It stands before the last line of the log."""
    held = held_tools()
    lines: list[Line] = []
    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    async with before(held.server, back, audit=audit) as gateway, talk(gateway, front) as client:
        await begin(client, "hold")
        await held.started.wait()
    await until(lambda: len(lines) > 3)
    found = [(each["kind"], each.get("outcome")) for each in lines]
    assert found == [("open", None), ("call", "task"), ("call", "failed"), ("end", None)]


@pytest.mark.parametrize("ends", [False, True], ids=["drains", "is given up"])
@backs
async def test_a_task_of_a_server_that_was_removed_has_an_end_before_that_of_the_log(
    back: str, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "MAX_LEAVING", 1)
    held = held_tools()
    lines: list[Line] = []
    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    async with before(held.server, back, audit=audit) as gateway, talk(gateway, MODERN) as client:
        await begin(client, "hold")
        await held.started.wait()
        gateway.add("c", Server("c")).remove("b")
        assert gateway.fronts.leaving == ("b",)
        if ends:
            gateway.remove("c")  # There is room for one that leaves.
    await until(lambda: len(lines) > 3)
    found = [(each["kind"], each.get("outcome")) for each in lines]
    assert found == [("open", None), ("call", "task"), ("call", "failed"), ("end", None)]
    assert len({each["chain"] for each in lines}) == 1


@backs
async def test_tasks_without_room_have_an_end_and_one_line_in_the_log(
    back: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote_tasks, "MAX_REMEMBERED", 1)
    held = held_tools()
    async with audited(held.server, CORE, back) as (client, lines, _):
        first = await begin(client, "hold")
        others = [await begin(client, "hold") for _ in range(2)]
        await until(lambda: len(lines) == 5)
        ends = [(each["task"], each["outcome"]) for each in lines if each["outcome"] != "task"]
        assert ends == [(each, "failed") for each in others]
        held.go.set()
        await reaches(client, first, "completed")
        await until(lambda: len(lines) == 6)
    assert (lines[-1]["task"], lines[-1]["outcome"]) == (first, "ok")
    assert caplog.text.count("The ends of others are not recorded") == 1


async def test_equal_calls_that_their_server_joins_have_one_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_ends, "FIRST_LOOK_SECONDS", 30.0)
    looks: list[str] = []

    async def look() -> task_ends.SeenTask:
        looks.append("look")
        return task_ends.SeenTask("completed", 0.0, None)

    ends = task_ends.TaskEnds[str](UpstreamLog(ServerTexts("b")), 10, 60.0)
    before = asyncio.all_tasks()
    both = [ends.watch("t-1", look) for _ in range(2)]
    watchers = asyncio.all_tasks() - before
    ends.look_now("t-1")
    async with asyncio.timeout(5):
        results = await asyncio.gather(*both)
        assert await asyncio.gather(*watchers, return_exceptions=True) == [None]
    assert [each.is_error for each in results] == [False, False]
    assert looks == ["look"]
    assert not ends.is_watched("t-1")


@pytest.mark.parametrize("has_begun", [False, True])
async def test_whoever_waits_for_an_end_hears_that_nobody_looks_any_more(has_begun: bool) -> None:
    async def look() -> task_ends.SeenTask:
        return task_ends.SeenTask("working", 0.0, None)

    ends = task_ends.TaskEnds[str](UpstreamLog(ServerTexts("b")), 10, 60.0)
    end = ends.watch("t-1", look)
    if has_begun:
        await asyncio.sleep(0)
    await ends.close()
    with pytest.raises(OutcomeUnknown):
        await asyncio.wait_for(end, 5)
    assert not ends.is_watched("t-1")


async def test_a_look_that_breaks_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def look() -> task_ends.SeenTask:
        raise ValueError("broken look")

    ends = task_ends.TaskEnds[str](UpstreamLog(ServerTexts("b")), 10, 60.0)
    end = ends.watch("t-1", look)
    ends.look_now("t-1")
    with pytest.raises(ValueError, match="broken look"):
        await asyncio.wait_for(end, 5)
    assert "b: the end of a task cannot be looked for" in caplog.text


@pairs
async def test_questions_and_errors_of_a_task_call_are_recorded_as_such(front: str, back: str) -> None:
    held = held_tools()
    async with audited(held.server, front, back) as (client, lines, _):
        held.go.set()
        held.go_on.set()
        task = await begin(client, "staged")
        asked = await reaches(client, task, "input_required")
        await answer(client, task, **{next(iter(asked.get("inputRequests", ["name"]))): "Ann"})
        await reaches(client, task, "completed")
        await client.error("tools/call", {"name": "missing", **({} if front == MODERN else {"task": {}})})
        await until(lambda: len(lines) == 3)
    assert sorted(each["outcome"] for each in lines) == ["error", "ok", "task"]


@fronts
async def test_a_task_that_a_middleware_answers_with_is_recorded(front: str) -> None:
    lines: list[Line] = []
    times = {"created_at": "2026-01-01T00:00:00Z", "last_updated_at": "2026-01-01T00:00:00Z"}

    async def answer_with_task(request: Any, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        if front == MODERN:
            return t.TaskCreatedResult(task_id="kept", status="working", ttl_ms=None, **times)
        return t.CreateTaskResult(task=t.Task(task_id="kept", status="working", **times))

    audit = AuditLog(lambda line: lines.append(msgspec.json.decode(line)), key="k" * 32)
    server = Server("plain", audit=audit, middleware=[answer_with_task])

    @server.tool(task="optional")
    async def add(a: int, b: int) -> int:
        return a + b

    async with talk(server, front) as client:
        assert await begin(client, "add", {"a": 1, "b": 2}) == "kept"
        await until(lambda: any("method" in each for each in lines))
    assert [each["outcome"] for each in lines if "method" in each] == ["task"]
