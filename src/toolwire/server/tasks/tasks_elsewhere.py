"""Tasks of servers behind this one: their records are there, and only their names are made here.

The name of such a task is sealed for its owner. So any process with the same secret finds the server that has the task,
nobody else can use the name, and nothing has to be remembered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.decoders import decoder_of
from toolwire.protocol.errors import BAD_JSON, INVALID_PARAMS, CallRefused, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.sealing import VERSION, BadSeal
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.components import ToolBase
from toolwire.server.foreign_tasks import ForeignTask, ForeignTasks, TaskElsewhere
from toolwire.server.judgements import Judgement
from toolwire.server.subscriptions import Hub
from toolwire.server.tasks.callers import JudgedTask, owner_of
from toolwire.server.tasks.following import FILTER
from toolwire.server.tasks.parts import TaskParts
from toolwire.server.tasks.running_tasks import Followed
from toolwire.server.tasks.service import TaskService
from toolwire.server.tasks.task_records import reached
from toolwire.wire.shares import StorageBudget, is_distinct

if TYPE_CHECKING:
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcement import Enforcer

#: How long the name of a task behind this server may be. It grows with each server that a task is behind.
MAX_NAME: Final = 6_000
#: How many tasks of one page are asked for at the servers that have them.
PAGE: Final = 20
#: How many names of tasks this process keeps for `tasks/list` at a time.
_MOST_LISTED: Final = 50_000

log: logging.Logger = logging.getLogger("toolwire.tasks")

_encode = msgspec.json.encode
_decode = decoder_of(ForeignTask).decode


def mark_of(server: str) -> str:
    """Return the mark of a server by its name, which may say more than clients should know."""
    return digest(server)[:12]


def sealed_name(call: Call, task: ForeignTask) -> str:
    """Return the name of a task for the caller, and for nobody else."""
    name = call.host.signer.seal(_encode(task), _context(call))
    if len(name) > MAX_NAME:
        raise ValueError("its task id is too long to be handed on")
    return name


def opened_name(call: Call, name: str) -> ForeignTask | None:
    """Return the task that a name of the caller means; None for any other text."""
    if len(name) > MAX_NAME:
        return None
    try:
        return _decode(call.host.signer.open(name, _context(call)))
    except (BadSeal, *BAD_JSON):
        return None


def _context(call: Call) -> bytes:
    return b"task/" + owner_of(call).encode()


class _Late(NamedTuple):
    """The policies for what leaves of a task, then and now."""

    enforcer: Enforcer
    target: CallTarget
    kept: Policy | None


class TasksElsewhere:
    """The tasks of all servers behind this one."""

    def __init__(self, kernel: TaskParts, hub: Hub, tasks: TaskService) -> None:
        self._kernel = kernel
        self._hub = hub
        self._tasks = tasks
        self._permissions = tasks.permissions
        self._listed = StorageBudget(_MOST_LISTED, tasks.limits.share)

    @property
    def window(self) -> float:
        """The seconds that a call may take before its client gets a task instead of the result."""
        return self._tasks.limits.task_window

    def find(self, call: Call, name: str) -> ForeignTask | None:
        """Return a task behind this server; None where the name is not that of one."""
        return opened_name(call, name) if name.startswith(VERSION) else None

    def _owners(self) -> list[ForeignTasks]:
        catalog = self._kernel.catalog
        found = (each.foreign_tasks for each in (catalog, *catalog.family()))
        return [each for each in found if each is not None]

    def _owner(self, task: ForeignTask) -> ForeignTasks:
        owners = [each for each in self._owners() if each.mark == task.server]
        if not owners:
            raise rules.unknown_task()  # The server was taken away.
        # Of a server and the one that it replaces, the second only has the tasks that were made there.
        return next((each for each in owners if each.knows(task)), owners[0])

    # --- what was decided ---

    async def accept(self, call: Call) -> str:
        """Keep what was decided about a call that becomes a task; return its mark."""
        target = target_of(call)
        found = None if target is None else target.found
        if found is None:
            return ""  # A tool that is not listed: its task is hidden.
        judgement = self._kernel.judge(call, found)
        task = JudgedTask(call.params.name, judgement)
        principal, is_local = call.principal, call.outlet.is_local
        call.may_tell = lambda: self._permissions.judge(principal, is_local, task) == "usable"
        return await self._kernel.judgements.keep(judgement)

    async def _judged(self, call: Call, task: ForeignTask) -> JudgedTask:
        """Return what was decided about the call of a task. Raise an unknown task where that is not known any more."""
        if not task.judged:
            return JudgedTask(task.tool, self._judge_earlier(call, task))
        unjudged = JudgedTask(task.tool, None)
        now = self._permissions.find_tool(call, unjudged)
        judgement = await reached(self._kernel.find_judgement(call, now, task.judged))
        if judgement is None:
            self._permissions.check_now(call, unjudged)
            raise rules.unknown_task()
        return JudgedTask(task.tool, judgement)

    def _judge_earlier(self, call: Call, task: ForeignTask) -> Judgement:
        """Judge a task of a version that kept no judgements: its tool is known, and every mask that exists holds."""
        unjudged = JudgedTask(task.tool, None)
        found = self._permissions.find_tool(call, unjudged)
        if found is None:
            self._permissions.check_now(call, unjudged)
            raise rules.unknown_task()
        owners = (found.owner.catalog, *(mount.catalog for mount in found.way))
        is_owned = any(each.foreign_tasks is not None and each.foreign_tasks.mark == task.server for each in owners)
        judgement = self._kernel.judge_earlier(call, found)
        if judgement is None or not is_owned:
            raise rules.unknown_task()
        return judgement

    def _late(self, call: Call, task: JudgedTask) -> _Late | None:
        """Return the policies of then and now for a task; None where there are none."""
        enforcer, kept = self._kernel.enforce_late(task.judgement)
        if enforcer is None:
            return None
        found = self._permissions.find_tool(call, task)
        target = CallTarget("tools/call", task.tool, t.CallToolRequestParams(name=task.tool), found)
        return _Late(enforcer, target, kept)

    # --- requests ---

    async def answer(self, call: Call, task: ForeignTask) -> Any:
        """Answer a request about a task: no more than what the caller may do with its tool, and within its policies."""
        owner = self._owner(task)
        judged = await self._judged(call, task)
        check = partial(self._permissions.check_now, call, judged)
        check()
        call.judgement = judged.judgement
        found = self._permissions.find_tool(call, judged)
        tool = None if found is None else found.component

        async def asked(call: Call) -> Any:
            try:
                answer = await owner.answer(call, task, tool, check)
                check()  # The request may have waited for the end of the task.
            except ProtocolError as error:
                raise error if tool is None else tool.bound_error(call, error) from None
            return answer if tool is None or tool.original is None else await _leaving(call, tool, answer)

        late = self._late(call, judged)
        return await (
            asked(call) if late is None else late.enforcer.about_accepted(call, late.target, asked, late.kept)
        )

    async def ended(self, call: Call, result: Any) -> t.CreateTaskResult:
        """Make a task out of a call that has ended, because its 2025-11-25 client asked for one."""
        limits, tasks, tool = self._tasks.limits, self._tasks, call.params.name
        target = target_of(call)
        found = None if target is None else target.found
        details: dict[str, Any] = {"tool": tool}

        async def leave(call: Call) -> Any:
            return result if found is None else await found.component.leaving(call, result)

        outcome: Any
        if found is None:
            outcome = await leave(call)
        else:
            judgement = self._kernel.judge(call, found)
            details["judgement"] = Raw(_encode(judgement))
            late = self._late(call, JudgedTask(tool, judgement))
            outcome = await (
                leave(call) if late is None else late.enforcer.about_accepted(call, late.target, leave, late.kept)
            )
        ttl = rules.lifetime(rules.wanted_ttl(call.params.task), limits.task_ttl, limits.task_ttl_max)
        followed = Followed(None, call.revision)
        record = await tasks.create_hosted(owner_of(call), ttl, followed, **details)
        created = rules.core_task(record, t.Task, record.created)
        await tasks.write_end(followed.key, tasks.ends.ending(call.revision, outcome, call.request.caller))
        call.task_elsewhere = TaskElsewhere(created.task_id, partial(_ended, outcome))
        # 2025-11-25 tasks, creation: every task begins as working.
        return t.CreateTaskResult(task=created)

    # --- lists ---

    async def keep(self, call: Call, name: str) -> None:
        """Keep the name of a task for the lists of its owner, where the owner can ask for lists.

        The list of the other server is no help: it has the tasks of everybody whom this server calls it for.
        """
        if not is_distinct(call.principal) and not call.outlet.is_local:
            return
        seconds = self._tasks.limits.task
        if self._listed.admit(call.request.caller, 1, seconds):
            key = self._start(call) + self._tasks.records.new_id(time.time())
            with suppress(ProtocolError):  # The log has the reason. The task is there, and is only not listed.
                await reached(self._kernel.stores.kv.put(key, name.encode(), ttl=seconds))

    async def page(self, call: Call, after: str, most: int) -> tuple[list[t.Task], str | None]:
        """Return a page of the caller's tasks, and its last key if more follow."""
        if not self._owners():
            return [], None
        start, most = self._start(call), min(most, PAGE)
        keys = await reached(self._kernel.stores.kv.keys(start, after=f"{start}{after}", limit=most + 1))
        tasks: list[t.Task] = []
        for key in keys[:most]:
            task = await self._listed_task(call, key)
            if task is not None:
                tasks.append(task)
        return tasks, keys[most - 1].removeprefix(start) if len(keys) > most else None

    async def _listed_task(self, call: Call, key: str) -> t.Task | None:
        stored = await reached(self._kernel.stores.kv.get(key))
        name = "" if stored is None else stored.decode()
        task = opened_name(call, name)
        judged = None if task is None else await self._usable(call, task)
        if task is None or judged is None:
            return None
        try:
            state = await self._owner(task).state(call, task, name)
            self._permissions.check_now(call, judged)
            late = self._late(call, judged)
            return state if late is None else late.enforcer.mask_task(call, late.target, state, late.kept)
        except ProtocolError as error:
            if error.code == INVALID_PARAMS:
                await reached(self._kernel.stores.kv.delete(key))  # The task has expired.
            return None
        except ToolwireError:
            return None  # Its server is away.

    async def _usable(self, call: Call, task: ForeignTask) -> JudgedTask | None:
        """Return what was decided about a task; None where the caller may not use it now."""
        try:
            judged = await self._judged(call, task)
            self._permissions.check_now(call, judged)
        except ToolwireError:
            return None
        return judged

    def _start(self, call: Call) -> str:
        return f"toolwire:foreign-task:{self._tasks.records.server}:{digest(owner_of(call))}:"

    # --- listening ---

    @asynccontextmanager
    async def listening(self, call: Call, names: Sequence[str]) -> AsyncIterator[list[str]]:
        """Tell the listen stream of a call of the changes of tasks. Yield the names that it will hear of."""
        wanted: dict[str, dict[str, ForeignTask]] = {}
        judged: dict[str, JudgedTask] = {}
        for name in dict.fromkeys(names):
            task = self.find(call, name)
            if task is not None and (usable := await self._usable(call, task)) is not None:
                wanted.setdefault(task.server, {})[name] = task
                judged[name] = usable
        async with AsyncExitStack() as open_streams:
            heard: list[str] = []
            for tasks in wanted.values():
                try:
                    owner = self._owner(next(iter(tasks.values())))
                    tell = self._telling(call, judged)
                    calls = {name: call.judged_by(judged[name].judgement) for name in tasks}
                    heard += await open_streams.enter_async_context(owner.listening(call, tasks, calls, tell))
                except ToolwireError:
                    continue  # SUB-3: what cannot be heard of is left out.
            yield heard

    def _telling(self, call: Call, judged: Mapping[str, JudgedTask]) -> Callable[[str, Mapping[str, Any]], None]:
        """Return what tells listen streams of tasks, within the policies of the calls that made the tasks."""

        def tell(name: str, params: Mapping[str, Any]) -> None:
            task = judged[name]
            if self._permissions.judge(call.principal, call.outlet.is_local, task) != "usable":
                return
            found = self._permissions.find_tool(call, task)
            budget = None if found is None else found.component.result_budget
            outcomes = (params[each] for each in ("result", "error") if each in params)
            if budget is not None and any(len(t.encode(each)) > budget for each in outcomes):
                return  # The client gets the short form when it asks for the task.
            late = self._late(call, task)
            if late is not None:
                try:
                    params = late.enforcer.mask_task(call, late.target, dict(params), late.kept)
                except CallRefused as error:
                    log.debug("a listen stream is not told of a task: %s", error)
                    return  # The client learns the reason when it asks for the task.
            change = Change(FILTER, name, "notifications/tasks", FrozenParams(params))
            for stream in self._hub.streams:
                if name in stream.extra.get(FILTER, ()):
                    stream.tell(change)

        return tell


def _ended(outcome: Any) -> asyncio.Future[Any]:
    end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    end.set_result(outcome)
    return end


async def _leaving(call: Call, tool: ToolBase, answer: Any) -> Any:
    """Return an answer about a task in the form in which the tool lets results leave."""
    if call.method == "tasks/result":
        return await tool.leaving(call, answer)
    if not call.request.modern or call.method != "tasks/get":
        return answer
    encoded = Raw(t.encode(answer)) if isinstance(answer, t.Wire) else answer
    members: dict[str, Any] = msgspec.json.decode(encoded, type=dict[str, Raw]) if isinstance(encoded, Raw) else answer
    changes: dict[str, Any] = {}
    if (result := members.get("result")) is not None and (short := await tool.leaving(call, result)) is not result:
        changes["result"] = Raw(t.encode(short))
    if (failed := members.get("error")) is not None:
        told = t.decode(t.Error, failed if isinstance(failed, Raw) else t.encode(failed))
        error = ProtocolError(told.code, told.message, told.data)
        if (bounded := tool.bound_error(call, error)) is not error:
            changes["error"] = {"code": bounded.code, "message": bounded.message}
    return Raw(msgspec.json.encode({**members, **changes})) if changes else answer
