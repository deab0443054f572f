"""`server.tasks`: work that the host drives itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.server.tasks.talking import (
    CORE,
    Way,
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

from toolwire import Context, ProtocolError, Server, ToolResult
from toolwire.client import sync
from toolwire.protocol.errors import ServerError
from toolwire.server.tasks import methods


def office() -> tuple[Server, list[Any]]:
    """A server whose only tool hands out the id of a task that somebody else finishes."""
    server = Server("office")
    jobs: list[Any] = []

    @server.tool
    async def submit(ctx: Context) -> str:
        jobs.append(await server.tasks.create(ctx, ttl=60, message="waiting for a clerk"))
        return str(jobs[-1].id)

    assert server.tasks is not None  # From here on tasks are offered.
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
    task = await server.tasks.create(principal="ada")
    async with talk(server, CORE, principal="ada") as ada, talk(server, CORE, principal="eve") as eve:
        assert [each["taskId"] for each in (await ada.result("tasks/list"))["tasks"]] == [task.id]
        assert (await eve.error("tasks/get", {"taskId": task.id}))["code"] == -32602


async def test_only_what_create_returned_names_a_task() -> None:
    server, _ = office()
    with pytest.raises(ServerError, match="not str"):
        await server.tasks.finish("an id", "x")  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        await server.tasks.create(ttl=-1)


# --- on several loops ---


async def test_whoever_waits_on_another_loop_is_woken_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server, jobs = office()
    waits, rings = threading.Event(), methods._rings
    woken: list[bool] = []

    def noticed(bell: asyncio.Event, expires: float) -> Awaitable[None]:
        thread, ring = threading.current_thread(), bell.set

        def set_bell() -> None:
            woken.append(threading.current_thread() is thread)
            ring()

        monkeypatch.setattr(bell, "set", set_bell)
        waits.set()
        return rings(bell, expires)

    monkeypatch.setattr(methods, "_rings", noticed)

    def elsewhere() -> str:
        with sync.Client(server, revision=CORE) as client:
            return client.task(client.call_tool("submit").text).wait(timeout=10).text

    await server.tasks.create(ttl=60)  # So that this loop is the first to hear of changes.
    there = asyncio.create_task(asyncio.to_thread(elsewhere))
    assert await asyncio.to_thread(waits.wait, 10)
    assert await server.tasks.finish(jobs[0], "stamped")
    assert await there == "stamped"
    assert woken == [True]


def test_a_loop_that_is_gone_takes_no_bell_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server, jobs = office()
    rings = methods._rings

    async def serve() -> str:
        gate = asyncio.Event()

        def noticed(bell: asyncio.Event, expires: float) -> Awaitable[None]:
            gate.set()
            return rings(bell, expires)

        monkeypatch.setattr(methods, "_rings", noticed)
        async with talk(server, CORE) as client:
            task = text_in(await client.call("submit"))
            waiting = await wait_for_end(client, task)
            await gate.wait()
            await server.tasks.finish(jobs[0], "stamped")
            return text_in((await asyncio.wait_for(waiting, 10))["result"])

    asyncio.run(server.tasks.create(ttl=60))
    assert asyncio.run(serve()) == "stamped"
