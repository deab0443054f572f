"""The lifespan of a server: entered once, however many connections there are."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from toolwire.wire.handover import SHARED, hand_over, seen_from_here


class Held(ABC):
    """What the first who needs it enters, and the last leaves."""

    @abstractmethod
    async def enter(self) -> None: ...

    @abstractmethod
    async def exit(self) -> None: ...

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            await self.exit()


class Life(Held):
    """The lifespans of a server and those mounted in it, left in the task that entered them.

    They live on the loop of whoever needed them first. Others may come from loops of their own, as blocking clients do;
    the thread of a blocking client that is closed goes on for as long as they live there.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._span: _Span | None = None
        # What is held on each loop; one entry a holder.
        self._held: dict[asyncio.AbstractEventLoop, list[_Span]] = {}

    @property
    def holders(self) -> int:
        """How many keep it alive."""
        return sum(len(spans) for spans in self._held.values())

    async def enter(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._span is None or self._span.is_over:
                # One that is over ended with its event loop, and whoever held it there is gone.
                self._held = {each: spans for each, spans in self._held.items() if not each.is_closed()}
                self._span = _Span(loop)
                self._span.task = loop.create_task(self._live(self._span))
                SHARED.add(self._span.task)
            span = self._span
            span.holders += 1
            self._held.setdefault(loop, []).append(span)
        try:
            await seen_from_here(span.ready)
        except BaseException:
            self._let_go(loop)
            raise

    async def exit(self) -> None:
        loop = asyncio.get_running_loop()
        if self._is_last_elsewhere(loop):
            await self._server.kernel.leave_loop()
        ended = self._let_go(loop)
        if ended is not None and not ended.is_over:
            await seen_from_here(ended.over)

    def _is_last_elsewhere(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a loop on which no lifespan lives is about to have no holder left."""
        with self._lock:
            spans = self._held.get(loop, ())
            return len(spans) == 1 and spans[0].loop is not loop

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> _Span | None:
        """Give up one hold; what ends, where nobody else has one."""
        with self._lock:
            spans = self._held.get(loop)
            if spans is None:
                return None  # It was held on a loop that is gone, and with it the hold.
            span = spans.pop()
            if not spans:
                del self._held[loop]
            span.holders -= 1
            if span.holders:
                return None
            if self._span is span:
                self._span = None
        hand_over(span.loop, span.leave.set)
        return span

    async def _live(self, span: _Span) -> None:
        servers = [self._server, *(catalog.owner for catalog in self._server.catalog.family())]
        try:
            async with AsyncExitStack() as stack:
                for server in servers:
                    if server.lifespan is not None:
                        server.lifespan_value = await stack.enter_async_context(server.lifespan(server))
                await self._server.kernel.start()
                span.ready.set_result(None)
                try:
                    await span.leave.wait()
                finally:
                    await self._server.kernel.stop()
        except BaseException as error:
            # Whoever waits is told: those who enter, or the last who leaves.
            if not span.ready.done():
                span.ready.set_exception(error)
            elif isinstance(error, Exception):
                span.over.set_exception(error)
            else:
                raise
        finally:
            if not span.over.done():
                span.over.set_result(None)


class _Span:
    """From entering the lifespans to leaving them, on the loop that came first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.holders = 0
        self.ready: Future[None] = Future()
        self.leave = asyncio.Event()
        self.over: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.over.done() or self.loop.is_closed()
