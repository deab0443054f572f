"""Finding the tracebacks among the lines that a started server writes to standard error."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Final, Literal

from toolwire.printable import printable
from toolwire.protocol.errors import counted

#: How many characters of tracebacks one server may add to a log within how many seconds.
MAX_CHARACTERS: Final = 64 * 1024
WINDOW_SECONDS: Final = 10.0
#: What a line costs besides its text: the time, the level and the name that a log writes before it.
_LINE_COST: Final = 80
# One entry of a log has so many at most, because the log cuts longer ones.
_ENTRY_CHARACTERS: Final = 6 * 1024
# Servers of this library log an error whose text the client does not get in this form.
_NAMED: Final = re.compile(r"\berror [0-9a-f]{12} in ")
_HEADER: Final = "Traceback (most recent call last):"
_CHAIN: Final = ("During handling of the above exception", "The above exception was the direct cause")


class TracebackFinder:
    """Tells which lines of one server belong to a traceback."""

    def __init__(self) -> None:
        self.is_named: bool = False
        """Whether the traceback of the last line began with an error id."""
        # Where the last line was: at the header, in a traceback whose every line is indented, in one whose last line is
        # not, below that last line, at the empty line before the next exception of a chain, or in no traceback.
        self._place: Literal["header", "indented", "plain", "below", "gap", None] = None

    def add(self, line: str) -> bool:
        """Take the next line. Return whether it belongs to a traceback."""
        text = line.rstrip()
        if _NAMED.search(text):
            self._place, self.is_named = "indented", True
        elif text.endswith(_HEADER):
            if self._place is None:
                self.is_named = False
            # A server with a log of its own writes the traceback below the id, and indents nothing.
            self._place = "indented" if text[0].isspace() else "header"
        elif self._place is None:
            return False
        elif text.startswith(_CHAIN):
            self._place = "plain"
        elif self._place == "gap":
            self._place = None
            return False
        elif not text:
            if self._place == "below":
                self._place = "gap"
        elif text[0].isspace():
            if self._place == "header":
                # A log may indent what stands below its own words and a header.
                self._place = "indented" if text.startswith("    ") else "plain"
        elif self._place in ("header", "plain"):
            self._place = "below"
        else:
            self._place = None
            return False
        return True


class TracebackFilter:
    """Passes on the tracebacks of one server, made printable, and only so many of them within a time."""

    def __init__(self, emit: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._clock = clock
        self._finder = TracebackFinder()
        self._begin = clock()
        self._characters = 0
        self._left_out = 0

    def add(self, line: str) -> bool:
        """Pass on a line of a traceback. Return whether it was one."""
        if not self._finder.add(line):
            return False
        now = self._clock()
        if now - self._begin >= WINDOW_SECONDS:
            if self._left_out:
                self._emit(f"[{counted(self._left_out, 'line')} of tracebacks left out]")
            self._begin, self._characters, self._left_out = now, 0, 0
        self._characters += len(line) + _LINE_COST
        if self._characters <= MAX_CHARACTERS:
            self._emit(printable(line.rstrip()))
            return True
        if not self._left_out:
            self._emit(f"[more tracebacks are left out for {counted(WINDOW_SECONDS, 'second')}]")
        self._left_out += 1
        return True


class TracebackLog:
    """Logs the tracebacks of one server as warnings, behind the name of the server."""

    def __init__(self, log: logging.Logger, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._name = printable(name)
        self._lines: list[str] = []
        self._size = 0
        self._filter = TracebackFilter(self._collect, clock)

    def add(self, line: str) -> bool:
        """Log a line of a traceback. Return whether it was one."""
        if self._filter.add(line):
            return True
        self._write()
        return False

    def _collect(self, line: str) -> None:
        # Lines that arrive together become one entry: then a log that this program writes can be read like that of the
        # server, also by a client of this program.
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write)
        elif self._size + len(line) > _ENTRY_CHARACTERS:
            self._write()
        self._lines.append(line)
        self._size += len(line)

    def _write(self) -> None:
        if not self._lines:
            return
        first, *further = self._lines
        self._lines.clear()
        self._size = 0
        if any(line[:1].strip() for line in further):
            # No line of a server may look like an entry of the log.
            further = [f"    {line}" for line in further]
        # The text is the message itself: the log of the command line leaves out repetitions of one message.
        self._log.warning("\n".join((f"{self._name}: {first}", *further)))
