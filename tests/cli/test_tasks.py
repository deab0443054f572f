"""`toolwire tasks`: the tasks of a fleet, by the address of its store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.cli.command import Command
from tests.ports import free_port
from tests.redis_server import running

from toolwire import Client, Limits, Server, Tasks
from toolwire.auth import Principal
from toolwire.protocol import tasks as rules
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.dead_letters import DeadLetters
from toolwire.server.tasks.replicas import Description
from toolwire.server.tasks.task_records import Records, kind_of, short_name
from toolwire.stores import Stores
from toolwire.stores.by_address import open_stores

SERVER = short_name("jobs")
ADA = Principal("ada", provider="tests")
PROCESS = "machine/7/1/x"
KINDS = [pytest.param("sqlite"), *([] if sys.platform == "win32" else [pytest.param("redis")])]


class FleetStore:
    """A store that replicas have written to, and that the command is given by its address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._clock = time.time() - 100

    def does(self, work: Callable[[Stores], Coroutine[Any, Any, Any]]) -> Any:
        async def run() -> Any:
            stores = open_stores(self.address)
            try:
                return await work(stores)
            finally:
                stores.close()

        return asyncio.run(run())

    def record(self, **details: Any) -> rules.Record:
        self._clock += 1
        identifier = Records(SERVER, Stores.memory(), 0.0).new_id(self._clock)
        return rules.new_record(identifier, self._clock, 60_000, 1000, **{"tool": "report", **details})

    def add(
        self,
        *,
        status: str = "waiting",
        owner: str = "ada",
        tool: str = "report",
        secret: str = "hunter2",
        subject: str = "ada",
        message: str = "month 3",
        keeps_call: bool = True,
        **arguments: Any,
    ) -> str:
        params = {"name": tool, "arguments": {"year": 2026, "password": secret, **arguments}}
        claims = {"mail": "ada@claims.example"}
        principal = Raw(json.dumps({"subject": subject, "provider": "issuer", "claims": claims}).encode())
        call = rules.StoredCall(
            Raw(json.dumps(params).encode()), "2026-07-28", tool, principal=principal, idempotent=True
        )
        record = self.record(tool=tool, call=call if keeps_call else UNSET, message=rules.WAITING)
        if status in ("running", "completed", "failed"):
            record.process, record.begun, record.message = PROCESS, True, message
            record.progress, record.total = 3.0, 12.0
        if status == "completed":
            rules.complete(record, Raw(b'{"content":["a secret result"]}'))
        elif status == "failed":
            rules.fail(record, rules.Unreadable())

        async def write(stores: Stores) -> None:
            await stores.queue.renew(PROCESS, 60)
            records = Records(SERVER, stores, 1000.0)
            if status == "dead":
                await DeadLetters(SERVER, stores, Limits).keep(records.key(owner, record.id), record)
            else:
                await records.create(records.key(owner, record.id), record)

        self.does(write)
        return record.id

    def has_replica(self, *tools: str, has_free_slot: bool = False) -> None:
        kinds = [kind_of(SERVER, tool) for tool in tools]

        async def write(stores: Stores) -> None:
            await Description(stores.kv, 60).give(PROCESS, SERVER, "jobs", kinds, 10, has_free_slot)

        self.does(write)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FleetStore]:
    if request.param == "sqlite":
        address = str(tmp_path / "state.db")
        store = FleetStore(address)
        store.does(lambda stores: stores.kv.put("something", b""))
        monkeypatch.setenv("TOOLWIRE_STORES", address)
        yield store
        return
    with running() as redis:
        monkeypatch.setenv("TOOLWIRE_STORES", redis.url)
        yield FleetStore(redis.url)


def test_an_empty_store(store: FleetStore, toolwire: Command) -> None:
    done = toolwire("tasks", "list")
    assert (done.status, done.out) == (0, "")
    assert done.err == "toolwire: 0 tasks in the queue, 0 tasks held by processes, 0 dead letters, 0 replicas\n"


