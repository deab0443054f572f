"""Turns at the connection pool of one upstream, of which each caller gets its share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from toolwire.http.client.session import Exchange, Turns
from toolwire.protocol.errors import CallRefused
from toolwire.protocol.jsonrpc import RequestId
from toolwire.wire.shares import Caller, Shares

#: The caller of requests that the gateway sends for itself: lists and listen streams.
GATEWAY: Final = ("gateway",)


class TurnQueue(NamedTuple):
    """Bounds of the queue of one caller: at most `length` calls, for at most `seconds`."""

    length: int
    seconds: float


class CallerTurns(Turns):
    """Turns that callers share, with a queue for each caller.

    uncounted  fewer requests are in flight than one caller may have; nothing is counted by caller
    counted    each request counts for its caller until few are left; queues take turns

    `requests` are those in flight, and `find_caller` returns the caller of one of them.
    """

    __slots__ = ("_find_caller", "_holders", "_queue", "_queues", "_requests", "_shares")

    def __init__(
        self,
        shares: Shares,
        queue: TurnQueue,
        requests: Mapping[RequestId, Any],
        find_caller: Callable[[RequestId], Caller],
    ) -> None:
        super().__init__(shares.own)
        self._shares = shares
        self._queue = queue
        self._requests = requests
        self._find_caller = find_caller
        # The callers of the requests that have a turn; None while they are not counted.
        self._holders: dict[RequestId, Caller] | None = None
        self._queues: dict[Caller, deque[tuple[RequestId, asyncio.Future[None]]]] = {}

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a turn."""
        return sum(map(len, self._queues.values()))

    async def wait(self, exchange: Exchange) -> None:
        """Wait for a turn; raise `CallRefused` when too many calls of the caller wait, or for too long."""
        identifier = exchange.identifier
        if self._holders is None:
            self._begin_counting(identifier)
        caller = self._find_caller(identifier)
        queue = self._queues.get(caller)
        if queue is None and self._shares.has_room(caller):
            self._admit(identifier, caller)
            return
        is_bounded = caller is not None and caller is not GATEWAY
        if is_bounded and len(queue or ()) >= self._queue.length:
            raise refuse_busy()
        if queue is None:
            queue = self._queues[caller] = deque()
        turn = asyncio.get_running_loop().create_future()
        queue.append((identifier, turn))
        exchange.refuse_unsent = None if caller is GATEWAY else refuse_busy
        try:
            async with asyncio.timeout(self._queue.seconds if is_bounded else None):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(identifier)
            else:
                self._leave_queue(caller, identifier)
            if isinstance(error, TimeoutError):
                raise refuse_busy() from None
            raise
        finally:
            exchange.refuse_unsent = None

    def give_back(self, identifier: RequestId) -> None:
        if self._holders is None:
            self._left += 1
            return
        self._shares.give_back(self._holders.pop(identifier))
        self._admit_next()
        if not self._queues and len(self._holders) <= self._shares.own // 2:
            self._stop_counting()

    def _begin_counting(self, newest: RequestId) -> None:
        self._holders = {}
        self._left = 0
        for identifier, exchange in self._requests.items():
            if identifier != newest and not exchange.has_own_place:
                self._admit(identifier, self._find_caller(identifier))

    def _stop_counting(self) -> None:
        assert self._holders is not None
        holders, self._holders = self._holders, None
        for caller in holders.values():
            self._shares.give_back(caller)
        self._left = self._shares.own - len(holders)

    def _admit(self, identifier: RequestId, caller: Caller) -> None:
        assert self._holders is not None
        self._shares.take(caller)
        self._holders[identifier] = caller

    def _admit_next(self) -> None:
        """Give a free turn to a caller with room in its share: the one that got a turn longest ago."""
        for caller in tuple(self._queues):
            if not self._shares.has_room(caller):
                continue
            queue = self._queues.pop(caller)
            while queue:
                identifier, turn = queue.popleft()
                if not turn.done():  # Otherwise it was cancelled.
                    self._admit(identifier, caller)
                    turn.set_result(None)
                    break
            else:
                continue
            if queue:
                self._queues[caller] = queue
            return

    def _leave_queue(self, caller: Caller, identifier: RequestId) -> None:
        queue = self._queues.get(caller, ())
        left = deque(each for each in queue if each[0] != identifier)
        if left:
            self._queues[caller] = left
        elif queue:
            del self._queues[caller]


def refuse_busy() -> CallRefused:
    """Make the refusal of a call for which an upstream has no connection in time."""
    return CallRefused(
        "Too many calls are in flight to the server behind this one; try again later",
        reason="concurrency",
        retry_after=1.0,
    )
