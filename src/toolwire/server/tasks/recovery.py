"""Recovery: the tasks of processes that are gone, tasks that no process takes, and records without a place.

`Watcher` looks every third of a lease. It takes leases away that are lost, and looks after the tasks of their
processes.

`Repair` compares the records of tasks with their places in the queue. The queue is an index over the records. A store
that loses a key of it leaves tasks that are "working" and that no process runs. One process of a fleet at a time goes
through all records, a page at each look of its watcher: every few minutes, and soon after the store lost something. Two
that do so at the same time do no harm, because each write is a compare-and-set.

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
from contextlib import suppress
from typing import Final

from msgspec import UNSET

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ToolwireError, counted
from toolwire.protocol.tasks import Record
from toolwire.server.tasks.admission import no_slot
from toolwire.server.tasks.dead_letters import DeadLetters
from toolwire.server.tasks.parts import TaskCounts
from toolwire.server.tasks.service import TaskService
from toolwire.server.tasks.task_records import (
    AT_ONCE,
    PREFIX,
    NoRoom,
    decode_record,
    is_worker,
    kind_of,
    reached,
    server_of,
    skip_task,
)
from toolwire.stores import LeaseLost, Place, StoreFull, Stores, Task
from toolwire.wire.process_lease import LOOKS_PER_LEASE, Lease, Sightings

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: The first pause before a task is run again; it doubles with each attempt, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: Processes that have the tool of a task say that no slot was free in time. Others wait for this long after that.
_GRACE_SECONDS: Final = 60.0
_READY: Final = ("put back", "run again")
#: How many keys of its own tasks a process compares at once.
_HELD_AT_ONCE: Final = 1000


class Watcher:
    """Looks every third of a lease."""

    def __init__(
        self,
        tasks: TaskService,
        stores: Stores,
        lease: Lease,
        letters: DeadLetters,
        counts: TaskCounts,
    ) -> None:
        self._tasks = tasks
        self._stores = stores
        self._lease = lease
        self._letters = letters
        self._counts = counts
        self._sightings = Sightings(lease.seconds)
        self._looks = 0
        self._doubts = False
        self.repair: Repair = Repair(tasks, stores, lease, self._lose_placeless)

    async def watch(self, beat: Callable[[], Awaitable[None]]) -> None:
        """Look again and again; `beat` is called before each look."""
        while True:
            try:
                await beat()
                await self.look()
            except ToolwireError as error:
                # The store may be back at the next look.
                self._doubts = True
                self._sightings.forget()
                log.error("the tasks could not be looked after: %s", error)
            except Exception:
                self._sightings.forget()
                log.exception("looking after the tasks failed")
            await asyncio.sleep(self._sightings.interval)

    async def look(self) -> None:
        """Take leases away that are lost, and look after the tasks that nobody runs."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self._counts.leases_lost += await self._lease.end_those_of_the_dead()
        stale = await self._stores.queue.stale()
        for process, renewal in self._sightings.lost(began, clock(), stale):
            if process == self._lease.name or not await self._stores.queue.bury(process, renewal):
                continue
            if not is_worker(process):
                log.warning("the process %s is gone: its lease was not renewed", process)
                self._counts.leases_lost += 1
        await self._adopt_orphans()
        await self._adopt_own()
        await self._give_up_waiting()
        await self.repair.step()

    def doubt(self) -> None:
        """Note that the store may know something of this process that the process does not know."""
        self._doubts = True

    # --- tasks of processes that are gone ---

    async def _adopt_orphans(self) -> None:
        adopted: set[rules.Loss | None] = {"over"}
        before: list[Task] = []
        while adopted != {None} and (orphans := await self._stores.queue.orphans(AT_ONCE)):
            if orphans == before:
                break  # They do not change: the next look tries again.
            before = orphans
            losses = await asyncio.gather(*map(self._adopt, orphans))
            adopted = {*losses}
            ready = {server_of(task.key) for task, loss in zip(orphans, losses, strict=True) if loss in _READY}
            await self._tasks.become_ready(ready)

    async def _adopt_own(self) -> None:
        """Look after tasks that the store says this process holds, and that it does not know.

        The answer that brought such a task was lost, or a failover of the store has lost the write of its end. All
        tasks are compared when an answer was lost. Their number is compared now and then.
        """
        self._looks += 1
        process, is_time = self._lease.name, self._looks % LOOKS_PER_LEASE == 0
        if not process or not (self._doubts or (is_time and await self._are_more_held(process))):
            return
        # An error on the way leaves the doubts for the next look.
        self._doubts = True
        self._doubts = not await self._adopt_unknown(process)

    async def _are_more_held(self, process: str) -> bool:
        """Return whether the store knows of more tasks of this process than the process does."""
        before = len(self._tasks.held_keys())
        number, _ = await self._stores.queue.held(process, limit=0)
        # A task is known here before the store has it, and for a moment longer.
        return number > max(before, len(self._tasks.held_keys()))

    async def _adopt_unknown(self, process: str) -> bool:
        """Compare all tasks that this process holds; return False where that has to be done again."""
        after = ""
        while True:
            takes = self._tasks.takes
            _, keys = await self._stores.queue.held(process, after=after, limit=_HELD_AT_ONCE)
            unknown = [key for key in keys if not self._tasks.holds(key)]
            if unknown and (takes[1] or self._tasks.takes != takes):
                return False  # The answer to a take that was under way meanwhile may bring them.
            values = await asyncio.gather(*map(self._stores.kv.get, unknown))
            for key, value in zip(unknown, values, strict=True):
                if value is None or self._tasks.holds(key) or await self._is_ended_here(key):
                    continue
                if await self._adopt(Task(key, value, process), holder=process) in _READY:
                    await self._tasks.become_ready({server_of(key)})
            if len(keys) < _HELD_AT_ONCE:
                return True
            after = keys[-1]

    async def _is_ended_here(self, key: str) -> bool:
        """Return whether this process ended a task. Restore its end if the store lost it."""
        tasks = self._tasks
        for each, data, seconds in tasks.records.recent_ends():
            if each == key:
                return await tasks.restoring.restore_end(key, data, seconds)
        return False

    async def _lose_placeless(self, task: Task, is_own: bool) -> bool:
        """Decide on a lost task without a place. Return whether it is ready."""
        loss = await self._adopt(task, is_placed=False, is_own=is_own)
        return loss in _READY

    async def _adopt(
        self, task: Task, holder: str = "", *, is_placed: bool = True, is_own: bool = False
    ) -> rules.Loss | None:
        """Put back, fail or give up a lost task. Return None if that failed.

        A process that lives and does not know its task has lost no attempt.
        """
        key = task.key
        is_own = is_own or holder != ""
        orphan_of = task.process if is_placed and not holder else ""
        try:
            record = decode_record(task.key, task.value)
            attempt, call = record.attempt, record.call
            # The limit of the process that accepted it: another server may share the store.
            attempts = (0 if call is UNSET else call.attempts) or self._tasks.limits.task_attempts
            loss = rules.lose_lease(record, attempts, counts=not is_own)
            if loss == "dead" and call is not UNSET:
                # First the letter and then the end, so that a process that ends in between loses neither.
                await self._letters.keep(key, decode_record(task.key, task.value))
            delay = min(FIRST_PAUSE * 2.0 ** (attempt - 1), LONGEST_PAUSE) if loss == "run again" else 0.0
            await self._tasks.change(
                key,
                lambda record: rules.lose_lease(record, attempts, counts=not is_own) != "over",
                last=task.value,
                holder=holder,
                orphan_of=orphan_of,
                delay=delay,
            )
        except LeaseLost:
            return "over"  # Another process was faster.
        except rules.Unreadable:
            await self._drop(task, holder)
            return "over"
        except NoRoom:
            return None
        except Exception as error:
            skip_task(key, error)
            return None
        if loss == "run again":
            self._counts.retried += 1
        elif loss == "failed" and record.heartbeat:
            log.warning("the task %s failed: its worker did not report for %g seconds", record.id, record.heartbeat)
        elif loss == "dead":
            log.error("the task %s is given up after %d attempts", record.id, attempt)
            self._counts.dead += 1
        return loss

    async def _drop(self, task: Task, holder: str = "") -> None:
        """End a task whose record cannot be read, so that it cannot be run."""
        orphan_of = "" if holder else task.process
        with suppress(LeaseLost, NoRoom):
            await self._tasks.end_damaged(task.key, self._tasks.limits.task_ttl, holder=holder, orphan_of=orphan_of)

    # --- tasks that nobody takes ---

    async def _give_up_waiting(self) -> None:
        own = self._tasks.limits.task_wait
        waiting = await self._stores.queue.waiting(own, AT_ONCE)
        kinds = set(self._tasks.kinds()) if waiting else set()
        late = {own: {task.key for task in waiting}}
        for task in waiting:
            kind, seconds = _kind_and_wait(task)
            seconds, is_foreign = seconds or own, kind not in kinds
            # Processes that have the tool decide first.
            limit = seconds + _GRACE_SECONDS if is_foreign else max(seconds, own)
            if limit not in late:
                late[limit] = {each.key for each in await self._stores.queue.waiting(limit, AT_ONCE)}
            if task.key in late[limit]:
                await self._give_up(task, _no_tool(kind, seconds) if is_foreign else no_slot(seconds))

    async def _give_up(self, task: Task, failure: ProtocolError) -> None:
        def edit(record: Record) -> bool:
            return not record.process and record.call is not UNSET and rules.fail(record, failure)

        try:
            await self._tasks.change(task.key, edit, last=task.value)
        except rules.Unreadable:
            await self._drop(task)
        except Exception as error:
            skip_task(task.key, error)


