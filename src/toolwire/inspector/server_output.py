"""The lines that a started server writes to standard error, for the page."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from toolwire.inspector.events import Events

MAX_LINES: Final = 1_000
MAX_LINE: Final = 2_000
#: Lines within this time are sent to the pages together.
TOGETHER_SECONDS: Final = 0.1


class ServerOutput:
    """The last lines of output. `also` gets each line as well, for the terminal."""

    def __init__(self, events: Events, also: Callable[[str], None] | None = None) -> None:
        self._events = events
        self._also = also
        self._lines: deque[dict[str, Any]] = deque(maxlen=MAX_LINES)
        self._unsent: deque[dict[str, Any]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, line: str) -> None:
        """Add a line; the oldest line is dropped when there are too many."""
        if self._also is not None:
            self._also(line)
        self._count += 1
        entry = {"number": self._count, "at": time.time(), "text": line[:MAX_LINE]}
        self._lines.append(entry)
        self._unsent.append(entry)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._send)

    def list_lines(self) -> list[dict[str, Any]]:
        """Return the last lines, the oldest first."""
        return list(self._lines)

    def _send(self) -> None:
        self._timer = None
        if self._unsent:
            self._events.tell("output", lines=list(self._unsent))
            self._unsent.clear()
