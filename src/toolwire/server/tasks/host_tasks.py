"""`server.tasks`: tasks whose work is done by your program, and not by a tool call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import ServerError, UnknownTask
from toolwire.protocol.json_numbers import check_numbers
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable, is_encodable
from toolwire.server.call import Host
from toolwire.server.call_target import target_of
from toolwire.server.catalog import Catalog
from toolwire.server.context import Context, call_of
from toolwire.server.offer import ServerOffer
from toolwire.server.replay_state import principal_key
from toolwire.server.runtimes import Runtimes
from toolwire.server.tasks.callers import owner_of
from toolwire.server.tasks.dead_letters import DeadLetter
from toolwire.server.tasks.manager import TaskManager, called_tool
from toolwire.server.tasks.own_tasks import HostTask, OwnTasks, TaskAccess
from toolwire.server.tasks.running_tasks import Followed


class HostingKernel(Host, Protocol):
    """The kernel, as far as tasks of the program need it."""

    catalog: Catalog
    offer: ServerOffer
    runtimes: Runtimes[Any]


class HostTasks(OwnTasks):
    """Creates tasks and brings them to their end. Clients see them like any other.

    They are not calls, so no policy applies to them: nothing is masked in their messages and results.
    """

    def __init__(self, kernel: HostingKernel) -> None:
        super().__init__()
        self._kernel = kernel

    @property
    def _tasks(self) -> TaskManager:
        """The tasks of the server on the running loop."""
        return cast("TaskManager", self._kernel.runtimes.here().work.tasks.manager)

    async def create(
        self,
        ctx: Context | None = None,
        *,
        principal: Principal | None = None,
        ttl: float | None = None,
        message: str = "",
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
        heartbeat: float | None = None,
    ) -> HostTask:
        """Create a task for the client of `ctx`, or for a principal; it is kept for `ttl` seconds after its end.

        The client is notified of changes on the connection of `ctx`, if its revision allows that. `name` and
        `metadata`, in JSON types, are for your program: `get` returns them, and clients do not see them. With
        `heartbeat`, the task fails when its worker, once it has reported, does not report again for so many seconds.
        """
        heartbeat = None if heartbeat is None else rules.checked_number("heartbeat", heartbeat, is_time=True)
        ttl = None if ttl is None else rules.checked_number("ttl", ttl, is_time=True)
        message, name = rules.checked_text("message", message)[: rules.MAX_MESSAGE], rules.checked_text("name", name)
        metadata = _checked_metadata(metadata)
        _check_principal(principal)
        home = self if ctx is None else self._home_of(ctx)
        return await home._create(ctx, principal, ttl, heartbeat, message=message, name=name, metadata=metadata)

    def _home_of(self, ctx: Context) -> HostTasks:
        """Return the tasks of the called server: this one, or one that mounts it."""
        call = call_of(ctx)
        for home in self._homes():
            if home._kernel is call.host:
                return home
        mine, other = self._kernel.server.name, call.host.server.name
        raise ServerError(f"This call is one of the server {other!r}, whose clients do not see tasks of {mine!r}")

    def _homes(self) -> list[HostTasks]:
        return [self, *(catalog.owner.kernel.hosted_tasks for catalog in self._kernel.catalog.hosts())]

    def _check_loop(self) -> None:
        """Raise `ServerError` when the server runs on other event loops only: those of its clients and timers."""
        loops = [each.loop for each in self._kernel.runtimes.entered]
        if loops and asyncio.get_running_loop() not in loops:
            raise ServerError(
                f"The server {self._kernel.server.name!r} runs on another event loop. Create its tasks there: a task "
                "ends with the loop on which it was created"
            )

    async def _create(
        self,
        ctx: Context | None,
        principal: Principal | None,
        ttl: float | None,
        heartbeat: float | None,
        **details: Any,
    ) -> HostTask:
        self._check_loop()
        tasks = self._tasks
        limits = tasks.limits
        if not self._kernel.offer.has_tasks():
            name = self._kernel.server.name
            raise ServerError(
                f"The server {name!r} does not declare tasks, so its clients cannot ask for this one: "
                f"make it with Server({name!r}, tasks=True)"
            )
        if ctx is None:
            owner, followed = principal_key(principal) or "local", Followed(None, MODERN)
        else:
            call = call_of(ctx)
            outlet = call.outlet
            may_tell = partial(tasks.permissions.may_tell, call.principal, outlet.is_local)
            followed = Followed(outlet.connection, call.revision, may_tell)
            owner, target = owner_of(call), target_of(call)
            details["tool"] = called_tool(call)
            if target is not None and target.found is not None:
                details["judgement"] = tasks.judged(call, target.found)
        ttl_ms = rules.lifetime(
            int((limits.task_ttl if ttl is None else ttl) * 1000), limits.task_ttl, limits.task_ttl_max
        )
        await tasks.create_hosted(
            owner,
            ttl_ms,
            followed,
            lasts=True,
            heartbeat=heartbeat or 0.0,
            # A worker does not know the limits of this server.
            longest=tasks.longest,
            **details,
        )
        try:
            await tasks.records.write_owner(followed.id, owner, tasks.longest + limits.task_ttl_max)
        except BaseException:
            tasks.in_background(tasks.write_end(followed.key, rules.cancel))
            raise
        tasks.await_end(followed)
        return HostTask(followed.id, owner)

    async def dead_letters(self) -> list[DeadLetter]:
        """Return the calls that were given up after their last attempt, with their arguments, the oldest first."""
        return await self._tasks.letters.all()

    async def send_again(self, letter: DeadLetter) -> HostTask | None:
        """Run a dead letter's call again as a new task; None if it expired."""
        await self._tasks.ready()
        identifier = await self._tasks.letters.send_again(letter.id, self._tasks.records)
        if identifier is None:
            return None
        await self._tasks.announce_ready()
        return HostTask(identifier, letter.owner)

    async def _locate(self, task: HostTask | str) -> tuple[TaskAccess, str]:
        if not isinstance(task, HostTask | str):
            raise ServerError(
                f"A task is what server.tasks.create() returned, or its id as text, not {type(task).__name__}"
            )
        homes = self._homes()
        if isinstance(task, HostTask):
            own = self._tasks.records.key(task.owner, task.id)
            if len(homes) == 1:
                return self._tasks, own
            for home in homes:
                key = home._tasks.records.key(task.owner, task.id)
                if await home._tasks.records.find(key) is not None:
                    return home._tasks, key
            return self._tasks, own
        for home in homes:
            found = await home._tasks.records.find_key(task)
            if found is not None:
                return home._tasks, found
        raise UnknownTask(task)


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata as JSON values. Raise `ServerError` for anything else."""
    try:
        check_numbers("metadata", metadata)
        kept = msgspec.json.decode(encode_readable({} if metadata is None else dict(metadata)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ServerError(f"metadata= is a mapping in JSON types: {error}") from None
    assert isinstance(kept, dict)
    return kept


def _check_principal(principal: Any) -> None:
    """Raise `ServerError` for a value that is not a `Principal`, such as a name, and for one that names no owner."""
    if principal is None:
        return
    if not isinstance(getattr(principal, "subject", None), str):
        raise ServerError(
            f"principal= is a Principal with the provider and subject of the caller, not {type(principal).__name__}"
        )
    for name in ("subject", "provider"):
        if not is_encodable(getattr(principal, name, "")):
            raise ServerError(f"principal= has half of a surrogate pair in its {name}, which UTF-8 cannot carry")
