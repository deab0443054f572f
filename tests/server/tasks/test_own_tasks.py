"""Tasks that a program of its own works on: declaration, ids, workers, heartbeats, cancellation."""

from __future__ import annotations

import asyncio
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.blocks import ROOT, blocks_of
from tests.cases import cases
from tests.redis_server import running
from tests.runtimes import manager_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.replicas import ADA, LEASE, Replica, pass_time, settled, shared_stores
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
from tests.wireclient import MODERN

from toolwire import Client, Context, Limits, ProtocolError, Server, Tasks, ToolResult
from toolwire.errors import ServerError, UnknownTask
from toolwire.server.tasks import methods
from toolwire.server.tasks.own_tasks import HostTask
from toolwire.server.tasks.task_records import PREFIX, Records, owner_in, short_name
from toolwire.stores import Stores
from toolwire.stores.by_address import open_stores

SILENT = "The worker of this task did not report for {} seconds; the work may have run"
DAMAGED = "The record of this task was damaged; the task may have run"
KINDS = ["memory", "sqlite", *([] if sys.platform == "win32" else ["redis"])]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a store; empty for one in memory."""
    if request.param == "redis":
        with running() as redis:
            yield redis.url
    else:
        yield "" if request.param == "memory" else str(tmp_path / "state.db")


@asynccontextmanager
async def open_two(address: str) -> AsyncIterator[tuple[Stores, Stores]]:
    """Two ways to the same store, as two processes have them."""
    first = open_stores(address) if address else Stores.memory()
    second = open_stores(address) if address else first
    try:
        yield first, second
    finally:
        first.close()
        second.close()


def make_office(**options: Any) -> Server:
    server = Server("office", tasks=True, **{"limits": Limits(task_poll=0.05), **options})

    @server.tool
    async def submit(ctx: Context, heartbeat: float | None = None) -> str:
        return (await server.tasks.create(ctx, heartbeat=heartbeat, message="waiting for a clerk")).id

    return server


# --- the declaration ---


@dialects
@pytest.mark.covers("E36")
async def test_documented_example_works_for_client_connected_before_first_task(revision: str) -> None:
    (block, *_) = (each for each in blocks_of(ROOT / "docs/concepts/tasks.md").values() if "tasks.create(ctx" in each)
    found: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, "example", "exec"), found)
    server: Server = found["server"]
    async with Client(server, revision=revision) as client:
        task = client.task((await client.call_tool("submit", {"form": "F1"})).text)
        assert (await task.status()).message == "waiting for a clerk"
        assert await server.tasks.finish(task.id, "stamped")
        assert (await task.wait()).text == "stamped"


async def test_create_without_declaration_says_what_to_do() -> None:
    server = Server("office")
    before = server.capabilities(CORE), server.capabilities(MODERN)
    with pytest.raises(ServerError, match=r"Server\('office', tasks=True\)"):
        await server.tasks.create()
    assert (server.capabilities(CORE), server.capabilities(MODERN)) == before, "reading declares nothing"


@dialects
async def test_mounted_server_creates_tasks_for_clients_of_its_host(revision: str) -> None:
    office, front = make_office(), Server("front")
    front.mount(Server("floor").mount(office, "office"), "floor")
    async with Client(front, revision=revision) as client:
        task = client.task((await client.call_tool("floor_office_submit")).text)
        assert await office.tasks.update(task.id, "half way")
        assert (await task.status()).message == "half way"
        assert await office.tasks.finish(task.id, "stamped")
        assert (await task.wait()).text == "stamped"
        assert not await front.tasks.finish(task.id, "twice")


async def test_context_of_an_unrelated_server_is_refused() -> None:
    office, other = make_office(), Server("other")

    @other.tool
    async def submit(ctx: Context) -> str:
        with pytest.raises(ServerError, match="'other', whose clients do not see tasks of 'office'"):
            await office.tasks.create(ctx)
        return "refused"

    assert (await other.call_tool("submit")).text == "refused"


# --- workers in another process ---


@dialects
@pytest.mark.covers("FLT-41")
async def test_worker_reports_and_finishes_by_id(revision: str, address: str) -> None:
    async with open_two(address) as (stores, worker_stores):
        server, tasks = make_office(stores=stores), Tasks(worker_stores, server="office")
        async with Client(server, revision=revision) as client:
            task = client.task((await client.call_tool("submit")).text)
            assert await tasks.update(task.id, "half way", progress=1, total=2)
            assert (await task.status()).message == "half way"
            assert await tasks.update(task.id, "half way", progress=1, total=2), "the same words are no end"
            waiting = asyncio.create_task(task.wait())
            assert await tasks.finish(task.id, ToolResult("stamped", structured=[1, 2]))
            result = await waiting
            assert result.text == "stamped"
            assert result.structured == ({"result": [1, 2]} if revision == CORE else [1, 2])
            assert not await tasks.finish(task.id, "twice")
            assert not await tasks.fail(task.id, "late")
            assert not await tasks.update(task.id, "late")
            assert not await tasks.beat(task.id)
            assert await tasks.is_over(task.id)
            assert (await task.wait()).text == "stamped"


async def test_worker_needs_the_name_of_the_server_and_a_known_id() -> None:
    stores = Stores.memory()
    server = make_office(stores=stores)
    task = await server.tasks.create(principal=ADA)
    for tasks, identifier in ((Tasks(stores, server="other"), task.id), (Tasks(stores, server="office"), "guess")):
        with pytest.raises(UnknownTask, match=identifier):
            await tasks.finish(identifier, "stamped")
    with pytest.raises(ServerError, match="the name of the server"):
        Tasks(stores, server="")
    with pytest.raises(ServerError, match="TOOLWIRE_STORES"):
        Tasks(server="office")
    with pytest.raises(ServerError, match="above zero"):
        await server.tasks.create(heartbeat=0)


@pytest.mark.covers("FLT-41")
async def test_task_ended_by_worker_stays_that_of_its_owner() -> None:
    stores = Stores.memory()
    server, tasks = make_office(stores=stores), Tasks(stores, server="office")
    async with (
        talk(server, CORE, principal=ADA) as ada,
        talk(server, CORE, principal="eve") as eve,
    ):
        task = await server.tasks.create(principal=ADA)
        assert await tasks.fail(task.id, ProtocolError(-32099, "no stamps"))
        assert (await eve.error("tasks/get", {"taskId": task.id}))["code"] == -32602
        assert (await reaches(ada, task.id, "failed"))["statusMessage"] == "no stamps"


@ways
async def test_client_is_notified_of_the_end_that_a_worker_wrote(way: Way) -> None:
    stores = Stores.memory()
    server, tasks = make_office(stores=stores), Tasks(stores, server="office")
    async with way.talk(server) as client:
        task = text_in(await client.call("submit", {"heartbeat": 60}))
        await wait_for_end(client, task)
        async with tasks.work(task) as work:
            assert await work.finish("stamped")
        assert text_in(await outcome(client, task)) == "stamped"
        assert (await changes(client, 1))[-1]["status"] == "completed"


async def test_creator_lets_go_of_a_task_that_a_worker_ended(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    server = make_office(stores=clock.stores, limits=Limits(task=100.0))
    tasks = Tasks(clock.stores, server="office")
    async with talk(server, MODERN):
        task = await server.tasks.create(principal=ADA)
        assert await tasks.finish(task.id, "stamped")
        await settled()
        assert manager_of(server).following.all() == []
        await clock.elapse(200)
        await settled()
        assert caplog.records == []


async def test_report_of_a_worker_keeps_the_record_as_long_as_the_server_says(clock: Clock) -> None:
    week = 7 * 86400.0
    server = make_office(stores=clock.stores, limits=Limits(task=week))
    tasks = Tasks(clock.stores, server="office")
    async with talk(server, MODERN, principal=ADA) as client:
        task = await server.tasks.create(principal=ADA)
        assert await tasks.update(task.id, "half way")
        await clock.elapse(6 * 86400.0)
        assert await status_of(client, task.id) == "working"


# --- cancellation ---


@dialects
@pytest.mark.covers("FLT-43")
async def test_worker_sees_that_the_client_cancelled(revision: str, address: str) -> None:
    async with open_two(address) as (stores, worker_stores):
        server, tasks = make_office(stores=stores), Tasks(worker_stores, server="office")
        async with Client(server, revision=revision) as client:
            for heartbeat in (None, 60.0):
                task = client.task((await client.call_tool("submit", {"heartbeat": heartbeat})).text)
                async with tasks.work(task.id) as work:
                    assert not work.is_over
                    assert await tasks.beat(task.id)
                    await task.cancel()
                    async with asyncio.timeout(20):
                        assert await work.wait_for_end() == "cancelled"
                    assert work.is_over
                    assert not await work.finish("stamped")
                assert not await tasks.beat(task.id)
                async with tasks.work(task.id) as again:
                    assert (again.is_over, again.status) == (True, "cancelled")
            assert await stores.queue.leases("worker/") == [], "nothing is left in the store"


async def test_one_process_works_on_a_task_once() -> None:
    stores = Stores.memory()
    server, tasks = make_office(stores=stores), Tasks(stores, server="office")
    task = await server.tasks.create(principal=ADA, heartbeat=30)
    async with tasks.work(task.id):
        with pytest.raises(ServerError, match="already"):
            async with tasks.work(task):
                pass
    async with tasks.work(task) as work:
        assert await work.finish("stamped")
    assert await stores.queue.leases("worker/") == []


# --- heartbeats ---


@pytest.mark.covers("FLT-42")
async def test_silent_worker_fails_its_task(address: str) -> None:
    """The worker is lost, and the two processes of the server live on."""
    limits = Limits(task_lease=0.6, task_poll=0.05)
    async with open_two(address) as (stores, worker_stores):
        server, second = make_office(stores=stores, limits=limits), make_office(stores=worker_stores, limits=limits)
        tasks = Tasks(worker_stores, server="office")
        async with Client(server) as client, Client(second):
            task = client.task((await client.call_tool("submit", {"heartbeat": 0.3})).text)
            async with tasks.work(task.id):
                pass  # From here on nothing is reported.
            with pytest.raises(ProtocolError, match=SILENT.format("0.3")):
                await task.wait(timeout=20)
            assert not await tasks.finish(task.id, "stamped")
            assert (await task.status()).status == "failed"


@pytest.mark.covers("FLT-42")
async def test_heartbeat_counts_from_the_first_report(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    shared = shared_stores(clock)
    one, two = Replica(shared), Replica(shared)
    tasks = Tasks(shared, server="fleet")
    async with one.serving() as join, two.serving(), join(principal=ADA) as client:
        task = await one.server.tasks.create(principal=ADA, heartbeat=30)
        await pass_time(clock, 200, 5)
        assert await status_of(client, task.id) == "working", "it waits for a worker"
        for _ in range(5):
            assert await tasks.beat(task.id)
            await pass_time(clock, 28, 4)
        assert await status_of(client, task.id) == "working"
        assert await tasks.beat(task.id)
        await pass_time(clock, 30 + 3 * LEASE, 5)
        assert (await look(client, task.id))["statusMessage"] == SILENT.format(30)
        assert not await tasks.beat(task.id)
        assert not await tasks.finish(task, "stamped")
        assert {record.getMessage() for record in caplog.records} == {
            f"the task {task.id} failed: its worker did not report for 30 seconds"
        }
        assert (one.tasks.counts.leases_lost, two.tasks.counts.leases_lost) == (0, 0), "no process was lost"


@pytest.mark.covers("FLT-42")
async def test_outage_of_the_store_fails_no_task_of_a_worker(clock: Clock) -> None:
    """The worker cannot report while the store is out of reach, and is back a moment after the server processes."""
    shared = shared_stores(clock)
    one, two, worker = Replica(shared), Replica(shared), Replica(shared)
    tasks = Tasks(worker.stores, server="fleet")
    async with one.serving() as join, two.serving(), join(principal=ADA) as client:
        task = await one.server.tasks.create(principal=ADA, heartbeat=30)
        assert await tasks.beat(task.id)
        for each in (one, two, worker):
            each.line.is_cut = True
        await pass_time(clock, 300, 5)
        assert await tasks.beat(task.id), "nothing says that the work should stop"
        one.line.is_cut = two.line.is_cut = False
        await pass_time(clock, LEASE - 1)
        worker.line.is_cut = False
        assert await tasks.beat(task.id)
        await pass_time(clock, 29)
        assert await tasks.finish(task.id, "stamped")
        assert await status_of(client, task.id) == "completed"


async def test_task_continues_when_its_worker_restarts_in_time(clock: Clock) -> None:
    shared = shared_stores(clock)
    one = Replica(shared)
    first, second = Tasks(shared, server="fleet"), Tasks(shared, server="fleet")
    async with one.serving() as join, join(principal=ADA) as client:
        task = await one.server.tasks.create(principal=ADA, heartbeat=30)
        async with first.work(task.id) as work:
            await work.update("page 1")
        await pass_time(clock, 25)
        async with second.work(task.id) as work:
            await pass_time(clock, 300, 5)
            assert not work.is_over
            assert await work.finish("stamped")
        await pass_time(clock, 3 * LEASE)
        assert await status_of(client, task.id) == "completed"


async def test_task_without_a_worker_fails_after_its_creator_is_gone(clock: Clock) -> None:
    shared = shared_stores(clock)
    one, two = Replica(shared, limits={"task": 100.0}), Replica(shared, limits={"task": 100.0})
    tasks = Tasks(shared, server="fleet")
    async with one.serving(), two.serving() as join, join(principal=ADA) as client:
        task = await one.server.tasks.create(principal=ADA, heartbeat=30)
        one.die()
        await pass_time(clock, 95, 5)
        assert await status_of(client, task.id) == "working"
        await pass_time(clock, 5 + 3 * LEASE, 5)
        assert (await look(client, task.id))["statusMessage"] == (
            "No worker reported on this task in time; the work may have run"
        )
        assert not await tasks.beat(task.id)


# --- what is written can be read ---

UNKEPT: list[Any] = [10**400, "5", True, math.inf, math.nan, Decimal(5), object()]


@cases("value", UNKEPT, ids=lambda value: type(value).__name__ + repr(value)[:4])
async def test_number_that_a_record_cannot_keep_is_refused(value: Any) -> None:
    server = make_office()
    async with Client(server, revision=CORE) as client:
        task = await server.tasks.create()
        for numbers in ({"progress": value}, {"progress": 1, "total": value}):
            if isinstance(value, Decimal):
                assert await server.tasks.update(task, "page 1", **numbers)
                continue
            with pytest.raises(ServerError, match="is a number"):
                await server.tasks.update(task, "page 1", **numbers)
        for times in ({"heartbeat": value}, {"ttl": value}):
            if not isinstance(value, Decimal):
                with pytest.raises(ServerError, match="seconds above zero"):
                    await server.tasks.create(**times)
        assert [each["taskId"] for each in (await client.request("tasks/list", {}))["tasks"]] == [task.id]
        assert await server.tasks.finish(task, "stamped")


def make_cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


UNWRITABLE: dict[str, Any] = {
    "object": {"value": object()},
    "cycle": make_cycle(),
    "nan": math.nan,
    "nested nan": {"numbers": [1.0, math.nan]},
    "structured infinity": ToolResult("text", structured={"number": math.inf}),
    "meta": ToolResult("text", meta={"value": object()}),
}


@cases("name", UNWRITABLE)
async def test_result_that_is_not_json_is_refused_and_the_task_stays(name: str) -> None:
    stores = Stores.memory()
    server, tasks = make_office(stores=stores), Tasks(stores, server="office")
    async with Client(server) as client:
        task = await server.tasks.create(message="waiting")
        for program in (server.tasks, tasks):
            with pytest.raises(ServerError, match=r"The result of a task is content or a JSON value: \S"):
                await program.finish(task.id, UNWRITABLE[name])
        assert (await client.task(task.id).status()).status == "working"
        assert await tasks.finish(task.id, {"number": 1.5})
        assert '"number":1.5' in (await client.task(task.id).wait()).text


@cases("value", ["ann", b"ann", 7, ("p", "ann")], ids=repr)
async def test_create_refuses_a_principal_that_is_only_a_name(value: Any) -> None:
    with pytest.raises(ServerError, match="principal= is a Principal"):
        await make_office().tasks.create(principal=value)


class OtherPrincipal(Struct):
    """A principal of the program's own type."""

    subject: str
    provider: str = "tests"


