"""The stores in a file: the same behaviour as in memory, several processes at once, and what a crash leaves behind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stores.processes import LISTENER, Process, ProcessContract

from toolwire.stores import KV, Bus, Log, Stores
from toolwire.stores import sqlite as module
from toolwire.stores.process_wakeup import Doorbell
from toolwire.stores.sqlite import SqliteStores, StoreFailed
from toolwire.testing.stores import (
    BusContract,
    KVContract,
    LeaseThreadContract,
    LogContract,
    MakeStores,
    QueueContract,
    Recorder,
    StoreClock,
)

pytestmark = pytest.mark.warm_start


@pytest.fixture
def make_stores(tmp_path: Path) -> Iterator[MakeStores]:
    made: list[SqliteStores] = []

    def stores(*, clock: Callable[[], float] | None = None, **limits: Any) -> Stores:
        made.append(SqliteStores(tmp_path / f"{len(made)}.db", clock=clock or time.time, **limits))
        return made[-1]

    yield stores
    for each in made:
        each.close()


class TestKV(KVContract):
    pass


class TestLog(LogContract):
    pass


class TestBus(BusContract):
    pass


class TestQueue(QueueContract, LeaseThreadContract):
    pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def stores(path: Path) -> Iterator[SqliteStores]:
    stores = SqliteStores(path)
    yield stores
    stores.close()


def totals(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sums that are kept, and the same counted."""
    connection = sqlite3.connect(path)
    kept = connection.execute("SELECT kv_items, kv_bytes, log_streams, log_bytes, bus_bytes FROM totals").fetchone()
    counted = connection.execute(
        "SELECT (SELECT count(*) FROM kv), (SELECT coalesce(sum(length(key) + length(value)), 0) FROM kv),"
        " (SELECT count(*) FROM streams), (SELECT coalesce(sum(length(data)), 0) FROM events),"
        " (SELECT coalesce(sum(length(data)), 0) FROM bus)"
    ).fetchone()
    connection.close()
    return kept, counted


# --- one process --------------------------------------------------------------------------------------


async def test_it_is_a_container_of_stores(stores: SqliteStores) -> None:
    kv: KV = stores.kv
    log: Log = stores.log
    bus: Bus = stores.bus
    assert isinstance(stores, Stores)
    await kv.put("a", b"1")
    await log.append("s", b"1")
    await bus.publish("t", b"1")


async def test_what_is_stored_outlives_the_process_that_stored_it(path: Path) -> None:
    before = SqliteStores(path)
    await before.kv.put("a", b"1", ttl=1000)
    first = await before.log.append("s", b"1")
    await before.log.append("s", b"2")
    before.close()
    after = SqliteStores(path)
    assert await after.kv.get("a") == b"1"
    assert [data for _, data in await after.log.read_after("s", first, 10)] == [b"2"]
    assert await after.log.append("s", b"3") == first + 2
    after.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
async def test_nobody_else_may_read_the_files(stores: SqliteStores, path: Path) -> None:
    before = os.umask(0)
    try:
        await stores.kv.put("a", b"secret")
    finally:
        os.umask(before)
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600, "state.db-sockets": 0o700}


async def test_closing_finishes_what_was_asked_for_and_leaves_one_file(path: Path) -> None:
    stores = SqliteStores(path)
    asked = [asyncio.ensure_future(stores.kv.put(str(number), b"1")) for number in range(50)]
    await asyncio.sleep(0)
    stores.close()
    stores.close()
    assert await asyncio.gather(*asked) == [True] * 50
    assert [entry.name for entry in path.parent.iterdir()] == ["state.db"]
    with pytest.raises(StoreFailed, match="closed"):
        await stores.kv.get("a")
    with pytest.raises(StoreFailed, match="closed"):
        stores.bus.subscribe("t", lambda data: None)


async def test_many_changes_are_one_transaction(stores: SqliteStores, monkeypatch: pytest.MonkeyPatch) -> None:
    file = stores._file
    batches: list[int] = []
    transact = file._transact
    monkeypatch.setattr(file, "_transact", lambda *given: (batches.append(len(given[2])), transact(*given)))
    await stores.open()
    await asyncio.gather(*(stores.kv.put(str(number), b"1") for number in range(400)))
    assert sum(batches) == 401
    assert len(batches) < 100


async def test_one_change_that_breaks_the_transaction_harms_no_other(stores: SqliteStores) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO kv (key, value) VALUES (x'00', NULL)")

    good = [stores.kv.put(str(number), b"1") for number in range(5)]
    results = await asyncio.gather(
        *good, stores._file.write(broken), stores.kv.put("last", b"1"), return_exceptions=True
    )
    assert results[:5] == [True] * 5
    assert isinstance(results[5], StoreFailed)
    assert results[6] is True
    assert await stores.kv.get("last") == b"1"


