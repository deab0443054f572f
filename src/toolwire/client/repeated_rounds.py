"""Retries of rounds that the server could not accept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.protocol.rounds import repeat_pause
from toolwire.util.backoff import Backoff
from toolwire.wire.deadlines import CallClock

T = TypeVar("T")

#: How many seconds answers are sent again, where their request has no time limit.
REPEAT_SECONDS: Final = 60.0


async def send_round(send: Callable[[], Awaitable[T]], clock: CallClock) -> T:
    """Send the answers of a round. Retry when the server asks for that.

    `clock` is the time limit of the call. When no time is left for a pause, the last error is raised.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff()
    until = loop.time() + REPEAT_SECONDS
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
        left = clock.left()
        if pause >= (until - loop.time() if left is None else left):
            raise error
        await asyncio.sleep(pause)
