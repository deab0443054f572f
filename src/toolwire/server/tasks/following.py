"""The tasks that this process follows: it runs them, or their client or a listener is connected here.

A change of a record reaches them by this module: directly when this process made it, otherwise by a bell.

`Restoring` writes records again that the store has lost. A failover, or a crash of a store that saves its data every
second, loses the last changes. A store that evicts keys loses any of them. The process that runs a task, or has just
ended it, still has its record:

    in this process          in the store                       what is written
    a run                    nothing, or an earlier record      the record of the run, held by this process
    a run                    a record of another process        nothing: the run is stopped
    a recent end             nothing, an open record, damage    the end
    a call that waits        nothing, at two looks              the task, if it is idempotent; else its failure

Each write is a compare-and-set on the record that was read, so that a process that knows more wins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import msgspec

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import Record
from toolwire.server.subscriptions import Hub, Stream
from toolwire.server.tasks.bells import Bells
from toolwire.server.tasks.callers import TaskPermissions, task_of
from toolwire.server.tasks.ends import Ends
from toolwire.server.tasks.running_tasks import Followed, Run
from toolwire.server.tasks.task_records import Changed, NoRoom, Records, TasksUnreachable, decode_record, id_in, reached
from toolwire.stores import Held, LeaseLost, Place, Stores
from toolwire.wire.process_lease import Lease

FILTER: Final = "taskIds"
#: Notifications of one task for the client of another process that wait to be sent.
_MOST_UNSENT: Final = 100
# The notifications of a handler that another process passes on to the client.
_NOTIFICATIONS: Final[dict[str, type[t.Wire]]] = {
    "notifications/progress": t.ProgressNotificationParams,
    "notifications/message": t.LoggingMessageNotificationParams,
}


class _NotYet(Exception):
    """A record is missing, and the process that has its task may still write it."""


class FollowedTasks(Protocol):
    """The tasks of a server, as far as following them needs it."""

    records: Records
    ends: Ends
    permissions: TaskPermissions
    restoring: Restoring

    def over(self, run: Followed) -> None: ...

    def may_take(self) -> None: ...

    def doubt(self) -> None: ...

    async def restore(self) -> None:
        """Write again what the store may have lost."""

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class Following:
    """The tasks that this process follows, by their keys."""

    def __init__(self, stores: Stores, hub: Hub, tasks: FollowedTasks) -> None:
        self._hub = hub
        self._tasks = tasks
        self.bells: Bells = Bells(
            tasks.records.server,
            stores,
            changed=self.changed,
            told=self.told,
            may_take=self.may_take,
            missed=self.missed,
        )
        self._followed: dict[str, Followed] = {}
        # Tasks that listen streams of this process name, and those of them that none named at the last look.
        self._listened: set[str] = set()
        self._unnamed: set[str] = set()
        self._looking: set[str] = set()
        # Tasks that could not be looked at, or of whose changes this process is not told: the store did not answer.
        self._unseen: set[str] = set()
        self._unsent: dict[str, deque[tuple[str, bytes]]] = {}
        # Waiting tasks whose record was missing at the last look.
        self._missing: set[str] = set()
        self._is_restoring = self._must_restore = False

    # --- which tasks ---

    def add(self, followed: Followed) -> None:
        self._followed[followed.key] = followed

    def remove(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]

    def follow(self, run: Run) -> None:
        """Hear of the changes of a task that was accepted here, wherever it runs."""
        if run.is_task and run.key not in self._followed:
            self.add(run)
            self._look_soon(run.key)

    def all(self) -> list[Followed]:
        return list(self._followed.values())

    def runs(self) -> list[Run]:
        """Return the calls that are tasks: those that run here, and those that were accepted here."""
        return [each for each in self._followed.values() if isinstance(each, Run)]

    def held_keys(self) -> set[str]:
        """Return the tasks that this process holds, and those that it is about to hold."""
        return {run.key for run in self.runs() if run.process}

    def holds(self, key: str) -> bool:
        """Return whether this process holds a task, or is about to."""
        run = self._followed.get(key)
        return isinstance(run, Run) and run.process != ""

    def run(self, key: str) -> Run | None:
        """Return the run of a task that is followed here."""
        run = self._followed.get(key)
        return run if isinstance(run, Run) else None

    def accepted_here(self, key: str) -> Run | None:
        """Return the run of a task that was accepted in this process and waits to be taken."""
        run = self._followed.get(key)
        return run if isinstance(run, Run) and not run.process else None

    # --- changes ---

    async def spread(self, key: str, changed: Changed) -> Record | None:
        """Tell of a change that this process has made; return the record."""
        record = changed.record
        if changed.written and record is not None:
            self.tell(key, record)
            self.bells.wake(key)
            if key in self._listened:
                self._look_soon(key)
            await self.bells.ring(key, changed.process, record.process, record.origin, *changed.watchers)
        return record

    async def spread_damaged(self, key: str, record: Record) -> None:
        """Announce to all processes that this one has ended a damaged task."""
        self.tell(key, record)
        self.bells.wake(key)
        if key in self._listened:
            self._look_soon(key)
        await self.bells.ring_all(self._tasks.records.server, key)

    def tell(self, key: str, record: Record | None) -> None:
        """Tell what follows a task here how its record is now."""
        followed = self._followed.get(key)
        if followed is None or followed.created is None:
            return  # Its record is being written.
        followed.heard(record)
        if record is None or record.over:
            self._tasks.over(followed)

    def look_at_asking(self) -> None:
        """Look at the tasks whose handlers wait for an answer: its bell may have been lost."""
        for run in self.runs():
            if run.is_asking:
                self._look_soon(run.key)

    def look_at_unseen(self) -> None:
        """Look once more at the tasks that the store did not show when they were looked at."""
        unseen, self._unseen = self._unseen, set()
        for key in unseen:
            self._look_soon(key)
        if self._must_restore:
            self._must_restore = False
            self._tasks.in_background(self._restore())

    def changed(self, key: str) -> None:
        """Look at a task that another process has changed, if it is followed here or a listen stream names it."""
        if key in self._followed or key in self._listened:
            self._look_soon(key)

    def may_take(self) -> None:
        self._tasks.may_take()

    def missed(self) -> None:
        """Read all followed tasks anew: messages were lost, and perhaps changes of the store."""
        if not self._is_restoring:
            self._is_restoring = True
            self._tasks.in_background(self._restore())
        for key in {*self._followed, *self._listened}:
            self._look_soon(key)
        self._tasks.doubt()
        self._tasks.may_take()

    async def _restore(self) -> None:
        self._is_restoring = False
        try:
            await self._tasks.restore()
        except (TasksUnreachable, NoRoom):
            self._must_restore = True

    def _look_soon(self, key: str) -> None:
        if key not in self._looking:
            self._looking.add(key)
            self._tasks.in_background(self._look(key))

    async def _look(self, key: str) -> None:
        self._looking.discard(key)
        try:
            record = await self._tasks.records.find(key)
            followed = self._followed.get(key)
            if isinstance(followed, Run) and (record is None or not record.over):
                record = await self._restored(followed, record)
            if record is not None and key in self._listened:
                record = await self.watch(key, record)
        except (TasksUnreachable, NoRoom, _NotYet):
            self._unseen.add(key)
            return
        except rules.Unreadable:
            return
        self.tell(key, record)
        listeners = self._listeners(id_in(key))
        if record is not None and listeners:
            permissions = self._tasks.permissions
            params = self._params(record)
            for stream in listeners:
                if await permissions.of(stream.call, [task_of(record)]) == ["usable"]:
                    masked = permissions.mask(stream.call, record)
                    shown = params if masked is record else self._params(masked)
                    stream.tell(Change(FILTER, record.id, "notifications/tasks", shown))

    def _params(self, record: Record) -> FrozenParams:
        worded = self._tasks.ends.in_words_of(MODERN, record)
        task = rules.detailed_task(worded, t.TaskNotificationParams, time.time())
        return FrozenParams(msgspec.json.decode(msgspec.json.encode(task)))

    async def _restored(self, run: Run, record: Record | None) -> Record | None:
        """Return the record of a followed task. Restore it first if the store lost it."""
        if run.process:
            if (record is None or record.process != run.process) and await self._tasks.restoring.restore_run(run):
                return None if run.data is None else decode_record(run.key, run.data)
        elif record is None and run.is_task and run.data is not None:
            # A process that has taken it comes first.
            if run.key not in self._missing:
                self._missing.add(run.key)
                raise _NotYet
            self._missing.discard(run.key)
            record = await self._tasks.restoring.restore_waiting(run)
            self._tasks.may_take()
        return record

    def _listeners(self, identifier: str) -> list[Stream]:
        return [each for each in self._hub.streams if identifier in each.extra.get(FILTER, ())]

    # --- changes by other processes ---

    async def listen(self, key: str, record: Record) -> None:
        """Tell the listen streams of this process of a task, until `forget_streams` finds that none names it."""
        self._listened.add(key)
        await self.watch(key, record)

    def forget_streams(self) -> None:
        """Stop hearing of tasks that no listen stream names any more."""
        unnamed = {key for key in self._listened if not self._listeners(id_in(key))}
        # The stream is there a moment after its tasks are.
        self._listened -= unnamed & self._unnamed
        self._unnamed = unnamed & self._listened

    async def watch(self, key: str, record: Record) -> Record | None:
        """Have this process told of the changes of a task from now on; return the record.

        The store may not take this now. Then the task is looked at again after a while.
        """
        if self.is_told(record):
            return record
        watcher, now = self.bells.watcher(), record
        try:
            edit = lambda record: rules.watch(record, watcher)  # noqa: E731
            changed = await self._tasks.records.change(key, edit, is_news=False)
        except (LeaseLost, NoRoom):
            pass
        else:
            if changed.record is None:
                return None
            now = changed.record
            if rules.EVERY_PROCESS in now.watchers:
                self.bells.watch_with_everybody()
        if not self.is_told(now):
            self._unseen.add(key)
        return now

    def is_told(self, record: Record) -> bool:
        """Return whether this process is told of all changes that come."""
        process, watchers = self.bells.process, record.watchers
        if record.over or (process and process in (record.process, record.origin)):
            return True
        if rules.EVERY_PROCESS in watchers and self.bells.watches_with_everybody:
            return True
        return bool(watchers) and self.bells.watcher() in watchers

    # --- notifications for the client of another process ---

    def pass_on(self, run: Run, method: str, params: t.Wire) -> bool:
        """Have the process that accepted the call tell the client something."""
        unsent = self._unsent.get(run.key)
        message = (method, msgspec.json.encode(shape(params, run.revision)))
        if unsent is not None:
            if len(unsent) >= _MOST_UNSENT:
                unsent.popleft()
            unsent.append(message)
        else:
            # One after the other, because progress rises (PRG-1).
            self._unsent[run.key] = deque([message])
            self._tasks.in_background(self._send(run.key, run.origin))
        return True

    async def _send(self, key: str, origin: str) -> None:
        unsent = self._unsent[key]
        try:
            while unsent:
                await self.bells.tell(origin, key, *unsent.popleft())
        finally:
            self._unsent.pop(key, None)

    def told(self, key: str, method: str, params: Any) -> None:
        """Pass a notification on to the client that made a task here."""
        followed, type_ = self._followed.get(key), _NOTIFICATIONS.get(method)
        if followed is None or followed.created is None or type_ is None:
            return
        if followed.may_tell(followed.created):
            followed.notify(method, t.decode(type_, params))


log: logging.Logger = logging.getLogger("toolwire.tasks")

#: How often a write is tried again because the record was changed meanwhile.
_ATTEMPTS: Final = 8


class Restoring:
    """Writes records of this process again."""

    def __init__(self, stores: Stores, records: Records, lease: Lease) -> None:
        self._stores = stores
        self._records = records
        self._lease = lease

    async def restore_run(self, run: Run) -> bool:
        """Write the record and place of a running task. Return whether this process holds it."""
        if run.data is None or not run.process or run.process != self._lease.name:
            return False
        if self._records.recent_end(run.key) is not None:
            return False
        kind = self._records.kind(run.key, decode_record(run.key, run.data))
        for _ in range(_ATTEMPTS):
            present = await reached(self._stores.kv.get(run.key))
            stored = None if present is None else decode_record(run.key, present)
            chosen = rules.choose_record(decode_record(run.key, run.data), stored)
            if chosen is None:
                return False
            data = rules.encode(chosen)
            if await self._write(run.key, data, present, chosen, Held(run.process, kind), run.process):
                if data != present:
                    log.warning("the store had lost the last changes of the task %s, which runs here", id_in(run.key))
                run.data = data
                return True
        return False

    async def restore_end(self, key: str, data: bytes, seconds: float) -> bool:
        """Write a lost end, kept for `seconds`. Return whether the store has this end."""
        for _ in range(_ATTEMPTS):
            present = await reached(self._stores.kv.get(key))
            if present == data:
                return True
            if present is not None and _is_over(key, present):
                return False
            written = self._stores.queue.change(key, data, ttl=seconds, expect=present, place=None)
            if await reached(written) is None:
                log.warning("the store had lost the end of the task %s, which ran here", id_in(key))
                return True
        return False

    async def restore_ends(self) -> None:
        """Write all recent ends of this process that the store has lost."""
        for key, data, seconds in self._records.recent_ends():
            if not await self.restore_end(key, data, seconds):
                self._records.drop_recent_end(key)

    async def restore_waiting(self, run: Run) -> Record | None:
        """Write a lost task that was accepted here and waits. Return its record."""
        if run.data is None or run.process:
            return None
        record = decode_record(run.key, run.data)
        rules.lose_waiting(record)
        place = self._records.place(run.key, record)
        if not await self._write(run.key, rules.encode(record), None, record, place):
            return None
        log.warning("the store had lost the task %s, which was accepted here", id_in(run.key))
        return record

    async def _write(
        self, key: str, data: bytes, present: bytes | None, record: Record, place: Place | None, process: str = ""
    ) -> bool:
        ttl = self._records.kept(record)
        change = self._stores.queue.change
        try:
            return await reached(change(key, data, ttl=ttl, expect=present, place=place)) is None
        except LeaseLost:
            # The lease may be lost with the last changes. One that was taken away is not given again.
            if not process or not await reached(self._stores.queue.renew(process, self._lease.seconds)):
                return False
            return await reached(change(key, data, ttl=ttl, expect=present, place=place)) is None


def _is_over(key: str, data: bytes) -> bool:
    """Return whether a stored record is an end; False for a damaged one."""
    try:
        return decode_record(key, data).over
    except rules.Unreadable:
        return False