def test_the_list_and_its_filters(store: FleetStore, toolwire: Command) -> None:
    waits, runs = store.add(), store.add(status="running", owner="eve", tool="index")
    ended = store.add(status="completed")
    dead = store.add(status="dead")
    store.has_replica("report", "index")
    done = toolwire("tasks", "list")
    assert done.out.splitlines()[0].split() == ["ID", "STATE", "TOOL", "OWNER", "AGE", "ATTEMPT", "HELD", "BY"]
    rows = {row[0]: row for row in (line.split() for line in done.out.splitlines()[1:])}
    assert list(rows) == [waits, runs], "the oldest first"
    assert rows[waits][1:4] == ["waiting", "report", "ada"]
    assert rows[runs][1:4] == ["running", "index", "eve"]
    assert rows[runs][-1].endswith(f"/{os.getpid()}"), "the machine and the number of the process"
    assert "1 task in the queue (the oldest for " in done.err
    assert done.err.endswith(", 1 task held by processes, 1 dead letter, 1 replica\n")
    for words, ids in (
        (["--state", "waiting"], [waits]),
        (["--state", "running"], [runs]),
        (["--state", "completed"], [ended]),
        (["--state", "completed", "--state", "running"], [runs, ended]),
        (["--tool", "index"], [runs]),
        (["--tool", "index", "--state", "waiting"], []),
        (["--server", "jobs"], [waits, runs]),
        (["--server", "other"], []),
        (["--dead"], [dead]),
        (["--dead", "--tool", "index"], []),
        (["--limit", "1"], [waits]),
    ):
        done = toolwire("tasks", "list", *words)
        assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids, words
        assert ("there are more" in done.err) == (words == ["--limit", "1"])
        shown = json.loads(toolwire("tasks", "list", "--json", *words).out)
        assert [task["id"] for task in shown["tasks"]] == ids
        assert shown["isCut"] == (words == ["--limit", "1"])


def test_a_task_that_waits(store: FleetStore, toolwire: Command) -> None:
    task = store.add()
    assert "no replica of the server runs" in toolwire("tasks", "show", task).out
    store.has_replica("index")
    assert "no replica has the tool report, of 1 replica" in toolwire("tasks", "show", task).out
    store.has_replica("report")
    done = toolwire("tasks", "show", task)
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines() if "  " in line and '"' not in line)
    assert lines["state"] == "waiting"
    assert lines["why"] == "no slot is free in 1 replica with the tool"
    assert (lines["owner"], lines["caller"]) == ("ada", "ada (issuer)")
    assert "toolwire: --arguments shows the values" in done.err
    for words, value in (([], '"year": "[redacted]"'), (["--arguments"], '"year": 2026')):
        for form in ([], ["--json"]):
            done = toolwire("tasks", "show", task, *words, *form)
            assert value in done.out
            assert "hunter2" not in done.out and "claims" not in done.out


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("running", ["begun yes", "progress 3 of 12", "message month 3"]),
        ("completed", ["state completed", "result 31 bytes"]),
        ("failed", ["state failed", "error The task cannot be read any more"]),
        ("dead", ["state dead", "given up 20", "attempt 1", "dead letter yes: `toolwire tasks retry` sends it again"]),
    ],
)
def test_a_task_in_another_state(status: str, expected: list[str], store: FleetStore, toolwire: Command) -> None:
    done = toolwire("tasks", "show", store.add(status=status))
    out = [" ".join(line.split()) for line in done.out.splitlines()]
    for text in expected:
        assert any(line.startswith(text) for line in out), (text, out)
    assert "a secret result" not in done.out and "hunter2" not in done.out


def test_task_whose_call_is_not_kept_says_why_it_shows_no_arguments(store: FleetStore, toolwire: Command) -> None:
    for status, keeps_call in (("running", False), ("completed", False), ("running", True)):
        done = toolwire("tasks", "show", store.add(status=status, keeps_call=keeps_call), "--arguments")
        kept = keeps_call and status == "running"
        lines = [line.split(maxsplit=1) for line in done.out.splitlines()]
        assert (["arguments", "not kept: the call does not run again"] in lines) != kept
        assert (["arguments"] in lines) == kept
    assert "not kept" not in toolwire("tasks", "show", store.add(tool="", keeps_call=False)).out


