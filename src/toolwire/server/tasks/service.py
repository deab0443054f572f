"""`TaskService`: the tasks of one runtime, as the parts use them that `TaskManager` is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from toolwire.protocol.tasks import Record
from toolwire.server.call import Call
from toolwire.server.catalog import Found
from toolwire.server.components import ToolBase
from toolwire.server.limits import Limits
from toolwire.server.tasks.callers import TaskPermissions
from toolwire.server.tasks.ends import Ends
from toolwire.server.tasks.following import Following, Restoring
from toolwire.server.tasks.running_tasks import Followed, Run
from toolwire.server.tasks.task_records import Quota, Records
from toolwire.wire.shares import Turns


class TaskService(Protocol):
    """The tasks of one runtime. `TaskManager` says what each member does."""

    ends: Ends
    following: Following
    permissions: TaskPermissions
    quota: Quota
    records: Records
    restoring: Restoring
    slots: Turns

    @property
    def limits(self) -> Limits: ...

    @property
    def is_draining(self) -> bool: ...

    async def ready(self) -> None: ...

    async def process(self) -> str: ...

    # --- calls that become tasks, and tasks that begin ---

    def new_run(self, call: Call, found: Found[ToolBase], ttl_ms: int, owner: str) -> Run: ...

    async def create_for(self, run: Run, *, most_ready: int | None = None, **details: Any) -> Record: ...

    async def create_hosted(self, owner: str, ttl_ms: int, followed: Followed, **details: Any) -> Record: ...

    def adopt(self, run: Run, key: str, record: Record, data: bytes, process: str) -> None: ...

    async def begin(self, run: Run) -> bool: ...

    def abandon(self, run: Run) -> None: ...

    def over(self, run: Run) -> None: ...

    async def wait_for_slot(self, run: Run) -> None: ...

    async def is_queue_empty(self) -> bool: ...

    def kinds(self) -> Sequence[str]: ...

    def in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    async def announce_ready(self) -> None: ...

    async def become_ready(self, servers: set[str]) -> None: ...

    def signed(self, result: Any) -> Any: ...

    # --- records ---

    async def change(
        self,
        key: str,
        edit: Callable[[Record], bool],
        *,
        holder: str = "",
        last: bytes | None = None,
        orphan_of: str = "",
        delay: float = 0.0,
    ) -> Record | None: ...

    async def write_end(self, key: str, ending: Callable[[Record], bool], *, holder: str = "") -> Record | None: ...

    async def end_damaged(
        self, key: str, seconds: float, *, holder: str = "", orphan_of: str = ""
    ) -> Record | None: ...

    # --- what this process holds ---

    @property
    def takes(self) -> tuple[int, bool]: ...

    def holds(self, key: str) -> bool: ...

    def held_keys(self) -> set[str]: ...

    def doubt(self) -> None: ...
