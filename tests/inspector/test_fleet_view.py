"""The tasks of the fleet that a server belongs to: listed, described, cancelled and sent again from the page."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from msgspec import Raw
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.inspector.page_client import inspected

from toolwire import Limits, Server
from toolwire.inspector import fleet_view
from toolwire.protocol import tasks as rules
from toolwire.server.tasks.dead_letters import DeadLetters
from toolwire.server.tasks.task_records import Records, short_name
from toolwire.stores import StoreFailed, Stores

OPERATIONS: dict[str, dict[str, Any]] = {
    "tasks": {"which": "queue"},
    "task": {"id": "x"},
    "cancelTask": {"id": "x"},
    "sendAgain": {"id": "x"},
}


def make_server(stores: Stores) -> Server:
    server = Server("fleet", stores=stores, limits=Limits(task_window=0.0, task_poll=0.05))

    @server.tool(task="required")
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    return server


async def add(stores: Stores, *, is_dead: bool = False, server: str = "fleet", tool: str = "report") -> str:
    """Write a task that waits, or a dead letter, as a server would."""
    params = {"name": tool, "arguments": {"year": 2026, "password": "hunter2"}}
    call = rules.StoredCall(Raw(json.dumps(params).encode()), "2026-07-28", tool, idempotent=True)
    records = Records(short_name(server), stores, 1000.0)
    now = time.time()
    record = rules.new_record(records.new_id(now), now, 60_000, 1000, tool=tool, call=call, message=rules.WAITING)
    key = records.key("ada", record.id)
    if is_dead:
        await DeadLetters(short_name(server), stores, Limits).keep(key, record)
    else:
        await records.create(key, record)
    return record.id


def ids(shown: Any) -> list[str]:
    return [task["id"] for task in shown["tasks"]]


async def test_the_queue_of_the_server_by_tool_and_state() -> None:
    stores = Stores.memory()
    waits = await add(stores)
    await add(stores, server="another")
    dead = await add(stores, is_dead=True)
    async with inspected(make_server(stores), stores=lambda: stores) as page:
        assert (await page.ask("state"))["connection"]["hasFleet"] is True
        call = await page.start("tools/call", name="wait")
        await page.event("call", call=lambda call: call["task"] and call["task"]["status"] == "working")
        shown = await page.ask("tasks", which="queue")
        assert [(task["tool"], task["state"]) for task in shown["tasks"]] == [
            ("report", "waiting"),
            ("wait", "running"),
        ]
        assert shown["tools"] == [
            {"tool": "report", "queued": 1, "running": 0},
            {"tool": "wait", "queued": 0, "running": 1},
        ]
        assert {name: shown[name] for name in ("queued", "running", "letters", "replicas", "isCut")} == {
            "queued": 1,
            "running": 1,
            "letters": 1,
            "replicas": 1,
            "isCut": False,
        }
        assert shown["tasks"][1]["holder"], "the process that holds it"
        assert ids(await page.ask("tasks", which="dead")) == [dead]
        assert ids(await page.ask("tasks", which="over")) == []
        described = await page.ask("task", id=waits)
        assert described["why"] == "no replica has the tool report, of 1 replica"
        assert described["arguments"] == {"year": "[redacted]", "password": "[redacted]"}
        described = await page.ask("task", id=waits, arguments=True)
        assert described["arguments"] == {"year": 2026, "password": "[redacted]"}
        # A task that runs is cancelled like one that waits, and its call hears of it.
        for task in shown["tasks"]:
            assert (await page.ask("cancelTask", id=task["id"]))["state"] == "cancelled"
        assert (await page.ended(call))["task"]["status"] == "cancelled"
        assert sorted(ids(await page.ask("tasks", which="over"))) == sorted(ids(shown))
        assert ids(await page.ask("tasks", which="queue")) == []
        answer = await page.answer("cancelTask", id=waits)
        assert (answer.status, answer.json()) == (422, {"error": f"The task '{waits}' has ended: it is cancelled"})


async def test_a_dead_letter_is_sent_again() -> None:
    stores = Stores.memory()
    dead = await add(stores, is_dead=True)
    async with inspected(make_server(stores), stores=lambda: stores) as page:
        described = await page.ask("task", id=dead)
        assert (described["state"], described["isDeadLetter"]) == ("dead", True)
        created = (await page.ask("sendAgain", id=dead))["id"]
        assert ids(await page.ask("tasks", which="queue")) == [created]
        assert ids(await page.ask("tasks", which="dead")) == []
        answer = await page.answer("sendAgain", id=created)
        assert (answer.status, answer.json()["error"]) == (
            422,
            f"The task '{created}' is no dead letter: it is waiting",
        )


async def test_tasks_of_other_servers_are_out_of_reach() -> None:
    stores = Stores.memory()
    foreign, letter = await add(stores, server="another"), await add(stores, server="another", is_dead=True)
    async with inspected(make_server(stores), stores=lambda: stores) as page:
        for operation, identifier in (("task", foreign), ("cancelTask", foreign), ("sendAgain", letter)):
            answer = await page.answer(operation, id=identifier)
            assert (answer.status, "There is no task" in answer.json()["error"]) == (422, True)
    assert (await stores.queue.counts()).ready == {f"{short_name('another')}:report": 1}


async def test_long_lists_and_long_names_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_view, "MAX_TASKS", 3)
    stores = Stores.memory()
    for number in range(5):
        await add(stores, tool=f"{number}" * 100_000)
        await add(stores, is_dead=True)
    async with inspected(make_server(stores), stores=lambda: stores) as page:
        for which in ("queue", "dead"):
            answer = await page.answer("tasks", which=which)
            assert (len(answer.json()["tasks"]), answer.json()["isCut"]) == (3, True)
            assert len(answer.body) < 100_000


@cases("operation", OPERATIONS)
async def test_without_a_store_or_a_token_or_a_connection_there_are_no_tasks(operation: str) -> None:
    stores = Stores.memory()
    async with inspected(make_server(stores)) as page:
        assert (await page.ask("state"))["connection"]["hasFleet"] is False
        answer = await page.answer(operation, **OPERATIONS[operation])
        assert (answer.status, answer.json()["error"]) == (
            422,
            "The store of this server is not known: give its address with --stores",
        )
    async with inspected(make_server(stores), stores=lambda: stores) as page:
        stranger = HttpClient(page.app)
        assert (await stranger.post(OPERATIONS[operation], path=f"/api/{operation}")).status == 401
        assert (await page.answer(operation)).status == 400
        await page.app.inspector.close()
        answer = await page.answer(operation, **OPERATIONS[operation])
        assert (answer.status, "not connected" in answer.json()["error"]) == (422, True)


async def test_a_store_that_is_not_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = Stores.memory()

    async def fails(*given: Any, **named: Any) -> Any:
        raise StoreFailed("The store cannot be used: it is not reached")

    async with inspected(make_server(stores), stores=lambda: stores) as page:
        assert (await page.answer("tasks", which="all")).json() == {"error": "There is no such list of tasks"}
        monkeypatch.setattr(stores.queue, "counts", fails)
        answer = await page.answer("tasks", which="queue")
        assert (answer.status, answer.json()) == (422, {"error": "The store cannot be used: it is not reached"})