@pytest.mark.parametrize(
    "given", [OtherPrincipal("a\ud800"), OtherPrincipal("a", "\udfff")], ids=["subject", "provider"]
)
async def test_create_refuses_a_principal_with_half_a_surrogate_pair(given: Any) -> None:
    with pytest.raises(ServerError, match=r"principal= has half of a surrogate pair in its (subject|provider)"):
        await make_office().tasks.create(principal=given)


async def test_tasks_refuse_a_server_name_with_half_a_surrogate_pair(clock: Clock) -> None:
    with pytest.raises(ServerError, match="needs the name of the server"):
        Tasks(clock.stores, server="office \ud800")


async def test_metadata_with_numbers_that_json_lacks_is_refused() -> None:
    with pytest.raises(ServerError, match="metadata= is a mapping in JSON types: JSON has no number nan"):
        await make_office().tasks.create(metadata={"number": [math.nan]})


@cases("value", [None, 4, b"text", ["a"]], ids=repr)
async def test_text_that_a_record_cannot_keep_is_refused(value: Any) -> None:
    server = make_office()
    async with Client(server):
        task = await server.tasks.create(message="a \ud800 name", metadata={"name": "a \ud800 name"})
        for refused in (
            server.tasks.create(message=value),
            server.tasks.create(name=value),
            server.tasks.update(task, value),
            server.tasks.fail(task, value),
        ):
            with pytest.raises(ServerError, match="is text, not"):
                await refused
        with pytest.raises(ServerError, match="A task keeps text"):
            await server.tasks.fail(task, ProtocolError("code", "text"))  # type: ignore[arg-type]
        with pytest.raises(ServerError, match="metadata= is a mapping in JSON types"):
            await server.tasks.create(metadata={"number": object()})
        record = await server.tasks.get(task)
        assert record is not None and not record.over


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "wrong type": lambda data: data.replace(b'"message":"waiting"', b'"message":7'),
    "empty": lambda data: b"",
    "not UTF-8": lambda data: data.replace(b'"message":"waiting"', b'"message":"\xffaiting"'),
    "call not UTF-8": lambda data: data.replace(b'"message":"waiting"', b'"call":{"params":"\xff","revision":"x"}'),
    "name not UTF-8": lambda data: data.replace(b'"message":', b'"\xff":'),
    "far future": lambda data: re.sub(rb'"created":[^,]+', b'"created":1e300', data),
    "year beyond 9999": lambda data: re.sub(rb'"created":[^,]+', b'"created":1e12', data),
    "far past": lambda data: re.sub(rb'"updated":[^,]+', b'"updated":-1e300', data),
    "endless ttl": lambda data: re.sub(rb'"ttl_ms":[^,]+', b'"ttl_ms":1' + b"0" * 400, data),
    "other id": lambda data: re.sub(rb'"id":"[^"]+', b'"id":"another', data),
}