def _no_tool(kind: str, seconds: float) -> ProtocolError:
    tool, within = kind.partition(":")[2], counted(seconds, "second")
    return ProtocolError(INTERNAL_ERROR, f"No server process that has the tool {tool} took this task within {within}")


def _kind_and_wait(task: Task) -> tuple[str, float]:
    """Return the kind of a task and how long it may wait; nothing where its record does not say it."""
    try:
        call = decode_record(task.key, task.value).call
    except rules.Unreadable:
        return "", 0.0
    return ("", 0.0) if call is UNSET else (kind_of(server_of(task.key), call.kind), call.wait)


#: Records that are compared at one look, and values that are read at once.
_PAGE: Final = 200
_AT_ONCE: Final = 50
#: Seconds between two rounds of this process where nothing seems wrong, and between two rounds of a fleet at least.
ROUND_SECONDS: Final = 300.0
CLAIM_SECONDS: Final = 60.0
_CLAIM: Final = "toolwire:task-repair2"
#: How many tasks that are over are remembered, so that their results are not read again.
_MOST_OVER: Final = 20_000


# --- records and their places ----------------------------------------------------------------------------------------


class Repair:
    """The comparison rounds of this process."""

    def __init__(
        self, tasks: TaskService, stores: Stores, lease: Lease, lose: Callable[[Task, bool], Awaitable[bool]]
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
        self._claimed_at: float | None = None
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
        now = asyncio.get_running_loop().time()
        # A store that lost deadlines keeps a claim for longer. The process that made it knows when it is over.
        is_own_over = self._claimed_at is not None and now - self._claimed_at >= CLAIM_SECONDS
        with contextlib.suppress(StoreFull):
            if not await self._stores.kv.put(_CLAIM, b"1", ttl=CLAIM_SECONDS, if_absent=not is_own_over):
                return False
        self._claimed_at = now
        return True  # Also where a full store has no room for claims.

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
