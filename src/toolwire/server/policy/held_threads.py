"""The threads of one call, which go on when the call is cancelled or out of time.

A call that holds slots holds them until its threads have ended, or `Slots(1)` would not mean one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from toolwire.server.call import Workers


class HeldThreads:
    """The worker threads, for one call."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._jobs: list[Future[None]] = []

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._workers.run(self._noted(function), *args)

    def run_for(self, caller: Hashable, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._workers.run_for(caller, self._noted(function), *args)

    def run_beside(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._workers.run_beside(self._noted(function), *args)

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        job: Future[None] = Future()
        self._jobs.append(job)

        def run(*args: Any) -> Any:
            if not job.set_running_or_notify_cancel():
                return None  # The call was over before a thread was free, and nobody waits for this.
            try:
                return function(*args)
            finally:
                job.set_result(None)

        return run

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Cancel the jobs that have not begun, and call back, in any thread, when the others have ended."""
        while self._jobs:
            job = self._jobs.pop()
            if not (job.done() or job.cancel()):
                job.add_done_callback(lambda _: self.when_ended(callback))
                return
        callback()
