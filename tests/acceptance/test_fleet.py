"""Two servers that know nothing of each other but a Redis and a key, and clients whose requests arrive at either."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle, repeat
from pathlib import Path

import pytest
from tests.acceptance.anywhere import SERVER, EventStream, Session, elicited, live_all, text_of
from tests.http_process import Served, connected, modern, started, text_of_call
from tests.redis_server import RedisServer, running

from toolwire import Client
from toolwire.client import TaskState

SESSIONS = 60
AT_ONCE = 20

TASKS = """
import asyncio, os, signal
from toolwire import Context, Limits, Policy, Server
from toolwire.server.policy import Rate

server = Server("tasks of a fleet", limits=Limits(task_window=0.0, task_poll=0.05, task_lease=2.0))

@server.tool(policy=Policy(rate=Rate("3/day", shared=True)))
async def rare() -> str:
    return "this time"

@server.tool(task="optional")
async def quick() -> int:
    return os.getpid()

@server.tool(task="optional")
async def forever() -> str:
    await asyncio.Event().wait()
    return "never"

@server.tool(task="optional")
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", str)
    return f"{answer.action}: {answer.data}"

@server.tool(task="optional", annotations={"idempotentHint": True})
async def dies(first: int) -> int:
    if os.getpid() == first:
        os.kill(first, signal.SIGKILL)
    return os.getpid()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Redis does not run there")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@asynccontextmanager
async def two_servers(redis: RedisServer, file: Path, text: str) -> AsyncIterator[list[Served]]:
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "toolwire", "run", file, "--transport", "http", "--port", "0"]
    shared = {"TOOLWIRE_STORES": redis.url, "TOOLWIRE_SECRET": "the same on every machine"}
    async with started(command, shared) as one, started(command, shared) as two:
        yield [one, two]


@pytest.fixture
async def fleet(redis: RedisServer, tmp_path: Path) -> AsyncIterator[list[Served]]:
    async with two_servers(redis, tmp_path / "server.py", SERVER) as servers:
        yield servers


@pytest.fixture
async def task_fleet(redis: RedisServer, tmp_path: Path) -> AsyncIterator[list[Served]]:
    async with two_servers(redis, tmp_path / "server.py", TASKS) as servers:
        yield servers


async def end(fleet: list[Served]) -> None:
    """Both end as they should, and had nothing to complain about."""
    for served in fleet:
        served.signal(signal.SIGTERM)
        status, said = await served.end()
        assert (status, said.count("\n")) == (0, 1), said


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_sessions_whose_requests_arrive_at_either_server(fleet: list[Served]) -> None:
    await live_all(cycle([served.port for served in fleet]), SESSIONS, AT_ONCE)
    await end(fleet)


async def test_a_stream_that_breaks_at_one_server_goes_on_at_the_other(fleet: list[Served]) -> None:
    here, there = (served.port for served in fleet)
    # The session is opened at one; the call runs there, the answer and the client that comes back arrive at the other.
    session = Session(repeat(here), "2025-11-25")
    await session.open()
    async with session.call("ask") as (_, stream):
        question = await stream.until("elicitation/create")
    session._ports = repeat(there)
    await session.respond(question, elicited(question))
    async with session.get(stream.last_event_id) as resumed:
        assert text_of(await resumed.answer()) == "accept: Ada"
    assert await session.status_of("DELETE") == 200
    session._ports = repeat(here)
    assert (await session.post(session.request("tools/list")))[0] == 404, "it is over everywhere"


async def test_what_one_server_publishes_reaches_the_listeners_of_both(fleet: list[Served]) -> None:
    uri = "note://1/first"
    async with AsyncExitStack() as stack:
        streams: list[EventStream] = []
        for served in fleet:
            session = Session(repeat(served.port), "2025-06-18")
            await session.open()
            await session.result("resources/subscribe", {"uri": uri})
            streams.append(await stack.enter_async_context(session.get()))
            wanted = {"toolsListChanged": True, "resourceSubscriptions": [uri]}
            connection = await stack.enter_async_context(connected(served.port))
            connection.send(modern("subscriptions/listen", {"notifications": wanted}, "listen"))
            assert (await connection.head())[0] == 200
            streams.append(EventStream(connection))
            await streams[-1].until("notifications/subscriptions/acknowledged")
        for served in fleet:
            publisher = await stack.enter_async_context(connected(served.port))
            await text_of_call(publisher, "touch", uri=uri)
            for stream in streams:
                assert await stream.updated() == uri
            await text_of_call(publisher, "grow")
            for stream in streams:
                await stream.until("notifications/tools/list_changed")


