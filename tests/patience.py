"""A bound for waits of tests: a behaviour that is broken fails soon, and says what was waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

#: How many seconds nothing may happen.
SILENCE = 20.0


@asynccontextmanager
async def patience(what: str, seconds: float = SILENCE) -> AsyncIterator[None]:
    """Fail when the block takes longer than some seconds of real time, whatever the test makes of the loop's clock."""
    loop, task, began = asyncio.get_running_loop(), asyncio.current_task(), time.monotonic()
    assert task is not None
    is_over = False

    def check() -> None:
        nonlocal is_over, timer
        left = began + seconds - time.monotonic()
        if left > 0:
            timer = loop.call_later(left, check)
        else:
            is_over = True
            task.cancel()

    timer = loop.call_later(seconds, check)
    try:
        yield
    except asyncio.CancelledError:
        if is_over and not task.uncancel():
            raise AssertionError(f"waited {seconds:g} seconds for {what}") from None
        raise
    finally:
        timer.cancel()
