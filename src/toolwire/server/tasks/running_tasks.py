"""One call that is a task, or may become one: how it runs, and what it reports.

The handler runs in an asyncio task of its own, so that it can go on when the request is answered. Until the call is a
task everything is as in any other call; from then on reports and questions go by the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine
from math import inf, isfinite
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.protocol.revisions import supports
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import Question, Record
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Found
from toolwire.server.components import ToolBase
from toolwire.server.input_requests import MayBecomeTask, Replay
from toolwire.server.limits import Limits
from toolwire.server.replay_state import resumes_rounds
from toolwire.server.tasks.callers import counted_caller
from toolwire.server.tasks.task_questions import TaskAsking
from toolwire.server.tasks.task_records import Reservation, id_in
from toolwire.stores import LeaseLost
from toolwire.wire.answer import is_abandoned
from toolwire.wire.outlet import Outlet
from toolwire.wire.shares import Caller, Shares

log: logging.Logger = logging.getLogger("toolwire.tasks")

# A handler that reports often makes a poll no wiser: a new status message is written this seldom.
_SAY_SECONDS: Final = 0.2
_NO_NUMBERS: Final = (None, None)


class Keeper(Protocol):
    """The tasks of a server, as far as one run needs them."""

    kept: Shares
    """The bytes of records in the store, by caller."""

    @property
    def limits(self) -> Limits: ...

    @property
    def is_ending(self) -> bool:
        """Return whether the event loop ends, which cancels all that runs on it."""

    async def open(self, run: Run) -> Record:
        """Write down a task that runs here already."""

    async def change_own(self, run: Run, edit: Callable[[Record], bool]) -> Record | None:
        """Change the record of a task that this process holds; `LeaseLost` when it does not hold it any more."""

    def release(self, run: Run, outcome: Any) -> Any:
        """Return the outcome of a task as its client may see it."""

    async def finish(self, run: Run, outcome: Any) -> None:
        """Keep the outcome of a run."""

    def answer_time(self, ttl_ms: int) -> float: ...

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool: ...

    def mask(self, call: Call, record: Record) -> Record:
        """Mask what a caller reads of a task by the policies of now."""

    def over(self, run: Run) -> None:
        """Forget a run, and give back what it has."""

    def follow(self, run: Run) -> None:
        """Hear of the changes of a task that was accepted here, wherever it runs."""

    def went_elsewhere(self, run: Run) -> None:
        """Note that another process runs a task that was accepted here."""

    def call(self, run: Run) -> Coroutine[Any, Any, Any]: ...

    def give_slot_back(self, run: Run) -> None: ...

    async def wait_for_slot(self, run: Run) -> None: ...

    def pass_on(self, run: Run, method: str, params: t.Wire) -> bool:
        """Have the process that accepted the call tell the client something."""


class Followed:
    """A task whose changes its client is told, on the connection that it was made on, and so on the loop of that."""

    __slots__ = ("_may_tell", "announced", "connection", "created", "id", "key", "loop", "revision", "timer")

    def __init__(self, connection: Any, revision: str, may_tell: Callable[[Record], bool] | None = None) -> None:
        self.key: str = ""
        self.id: str = ""
        self.connection: Any = connection
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.revision: str = revision
        self.created: Record | None = None
        self.announced: str = "working"
        self._may_tell = may_tell
        self.timer: asyncio.TimerHandle | None = None

    def opened(self, record: Record, data: bytes) -> None:
        """Note that there is a task."""
        self.id, self.created = record.id, record

    def may_tell(self, record: Record) -> bool:
        """Return whether the client may be told of a record now."""
        return self._may_tell is None or self._may_tell(record)

    def shown(self, record: Record) -> Record:
        """Return a record as the client may see it now."""
        return record  # No policy applies to a task of the host's own.

    def announce(self, record: Record) -> None:
        """2025-11-25 tasks, status notification: each transition; 2026-07-28 has listen streams instead."""
        if supports(self.revision, "core_tasks") and record.status != self.announced and self.may_tell(record):
            self.announced = record.status
            task = rules.core_task(self.shown(record), t.TaskStatusNotificationParams, time.time())
            self.notify("notifications/tasks/status", task)

    def notify(self, method: str, params: t.Wire) -> bool:
        if not supports(self.revision, "core_tasks"):
            return False  # TSK-17
        notify = getattr(self.connection, "notify", None)
        return bool(notify and notify(method, shape(params, self.revision)))

    def heard(self, record: Record | None) -> None:
        """Take note of a change of the record, possibly by another process."""
        if record is not None:
            self.announce(record)


class Run(Followed):
    """The call, from its first step to its outcome."""

    # There may be many thousands at once.
    __slots__ = (
        "_asking",
        "_counted",
        "_data",
        "_ended",
        "_finishing",
        "_keeper",
        "_opened",
        "_opening",
        "_saying",
        "_tell",
        "_unwanted",
        "answered",
        "attempt",
        "call",
        "caller",
        "found",
        "has_slot",
        "is_given_up",
        "is_waiting",
        "numbers",
        "origin",
        "owner",
        "policy_timeout",
        "process",
        "reservation",
        "said",
        "slot_caller",
        "starting",
        "tool",
        "ttl_ms",
        "worker",
    )

    def __init__(self, keeper: Keeper, call: Call, found: Found[ToolBase], ttl_ms: int, owner: str) -> None:
        super().__init__(call.outlet.connection, call.revision)
        self.call: Call = call
        self.found: Found[ToolBase] = found
        self.caller: Caller = call.request.caller
        self.owner: str = owner
        self.process: str = ""
        """The name under which this process holds the task; empty while it does not."""
        self.origin: str = ""
        """The process that accepted the call, where that is another one."""
        self.attempt: int = 1
        self._data: bytes | None = None
        self._counted: tuple[Caller, int] | None = (None, 0)
        """The bytes that are counted for a caller; None once they are no longer."""
        self.is_given_up: bool = False
        """Whether the request of the call ended before its answer with the task."""
        self.reservation: Reservation | None = None
        """Its place among the tasks of its owner, until it is one."""
        self.is_waiting: bool = False
        """Whether it is counted among those that wait to be started."""
        self.has_slot: bool = False
        self.slot_caller: Caller = counted_caller(self.caller)
        """Whom its slot is counted for."""
        self.answered: asyncio.Future[Any] | None = None
        """Done when the transport has the answer with a task that waits to be started."""
        self.starting: asyncio.Task[None] | None = None
        """The asyncio task that waits for a slot, if the task cannot leave this process."""
        self.tool: ToolBase = found.component
        self.ttl_ms: int = ttl_ms
        self.policy_timeout: float | None = None
        self.worker: asyncio.Task[Any] | None = None
        self._keeper = keeper
        self._asking: TaskAsking | None = None  # Most handlers never ask.
        self._opening: asyncio.Task[None] | None = None
        self._opened: asyncio.Event | None = None
        self._saying: asyncio.Task[None] | None = None
        self.said: str = ""
        self.numbers: tuple[float | None, float | None] = _NO_NUMBERS
        self._finishing = False
        self._unwanted = False
        # The record of a task that has ended in another process.
        self._ended: Record | None = None
        # Who is told of the end, kept until the work begins.
        self._tell: Callable[[asyncio.Future[Any]], None] | None = None
        call.outlet = TaskOutlet(self, call.outlet)
        call.task_run = self

    def may_tell(self, record: Record) -> bool:
        return self._keeper.may_tell(self.call.principal, self.call.outlet.is_local, record)

    def shown(self, record: Record) -> Record:
        return self._keeper.mask(self.call, record)

    @property
    def is_task(self) -> bool:
        return self.created is not None

    # --- bytes in the store ---

    @property
    def data(self) -> bytes | None:
        """The record as this process knows it. Its bytes count for the caller."""
        return self._data

    @data.setter
    def data(self, data: bytes | None) -> None:
        self._data = data
        self._count_bytes(0 if data is None else len(data))

    def reserve_bytes(self, size: int) -> None:
        """Count the bytes of a record that is about to be written; raise `Taken` if they are too many."""
        self._keeper.kept.take(self.slot_caller, size)
        self._count_bytes(0)
        self._counted = (self.slot_caller, size)

    def forget_bytes(self) -> None:
        """Stop counting bytes for good: this process does not follow the task any more."""
        self._count_bytes(0)
        self._counted = None

    def _count_bytes(self, size: int) -> None:
        if self._counted is None:
            return
        caller, before = self._counted
        if before:
            self._keeper.kept.give_back(caller, before)
        if size:
            self._keeper.kept.add(self.slot_caller, size)
        self._counted = (self.slot_caller, size)

    @property
    def asking(self) -> TaskAsking | None:
        """The way in which the handler asks; None where its questions are still those of the call."""
        if (self.tool.detaches or resumes_rounds(self.call)) and not self.is_task:
            return None
        if self._asking is None:
            self._asking = TaskAsking(self)
        return self._asking

    @property
    def is_asking(self) -> bool:
        """Return whether the handler waits for an answer of the client."""
        return self._asking is not None and self._asking.is_waiting

    @property
    def steps(self) -> dict[str, Raw]:
        """The results of the steps that the handler has made."""
        return {} if self._asking is None else self._asking.steps

    @property
    def may_run_again(self) -> bool:
        """Return whether the handler does nothing but wait for answers, and may run again from its start."""
        return self.tool.replay and self._asking is not None and self._asking.may_run_again

    # --- becoming a task ---

    async def open_first(self) -> None:
        """Become a task before the handler starts; returns when it can be found."""
        await self._keeper.open(self)
        self._take_over()

    async def open(self) -> None:
        """Become a task, if it is none; returns when it can be found."""
        if self.is_task or (self.worker is not None and self.worker.done()):
            return  # The handler did not wait for this, and its call is answered.
        if self._opening is None or self._opening.done():
            # Its questions wait from now on until it is known whether it is a task.
            asking = self.call.asking
            if isinstance(asking, MayBecomeTask):
                asking.run = self
            # A task of its own: a waiter that gives up does not cancel it.
            self._opening = self.loop.create_task(self._open())
        await asyncio.shield(self._opening)

    async def detach(self) -> None:
        """Become a task because the handler wants it, unless a question asked before ends the request."""
        asking = self.call.asking or await self.call.open_asking()
        if type(asking) is Replay:
            await asking.wait_for_end()
        await self.open()

    async def became_task(self) -> bool:
        """Return whether this is a task; wait for the outcome where it is becoming one."""
        if self._opening is not None:
            await asyncio.wait({self._opening})
        return self.is_task

    async def _open(self) -> None:
        await self._keeper.open(self)
        self._take_over()
        self._opening = None
        if self._opened is not None:
            self._opened.set()

    def opened(self, record: Record, data: bytes) -> None:
        """Note that the call is a task now."""
        super().opened(record, data)
        self.data = data
        self.announced, self.attempt = record.status, record.attempt
        if record.steps and (asking := self.asking) is not None:
            asking.steps = dict(record.steps)

    def _take_over(self) -> None:
        before, self.call.asking = self.call.asking, None  # From here on questions are those of the task.
        if type(before) is Replay and (asking := self.asking) is not None:
            asking.continue_rounds(before.rounds)
        deadline = self.call.deadline
        if deadline is not None and self.tool.timeout is None and deadline.seconds >= self._keeper.limits.tool:
            # The limit for all calls is not meant for tasks, which have their own; that of a tool or a policy is.
            longest = self._keeper.limits.task
            deadline.allow(longest if self.policy_timeout is None else min(longest, self.policy_timeout))

    async def settled(self, window: float | None) -> None:
        """Wait until the call is done or a task; after `window` seconds it is made one."""
        self._opened = asyncio.Event()
        if await self._is_settled(window):
            return
        asking = self.call.asking
        if type(asking) is Replay and asking.is_ending:
            await self._is_settled(None)  # The request is answered with questions.
            return
        try:
            await self.open()
        except ProtocolError as error:
            # Its handler has begun: it is not refused any more, but answered when it is done.
            log.warning("a call could not become a task, and goes on as a call: %s", error.message)
            await self._is_settled(None)

    async def _is_settled(self, seconds: float | None) -> bool:
        assert self.worker is not None
        assert self._opened is not None
        opened = self.loop.create_task(self._opened.wait())
        try:
            await asyncio.wait({self.worker, opened}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        return self.worker.done() or self.is_task

    # --- running ---

    def start(self) -> None:
        """Begin the work: at once, or when the transport has the answer with the task.

        J86: an `async` handler that computes holds the loop, and with it an answer that has not left.
        """
        answered = self.call.outlet.answered if self.is_task else None
        self._begin_after(answered)

    def start_waiting(self) -> None:
        """Begin the work of a task that had to wait."""
        self._begin_after(self.answered)

    def _begin_after(self, answered: asyncio.Future[Any] | None) -> None:
        if answered is None or answered.done():
            self._begin()
        else:
            answered.add_done_callback(self._begin)

    def _begin(self, _: asyncio.Future[Any] | None = None) -> None:
        # Another may have cancelled it before the work begins.
        if not self._unwanted:
            self.worker = self.loop.create_task(self._perform())
            if self._tell is not None:
                self.worker.add_done_callback(self._tell)
        else:
            self._tell_end(None)

    def when_over(self, tell: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call a function with the work when it is done; with what was cancelled where it never began.

        The end of a task that another process runs is told from its record.
        """
        if self.worker is not None:
            self.worker.add_done_callback(tell)
            return
        self._tell = tell
        if self._ended is not None:
            self._tell_end(self._ended)
        else:
            self._keeper.follow(self)

    @property
    def has_listener(self) -> bool:
        """Return whether somebody here has to be told of the end of a task that another process runs."""
        return self._tell is not None or (self.connection is not None and supports(self.revision, "core_tasks"))

    def _tell_end(self, record: Record | None) -> None:
        """Tell the end of a task that did not run here."""
        tell, self._tell = self._tell, None
        if tell is None:
            return
        end: asyncio.Future[Any] = self.loop.create_future()
        if record is None or record.status not in ("completed", "failed"):
            end.cancel()
        elif record.error is not UNSET:
            end.set_exception(ProtocolError(record.error.code, record.error.message, record.error.data))
        else:
            end.set_result(t.decode(t.CallToolResult, record.result or b"{}"))
        end.add_done_callback(tell)

    async def work(self, arguments: Raw | msgspec.UnsetType) -> Any:
        """Run the tool, under the deadline and with the clean-up of any call."""
        if self.is_task:
            self._take_over()
        return await self.tool.call(self.call, arguments)

    async def _perform(self) -> Any:
        outcome: Any
        CURRENT.set(self.call)
        try:
            outcome = await self._keeper.call(self)
        except ProtocolError as error:
            outcome = error
        except asyncio.CancelledError:
            if self._unwanted or not self.is_task or self._keeper.is_ending:
                self._let_go()
                raise
            # The code of the handler cancelled it. That is its outcome, and no reason to run it again.
            log.warning("the task %s was cancelled by its own tool", id_in(self.key))
            outcome = ProtocolError(INTERNAL_ERROR, "The tool cancelled its own call")
            while self.worker is not None and self.worker.cancelling():
                self.worker.uncancel()
        except BaseException as error:
            if is_abandoned(error):
                raise
            log.exception("a task ended with what is no answer")
            outcome = ProtocolError(INTERNAL_ERROR, "Internal error")
        if self._opening is not None:
            await asyncio.wait({self._opening})
        # Only now it is known whether the call is a task. The outcome of a call leaves with the answer to its request.
        if self.is_task:
            self._finishing = True
            outcome = self._keeper.release(self, outcome)
            await self._keeper.finish(self, outcome)
        self._let_go()
        return outcome

    def outcome(self) -> Any:
        """Return the answer of a call that did not become a task."""
        assert self.worker is not None
        outcome = self.worker.result()
        if isinstance(outcome, ProtocolError):
            raise outcome
        return outcome

    def stop(self) -> None:
        """Nobody wants it any more, or another process has it."""
        self._unwanted = True
        if self.starting is not None:
            self.starting.cancel()
        if self.worker is not None and not self._finishing:
            self.worker.cancel()
        self._let_go()

    def _let_go(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
        self._keeper.over(self)

    def heard(self, record: Record | None) -> None:
        super().heard(record)
        if record is None or record.over:
            if self.worker is None:
                self._ended = record
                self._tell_end(record)
            self.stop()
        elif record.process != self.process:
            if not self.process:
                self._keeper.went_elsewhere(self)
            elif record.process or self.worker is not None:
                self.stop()  # It was taken for dead, and another process has the task.
        elif self._asking is not None:
            self._count_bytes(len(rules.encode(record)))  # It has the answers of the client.
            self._asking.deliver(record)

    def announce(self, record: Record) -> None:
        if not self.origin:
            super().announce(record)  # Otherwise the process that accepted the call does it.

    # --- reports ---

    def report(self, progress: float, total: float | None, message: str | None) -> bool:
        """Take progress as the status message; return whether nothing else has to be sent."""
        self.said = rules.status_text(progress, total, message)
        # PRG-1: progress rises; JSON has no infinite numbers.
        if isfinite(progress) and progress > (-inf if self.numbers[0] is None else self.numbers[0]):
            self.numbers = (progress, total if total is not None and isfinite(total) else None)
        if not self.is_task:
            return False
        if self._saying is None or self._saying.done():
            self._saying = self.loop.create_task(self._say())
        return not supports(self.revision, "core_tasks")

    async def _say(self) -> None:
        written: Any = None
        while written != (self.said, self.numbers):
            written = (self.said, self.numbers)
            try:
                await self._keeper.change_own(self, lambda record: rules.say(record, self.said, *self.numbers))
            except LeaseLost:
                self.stop()
                return
            except ProtocolError:
                return  # The next report tries again; the outcome does not depend on it.
            await asyncio.sleep(_SAY_SECONDS)

    def notify(self, method: str, params: t.Wire) -> bool:
        if method != "notifications/tasks/status":
            meta = getattr(params, "meta", UNSET)
            params.meta = {**(meta or {}), **rules.related_meta(self.id)}  # type: ignore[attr-defined]
        if self.origin and supports(self.revision, "core_tasks"):
            return self._keeper.pass_on(self, method, params)
        return super().notify(method, params)

    # --- questions ---

    def answer_time(self, wanted: float | None) -> float:
        """Return how many seconds the client has to answer: never more than a task may run."""
        if wanted is not None:
            return min(wanted, self._keeper.limits.task)
        # The ttl that the server chose says nothing about the time that the client needs.
        is_wish = not self.call.request.modern and isinstance(rules.wanted_ttl(self.call.params.task), int)
        return self._keeper.answer_time(self.ttl_ms if is_wish else 0)

    async def withdraw(self, name: str) -> None:
        """Take a question back that nobody answered in time."""
        try:
            await self._keeper.change_own(self, lambda record: rules.withdraw(record, name))
        except LeaseLost:
            self.stop()
        except ProtocolError:
            pass  # The log has the reason. An answer that comes now is not waited for.

    async def ask(self, questions: dict[str, Question], waiting: Collection[str]) -> Record | None:
        def edit(record: Record) -> bool:
            # A call that is run again asks what was answered before.
            fresh = {key: question for key, question in questions.items() if key not in record.answers}
            return bool(fresh) and rules.ask(record, fresh, waiting)

        return await self._keeper.change_own(self, edit)

    def rest(self) -> None:
        """Give the slot back while the client is asked."""
        if self.has_slot:
            self._keeper.give_slot_back(self)

    async def go_on(self) -> None:
        """Take a slot again, with the answer at hand."""
        if not self.has_slot:
            await self._keeper.wait_for_slot(self)


class TaskOutlet:
    """The way back of a call that may become a task: the request's own until it is one."""

    __slots__ = ("_inner", "_run", "connection", "is_local")

    def __init__(self, run: Run, inner: Outlet) -> None:
        self.connection: Any = inner.connection
        self.is_local: bool = inner.is_local
        self._run = run
        self._inner = inner

    @property
    def answered(self) -> asyncio.Future[Any] | None:
        return self._inner.answered

    @property
    def congested(self) -> bool:
        return not self._run.is_task and self._inner.congested

    @property
    def full(self) -> bool:
        return not self._run.is_task and self._inner.full

    async def drain(self) -> None:
        await self._inner.drain()

    def notify(self, method: str, params: t.Wire) -> bool:
        return self._run.notify(method, params) if self._run.is_task else self._inner.notify(method, params)

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        return await self._inner.request(method, params, timeout)

    async def close_stream(self, retry_ms: int | None) -> None:
        close = getattr(self._inner, "close_stream", None)
        if close is not None and not self._run.is_task:
            await close(retry_ms)
