"""The records of tasks in the stores.

A record is the whole truth about its task. Its place in the queue follows from it, and both change in one step. The key
begins with the owner, so that a task of another owner is not found rather than refused. `Quota` counts the tasks of
each owner.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from msgspec import UNSET, Struct

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.tasks import Record
from toolwire.server.limits import Limits
from toolwire.stores import Held, LeaseLost, Place, QueueFull, Ready, StoreFull, Stores
from toolwire.util.expiring import Expiring
from toolwire.wire.shares import Caller, StorageBudget

log: logging.Logger = logging.getLogger("toolwire.tasks")

T = TypeVar("T")
_ATTEMPTS: Final = 64
#: How long this process keeps the record of a task that it has ended, how many, and how many bytes of them.
_RECENT_SECONDS: Final = 30.0
_RECENT_ENDS: Final = 1000
_RECENT_BYTES: Final = 4 * 1024 * 1024
#: Records that are read at once.
AT_ONCE: Final = 200
#: Records of the version before begin with `toolwire:task:`. Processes of each version leave those of the other alone.
PREFIX: Final = "toolwire:task2:"
#: Begins the keys under which the owners of the host's tasks are found by the ids of these.
_OWNERS: Final = "toolwire:task-owner2:"
#: Begins the leases of workers, one for each task with a heartbeat. The names of processes begin with their machine.
_WORKERS: Final = "worker/"


class NoRoom(ProtocolError):
    """The store is full."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "There is no room for this task now; try again later")


class TasksUnreachable(ProtocolError):
    """The store failed, and perhaps it did what it was asked to."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "The tasks cannot be reached now; try again later")


class TaskUnconfirmed(ProtocolError):
    """The store may have a new task that waits, so any process may run it."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "The store did not confirm the task; it may have been accepted, and may run")


class Changed(NamedTuple):
    """The outcome of a change."""

    record: Record | None
    """The record as it is now; None for a task that is no longer there."""
    written: bool
    """Whether the edit changed anything."""
    process: str = ""
    """The process that held the task before."""
    data: bytes = b""
    """The record as it was read or written last."""
    watchers: Sequence[str] = ()
    """The processes that watched the task before."""


def short_name(server: str) -> str:
    """Return the short name of a server, which the keys of its tasks have. One store may serve several."""
    return digest(server)[:16]


def longest_pause(limits: Limits) -> float:
    """Return how many seconds may pass between two changes of a task that is not over.

    A task that waits to be started, or is out of its time, gets some more to end.
    """
    return limits.task + limits.task_wait + limits.state


def server_of(key: str) -> str:
    """Return the short name of the server that a task belongs to."""
    return key[len(PREFIX) :].partition(":")[0]


def owner_in(key: str) -> str:
    """Return the owner of a task."""
    return key[len(PREFIX) :].partition(":")[2].rpartition(":")[0]


def id_in(key: str) -> str:
    return key.rpartition(":")[2]


def decode_record(key: str, data: bytes) -> Record:
    """Read the record under a key; raise `Unreadable` if it is damaged or another task's."""
    return rules.decode(data, id_in(key))


def worker_of(identifier: str) -> str:
    """Return the name of the lease that the worker of a task renews."""
    return _WORKERS + identifier


def is_worker(process: str) -> bool:
    """Return whether a lease belongs to a worker, and not to a server process."""
    return process.startswith(_WORKERS)


@lru_cache(maxsize=1024)
def kind_of(server: str, tool: str) -> str:
    """Return the kind of task that the calls of a tool are, in the queue."""
    return f"{server}:{tool}"


