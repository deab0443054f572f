"""The lifespan of a server: entered once, however many connections there are."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from toolwire.wire.threads import SHARED, hand_over, seen_from_here

log: logging.Logger = logging.getLogger("toolwire.server")


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
    the thread of a blocking client that is closed goes on for as long as they live there. Any other loop may end under
    them: then they are entered on another that uses the server, before they are left.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._span: _Span | None = None
        self._held: Counter[asyncio.AbstractEventLoop] = Counter()

    @property
    def holders(self) -> int:
        """Return how many keep it alive."""
        return self._held.total()

    async def enter(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._span is None or self._span.is_over:
                self._span = _Span(loop)
                self._begin(self._span)
            span = self._span
            self._held[loop] += 1
        try:
            await seen_from_here(span.ready)
        except BaseException:
            self._let_go(loop)
            raise

    def _begin(self, span: _Span) -> None:
        span.task = span.loop.create_task(self._live(span))
        SHARED.add(span.task)

    async def exit(self) -> None:
        loop = asyncio.get_running_loop()
        if self._is_last_elsewhere(loop):
            await self._server.kernel.leave_loop()
        ended = self._let_go(loop)
        if ended is not None and not ended.is_over:
            await seen_from_here(ended.over)

    def _is_last_elsewhere(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a loop on which no lifespan lives is about to have no holder left."""
        with self._lock:
            return self._held[loop] == 1 and self._span is not None and self._span.loop is not loop

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> _Span | None:
        """Give up one hold; what ends, where nobody else has one."""
        with self._lock:
            if not self._held[loop]:
                return None  # It was held on a loop that is gone, and with it the hold.
            self._held[loop] -= 1
            self._held = Counter({each: count for each, count in self._held.items() if count and not each.is_closed()})
            if self._held:
                return None
            span, self._span = self._span, None
        if span is not None:
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
                except asyncio.CancelledError:
                    # The loop ends. The lifespans are left as at any other end: what a lifespan does after its `yield`
                    # would not be done if the cancellation reached it.
                    if (task := asyncio.current_task()) is not None:
                        task.uncancel()
                await self._leave(span)
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

    async def _leave(self, span: _Span) -> None:
        successor = self._successor(span)
        if successor is None:
            await self._server.kernel.stop()
            return
        try:
            async with asyncio.timeout(self._server.limits.drain):
                await seen_from_here(successor.ready)
        except Exception:
            log.exception("the lifespan could not be entered on another loop")
        await self._server.kernel.leave_loop()

    def _successor(self, span: _Span) -> _Span | None:
        """What goes on elsewhere, where a loop ends on which a lifespan lives that is still used."""
        with self._lock:
            if self._span is not span:
                return None  # The last who used it has left.
            del self._held[span.loop]
            heir = next((loop for loop in self._held if loop.is_running()), None)
            self._span = successor = None if heir is None else _Span(heir)
        if successor is not None and hand_over(successor.loop, self._begin, successor):
            return successor
        return None


class _Span:
    """From entering the lifespans to leaving them, on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ready: Future[None] = Future()
        self.leave = asyncio.Event()
        self.over: Future[None] = Future()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.over.done() or self.loop.is_closed()
