"""The four stores in one SQLite file: for several processes on one machine, and for state that survives a restart.

server = Server("notes", stores=SqliteStores("state.db"))

The limits hold for all processes together. Times to live are measured by the wall clock, because the file outlives
every other clock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from toolwire.stores.memory import MemoryBus, Position, PositionLost, StoreFailed
from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.numbers import check_limit
from toolwire.stores.sqlite_file import SqliteFile
from toolwire.stores.sqlite_kv import SqliteKV, sweep
from toolwire.stores.sqlite_queue import QUEUE_SCHEMA, SqliteQueue
from toolwire.stores.stores import Stores

__all__ = ["SqliteBus", "SqliteKV", "SqliteLog", "SqliteQueue", "SqliteStores", "StoreFailed"]

_VERSION: Final = 1
#: How many expired values one transaction removes beside its own work.
_SWEEP_STEPS: Final = 64
#: How long messages of the bus are kept for processes that are behind, and how many.
_BUS_SECONDS: Final = 60.0
_BUS_MESSAGES: Final = 10_000
_BUS_BYTES: Final = 64 * 1024 * 1024
_BUS_PAGE: Final = 1000

# Positions of the log count up over all streams and start at the time of day in microseconds, so that a position from a
# file that is gone is recognised as lost. The sums are kept by triggers, because counting would read everything.
_SCHEMA: Final = """
CREATE TABLE totals (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    kv_items INTEGER NOT NULL DEFAULT 0,
    kv_bytes INTEGER NOT NULL DEFAULT 0,
    log_streams INTEGER NOT NULL DEFAULT 0,
    log_bytes INTEGER NOT NULL DEFAULT 0,
    log_position INTEGER NOT NULL,
    bus_bytes INTEGER NOT NULL DEFAULT 0
);;
INSERT INTO totals (only, log_position) VALUES (1, {position});;

CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL, deadline REAL);;
CREATE INDEX kv_deadline ON kv (deadline) WHERE deadline IS NOT NULL;;
CREATE TRIGGER kv_added AFTER INSERT ON kv BEGIN
    UPDATE totals SET kv_items = kv_items + 1, kv_bytes = kv_bytes + length(new.key) + length(new.value);
END;;
CREATE TRIGGER kv_changed AFTER UPDATE OF value ON kv BEGIN
    UPDATE totals SET kv_bytes = kv_bytes + length(new.value) - length(old.value);
END;;
CREATE TRIGGER kv_removed AFTER DELETE ON kv BEGIN
    UPDATE totals SET kv_items = kv_items - 1, kv_bytes = kv_bytes - length(old.key) - length(old.value);
END;;

CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    name BLOB NOT NULL UNIQUE,
    floor INTEGER NOT NULL,
    last INTEGER NOT NULL,
    events INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);;
CREATE INDEX streams_by_age ON streams (last);;
CREATE TABLE events (
    stream INTEGER NOT NULL,
    position INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (stream, position)
) WITHOUT ROWID;;
CREATE TRIGGER stream_added AFTER INSERT ON streams BEGIN
    UPDATE totals SET log_streams = log_streams + 1;
END;;
CREATE TRIGGER stream_changed AFTER UPDATE OF bytes ON streams BEGIN
    UPDATE totals SET log_bytes = log_bytes + new.bytes - old.bytes;
END;;
CREATE TRIGGER stream_removed AFTER DELETE ON streams BEGIN
    UPDATE totals SET log_streams = log_streams - 1, log_bytes = log_bytes - old.bytes;
    DELETE FROM events WHERE stream = old.id;
END;;

CREATE TABLE bus (id INTEGER PRIMARY KEY AUTOINCREMENT, topic BLOB NOT NULL, data BLOB NOT NULL, sent REAL NOT NULL);;
CREATE INDEX bus_sent ON bus (sent);;
CREATE TRIGGER bus_added AFTER INSERT ON bus BEGIN
    UPDATE totals SET bus_bytes = bus_bytes + length(new.data);
