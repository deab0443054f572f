"""Metrics of the tasks of a fleet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.http.httpclient import HttpClient
from tests.server.tasks.conftest import Clock, clock
from tests.server.tasks.replicas import ADA, Replica, pass_time, settled, shared_stores
from tests.server.tasks.talking import begin, outcome
from tests.server.test_metrics import samples

from toolwire import Server
from toolwire.server import metrics as metrics_module
from toolwire.server.metrics import Metrics
from toolwire.server.observe import fleet_metrics
from toolwire.stores import Counts, MemoryBus, MemoryKV, MemoryLog, MemoryQueue, Stores

__all__ = ["clock"]

pytestmark = pytest.mark.usefixtures("always_fresh")


@pytest.fixture
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "_FRESH_SECONDS", 0.0)


async def shown(server: Server, *, everything: bool = True) -> dict[str, dict[str, float]]:
    """The samples of tasks and of the bus: by name, and by tool where there is one."""
    assert server.metrics is not None
    await server.metrics.refresh()
    found: dict[str, dict[str, float]] = {}
    for (name, labels), value in samples(server.metrics.render(everything=everything)).items():
        if name.startswith(("toolwire_task", "toolwire_lease", "toolwire_bus")):
            found.setdefault(name.removeprefix("toolwire_"), {})[dict(labels).get("tool", "")] = value
    return found


async def test_every_process_shows_the_same_numbers_of_the_fleet(clock: Clock) -> None:
    shared = shared_stores(clock)
    limits: Any = {"tasks_running": 1, "state": 3600.0}
    one, two = (Replica(shared, limits=limits, metrics=True) for _ in range(2))
    async with one.serving() as a, two.serving(), a(principal=ADA) as client:
        tasks = [await begin(client, tool, {"number": 1}) for tool in ("once", "once", "again", "again", "once")]
        await pass_time(clock, 7)
        for replica in (one, two):
            found = await shown(replica.server)
            assert found["tasks_queued"] == {"once": 1, "again": 2, "staying": 0, "reporting": 0, "asking": 0}
            assert found["tasks_running"] == {"once": 2, "again": 0, "staying": 0, "reporting": 0, "asking": 0}
            assert found["tasks_oldest_seconds"] == {"": 7.0}
            assert found["tasks_delayed"] == found["tasks_orphaned"] == {"": 0}
            assert found["leases"] == {"": 2}
            assert found["tasks"] == {"": 1}, "here"
            assert found["bus_lag_seconds"][""] >= 0
            assert "{}" not in replica.server.metrics.render()
            assert 'toolwire_tasks_queued{tool="once"} 1\n' in replica.server.metrics.render(), "without its process"
        for replica in (one, two):
            replica.go.set()
        for task in tasks:
            await outcome(client, task)
        await settled()
        found = await shown(two.server)
        assert {*found["tasks_queued"].values(), *found["tasks_running"].values()} == {0}
        assert found["tasks_oldest_seconds"] == {"": 0}


async def test_lost_processes_are_counted_by_the_process_that_noticed_it(clock: Clock) -> None:
    shared = shared_stores(clock)
    watching = Replica(shared, without=("again",), metrics=True, limits={"task_attempts": 2})
    async with watching.serving():
        for attempt in (1, 2):
            replica = Replica(shared, limits={"task_attempts": 2})
            async with replica.serving() as there, there(principal=ADA) as maker:
                if attempt == 1:
                    await begin(maker, "again", {"number": 1})
                await pass_time(clock, 6)
                replica.die()
                await pass_time(clock, 40)
        found = await shown(watching.server)
        assert found["tasks_retried_total"] == {"": 1}
        assert found["tasks_dead_total"] == {"": 1}
        assert found["leases_lost_total"] == {"": 2}


async def test_names_of_tools_that_not_everybody_sees_are_hidden(clock: Clock) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, metrics=True)
    for name in ("secret", "hidden"):
        replica.server.tool(lambda: "", name=name, task="optional", visible_to=lambda principal: False)
    async with replica.serving():
        for everything, names in ((True, {"secret", "hidden"}), (False, {"(restricted)"})):
            found = await shown(replica.server, everything=everything)
            assert set(found["tasks_queued"]) == {"once", "again", "staying", "reporting", "asking"} | names


async def test_a_store_that_does_not_answer_costs_numbers_and_not_the_page(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, metrics=True)
    async with replica.serving():
        assert (await shown(replica.server))["tasks_queued"]
        replica.line.is_cut = True
        found = await shown(replica.server)
        assert "tasks_queued" not in found and "bus_lag_seconds" not in found and "tasks_oldest_seconds" not in found
        assert found["tasks"] == {"": 0}

    class Silent(MemoryQueue):
        async def counts(self) -> Counts:
            return await asyncio.Future[Counts]()

    monkeypatch.setattr(fleet_metrics, "STORE_SECONDS", 0.001)
    kv = MemoryKV()
    server = Server("s", metrics=True, stores=Stores(kv, MemoryLog(), MemoryBus(), Silent(kv)))
    server.tool(lambda: "", name="t", task="optional")
    assert "tasks_queued" not in await shown(server)


async def test_the_store_is_read_at_most_once_in_a_second_and_only_for_those_who_may(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shared_stores(clock)
    replica = Replica(shared, metrics=Metrics(token="t0ken"))
    app = replica.server.http_app()

    async def status(token: str) -> int:
        headers = {"authorization": f"Bearer {token}"}
        return (await HttpClient(app).start("GET", path="/metrics", headers=headers).finished()).status

    monkeypatch.setattr(metrics_module, "_FRESH_SECONDS", 1000.0)
    assert await status("wrong") == 401
    assert "counts" not in replica.line.calls
    assert {await status("t0ken") for _ in range(5)} == {200}
    assert replica.line.calls.count("counts") == 1
    await app.stop()


async def test_a_server_without_tasks_asks_no_queue() -> None:
    found = await shown(Server("s", tools=[], metrics=True))
    assert set(found) == {"tasks", "bus_lag_seconds"}