def by_tool(server: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts of kinds as those of the tools of one server."""
    start = kind_of(server, "")
    return {kind.removeprefix(start): number for kind, number in counts.items() if kind.startswith(start)}


def skip_task(key: str, error: Exception) -> None:
    """Log why one task is left to the next look; raise a failure of the store, which concerns all tasks."""
    if isinstance(error, ToolwireError):
        raise error
    log.error("the task %s is left to the next look", id_in(key), exc_info=error)


class _RecentEnds:
    """The records of tasks that this process has ended a moment ago, for the clients that poll for their results.

    A record that is over never changes again, so it need not be read once more. The store may lose it: then it is
    written again from here.
    """

    def __init__(self) -> None:
        # When each ended, until when polls are answered from here, for how many seconds the store keeps it.
        self._kept: Expiring[str, tuple[float, float, float, bytes]] = Expiring(
            _RECENT_ENDS, max_weight=_RECENT_BYTES, weigh=lambda kept: len(kept[3])
        )

    def add(self, key: str, data: bytes, seconds: float) -> None:
        """Keep a record for some seconds, which is not longer than the store keeps it."""
        now = time.time()
        self._kept.put(key, (now, now + min(seconds, _RECENT_SECONDS), seconds, data))

    def get(self, key: str) -> bytes | None:
        found = self._kept.get(key)
        if found is None:
            return None
        ended, until, _, data = found
        # A clock that was set back says nothing.
        return data if ended <= time.time() < until else None

    def all(self) -> list[tuple[str, bytes, float]]:
        """Return all kept records, each with the seconds that are left of its time."""
        now = time.time()
        return [(key, data, kept - max(now - ended, 0.0)) for key, (ended, _, kept, data) in self._kept.items()]

    def find(self, key: str) -> bytes | None:
        found = self._kept.get(key)
        return None if found is None else found[3]

    def drop(self, key: str) -> None:
        self._kept.pop(key)

    def clear(self) -> None:
        self._kept.clear()


class Records:
    """All tasks of one server."""

    def __init__(self, server: str, stores: Stores, longest: float) -> None:
        """Keep the records of the server with this short name in `stores`; for `longest`, see `longest_pause`."""
        self.server: str = server
        self.prefix: str = f"{PREFIX}{server}:"
        self._stores = stores
        self._longest = longest
        self._recent = _RecentEnds()
        # The ends that are being written: a poll waits for them, and need not read the record.
        self._ending: dict[str, asyncio.Future[None]] = {}

    def key(self, owner: str, identifier: str) -> str:
        return f"{self.prefix}{owner}:{identifier}"

    def new_id(self, now: float, rest: str = "") -> str:
        """Return the id of a task that is made now; `rest` is the part that nobody can guess, if it is known."""
        # The time comes first, so that the order of the keys is that of their making.
        return f"{int(now * 1000):012x}-{rest or secrets.token_urlsafe(18)}"

    def kept(self, record: Record) -> float:
        """Return how long the store keeps a record from a change on, by its own clock.

        A record that is over is kept for its ttl, and never changes again. Any other is kept for longer than the task
        may run.
        """
        return record.ttl_ms / 1000 + (0.0 if record.over else record.longest or self._longest)

    @staticmethod
    def kind(key: str, record: Record) -> str:
        """Return the kind that a task is counted under while a process holds it."""
        return kind_of(server_of(key), record.tool)

    @classmethod
    def place(cls, key: str, record: Record, delay: float = 0.0) -> Place | None:
        """Return the place in the queue that a record implies; None without one."""
        if record.over:
            return None
        if record.process:
            return Held(record.process, cls.kind(key, record))
        if record.call is UNSET:
            return None  # The host drives it.
        return Ready(kind_of(server_of(key), record.call.kind), record.call.line or owner_in(key), delay)

    # --- owners by id ---

    async def write_owner(self, identifier: str, owner: str, seconds: float) -> None:
        """Index a task by its id alone, for so many seconds, for all processes."""
        await reached(self._stores.kv.put(f"{_OWNERS}{self.server}:{identifier}", owner.encode(), ttl=seconds))

    async def find_key(self, identifier: str) -> str | None:
        """Return the key of a host's task by its id; None for an unknown task."""
        owner = await reached(self._stores.kv.get(f"{_OWNERS}{self.server}:{identifier}"))
        return None if owner is None else self.key(owner.decode(errors="replace"), identifier)

    # --- one record ---

    async def create(self, key: str, record: Record, most_ready: int | None = None) -> bytes:
        """TSK-7: when this returns, everybody can find the task. Return the record as it was written.

        `QueueFull` is raised when there are `most_ready` tasks that wait to be taken, and this would be one of them.
        """
        data, place = rules.encode(record), self.place(key, record)
        written = self._stores.queue.change(
            key, data, ttl=self.kept(record), expect=None, place=place, most_ready=most_ready
        )
        try:
            present = await reached(written)
        except LeaseLost:
            raise TasksUnreachable from None  # This process takes another name, and the next call gets through.
        if present is not None:
            raise TasksUnreachable  # Nobody guesses an id, so the store is not what it should be.
        return data

    async def find(self, key: str) -> Record | None:
        if (ending := self._ending.get(key)) is not None:
            await asyncio.shield(ending)
        data = self._recent.get(key) or await reached(self._stores.kv.get(key))
        return None if data is None else decode_record(key, data)

    def error_for_missing(self) -> ProtocolError:
        """Return what the caller gets whose task is not in the store."""
        # After a failover the process that runs the task may be about to write it again.
        return TasksUnreachable() if self._stores.may_lack_writes() else rules.unknown_task()

    def recent_ends(self) -> list[tuple[str, bytes, float]]:
        """Return recent ends written by this process, each with the seconds left of its time."""
        return [(key, data, seconds) for key, data, seconds in self._recent.all() if seconds > 0]

    def recent_end(self, key: str) -> bytes | None:
        """Return a recent end that this process wrote; None if it is not remembered."""
        return self._recent.find(key)

    def drop_recent_end(self, key: str) -> None:
        self._recent.drop(key)

    async def change(
        self,
        key: str,
        edit: Callable[[Record], bool],
        *,
        last: bytes | None = None,
        holder: str = "",
        orphan_of: str = "",
        delay: float = 0.0,
        is_news: bool = True,
    ) -> Changed:
        """Apply an edit to the record as it is now, whatever others do to it meanwhile.

        `last` is what the record probably is, so that it need not be read first. `LeaseLost` is raised when `holder` is
        given and does not hold the task any more, or when `orphan_of` does. A task that waits to be taken is taken
        after `delay` seconds at the earliest. A change that `is_news` moves the time that clients see as the last one.
        """
        data, is_known = last, False
        for _ in range(_ATTEMPTS):
            if data is None:
                data, is_known = await reached(self._stores.kv.get(key)), True
            if data is None:
                return Changed(None, False)
            record = decode_record(key, data)
            process, watchers = record.process, record.watchers
            if not edit(record):
                if is_known:
                    return Changed(record, False, process, data)
                data = None  # The record may have changed since.
                continue
            if is_news:
                record.updated = max(record.updated, time.time())
            after = rules.encode(record)
            writing = self._stores.queue.change(
                key,
                after,
                ttl=self.kept(record),
                expect=data,
                place=self.place(key, record, delay),
                holder=holder,
                orphan_of=orphan_of,
            )
            data, is_known = await (self._end(key, record, after, writing) if record.over else reached(writing)), True
            if data is None:
                return Changed(record, True, process, after, watchers)
            data = data or None  # No record, or an empty one, which is damaged: reading it tells.
        raise ProtocolError(INTERNAL_ERROR, "Too many changes at once; try again")

    async def end_damaged(self, key: str, seconds: float, *, holder: str = "", orphan_of: str = "") -> Record | None:
        """Replace a damaged record by a failed end. Return None if another process changed it.

        `seconds` is how long the end is kept. `LeaseLost` is raised as `change` does.
        """
        data = await reached(self._stores.kv.get(key))
        if data is None:
            return None
        try:
            decode_record(key, data)
            return None
        except rules.Unreadable:
            log.warning("the record of a task cannot be read, so the task has failed: %s", key)
        record = rules.damaged_record(id_in(key), time.time(), int(seconds * 1000))
        written = self._stores.queue.change(
            key, rules.encode(record), ttl=seconds, expect=data, place=None, holder=holder, orphan_of=orphan_of
        )
        return record if await reached(written) is None else None

    async def _end(self, key: str, record: Record, data: bytes, writing: Awaitable[bytes | None]) -> bytes | None:
        """Write the end of a task as `reached` does, and keep it for the polls that come now."""
        written = self._ending[key] = asyncio.get_running_loop().create_future()
        try:
            present = await reached(writing)
            if present is None:
                self._recent.add(key, data, record.ttl_ms / 1000)
        finally:
            if self._ending.get(key) is written:
                del self._ending[key]
            written.set_result(None)
        return present

    # --- many of them ---

    async def ids(self, owner: str, after: str = "", limit: int = AT_ONCE) -> list[str]:
        """Return the ids of an owner's tasks after one of them, in the order of their making."""
        start = self.key(owner, "")
        found = await reached(self._stores.kv.keys(start, after=f"{start}{after}", limit=limit))
        return [key.removeprefix(start) for key in found]


async def reached(operation: Awaitable[T]) -> T:
    """Return the answer of a store; its troubles go to the log, and to no client."""
    try:
        return await operation
    except (QueueFull, LeaseLost, ProtocolError):
        raise
    except StoreFull:
        raise NoRoom from None
    except ToolwireError as error:
        log.error("the store of the tasks failed: %s", error)
        raise TasksUnreachable from None


# How long an owner who has too many is refused before their tasks are counted again.
_REFUSED_SECONDS: Final = 1.0
_MOST_OWNERS: Final = 10_000


class _Count(Struct):
    exact: int = 0
    """The number of tasks that the store had at the last count."""
    added: int = 0
    """Tasks that this process has created since."""
    reserved: int = 0
    """Calls of this process that may become tasks."""
    refused_until: float = 0.0
    is_known: bool = False

    @property
    def total(self) -> int:
        return self.exact + self.added + self.reserved


class Reservation:
    """A place among the tasks of an owner, for a call that may become a task."""

    __slots__ = ("_budget", "_count", "_number")

    def __init__(self, count: _Count, budget: StorageBudget, number: int) -> None:
        """`number` is that of an address in the budget of callers without a principal; 0 for all others."""
        self._count = count
        self._budget = budget
        self._number = number
        count.reserved += 1

    def release(self) -> None:
        """Give the place back: the call did not become a task."""
        self._count.reserved -= 1
        self._budget.release(self._number)

    def use(self, seconds: float) -> None:
        """Count the task that the call has become, which is kept for so many seconds."""
        self._count.reserved -= 1
        self._count.added += 1
        if self._number:
            self._budget.end_after(self._number, seconds)


class Quota:
    """Counts the tasks of each owner: exactly now and then, and in between what this process adds.

    A place is reserved before a handler starts. The task that comes of the call is counted instead of it.
    """

    def __init__(self, records: Records, limits: Limits) -> None:
        self._records = records
        self._most = limits.tasks
        self._counts: dict[str, _Count] = {}
        # Callers without a principal are one owner. This tells their addresses apart.
        self._unowned = StorageBudget(limits.tasks, limits.share)

    async def reserve(self, owner: str, address: Caller = None) -> Reservation:
        """Reserve a place among the tasks of an owner; raise -32603 if that is one too many.

        `address` tells callers apart who have no principal.
        """
        number = 0 if address is None else self._unowned.admit(address, 1)
        if address is not None and not number:
            raise too_many()
        count = self._counts.get(owner)
        if count is None:
            self._make_room()
            count = self._counts[owner] = _Count()
        # Reserve before the store is asked, so that calls which arrive meanwhile count this one.
        reservation = Reservation(count, self._unowned, number)
        try:
            if count.refused_until and count.refused_until > asyncio.get_running_loop().time():
                raise too_many()
            if not count.is_known or count.added >= max(self._most // 10, 1) or count.total > self._most:
                count.exact, count.added = len(await self._records.ids(owner, limit=self._most)), 0
                count.is_known = True
            if count.total > self._most:
                count.refused_until = asyncio.get_running_loop().time() + _REFUSED_SECONDS
                raise too_many()
        except BaseException:
            reservation.release()
            raise
        return reservation

    def _make_room(self) -> None:
        if len(self._counts) >= _MOST_OWNERS:
            self._counts = {owner: count for owner, count in self._counts.items() if count.reserved}


def too_many() -> ProtocolError:
    """Return the refusal for an owner who has as many tasks as one may have."""
    return ProtocolError(INTERNAL_ERROR, "You have too many tasks; try again when some of them have expired")
