"""`Queue` in a SQLite file: each operation is part of one transaction, in the thread of the file.

Leases and delays are measured by the wall clock of the machine. A clock that jumps makes leases look stale, which does
no harm: a process that watches them waits for as long as a lease lasts, by another clock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.numbers import check_limit, check_seconds
from toolwire.stores.queue import (
    BURIED_SECONDS,
    MOST_BURIED,
    MOST_DELAYED,
    MOST_DUE,
    MOST_LEASES,
    Counts,
    Held,
    Place,
    Ready,
    Task,
    check_change,
    is_same_place,
    judge,
    lease_lost,
    queue_full,
)
from toolwire.stores.sqlite_file import SqliteFile
from toolwire.stores.sqlite_kv import SqliteKV, sweep

# The tables are created beside those of a file that has none: programs of an earlier release do not know them, and the
# triggers keep them right when such a program removes a value.
#
# A task is ready while `process` is NULL. It stands `in_line` once its delay is over. The turns of kinds and owners
# count up: the lowest is next, and who was served or had nothing in line gets the highest.
QUEUE_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS queue_places (
    key BLOB PRIMARY KEY,
    kind BLOB NOT NULL,
    owner BLOB NOT NULL,
    process BLOB,
    number INTEGER NOT NULL DEFAULT 0,
    since REAL NOT NULL DEFAULT 0,
    in_line INTEGER NOT NULL DEFAULT 0
);;
CREATE INDEX IF NOT EXISTS queue_held ON queue_places (process, key) WHERE process IS NOT NULL;;
CREATE INDEX IF NOT EXISTS queue_ages ON queue_places (since, number) WHERE process IS NULL;;
CREATE INDEX IF NOT EXISTS queue_delays ON queue_places (since, number) WHERE process IS NULL AND in_line = 0;;
CREATE INDEX IF NOT EXISTS queue_lines ON queue_places (kind, owner, number) WHERE in_line = 1;;
CREATE TABLE IF NOT EXISTS queue_owners (
    kind BLOB NOT NULL, owner BLOB NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY (kind, owner)
) WITHOUT ROWID;;
CREATE INDEX IF NOT EXISTS queue_owner_turns ON queue_owners (kind, turn);;
CREATE TABLE IF NOT EXISTS queue_kinds (
    kind BLOB PRIMARY KEY, turn INTEGER, ready INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;;
CREATE TABLE IF NOT EXISTS queue_holders (process BLOB PRIMARY KEY, held INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;;
CREATE TABLE IF NOT EXISTS queue_totals (
    only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL DEFAULT 0, ready INTEGER NOT NULL DEFAULT 0
);;
INSERT OR IGNORE INTO queue_totals (only) VALUES (1);;
CREATE TABLE IF NOT EXISTS queue_leases (
    process BLOB PRIMARY KEY, renewal INTEGER NOT NULL, deadline REAL NOT NULL
) WITHOUT ROWID;;
CREATE INDEX IF NOT EXISTS queue_lease_deadlines ON queue_leases (deadline, process);;
CREATE TABLE IF NOT EXISTS queue_buried (process BLOB PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;;
CREATE INDEX IF NOT EXISTS queue_buried_since ON queue_buried (since);;

CREATE TRIGGER IF NOT EXISTS queue_place_added AFTER INSERT ON queue_places BEGIN
    INSERT OR IGNORE INTO queue_kinds (kind) VALUES (new.kind);
    UPDATE queue_kinds SET ready = ready + (new.process IS NULL), held = held + (new.process IS NOT NULL)
        WHERE kind = new.kind;
    UPDATE queue_totals SET ready = ready + (new.process IS NULL);
    INSERT OR IGNORE INTO queue_holders (process) SELECT new.process WHERE new.process IS NOT NULL;
    UPDATE queue_holders SET held = held + 1 WHERE process = new.process;
END;;
CREATE TRIGGER IF NOT EXISTS queue_place_removed AFTER DELETE ON queue_places BEGIN
    UPDATE queue_totals SET ready = ready - (old.process IS NULL);
    UPDATE queue_holders SET held = held - 1 WHERE process = old.process;
    DELETE FROM queue_holders WHERE process = old.process AND held = 0;
    UPDATE queue_kinds SET ready = ready - (old.process IS NULL), held = held - (old.process IS NOT NULL)
        WHERE kind = old.kind;
    DELETE FROM queue_owners WHERE old.in_line = 1 AND kind = old.kind AND owner = old.owner
        AND NOT EXISTS (SELECT 1 FROM queue_places WHERE in_line = 1 AND kind = old.kind AND owner = old.owner);
    UPDATE queue_kinds SET turn = NULL WHERE old.in_line = 1 AND kind = old.kind
        AND NOT EXISTS (SELECT 1 FROM queue_owners WHERE kind = old.kind);
    DELETE FROM queue_kinds WHERE kind = old.kind AND ready = 0 AND held = 0;
END;;
CREATE TRIGGER IF NOT EXISTS queue_record_removed AFTER DELETE ON kv BEGIN
    DELETE FROM queue_places WHERE key = old.key;
END
"""

