"""Turns at one connection pool: how many requests are sent at a time, and which of them wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from toolwire.protocol.jsonrpc import RequestId
from toolwire.wire.shares import Caller, Shares, Turns


class QueueBounds(NamedTuple):
    """Bounds of the queue of one caller, and the error for a request beyond them."""

    length: int | None
    seconds: float | None
    refuse: Callable[[], BaseException]


class RequestTurns:
    """Turns that requests hold until their answer is read.

    uncounted  fewer requests are in flight than one caller may have; nothing is counted by caller
    counted    each request counts for its caller until few are left; callers take turns in the queue

    Without `find_caller` all requests are those of one caller.
    """

    __slots__ = ("_find_bounds", "_find_caller", "_holders", "_left", "_requests", "_turns", "_waits")

    def __init__(
        self,
        shares: Shares,
        requests: Mapping[RequestId, Any] | None = None,
        find_caller: Callable[[RequestId], Caller] | None = None,
        find_bounds: Callable[[Caller], QueueBounds | None] | None = None,
    ) -> None:
        """`requests` are those in flight, and `find_caller` returns the caller of one of them."""
        self._turns = Turns(shares)
        self._left = shares.own
        self._requests: Mapping[RequestId, Any] = {} if requests is None else requests
        self._find_caller = find_caller
        self._find_bounds = find_bounds
        # The callers of the requests that have a turn; None while they are not counted.
        self._holders: dict[RequestId, Caller] | None = None
        # The requests that wait, or have not noticed yet that their turn came.
        self._waits = 0

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a turn."""
        return self._turns.waiting

    def take(self) -> bool:
        """Take a turn. Return False where `wait` has to be awaited for it."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    async def wait(self, exchange: Any) -> None:
        """Wait for a turn, and take it; raise the error of the bounds when too many wait, or for too long."""
        identifier = exchange.identifier
        if self._holders is None:
            self._begin_counting(identifier)
        caller = None if self._find_caller is None else self._find_caller(identifier)
        bounds = None if self._find_bounds is None else self._find_bounds(caller)
        if bounds is None:
            await self._wait(identifier, caller, None)
            return
        if bounds.length is not None and self._is_full(caller, bounds.length):
            raise bounds.refuse()
        exchange.refuse_unsent = bounds.refuse
        try:
            await self._wait(identifier, caller, bounds.seconds)
        except TimeoutError:
            raise bounds.refuse() from None
        finally:
            exchange.refuse_unsent = None

    def _is_full(self, caller: Caller, length: int) -> bool:
        turns = self._turns
        return turns.queue_length(caller) >= length and not turns.shares.has_room(caller)

    async def _wait(self, identifier: RequestId, caller: Caller, seconds: float | None) -> None:
        self._waits += 1
        try:
            await self._turns.wait(caller, seconds)
        finally:
            self._waits -= 1
        assert self._holders is not None
        self._holders[identifier] = caller

    def give_back(self, identifier: RequestId) -> None:
        """Let the next request have its turn."""
        if self._holders is None:
            self._left += 1
            return
        self._turns.give_back(self._holders.pop(identifier, None))
        shares = self._turns.shares
        if not self._waits and shares.total <= shares.own // 2:
            self._holders, self._left = None, shares.own - shares.total
            shares.clear()

    def _begin_counting(self, newest: RequestId) -> None:
        """Count the requests that have a turn for their callers."""
        self._holders, shares = {}, self._turns.shares
        if self._find_caller is None:
            shares.add(None, shares.own - self._left)
        else:
            for identifier, exchange in self._requests.items():
                if identifier != newest and not exchange.has_own_place:
                    caller = self._holders[identifier] = self._find_caller(identifier)
                    shares.take(caller)
        self._left = 0
