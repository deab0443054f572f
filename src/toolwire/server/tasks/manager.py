"""The tasks of one server: from the call that becomes one to the outcome that is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.errors import INTERNAL_ERROR, InsufficientScope, ProtocolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.protocol.tasks import Record
from toolwire.server.access import Access, Permission
from toolwire.server.call import Call
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog, Found
from toolwire.server.components import Tool
from toolwire.server.components.tools import as_object
from toolwire.server.failures import Failures
from toolwire.server.handler_runner import HandlerRunner
from toolwire.server.limits import Limits
from toolwire.server.lowlevel import LowLevel
from toolwire.server.offer import ServerOffer
from toolwire.server.results import Results
from toolwire.server.storage_budget import StorageBudget
from toolwire.server.subscriptions import Hub, Stream
from toolwire.server.tasks.owners import owner_of
from toolwire.server.tasks.quota import Quota, too_many
from toolwire.server.tasks.repeating import Gone, again_of, request_of
from toolwire.server.tasks.running_tasks import Followed, Run
from toolwire.server.tasks.task_processes import Processes
from toolwire.server.tasks.task_records import NoRoom, Records
from toolwire.stores import MemoryKV, Stores
from toolwire.wire.outlet import Outlet
from toolwire.wire.shares import Caller, Shares
from toolwire.wire.thread_workers import ThreadWorkers

log: logging.Logger = logging.getLogger("toolwire.tasks")

# How long to wait before the outcome of a task is written again, when the store does not take it.
_PAUSES: Final = (0.05, 0.5, 2.0, 5.0, 10.0)
FILTER: Final = "taskIds"
# How often an idempotent call is begun: one that takes its process down every time must not go on doing so.
_MOST_RUNS: Final = 3


class TaskParts(Protocol):
    """The parts of the kernel that tasks work with."""

    access: Access
    catalog: Catalog
    failures: Failures
    hub: Hub
    limits: Limits
    lowlevel: LowLevel
    offer: ServerOffer
    results: Results
    runner: HandlerRunner
    stores: Stores

    async def handle(self, request: Incoming, outlet: Outlet) -> Any: ...

    def check_loop(self) -> None: ...


class Tasks:
    """Creates tasks, runs them, and knows those that run here."""

    def __init__(self, kernel: TaskParts) -> None:
        self._kernel = kernel
        self.limits: Limits = kernel.limits
        self.poll: float = kernel.limits.task_poll
        # A task that is out of its time gets some more to end.
        longest = kernel.limits.task + kernel.limits.state
        self.records: Records = Records(
            kernel.offer.implementation.name, kernel.stores, longest, self._heard, self._lost
        )
        self.quota: Quota = Quota(self.records, self.limits)
        self._unowned = StorageBudget(self.limits.tasks, self.limits.share)
        self._results = StorageBudget(self.limits.task_results, self.limits.share)
        self._workers: ThreadWorkers | None = None
        self._followed: dict[str, Followed] = {}
        self._running: set[str] = set()
        self._shares = Shares(self.limits.tasks_running, self.limits.share, "tasks running", seconds=5)
        self._capabilities: Mapping[str, Any] = {}
        self._repeated: dict[Incoming, tuple[str, Record]] = {}
        # The loop that it takes part on, and the task that makes it take part.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready_on: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._looking: set[str] = set()
        self._background: set[asyncio.Task[Any]] = set()
        self.processes: Processes | None = None

    @property
    def running(self) -> int:
        """Return how many tasks run in this process."""
        return len(self._running)

    # --- calls ---

    async def tool_called(self, call: Call, found: Found[Tool]) -> Any:
        """Answer a call that may become a task: with its result, or with the task."""
        tool, params = found.component, call.params
        if self._repeated and call.request in self._repeated:
            return await self._taken_up(call, found, *self._repeated.pop(call.request))
        in_process = getattr(call.outlet, "in_process", False)
        chosen = "call" if in_process else self._verdict(call, tool)
        if chosen == "call":
            return await self._kernel.runner.run(call, found, params.name, tool.call(call, params.arguments))
        wanted = UNSET if call.request.modern else rules.wanted_ttl(params.task)
        ttl = rules.lifetime(wanted, self.limits.task_ttl, self.limits.task_ttl_max)
        window = None if tool.detaches else self.limits.task_window
        run = self.new_run(call, found, ttl)
        try:
            if chosen == "task" or window == 0:
                await run.open()
            run.start()
            if not run.is_task:
                await run.settled(window)
        except BaseException:
            self.abandon(run)  # Nobody will ever know its id.
            raise
        return self._created(run) if run.is_task else run.outcome()

    def _verdict(self, call: Call, tool: Tool) -> rules.Verdict:
        return rules.verdict(
            tool.task or "forbidden",
            call.revision,
            call.request.capabilities,
            self._kernel.offer.capabilities(call.revision),
            call.params.task is not UNSET,
        )

    def new_run(self, call: Call, found: Found[Tool], ttl_ms: int) -> Run:
        if self._workers is None:
            # J86: work that takes long must not take the threads away from calls that do not.
            self._workers = ThreadWorkers(self.limits.threads, self.limits.queue, self.limits.share)
        call.workers = self._workers
        self._share_capabilities(call)
        return Run(self, call, found, ttl_ms)

    def _share_capabilities(self, call: Call) -> None:
        """Let all tasks of a client hold one copy of its capabilities, which come with each modern request."""
        request = call.request
        if request.capabilities != self._capabilities:
            self._capabilities = request.capabilities
        elif request.modern and (meta := call.params.meta) is not UNSET:
            request.capabilities = meta.client_capabilities = self._capabilities

    def _created(self, run: Run) -> Any:
        assert run.created is not None
        if run.call.request.modern:
            return self.signed(rules.task_created(run.created))
        return t.CreateTaskResult(task=rules.core_task(run.created, t.Task, run.created.created))

    def signed(self, result: Any) -> Any:
        """META-8: every modern result names its server."""
        self._kernel.results.sign(result)
        return result

    def abandon(self, run: Run) -> None:
        run.stop()
        if run.is_task:
            self.in_background(self.change(run.key, rules.cancel))

    # --- who may know of a task ---

    @property
    def restricts(self) -> bool:
        """Return whether some callers may have lost the right to a tool."""
        return bool(self._kernel.access.active or self._kernel.lowlevel.lists)

    async def permissions(self, call: Call, records: Sequence[Record]) -> list[Permission]:
        """Return what a caller may do with each task now: no more than with the tool behind it."""
        kernel = self._kernel
        if not self.restricts:
            return ["usable" for _ in records]
        catalog = kernel.catalog
        made_up = [each.tool for each in records if each.tool and catalog.tool(each.tool) is None]
        listed = await self._listed(call) if made_up and kernel.lowlevel.lists else None

        def permission(tool: str) -> Permission:
            if not tool:
                return "usable"  # The host made the task for its owner, outside of any call.
            if listed is not None and tool in made_up:
                return "usable" if tool in listed else "hidden"
            return kernel.access.of_tool(call.principal, call.outlet.is_local, tool)

        return [permission(each.tool) for each in records]

    async def _listed(self, call: Call) -> frozenset[str]:
        """Return the tools that the list handler names for a caller; none when it fails, so that nothing leaks."""
        try:
            tools = await self._kernel.failures.in_time(call, self._kernel.lowlevel.tools(call), "tools/list")
        except Exception:
            log.exception("the list handler failed, so the tasks of its tools are not shown")
            return frozenset()
        return frozenset(each.name for each in tools)

    async def check(self, call: Call, record: Record) -> None:
        """Raise what a caller gets who may not use a task: an unknown task, or the scopes that it needs."""
        (permission,) = await self.permissions(call, [record])
        if permission == "refused":
            access = self._kernel.access
            found = self._kernel.catalog.tool(record.tool, access.view_of(call.principal).sees)
            raise InsufficientScope(frozenset() if found is None else access.scopes(found), call.request_id)
        if permission == "hidden":
            raise rules.unknown_task()

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool:
        """Return whether the client that made a task may still hear of it."""
        tool = record.tool
        return not tool or self._kernel.access.of_tool(principal, is_local, tool) == "usable"

    # --- what a run needs ---

    def call(self, run: Run) -> Coroutine[Any, Any, Any]:
        """Run the call of a task, under a deadline and with the clean-up of any other."""
        call, params = run.call, run.call.params
        return self._kernel.runner.run(call, run.found, params.name, run.work(params.arguments))

    async def open(self, run: Run) -> Record:
        """Write down a new task for a run."""
        self._shares.take(run.caller)
        run.is_counted = True
        try:
            caller = run.caller
            # Those whom nobody knows are one owner, whose tasks are counted as one: this tells their addresses apart.
            is_unowned = caller is not None and run.call.principal is None
            if is_unowned and not self._unowned.admit(caller, 1, run.ttl_ms / 1000):
                raise too_many()
            process = "" if self.processes is None else await self.processes.registered()
            again = again_of(run.call) if run.tool.idempotent and process else UNSET
            return await self.create(
                owner_of(run.call),
                run.ttl_ms,
                run,
                message=run.said,
                progress=run.numbers[0],
                total=run.numbers[1],
                tool=run.call.params.name,
                process=process,
                again=again,
            )
        except BaseException:
            self._count_out(run)
            raise

    def _count_out(self, run: Followed) -> None:
        if isinstance(run, Run) and run.is_counted:
            run.is_counted = False
            self._shares.give_back(run.caller)

    async def create(self, owner: str, ttl_ms: int, followed: Followed, **details: Any) -> Record:
        """Create a record, within what its owner may have, and tell its client of changes."""
        await self.ready()
        await self.quota.check(owner)
        now = time.time()
        record = rules.new_record(self.records.new_id(now), now, ttl_ms, int(self.poll * 1000), **details)
        key = self.records.key(owner, record.id)
        self.follow(key, followed)
        try:
            await self.records.create(key, record)
        except BaseException:
            self.over(followed)
            raise
        followed.id, followed.created = record.id, record
        return record

    def follow(self, key: str, followed: Followed) -> None:
        followed.key = key
        self._followed[key] = followed
        if isinstance(followed, Run):
            self._running.add(key)

    def await_end(self, followed: Followed) -> None:
        """Let a task of the host run as long as any other task may, and let it fail then."""
        followed.timer = asyncio.get_running_loop().call_later(self.limits.task, self._out_of_time, followed)

    def _out_of_time(self, followed: Followed) -> None:
        text = f"The task did not end within {self.limits.task:g} seconds"
        log.warning("the task %s of the host failed: it did not end within %g seconds", followed.id, self.limits.task)
        failure = ProtocolError(INTERNAL_ERROR, text)
        self.in_background(self.settle(followed.key, lambda record: rules.fail(record, failure)))

    async def change(self, key: str, edit: Callable[[Record], bool]) -> Record | None:
        """Change a record, and tell of it; None when there is no such task."""
        record, changed = await self.records.change(key, edit)
        if changed:
            self._tell(key, record)
        return record

    async def finish(self, run: Run, outcome: Any) -> None:
        """Keep the outcome of a run; one that comes too late is discarded."""
        await self.settle(run.key, self.ending(run.key, run.revision, outcome, run.caller))

    def ending(self, key: str, revision: str, outcome: Any, caller: Caller = None) -> Callable[[Record], bool]:
        """Return the change of a record when its call comes to this outcome; the result is kept for a caller."""
        if isinstance(outcome, ProtocolError):
            return lambda record: rules.fail(record, outcome)
        try:
            result = Raw(encode_readable(self._kernel.results.finish(revision, outcome)))
        except (TypeError, ValueError, RecursionError):
            log.exception("the outcome of a task could not be written as JSON")
            failure = ProtocolError(INTERNAL_ERROR, "Internal error")
            return lambda record: rules.fail(record, failure)
        if len(result) > self.limits.result:
            failure = ProtocolError(INTERNAL_ERROR, f"The result is over the limit of {self.limits.result} bytes")
            return lambda record: rules.fail(record, failure)
        admitted = False

        def complete(record: Record) -> bool:
            nonlocal admitted
            # Counted once, however often it has to be written.
            admitted = admitted or record.over or self._results.admit(caller, len(result), record.ttl_ms / 1000)
            if not admitted:
                raise NoRoom
            return rules.complete(record, result, _failure_in(outcome), revision)

        return complete

    def in_words_of(self, revision: str, record: Record) -> Record:
        """Return the record with its result as the revision has it, which may not be that of the call."""
        if record.result is UNSET or record.revision == revision:
            return record
        result = t.decode(t.CallToolResult, record.result)
        if isinstance(result.meta, dict):
            result.meta.pop(t.SERVER_INFO_KEY, None)
            result.meta = result.meta or UNSET
        if revision != MODERN and result.structured_content is not UNSET:
            result.structured_content = as_object(result.structured_content, False, revision)
        record.result = Raw(encode_readable(self._kernel.results.finish(revision, result)))
        return record

    async def settle(self, key: str, ending: Callable[[Record], bool]) -> Record | None:
        """Write down the end of a task, also where the store is full or out of reach for a while."""
        for pause in (*_PAUSES, None):
            try:
                return await self.change(key, ending)
            except NoRoom:
                log.warning("the result of the task %s is dropped: there is no room for it", key.rpartition(":")[2])
                ending = _no_room  # Shorter than what it replaces, so that the store takes it.
            except ProtocolError:
                if pause is not None:
                    await asyncio.sleep(pause)
        log.error("the end of a task could not be kept")
        return None

    def answer_time(self, ttl_ms: int) -> float:
        """Return how many seconds the client has to answer a question of a task: longer if it asked for a long ttl."""
        return float(max(self.limits.state, ttl_ms / 1000))

    def over(self, run: Followed) -> None:
        if run.timer is not None:
            run.timer.cancel()
        self._followed.pop(run.key, None)
        self._running.discard(run.key)
        self._count_out(run)

    # --- changes ---

    def _tell(self, key: str, record: Record | None) -> None:
        followed = self._followed.get(key)
        if followed is not None:
            followed.heard(record)
            if record is None or record.over:
                self.over(followed)

    def _heard(self, key: str) -> None:
        """Look at a record that somebody has changed, if anybody here wants to know."""
        identifier = key.rpartition(":")[2]
        if key not in self._looking and (key in self._followed or self._listeners(identifier)):
            self._looking.add(key)
            self.in_background(self._look(key, identifier))

    def _listeners(self, identifier: str) -> list[Stream]:
        return [each for each in self._kernel.hub.streams if identifier in each.extra.get(FILTER, ())]

    async def _look(self, key: str, identifier: str) -> None:
        self._looking.discard(key)
        record = await self.records.find(key)
        self._tell(key, record)
        listeners = self._listeners(identifier)
        if record is not None and listeners:
            task = rules.detailed_task(self.in_words_of(MODERN, record), t.TaskNotificationParams, time.time())
            params = FrozenParams(msgspec.json.decode(msgspec.json.encode(task)))
            for stream in listeners:
                if await self.permissions(stream.call, [record]) == ["usable"]:
                    stream.tell(Change(FILTER, identifier, "notifications/tasks", params))

    def _lost(self) -> None:
        for key in tuple(self._followed):
            self._heard(key)

    def in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("looking after the tasks failed", exc_info=error)

    # --- the life of the server ---

    async def ready(self) -> None:
        """Take part on the running loop, and take over what a process that is gone has left behind; once."""
        loop = asyncio.get_running_loop()
        if self._ready_on is loop:
            return  # Every request about a task comes here.
        self._kernel.check_loop()
        if self._loop is not loop:
            self.forget_loop()
            self._loop = loop
        starting = self._starting
        if starting is None:
            starting = self._starting = loop.create_task(self._start())
        if not starting.done():
            await asyncio.wait({starting})
        if self._starting is starting and (starting.cancelled() or starting.exception() is not None):
            self._starting = None  # The next who comes tries again.
        starting.result()
        self._ready_on = loop

    async def _start(self) -> None:
        kv = self._kernel.stores.kv
        # What lives in the memory of this process dies with it, and nobody is left to take anything over.
        if not isinstance(kv, MemoryKV):
            self.processes = Processes(self._kernel.offer.implementation.name, kv, self._recover)
            self.records.listen()
            await self.processes.start()

    async def _recover(self) -> None:
        """Take over the tasks of processes that are gone."""
        assert self.processes is not None
        for key, record in await self.records.each():
            if not record.process and record.again is UNSET:
                continue  # The host drives it, and its host may be back.
            if not await self.processes.lives(record.process):
                await self._take_over(key, record.process)

    async def _take_over(self, key: str, process: str) -> None:
        assert self.processes is not None
        name = await self.processes.registered()

        def edit(record: Record) -> bool:
            return record.process == process and rules.hand_over(record, name, _MOST_RUNS)

        record, changed = await self.records.change(key, edit)
        if record is not None and changed and not record.over:
            self.in_background(self._run_again(key, record))

    async def _run_again(self, key: str, record: Record) -> None:
        """Make the call once more, with all that is around any call, for the task that it was before."""
        assert record.again is not UNSET
        request = request_of(record.again)
        self._repeated[request] = (key, record)
        outcome: Any
        try:
            outcome = await self._kernel.handle(request, Gone(is_local=record.again.is_local))
        except ProtocolError as error:
            outcome = error
        finally:
            self._repeated.pop(request, None)
        # One that got as far as its handler has its outcome by now.
        await self.settle(key, self.ending(key, request.revision, outcome))

    async def _taken_up(self, call: Call, found: Found[Tool], key: str, record: Record) -> Any:
        run = self.new_run(call, found, record.ttl_ms)
        run.id, run.created = record.id, record
        self.follow(key, run)
        run.announced = record.status
        run.start()
        assert run.worker is not None
        await asyncio.wait({run.worker})
        return run.outcome()

    async def stop(self) -> None:
        """End what runs, and take no part any more. What may be run again is left for the next process."""
        if self._loop is not asyncio.get_running_loop():
            self.forget_loop()  # The loop that used it last has ended.
            return
        runs = [each for each in self._followed.values() if isinstance(each, Run)]
        for run in runs:
            run.stop()
        workers = [run.worker for run in runs if run.worker is not None]
        if workers:
            await asyncio.wait(workers, timeout=1.0)
        await asyncio.gather(*(self.change(run.key, left_behind) for run in runs), return_exceptions=True)
        for followed in tuple(self._followed.values()):
            self.over(followed)
        if self._background:
            await asyncio.wait(self._background, timeout=1.0)
        self.records.leave()
        if self.processes is not None:
            await self.processes.stop()
            self.processes = None
        self.forget_loop()

    def forget_loop(self) -> None:
        """Forget what belongs to the loop that it took part on, which has ended."""
        self.records.forget_loop()
        if self.processes is not None:
            self.processes.forget_loop()
        for followed in tuple(self._followed.values()):
            self.over(followed)
        self._looking.clear()
        self._background.clear()
        self._loop = self._ready_on = self._starting = self.processes = None
        if self._workers is not None:
            self._workers.shutdown()
            self._workers = None


def called_tool(call: Call) -> str:
    """Return the tool that a request calls, under the name that clients know; empty for other requests."""
    target = target_of(call)
    return target.params.name if target is not None and target.method == "tools/call" else ""


def left_behind(record: Record) -> bool:
    """Change the record of a task whose process ends."""
    if not record.over and record.again is not UNSET:
        record.process = ""
        return True
    return rules.fail(record, ProtocolError(INTERNAL_ERROR, "The server stopped while the task was running"))


def _failure_in(outcome: Any) -> str | None:
    """Return the text of a tool's error; None for any other result."""
    if getattr(outcome, "is_error", False) is not True:
        return None
    texts = (block.text for block in outcome.content if isinstance(block, t.TextContent))
    return next(texts, "The tool failed")


def _no_room(record: Record) -> bool:
    text = "The result could not be kept: the store of the server is full"
    return rules.fail(record, ProtocolError(INTERNAL_ERROR, text))