_TASKS: Final = "SELECT key, value, process FROM queue_places JOIN kv USING (key) "
#: The processes that hold tasks and have no lease.
_GONE: Final = "FROM queue_holders WHERE process NOT IN (SELECT process FROM queue_leases)"


class SqliteQueue:
    def __init__(self, file: SqliteFile, kv: SqliteKV, *, clock: Callable[[], float]) -> None:
        self._file = file
        self._kv = kv
        self._clock = clock

    # --- tasks ---

    async def change(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None,
        expect: bytes | None,
        place: Place | None,
        holder: str = "",
        orphan_of: str = "",
        most_ready: int | None = None,
    ) -> bytes | None:
        check_change(ttl, place, most_ready)
        name, value = encode_name(key), bytes(value)

        def work(connection: sqlite3.Connection) -> bytes | None:
            present = self._kv.live(connection, name)
            found = self._place(connection, name) if present is not None else None
            writes, answer = judge(
                present, found, value, expect, place, holder, orphan_of, lambda process: _has_lease(connection, process)
            )
            if not writes:
                return answer
            if isinstance(place, Ready) and not isinstance(found, Ready) and most_ready is not None:
                self._check_room(connection, most_ready)
            self._kv.store(connection, name, value, present, ttl)
            self._move(connection, name, found, place)
            return None

        return await self._file.write(work)

    async def take(
        self,
        process: str,
        kinds: Collection[str],
        most: int,
        *,
        passing_over: Collection[str] = (),
    ) -> list[Task]:
        most = check_limit(most)
        wanted, skipped = {encode_name(kind) for kind in kinds}, {encode_name(owner) for owner in passing_over}

        def work(connection: sqlite3.Connection) -> list[Task]:
            if not _has_lease(connection, process):
                raise lease_lost()
            sweep(connection, self._clock())
            tasks: list[Task] = []
            self._fill_lines(connection)
            while len(tasks) < most and (name := _next(connection, wanted, skipped)) is not None:
                self._move(connection, name, self._place(connection, name), Held(process))
                tasks += _tasks(connection, _TASKS + "WHERE key = ?", name)
            return tasks

        return await self._file.write(work)

    async def held(self, process: str, *, after: str = "", limit: int = 1000) -> tuple[int, list[str]]:
        limit = check_limit(limit)
        name, begin = encode_name(process), encode_name(after) + b"\x00" if after else b""

        def work(connection: sqlite3.Connection) -> tuple[int, list[str]]:
            sweep(connection, self._clock())
            row = connection.execute("SELECT held FROM queue_holders WHERE process = ?", (name,)).fetchone()
            query = "SELECT key FROM queue_places WHERE process = ? AND key >= ? ORDER BY key LIMIT ?"
            found = connection.execute(query, (name, begin, limit))
            return 0 if row is None else row[0], [decode_name(bytes(key)) for (key,) in found]

        return await self._file.write(work)

    async def orphans(self, limit: int) -> list[Task]:
        limit = check_limit(limit)

        def work(connection: sqlite3.Connection) -> list[Task]:
            sweep(connection, self._clock())
            tasks: list[Task] = []
            for (process,) in connection.execute(f"SELECT process {_GONE} ORDER BY process").fetchall():
                more = max(limit - len(tasks), 0)
                tasks += _tasks(connection, _TASKS + "WHERE process = ? ORDER BY key LIMIT ?", process, more)
            return tasks

        return await self._file.write(work)

    async def waiting(self, longer_than: float, limit: int) -> list[Task]:
        check_seconds(longer_than, "a wait")
        limit = check_limit(limit)

        def work(connection: sqlite3.Connection) -> list[Task]:
            now = self._clock()
            sweep(connection, now)
            query = _TASKS + "WHERE process IS NULL AND since <= ? ORDER BY since, number LIMIT ?"
            return _tasks(connection, query, now - longer_than, limit)

        return await self._file.write(work)

    async def place(self, key: str) -> Place | None:
        name = encode_name(key)

        def work(connection: sqlite3.Connection) -> Place | None:
            return self._place(connection, name) if self._kv.live(connection, name) is not None else None

        return await self._file.read(work)

    async def places(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, Place | None]]:
        limit = check_limit(limit)

        def work(connection: sqlite3.Connection) -> list[tuple[str, Place | None]]:
            names = self._kv.names(connection, prefix, after, limit)
            if not names:
                return []
            rows = connection.execute(
                "SELECT key, kind, owner, process, since FROM queue_places WHERE key BETWEEN ? AND ?",
                (names[0], names[-1]),
            )
            found = {bytes(name): self._as_place(*place) for name, *place in rows}
            return [(decode_name(name), found.get(name)) for name in names]

        return await self._file.read(work)

    async def counts(self) -> Counts:
        def work(connection: sqlite3.Connection) -> Counts:
            now = self._clock()
            sweep(connection, now)
            kinds = connection.execute("SELECT kind, ready, held FROM queue_kinds").fetchall()
            (delayed,) = connection.execute(
                "SELECT count(*) FROM (SELECT 1 FROM queue_places WHERE process IS NULL AND since > ? LIMIT ?)",
                (now, MOST_DELAYED),
            ).fetchone()
            (orphans,) = connection.execute(f"SELECT coalesce(sum(held), 0) {_GONE}").fetchone()
            (oldest,) = connection.execute("SELECT min(since) FROM queue_places WHERE process IS NULL").fetchone()
            (leases,) = connection.execute("SELECT count(*) FROM queue_leases").fetchone()
            return Counts(
                ready={decode_name(bytes(kind)): ready for kind, ready, _ in kinds if ready},
                held={decode_name(bytes(kind)): held for kind, _, held in kinds if held},
                delayed=delayed,
                orphans=orphans,
                oldest=0.0 if oldest is None else max(now - oldest, 0.0),
                leases=leases,
            )

        return await self._file.write(work)

    # --- repair ---

    async def has_gaps(self) -> bool:
        return False  # Records and places change in one transaction.

    async def rebuild(self, after: str = "", limit: int = 200) -> str:
        return ""

    # --- leases ---

    async def renew(self, process: str, lease: float) -> bool:
        check_seconds(lease, "a lease")
        return await self._file.write(lambda connection: self._renew(connection, process, lease))

    async def release(self, process: str) -> None:
        await self._file.write(lambda connection: self._bury(connection, process))

    async def stale(self) -> list[tuple[str, int]]:
        return await self._leases("WHERE deadline <= ? ORDER BY deadline, process", self._clock())

    async def leases(self, prefix: str = "") -> list[tuple[str, int]]:
        first = encode_name(prefix)
        # No byte of UTF-8 is 0xff, so this comes after every name that begins with the prefix.
        return await self._leases("WHERE process >= ? AND process < ? ORDER BY process", first, first + b"\xff")

    async def _leases(self, where: str, *values: Any) -> list[tuple[str, int]]:
        def work(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            rows = connection.execute(
                f"SELECT process, renewal FROM queue_leases {where} LIMIT {MOST_LEASES}", values
            ).fetchall()
            return [(decode_name(bytes(process)), renewal) for process, renewal in rows]

        return await self._file.read(work)

    async def bury(self, process: str, renewal: int) -> bool:
        name = encode_name(process)

        def work(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT renewal FROM queue_leases WHERE process = ?", (name,)).fetchone()
            if row is None:
                return True
            if row[0] != renewal:
                return False
            self._bury(connection, process)
            return True

        return await self._file.write(work)

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        check_seconds(lease, "a lease")
        return self._file.repeat(lambda connection: self._renew(connection, process, lease), lease / 3, lost)

    # --- in the thread of the file: leases ---

    def _renew(self, connection: sqlite3.Connection, process: str, lease: float) -> bool:
        name = encode_name(process)
        if connection.execute("SELECT 1 FROM queue_buried WHERE process = ?", (name,)).fetchone() is not None:
            return False
        connection.execute(
            "INSERT INTO queue_leases (process, renewal, deadline) VALUES (?, 1, ?)"
            " ON CONFLICT (process) DO UPDATE SET renewal = renewal + 1, deadline = excluded.deadline",
            (name, self._clock() + lease),
        )
        return True

    def _bury(self, connection: sqlite3.Connection, process: str) -> None:
        name, now = encode_name(process), self._clock()
        connection.execute("DELETE FROM queue_leases WHERE process = ?", (name,))
        connection.execute("INSERT OR IGNORE INTO queue_buried (process, since) VALUES (?, ?)", (name, now))
        connection.execute(
            "DELETE FROM queue_buried WHERE since <= ? OR process IN"
            " (SELECT process FROM queue_buried ORDER BY since DESC LIMIT -1 OFFSET ?)",
            (now - BURIED_SECONDS, MOST_BURIED),
        )

    # --- in the thread of the file: places ---

    def _place(self, connection: sqlite3.Connection, name: bytes) -> Place | None:
        row = connection.execute(
            "SELECT kind, owner, process, since FROM queue_places WHERE key = ?", (name,)
        ).fetchone()
        return None if row is None else self._as_place(*row)

    def _as_place(self, kind: bytes, owner: bytes, process: bytes | None, since: float) -> Place:
        if process is not None:
            return Held(decode_name(bytes(process)), decode_name(bytes(kind)))
        return Ready(decode_name(bytes(kind)), decode_name(bytes(owner)), max(since - self._clock(), 0.0))

    def _move(self, connection: sqlite3.Connection, name: bytes, now: Place | None, place: Place | None) -> None:
        """Change the place of a task that is there."""
        if is_same_place(now, place):
            return
        if now is not None:
            connection.execute("DELETE FROM queue_places WHERE key = ?", (name,))
        if isinstance(place, Held):
            kind = place.kind or (now.kind if now is not None else "")
            connection.execute(
                "INSERT INTO queue_places (key, kind, owner, process) VALUES (?, ?, x'', ?)",
                (name, encode_name(kind), encode_name(place.process)),
            )
        elif place is not None:
            kind_name, owner_name = encode_name(place.kind), encode_name(place.owner)
            connection.execute(
                "INSERT INTO queue_places (key, kind, owner, number, since, in_line) VALUES (?, ?, ?, ?, ?, 0)",
                (name, kind_name, owner_name, _next_number(connection), self._clock() + place.delay),
            )
            if place.delay <= 0:
                _stand_in_line(connection, name, kind_name, owner_name)

    def _fill_lines(self, connection: sqlite3.Connection) -> None:
        """Add tasks whose delay is over."""
        due = connection.execute(
            "SELECT key, kind, owner FROM queue_places WHERE process IS NULL AND in_line = 0 AND since <= ?"
            " ORDER BY since, number LIMIT ?",
            (self._clock(), MOST_DUE),
        ).fetchall()
        for name, kind, owner in due:
            _stand_in_line(connection, name, kind, owner)

    def _check_room(self, connection: sqlite3.Connection, most_ready: int) -> None:
        if _ready(connection) >= most_ready:
            sweep(connection, self._clock())
            if _ready(connection) >= most_ready:
                raise queue_full()


def _has_lease(connection: sqlite3.Connection, process: str) -> bool:
    found = connection.execute("SELECT 1 FROM queue_leases WHERE process = ?", (encode_name(process),))
    return found.fetchone() is not None


def _ready(connection: sqlite3.Connection) -> int:
    (ready,) = connection.execute("SELECT ready FROM queue_totals").fetchone()
    return int(ready)


def _next_number(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("UPDATE queue_totals SET number = number + 1 RETURNING number").fetchone()
    return int(number)


def _stand_in_line(connection: sqlite3.Connection, name: bytes, kind: bytes, owner: bytes) -> None:
    """Add a task to those of its owner. An owner and a kind that had none go to the end of the line."""
    connection.execute("UPDATE queue_places SET in_line = 1 WHERE key = ?", (name,))
    turn = _next_number(connection)
    connection.execute("INSERT OR IGNORE INTO queue_owners (kind, owner, turn) VALUES (?, ?, ?)", (kind, owner, turn))
    connection.execute("UPDATE queue_kinds SET turn = ? WHERE kind = ? AND turn IS NULL", (turn, kind))


def _next(connection: sqlite3.Connection, kinds: Collection[bytes], passing_over: Collection[bytes]) -> bytes | None:
    """Return the task whose turn it is; its kind and its owner go to the end of the line."""
    rows = connection.execute("SELECT kind FROM queue_kinds WHERE turn IS NOT NULL ORDER BY turn").fetchall()
    for kind in (bytes(kind) for (kind,) in rows):
        owner = _next_owner(connection, kind, passing_over) if kind in kinds else None
        if owner is None:
            continue
        turn = _next_number(connection)
        connection.execute("UPDATE queue_kinds SET turn = ? WHERE kind = ?", (turn, kind))
        connection.execute("UPDATE queue_owners SET turn = ? WHERE kind = ? AND owner = ?", (turn, kind, owner))
        (name,) = connection.execute(
            "SELECT key FROM queue_places WHERE in_line = 1 AND kind = ? AND owner = ? ORDER BY number LIMIT 1",
            (kind, owner),
        ).fetchone()
        return bytes(name)
    return None


def _next_owner(connection: sqlite3.Connection, kind: bytes, passing_over: Collection[bytes]) -> bytes | None:
    owners: Iterable[tuple[Any]] = connection.execute(
        "SELECT owner FROM queue_owners WHERE kind = ? ORDER BY turn LIMIT ?", (kind, len(passing_over) + 1)
    ).fetchall()
    return next((bytes(owner) for (owner,) in owners if bytes(owner) not in passing_over), None)


def _tasks(connection: sqlite3.Connection, query: str, *values: Any) -> list[Task]:
    return [
        Task(decode_name(bytes(key)), bytes(value), "" if process is None else decode_name(bytes(process)))
        for key, value, process in connection.execute(query, values).fetchall()
    ]
