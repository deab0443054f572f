"""Replicas of one server in one process: they share a store, and the line of each to the store can be cut.

Time is the test's own: `Clock` moves that of the store and that of the loop together. Leases are renewed by timers of
the loop, as the thread of a store would do it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.runtimes import manager_of, runtime_of
from tests.server.tasks.conftest import Clock
from tests.server.tasks.talking import Joining, open_to
from tests.wireclient import MODERN

from toolwire import Context, Limits, Server
from toolwire.auth import Principal
from toolwire.protocol.tasks import Record
from toolwire.server.replay_state import principal_key
from toolwire.server.tasks.manager import TaskManager
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, MemoryQueue, StoreFailed, Stores

ADA = Principal("ada", provider="tests")
EVE = Principal("eve", provider="tests")
LEASE = 15.0


class Line:
    """The way of one replica to the store."""

    def __init__(self) -> None:
        self.is_cut = False
        self.lost_answers: set[str] = set()
        """Operations whose answer is lost once: the store does them, and nobody hears of it."""
        self.calls: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        """Operations that wait for an event before they reach the store."""

    def check(self) -> None:
        if self.is_cut:
            raise StoreFailed("The store is out of reach.")

    def through(self, inner: Any) -> Any:
        return _Through(inner, self)


class _Through:
    """A store at the other end of a line."""

    def __init__(self, inner: Any, line: Line) -> None:
        self._inner = inner
        self._line = line

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def operation(*given: Any, **named: Any) -> Any:
            self._line.calls.append(name)
            if (gate := self._line.gates.get(name)) is not None:
                await gate.wait()
            self._line.check()
            answer = await found(*given, **named)
            if name in self._line.lost_answers:
                self._line.lost_answers.discard(name)
                raise StoreFailed("The answer of the store was lost.")
            return answer

        return operation

    def keep(self, process: str, lease: float, lost: Callable[[], None]) -> Callable[[], None]:
        """Renew a lease every third of its length, while the line holds."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        async def renew() -> None:
            nonlocal timer
            if not self._line.is_cut and not await self._inner.renew(process, lease):
                lost()
                return
            timer = loop.call_later(lease / 3, lambda: loop.create_task(renew()))

        timer = loop.call_later(lease / 3, lambda: loop.create_task(renew()))
        return lambda: timer.cancel() if timer is not None else None


class Replica:
    """One server of a fleet, with tools that wait until the test lets them go on."""

    def __init__(self, shared: Stores, *, without: tuple[str, ...] = (), **options: Any) -> None:
        self.line = Line()
        self.stores = Stores(*(self.line.through(each) for each in (shared.kv, shared.log, shared.bus, shared.queue)))
        given: dict[str, Any] = {"task_window": 0.0, "task_lease": LEASE, "drain": 0.0, "drain_tasks": 0.0}
        given |= options.pop("limits", {})
        self.server = Server("fleet", stores=self.stores, limits=Limits(**given), **options)
        self.go = asyncio.Event()
        self.started = asyncio.Event()
        self.ran: list[tuple[str, int, int]] = []
        """Each tool that began here, with its number and its attempt."""
        self.cancelled: list[int] = []
        self._register()
        for name in without:
            self.server.remove(name)

    @property
    def tasks(self) -> TaskManager:
        return manager_of(self.server)

    def _register(self) -> None:
        async def work(name: str, number: int, ctx: Context) -> str:
            self.ran.append((name, number, ctx.attempt))
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            return f"{name} {number} by {ctx.principal.subject if ctx.principal else 'nobody'}"

        @self.server.tool(task="optional")
        async def once(number: int, ctx: Context) -> str:
            return await work("once", number, ctx)

        @self.server.tool(task="optional", annotations={"idempotentHint": True})
        async def again(number: int, ctx: Context) -> str:
            return await work("again", number, ctx)

        @self.server.tool(task="optional", task_stays=True)
        async def staying(number: int, ctx: Context) -> str:
            return await work("staying", number, ctx)

        @self.server.tool(task="optional")
        async def reporting(number: int, ctx: Context) -> str:
            self.ran.append(("reporting", number, ctx.attempt))
            await ctx.progress(1, 2, "half")
            await self.go.wait()
            await ctx.progress(2, 2, "whole")
            return "reported"

        @self.server.tool(task="optional")
        async def asking(number: int, ctx: Context) -> str:
            self.ran.append(("asking", number, ctx.attempt))
            name = await ctx.elicit("Name?", str, key="name")
            self.ran.append(("answered", number, ctx.attempt))
            return f"Hello, {name.data}!"

    def die(self) -> None:
        """End like a process that is killed: nothing of it reaches the store any more."""
        self.line.is_cut = True
        for run in self.tasks.following.runs():
            if run.worker is not None:
                run._unwanted = True
                run.worker.cancel()

    @asynccontextmanager
    async def serving(self, revision: str = MODERN) -> AsyncIterator[Callable[..., Joining]]:
        """Serve by HTTP. Whatever happened to the line, it holds when the replica stops."""
        async with runtime_of(self.server).held(), open_to(self.server, revision, "http") as join:
            await settled()
            try:
                yield join
            finally:
                self.line.is_cut = False


async def find_record(replica: Replica, task: str) -> Record:
    """Read the record of a task of Ada, also where the replica has no tool of it and so hides it."""
    record = await replica.tasks.records.find(replica.tasks.records.key(principal_key(ADA), task))
    assert record is not None
    return record


def shared_stores(clock: Clock, **limits: int) -> Stores:
    kv = MemoryKV(clock=clock.time, **limits)
    return Stores(kv, MemoryLog(), MemoryBus(), MemoryQueue.of(kv))


async def settled(turns: int = 50) -> None:
    """Let everything happen that waits for no time to pass."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def pass_time(clock: Clock, seconds: float, step: float = 1.0) -> None:
    """Let time pass in steps, so that what happens every few seconds happens as often as it should."""
    while seconds > 0:
        await clock.elapse(min(step, seconds))
        await settled()
        seconds -= step
