"""`server.tasks`: work that the host drives itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.server.tasks.conftest import Clock
from tests.server.tasks.handlers import Held
from tests.server.tasks.replicas import ADA, EVE
from tests.server.tasks.talking import (
    CORE,
    RELATED,
    Way,
    begin,
    changes,
    dialects,
    look,
    outcome,
    reaches,
    status_of,
    talk,
    text_in,
    wait_for_end,
    ways,
)
from tests.wireclient import MODERN

from toolwire import Context, Limits, ProtocolError, Server, ToolResult
from toolwire.client import sync
from toolwire.errors import ServerError, UnknownTask
from toolwire.protocol.types import SERVER_INFO_KEY
from toolwire.server.tasks import methods


def office() -> tuple[Server, list[Any]]:
    """A server whose only tool hands out the id of a task that the test finishes."""
    server = Server("office", tasks=True)
    jobs: list[Any] = []

    @server.tool
    async def submit(ctx: Context) -> str:
        jobs.append(await server.tasks.create(ctx, ttl=60, message="waiting for a clerk"))
        return str(jobs[-1].id)

    return server, jobs


@ways
@pytest.mark.covers("E36")
async def test_a_task_is_created_updated_and_finished_by_the_host(way: Way) -> None:
    server, jobs = office()
    async with way.talk(server) as client:
        task = text_in(await client.call("submit"))
        waiting = await wait_for_end(client, task)
        assert (await look(client, task))["statusMessage"] == "waiting for a clerk"
        assert await server.tasks.update(jobs[0], "half way")
        assert (await look(client, task))["statusMessage"] == "half way"
        assert not waiting.done()
        assert await server.tasks.finish(jobs[0], "stamped")
        assert text_in(await outcome(client, task)) == "stamped"
        assert not await server.tasks.finish(jobs[0], "twice")
        assert not await server.tasks.fail(jobs[0], "too late")
        assert (await changes(client, 1))[-1]["status"] == "completed"


@ways
@pytest.mark.covers("E36")
async def test_a_task_fails_or_is_cancelled_by_the_host(way: Way) -> None:
    server, jobs = office()
    async with way.talk(server) as client:
        failed, cancelled, refused, told = [text_in(await client.call("submit")) for _ in range(4)]
        assert await server.tasks.fail(jobs[0], "the clerk is ill")
        assert await server.tasks.cancel(jobs[1])
        assert await server.tasks.fail(jobs[2], ProtocolError(-32099, "closed"))
        assert await server.tasks.finish(jobs[3], ToolResult("no stamp", is_error=True))
        assert (await reaches(client, failed, "failed"))["statusMessage"] == "the clerk is ill"
        assert await status_of(client, cancelled) == "cancelled"
        assert await status_of(client, refused) == "failed"
        assert await status_of(client, told) == ("completed" if way.modern else "failed")
        record = await server.tasks.get(jobs[0])
        assert record is not None
        assert record.status == "failed"


@pytest.mark.covers("E36")
async def test_each_client_reads_the_result_of_a_task_in_the_words_of_its_own_revision() -> None:
    """A host task belongs to a principal, who may look at it with a client of either dialect."""
    server, _ = office()
    cases: list[tuple[Any, Any, Any]] = [
        (ToolResult("stamped", structured=[1, 2]), {"result": [1, 2]}, [1, 2]),
        (ToolResult(structured={"pages": 2}, meta={"mine": 1}), {"pages": 2}, {"pages": 2}),
        ("stamped", None, None),
    ]
    for value, in_core, in_modern in cases:
        task = await server.tasks.create(principal=ADA)
        await server.tasks.finish(task, value)
        async with talk(server, CORE, principal=ADA) as client:
            result = await client.result("tasks/result", {"taskId": task.id})
            assert "resultType" not in result
            assert result.get("structuredContent") == in_core
            meta = result["_meta"]
            assert meta.pop(RELATED) == {"taskId": task.id}
            assert meta == ({"mine": 1} if in_core == {"pages": 2} else {})
        async with talk(server, MODERN, principal=ADA) as client:
            result = (await look(client, task.id))["result"]
            assert result["resultType"] == "complete"
            assert result.get("structuredContent") == in_modern
            assert SERVER_INFO_KEY in result["_meta"]


@pytest.mark.covers("E36")
async def test_a_task_of_a_call_is_read_in_the_words_of_either_revision() -> None:
    held = Held()
    held.go.set()
    async with talk(held.server, CORE, principal=ADA) as old, talk(held.server, MODERN, principal=ADA) as new:
        made_there, made_here = await begin(old, "hold"), await begin(new, "hold")
        for task in (made_there, made_here):
            result = (await reaches(new, task, "completed"))["result"]
            assert result["resultType"] == "complete"
            assert SERVER_INFO_KEY in result["_meta"]
            result = await old.result("tasks/result", {"taskId": task})
            assert "resultType" not in result
            assert result["_meta"].keys() == {RELATED}


async def test_a_host_names_its_tasks_and_keeps_what_it_has_to_know() -> None:
    server, _ = office()
    task = await server.tasks.create(principal=ADA, name="reindex", metadata={"folder": "a", "pages": [1]})
    record = await server.tasks.get(task)
    assert record is not None
    assert (record.name, record.metadata) == ("reindex", {"folder": "a", "pages": [1]})
    async with talk(server, MODERN, principal=ADA) as client:
        assert "reindex" not in str(await look(client, task.id))
    await server.tasks.finish(task, "done")
    record = await server.tasks.get(task)
    assert record is not None
    assert (record.name, record.metadata) == ("reindex", {"folder": "a", "pages": [1]})


@ways
async def test_a_task_of_the_host_runs_as_long_as_any_other(
    way: Way, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(
        "office", tasks=True, stores=clock.stores, limits=Limits(task=7200.0, session_idle=1e6, session_age=1e6)
    )
    async with way.talk(server, principal=ADA) as client:
        left, ended = [await server.tasks.create(principal=ADA, ttl=60) for _ in range(2)]
        await clock.elapse(7000)
        assert await status_of(client, left.id) == "working"
        await server.tasks.finish(ended, "done")
        await clock.elapse(199)
        assert (await client.error("tasks/get", {"taskId": ended.id}))["code"] == -32602
        assert caplog.records == []
        await clock.elapse(1)
        shown = await reaches(client, left.id, "failed")
        assert shown["statusMessage"] == "The task did not end within 7200 seconds"
        assert [record.getMessage() for record in caplog.records] == [
            f"the task {left.id} of the host failed: it did not end within 7200 seconds"
        ]


@dialects
async def test_a_client_cancels_a_task_of_the_host(revision: str) -> None:
    server, jobs = office()
    async with talk(server, revision) as client:
        task = text_in(await client.call("submit"))
        await client.result("tasks/cancel", {"taskId": task})
        assert not await server.tasks.finish(jobs[0], "too late")
        assert await status_of(client, task) == "cancelled"


async def test_a_task_for_a_principal_without_a_request() -> None:
    server, _ = office()
    task = await server.tasks.create(principal=ADA)
    async with talk(server, CORE, principal=ADA) as ada, talk(server, CORE, principal=EVE) as eve:
        assert [each["taskId"] for each in (await ada.result("tasks/list"))["tasks"]] == [task.id]
        assert (await eve.error("tasks/get", {"taskId": task.id}))["code"] == -32602


async def test_only_what_create_returned_names_a_task() -> None:
    server, _ = office()
    with pytest.raises(ServerError, match="not int"):
        await server.tasks.finish(1, "x")  # type: ignore[arg-type]
    with pytest.raises(UnknownTask, match="an id"):
        await server.tasks.finish("an id", "x")
    with pytest.raises(ServerError, match="above zero"):
        await server.tasks.create(ttl=-1)


# --- one loop after another ---


async def test_a_blocking_client_waits_for_a_task_of_the_host() -> None:
    server, jobs = office()
    submitted = asyncio.Event()
    loop = asyncio.get_running_loop()

    def elsewhere() -> str:
        with sync.Client(server, revision=CORE) as client:
            task = client.task(client.call_tool("submit").text)
            loop.call_soon_threadsafe(submitted.set)
            return task.wait(timeout=10).text

    async with talk(server, CORE):
        there = asyncio.create_task(asyncio.to_thread(elsewhere))
        await submitted.wait()
        assert await server.tasks.finish(jobs[0], "stamped")
        assert await there == "stamped"


def test_a_loop_that_is_gone_takes_no_bell_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server, jobs = office()
    rings = methods._rings

    async def serve() -> str:
        gate = asyncio.Event()

        def noticed(bell: asyncio.Event, seconds: float) -> Awaitable[None]:
            gate.set()
            return rings(bell, seconds)

        monkeypatch.setattr(methods, "_rings", noticed)
        async with talk(server, CORE) as client:
            task = text_in(await client.call("submit"))
            waiting = await wait_for_end(client, task)
            await gate.wait()
            await server.tasks.finish(jobs[0], "stamped")
            return text_in((await asyncio.wait_for(waiting, 30))["result"])

    asyncio.run(server.tasks.create(ttl=60))
    assert asyncio.run(serve()) == "stamped"