async def last_state(client: Client, task: str) -> TaskState:
    async for state in client.task(task).updates():
        last = state
    return last


def url_of(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/mcp"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_tasks_of_one_server_are_there_at_the_other(task_fleet: list[Served], revision: str) -> None:
    async with (
        Client(url_of(task_fleet[0]), revision=revision) as here,
        Client(url_of(task_fleet[1]), revision=revision) as there,
    ):
        done = await here.call_tool_as_task("quick")
        state = await last_state(there, done.id)
        assert state.status == "completed"
        if revision == "2026-07-28":
            assert f'"text":"{task_fleet[0].pid}"'.encode() in bytes(state.result or b"")
        running = await here.call_tool_as_task("forever")
        await there.task(running.id).cancel()
        assert (await last_state(here, running.id)).status == "cancelled"


async def test_a_question_of_a_task_is_answered_at_the_other_server(task_fleet: list[Served]) -> None:
    here, there = (
        Client(url_of(served), revision="2026-07-28", elicit=lambda message, params: {"value": "Ada"})
        for served in task_fleet
    )
    async with here, there:
        task = await here.call_tool_as_task("asks")
        assert (await there.task(task.id).wait()).text == "accept: Ada"


async def test_a_task_whose_server_is_killed_is_taken_over(task_fleet: list[Served]) -> None:
    first, second = task_fleet
    async with (
        Client(url_of(first), revision="2026-07-28") as here,
        Client(url_of(second), revision="2026-07-28") as there,
    ):
        left = await here.call_tool_as_task("forever")
        task = await here.call_tool_as_task("dies", {"first": first.pid})
        state = await last_state(there, task.id)
        assert (state.status, f'"text":"{second.pid}"'.encode() in bytes(state.result or b"")) == ("completed", True)
        failed = await last_state(there, left.id)
        assert failed.status == "failed"
        assert "the task may have run" in (failed.message or "")


@pytest.mark.covers("R16")
async def test_both_servers_count_the_calls_of_a_caller(task_fleet: list[Served]) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(url_of(served))) for served in task_fleet]
        results = [await clients[number % 2].call_tool("rare") for number in range(5)]
    assert [result.is_error for result in results] == [False, False, False, True, True]


async def test_a_redis_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER, encoding="utf-8")
    command = [sys.executable, "-m", "toolwire", "run", file, "--transport", "http", "--port", "0"]
    with running() as redis:
        shared = {
            "TOOLWIRE_STORES": f"{redis.url}?prefix=notes&timeout=0.5",
            "TOOLWIRE_SECRET": "the same on every machine",
        }
        async with started(command, shared) as served:
            assert await probe(served.port, "/readyz") == (200, b"ok")
            session = Session(repeat(served.port), "2025-06-18")
            await session.open()
            redis.kill()
            # The look of the probe before counts for a second.
            while (answer := await probe(served.port, "/readyz")) == (200, b"ok"):
                await asyncio.sleep(0.05)
            assert answer == (503, b"the store cannot be used")
            assert await probe(served.port, "/livez") == (200, b"ok")
            status, headers, body = await session.post(session.request("tools/list"))
            assert (status, headers["retry-after"]) == (503, "1")
            assert json.loads(body)["error"]["message"] == "The server cannot serve this now; try again later"
            async with connected(served.port) as connection:
                # What needs no store goes on.
                assert int(await text_of_call(connection, "process")) == served.pid
            redis.start()
            while (await probe(served.port, "/readyz"))[0] != 200:
                await asyncio.sleep(0.05)
            await Session(repeat(served.port), "2025-06-18").open()


async def test_a_stream_outlives_a_restart_of_a_redis_that_keeps_its_data(tmp_path: Path) -> None:
    uri = "note://1/first"
    with running("--appendonly", "yes", "--appendfsync", "always") as redis:
        async with two_servers(redis, tmp_path / "server.py", SERVER) as servers:
            here, there = (served.port for served in servers)
            session = Session(repeat(here), "2025-11-25")
            await session.open()
            await session.result("resources/subscribe", {"uri": uri})
            async with session.get() as stream:
                await session.touch(uri)
                assert await stream.updated() == uri
                redis.kill()
                redis.start()
                for port in (here, there):
                    while (await probe(port, "/readyz"))[0] != 200:
                        await asyncio.sleep(0.05)
                session._ports = repeat(there)
                await session.touch(uri)
                assert await stream.updated() == uri


async def probe(port: int, path: str) -> tuple[int, bytes]:
    async with connected(port) as connection:
        connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status, _, body = await connection.answer()
        return status, body
