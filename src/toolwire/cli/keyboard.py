"""A line from the user at the terminal, read while the event loop runs."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Final

from toolwire.cli.screen import Screen, hold_output, note

_LONGEST: Final = 64 * 1024


def is_there() -> bool:
    """Return whether a user can be asked: standard input and error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class Keyboard:
    """The user at the terminal.

    Questions go to standard error, so that standard output has results only.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._typed: asyncio.Future[bytes] | None = None
        self._reads = False

    def tell(self, text: str) -> None:
        note(text)

    async def ask(self, question: str) -> str | None:
        """Return the line that was typed, without its end; None if the input ended.

        Other output waits until the question is answered. What was typed before the question is discarded.
        """
        async with self._turn:
            with hold_output() as terminal:
                _discard_typed()
                Screen(terminal).prompt(question)
                line = b""
                try:
                    line = await self._next_line()
                finally:
                    if not line.endswith(b"\n"):
                        Screen(terminal).line()
        return line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if line else None

    async def _next_line(self) -> bytes:
        loop = asyncio.get_running_loop()
        self._typed = loop.create_future()

        def read() -> None:
            line = _read_line(sys.stdin.fileno())
            try:
                loop.call_soon_threadsafe(self._deliver, line)
            except RuntimeError:
                pass  # The command ended meanwhile.

        # A question that was cancelled leaves its thread behind, which then reads for the next question.
        if not self._reads:
            self._reads = True
            # A daemon thread without a buffered file: an unanswered question must not keep the process from ending.
            threading.Thread(target=read, name="toolwire-keyboard", daemon=True).start()
        return await self._typed

    def _deliver(self, line: bytes) -> None:
        self._reads = False
        if self._typed is not None and not self._typed.done():
            self._typed.set_result(line)


def _discard_typed() -> None:
    """Discard what was typed ahead at a terminal.

    It cannot be the answer to a question that was not shown.
    """
    if not sys.stdin.isatty():
        return
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _read_line(descriptor: int) -> bytes:
    """Read one line.

    A terminal returns whole lines; anything else is read byte by byte to the end of a line.
    """
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST:
        try:
            chunk = os.read(descriptor, 4096 if os.isatty(descriptor) else 1)
        except OSError:
            break  # The terminal is closed.
        if not chunk:
            break
        line += chunk
    return line
