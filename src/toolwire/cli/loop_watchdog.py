"""Notices while a server is being written that something holds up its event loop, and where.

A blocking call in an `async` function stops every client, and nothing says so. A thread looks whether the loop still
turns over; where it does not, the stack of the loop's thread tells who has it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from toolwire.cli.reloading import last_own
from toolwire.cli.server_file import OURS

SECONDS: Final = 1.0
_ADVICE: Final = (
    "this holds up every client: await something that does not block, or make it a plain def, which runs in a thread"
)


class Standstill(NamedTuple):
    """Where the loop stood when it had not turned over for a while."""

    text: str
    file: str | None
    line: int | None
    code: str | None


@asynccontextmanager
async def watched(tell: Callable[[Standstill], None], seconds: float = SECONDS) -> AsyncIterator[None]:
    """Watch the running loop until the end of the block; `tell` hears of each standstill once, in another thread."""
    watch = _Watch(tell, seconds)
    watch.start()
    beating = asyncio.create_task(watch.beat())
    try:
        yield
    finally:
        beating.cancel()
        watch.ended.set()


class _Watch(threading.Thread):
    def __init__(self, tell: Callable[[Standstill], None], seconds: float) -> None:
        super().__init__(name="toolwire-standstill", daemon=True)
        self.ended = threading.Event()
        self._tell = tell
        self._seconds = seconds
        self._watched = threading.get_ident()
        self._beat = time.monotonic()
        self._told = 0.0

    async def beat(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(self._seconds / 4)

    def run(self) -> None:
        while not self.ended.wait(self._seconds / 4):
            beat = self._beat
            if beat != self._told and time.monotonic() - beat > self._seconds:
                self._told = beat
                self._look()

    def _look(self) -> None:
        stack = sys._current_frames().get(self._watched)
        frames = [] if stack is None else _since_the_command(traceback.extract_stack(stack))
        file, line, code = last_own(frames)
        # A file that takes long to load does so once, and nobody can help it.
        if file is not None and not any(frame.name == "<module>" for frame in frames):
            self._tell(Standstill(_ADVICE, file, line, code))


def _since_the_command(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Without what was there before this library: the script that started it."""
    ours = [number for number, frame in enumerate(frames) if frame.filename.startswith(OURS)]
    return frames[ours[0] :] if ours else frames
