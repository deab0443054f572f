"""`Queue` on Redis: one script for each operation. Leases and delays are measured by the clock of Redis."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from toolwire.stores import redis_queue_scripts as scripts
from toolwire.stores.memory import StoreFull
from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.numbers import check_limit, check_seconds
from toolwire.stores.queue import MOST_LEASES, Counts, Held, Place, Ready, Task, check_change, lease_lost, queue_full
from toolwire.stores.redis_link import RedisLink
from toolwire.stores.redis_scripts import LIST, SWEEP, Script, list_arguments

_logger = logging.getLogger("toolwire.stores")


class RedisQueue:
    def __init__(
        self, link: RedisLink, *, max_items: int, max_bytes: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._link = link
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._clock = clock
        self._token = ""
        self._is_blind = False

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
        name = encode_name(key)
        arguments = (
            bytes(value),
            "" if ttl is None else _milliseconds(ttl),
            int(expect is not None),
            expect or b"",
            *_place_arguments(place),
            encode_name(holder),
            encode_name(orphan_of),
            "" if most_ready is None else most_ready,
            self._max_items,
            self._max_bytes,
        )
        while True:
            answer, *other = await self._link.ask(scripts.CHANGE, self._now(), name, *arguments, keys=(b"kv:" + name,))
            if answer not in (b"full", b"crowded") or not other:
                break
            script = SWEEP if answer == b"full" else scripts.MEND
            await self._link.ask(script, self._now(), *other, keys=[b"kv:" + each for each in other])
        if answer == b"lost":
            raise lease_lost()
        if answer == b"crowded":
            raise queue_full()
        if answer == b"full":
            raise StoreFull("The key-value store is full.")
        return bytes(other[0]) if answer == b"other" else None

    async def take(
        self,
        process: str,
        kinds: Collection[str],
        most: int,
        *,
        passing_over: Collection[str] = (),
    ) -> list[Task]:
        most = check_limit(most)
        if self._link.may_lack_writes:
            return []  # It may have lost that a task was taken: the process that runs the task comes first.
        lists = (*_list_arguments(kinds), *_list_arguments(passing_over))
        names: list[bytes] = []
        doubts: list[bytes] | None = None
        while doubts is None or (doubts and len(names) < most):
            answer = await self._link.ask(scripts.TAKE, self._now(), encode_name(process), most - len(names), *lists)
            if answer is None:
                raise lease_lost()
            names += answer[0]
            doubts = answer[1]
            await self._resolve_doubts(doubts)
        return await self._read((name, process) for name in names)

    async def held(self, process: str, *, after: str = "", limit: int = 1000) -> tuple[int, list[str]]:
        limit = check_limit(limit)
        number, *names = await self._find(scripts.HELD, encode_name(process), encode_name(after), limit)
        return number, [decode_name(name) for name in names]

    async def orphans(self, limit: int) -> list[Task]:
        limit = check_limit(limit)
        found = await self._find(scripts.ORPHANS, limit)
        return await self._read((name, decode_name(process)) for name, process in _pairs(found))

    async def waiting(self, longer_than: float, limit: int) -> list[Task]:
        check_seconds(longer_than, "a wait")
        limit = check_limit(limit)
        names = await self._find(scripts.WAITING, _milliseconds(longer_than), limit)
        return await self._read((name, "") for name in names)

    async def _find(self, script: Script, *arguments: Any) -> Sequence[Any]:
        """Run a script that finds tasks, until it finds none in doubt."""
        while True:
            found, doubts = await self._link.ask(script, self._now(), *arguments)
            if not doubts:
                return found  # type: ignore[no-any-return]
            await self._resolve_doubts(doubts)

    async def _resolve_doubts(self, doubts: Sequence[bytes]) -> None:
        """Remove tasks that have no record, and put the others back into the indexes."""
        if doubts:
            await self._link.ask(scripts.MEND, self._now(), *doubts, keys=[b"kv:" + name for name in doubts])

    async def _read(self, found: Iterable[tuple[bytes, str]]) -> list[Task]:
        """Return tasks with their records. One whose record was removed in this moment is left out."""
        tasks = list(found)
        if not tasks:
            return []
        names = [name for name, _ in tasks]
        values: Sequence[bytes | None] = await self._link.ask(
            scripts.READ, self._now(), *names, keys=[b"kv:" + name for name in names]
        )
        return [
            Task(decode_name(name), value, process)
            for (name, process), value in zip(tasks, values, strict=True)
            if value is not None
        ]

    async def place(self, key: str) -> Place | None:
        name = encode_name(key)
        return _place(await self._link.ask(scripts.PLACE, self._now(), name, keys=(b"kv:" + name,)))

    async def places(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, Place | None]]:
        limit = check_limit(limit)
        found: bytes = await self._link.ask(scripts.ALL_PLACES, self._now(), *list_arguments(prefix, after, limit))
        texts = _texts(found)
        return [(decode_name(name), _place((place, *rest))) for name, place, *rest in zip(*[texts] * 5, strict=True)]

    async def counts(self) -> Counts:
        delayed, orphans, oldest, leases, *kinds = await self._find(scripts.COUNTS)
        counted = [(field[:1], decode_name(field[1:]), int(number)) for field, number in _pairs(kinds)]
        return Counts(
            ready={kind: number for letter, kind, number in counted if letter == b"r"},
            held={kind: number for letter, kind, number in counted if letter == b"h"},
            delayed=delayed,
            orphans=orphans,
            oldest=float(oldest) / 1000,
            leases=leases,
        )

    # --- repair ---

    async def has_gaps(self) -> bool:
        found: int = await self._link.ask(scripts.GAPS)
        return found == 1

    async def rebuild(self, after: str = "", limit: int = 200) -> str:
        if not after:
            await self._find_names()
            await self._link.ask(scripts.MEND_NAMES)
        names = await self._link.ask(LIST, self._now(), *list_arguments("", after, limit))
        await self._resolve_doubts(names)
        if len(names) >= limit:
            return decode_name(names[-1])
        await self._link.ask(scripts.RECOUNT, self._token)
        return ""

    async def _find_names(self) -> None:
        """Name the values by their keys, if the index of names was lost."""
        self._token = os.urandom(9).hex()
        cursor, changed_at = b"", self._link.changed_at
        while cursor != b"0":
            if self._link.changed_at != changed_at:
                # The cursor is that of another server.
                cursor, changed_at = b"", self._link.changed_at
            cursor, is_allowed = await self._link.ask(scripts.SCAN, self._token, cursor)
            if not is_allowed and not self._is_blind:
                self._is_blind = True
                _logger.warning(
                    "the user of the store %s may not run SCAN, so tasks are not found again after the keys of their "
                    "index were lost: give the user +scan",
                    self._link.errors.store,
                )

    # --- leases ---

    async def renew(self, process: str, lease: float) -> bool:
        check_seconds(lease, "a lease")
        renewed: int = await self._link.ask(scripts.RENEW, *self._renewal(process, lease))
        return renewed == 1

    async def release(self, process: str) -> None:
        await self._link.ask(scripts.BURY, self._now(), encode_name(process), "")

    async def stale(self) -> list[tuple[str, int]]:
        return _leases(await self._link.ask(scripts.STALE, self._now()))

    async def leases(self, prefix: str = "") -> list[tuple[str, int]]:
        return sorted(_leases(await self._link.ask(scripts.ALL_LEASES, encode_name(prefix))))[:MOST_LEASES]

    async def bury(self, process: str, renewal: int) -> bool:
        buried: int = await self._link.ask(scripts.BURY, self._now(), encode_name(process), renewal)
        return buried == 1

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        check_seconds(lease, "a lease")
        return self._link.repeat(scripts.RENEW, lambda: self._renewal(process, lease), lease / 3, lost)

    def _renewal(self, process: str, lease: float) -> tuple[Any, ...]:
        return self._now(), encode_name(process), _milliseconds(lease)

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock() * 1000)


def _milliseconds(seconds: float) -> str:
    return repr(seconds * 1000.0)


def _place_arguments(place: Place | None) -> tuple[str | bytes, ...]:
    """Return the place as the script takes it: a word, the kind, the owner or the process, the delay."""
    if isinstance(place, Held):
        return "held", encode_name(place.kind), encode_name(place.process), "0"
    if isinstance(place, Ready):
        return "ready", encode_name(place.kind), encode_name(place.owner), _milliseconds(place.delay)
    return "", "", "", "0"


def _texts(joined: bytes) -> Iterator[bytes]:
    """Return texts that are joined, each behind its length."""
    at = 0
    while at < len(joined):
        start = at + 8
        at = start + int(joined[at:start], 16)
        yield joined[start:at]


def _place(found: Sequence[Any] | None) -> Place | None:
    """Return a place as a script returns it."""
    if found is None or not found[0]:
        return None
    kind_of_place, first, second, *rest = found
    if kind_of_place == b"held":
        return Held(decode_name(first), decode_name(second))
    return Ready(decode_name(first), decode_name(second), float(rest[0]) / 1000)


def _list_arguments(texts: Collection[str]) -> list[int | bytes]:
    return [len(texts), *map(encode_name, texts)]


def _pairs(found: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(found[::2], found[1::2], strict=True)


def _leases(found: Sequence[Any]) -> list[tuple[str, int]]:
    return [(decode_name(process), int(renewal)) for process, renewal in _pairs(found)]
