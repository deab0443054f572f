"""Rounds of a request that the server could not take: they are sent again until it can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from toolwire.backoff import Backoff
from toolwire.protocol.errors import ProtocolError, Timeout, Unreachable
from toolwire.protocol.rounds import repeat_pause

T = TypeVar("T")

#: How many seconds answers are sent again, where their request has no time limit.
REPEAT_SECONDS: Final = 60.0


class RoundsClock:
    """The time limit of a request with rounds. The time between `start` and `stop` counts, in all rounds together."""

    __slots__ = ("_began", "_left", "_method", "_timeout")

    def __init__(self, method: str, timeout: float | None, *, ceiling: float | None, began: float) -> None:
        """`ceiling`: up to this time, progress extends the time limit. `began`: when the first round was sent."""
        self._method = method
        self._timeout = timeout
        self._left = timeout if timeout is None or ceiling is None else max(timeout, ceiling)
        self._began = began

    def start(self) -> float | None:
        """Return the time limit of the next round; raise `Timeout` when no time is left."""
        if self._left is None or self._timeout is None:
            return None
        if self._left <= 0:
            raise Timeout(f"{self._method} was not answered within {self._timeout:g} s, in all rounds together")
        self._began = asyncio.get_running_loop().time()
        return min(self._timeout, self._left)

    def stop(self) -> None:
        if self._left is not None:
            self._left -= asyncio.get_running_loop().time() - self._began


async def send_round(send: Callable[[], Awaitable[T]], timeout: float | None) -> T:
    """Send the answers of a round, and send them again when the server says that it cannot take them now.

    `timeout` is the time limit of the request. When it is over, the last error is raised.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff()
    until = loop.time() + (REPEAT_SECONDS if timeout is None else timeout)
    while True:
        error: ProtocolError | Unreachable
        try:
            return await send()
        except ProtocolError as caught:
            error, asked = caught, repeat_pause(caught)
        except Unreachable as caught:
            # 429 and 503: the server refused the request before it did anything.
            error, asked = caught, caught.retry_after
        if asked is None:
            raise error
        pause = max(asked, backoff.after(None))
        if loop.time() + pause > until:
            raise error
        await asyncio.sleep(pause)
