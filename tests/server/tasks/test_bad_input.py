"""Whatever clients and stores do wrong: each has its answer, and nothing breaks."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.server.tasks.conftest import Clock
from tests.server.tasks.handlers import Held
from tests.server.tasks.replicas import settled
from tests.server.tasks.talking import (
    CORE,
    Over,
    Way,
    accepted,
    begin,
    dialects,
    look,
    outcome,
    over,
    reaches,
    says,
    status_of,
    talk,
    task_in,
    text_in,
    wait_for_end,
    ways,
)
from tests.wireclient import MODERN

from toolwire import Limits
from toolwire.server.tasks.running_tasks import Run
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores, sqlite_file
from toolwire.stores.sqlite import SqliteStores

# --- ids and times ---------------------------------------------------------------------------------------------------


@ways
@pytest.mark.covers("TSK-10")
async def test_unknown_and_expired_ids_are_told_the_same(way: Way, clock: Clock) -> None:
    held = Held(stores=clock.stores)
    methods = ["tasks/get", "tasks/cancel", "tasks/update" if way.modern else "tasks/result"]
    async with way.talk(held.server) as client:
        expired = await begin(client, "hold")
        await client.result("tasks/cancel", {"taskId": expired})
        await clock.elapse(300)
        error = await client.error("tasks/get", {"taskId": expired})
        assert error["code"] == -32602
        for method in methods:
            for identifier in ("never was", expired, "", "a:b", "x" * 100_000, "../local:" + expired):
                params = {"taskId": identifier, "inputResponses": {}}
                assert await client.error(method, params) == error
            for broken in (None, 5, ["t"]):
                assert (await client.error(method, {"taskId": broken}))["code"] == -32602


NO_TIMES: tuple[Any, ...] = (0, -1, -(10**15), "long", 1.5, [], {})
NO_WISHES: tuple[Any, ...] = ("yes", 5, None, [], *({"ttl": ttl} for ttl in NO_TIMES))


@ways
@pytest.mark.covers("J84")
async def test_a_wish_that_is_none_is_refused_where_wishes_count(way: Way) -> None:
    async with way.talk(Held().server, principal="ada") as client:
        for wish in NO_WISHES:
            response = await client.request("tools/call", {"name": "hold", "task": wish})
            if way.modern:
                assert task_in(response["result"])["ttlMs"] == 300_000, "whatever it is, it is ignored"
            else:
                assert response["error"]["code"] == -32602, wish
        if not way.modern:
            assert (await client.result("tasks/list"))["tasks"] == []


@cases("revision", ["2024-11-05", "2025-06-18", MODERN])
async def test_the_wish_for_a_task_is_ignored_where_it_means_nothing(revision: str) -> None:
    async with talk(Held().server, revision) as client:
        for wish in ({"ttl": 5}, *NO_WISHES):
            assert text_in(await client.call("plain", task=wish)) == "Hello, you!"


async def test_whoever_waits_for_a_result_is_told_when_the_store_has_lost_the_task(clock: Clock) -> None:
    async with talk(Held(stores=clock.stores).server, CORE) as client:
        waiting = await wait_for_end(client, await begin(client, "hold"))
        for key in await clock.stores.kv.keys("toolwire:task2:"):
            await clock.stores.kv.delete(key)
        await clock.elapse(30)
        assert (await waiting)["error"]["code"] == -32602


@dialects
async def test_work_that_was_cancelled_before_it_began_is_not_begun(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Run.start

    def start_too_late(run: Run, **options: Any) -> None:
        run.stop()
        start(run, **options)

    monkeypatch.setattr(Run, "start", start_too_late)
    held = Held()
    async with talk(held.server, revision) as client:
        await begin(client, "hold")
        assert text_in(await client.call("plain")) == "Hello, you!"
        assert not held.started.is_set()


# --- too much --------------------------------------------------------------------------------------------------------


@dialects
async def test_ten_thousand_creations_by_one_caller(revision: str) -> None:
    held = Held(limits=Limits(task_window=0.0, tasks=200))
    params: dict[str, Any] = {"name": "hold", "arguments": {}, "task": {}}
    async with talk(held.server, revision, principal="greedy") as greedy:
        made, refused = 0, set()
        for _ in range(20):
            for response in await asyncio.gather(*(greedy.start("tools/call", params) for _ in range(500))):
                if "result" in response:
                    made += 1
                else:
                    refused.add((response["error"]["code"], response["error"]["message"]))
        assert made == 200
        assert refused == {(-32603, "You have too many tasks; try again when some of them have expired")}
        async with talk(held.server, revision, principal="modest") as modest:
            held.go.set()
            assert text_in(await outcome(modest, await begin(modest, "hold"))) == "held x"


@dialects
async def test_too_many_at_once(revision: str) -> None:
    held = Held(limits=Limits(task_window=0.0, tasks_running=2, tasks_waiting=1))
    async with talk(held.server, revision) as client:
        first, _ = await begin(client, "hold"), await begin(client, "hold")
        waiting = await begin(client, "hold")
        params = {"name": "hold", "arguments": {}, "task": {}}
        assert (await client.error("tools/call", params))["code"] == -32603
        await client.result("tasks/cancel", {"taskId": first})
        await says(client, waiting, None)
        await begin(client, "hold")


@dialects
async def test_a_result_over_the_limit_fails_the_task(revision: str) -> None:
    held = Held(limits=Limits(task_window=0.0, result=10_000))
    async with talk(held.server, revision) as client:
        task = await begin(client, "large", {"size": 20_000})
        shown = await reaches(client, task, "failed")
        assert shown["statusMessage"] == "The result is over the limit of 10000 bytes"
        if revision == MODERN:
            assert shown["error"]["code"] == -32603
        else:
            assert (await client.error("tasks/result", {"taskId": task}))["code"] == -32603


# --- answers ---------------------------------------------------------------------------------------------------------


@cases("answer", [{}, {"action": "perhaps"}, {"action": "accept", "content": 5}, 7, None, "yes"])
async def test_an_answer_of_the_wrong_shape_leaves_the_question_open(answer: Any) -> None:
    async with talk(Held().server, MODERN) as client:
        task = await begin(client, "asking")
        await reaches(client, task, "input_required")
        error = await client.error("tasks/update", {"taskId": task, "inputResponses": {"first": answer}})
        assert error["code"] == -32602
        assert list((await look(client, task))["inputRequests"]) == ["first", "second"]


async def test_an_update_without_answers_is_refused_and_one_that_comes_late_is_acknowledged() -> None:
    held = Held()
    held.go.set()
    async with talk(held.server, MODERN) as client:
        task = await begin(client, "hold")
        done = await reaches(client, task, "completed")
        late = {"taskId": task, "inputResponses": {"first": accepted("x")}}
        assert (await client.result("tasks/update", late)).keys() == {"resultType", "_meta"}
        assert await look(client, task) == done
        assert (await client.error("tasks/update", {"taskId": task}))["code"] == -32602


async def test_an_answer_that_cannot_be_read_is_an_error_of_the_tool() -> None:
    async with talk(Held().server, CORE) as client:
        client.answers["elicitation/create"] = lambda params: {"action": "perhaps"}
        result = await client.result("tasks/result", {"taskId": await begin(client, "asking_in_thread")})
        assert result["isError"]


@over
async def test_answers_that_nobody_waits_for_are_passed_over(over: Over) -> None:
    async with talk(Held().server, CORE, over) as client:
        task = await begin(client, "asking")
        waiting = await wait_for_end(client, task)
        await client.until(lambda: len(client.requests) == 2)
        asked = {request["params"]["message"]: request["id"] for request in client.requests}
        first, second = asked["First?"], asked["Second?"]
        for id, value in (("never asked", "x"), (first, "one"), (first, "other"), (second, "two")):
            client.send({"jsonrpc": "2.0", "id": id, "result": accepted(value)})
        assert text_in((await waiting)["result"]) == "one and two"
        client.send({"jsonrpc": "2.0", "id": second, "result": accepted("late")})
        assert text_in(await outcome(client, task)) == "one and two"


# --- races -----------------------------------------------------------------------------------------------------------


@dialects
async def test_cancelling_races_with_completing(revision: str) -> None:
    held = Held()
    async with talk(held.server, revision) as client:
        tasks = [await begin(client, "hold") for _ in range(100)]
        cancels = [client.start("tasks/cancel", {"taskId": task}) for task in tasks[:50]]
        held.go.set()
        cancels += [client.start("tasks/cancel", {"taskId": task}) for task in tasks[50:]]
        answers = await asyncio.gather(*cancels)
        ends = [(await reaches(client, task, "completed", "cancelled"))["status"] for task in tasks]
        assert "cancelled" in ends
        if revision == CORE:
            for answer, end in zip(answers, ends, strict=True):
                assert answer.get("error", {}).get("code") == (None if end == "cancelled" else -32602)
        else:
            assert all("result" in answer for answer in answers)
        assert [await status_of(client, task) for task in tasks] == ends, "and it stays so"


# --- stores ----------------------------------------------------------------------------------------------------------


def small_stores(**limits: int) -> Stores:
    return Stores(MemoryKV(**limits), MemoryLog(), MemoryBus())


@dialects
async def test_a_store_that_is_full_takes_no_new_task(revision: str) -> None:
    held = Held(stores=small_stores(max_items=2))
    async with talk(held.server, revision) as client:
        task = await begin(client, "hold")
        await settled()  # The other item is the description of this process.
        error = await client.error("tools/call", {"name": "hold", "arguments": {}, "task": {}})
        assert (error["code"], error["message"]) == (-32603, "There is no room for this task now; try again later")
        held.go.set()
        assert text_in(await outcome(client, task)) == "held x"


@dialects
async def test_a_result_for_which_there_is_no_room_fails_the_task(revision: str) -> None:
    held = Held(stores=small_stores(max_bytes=2000))
    async with talk(held.server, revision) as client:
        task = await begin(client, "large", {"size": 5000})
        shown = await reaches(client, task, "failed")
        assert shown["statusMessage"] == "The result could not be kept: the store of the server is full"


@dialects
async def test_results_leave_room_in_the_store_for_everything_else(revision: str) -> None:
    held = Held(limits=Limits(task_window=0.0, task_results=5000))
    async with talk(held.server, revision) as client:
        first = await begin(client, "large", {"size": 4000})
        assert len(text_in(await outcome(client, first))) == 4000
        second = await begin(client, "large", {"size": 4000})
        shown = await reaches(client, second, "failed")
        assert shown["statusMessage"] == "The result could not be kept: the store of the server is full"
        assert text_in(await outcome(client, await begin(client, "large", {"size": 10}))) == "x" * 10


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    logging.getLogger("toolwire").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("toolwire").setLevel(logging.NOTSET)


@dialects
async def test_a_store_that_is_locked_is_an_error_and_not_the_end(
    revision: str, tmp_path: Path, impatient: None
) -> None:
    stores = SqliteStores(tmp_path / "state.db")
    held = Held(stores=stores)
    params = {"name": "hold", "arguments": {}, "task": {}}
    try:
        async with talk(held.server, revision) as client:
            before = await begin(client, "hold")
            with sqlite3.connect(tmp_path / "state.db", isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                error = await client.error("tools/call", params)
                assert error["code"] == -32603
                assert str(tmp_path) not in error["message"]
                assert await status_of(client, before) == "working", "reading goes on"
                other.execute("ROLLBACK")
            other.close()
            held.go.set()
            assert text_in(await outcome(client, before)) == "held x"
    finally:
        stores.close()


@dialects
async def test_a_store_that_is_no_store(revision: str, tmp_path: Path, impatient: None) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database, and never was" * 100)
    stores = SqliteStores(tmp_path / "state.db")
    held = Held(stores=stores)
    try:
        async with talk(held.server, revision) as client:
            assert text_in(await client.call("plain")) == "Hello, you!"
            error = await client.error("tools/call", {"name": "hold", "arguments": {}, "task": {}})
            assert (error["code"], str(tmp_path) in error["message"]) == (-32603, False)
            assert (await client.error("tasks/get", {"taskId": "t"}))["code"] == -32603
    finally:
        stores.close()


@dialects
async def test_a_record_that_cannot_be_read(revision: str) -> None:
    stores = Stores.memory()
    held = Held(stores=stores)
    async with talk(held.server, revision) as client:
        task = await begin(client, "hold")
        (key,) = await stores.kv.keys("toolwire:task2:")
        await stores.kv.put(key, b"\x00 nothing")
        assert (await client.error("tasks/get", {"taskId": task}))["code"] == -32603
        assert text_in(await client.call("plain")) == "Hello, you!"
