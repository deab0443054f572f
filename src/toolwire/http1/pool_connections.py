"""The connections of a pool: reuse, idle time and limits."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import Final

from toolwire.base_errors import Unreachable
from toolwire.http1.client_connection import HttpConnection
from toolwire.http1.dialing import Destination, Dialer
from toolwire.http1.response import HttpResponse, Lost

# Below the 5 seconds after which uvicorn closes an idle connection, so that a request is not sent into the closing.
IDLE_SECONDS: Final = 4.0


class Connections:
    """At most `limit` connections. A request that needs one more waits until another ends."""

    def __init__(self, dialer: Dialer, limit: int, repeatable: frozenset[str]) -> None:
        self._dialer = dialer
        self._limit = limit
        self._repeatable = repeatable
        self._loop = asyncio.get_running_loop()
        # All connections, the idle ones, how many are being opened, and who waits for one.
        self._open: set[HttpConnection] = set()
        self._idle: dict[Destination, list[HttpConnection]] = {}
        self._dialing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    async def exchange(
        self, to: Destination, method: str, url: str, request: bytes, *, is_single: bool = False
    ) -> HttpResponse:
        """Send a request and return the answer when its headers have arrived.

        `is_single`: the request must not be sent a second time.
        """
        while True:
            connection = self.pop_idle(to) or await self._get(to)
            used = connection.used
            try:
                return await connection.exchange(method, url, request)
            except Lost as error:
                # A server may close an idle connection at any time; what crossed that on its way is sent once more.
                if is_single or not (used and error.silent and method in self._repeatable):
                    raise error.outcome(url, reused=used) from None

    async def close(self) -> None:
        """Cut all connections. Return when they are gone."""
        self._limit = 0
        while self._waiting:
            self._wake_next()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._open:
            self._emptied = self._loop.create_future()
            for connection in list(self._open):
                connection.abort()
            await self._emptied

    # --- getting one ---

    def pop_idle(self, to: Destination) -> HttpConnection | None:
        """Remove and return an idle connection; None if there is none."""
        idle = self._idle.get(to)
        while idle:
            connection = idle.pop()  # The one that was used last is the least likely to be closed.
            if not connection.is_usable():
                continue
            if self._loop.time() - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.abort()  # The loop was busy with something else when it should have been closed.
        return None

    async def _get(self, to: Destination) -> HttpConnection:
        while len(self._open) + self._dialing >= self._limit:
            if not self._limit:
                raise Unreachable("The HTTP connections are closed")
            if not self._drop_idle():
                await self._turn()
            if (connection := self.pop_idle(to)) is not None:
                return connection
        self._dialing += 1
        try:
            connection = await self._dialer.dial(to, lambda: HttpConnection(self._loop, to, self._kept, self._gone))
        except BaseException:
            self._wake_next()
            raise
        finally:
            self._dialing -= 1
        if connection.lost:
            self._wake_next()
            raise Unreachable(f"{to.origin_text} closed the connection at once")
        self._open.add(connection)
        if not self._limit:
            connection.abort()
            raise Unreachable("The HTTP connections are closed")
        return connection

    async def _turn(self) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._wake_next()  # It had its turn, and does not take it.
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # --- what connections tell ---

    def _kept(self, connection: HttpConnection) -> None:
        connection.idle_since = self._loop.time()
        self._idle.setdefault(connection.to, []).append(connection)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_SECONDS, self._sweep, context=Context())
        if self._waiting:
            self._wake_next()

    def _gone(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.to)
        if idle is not None and connection in idle:
            idle.remove(connection)
            if not idle:
                del self._idle[connection.to]
        if self._waiting:
            self._wake_next()
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    # --- idle connections ---

    def _drop_idle(self) -> bool:
        """Close the connection that was idle longest, to make room for another destination."""
        oldest = min((idle[0] for idle in self._idle.values() if idle), key=_since, default=None)
        if oldest is None:
            return False
        oldest.abort()
        self._gone(oldest)
        return True

    def _sweep(self) -> None:
        self._sweeping = None
        until = self._loop.time() - IDLE_SECONDS
        resting = [each for idle in self._idle.values() for each in idle]
        for connection in resting:
            if connection.idle_since <= until:
                connection.abort()
        self._idle = {to: idle for to, idle in self._idle.items() if idle}
        left = [each.idle_since for each in resting if each.idle_since > until]
        if left:
            self._sweeping = self._loop.call_at(min(left) + IDLE_SECONDS, self._sweep, context=Context())


def _since(connection: HttpConnection) -> float:
    return connection.idle_since
