"""Tasks of servers behind this one: their records are there, and only their names are made here.

The name of such a task is sealed for its owner. So any process with the same secret finds the server that has the task,
nobody else can use the name, and nothing has to be remembered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import Raw

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.errors import BAD_JSON, INVALID_PARAMS, CallRefused, ProtocolError, ToolwireError
from toolwire.protocol.rounds import digest
from toolwire.protocol.sealing import VERSION, BadSeal
from toolwire.protocol.tasks import Record
from toolwire.server.call import Call
from toolwire.server.call_target import CallTarget
from toolwire.server.catalog import Catalog
from toolwire.server.components import ToolBase
from toolwire.server.foreign_tasks import ForeignTask, ForeignTasks
from toolwire.server.limits import Limits
from toolwire.server.storage_budget import StorageBudget
from toolwire.server.subscriptions import Hub
from toolwire.server.tasks.ends import Ends
from toolwire.server.tasks.following import FILTER
from toolwire.server.tasks.owners import owner_of
from toolwire.server.tasks.permissions import TaskPermissions
from toolwire.server.tasks.running_tasks import Followed
from toolwire.server.tasks.task_records import Records, reached
from toolwire.stores import Stores
from toolwire.wire.shares import is_distinct

if TYPE_CHECKING:
    from toolwire.server.policy.enforcement import Enforcer

#: How long the name of a task behind this server may be. It grows with each server that a task is behind.
MAX_NAME: Final = 6_000
#: How many tasks of one page are asked for at the servers that have them.
PAGE: Final = 20
#: How many names of tasks this process keeps for `tasks/list` at a time.
_MOST_LISTED: Final = 50_000

log: logging.Logger = logging.getLogger("toolwire.tasks")

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(ForeignTask).decode


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


class ForeignParts(Protocol):
    """The parts of the kernel that tasks of other servers need."""

    catalog: Catalog
    enforcer: Enforcer | None
    hub: Hub
    stores: Stores


class KeptTasks(Protocol):
    """The tasks whose records are here."""

    ends: Ends
    limits: Limits
    permissions: TaskPermissions
    records: Records

    async def create_hosted(self, owner: str, ttl_ms: int, followed: Followed, **details: Any) -> Record: ...

    async def write_end(self, key: str, ending: Callable[[Record], bool]) -> Record | None: ...


class TasksElsewhere:
    """The tasks of all servers behind this one."""

    def __init__(self, kernel: ForeignParts, tasks: KeptTasks) -> None:
        self._kernel = kernel
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

    async def answer(self, call: Call, task: ForeignTask) -> Any:
        """Answer a request about a task: no more than what the caller may do with its tool, and within its policies."""
        owner = self._owner(task)
        if self._permissions.restrict:
            await self._permissions.check(call, task)

        found = self._kernel.catalog.tool(task.tool)

        async def asked(call: Call) -> Any:
            tool = None if found is None else found.component
            try:
                answer = await owner.answer(call, task, tool)
            except ProtocolError as error:
                raise error if tool is None else tool.bound_error(call, error) from None
            return answer if tool is None or tool.original is None else await _leaving(call, tool, answer)

        return await self._within_policies(call, task.tool, asked)

    async def _within_policies(self, call: Call, tool: str, operation: Callable[[Call], Awaitable[Any]]) -> Any:
        enforcer = self._kernel.enforcer
        if enforcer is None:
            return await operation(call)
        return await enforcer.about_task(call, self._target(tool), operation)

    def _target(self, tool: str) -> CallTarget:
        """Return the call that made a task, as policies see it."""
        return CallTarget("tools/call", tool, t.CallToolRequestParams(name=tool), self._kernel.catalog.tool(tool))

    async def ended(self, call: Call, result: Any) -> t.CreateTaskResult:
        """Make a task out of a call that has ended, because its 2025-11-25 client asked for one."""
        limits, tasks, tool = self._tasks.limits, self._tasks, call.params.name

        async def leave(call: Call) -> Any:
            found = self._kernel.catalog.tool(tool)
            return result if found is None else await found.component.leaving(call, result)

        outcome = await self._within_policies(call, tool, leave)
        ttl = rules.lifetime(rules.wanted_ttl(call.params.task), limits.task_ttl, limits.task_ttl_max)
        followed = Followed(None, call.revision)
        record = await tasks.create_hosted(owner_of(call), ttl, followed, tool=tool)
        created = rules.core_task(record, t.Task, record.created)
        await tasks.write_end(followed.key, tasks.ends.ending(call.revision, outcome, call.request.caller))
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
        if task is None or (await self._permissions.of(call, [task])) != ["usable"]:
            return None
        try:
            state = await self._owner(task).state(call, task, name)
            enforcer = self._kernel.enforcer
            return state if enforcer is None else enforcer.told_of_task(call, self._target(task.tool), state)
        except ProtocolError as error:
            if error.code == INVALID_PARAMS:
                await reached(self._kernel.stores.kv.delete(key))  # The task has expired.
            return None
        except ToolwireError:
            return None  # Its server is away.

    def _start(self, call: Call) -> str:
        return f"toolwire:foreign-task:{self._tasks.records.server}:{digest(owner_of(call))}:"

    # --- listening ---

    @asynccontextmanager
    async def listening(self, call: Call, names: Sequence[str]) -> AsyncIterator[list[str]]:
        """Tell the listen stream of a call of the changes of tasks. Yield the names that it will hear of."""
        wanted: dict[str, dict[str, ForeignTask]] = {}
        for name in dict.fromkeys(names):
            task = self.find(call, name)
            if task is not None and await self._permissions.of(call, [task]) == ["usable"]:
                wanted.setdefault(task.server, {})[name] = task
        async with AsyncExitStack() as open_streams:
            heard: list[str] = []
            for tasks in wanted.values():
                try:
                    owner = self._owner(next(iter(tasks.values())))
                    tell = self._telling(call, tasks)
                    heard += await open_streams.enter_async_context(owner.listening(call, tasks, tell))
                except ToolwireError:
                    continue  # SUB-3: what cannot be heard of is left out.
            yield heard

    def _telling(self, call: Call, tasks: Mapping[str, ForeignTask]) -> Callable[[str, Mapping[str, Any]], None]:
        """Return what tells listen streams of tasks, within the policies of the calls that made the tasks."""
        enforcer = self._kernel.enforcer

        def tell(name: str, params: Mapping[str, Any]) -> None:
            found = self._kernel.catalog.tool(tasks[name].tool)
            budget = None if found is None else found.component.result_budget
            outcomes = (params[each] for each in ("result", "error") if each in params)
            if budget is not None and any(len(t.encode(each)) > budget for each in outcomes):
                return  # The client gets the short form when it asks for the task.
            if enforcer is not None:
                try:
                    params = enforcer.told_of_task(call, self._target(tasks[name].tool), dict(params))
                except CallRefused as error:
                    log.debug("a listen stream is not told of a task: %s", error)
                    return  # The client learns the reason when it asks for the task.
            change = Change(FILTER, name, "notifications/tasks", FrozenParams(params))
            for stream in self._kernel.hub.streams:
                if name in stream.extra.get(FILTER, ()):
                    stream.tell(change)

        return tell


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