async def test_whoever_gives_up_waiting_harms_nobody(stores: SqliteStores) -> None:
    task = asyncio.create_task(stores.kv.put("a", b"1"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await stores.kv.put("b", b"1")


async def test_the_sums_stay_right(make_stores: MakeStores, tmp_path: Path) -> None:
    clock = StoreClock()
    stores = make_stores(clock=clock, max_events=3, max_streams=3, max_items=20)
    for number in range(30):
        await stores.kv.put(str(number % 20), b"x" * number, ttl=number % 7 + 1)
        await stores.kv.expire(str(number % 5), 3)
        await stores.kv.delete(str(number % 3))
        await stores.log.append(str(number % 5), b"y" * number)
        await stores.bus.publish("t", b"z" * number)
        clock.now += 1 if number < 20 else 30
    await stores.log.delete("1")
    kept, counted = totals(tmp_path / "0.db")
    assert kept == counted
    assert kept[2] <= 3


async def test_the_expired_are_cleared_away(make_stores: MakeStores, tmp_path: Path) -> None:
    clock = StoreClock()
    stores = make_stores(clock=clock)
    for number in range(100):
        await stores.kv.put(str(number), b"1", ttl=1)
        await stores.bus.publish("t", b"1")
    clock.now += 100
    for _ in range(5):
        await stores.kv.delete("something else")
    assert totals(tmp_path / "0.db")[1] == (0, 0, 0, 0, 0)


async def test_messages_are_not_kept_without_bound(
    stores: SqliteStores, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUS_MESSAGES", 10)
    monkeypatch.setattr(module, "_BUS_BYTES", 100)
    for _ in range(30):
        await stores.bus.publish("t", b"1")
    assert totals(path)[1][4] == 10
    for _ in range(30):
        await stores.bus.publish("t", b"1" * 30)
    assert totals(path)[1][4] == 90


async def test_a_process_that_fell_behind_is_told(
    stores: SqliteStores, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Recorder()
    stores.bus.subscribe("t", heard, on_lost=lambda: heard(b"lost"))
    await stores.bus.publish("t", b"1")
    await heard.until(1)
    # As if this process had been asleep while others sent four messages, of which two are still kept.
    connection = sqlite3.connect(path)
    for number in range(2, 6):
        connection.execute("INSERT INTO bus (topic, data, sent) VALUES (?, ?, 0)", (b"t", b"%d" % number))
    connection.execute("DELETE FROM bus WHERE id <= 3")
    connection.commit()
    connection.close()
    stores._file._bell.ring()  # type: ignore[union-attr]
    await heard.until(4)
    assert heard == [b"1", b"lost", b"4", b"5"]


# --- files that are no good ---------------------------------------------------------------------------


async def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    stores = SqliteStores(path)
    with pytest.raises(StoreFailed, match="another program"):
        await stores.open()
    stores.close()
    assert path.read_bytes() == before


async def test_what_is_wrong_with_the_file_is_said_and_the_next_try_starts_anew(path: Path) -> None:
    stores = SqliteStores(path / "missing" / "state.db")
    for _ in range(2):
        with pytest.raises(StoreFailed, match="cannot be used"):
            await stores.kv.get("a")
    (path / "missing").mkdir(parents=True)
    assert await stores.kv.get("a") is None
    stores.close()
    path = path / "text.db"
    path.write_text("this is no database, and long enough not to be taken for one", encoding="utf-8")
    stores = SqliteStores(path)
    with pytest.raises(StoreFailed, match="not a database"):
        await stores.open()
    stores.close()
    assert "toolwire text.db" not in {thread.name for thread in threading.enumerate()}, "closing waits for its end"


async def test_a_file_of_a_later_version_is_refused(stores: SqliteStores, path: Path) -> None:
    await stores.open()
    stores.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    later = SqliteStores(path)
    with pytest.raises(StoreFailed, match="version 99"):
        await later.open()
    later.close()


# --- several processes --------------------------------------------------------------------------------


class TestProcesses(ProcessContract):
    @pytest.fixture
    def address(self, path: Path) -> Iterator[str]:
        yield str(path)
        kept, counted = totals(path)
        assert kept == counted


async def test_messages_reach_other_processes_where_nobody_can_ring(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "import toolwire.stores.process_wakeup as d\nd.Doorbell._open_to_others = lambda self: None\n"
    monkeypatch.setattr(Doorbell, "_open_to_others", lambda self: None)
    stores = SqliteStores(path)
    heard = Recorder()
    stores.bus.subscribe("back", heard)
    await stores.open()
    with Process(path, deaf + LISTENER) as listener:
        assert await listener.said() == "ready"
        await stores.bus.publish("t", b"end")
        await heard.until(1)
        assert await listener.end() == 0
    stores.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such sockets")
async def test_the_bell_of_a_process_that_was_killed_is_taken_down(stores: SqliteStores, path: Path) -> None:
    await stores.open()
    bells = path.with_name("state.db-sockets")
    with Process(path, LISTENER) as listener:
        assert await listener.said() == "ready"
        assert len(list(bells.iterdir())) == 2
        listener.process.kill()
        await listener.end()
    await stores.bus.publish("t", b"1")
    await stores.kv.get("the publisher rings after it has answered")
    await stores.kv.get("so ask twice")
    assert len(list(bells.iterdir())) == 1


WRITER = """
async def main():
    number = 0
    while True:
        await asyncio.gather(
            stores.kv.put(str(number), b"x" * 2000), stores.log.append("s", b"x"), stores.bus.publish("t", b"x")
        )
        say(number)
        number += 1
"""


async def test_a_process_that_is_killed_loses_nothing_it_was_told_is_done(path: Path) -> None:
    last = -1
    for _ in range(3):
        with Process(path, WRITER) as writer:
            for _ in range(50):
                last = await writer.said()
            writer.process.kill()
            while (more := await writer.said()) is not None:
                last = more
            await writer.end()
        stores = SqliteStores(path)
        for number in range(last + 1):
            assert await stores.kv.get(str(number)) == b"x" * 2000
        assert len(await stores.log.read_after("s", None, 1000)) >= min(last, 256)
        stores.close()
        kept, counted = totals(path)
        assert kept == counted
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
