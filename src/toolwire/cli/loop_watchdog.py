"""A watchdog for the event loop under development, which reports blocking code.

A blocking call in an `async` function stops every client, and nothing else says so. A thread checks whether the loop
still runs. If it does not, the stack of the loop's thread shows the line that blocks it.
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
    "this blocks every client: await something that does not block, or make it a plain def, which runs in a thread"
)


class BlockedLoop(NamedTuple):
    """The line at which the loop was blocked, with advice."""

    text: str
    file: str | None
    line: int | None
    code: str | None


@asynccontextmanager
async def watched(tell: Callable[[BlockedLoop], None], seconds: float = SECONDS) -> AsyncIterator[None]:
    """Watch the running loop within the block.

    `tell` is called once for each time it is blocked, in another thread.
    """
    watch = _Watchdog(tell, seconds)
    watch.start()
    beating = asyncio.create_task(watch.beat())
    try:
        yield
    finally:
        beating.cancel()
        watch.ended.set()


class _Watchdog(threading.Thread):
    """The thread that watches the loop."""

    def __init__(self, tell: Callable[[BlockedLoop], None], seconds: float) -> None:
        super().__init__(name="toolwire-loop-watchdog", daemon=True)
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
                self._report_block()

    def _report_block(self) -> None:
        stack = sys._current_frames().get(self._watched)
        frames = [] if stack is None else _since_the_command(traceback.extract_stack(stack))
        file, line, code = last_own(frames)
        # A file that takes long to load blocks the loop once, which is not a mistake.
        if file is not None and not any(frame.name == "<module>" for frame in frames):
            self._tell(BlockedLoop(_ADVICE, file, line, code))


def _since_the_command(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Drop the frames before the first frame of this library: the script that started it."""
    ours = [number for number, frame in enumerate(frames) if frame.filename.startswith(OURS)]
    return frames[ours[0] :] if ours else frames
