"""`no_leaks`: find tasks, threads, descriptors and state that a test leaves behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

# Worker threads of the loop. They wait until the loop ends and belong to no test.
_OF_THE_LOOP: Final = "asyncio_"
_DESCRIPTORS: Final = (Path("/proc/self/fd"), Path("/dev/fd"))


@asynccontextmanager
async def no_leaks(server: Any = None, *, patience: float = 2.0) -> AsyncIterator[None]:
    """Fail if the block leaves something behind, and say what it is.

    * tasks of this loop that are not done, and threads, each with its current line
    * open descriptors, each with its file (not on Windows)
    * state of the server: connections, running calls, streams, tasks, waiting callers, a lifespan that is still held

    Everything gets `patience` seconds to end. An exception of the block itself is raised as it is.
    """
    __tracebackhide__ = True
    before = _Inventory.now(server)
    yield
    left = before.left(server)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        await before.wait_for_an_end(deadline)
        # Objects without a reference close themselves when they are collected.
        gc.collect()
        left = before.left(server)
    if left:
        raise AssertionError("the block left behind:\n" + "\n".join(f"  {each}" for each in left))


class _Inventory(Struct, frozen=True):
    """Everything that exists at one moment."""

    tasks: set[asyncio.Task[Any]]
    threads: set[threading.Thread]
    descriptors: dict[int, str]
    held: dict[str, int]

    @classmethod
    def now(cls, server: Any) -> _Inventory:
        return cls(asyncio.all_tasks(), _threads(), _descriptors(), {} if server is None else _held(server))

    def left(self, server: Any) -> list[str]:
        now = _Inventory.now(server)
        tasks = sorted(f"a task: {_task_at(task)}" for task in now.tasks - self.tasks)
        threads = sorted(f"a thread: {_thread_at(thread)}" for thread in now.threads - self.threads)
        descriptors = [
            f"a descriptor: {number} of {what}"
            for number, what in sorted(now.descriptors.items())
            if self.descriptors.get(number) != what
        ]
        held = [f"{what}: {count}" for what, count in now.held.items() if count > self.held.get(what, 0)]
        return tasks + threads + descriptors + held

    async def wait_for_an_end(self, deadline: float) -> None:
        """Wait until a task is done, or for a moment if something else remains."""
        tasks = asyncio.all_tasks() - self.tasks
        moment = min(0.02, max(0.0, deadline - time.monotonic()))
        if tasks:
            await asyncio.wait(tasks, timeout=moment, return_when="FIRST_COMPLETED")
        else:
            await asyncio.sleep(moment)


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(_OF_THE_LOOP)}


def _descriptors() -> dict[int, str]:
    folder = next((each for each in _DESCRIPTORS if each.is_dir()), None)
    found = {}
    for each in () if folder is None else folder.iterdir():
        try:
            found[int(each.name)] = str(each.readlink()) if folder == _DESCRIPTORS[0] else "a file"
        except OSError:
            continue  # This descriptor belonged to the listing itself.
    return found


def _held(server: Any) -> dict[str, int]:
    """Count what a server holds while clients use it."""
    runtimes = server.kernel.runtimes.live
    clients = [session for runtime in runtimes for session in runtime.hub.clients]
    waiting = sum(runtime.work.workers.waiting for runtime in runtimes)
    return {
        "connections that are open": len(clients),
        "calls that run": sum(len(session.serving) for session in clients),
        "streams that are open": sum(len(runtime.hub.streams) for runtime in runtimes),
        "tasks of the protocol that run": sum(runtime.work.tasks_running for runtime in runtimes),
        "calls that wait": waiting + (0 if server.enforcer is None else server.enforcer.gates.waiting),
        "holders of the lifespan": sum(runtime.holders for runtime in runtimes),
    }


def _task_at(task: asyncio.Task[Any]) -> str:
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    stack = task.get_stack(limit=1)
    return f"{name} at {_line(stack[-1])}" if stack else name


def _thread_at(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return thread.name if frame is None else f"{thread.name} at {_line(frame)}"


def _line(frame: Any) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
