"""Lines of a started server that explain its errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolwire.cli.screen import server_note
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.wire.tracebacks import TracebackFilter, TracebackFinder

if TYPE_CHECKING:
    from argparse import Namespace

_LAST_LINES: Final = 50
_TRACEBACK_LINES: Final = 400


class ServerErrors:
    """The last lines of started servers, and their tracebacks behind an error id."""

    def __init__(self) -> None:
        self._finders: dict[str, TracebackFinder] = {}
        self._count = 0
        self._last: deque[tuple[int, str]] = deque(maxlen=_LAST_LINES)
        self._tracebacks: deque[tuple[int, str]] = deque(maxlen=_TRACEBACK_LINES)
        self._has_failed = False

    def add(self, line: str) -> None:
        """Keep a line of the only server."""
        self._add_line("", line, line)

    def add_named(self, line: str) -> None:
        """Add a line of one of several servers, which begins with the server's name."""
        name, _, text = line.partition(": ")
        self._add_line(name, text, line)

    def _add_line(self, name: str, text: str, line: str) -> None:
        self._count += 1
        self._last.append((self._count, line))
        finder = self._finders.setdefault(name, TracebackFinder())
        if finder.add(text) and finder.is_named:
            self._tracebacks.append((self._count, line))

    def note_failure(self, error: BaseException | None = None) -> None:
        """Show the last lines, too, if an error or result says that the server failed."""
        if error is None or (isinstance(error, ProtocolError) and error.code == INTERNAL_ERROR):
            self._has_failed = True

    def show(self) -> None:
        """Write to standard error what explains the errors of the server, once."""
        # The author of the server wants to know what the caller does not see.
        shown = {*self._tracebacks, *(self._last if self._has_failed else ())}
        for _, line in sorted(shown):
            server_note(line)
        self._last.clear()
        self._tracebacks.clear()


def errors_of(arguments: Namespace) -> ServerErrors:
    """Return the collected errors of all servers that the command starts."""
    if not hasattr(arguments, "server_errors"):
        arguments.server_errors = ServerErrors()
    found: ServerErrors = arguments.server_errors
    return found


def show_tracebacks() -> Callable[[str], None]:
    """Return a function that reads the lines of a server and shows its tracebacks."""
    tracebacks = TracebackFilter(server_note)

    def show(line: str) -> None:
        tracebacks.add(line)

    return show