FORGED = "x\u2028z\x85\r\ntoolwire: done\nFORGED\x1b[2J"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_texts_of_callers_and_handlers_forge_no_line(store: FleetStore, toolwire: Command, form: list[str]) -> None:
    task = store.add(status="running", tool=FORGED, subject=FORGED, message=FORGED, **{FORGED: FORGED})
    for words in (["list"], ["list", "--state", "running"], ["show", task], ["show", task, "--arguments"]):
        done = toolwire("tasks", *words, *form)
        assert done.status == 0, done
        assert not [line for line in done.out.split("\n") if line.lstrip().startswith(("FORGED", "toolwire"))]
        assert all(line.isprintable() for line in done.out.split("\n"))


def test_names_of_arguments_are_redacted_as_values_are(store: FleetStore, toolwire: Command) -> None:
    task = store.add(**{'{"password": "hunter3"}': 1, "ada@mail.example": 2, "ada@mail.test": 3, "month": 4})
    for form in ([], ["--json"]):
        plain = toolwire("tasks", "show", task, *form).out
        assert '"month": "[redacted]"' in plain
        assert "mail" not in plain and "hunter" not in plain
        assert '"[redacted] 2": ' in plain, "both are counted"
        values = toolwire("tasks", "show", task, "--arguments", *form).out
        assert '"ada@mail.example": 2' in values
        assert "hunter" not in values


