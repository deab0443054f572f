"""The connections to an API, open from its first to its last server.

An API may be part of several servers, and servers may run on event loops of their own. So each loop has a pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from toolwire.base_errors import Unreachable
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse
from toolwire.protocol.errors import ToolError

#: Opens the connections of an API on the running loop, and closes them.
OpenPool: TypeAlias = Callable[[], AbstractAsyncContextManager[Pool]]


class UsedPool:
    """The pool of one loop, and its users: servers that run, and calls in flight."""

    def __init__(self, manager: AbstractAsyncContextManager[Pool]) -> None:
        self._manager = manager
        self.pool: Pool | None = None
        self.users = 0
        # A server that starts while the pool is opened waits for that.
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        async with self._lock:
            if self.pool is None:
                self.pool = await self._manager.__aenter__()

    async def close(self) -> None:
        if self.pool is not None:
            await self._manager.__aexit__(None, None, None)


class ApiPool(Pool):
    """The pool of an API on whichever loop asks for it."""

    def __init__(self, open_pool: OpenPool) -> None:
        self._open = open_pool
        self._used: dict[asyncio.AbstractEventLoop, UsedPool] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep connections open on the running loop."""
        loop = asyncio.get_running_loop()
        for ended in [each for each in self._used if each.is_closed()]:
            del self._used[ended]
        used = self._used.get(loop)
        if used is None:
            used = self._used[loop] = UsedPool(self._open())
        used.users += 1
        try:
            await used.open()
            yield
        finally:
            if self._let_go(loop, used):
                await used.close()

    def begin(self) -> UsedPool:
        """Hold the connections for a call, even if its server is removed meanwhile.

        Call `end` after it.
        """
        used = self._used.get(asyncio.get_running_loop())
        if used is None or used.pool is None:
            raise ToolError("This API is not connected: no server that includes it runs on this event loop")
        used.users += 1
        return used

    def end(self, used: UsedPool) -> None:
        """Let go of the connections that a call used."""
        loop = asyncio.get_running_loop()
        if self._let_go(loop, used):
            closing = loop.create_task(used.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _let_go(self, loop: asyncio.AbstractEventLoop, used: UsedPool) -> bool:
        """Count one user less; return whether it was the last one, who closes the pool."""
        used.users -= 1
        if used.users:
            return False
        # The next one who comes opens a pool of its own.
        self._used.pop(loop, None)
        return True

    @property
    def at_once(self) -> int | None:
        return self._pool().at_once

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        return await self._pool().send(method, url, headers, body)

    async def close(self) -> None:
        """Do nothing: the last user closes it."""

    def _pool(self) -> Pool:
        used = self._used.get(asyncio.get_running_loop())
        if used is None or used.pool is None:
            raise Unreachable("No server that includes this API runs on this event loop")
        return used.pool
