"""Accepting calls that are, or may become, tasks.

Middleware, policies and the audit log have seen the call by now, and see it once. A place among the tasks of its owner
and a slot are reserved before the handler starts. A call that finds no free slot becomes a task that waits: in the
queue, where any process may take it, or in this process if it cannot leave it. It is refused only when too many wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import UNSET

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, counted
from toolwire.protocol.tasks import Record, Reply
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import ToolBase
from toolwire.server.handler_runner import HandlerRunner
from toolwire.server.input_requests import Replay
from toolwire.server.limits import Limits
from toolwire.server.offer import ServerOffer
from toolwire.server.replay_state import resumes_rounds
from toolwire.server.tasks.owners import owner_of
from toolwire.server.tasks.quota import Quota
from toolwire.server.tasks.running_tasks import Run
from toolwire.server.tasks.stored_calls import stored
from toolwire.server.tasks.task_records import TasksUnreachable
from toolwire.server.tasks.tasks_elsewhere import TasksElsewhere
from toolwire.stores import QueueFull
from toolwire.wire.shares import Caller, Shares, Taken, Turns, is_distinct


class AcceptingParts(Protocol):
    """The parts of the kernel that accepting a call needs."""

    catalog: Catalog
    offer: ServerOffer
    runner: HandlerRunner


class Accepting(Protocol):
    """The tasks of a server, as far as accepting a call needs them."""

    elsewhere: TasksElsewhere
    quota: Quota
    slots: Turns

    @property
    def limits(self) -> Limits: ...

    @property
    def is_draining(self) -> bool: ...

    async def ready(self) -> None: ...

    async def process(self) -> str: ...

    def new_run(self, call: Call, found: Found[ToolBase], ttl_ms: int, owner: str) -> Run: ...

    async def create_for(self, run: Run, *, most_ready: int | None = None, **details: Any) -> Record: ...

    async def begin(self, run: Run) -> bool: ...

    async def write_end(self, key: str, ending: Callable[[Record], bool], *, holder: str = "") -> Record | None: ...

    def abandon(self, run: Run) -> None: ...

    def over(self, run: Run) -> None: ...

    async def wait_for_slot(self, run: Run) -> None: ...

    async def is_queue_empty(self) -> bool: ...

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    async def announce_ready(self) -> None: ...

    def signed(self, result: Any) -> Any: ...


class Acceptance:
    """Answers calls of tools that run as tasks: with a result, or with a task."""

    def __init__(self, kernel: AcceptingParts, tasks: Accepting) -> None:
        self._kernel = kernel
        self._tasks = tasks
        limits = tasks.limits
        self.waiting: Shares = Shares(limits.tasks_waiting, limits.share, "tasks waiting", seconds=5)
        """The tasks that were accepted here and wait to be started."""

    async def tool_called(self, call: Call, found: Found[ToolBase]) -> Any:
        """Answer a call that may become a task: with its result, or with the task."""
        tool, params, limits = found.component, call.params, call.settings.limits
        call.may_be_task = tool.task is not None
        chosen = "call" if getattr(call.outlet, "in_process", False) else self._verdict(call, tool)
        if tool.has_foreign_tasks:
            called = tool.call_elsewhere(call, params.arguments, chosen, self._tasks.elsewhere)
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