def test_a_task_of_a_worker(store: FleetStore, toolwire: Command) -> None:
    async def create(stores: Stores) -> list[str]:
        server, tasks = Server("jobs", stores=stores, tasks=True), Tasks(stores, server="jobs")
        async with Client(server):
            waits, runs = [await server.tasks.create(principal=ADA, name="form", heartbeat=30) for _ in range(2)]
            await tasks.beat(runs.id)
            await tasks.update(runs.id, "page 3")
        return [waits.id, runs.id]

    waits, runs = store.does(create)
    rows = [row.split() for row in toolwire("tasks", "list").out.splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [(waits, "waiting", "worker"), (runs, "running", "worker")]
    shown = {line[: line.index("  ")]: line.split("  ")[-1].strip() for line in lines_of(toolwire, waits)}
    assert (shown["why"], shown["heartbeat"]) == ("no worker has begun it", "within 30 seconds")
    assert (shown["name"], shown["owner"]) == ("form", principal_key(ADA))
    shown = {line[: line.index("  ")]: line.split("  ")[-1].strip() for line in lines_of(toolwire, runs)}
    assert (shown["held by"], shown["message"], shown["heartbeat"]) == ("worker", "page 3", "within 30 seconds")
    assert json.loads(toolwire("tasks", "show", runs, "--json").out)["heartbeat"] == 30
    assert toolwire("tasks", "cancel", runs).status == 0
    assert store.does(lambda stores: Tasks(stores, server="jobs").beat(runs)) is False


def lines_of(toolwire: Command, task: str) -> list[str]:
    return [line for line in toolwire("tasks", "show", task).out.splitlines() if "  " in line]


def test_a_task_is_cancelled_once(store: FleetStore, toolwire: Command) -> None:
    for task in (store.add(), store.add(status="running")):
        done = toolwire("tasks", "cancel", task)
        assert (done.status, done.err) == (0, f"toolwire: the task {task} is cancelled\n")
        done = toolwire("tasks", "cancel", task)
        assert (done.status, done.err) == (1, f"toolwire: The task '{task}' has ended: it is cancelled\n")
    shown = json.loads(toolwire("tasks", "cancel", store.add(), "--json").out)
    assert shown["state"] == "cancelled"
    assert toolwire("tasks", "list").out == ""


def test_a_dead_letter_is_sent_again_once(store: FleetStore, toolwire: Command) -> None:
    letter = store.add(status="dead", owner="eve")
    done = toolwire("tasks", "retry", letter)
    created = done.out.strip()
    assert (done.status, created != letter) == (0, True)
    (task,) = json.loads(toolwire("tasks", "list", "--json").out)["tasks"]
    assert (task["id"], task["state"], task["owner"], task["tool"]) == (created, "waiting", "eve", "report")
    assert "password" in toolwire("tasks", "show", created).out
    done = toolwire("tasks", "retry", letter)
    assert (done.status, done.err) == (1, f"toolwire: There is no task '{letter}', or it has expired\n")
    done = toolwire("tasks", "retry", created)
    assert (done.status, done.err) == (1, f"toolwire: The task '{created}' is no dead letter: it is waiting\n")
    second = store.add(status="dead")
    assert json.loads(toolwire("tasks", "retry", second, "--json").out)["id"] != second


def test_no_text_of_others_begins_a_line_of_its_own(store: FleetStore, toolwire: Command) -> None:
    task = store.add(tool="report\nstate  completed")
    done = toolwire("tasks", "show", task)
    assert [line.split() for line in done.out.splitlines() if line.startswith("state")] == [["state", "waiting"]]


def test_names_of_a_hostile_server_do_not_reach_the_terminal(store: FleetStore, toolwire: Command) -> None:
    task = store.add(tool="a\x1b[2Jb")
    for words in (["list"], ["list", "--json"], ["show", task], ["show", task, "--json"]):
        done = toolwire("tasks", *words)
        assert done.status == 0
        assert "\x1b" not in done.out


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["list"], 2, "name the store of the fleet with --stores ADDRESS, or in the variable TOOLWIRE_STORES"),
        (["list", "--stores", "missing.db"], 2, "there is no file 'missing.db'"),
        (["list", "--stores", "http://host"], 2, "No store has addresses that begin with http://"),
        (["list", "--stores", "redis://u:hunter2@host:port"], 2, "The address of the store"),
        (["list", "--stores", "redis:/u:hunter2@host:port"], 2, "The address of the store begins with redis without"),
        (["list", "--stores", "text.db"], 3, "text.db"),
        (["list", "--stores", "REFUSED"], 3, "it is not reached"),
        (["show", "x", "--stores", "REFUSED"], 3, "it is not reached"),
        (["show", "x", "--stores", "empty.db"], 1, "There is no task 'x', or it has expired"),
        (["cancel", "x", "--stores", "empty.db"], 1, "There is no task 'x', or it has expired"),
        (["retry", "x", "--stores", "empty.db"], 1, "There is no task 'x', or it has expired"),
        (["list", "--state", "sleeping", "--stores", "empty.db"], 2, "'sleeping' is not one of"),
        (["list", "--dead", "--state", "failed", "--stores", "empty.db"], 2, "leave out --state"),
        (["list", "--limit", "0", "--stores", "empty.db"], 2, "at least 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(
    words: list[str],
    status: int,
    text: str,
    toolwire: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOOLWIRE_STORES", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("no database, but a text that is long enough to look like a file" * 20)
    Path("empty.db").touch()
    refused = f"redis://127.0.0.1:{free_port()}/0?timeout=0.1"
    done = toolwire("tasks", *(refused if word == "REFUSED" else word for word in words))
    assert (done.status, text in done.err, "hunter2" in done.err) == (status, True, False), done.err
    assert not Path("missing.db").exists()


@pytest.mark.parametrize("pattern", [rb'"message":"waiting"', rb'"created":[0-9.]+'])
def test_damaged_task_can_be_ended(pattern: bytes, store: FleetStore, toolwire: Command) -> None:
    async def create(stores: Stores) -> list[str]:
        server = Server("jobs", stores=stores, tasks=True)
        async with Client(server):
            task = await server.tasks.create(message="waiting")
            key = Records(short_name("jobs"), stores, 60.0).key(task.owner, task.id)
            data = await stores.kv.get(key)
            assert data is not None
            broken = re.sub(pattern, lambda found: found[0].partition(b":")[0] + b":1e300", data)
            assert await stores.queue.change(key, broken, ttl=600, expect=data, place=None) is None
        return [task.id]

    (task,) = store.does(create)
    assert f"The record of the task {task!r} is damaged" in toolwire("tasks", "show", task).err
    done = toolwire("tasks", "cancel", task)
    assert (done.status, done.err) == (0, f"toolwire: the task {task} is failed: its record was damaged\n")
    done = toolwire("tasks", "cancel", task)
    assert (done.status, done.err) == (1, f"toolwire: The task '{task}' has ended: it is failed\n")
