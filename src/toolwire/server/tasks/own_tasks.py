"""Tasks of your own program: reports, heartbeats and ends, from any process.

`Tasks` is for a worker that has only the stores of the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

from msgspec import Struct

from toolwire.content import ToolResult
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ServerError, ToolwireError, UnknownTask
from toolwire.protocol.json_numbers import check_numbers
from toolwire.protocol.surrogates import encode_readable, is_encodable
from toolwire.protocol.tasks import Record
from toolwire.server.limits import Limits
from toolwire.server.tasks.bells import Ringer, link_of_processes
from toolwire.server.tasks.ends import Ends
from toolwire.server.tasks.task_records import (
    Records,
    TasksUnreachable,
    id_in,
    is_worker,
    longest_pause,
    owner_in,
    reached,
    short_name,
    worker_of,
)
from toolwire.stores import LeaseLost, Stores
from toolwire.stores.by_address import STORES_VARIABLE, open_stores, stores_of_environment
from toolwire.wire.threads import call_on

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: The longest time between two looks at a task that is worked on, in seconds. Bells announce changes before that.
_LOOK_SECONDS: Final = 5.0
_LOOKS_PER_HEARTBEAT: Final = 3


class HostTask(Struct, frozen=True):
    """A task that your program drives. Its id alone names it, also in another process."""

    id: str
    """The id, which clients know."""
    owner: str
    """The owner, as the store knows it."""


class TaskAccess(Protocol):
    """The tasks of one server in its stores."""

    records: Records
    ends: Ends
    stores: Stores
    result_revision: str
    """The revision that results are written for."""

    async def ready(self) -> None: ...

    async def change(self, key: str, edit: Callable[[Record], bool], /) -> Record | None: ...

    async def write_end(self, key: str, ending: Callable[[Record], bool], /) -> Record | None: ...


class OwnTasks(ABC):
    """Reports on tasks and ends them. A task is what `create` returned, or its id."""

    def __init__(self) -> None:
        self._worked_on: set[str] = set()

    @abstractmethod
    async def _locate(self, task: HostTask | str) -> tuple[TaskAccess, str]:
        """Return the tasks of the server of a task, and the key of the task."""

    async def get(self, task: HostTask | str) -> Record | None:
        """Return the task as it is now; None for one that has expired."""
        access, key = await self._locate(task)
        return await access.records.find(key)

    async def is_over(self, task: HostTask | str) -> bool:
        """Return whether the task is over: cancelled, ended or expired. Then the work can stop."""
        record = await self.get(task)
        return record is None or record.over

    # --- reports ---

    async def update(
        self, task: HostTask | str, message: str, *, progress: float | None = None, total: float | None = None
    ) -> bool:
        """Say how far the work is. Return False for a task that is over.

        Raise `ServerError` for a message that is not text, and for numbers that a float cannot have.
        """
        message = rules.checked_text("message", message)
        progress = None if progress is None else rules.checked_number("progress", progress)
        total = None if total is None else rules.checked_number("total", total)
        access, key = await self._locate(task)

        def say(record: Record) -> bool:
            return rules.say(record, message, progress, total)

        await access.ready()
        try:
            record = await access.change(key, say)
        except LeaseLost:
            return False  # The worker reported too late.
        except rules.Unreadable:
            raise rules.unreadable_task(id_in(key)) from None
        except ProtocolError:
            return True  # The log has the reason. Another update may get through.
        return record is not None and not record.over

    async def beat(self, task: HostTask | str) -> bool:
        """Send a heartbeat. Return False if the task is over and the work can stop.

        The first report of a task with a heartbeat starts the time in which the next one has to come. While the store
        is out of reach nothing is reported, and no task fails by that.
        """
        try:
            access, key = await self._locate(task)
            return await self._beat(access, key) is not None
        except TasksUnreachable:
            return True  # The log has the reason.

    async def _beat(self, access: TaskAccess, key: str) -> Record | None:
        """Renew the lease of a worker. Return the record; None if the task is over."""
        await access.ready()
        record = await access.records.find(key)
        if record is None or record.over:
            await _end_lease(access, id_in(key))
            return None
        if not record.heartbeat:
            return record
        worker = worker_of(record.id)
        if not await reached(access.stores.queue.renew(worker, record.heartbeat)):
            return None  # It reported too late.
        if record.begun:
            return record
        try:
            begun = await access.change(key, lambda record: rules.begin(record, worker))
        except LeaseLost:
            return None
        if begun is None or begun.over:
            await _end_lease(access, record.id)
            return None
        return begun

    @asynccontextmanager
    async def work(self, task: HostTask | str) -> AsyncIterator[TaskWork]:
        """Send heartbeats in the background, and watch for the end of the task.

        Heartbeats come from the thread of the store, so the work may block the event loop. Leaving the block ends the
        heartbeats, and not the task.
        """
        access, key = await self._locate(task)
        identifier = id_in(key)
        worker = worker_of(identifier)
        if worker in self._worked_on:
            raise ServerError(f"This process works on the task {identifier!r} already")
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        following: asyncio.Task[None] | None = None
        stop: Callable[[], None] | None = None
        # The bell of the process that holds the task is that of its worker.
        link = link_of_processes(access.stores)
        link.on("", lambda _: changed.set())
        link.on_lost(changed.set)
        leave = link.hear(worker)
        self._worked_on.add(worker)
        try:
            record = await self._beat(access, key)
            work = TaskWork(self, HostTask(identifier, owner_in(key)))
            if record is None:
                await self._mark_if_over(access, key, work)
            else:
                seconds = _LOOK_SECONDS
                if record.heartbeat:
                    stop = access.stores.queue.keep(worker, record.heartbeat, partial(call_on, loop, changed.set))
                    seconds = min(seconds, record.heartbeat / _LOOKS_PER_HEARTBEAT)
                else:
                    await access.records.change(key, lambda record: rules.watch(record, worker), is_news=False)
                following = loop.create_task(self._follow(access, key, work, changed, seconds))
            yield work
        finally:
            self._worked_on.discard(worker)
            if stop is not None:
                stop()
            leave()
            if following is not None:
                following.cancel()
                await asyncio.wait({following})

    async def _follow(
        self, access: TaskAccess, key: str, work: TaskWork, changed: asyncio.Event, seconds: float
    ) -> None:
        """Look at a task whenever it may have changed, until it is over."""
        while not await self._mark_if_over(access, key, work):
            try:
                async with asyncio.timeout(seconds):
                    await changed.wait()
            except TimeoutError:
                pass
            changed.clear()

    async def _mark_if_over(self, access: TaskAccess, key: str, work: TaskWork) -> bool:
        """Mark the work as over if its task is. Return whether it is over."""
        try:
            record = await access.records.find(key)
            if record is not None and not record.over:
                return False
            work.mark_over("" if record is None else record.status)
            await _end_lease(access, id_in(key))
        except rules.Unreadable:
            work.mark_over("")  # Nothing can be reported on it. A process of the server ends it.
        except TasksUnreachable:
            pass  # The log has the reason. The store may answer at the next look.
        return work.is_over

    # --- ends ---

    async def finish(self, task: HostTask | str, value: Any = None) -> bool:
        """End a task with a result: a return value of a tool, or a `ToolResult`.

        Return False, and change nothing, if the task is over. Raise `ServerError`, and change nothing, for a value that
        JSON cannot have.
        """
        result = _checked_result(value)
        access, key = await self._locate(task)
        return await self._end(access, key, access.ends.ending(access.result_revision, result))

    async def fail(self, task: HostTask | str, error: str | ProtocolError) -> bool:
        """End a task as failed; clients read the error. Return False if it is over."""
        if not isinstance(error, ProtocolError):
            error = ProtocolError(INTERNAL_ERROR, rules.checked_text("error", error))
        failure = error
        access, key = await self._locate(task)
        if not isinstance(failure.code, int):
            raise ServerError("A task keeps text, finite numbers and JSON values only")
        return await self._end(access, key, lambda record: rules.fail(record, failure))

    async def cancel(self, task: HostTask | str) -> bool:
        """Cancel a task, as its client would. Return False for a task that is over."""
        access, key = await self._locate(task)
        return await self._end(access, key, rules.cancel)

    async def _end(self, access: TaskAccess, key: str, ending: Callable[[Record], bool]) -> bool:
        """Write the end of a task. Retry while the store keeps the record."""
        is_changed = has_worker = was_read = False

        def noted(record: Record) -> bool:
            nonlocal is_changed, has_worker, was_read
            was_read = True
            has_worker = is_worker(record.process)
            is_changed = ending(record)
            return is_changed

        await access.ready()
        ended = await access.write_end(key, rules.checked(noted))
        if ended is not None and not was_read:
            raise rules.unreadable_task(id_in(key))
        if has_worker:
            await _end_lease(access, id_in(key))
        return is_changed


class TaskWork:
    """The work on one task, inside `async with tasks.work(task)`."""

    def __init__(self, tasks: OwnTasks, task: HostTask) -> None:
        self._tasks = tasks
        self._task = task
        self._over = asyncio.Event()
        self.is_over: bool = False
        """Whether the task is over and the work can stop. Any thread may read it."""
        self.status: str = "working"
        """The status of the ended task: `cancelled`, `failed` or `completed`; "" if it expired."""

    @property
    def id(self) -> str:
        return self._task.id

    async def wait_for_end(self) -> str:
        """Wait until the task is over. Return its status."""
        await self._over.wait()
        return self.status

    def mark_over(self, status: str) -> None:
        self.status, self.is_over = status, True
        self._over.set()

    async def update(self, message: str, *, progress: float | None = None, total: float | None = None) -> bool:
        """Say how far the work is. Return False for a task that is over."""
        return await self._tasks.update(self._task, message, progress=progress, total=total)

    async def finish(self, value: Any = None) -> bool:
        """End the task with a result. Return False, and change nothing, if it is over."""
        return await self._tasks.finish(self._task, value)

    async def fail(self, error: str | ProtocolError) -> bool:
        """End the task as failed; clients read the error. Return False if it is over."""
        return await self._tasks.fail(self._task, error)


def _checked_result(value: Any) -> t.CallToolResult:
    """Return a value of the program as a result; raise `ServerError` for what is not JSON."""
    try:
        if isinstance(value, ToolResult):
            check_numbers("result", value.structured)
            check_numbers("result", value.meta)
        else:
            check_numbers("result", value)
        result = (value if isinstance(value, ToolResult) else ToolResult(value)).to_wire()
        encode_readable(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise ServerError(f"The result of a task is content or a JSON value: {error}") from None
    return result


async def _end_lease(access: TaskAccess, identifier: str) -> None:
    """End the lease of a worker. If the store fails, the server ends it later."""
    with suppress(ToolwireError):
        await access.stores.queue.release(worker_of(identifier))


class Tasks(OwnTasks):
    """The tasks that a server created with `server.tasks.create()`, in a process without the server.

    Use it as `async with Tasks("redis://...", server="name") as tasks`.
    """

    def __init__(
        self, stores: Stores | str | os.PathLike[str] | None = None, *, server: str, limits: Limits | None = None
    ) -> None:
        """Use the stores of the server with this name; without `stores`, those that TOOLWIRE_STORES names."""
        super().__init__()
        if not server or not isinstance(server, str) or not is_encodable(server):
            raise ServerError("Tasks() needs the name of the server: Tasks(stores, server='name')")
        given = stores if isinstance(stores, Stores) else None
        opened = given or (stores_of_environment() if stores is None else open_stores(stores))  # type: ignore[arg-type]
        if opened is None:
            raise ServerError(f"Tasks() needs the stores of the server: give stores=, or set {STORES_VARIABLE}")
        self.stores: Stores = opened
        self._is_own = given is None
        self._access = _StoredAccess(server, opened, limits or Limits())

    async def _locate(self, task: HostTask | str) -> tuple[TaskAccess, str]:
        records = self._access.records
        if isinstance(task, HostTask):
            return self._access, records.key(task.owner, task.id)
        key = await records.find_key(task)
        if key is None:
            raise UnknownTask(task)
        return self._access, key

    def close(self) -> None:
        """Close the stores, if they were given by an address."""
        if self._is_own:
            self.stores.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _StoredAccess:
    """The tasks of one server, by its stores alone."""

    #: No revision: each client gets the result in the words of its own.
    result_revision = ""

    def __init__(self, server: str, stores: Stores, limits: Limits) -> None:
        self.stores = stores
        self.records = Records(short_name(server), stores, longest_pause(limits))
        # The server that answers the client writes and signs results.
        self.ends = Ends(lambda revision, result: result, lambda: limits, self.change, self._end_damaged)
        self._longest = longest_pause(limits) + limits.task_ttl_max
        self._ringer = Ringer(stores)

    async def ready(self) -> None:
        """Do nothing: the processes of the server watch over tasks."""

    async def _end_damaged(self, key: str, seconds: float) -> Record | None:
        record = await self.records.end_damaged(key, seconds)
        if record is not None:
            await self._ringer.ring_all(self.records.server, key)
        return record

    async def change(
        self, key: str, edit: Callable[[Record], bool], *, holder: str = "", last: bytes | None = None
    ) -> Record | None:
        """Change a record, and ring the bells of the processes that have to know."""
        changed = await self.records.change(key, edit, holder=holder, last=last)
        record = changed.record
        if changed.written and record is not None:
            await self._ringer.ring(key, changed.process, record.process, record.origin, *changed.watchers)
        return record

    async def write_end(self, key: str, ending: Callable[[Record], bool]) -> Record | None:
        """Write the end of a task. Retry while the store keeps the record."""
        return await self.ends.write_end(key, ending, self._longest)
