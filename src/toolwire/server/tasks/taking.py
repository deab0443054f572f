"""Taking tasks from the queue: as many as there are free slots, and only of tools that this process has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import UNSET

from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import BAD_JSON, INTERNAL_ERROR, INVALID_PARAMS, ProtocolError, ToolwireError
from toolwire.protocol.tasks import Record, StoredCall
from toolwire.server.access import Access
from toolwire.server.call import Call, Host, LoopParts
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import ToolBase
from toolwire.server.judgements import Judgement
from toolwire.server.lowlevel import LowLevel
from toolwire.server.tasks.following import Following
from toolwire.server.tasks.owners import line_of
from toolwire.server.tasks.permissions import task_of
from toolwire.server.tasks.running_tasks import Run
from toolwire.server.tasks.stored_calls import Gone, caller_in, request_of
from toolwire.server.tasks.task_records import Records, decode_record, id_in, kind_of, owner_in
from toolwire.stores import LeaseLost, Ready, Stores, Task
from toolwire.wire.shares import Caller, Turns

if TYPE_CHECKING:
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcement import Enforcer

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: Tasks that are taken at once.
_AT_ONCE: Final = 100


class TakingParts(Host, Protocol):
    """The parts of the kernel that are needed to run a call that was accepted before."""

    access: Access
    catalog: Catalog
    lowlevel: LowLevel
    stores: Stores

    def enforce_late(self, judgement: Judgement | None) -> tuple[Enforcer | None, Policy | None]: ...


class Taker(Protocol):
    """The tasks of a server, as far as taking needs them."""

    following: Following
    records: Records
    slots: Turns

    @property
    def is_draining(self) -> bool: ...

    async def process(self) -> str: ...

    async def become_ready(self, servers: set[str]) -> None: ...

    def doubt(self) -> None:
        """Note that the store may know something of this process that the process does not know."""

    def adopt(self, run: Run, key: str, record: Record, data: bytes, process: str) -> None:
        """Follow a run from now on: this process holds its task."""

    def new_run(self, call: Call, found: Found[ToolBase], ttl_ms: int, owner: str) -> Run: ...

    async def begin(self, run: Run) -> bool:
        """Write down that the handler is about to run. Return whether it may."""

    async def write_end(self, key: str, ending: Callable[[Record], bool], *, holder: str = "") -> Record | None: ...

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...


class Taking:
    """Takes tasks when a slot is free and a bell says that there are some, and now and then without a bell."""

    def __init__(self, kernel: TakingParts, work: LoopParts, tasks: Taker, server: str) -> None:
        self._kernel = kernel
        self._work = work
        self._tasks = tasks
        self._server = server
        self._may_be_ready = True
        # Whether tasks were left in the queue because their owners have their share of the slots here.
        self._are_passed_over = False
        self.arriving: set[str] = set()
        """Tasks that were taken and are not followed yet."""
        self.takes: tuple[int, bool] = (0, False)
        """The number of times that this process began to take tasks, and whether it does so now."""
        self._working: asyncio.Task[None] | None = None
        # Done when the take that is under way has its answer, and whether the last one left tasks in the queue.
        self._answered: asyncio.Future[None] | None = None
        self._left_some = False
        self._kinds: tuple[int, list[str]] = (-1, [])

    def kinds(self) -> Sequence[str]:
        """Return the kinds of tasks that this process can run."""
        catalog = self._kernel.catalog
        if self._kinds[0] != catalog.version:
            tools = catalog.all("tools").items()
            names = [name for name, found in tools if found.component.task is not None]
            self._kinds = (catalog.version, [kind_of(self._server, name) for name in names])
        kinds = self._kinds[1]
        return [*kinds, kind_of(self._server, "")] if self._kernel.lowlevel.active else kinds

    def look(self) -> None:
        """Take tasks that wait, if there is a slot for them."""
        self._may_be_ready = True
        self.go_on()

    def go_on(self) -> None:
        """Take tasks for slots that have become free, if some may be waiting."""
        if not (self._may_be_ready or self._are_passed_over) or self._tasks.is_draining or not self._tasks.slots.free:
            return
        if self._working is None or self._working.done():
            self._may_be_ready, self._left_some = True, False
            self._answered = asyncio.get_running_loop().create_future()
            self._working = self._tasks.in_background(self._take_all())
            self._working.add_done_callback(lambda _: self._note_answer(is_last=True))

    async def is_queue_empty(self) -> bool:
        """Wait for a take that is under way. Return whether it left no task for a slot that is free now.

        A call asks before it takes a slot, so that it overtakes no task that waits. A take that fails says nothing.
        """
        while not self._left_some and (answered := self._answered) is not None:
            await asyncio.wait({answered})
        return self._answered is None or not self._left_some

    def stop(self) -> None:
        if self._working is not None:
            self._working.cancel()

    async def _take_all(self) -> None:
        tasks, slots, kinds = self._tasks, self._tasks.slots, self.kinds()
        while kinds and self._may_be_ready and not tasks.is_draining and (free := min(slots.free, _AT_ONCE)):
            self._may_be_ready = False
            # The slots are taken first, so that no call that comes now goes before those that wait.
            slots.take(None, free)
            taken: list[Task] = []
            self.takes = (self.takes[0] + 1, True)
            try:
                process = await tasks.process()
                taken = await self._take(process, kinds, free)
            except ToolwireError:
                # The store may have given tasks to this process that it does not know of.
                tasks.doubt()
                return
            finally:
                for task in taken:
                    self._received(task, process)
                self.takes = (self.takes[0], False)
                slots.give_back(None, free - len(taken))
            self._left_some = len(taken) >= free
            self._may_be_ready = self._may_be_ready or self._left_some
            self._note_answer()

    def _note_answer(self, *, is_last: bool = False) -> None:
        """Wake the calls that wait for the answer to a take."""
        answered = self._answered
        self._answered = None if is_last or answered is None else answered.get_loop().create_future()
        if answered is not None and not answered.done():
            answered.set_result(None)

    async def _take(self, process: str, kinds: Sequence[str], most: int) -> list[Task]:
        passing_over = {line_of(caller) for caller in self._tasks.slots.shares.full()}
        self._are_passed_over = bool(passing_over)
        return await self._kernel.stores.queue.take(process, kinds, most, passing_over=passing_over)

    # --- one task ---

    def _received(self, task: Task, process: str) -> None:
        """Run a task that was taken, in one of the slots that were kept for this."""
        tasks, slots = self._tasks, self._tasks.slots
        try:
            record = decode_record(task.key, task.value)
            call = record.call
            caller = None if call is UNSET else caller_in(call)
        except (rules.Unreadable, *BAD_JSON):
            slots.give_back(None)
            tasks.in_background(self._drop(task, process))
            return
        if record.over or record.process or call is UNSET:
            # Changed by another process after it was taken, and before its record was read: cancelled, for example.
            slots.give_back(None)
            tasks.following.tell(task.key, record)
            tasks.in_background(self._hand_back(task, process))
        elif slots.exchange(caller):
            self.arriving.add(task.key)
            tasks.in_background(self._start(task, record, call, process, caller))
        else:
            tasks.in_background(self._hand_back(task, process))

    async def _start(self, task: Task, record: Record, call: StoredCall, process: str, caller: Caller) -> None:
        tasks, key = self._tasks, task.key
        try:
            run = tasks.following.accepted_here(key) or await self._run_of(key, record, call)
        except Exception as error:
            self.arriving.discard(key)
            tasks.slots.give_back(caller)
            failure = error if isinstance(error, ProtocolError) else _internal(key, error)
            await tasks.write_end(key, lambda record: rules.fail(record, failure), holder=process)
            return
        self.arriving.discard(key)
        run.has_slot, run.slot_caller = True, caller
        if tasks.is_draining:
            run.stop()
            await self._hand_back(task, process)
            return
        tasks.adopt(run, key, record, task.value, process)
        if await tasks.begin(run):
            run.start_waiting()
        else:
            run.stop()

    async def _run_of(self, key: str, record: Record, stored: StoredCall) -> Run:
        """Return a run for a call that was accepted before: no middleware, policy or record sees it once more."""
        call = Call(self._kernel, request_of(stored), Gone(is_local=stored.is_local), self._work)
        found = await self._found(call)
        if found is None:
            raise ProtocolError(INVALID_PARAMS, f"Unknown tool: {call.params.name[:200]}")
        enforcer, kept = self._kernel.enforce_late(task_of(record).judgement)
        if enforcer is not None:
            enforcer.hold(call, kept)
        run = self._tasks.new_run(call, found, record.ttl_ms, owner_in(key))
        run.origin = record.origin
        return run

    async def _found(self, call: Call) -> Found[ToolBase] | None:
        target = target_of(call)
        assert target is not None
        if target.found is None and self._kernel.lowlevel.active:
            target.found = await self._kernel.lowlevel.find(call.params.name, call)
        return target.found

    async def _hand_back(self, task: Task, process: str) -> None:
        """Give a task that was taken, and does not run here, the place that its record implies."""
        try:
            is_ready = await self._put_back(task, process)
        except rules.Unreadable:
            await self._drop(task, process)
        except ToolwireError as error:
            # Another process finds it when this one has ended.
            log.error("a task could not be put back: %s", error)
        else:
            if is_ready:
                await self._tasks.become_ready({self._server})

    async def _put_back(self, task: Task, process: str) -> bool:
        """Release a task that was taken. Return whether it waits to be taken again."""
        key, data, records = task.key, task.value, self._tasks.records
        while data:
            record = decode_record(key, data)
            place, ttl = records.place(key, record), records.kept(record)
            try:
                present = await self._kernel.stores.queue.change(
                    key, data, ttl=ttl, expect=data, place=place, holder=process
                )
            except LeaseLost:
                return False  # Cancelled, or taken from this process: it has a place without this process.
            if present is None:
                return isinstance(place, Ready)
            data = present
        return False  # Deleted, or evicted.

    async def _drop(self, task: Task, process: str) -> None:
        """End a task whose record cannot be read, so that it cannot be run."""
        await self._tasks.write_end(task.key, lambda record: rules.fail(record, rules.Unreadable()), holder=process)


def _internal(key: str, error: Exception) -> ProtocolError:
    log.error("the task %s could not be run", id_in(key), exc_info=error)
    return ProtocolError(INTERNAL_ERROR, "Internal error")
