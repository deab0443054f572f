"""`KV` in a SQLite file. Its methods run in the thread of the file, in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from toolwire.stores.memory import StoreFull
from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.numbers import add_to, check_amount, check_limit, check_ttl
from toolwire.stores.sqlite_file import SqliteFile


class SqliteKV:
    def __init__(self, file: SqliteFile, *, max_items: int, max_bytes: int, clock: Callable[[], float]) -> None:
        self._file = file
        self.max_items: int = max_items
        self.max_bytes: int = max_bytes
        self._clock = clock

    async def get(self, key: str) -> bytes | None:
        name = encode_name(key)
        return await self._file.read(lambda connection: self.live(connection, name))

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        if_absent: bool = False,
        expect: bytes | None = None,
    ) -> bool:
        check_ttl(ttl)
        name, value = encode_name(key), bytes(value)

        def work(connection: sqlite3.Connection) -> bool:
            present = self.live(connection, name)
            if (if_absent and present is not None) or (expect is not None and present != expect):
                return False
            self.store(connection, name, value, present, ttl)
            return True

        return await self._file.write(work)

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        check_amount(amount)
        check_ttl(ttl)
        name = encode_name(key)

        def work(connection: sqlite3.Connection) -> int:
            present = self.live(connection, name)
            total = add_to(present, amount)
            value = b"%d" % total
            if present is None:
                connection.execute("DELETE FROM kv WHERE key = ?", (name,))
            self._make_room(connection, name, value, present)
            connection.execute(
                "INSERT INTO kv (key, value, deadline) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (name, value, None if ttl is None else self._clock() + ttl),
            )
            return total

        return await self._file.write(work)

    async def delete(self, key: str) -> bool:
        name = encode_name(key)

        def work(connection: sqlite3.Connection) -> bool:
            present = self.live(connection, name)
            connection.execute("DELETE FROM kv WHERE key = ?", (name,))
            return present is not None

        return await self._file.write(work)

    async def expire(self, key: str, ttl: float | None) -> bool:
        check_ttl(ttl)
        name = encode_name(key)

        def work(connection: sqlite3.Connection) -> bool:
            now = self._clock()
            changed = connection.execute(
                "UPDATE kv SET deadline = ? WHERE key = ? AND (deadline IS NULL OR deadline > ?)",
                (None if ttl is None else now + ttl, name, now),
            )
            return changed.rowcount > 0

        return await self._file.write(work)

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        limit = check_limit(limit)

        def work(connection: sqlite3.Connection) -> list[str]:
            return [decode_name(name) for name in self.names(connection, prefix, after, limit)]

        return await self._file.read(work)

    def names(self, connection: sqlite3.Connection, prefix: str, after: str, limit: int) -> list[bytes]:
        first = encode_name(prefix)
        # No key comes before the empty one, and every key but the prefix itself comes after the byte that follows.
        begin = max(first, encode_name(after) + b"\x00") if after else first
        # No byte of UTF-8 is 0xff, so this comes after every key that begins with the prefix.
        found = connection.execute(
            "SELECT key FROM kv WHERE key >= ? AND key < ? AND (deadline IS NULL OR deadline > ?) ORDER BY key LIMIT ?",
            (begin, first + b"\xff", self._clock(), limit),
        ).fetchall()
        return [bytes(name) for (name,) in found]

    def store(
        self, connection: sqlite3.Connection, name: bytes, value: bytes, present: bytes | None, ttl: float | None
    ) -> None:
        """Store a value in place of one that lives, or of none."""
        now = self._clock()
        if present is None:
            connection.execute("DELETE FROM kv WHERE key = ?", (name,))
        self._make_room(connection, name, value, present)
        connection.execute(
            "INSERT INTO kv (key, value, deadline) VALUES (?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, deadline = excluded.deadline",
            (name, value, None if ttl is None else now + ttl),
        )

    def live(self, connection: sqlite3.Connection, name: bytes) -> bytes | None:
        row = connection.execute(
            "SELECT value FROM kv WHERE key = ? AND (deadline IS NULL OR deadline > ?)", (name, self._clock())
        ).fetchone()
        return None if row is None else bytes(row[0])

    def _make_room(self, connection: sqlite3.Connection, name: bytes, value: bytes, present: bytes | None) -> None:
        items = 0 if present is not None else 1
        size = len(value) - len(present) if present is not None else len(name) + len(value)
        if self._fits(connection, items, size):
            return
        sweep(connection, self._clock())
        if not self._fits(connection, items, size):
            raise StoreFull("The key-value store is full.")

    def _fits(self, connection: sqlite3.Connection, items: int, size: int) -> bool:
        # A change that needs no more room is never refused.
        kept_items, kept_bytes = connection.execute("SELECT kv_items, kv_bytes FROM totals").fetchone()
        return (items <= 0 or kept_items + items <= self.max_items) and (
            size <= 0 or kept_bytes + size <= self.max_bytes
        )


def sweep(connection: sqlite3.Connection, now: float, steps: int = -1) -> None:
    """Remove values that have expired: `steps` of them, or all."""
    connection.execute(
        "DELETE FROM kv WHERE rowid IN (SELECT rowid FROM kv WHERE deadline <= ? ORDER BY deadline LIMIT ?)",
        (now, steps),
    )