async def damage(stores: Stores, task: HostTask, kind: str = "wrong type") -> None:
    """Make a record unreadable, as a version before wrote some."""
    key = Records(short_name("office"), stores, 60.0).key(task.owner, task.id)
    data = await stores.kv.get(key)
    assert data is not None
    broken = DAMAGES[kind](data)
    assert broken != data
    place = dict(await stores.queue.places(PREFIX, limit=10))[key]
    assert await stores.queue.change(key, broken, ttl=600, expect=data, place=place) is None


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damaged_record_costs_its_own_task_alone(
    kind: str, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_two(address) as (stores, worker_stores):
        server, tasks = make_office(stores=stores), Tasks(worker_stores, server="office")
        async with Client(server, revision=CORE) as client:
            whole, broken = [await server.tasks.create(message="waiting") for _ in range(2)]
            await damage(worker_stores, broken, kind)
            listed = (await client.request("tasks/list", {}))["tasks"]
            assert [each["taskId"] for each in listed] == [whole.id]
            assert "a task is left out of a list" in caplog.text
            with pytest.raises(ServerError, match="is damaged"):
                await tasks.update(broken.id, "half way")
            with pytest.raises(ServerError, match="is damaged"):
                await tasks.finish(broken.id, "stamped")
            shown = await client.request("tasks/get", {"taskId": broken.id})
            assert (shown["status"], shown["statusMessage"]) == ("failed", DAMAGED)
            assert not await tasks.finish(broken.id, "stamped")
            assert await tasks.finish(whole.id, "stamped")


async def failure_of(waiting: asyncio.Task[Any]) -> str:
    """Return the error that ends a waiting request, well before a request looks again by itself."""
    with pytest.raises(ProtocolError) as failed:
        await asyncio.wait_for(waiting, 8)
    return failed.value.message


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Is released by each `tasks/result` that has found its task and waits for the end of it."""
    rings, semaphore = methods._rings, asyncio.Semaphore(0)

    async def counted(bell: asyncio.Event, seconds: float) -> None:
        semaphore.release()
        await rings(bell, seconds)

    monkeypatch.setattr(methods, "_rings", counted)
    return semaphore


@pytest.mark.parametrize("kind", ["empty", "far future", "endless ttl", "other id"])
async def test_open_result_of_a_damaged_task_is_answered_when_its_handler_ends(
    kind: str, address: str, waiting: asyncio.Semaphore
) -> None:
    has_begun, may_end = asyncio.Event(), asyncio.Event()
    async with open_two(address) as (stores, other_stores):
        server, other = make_office(stores=stores), make_office(stores=other_stores)

        @other.tool(task="required")
        @server.tool(task="required")
        async def slow() -> str:
            has_begun.set()
            await may_end.wait()
            return "done"

        async with Client(server, revision=CORE) as client, Client(other, revision=CORE) as watching:
            handle = await client.call_tool_as_task("slow")
            await has_begun.wait()
            results = []
            for each in (client, watching):
                results.append(asyncio.create_task(each.request("tasks/result", {"taskId": handle.id})))
                await waiting.acquire()
            key = (await stores.queue.places(PREFIX, limit=10))[0][0]
            await damage(other_stores, HostTask(handle.id, owner_in(key)), kind)
            may_end.set()
            assert [await failure_of(each) for each in results] == [DAMAGED, DAMAGED]


@pytest.mark.parametrize("kind", DAMAGES)
async def test_open_result_of_a_damaged_task_is_answered_when_a_worker_ends_it(
    kind: str, address: str, waiting: asyncio.Semaphore
) -> None:
    async with open_two(address) as (stores, worker_stores):
        server, tasks = make_office(stores=stores), Tasks(worker_stores, server="office")
        async with Client(server, revision=CORE) as client:
            broken = await server.tasks.create(message="waiting")
            result = asyncio.create_task(client.request("tasks/result", {"taskId": broken.id}))
            await waiting.acquire()
            await damage(worker_stores, broken, kind)
            with pytest.raises(ServerError, match="is damaged"):
                await tasks.finish(broken.id, "stamped")
            assert await failure_of(result) == DAMAGED


@pytest.mark.parametrize("kind", ["wrong type", "not UTF-8"])
async def test_watcher_ends_damaged_task_of_a_silent_worker(kind: str, address: str) -> None:
    limits = Limits(task_lease=0.6, task_poll=0.05)
    async with open_two(address) as (stores, worker_stores):
        server, tasks = make_office(stores=stores, limits=limits), Tasks(worker_stores, server="office")
        async with Client(server) as client:
            broken = await server.tasks.create(message="waiting", heartbeat=0.3)
            async with tasks.work(broken.id) as work:
                await damage(worker_stores, broken, kind)
                async with asyncio.timeout(20):
                    await work.wait_for_end()
            async with asyncio.timeout(20):
                while True:
                    with suppress(ProtocolError):
                        if (await client.task(broken.id).status()).status == "failed":
                            break
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damaged_task_ends_when_its_time_is_over(kind: str, clock: Clock) -> None:
    shared = shared_stores(clock)
    server = make_office(stores=shared, limits=Limits(task=60))
    async with Client(server, revision=CORE) as client:
        broken = await server.tasks.create(message="waiting")
        await damage(shared, broken, kind)
        await pass_time(clock, 70, 5)
        assert (await client.request("tasks/get", {"taskId": broken.id}))["statusMessage"] == DAMAGED


# --- times of questions, and tasks that begin late ---


@dialects
async def test_question_is_withdrawn_in_time_where_the_server_chose_a_long_ttl(revision: str, clock: Clock) -> None:
    server = Server("office", limits=Limits(state=30, task_ttl=3000), stores=shared_stores(clock))

    @server.tool(task="required")
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Which form?", str)).data)

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with Client(server, revision=revision, elicit=never) as client:
        task = await client.call_tool_as_task("ask")
        await settled()
        await pass_time(clock, 40, 5)
        assert (await task.status()).status != "input_required"


@pytest.mark.parametrize("shared", [False, True])
async def test_handler_that_returns_before_it_is_detached_has_a_result(shared: bool, tmp_path: Path) -> None:
    server = Server("office", stores=str(tmp_path / "state.db") if shared else None)
    kept = []

    @server.tool(task="optional")
    async def order(ctx: Context) -> str:
        kept.append(asyncio.ensure_future(ctx.detach()))
        return "ordered"

    async with Client(server, revision=MODERN) as client:
        for _ in range(4):
            task = await client.call_tool_as_task("order")
            assert (await task.wait(timeout=15)).text == "ordered"
