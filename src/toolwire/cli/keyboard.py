"""A line from the person at the terminal, read while the event loop goes on."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Final

from toolwire.cli.screen import Screen, note

_LONGEST: Final = 64 * 1024


def is_there() -> bool:
    """Return whether somebody can be asked: standard input and standard error are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class Keyboard:
    """The person at the terminal. Questions go to standard error, so that standard output has results only."""

    def tell(self, text: str) -> None:
        note(text)

    async def ask(self, question: str) -> str | None:
        """Return the line that was typed, without its end; None if the input ended."""
        Screen(sys.stderr).prompt(question)
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()

        def deliver(line: bytes) -> None:
            if not typed.done():
                typed.set_result(line)

        def read() -> None:
            line = _read_line(sys.stdin.fileno())
            try:
                loop.call_soon_threadsafe(deliver, line)
            except RuntimeError:
                pass  # The command ended meanwhile.

        # A daemon thread without a buffered file: an unanswered question must not keep the process from ending.
        threading.Thread(target=read, name="toolwire-keyboard", daemon=True).start()
        line = await typed
        if not line:
            note("")
            return None
        return line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n")


def _read_line(descriptor: int) -> bytes:
    """Read one line. A terminal returns whole lines; anything else is read byte by byte to the end of a line."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST:
        chunk = os.read(descriptor, 4096 if os.isatty(descriptor) else 1)
        if not chunk:
            break
        line += chunk
    return line
