"""The order of the calls of a toolset, and their cancellation.

Calls of one response that only read run at the same time. Every other call runs alone, in the order of the calls. Two
responses that are answered at the same time do not wait for each other, except that such a tool runs once at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct

from toolwire.agents.call_errors import CANCELLED, NOT_BEGUN, report_failure
from toolwire.agents.result_parts import ResultParts, error_parts

#: How many calls of one response run at the same time.
MOST_AT_ONCE: Final = 16


class PlannedCall(Struct, eq=False):
    """One call of a response, from the time when the response is read."""

    id: str
    tool: Hashable
    is_parallel: bool
    make: Make
    task: asyncio.Task[ResultParts] | None = None
    is_cancelled: bool = False
    has_begun: bool = False
    is_done: bool = False
    result: ResultParts | None = None


#: What makes a call.
Make: TypeAlias = Callable[[PlannedCall], Coroutine[Any, Any, ResultParts]]


class ResponseCalls:
    """The calls that run or wait, by the ids that models gave them."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[PlannedCall]] = {}
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def run(self, jobs: Sequence[PlannedCall], *, is_ordered: bool = False) -> None:
        """Make all calls; with `is_ordered`, without waiting for other responses."""
        for job in jobs if is_ordered else ():
            job.tool = job
        for job in jobs:
            self._jobs.setdefault(job.id, []).append(job)
        try:
            together: list[PlannedCall] = []
            for job in jobs:
                if not job.is_parallel:
                    # A call that may change something waits for those before it, and runs alone.
                    await self._run_together(together)
                    together = []
                together.append(job)
                if not job.is_parallel or len(together) == MOST_AT_ONCE:
                    await self._run_together(together)
                    together = []
            await self._run_together(together)
        finally:
            for job in jobs:
                job.is_done = True
                same = self._jobs.get(job.id, [])
                if job in same:
                    same.remove(job)
                if not same:
                    self._jobs.pop(job.id, None)

    def cancel(self, id: str) -> bool:
        """Cancel the calls with an id, also those that wait. Return whether there were any."""
        pending = [job for job in self._jobs.get(id, ()) if not job.is_done and not job.is_cancelled]
        for job in pending:
            job.is_cancelled = True
            if job.task is not None:
                job.task.cancel()
        return bool(pending)

    def cancel_all(self) -> None:
        """Cancel all calls."""
        for id in list(self._jobs):
            self.cancel(id)

    async def _run_together(self, jobs: Sequence[PlannedCall]) -> None:
        """Make calls at the same time, and wait for all of them."""
        tasks: dict[asyncio.Task[ResultParts], PlannedCall] = {}
        for job in jobs:
            if job.is_cancelled:
                job.result, job.is_done = error_parts(NOT_BEGUN), True
                continue
            job.task = asyncio.ensure_future(self._run_job(job))
            tasks[job.task] = job
        if not tasks:
            return
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        for task, job in tasks.items():
            job.result, job.is_done = _result_of(task, job), True

    async def _run_job(self, job: PlannedCall) -> ResultParts:
        if job.is_parallel:
            job.has_begun = True
            return await job.make(job)
        lock = self._locks.get(job.tool)
        if lock is None:
            lock = self._locks[job.tool] = asyncio.Lock()
        async with lock:
            job.has_begun = True
            return await job.make(job)


def _result_of(task: asyncio.Task[ResultParts], job: PlannedCall) -> ResultParts:
    if task.cancelled():
        return error_parts(CANCELLED if job.has_begun else NOT_BEGUN)
    error = task.exception()
    return task.result() if error is None else error_parts(report_failure(error, job.id))
