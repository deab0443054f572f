"""`Queue` in the memory of one process, over the records of a `MemoryKV`.

The lock of the `KV` covers both, so that a record and its place change together. A record that is deleted or expires
loses its place in the same step.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct

from toolwire.protocol.errors import ServerError
from toolwire.stores.memory import SWEEP_STEPS, MemoryKV
from toolwire.stores.names import encode_name
from toolwire.stores.numbers import check_limit, check_seconds
from toolwire.stores.queue import (
    BURIED_SECONDS,
    MOST_BURIED,
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
from toolwire.stores.thread_jobs import call_guarded

#: The tasks of one owner that can be taken, in the order of their numbers.
_Line: TypeAlias = list[tuple[int, str]]


class _Waiting(Struct):
    kind: str
    owner: str
    #: Counts up with each task that becomes ready: the order of the tasks of one owner.
    number: int
    #: From when on it may be taken.
    since: float
    #: Whether it stands in the line of its owner.
    in_line: bool = False


class _Lease(Struct):
    renewal: int
    deadline: float


class MemoryQueue:
    def __init__(self, kv: MemoryKV) -> None:
        if kv._index is not None:
            raise ServerError("This MemoryKV has a queue: use MemoryQueue.of(kv)")
        kv._index = self
        self._kv = kv
        self._lock = kv._lock
        self._clock = kv._clock
        self._places: dict[str, _Waiting | Held] = {}
        # How many tasks of each kind are ready, and held.
        self._ready_counts: Counter[str] = Counter()
        self._held_counts: Counter[str] = Counter()
        self._number = 0
        # Kinds and, within each, owners who have tasks that can be taken; the one whose turn it is comes first.
        self._lines: OrderedDict[str, OrderedDict[str, _Line]] = OrderedDict()
        # Every delay that was set. One whose task is no longer there, or in line, is skipped when its turn comes.
        self._delays: list[tuple[float, int, str]] = []
        self._by_age: list[tuple[float, int, str]] = []
        self._held: dict[str, set[str]] = {}
        self._leases: dict[str, _Lease] = {}
        self._kept: dict[str, Callable[[], None]] = {}
        self._buried: OrderedDict[str, float] = OrderedDict()

    @classmethod
    def of(cls, kv: MemoryKV) -> MemoryQueue:
        """Return the queue over the records of a `MemoryKV`, which has one."""
        return kv._index if isinstance(kv._index, MemoryQueue) else cls(kv)

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
        with self._lock:
            self._kv._sweep(SWEEP_STEPS)
            present = self._kv._live(key)
            found = self._place(key)
            value = bytes(value)
            writes, answer = judge(
                present, found, value, expect, place, holder, orphan_of, lambda process: process in self._leases
            )
            if not writes:
                return answer
            if isinstance(place, Ready) and not isinstance(found, Ready):
                self._check_room(most_ready)
            self._kv._store(key, value, present)
            self._kv._set_deadline(key, ttl)
            self._move(key, found, place)
            return None

    async def take(
        self,
        process: str,
        kinds: Collection[str],
        most: int,
        *,
        passing_over: Collection[str] = (),
    ) -> list[Task]:
        most = check_limit(most)
        with self._lock:
            if process not in self._leases:
                raise lease_lost()
            self._sweep()
            tasks: list[Task] = []
            self._fill_lines()
            wanted = set(kinds)
            while len(tasks) < most and (key := self._next(wanted, passing_over)) is not None:
                self._move(key, self._place(key), Held(process))
                tasks += self._tasks([key])
            return tasks

    async def held(self, process: str, *, after: str = "", limit: int = 1000) -> tuple[int, list[str]]:
        limit = check_limit(limit)
        with self._lock:
            self._sweep()
            keys = self._held_by(process) if limit > 0 else []
            first = bisect_right(keys, encode_name(after), key=encode_name) if after else 0
            return len(self._held.get(process, ())), keys[first : first + limit]

    async def orphans(self, limit: int) -> list[Task]:
        limit = check_limit(limit)
        with self._lock:
            self._sweep()
            gone = sorted(self._held.keys() - self._leases.keys(), key=encode_name)
            held = (key for process in gone for key in self._held_by(process))
            return self._tasks(islice(held, limit))

    async def waiting(self, longer_than: float, limit: int) -> list[Task]:
        check_seconds(longer_than, "a wait")
        limit = check_limit(limit)
        with self._lock:
            self._sweep()
            latest = self._clock() - longer_than
            return self._tasks([key for since, _, key in islice(self._by_age, limit) if since <= latest])

    async def place(self, key: str) -> Place | None:
        with self._lock:
            return self._place(key) if self._kv._live(key) is not None else None

    async def places(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[tuple[str, Place | None]]:
        limit = check_limit(limit)
        with self._lock:
            return [(key, self._place(key)) for key in self._kv._keys(prefix, after, limit)]

    async def counts(self) -> Counts:
        with self._lock:
            self._sweep()
            now = self._clock()
            return Counts(
                ready=dict(self._ready_counts),
                held=dict(self._held_counts),
                delayed=len(self._by_age) - bisect_right(self._by_age, now, key=itemgetter(0)),
                orphans=sum(len(keys) for process, keys in self._held.items() if process not in self._leases),
                oldest=max(now - self._by_age[0][0], 0.0) if self._by_age else 0.0,
                leases=len(self._leases),
            )

    # --- repair ---

    async def has_gaps(self) -> bool:
        return False  # Places are in the same memory as the records.

    async def rebuild(self, after: str = "", limit: int = 200) -> str:
        return ""

    # --- leases ---

    async def renew(self, process: str, lease: float) -> bool:
        check_seconds(lease, "a lease")
        with self._lock:
            return self._renew(process, lease)

    async def release(self, process: str) -> None:
        with self._lock:
            self._bury(process)

    async def stale(self) -> list[tuple[str, int]]:
        with self._lock:
            now = self._clock()
            stale = [(lease.deadline, name, lease.renewal) for name, lease in self._leases.items()]
            return [(name, renewal) for deadline, name, renewal in sorted(stale)[:MOST_LEASES] if deadline <= now]

    async def leases(self, prefix: str = "") -> list[tuple[str, int]]:
        with self._lock:
            found = [(name, lease.renewal) for name, lease in self._leases.items() if name.startswith(prefix)]
            return sorted(found)[:MOST_LEASES]

    async def bury(self, process: str, renewal: int) -> bool:
        with self._lock:
            lease = self._leases.get(process)
            if lease is not None and lease.renewal != renewal:
                return False
            lost = self._bury(process) if lease is not None else None
        if lost is not None:
            call_guarded(lost)
        return True

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        check_seconds(lease, "a lease")
        # The lease cannot be lost: nothing comes between a process and its own memory.
        with self._lock:
            is_lost = not self._renew(process, math.inf)
            if not is_lost:
                self._kept[process] = lost
        if is_lost:
            call_guarded(lost)

        def stop() -> None:
            with self._lock:
                if self._kept.pop(process, None) is not None:
                    self._renew(process, lease)

        return stop

    def _renew(self, process: str, lease: float) -> bool:
        if process in self._buried:
            return False
        known = self._leases.get(process)
        length = math.inf if process in self._kept else lease
        self._leases[process] = _Lease(1 if known is None else known.renewal + 1, self._clock() + length)
        return True

    def _bury(self, process: str) -> Callable[[], None] | None:
        now = self._clock()
        self._leases.pop(process, None)
        self._buried.setdefault(process, now)
        # Not `Expiring`: as in the other stores, a mark is removed by a later burial only.
        while self._buried and (
            len(self._buried) > MOST_BURIED or next(iter(self._buried.values())) <= now - BURIED_SECONDS
        ):
            self._buried.popitem(last=False)
        return self._kept.pop(process, None)

    # --- places ---

    def _place(self, key: str) -> Place | None:
        found = self._places.get(key)
        if isinstance(found, _Waiting):
            return Ready(found.kind, found.owner, max(found.since - self._clock(), 0.0))
        return found

    def _move(self, key: str, now: Place | None, place: Place | None) -> None:
        """Change the place of a task that is there."""
        if is_same_place(now, place):
            return
        self.forget(key)
        if isinstance(place, Ready):
            self._add(key, place)
        elif isinstance(place, Held):
            held = self._places[key] = Held(place.process, place.kind or (now.kind if now is not None else ""))
            self._held_counts[held.kind] += 1
            self._held.setdefault(place.process, set()).add(key)

    def _add(self, key: str, place: Ready) -> None:
        self._number += 1
        waiting = _Waiting(place.kind, place.owner, self._number, self._clock() + place.delay)
        self._places[key] = waiting
        self._ready_counts[place.kind] += 1
        insort(self._by_age, (waiting.since, waiting.number, key))
        if place.delay > 0:
            heapq.heappush(self._delays, (waiting.since, waiting.number, key))
        else:
            self._stand_in_line(key, waiting)

    def forget(self, key: str) -> None:
        """Take a task out of its place; also called by the `KV` for every value that it removes."""
        found = self._places.pop(key, None)
        if isinstance(found, Held):
            _count_less(self._held_counts, found.kind)
            held = self._held[found.process]
            held.discard(key)
            if not held:
                del self._held[found.process]
        elif found is not None:
            _count_less(self._ready_counts, found.kind)
            del self._by_age[bisect_left(self._by_age, (found.since, found.number, key))]
            if found.in_line:
                self._leave_line(key, found)

    def _check_room(self, most_ready: int | None) -> None:
        if most_ready is None or len(self._by_age) < most_ready:
            return
        self._sweep()
        if len(self._by_age) >= most_ready:
            raise queue_full()

    # --- lines ---

    def _stand_in_line(self, key: str, waiting: _Waiting) -> None:
        """Add a task to those of its owner. An owner and a kind that had none go to the end of the line."""
        owners = self._lines.setdefault(waiting.kind, OrderedDict())
        insort(owners.setdefault(waiting.owner, []), (waiting.number, key))
        waiting.in_line = True

    def _leave_line(self, key: str, waiting: _Waiting) -> None:
        owners = self._lines[waiting.kind]
        line = owners[waiting.owner]
        del line[bisect_left(line, (waiting.number, key))]
        if not line:
            del owners[waiting.owner]
        if not owners:
            del self._lines[waiting.kind]

    def _fill_lines(self) -> None:
        """Add tasks whose delay is over."""
        now = self._clock()
        steps = MOST_DUE
        while steps > 0 and self._delays and self._delays[0][0] <= now:
            _, number, key = heapq.heappop(self._delays)
            waiting = self._places.get(key)
            if isinstance(waiting, _Waiting) and waiting.number == number:
                self._stand_in_line(key, waiting)
                steps -= 1

    def _next(self, kinds: Collection[str], passing_over: Collection[str]) -> str | None:
        """Return the task whose turn it is; its kind and its owner go to the end of the line."""
        for kind, owners in self._lines.items():
            if kind in kinds:
                for owner, line in owners.items():
                    if owner not in passing_over:
                        self._lines.move_to_end(kind)
                        owners.move_to_end(owner)
                        return line[0][1]
        return None

    # --- reading ---

    def _held_by(self, process: str) -> list[str]:
        return sorted(self._held.get(process, ()), key=encode_name)

    def _tasks(self, keys: Iterable[str]) -> list[Task]:
        """Return tasks that have a place, as they are now."""
        places = self._places
        return [
            Task(key, self._kv._items[key][0], place.process if isinstance(place := places[key], Held) else "")
            for key in keys
        ]

    def _sweep(self) -> None:
        """Remove everything that has expired."""
        self._kv._sweep(len(self._kv._deadlines))


def _count_less(counts: Counter[str], kind: str) -> None:
    counts[kind] -= 1
    if not counts[kind]:
        del counts[kind]
