"""Keeping a connection: opened when first needed, by whoever needs it, and brought back when it was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from toolwire.backoff import LONGEST_SECONDS, Backoff
from toolwire.client.connection import Connection
from toolwire.client.opening import Opener
from toolwire.protocol.errors import Timeout, TransportError, Unreachable

log: logging.Logger = logging.getLogger("toolwire.client")

#: How often a server that went away is looked for before a call is given up: about six seconds.
ATTEMPTS: Final = 6


class Keeper:
    """The one connection of a client. However many need it at once, it is opened, or looked for, once."""

    def __init__(self, opener: Opener) -> None:
        self.connection: Connection | None = None
        self._opener = opener
        self._target = opener.target
        self._opening = _Shared(self._open)
        self._recovering = _Shared(self._recover)
        self._retiring: dict[asyncio.Task[None], Connection] = {}

    @property
    def connected(self) -> bool:
        return self.connection is not None and not self.connection.ended

    @property
    def attempts(self) -> int:
        """Return how often it is worth looking for a server that went away, beyond starting it again."""
        return ATTEMPTS if self._target.comes_back else 0

    async def live(self) -> Connection:
        """A connection that works, opened if there is none."""
        connection = self.connection
        if connection is not None and not connection.ended:
            return connection
        return await self._opening.wait()

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        await self._recovering.stop()
        await self._opening.stop()
        if self.connection is not None:  # It was opened a moment before.
            connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()
        for task, retiring in list(self._retiring.items()):
            await retiring.close()
            await asyncio.wait({task})

    def current(self) -> Connection:
        if self.connection is None:
            raise Unreachable("The client is not connected: use `async with Client(...)` or `await client.connect()`")
        return self.connection

    async def usable(self) -> Connection:
        """The current connection; if it was lost, a new one to a server that is there again (STD-12)."""
        connection = self.current()
        if not connection.ended:
            return connection
        return await self.recovered()

    async def recovered(self, timeout: float | None = None) -> Connection:
        """A connection that works after one that did not; waits for a server that is on its way back."""
        connection = self.current()
        if not self._target.restartable:
            raise await connection.lost(Unreachable("The connection ended"))
        try:
            async with asyncio.timeout(timeout):
                return await self._recovering.wait()
        except TimeoutError as error:
            if isinstance(error, Timeout):
                raise
            raise Unreachable(f"{self._target.label} did not come back in time") from None

    async def _open(self) -> Connection:
        before = self.connection
        if before is not None:
            await self._replace(before)
        connection = await self._opener.open()
        if before is not None:
            # What was listed is what is known until it is listed again.
            connection.tools = before.tools
        self.connection = connection
        if before is not None:
            self._opener.changed(None, None)
        return connection

    async def _replace(self, before: Connection) -> None:
        if before.link.duplex:
            await before.close()
            return
        # Others may still read answers there.
        retiring = asyncio.get_running_loop().create_task(before.retire())
        self._retiring[retiring] = before
        retiring.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.pop(task, None)

    async def _recover(self) -> Connection:
        backoff = Backoff(self.attempts)
        while True:
            try:
                return await self._present()
            except TransportError as error:
                if isinstance(error, Unreachable) and not is_passing(error):
                    raise
                pause = backoff.next()
                if pause is None or (pause := pause_after(error, pause)) > LONGEST_SECONDS:
                    raise
                log.info("%s is not back yet: %s", self._target.label, error)
                await asyncio.sleep(pause)

    async def _present(self) -> Connection:
        """The connection, once the server has shown that it is there."""
        connection = self.connection
        if connection is not None and not connection.ended:
            try:
                await connection.check()
                return connection
            except Unreachable:
                # A session that the server has ended is begun again.
                if not connection.session.over:
                    raise
                await asyncio.wait({connection.reader})
        log.warning("connected to %s again", self._target.label)
        return await self.live()


def is_passing(error: Unreachable) -> bool:
    """Return whether another try may reach the server: it is down, or busy (429, 503)."""
    return error.status is None or error.status in (429, 503)


def pause_after(error: TransportError, pause: float) -> float:
    """Return how long to leave a server alone: at least for as long as it asked to be."""
    return pause if error.retry_after is None else max(pause, error.retry_after)


class _Shared:
    """Work that any number wait for and that runs once; it is given up when nobody waits any more."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Connection]]) -> None:
        self._work = work
        self._task: asyncio.Task[Connection] | None = None
        self._waiting = 0

    async def wait(self) -> Connection:
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.get_running_loop().create_task(self._work())
        self._waiting += 1
        try:
            await asyncio.wait({task})
        finally:
            self._waiting -= 1
            if not task.done() and self._waiting == 0:
                task.cancel()
                self._task = None
        if task.cancelled():
            raise Unreachable("The client was closed while it connected")
        return task.result()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
