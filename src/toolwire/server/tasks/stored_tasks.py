"""`Tasks`: the tasks of a server, for a worker that has only its stores."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from toolwire.protocol.errors import ServerError, UnknownTask
from toolwire.protocol.surrogates import is_encodable
from toolwire.protocol.tasks import Record
from toolwire.server.limits import Limits
from toolwire.server.tasks.bells import Ringer
from toolwire.server.tasks.ends import Ends
from toolwire.server.tasks.own_tasks import HostTask, OwnTasks, TaskAccess
from toolwire.server.tasks.task_records import Records, longest_pause, short_name
from toolwire.stores import Stores
from toolwire.stores.by_address import STORES_VARIABLE, open_stores, stores_of_environment


class Tasks(OwnTasks):
    """The tasks that a server created with `server.tasks.create()`, in a process without the server.

    Use it as `async with Tasks("redis://...", server="name") as tasks`.
    """

    def __init__(
        self, stores: Stores | str | os.PathLike[str] | None = None, *, server: str, limits: Limits | None = None
    ) -> None:
        """Use the stores of the server with this name; without `stores`, those that TOOLWIRE_STORES names."""
        super().__init__()
        if not server or not isinstance(server, str) or not is_encodable(server):
            raise ServerError("Tasks() needs the name of the server: Tasks(stores, server='name')")
        given = stores if isinstance(stores, Stores) else None
        opened = given or (stores_of_environment() if stores is None else open_stores(stores))  # type: ignore[arg-type]
        if opened is None:
            raise ServerError(f"Tasks() needs the stores of the server: give stores=, or set {STORES_VARIABLE}")
        self.stores: Stores = opened
        self._is_own = given is None
        self._access = _StoredAccess(server, opened, limits or Limits())

    async def _locate(self, task: HostTask | str) -> tuple[TaskAccess, str]:
        records = self._access.records
        if isinstance(task, HostTask):
            return self._access, records.key(task.owner, task.id)
        key = await records.find_key(task)
        if key is None:
            raise UnknownTask(task)
        return self._access, key

    def close(self) -> None:
        """Close the stores, if they were given by an address."""
        if self._is_own:
            self.stores.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Unsigned:
    """Leaves results as they are: the server that answers the client words and signs them."""

    def finish(self, revision: str, result: Any, /) -> Any:
        return result


class _StoredAccess:
    """The tasks of one server, by its stores alone."""

    #: No revision: each client gets the result in the words of its own.
    result_revision = ""

    def __init__(self, server: str, stores: Stores, limits: Limits) -> None:
        self.stores = stores
        self.records = Records(short_name(server), stores, longest_pause(limits))
        self.ends = Ends(_Unsigned(), lambda: limits, self.change, self._end_damaged)
        self._longest = longest_pause(limits) + limits.task_ttl_max
        self._ringer = Ringer(stores)

    async def ready(self) -> None:
        """Do nothing: the processes of the server watch over tasks."""

    async def _end_damaged(self, key: str, seconds: float) -> Record | None:
        record = await self.records.end_damaged(key, seconds)
        if record is not None:
            await self._ringer.ring_all(self.records.server, key)
        return record

    async def change(
        self, key: str, edit: Callable[[Record], bool], *, holder: str = "", last: bytes | None = None
    ) -> Record | None:
        """Change a record, and ring the bells of the processes that have to know."""
        changed = await self.records.change(key, edit, holder=holder, last=last)
        record = changed.record
        if changed.written and record is not None:
            await self._ringer.ring(key, changed.process, record.process, record.origin, *changed.watchers)
        return record

    async def write_end(self, key: str, ending: Callable[[Record], bool]) -> Record | None:
        """Write the end of a task. Retry while the store keeps the record."""
        return await self.ends.write_end(key, ending, self._longest)
