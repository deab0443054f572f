"""The queue in a SQLite file: files of an earlier release, sums, and leases that are kept when the file fails."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolwire.stores import Held, Ready
from toolwire.stores import sqlite_file as module
from toolwire.stores.sqlite import SqliteStores
from toolwire.testing.stores import StoreClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def stores(path: Path) -> Iterator[SqliteStores]:
    stores = SqliteStores(path)
    yield stores
    stores.close()


async def test_places_and_leases_outlive_the_process(path: Path) -> None:
    before = SqliteStores(path)
    await before.queue.renew("p", 1000)
    await before.queue.change("a", b"1", ttl=1000, expect=None, place=Held("p", "x"))
    await before.queue.change("b", b"1", ttl=1000, expect=None, place=Ready("x", "o"))
    before.close()
    after = SqliteStores(path)
    assert [await after.queue.place(key) for key in "ab"] == [Held("p", "x"), Ready("x", "o")]
    assert await after.queue.leases() == [("p", 1)]
    after.close()


async def test_a_file_of_an_earlier_release_gets_a_queue_and_can_still_be_used_by_it(path: Path) -> None:
    stores = SqliteStores(path)
    await stores.kv.put("old", b"1")
    stores.close()
    connection = sqlite3.connect(path)
    for kind in ("trigger", "table"):
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = ? AND name LIKE 'queue_%'", (kind,)
        ).fetchall()
        for (name,) in names:
            connection.execute(f"DROP {kind} {name}")
    connection.commit()
    stores = SqliteStores(path)
    assert await stores.kv.get("old") == b"1"
    await stores.queue.renew("p", 10)
    await stores.queue.change("a", b"1", ttl=None, expect=None, place=Ready("x", "o"))
    await stores.queue.change("b", b"1", ttl=None, expect=None, place=Held("p", "x"))
    # As a program of the earlier release removes a value, which knows nothing of the queue.
    connection.execute("DELETE FROM kv")
    connection.commit()
    connection.close()
    assert (await stores.queue.counts())[:2] == ({}, {})
    assert await stores.queue.take("p", ["x"], 1) == []
    assert await stores.queue.held("p") == (0, [])
    stores.close()


async def test_the_sums_stay_right(path: Path) -> None:
    clock = StoreClock()
    stores = SqliteStores(path, clock=clock)
    queue = stores.queue
    await queue.renew("steady", 1000)
    for number in range(60):
        process, key = f"process {number % 4}", str(number % 20)
        await queue.renew(process, 5)
        if number % 7 == 0:
            await queue.release(process)
        value = await stores.kv.get(key)
        place = Ready(f"kind {number % 3}", str(number % 2), number % 5) if number % 4 else Held("steady", "held here")
        await queue.change(key, b"%d" % number, ttl=number % 9 + 1, expect=value, place=place)
        if process in dict(await queue.leases()):
            await queue.take(process, ["kind 0", "kind 1"], 2)
        await stores.kv.delete(str(number % 11))
        clock.now += 1
        connection = sqlite3.connect(path)
        for query in (
            "SELECT ready FROM queue_totals EXCEPT SELECT count(*) FROM queue_places WHERE process IS NULL",
            "SELECT kind, ready, held FROM queue_kinds EXCEPT"
            " SELECT kind, sum(process IS NULL), sum(process IS NOT NULL) FROM queue_places GROUP BY kind",
            "SELECT DISTINCT kind FROM queue_places EXCEPT SELECT kind FROM queue_kinds",
            "SELECT process, held FROM queue_holders EXCEPT"
            " SELECT process, count(*) FROM queue_places WHERE process IS NOT NULL GROUP BY process",
            "SELECT DISTINCT process FROM queue_places WHERE process IS NOT NULL EXCEPT"
            " SELECT process FROM queue_holders",
            "SELECT kind, owner FROM queue_owners EXCEPT SELECT kind, owner FROM queue_places WHERE in_line = 1",
            "SELECT kind, owner FROM queue_places WHERE in_line = 1 EXCEPT SELECT kind, owner FROM queue_owners",
            "SELECT kind FROM queue_kinds WHERE turn IS NOT NULL EXCEPT SELECT kind FROM queue_owners",
            "SELECT kind FROM queue_owners EXCEPT SELECT kind FROM queue_kinds WHERE turn IS NOT NULL",
            "SELECT key FROM queue_places EXCEPT SELECT key FROM kv",
        ):
            assert connection.execute(query).fetchall() == [], query
        connection.close()
    stores.close()


async def renewed(stores: SqliteStores, process: str, times: int) -> None:
    """Wait until a lease was renewed so many times more, as another connection sees it: this asks nothing of the store.

    The event loop may stand still for many renewals, so that a number from the beginning would say nothing.
    """
    connection = sqlite3.connect(stores._file.path)
    query = "SELECT renewal FROM queue_leases WHERE process = ?"

    def renewals() -> int:
        return int(connection.execute(query, (process.encode(),)).fetchone()[0])

    before = renewals()
    while renewals() < before + times:
        await asyncio.sleep(0.001)
    connection.close()


async def test_a_lease_is_kept_when_a_renewal_fails(
    stores: SqliteStores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    await stores.queue.renew("p", 10)
    renew = stores.queue._renew  # type: ignore[attr-defined]
    calls = itertools.count()

    def sometimes(*given: object) -> bool:
        if next(calls) % 2 == 0:
            raise sqlite3.OperationalError("disk I/O error")
        renewed: bool = renew(*given)
        return renewed

    monkeypatch.setattr(stores.queue, "_renew", sometimes)
    stop = stores.queue.keep("p", 0.03, lambda: None)
    await renewed(stores, "p", 4)
    stop()
    assert "disk I/O error" in caplog.text


async def test_a_lease_is_kept_when_the_thread_of_the_file_fails(
    stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    version = module._data_version
    fails = [False]

    def data_version(connection: sqlite3.Connection) -> int:
        if fails[0]:
            fails[0] = False
            raise sqlite3.OperationalError("disk I/O error")
        return version(connection)

    monkeypatch.setattr(module, "_data_version", data_version)
    await stores.queue.renew("p", 10)
    stop = stores.queue.keep("p", 0.03, lambda: None)
    await renewed(stores, "p", 3)
    thread = stores._file._thread
    fails[0] = True
    while fails[0]:
        await asyncio.sleep(0.001)
    # Many leases may have been renewed before the thread failed.
    while stores._file._thread is thread:
        await asyncio.sleep(0.001)
    await renewed(stores, "p", 2)
    stop()


async def test_closing_ends_what_is_kept(stores: SqliteStores) -> None:
    stores.queue.keep("p", 0.03, lambda: None)
    await stores.open()
    stores.close()
    assert not stores._file._thread.is_alive()  # type: ignore[union-attr]
