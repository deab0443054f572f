"""`server.tasks`: tasks whose work is not a call but something that the host does in its own time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from toolwire.auth.principal import Principal
from toolwire.content import ToolResult
from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.tasks import Record
from toolwire.server.context import Context, call_of
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.dead_letters import DeadLetter
from toolwire.server.tasks.manager import Tasks, called_tool
from toolwire.server.tasks.owners import owner_of
from toolwire.server.tasks.running_tasks import Followed


class HostTask(Struct, frozen=True):
    """A task that the host drives. Both members together name it for good, also in another process."""

    id: str
    """What clients know it by."""
    owner: str
    """Whom it belongs to."""


class HostTasks:
    """Creates tasks and brings them to their end. Clients see them like any other.

    They are no calls, so no policy holds for them: nothing is masked in what they say.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    async def create(
        self,
        ctx: Context | None = None,
        *,
        principal: Principal | None = None,
        ttl: float | None = None,
        message: str = "",
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
    ) -> HostTask:
        """Create a task for the client of `ctx`, or for a principal; it is kept for `ttl` seconds after its end.

        The client is told of changes on the connection of `ctx`, as far as its revision has a way. `name` and
        `metadata`, in JSON types, are for the host: `get` returns them, and clients do not see them.
        """
        limits = self._tasks.limits
        if ctx is None:
            owner, tool, followed = principal_key(principal) or "local", "", Followed(None, MODERN)
        else:
            call = call_of(ctx)
            outlet = call.outlet
            may_tell = partial(self._tasks.permissions.may_tell, call.principal, outlet.is_local)
            followed = Followed(outlet.connection, call.revision, may_tell)
            owner, tool = owner_of(call), called_tool(call)
        longest = limits.task_ttl_max
        ttl_ms = rules.lifetime(int((limits.task_ttl if ttl is None else ttl) * 1000), limits.task_ttl, longest)
        details = {} if metadata is None else msgspec.json.decode(msgspec.json.encode(dict(metadata)))
        await self._tasks.create_hosted(
            owner, ttl_ms, followed, message=message, tool=tool, name=name, metadata=details
        )
        self._tasks.await_end(followed)
        return HostTask(followed.id, owner)

    async def dead_letters(self) -> list[DeadLetter]:
        """Return the calls that were given up after their last attempt, with their arguments, the oldest first."""
        return await self._tasks.letters.all()

    async def send_again(self, letter: DeadLetter) -> HostTask | None:
        """Make a new task of the same owner out of a dead letter; None for a letter that is no longer there."""
        await self._tasks.ready()
        identifier = await self._tasks.letters.send_again(letter.id, self._tasks.records)
        if identifier is None:
            return None
        await self._tasks.announce_ready()
        return HostTask(identifier, letter.owner)

    async def get(self, task: HostTask) -> Record | None:
        """Return the task as it stands; None for one that has expired."""
        return await self._tasks.records.find(self._key(task))

    async def update(self, task: HostTask, message: str) -> bool:
        """Say how far the work is; False for a task that is over."""
        try:
            return await self._noted(task, lambda record: rules.say(record, message), self._tasks.change)
        except ProtocolError:
            return False  # The log has the reason. Another update may get through.

    async def finish(self, task: HostTask, value: Any = None) -> bool:
        """End it with a result: what a tool may return as content, or a `ToolResult`; False for one that is over."""
        result = value if isinstance(value, ToolResult) else ToolResult(value)
        return await self._end(task, self._tasks.ends.ending(MODERN, result.to_wire()))

    async def fail(self, task: HostTask, error: str | ProtocolError) -> bool:
        """End it without a result; clients read the reason. False for a task that is over."""
        failure = error if isinstance(error, ProtocolError) else ProtocolError(INTERNAL_ERROR, error)
        return await self._end(task, lambda record: rules.fail(record, failure))

    async def cancel(self, task: HostTask) -> bool:
        return await self._end(task, rules.cancel)

    async def _end(self, task: HostTask, ending: Callable[[Record], bool]) -> bool:
        """Bring a task to its end. While the store is away this is tried again, for as long as it keeps the task."""
        return await self._noted(task, ending, self._tasks.settle)

    async def _noted(
        self,
        task: HostTask,
        edit: Callable[[Record], bool],
        write: Callable[[str, Callable[[Record], bool]], Awaitable[Record | None]],
    ) -> bool:
        """Write a change, and return whether it changed anything."""
        changed = False

        def noted(record: Record) -> bool:
            nonlocal changed
            changed = edit(record)
            return changed

        await self._tasks.ready()
        await write(self._key(task), noted)
        return changed

    def _key(self, task: HostTask) -> str:
        if not isinstance(task, HostTask):
            raise ServerError(f"A task is what server.tasks.create() returned, not {type(task).__name__}")
        return self._tasks.records.key(task.owner, task.id)
