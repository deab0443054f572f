"""Admission: how calls become tasks, and how tasks get a slot in a process.

`Acceptance` takes calls in that are, or may become, tasks. Middleware, policies and the audit log have seen the call by
now, and see it once. A place among the tasks of its owner and a slot are reserved before the handler starts. A call
that finds no free slot becomes a task that waits: in the queue, where any process may take it, or in this process if it
cannot leave it. It is refused only when too many wait.

`Taking` takes tasks from the queue: as many as there are free slots, and only of tools that this process has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import BAD_JSON, INTERNAL_ERROR, INVALID_PARAMS, ProtocolError, ToolwireError, counted
from toolwire.protocol.tasks import Record, Reply, StoredCall
from toolwire.server.call import Call, LoopParts
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Found
from toolwire.server.components import ToolBase
from toolwire.server.input_requests import Replay
from toolwire.server.replay_state import resumes_rounds
from toolwire.server.tasks.callers import Gone, caller_in, line_of, owner_of, request_of, stored, task_of
from toolwire.server.tasks.parts import TaskParts
from toolwire.server.tasks.running_tasks import Run
from toolwire.server.tasks.service import TaskService
from toolwire.server.tasks.task_records import (
    TasksUnreachable,
    TaskUnconfirmed,
    decode_record,
    id_in,
    kind_of,
    owner_in,
)
from toolwire.server.tasks.tasks_elsewhere import TasksElsewhere
from toolwire.stores import LeaseLost, QueueFull, Ready, Task
from toolwire.wire.shares import Caller, Shares, Taken, is_distinct

if TYPE_CHECKING:
    pass


class Acceptance:
    """Answers calls of tools that run as tasks: with a result, or with a task."""

    def __init__(self, kernel: TaskParts, tasks: TaskService, elsewhere: TasksElsewhere) -> None:
        self._kernel = kernel
        self._tasks = tasks
        self._elsewhere = elsewhere
        limits = tasks.limits
        self.waiting: Shares = Shares(limits.tasks_waiting, limits.share, "tasks waiting", seconds=5)
        """The tasks that were accepted here and wait to be started."""

    async def tool_called(self, call: Call, found: Found[ToolBase]) -> Any:
        """Answer a call that may become a task: with its result, or with the task."""
        tool, params, limits = found.component, call.params, call.settings.limits
        call.may_be_task = tool.task is not None
        chosen = "call" if getattr(call.outlet, "in_process", False) else self._verdict(call, tool)
        if tool.has_foreign_tasks:
            called = tool.call_elsewhere(call, params.arguments, chosen, self._elsewhere)
            return await self._kernel.runner.run(call, found, params.name, called)
        if chosen == "call":
            return await self._run_as_call(call, found)
        wanted = UNSET if call.request.modern else rules.wanted_ttl(params.task)
        ttl = rules.lifetime(wanted, limits.task_ttl, limits.task_ttl_max)
        window = None if tool.detaches else limits.task_window
        resumes = resumes_rounds(call)
        is_task = chosen == "task" or window == 0
        owner = owner_of(call)
        try:
            await self._tasks.ready()
            reservation = await self._tasks.quota.reserve(owner, address_of(call))
        except TasksUnreachable:
            if is_task:
                raise
            return await self._run_as_call(call, found)  # The tasks cannot be reached, and this need not become one.
        run = self._tasks.new_run(call, found, ttl, owner)
        run.reservation = reservation
        try:
            if not await self._has_slot(run):
                asked = await self._queue(run)
                return self._created(run) if asked is None else asked
            run.has_slot = True
            # MRTR-5, MRTR-7: a state is checked and used up before anything runs, whatever the call becomes.
            asked = await self._kernel.runner.take_up(call) if resumes else None
            if asked is not None:
                self._tasks.over(run)
                return asked
            if is_task:
                await run.open_first()
            run.start()
            if not run.is_task:
                await run.settled(window)
        except BaseException:
            self._tasks.abandon(run)  # Nobody will ever know its id.
            raise
        return self._created(run) if run.is_task else run.outcome()

    async def _has_slot(self, run: Run) -> bool:
        """Take a slot for a call that no earlier task has to go before. Return whether there is one."""
        tasks = self._tasks
        if tasks.is_draining or self.waiting.held_by(run.caller) or not await tasks.is_queue_empty():
            return False
        return not tasks.is_draining and tasks.slots.take(run.slot_caller)

    def _verdict(self, call: Call, tool: ToolBase) -> rules.Verdict:
        return rules.verdict(
            tool.task or "forbidden",
            call.revision,
            call.request.capabilities,
            self._kernel.offer.capabilities(call.revision),
            call.params.task is not UNSET,
        )

    async def _run_as_call(self, call: Call, found: Found[ToolBase]) -> Any:
        params = call.params
        return await self._kernel.runner.run(call, found, params.name, found.component.call(call, params.arguments))

    def _created(self, run: Run) -> Any:
        assert run.created is not None
        if run.call.request.modern:
            return self._tasks.signed(rules.task_created(run.created))
        return t.CreateTaskResult(task=rules.core_task(run.created, t.Task, run.created.created))

    def kind(self, run: Run) -> str:
        """Return the name by which processes take the tasks of a tool; empty where a list handler makes the tool up."""
        name: str = run.call.params.name
        return "" if self._kernel.catalog.tool(name) is None else name

    # --- without a free slot ---

    async def _queue(self, run: Run) -> Any:
        """Make a task that waits to be started. Return the questions that have to be answered first, if any."""
        call, limits = run.call, run.call.settings.limits
        self.waiting.take(run.caller)
        run.is_waiting = True
        asked = await self._kernel.runner.take_up(call)
        if asked is not None:
            self._tasks.over(run)
            return asked
        # Only within the request the outlet can be asked for it.
        run.answered = call.outlet.answered
        process = await self._tasks.process()
        stored_call = stored(call, run.tool, self.kind(run), self._tasks.limits)
        details: dict[str, Any] = {"message": rules.WAITING, "call": stored_call, **brought_by(call)}
        call.asking = None  # From here on questions are those of the task.
        if stored_call is UNSET or call.outlet.is_local:
            # It cannot leave this process, and waits here.
            run.process = process
            await self._tasks.create_for(run, process=process, **details)
            run.starting = self._tasks.in_background(self._start_when_free(run))
            return None
        try:
            await self._tasks.create_for(run, most_ready=limits.tasks_waiting, origin=process, **details)
        except QueueFull:
            raise Taken(limits.tasks_waiting, "tasks waiting", 5, own=False) from None
        except TasksUnreachable:
            raise TaskUnconfirmed from None
        await self._tasks.announce_ready()
        return None

    async def _start_when_free(self, run: Run) -> None:
        """Start a task that cannot leave this process as soon as there is a slot for it."""
        seconds = self._tasks.limits.task_wait
        try:
            async with asyncio.timeout(seconds):
                await self._tasks.wait_for_slot(run)
        except TimeoutError:
            failure = no_slot(seconds)
            await self._tasks.write_end(run.key, lambda record: rules.fail(record, failure), holder=run.process)
            return
        may_begin = await self._tasks.begin(run)
        run.starting = None
        if may_begin:
            run.start_waiting()
        else:
            run.stop()


def no_slot(seconds: float) -> ProtocolError:
    """Return the reason why a task fails that was not started in time."""
    within = counted(seconds, "second")
    return ProtocolError(INTERNAL_ERROR, f"The server had no slot for this task within {within}")


def address_of(call: Call) -> Caller:
    """Return the address of a caller whom nobody knows; None for everybody else."""
    return None if is_distinct(call.principal) else call.request.caller


def brought_by(call: Call) -> dict[str, Any]:
    """Return the answers that a call has brought and not used, and the steps that it made, for the record of a task."""
    asking = call.asking
    if type(asking) is not Replay:
        return {}
    rounds = asking.rounds
    answers = {key: Reply(each.digest, each.result) for key, each in rounds.answers.items() if not rounds.has_used(key)}
    return {"answers": answers, "steps": dict(rounds.steps)}


log: logging.Logger = logging.getLogger("toolwire.tasks")

#: Tasks that are taken at once.
_AT_ONCE: Final = 100


# --- tasks of the queue ----------------------------------------------------------------------------------------------


class Taking:
    """Takes tasks when a slot is free and a bell says that there are some, and now and then without a bell."""

    def __init__(self, kernel: TaskParts, work: LoopParts, tasks: TaskService, server: str) -> None:
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
        run = tasks.following.run(task.key)
        if task.key in self.arriving or (run is not None and run.process == process):
            # A change of the record put it back while this process starts it, and that start continues.
            slots.give_back(None)
            tasks.doubt()
        elif record.over or record.process or call is UNSET:
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
