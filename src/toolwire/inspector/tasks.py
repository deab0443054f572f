"""Tool calls that may become tasks, with the state of the task.

On 2025-11-25 the client asks for a task; on 2026-07-28 the server decides, so there every call may become one.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Raw

from toolwire.client import Client
from toolwire.client.connection import OnProgress
from toolwire.client.tasks import TaskHandle, TaskState
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.revisions import is_modern

#: Seconds for requests that only find out how a task ended.
_PATIENCE: Final = 5.0


class WatchedTask(TaskHandle):
    """A task that tells its state whenever the client asks for it."""

    def __init__(self, started: TaskHandle, tell: Callable[[TaskState], None]) -> None:
        super().__init__(started._calls, started.id, started.tool)
        self._inline = started._inline
        self._stop_reports = started._stop_reports
        self._tell = tell

    async def status(self, *, timeout: float | None = None) -> TaskState:
        state = await super().status(timeout=timeout)
        if self._inline is None:
            self._tell(state)
        return state

    async def outcome(self, on_progress: OnProgress, *, looks_by_itself: bool) -> Raw:
        """Wait for the result as the server sent it.

        When the waiting is cancelled, the task is cancelled too. A task that ended before it could be cancelled has a
        result all the same.
        """
        looking = None if looks_by_itself else asyncio.ensure_future(self._poll_updates())
        try:
            raw = await self._outcome(self._sender.start_clock(math.inf), on_progress)
            if looking is not None:
                await self._poll_once()
            return raw
        except asyncio.CancelledError:
            with contextlib.suppress(ToolwireError):
                ended = await asyncio.shield(asyncio.ensure_future(self._stop()))
                if ended.status in ("completed", "failed"):
                    return await self._outcome(self._sender.start_clock(math.inf), None)
            raise
        finally:
            if looking is not None:
                looking.cancel()

    async def _stop(self) -> TaskState:
        await self.cancel(timeout=_PATIENCE)
        return await self.status(timeout=_PATIENCE)

    async def _poll_once(self) -> None:
        with contextlib.suppress(ToolwireError):
            await self.status(timeout=_PATIENCE)

    async def _poll_updates(self) -> None:
        with contextlib.suppress(ToolwireError):
            async for _ in self.updates():
                pass


async def call_as_task(
    client: Client,
    name: str,
    arguments: Mapping[str, Any],
    on_progress: OnProgress,
    tell: Callable[[TaskState], None],
) -> Raw:
    """Call a tool that may become a task, and wait for its result."""
    started = await client.call_tool_as_task(name, arguments, timeout=math.inf, on_progress=on_progress)
    task = WatchedTask(started, tell)
    # On 2026-07-28 a client waits by polling, which shows the state. Before, it waits in one long request.
    return await task.outcome(on_progress, looks_by_itself=is_modern(client.revision) or not task.id)


def describe_state(state: TaskState) -> dict[str, Any]:
    return {"id": state.id, "status": state.status, "message": state.message, "ttl": state.ttl}
