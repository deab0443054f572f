"""Time that passes when a test says so, so that a deadline comes after what it is to end, however slow the machine."""

from __future__ import annotations

import asyncio
from typing import Any


async def elapse(seconds: float) -> None:
    """Let time pass on the running loop at once, and everything that is due by then take place."""
    loop: Any = asyncio.get_running_loop()
    now = loop.time
    later = asyncio.Event()
    loop.call_later(seconds, later.set)
    loop.time = lambda: now() + seconds
    await later.wait()
