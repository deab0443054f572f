"""One call that is a task, or may become one: how it runs, reports and asks.

The handler runs in an asyncio task of its own, so that it can go on when the request is answered. Until the call is a
task everything is as in any other call; from then on reports and questions go by the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from math import inf, isfinite
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, NotSupported, ProtocolError
from toolwire.protocol.revisions import supports
from toolwire.protocol.rounds import Keys, Kind, digest
from toolwire.protocol.shaping import shape
from toolwire.protocol.tasks import Question, Record
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Found
from toolwire.server.components import Tool
from toolwire.server.input_requests import SETTLE_TURNS, Refused, check_step, step_result
from toolwire.server.limits import Limits
from toolwire.wire.answer import is_abandoned
from toolwire.wire.outlet import Outlet
from toolwire.wire.shares import Caller

log: logging.Logger = logging.getLogger("toolwire.tasks")

# A handler that reports often makes a poll no wiser: a new status message is written this seldom.
_SAY_SECONDS: Final = 0.2
_NO_NUMBERS: Final = (None, None)


class Keeper(Protocol):
    """The tasks of a server, as far as one run needs them."""

    limits: Limits

    async def open(self, run: Run) -> Record: ...

    async def change(self, key: str, edit: Callable[[Record], bool]) -> Record | None: ...

    async def finish(self, run: Run, outcome: Any) -> None: ...

    def answer_time(self, ttl_ms: int) -> float: ...

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool: ...

    def over(self, run: Run) -> None: ...

    def call(self, run: Run) -> Coroutine[Any, Any, Any]: ...


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

    def may_tell(self, record: Record) -> bool:
        """Return whether the client may be told of a record now."""
        return self._may_tell is None or self._may_tell(record)

    def announce(self, record: Record) -> None:
        """2025-11-25 tasks, status notification: each transition; 2026-07-28 has listen streams instead."""
        if not supports(self.revision, "core_tasks"):
            return
        task = rules.core_task(record, t.TaskStatusNotificationParams, time.time())
        if task.status != self.announced and self.may_tell(record):
            self.announced = task.status
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
        "_finishing",
        "_keeper",
        "_opened",
        "_opening",
        "_saying",
        "_tell",
        "_unwanted",
        "call",
        "caller",
        "found",
        "is_counted",
        "numbers",
        "policy_timeout",
        "said",
        "tool",
        "ttl_ms",
        "worker",
    )

    def __init__(self, keeper: Keeper, call: Call, found: Found[Tool], ttl_ms: int) -> None:
        super().__init__(call.outlet.connection, call.revision)
        self.call: Call = call
        self.found: Found[Tool] = found
        self.caller: Caller = call.request.caller
        self.is_counted: bool = False
        """Whether it holds one of the places of tasks that run."""
        self.tool: Tool = found.component
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
        # Who is told of the end, kept until the work begins.
        self._tell: Callable[[asyncio.Future[Any]], None] | None = None
        call.outlet = TaskOutlet(self, call.outlet)
        call.task_run = self

    def may_tell(self, record: Record) -> bool:
        return self._keeper.may_tell(self.call.principal, self.call.outlet.is_local, record)

    @property
    def is_task(self) -> bool:
        return self.created is not None

    @property
    def asking(self) -> TaskAsking | None:
        """The way in which the handler asks; None where its questions are still those of the call."""
        if self.tool.detaches and not self.is_task:
            return None
        if self._asking is None:
            self._asking = TaskAsking(self)
        return self._asking

    # --- becoming a task ---

    async def open(self) -> None:
        """Become a task, if it is none; returns when it can be found."""
        if self.is_task:
            return
        if self._opening is None:
            # A task of its own: a waiter that gives up does not cancel it.
            self._opening = self.loop.create_task(self._open())
        await asyncio.shield(self._opening)

    async def detach(self) -> None:
        """Become a task because the handler wants it."""
        await self.open()

    async def _open(self) -> None:
        self.announced = (await self._keeper.open(self)).status
        self._take_over()
        self._opening = None
        if self._opened is not None:
            self._opened.set()

    def _take_over(self) -> None:
        self.call.asking = None  # From here on questions are those of the task.
        deadline = self.call.deadline
        if deadline is not None and self.tool.timeout is None and deadline.seconds >= self._keeper.limits.tool:
            # The limit for all calls is not meant for tasks, which have their own; that of a tool or a policy is.
            longest = self._keeper.limits.task
            deadline.allow(longest if self.policy_timeout is None else min(longest, self.policy_timeout))

    async def settled(self, window: float | None) -> None:
        """Wait until the call is done or a task; after `window` seconds it is made one."""
        assert self.worker is not None
        self._opened = asyncio.Event()
        opened = self.loop.create_task(self._opened.wait())
        try:
            await asyncio.wait({self.worker, opened}, timeout=window, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if not self.worker.done() and not self.is_task:
            await self.open()

    # --- running ---

    def start(self) -> None:
        """Begin the work: at once, or when the transport has the answer with the task.

        J86: an `async` handler that computes holds the loop, and with it an answer that has not left.
        """
        answered = self.call.outlet.answered if self.is_task else None
        if answered is None:
            self._begin()
        else:
            answered.add_done_callback(self._begin)

    def _begin(self, _: asyncio.Future[Any] | None = None) -> None:
        work: asyncio.Future[Any]
        # Another may have cancelled it before the work begins.
        if not self._unwanted:
            work = self.worker = self.loop.create_task(self._perform())
        elif self._tell is not None:
            work = self.loop.create_future()
            work.cancel()
        if self._tell is not None:
            work.add_done_callback(self._tell)

    def when_over(self, tell: Callable[[asyncio.Future[Any]], None]) -> None:
        """Call a function with the work when it is done; with what was cancelled where it never began."""
        if self.worker is not None:
            self.worker.add_done_callback(tell)
        else:
            self._tell = tell

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
            self._let_go()
            raise
        except BaseException as error:
            if is_abandoned(error):
                raise
            log.exception("a task ended with what is no answer")
            outcome = ProtocolError(INTERNAL_ERROR, "Internal error")
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self.is_task:
            self._finishing = True
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
        """Nobody wants it any more."""
        self._unwanted = True
        if self.worker is not None and not self._finishing:
            self.worker.cancel()
        self._let_go()

    def _let_go(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
        self._keeper.over(self)

    def heard(self, record: Record | None) -> None:
        super().heard(record)
        if record is None or record.over or self._is_taken_over(record):
            self.stop()
        elif self._asking is not None:
            self._asking.deliver(record)

    def _is_taken_over(self, record: Record) -> bool:
        """Return whether another process runs it, having taken this one for dead."""
        return self.created is not None and record.process != self.created.process

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
                await self._keeper.change(self.key, lambda record: rules.say(record, self.said, *self.numbers))
            except ProtocolError:
                return  # The next report tries again; the outcome does not depend on it.
            await asyncio.sleep(_SAY_SECONDS)

    def notify(self, method: str, params: t.Wire) -> bool:
        if method != "notifications/tasks/status":
            meta = getattr(params, "meta", UNSET)
            params.meta = {**(meta or {}), **rules.related_meta(self.id)}  # type: ignore[attr-defined]
        return super().notify(method, params)

    # --- questions ---

    def answer_time(self, wanted: float | None) -> float:
        """Return how many seconds the client has to answer: never more than a task may run."""
        return self._keeper.answer_time(self.ttl_ms) if wanted is None else min(wanted, self._keeper.limits.task)

    async def withdraw(self, name: str) -> None:
        """Take a question back that nobody answered in time."""
        await self._keeper.change(self.key, lambda record: rules.withdraw(record, name))

    async def ask(self, questions: dict[str, Question]) -> Record | None:
        def edit(record: Record) -> bool:
            # A call that is run again asks what was answered before.
            fresh = {key: question for key, question in questions.items() if key not in record.answers}
            return bool(fresh) and rules.ask(record, fresh)

        return await self._keeper.change(self.key, edit)


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


class TaskAsking:
    """Asks by the record of the task, and waits until an answer is in it. Asking makes a call a task."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._keys = Keys()
        self._names: set[str] = set()
        self._waiting: dict[str, tuple[Question, asyncio.Future[Raw]]] = {}
        self._new: dict[str, Question] = {}
        self._writing: asyncio.Task[None] | None = None

    async def ask(
        self,
        kind: Kind,
        params: t.Wire | None,
        key: str | None,
        threaded: bool = False,
        timeout: float | None = None,
    ) -> Raw:
        revision = self._run.revision
        try:
            said = UNSET if params is None else Raw(msgspec.json.encode(shape(params, revision)))
        except ValueError as error:
            raise NotSupported(f"The client cannot be asked this: {error}") from None
        await self._run.open()
        asked = digest(kind, said)
        # TSK-11: a key is never used twice in the life of a task.
        name = self._keys.choose(kind, asked, key)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Raw] = loop.create_future()
        self._waiting[name] = (Question(kind, asked, said), future)
        self._new[name] = self._waiting[name][0]
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(self._write())
        try:
            async with asyncio.timeout(self._run.answer_time(timeout)):
                return await future
        except TimeoutError:
            await self._run.withdraw(name)
            raise Refused(f"The client did not answer {kind}") from None
        finally:
            del self._waiting[name]
            self._new.pop(name, None)

    async def _write(self) -> None:
        while self._new:
            for _ in range(SETTLE_TURNS):
                await asyncio.sleep(0)  # What is asked together is shown together.
            questions, self._new = self._new, {}
            try:
                record = await self._run.ask(questions)
            except ProtocolError as error:
                for name in questions:
                    self._fail(name, error)
            else:
                if record is not None:
                    self.deliver(record)

    def deliver(self, record: Record) -> None:
        """Hand out the answers that have come."""
        for name, (question, future) in tuple(self._waiting.items()):
            reply = record.answers.get(name)
            if reply is None or future.done():
                continue
            if reply.digest != question.digest:
                self._fail(name, RuntimeError(f"The question {name!r} changed when the task was run again"))
            elif reply.error is not UNSET:
                text = f"The client refused {question.kind}: {reply.error.message}"
                self._fail(name, Refused(text, reply.error.code))
            elif reply.result is not UNSET:
                future.set_result(reply.result)

    def _fail(self, name: str, error: Exception) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_exception(error)

    async def step(self, name: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        # A task is never replayed, so the step simply runs; the value looks as it would after a replay.
        check_step(name, self._names)
        return msgspec.json.decode(step_result(name, await run()))
