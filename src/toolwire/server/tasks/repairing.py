"""Compares the records of tasks with their places in the queue, and repairs differences.

The queue is an index over the records. A store that loses a key of it leaves tasks that are "working" and that no
process runs. One process of a fleet at a time goes through all records, a page at each look of its watcher: every few
minutes, and soon after the store lost something. Two that do so at the same time do no harm, because each write is a
compare-and-set.

    record                      its process          what is done
    waits to be taken           -                    it becomes ready
    held by a process           has a lease          it gets its place back; that process looks after it
    held by a process           is this one          its run is restored, or its end, or it counts as lost
    held by a process           has no lease         it counts as lost, after the length of a lease
    over, or of the host        -                    nothing: it has no place
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import counted
from toolwire.protocol.tasks import Record
from toolwire.server.tasks.following import Following
from toolwire.server.tasks.restoring import Restoring
from toolwire.server.tasks.task_records import PREFIX, Records, decode_record, reached, server_of, skip_task
from toolwire.stores import LeaseLost, Place, StoreFull, Stores, Task
from toolwire.wire.process_lease import LOOKS_PER_LEASE, Lease

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: Records that are compared at one look, and values that are read at once.
_PAGE: Final = 200
_AT_ONCE: Final = 50
#: Seconds between two rounds of this process where nothing seems wrong, and between two rounds of a fleet at least.
ROUND_SECONDS: Final = 300.0
CLAIM_SECONDS: Final = 60.0
_CLAIM: Final = "toolwire:task-repair2"
#: How many tasks that are over are remembered, so that their results are not read again.
_MOST_OVER: Final = 20_000


class Repaired(Protocol):
    """The tasks of a server, as far as the comparison needs them."""

    @property
    def records(self) -> Records: ...

    @property
    def restoring(self) -> Restoring: ...

    @property
    def following(self) -> Following: ...

    def holds(self, key: str) -> bool: ...

    async def become_ready(self, servers: set[str]) -> None: ...


class Repair:
    """The comparison rounds of this process."""

    def __init__(
        self, tasks: Repaired, stores: Stores, lease: Lease, lose: Callable[[Task, bool], Awaitable[bool]]
    ) -> None:
        """`lose` decides on a task without a place whose process is gone.

        It gets the task, and whether this process should hold it, and returns whether the task is ready now.
        """
        self._tasks = tasks
        self._stores = stores
        self._lease = lease
        self._lose = lose
        self._is_wanted = False
        self._next_at: float | None = None
        self._looks = 0
        self._evicted = 0
        # The key after which the next page begins; None between two rounds.
        self._index_after: str | None = None
        self._records_after: str | None = None
        self._mended = 0
        # When a task was first seen whose process has no lease, by its key: in this round, and in the one before.
        self._lost_since: dict[str, float] = {}
        self._lost_before: dict[str, float] = {}
        self._over: set[int] = set()

    def want(self) -> None:
        """Begin a round soon: the store may have lost something."""
        self._is_wanted = True

    async def step(self) -> None:
        """Compare one page, if a round is under way or due."""
        now = asyncio.get_running_loop().time()
        if self._index_after is None and self._records_after is None:
            await self._watch_store()
            self._next_at = now + ROUND_SECONDS if self._next_at is None else self._next_at
            if not (self._is_wanted or now >= self._next_at) or not await self._claim():
                return
            self._is_wanted, self._next_at = False, now + ROUND_SECONDS
            self._index_after, self._mended = "", 0
            self._lost_since, self._lost_before = {}, self._lost_since
        if self._index_after is not None:
            after = await self._stores.queue.rebuild(self._index_after, _PAGE)
            self._index_after, self._records_after = (after, None) if after else (None, "")
        if self._records_after is not None:
            self._records_after = await self._compare(self._records_after, now)
            if self._records_after is None and self._mended:
                log.warning("the store had lost the places of %s; they are restored", counted(self._mended, "task"))

    async def _watch_store(self) -> None:
        self._looks += 1
        seen = self._stores.evictions()
        if seen is not None and seen.keys > self._evicted:
            self._evicted, self._is_wanted = seen.keys, True
        if self._looks % LOOKS_PER_LEASE == 0 and not self._is_wanted:
            self._is_wanted = await self._stores.queue.has_gaps()

    async def _claim(self) -> bool:
        """Return whether this process may begin a round now."""
        with contextlib.suppress(StoreFull):
            return await self._stores.kv.put(_CLAIM, b"1", ttl=CLAIM_SECONDS, if_absent=True)
        return True  # A full store has no room for claims.

    async def _compare(self, after: str, now: float) -> str | None:
        """Compare one page of records. Return where the next one begins; None at the end."""
        page = await self._stores.queue.places(PREFIX, after=after, limit=_PAGE)
        placeless = [key for key, place in page if place is None and hash(key) not in self._over]
        ready: set[str] = set()
        for start in range(0, len(placeless), _AT_ONCE):
            keys = placeless[start : start + _AT_ONCE]
            values = await asyncio.gather(*map(self._stores.kv.get, keys))
            for key, value in zip(keys, values, strict=True):
                try:
                    if value is not None and await self._mend(key, value, now):
                        ready.add(server_of(key))
                except Exception as error:
                    skip_task(key, error)
        await self._tasks.become_ready(ready)
        return page[-1][0] if len(page) == _PAGE else None

    async def _mend(self, key: str, value: bytes, now: float) -> bool:
        """Give a task its place back. Return whether it waits to be taken now."""
        try:
            record = decode_record(key, value)
        except rules.Unreadable:
            return False
        if record.over:
            if len(self._over) >= _MOST_OVER:
                self._over.clear()
            self._over.add(hash(key))
            return False
        place = self._tasks.records.place(key, record)
        if place is None:
            return False  # The host drives it.
        if record.process == self._lease.name:
            return await self._mend_own(Task(key, value, record.process))
        if record.process and not await self._has_lease(record.process):
            return await self._lose_later(Task(key, value, record.process), now)
        return await self._put(key, value, record, place) and not record.process

    async def _mend_own(self, task: Task) -> bool:
        key = task.key
        end = self._tasks.records.recent_end(key)
        if end is not None:
            return False  # It is being restored.
        run = self._tasks.following.run(key)
        if run is not None and run.process:
            self._mended += await self._tasks.restoring.restore_run(run)
            return False
        if self._tasks.holds(key):
            return False  # It arrives in this moment.
        return await self._lose(task, True)

    async def _lose_later(self, task: Task, now: float) -> bool:
        since = self._lost_before.get(task.key, now)
        if now - since < self._lease.seconds:
            self._lost_since[task.key] = since
            self._is_wanted = True
            return False
        return await self._lose(task, False)

    async def _has_lease(self, process: str) -> bool:
        return any(name == process for name, _ in await self._stores.queue.leases(process))

    async def _put(self, key: str, value: bytes, record: Record, place: Place) -> bool:
        ttl = self._tasks.records.kept(record)
        try:
            written = await reached(self._stores.queue.change(key, value, ttl=ttl, expect=value, place=place))
        except LeaseLost:
            return False
        self._mended += written is None
        return written is None
