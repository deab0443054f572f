"""Running a coroutine as a program."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end on a loop of its own, uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)