END;;
CREATE TRIGGER bus_removed AFTER DELETE ON bus BEGIN
    UPDATE totals SET bus_bytes = bus_bytes - length(old.data);
END
"""


class SqliteStores(Stores):
    """`KV`, `Log`, `Bus` and `Queue` in the file at `path`. A missing file is created, readable by its owner alone.

    Nothing is opened before the first use, so the stores can be made before a process forks and used afterwards. Beside
    the file there are SQLite's own (`-wal`, `-shm`) and, while a process uses it, the folder `-sockets`, through which
    the processes wake one another.
    """

    _file: SqliteFile

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_items: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_events: int = 256,
        max_stream_bytes: int = 1024 * 1024,
        max_streams: int = 10_000,
        max_log_bytes: int = 256 * 1024 * 1024,
        max_subscribers: int = 100_000,
        max_pending: int = 1024,
        clock: Callable[[], float] = time.time,
        first_position: int | None = None,
    ) -> None:
        position = time.time_ns() // 1000 if first_position is None else first_position - 1
        file = SqliteFile(
            path,
            _SCHEMA.format(position=position),
            _VERSION,
            additions=QUEUE_SCHEMA,
            look=lambda connection: bus.look(connection),
            tidy=lambda connection: _tidy(connection, clock()),
        )
        bus = SqliteBus(file, max_subscribers=max_subscribers, max_pending=max_pending, clock=clock)
        kv = SqliteKV(file, max_items=max_items, max_bytes=max_bytes, clock=clock)
        super().__init__(
            kv,
            SqliteLog(
                file,
                max_events=max_events,
                max_bytes=max_stream_bytes,
                max_streams=max_streams,
                max_total_bytes=max_log_bytes,
            ),
            bus,
            SqliteQueue(file, kv, clock=clock),
        )
        # The dataclass is frozen.
        object.__setattr__(self, "_file", file)

    async def open(self) -> None:
        """Open the file now instead of at the first use. Raise `StoreFailed` when it cannot be used."""
        await self._file.read(_nothing)

    def close(self) -> None:
        """Finish what is under way and close the file. The stores cannot be used afterwards."""
        self._file.close()


def _nothing(connection: sqlite3.Connection) -> None:
    return


def _tidy(connection: sqlite3.Connection, now: float) -> None:
    sweep(connection, now, _SWEEP_STEPS)
    connection.execute(
        "DELETE FROM bus WHERE id IN (SELECT id FROM bus WHERE sent < ? LIMIT 100)", (now - _BUS_SECONDS,)
    )


# --- Log ------------------------------------------------------------------------------------------


class SqliteLog:
    def __init__(
        self, file: SqliteFile, *, max_events: int, max_bytes: int, max_streams: int, max_total_bytes: int
    ) -> None:
        self._file = file
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_streams = max_streams
        self._max_total_bytes = max_total_bytes

    async def append(self, stream: str, data: bytes) -> int:
        name, data = encode_name(stream), bytes(data)

        def work(connection: sqlite3.Connection) -> int:
            (before,) = connection.execute("SELECT log_position FROM totals").fetchone()
            position: int = before + 1
            connection.execute("UPDATE totals SET log_position = ?", (position,))
            connection.execute(
                "INSERT INTO streams (name, floor, last) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (name, before, before),
            )
            identifier, events, size = connection.execute(
                "UPDATE streams SET last = ?, events = events + 1, bytes = bytes + ? WHERE name = ?"
                " RETURNING id, events, bytes",
                (position, len(data), name),
            ).fetchone()
            connection.execute("INSERT INTO events VALUES (?, ?, ?)", (identifier, position, data))
            if events > self._max_events or size > self._max_bytes:
                self._drop_oldest(connection, identifier, events, size)
            self._forget_silent(connection)
            return position

        return await self._file.write(work)

    async def read_after(self, stream: str, position: Position | None, limit: int) -> list[tuple[Position, bytes]]:
        limit = check_limit(limit)
        name = encode_name(stream)

        def work(connection: sqlite3.Connection) -> list[tuple[Position, bytes]]:
            kept = connection.execute("SELECT id, floor, last FROM streams WHERE name = ?", (name,)).fetchone()
            if position is not None and (
                kept is None or not isinstance(position, int) or not kept[1] <= position <= kept[2]
            ):
                raise PositionLost("The events after this position are no longer kept.")
            if kept is None:
                return []
            found = connection.execute(
                "SELECT position, data FROM events WHERE stream = ? AND position > ? ORDER BY position LIMIT ?",
                (kept[0], kept[1] if position is None else position, limit),
            )
            return [(number, bytes(data)) for number, data in found]

        return await self._file.read(work)

    async def delete(self, stream: str) -> bool:
        name = encode_name(stream)

        def work(connection: sqlite3.Connection) -> bool:
            return connection.execute("DELETE FROM streams WHERE name = ?", (name,)).rowcount > 0

        return await self._file.write(work)

    def _drop_oldest(self, connection: sqlite3.Connection, stream: int, events: int, size: int) -> None:
        floor = 0
        oldest = connection.execute(
            "SELECT position, length(data) FROM events WHERE stream = ? ORDER BY position", (stream,)
        )
        while events > self._max_events or size > self._max_bytes:
            floor, length = oldest.fetchone()
            events -= 1
            size -= length
        oldest.close()
        connection.execute("DELETE FROM events WHERE stream = ? AND position <= ?", (stream, floor))
        connection.execute(
            "UPDATE streams SET floor = ?, events = ?, bytes = ? WHERE id = ?", (floor, events, size, stream)
        )

    def _forget_silent(self, connection: sqlite3.Connection) -> None:
        while True:
            streams, size = connection.execute("SELECT log_streams, log_bytes FROM totals").fetchone()
            if streams <= self._max_streams and size <= self._max_total_bytes:
                return
            connection.execute("DELETE FROM streams WHERE id = (SELECT id FROM streams ORDER BY last LIMIT 1)")


# --- Bus ------------------------------------------------------------------------------------------


class SqliteBus(MemoryBus):
    """A bus in a SQLite file.

    Each message is written to the file first. Each process reads the messages in their order, and gives them to its own
    subscribers as the bus in memory does.
    """

    def __init__(self, file: SqliteFile, *, max_subscribers: int, max_pending: int, clock: Callable[[], float]) -> None:
        super().__init__(max_subscribers=max_subscribers, max_pending=max_pending)
        self._file = file
        self._clock = clock
        #: The number of the last message that was handed out; None before the first look.
        self._seen: int | None = None

    async def publish(self, topic: str, data: bytes) -> None:
        name, data = encode_name(topic), bytes(data)

        def work(connection: sqlite3.Connection) -> None:
            added = connection.execute(
                "INSERT INTO bus (topic, data, sent) VALUES (?, ?, ?)", (name, data, self._clock())
            )
            assert added.lastrowid is not None
            connection.execute("DELETE FROM bus WHERE id <= ?", (added.lastrowid - _BUS_MESSAGES,))
            while connection.execute("SELECT bus_bytes FROM totals").fetchone()[0] > _BUS_BYTES:
                connection.execute("DELETE FROM bus WHERE id = (SELECT min(id) FROM bus)")

        await self._file.write(work, ring=True)

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        self._file.wake()
        return super().subscribe(topic, callback, on_lost=on_lost)

    def look(self, connection: sqlite3.Connection) -> None:
        """Hand out what was written since the last look, in the thread of the file."""
        while True:
            (last,) = connection.execute(
                "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'bus'), 0)"
            ).fetchone()
            if self._seen is None:
                self._seen = last
            if last == self._seen:
                return
            rows = connection.execute(
                "SELECT id, topic, data FROM bus WHERE id > ? ORDER BY id LIMIT ?", (self._seen, _BUS_PAGE)
            ).fetchall()
            # Numbers have no gaps: a missing one was dropped before this process read it.
            if (rows[0][0] if rows else last + 1) != self._seen + 1:
                self._tell_lost()
            for _, topic, data in rows:
                self._hand_out(decode_name(bytes(topic)), bytes(data), None)
            self._seen = rows[-1][0] if rows else last
