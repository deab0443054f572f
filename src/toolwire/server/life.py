"""The lifespan of a server: entered once, however many connections there are."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any


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
    """The lifespans of a server and those mounted in it, left in the task that entered them."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.holders: int = 0
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._leave: asyncio.Event | None = None

    async def enter(self) -> None:
        if self._task is not None and self._task.done():
            # It ended with its event loop, and whoever held it there is gone.
            self._task, self.holders = None, 0
        self.holders += 1
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._leave = asyncio.Event()
            self._task = loop.create_task(self._live(self._ready, self._leave))
        assert self._ready is not None
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            self.holders -= 1
            raise

    async def exit(self) -> None:
        self.holders -= 1
        if self.holders or self._task is None or self._leave is None:
            return
        task, self._task = self._task, None
        self._leave.set()
        await asyncio.shield(task)

    async def _live(self, ready: asyncio.Future[None], leave: asyncio.Event) -> None:
        servers = [self._server, *(catalog.owner for catalog in self._server.catalog.family())]
        try:
            async with AsyncExitStack() as stack:
                for server in servers:
                    if server.lifespan is not None:
                        server.lifespan_value = await stack.enter_async_context(server.lifespan(server))
                await self._server.kernel.start()
                ready.set_result(None)
                try:
                    await leave.wait()
                finally:
                    await self._server.kernel.stop()
        except BaseException as error:
            if ready.done():
                raise
            self._task = None
            ready.set_exception(error)
