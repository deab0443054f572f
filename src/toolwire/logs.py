"""Log output of the library, and the log levels of the protocol and of Python.

The library writes to loggers below `toolwire` and configures nothing. A program calls `install()`: it adds one
handler to that logger, never to the root. The handler writes to standard error, because standard output may carry the
protocol.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias, cast

import msgspec

from toolwire.printable import printable
from toolwire.protocol.types import LoggingLevel

Level: TypeAlias = LoggingLevel

#: The eight levels of RFC 5424, from the least severe, with their numbers on Python's scale.
LEVELS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": 25,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": 55,
    "emergency": 60,
}

#: The logger of HTTP requests. Its lines are never left out as repetitions.
ACCESS = "toolwire.access"

_logger = logging.getLogger("toolwire")


def to_python(level: str) -> int:
    """Return Python's number for a level of the protocol; raise `ValueError` for any other word."""
    number = LEVELS.get(cast("Level", level))
    if number is None:
        raise ValueError(f"Unknown log level; use one of {', '.join(LEVELS)}.")
    return number


def from_python(levelno: int) -> Level:
    """Return the protocol's level for a Python level.

    That is the highest that it reaches; "debug" for lower ones.
    """
    found: Level = "debug"
    for level, number in LEVELS.items():
        if number <= levelno:
            found = level
    return found


def install(
    level: str = "info",
    *,
    stream: TextIO | None = None,
    json: bool = False,
    max_length: int = 8 * 1024,
    max_repeats: int = 20,
    window: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> logging.Handler:
    """Write the log of the library from `level` on, as text or JSON lines.

    A message longer than `max_length` is cut. The same message appears at most `max_repeats` times within `window`
    seconds; the next one says how many were left out. A second call replaces the handler of the first.
    """
    number = to_python(level)
    uninstall()
    handler = _Handler(stream, json, max_length, _RepeatLimit(max_repeats, window, clock), _logger.level)
    _logger.addHandler(handler)
    _apply(handler, number)
    return handler


def uninstall() -> None:
    """Remove the handler of `install()`, if there is one."""
    handler = _installed()
    if handler is not None:
        _logger.removeHandler(handler)
        _logger.setLevel(handler.previous_level)
        handler.close()


def set_level(level: str) -> bool:
    """Change the level of the installed handler; return whether there is one."""
    number = to_python(level)
    handler = _installed()
    if handler is None:
        return False
    _apply(handler, number)
    return True


def _installed() -> _Handler | None:
    return next((handler for handler in _logger.handlers if isinstance(handler, _Handler)), None)


def _apply(handler: _Handler, number: int) -> None:
    handler.setLevel(number)
    # The logger must pass the records of this handler, and still pass those that it passed before.
    before = handler.previous_level
    _logger.setLevel(number if before == logging.NOTSET else min(number, before))


class _RepeatLimit:
    """Counts messages by their text before formatting.

    So messages with other details count as the same.
    """

    _MAX_KEYS = 512

    def __init__(self, max_repeats: int, window: float, clock: Callable[[], float]) -> None:
        self._max_repeats = max_repeats
        self._window = window
        self._clock = clock
        # For each message: the start of its window, and the count since then. The oldest window comes first. Not
        # `Expiring`, which imports asyncio: every command imports this module.
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def admit(self, record: logging.LogRecord) -> int | None:
        """Return how many repetitions were left out before this record.

        None if this one is left out too.
        """
        key = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else type(record.msg).__name__)
        now = self._clock()
        start, count = self._seen.get(key, (now, 0))
        if count and now - start < self._window:
            self._seen[key] = (start, count + 1)
            return 0 if count < self._max_repeats else None
        self._seen.pop(key, None)
        self._seen[key] = (now, 1)
        if len(self._seen) > self._MAX_KEYS:
            del self._seen[next(iter(self._seen))]
        return max(0, count - self._max_repeats)


class _Handler(logging.Handler):
    """The handler of `install()`."""

    def __init__(
        self, stream: TextIO | None, json: bool, max_length: int, limit: _RepeatLimit, previous_level: int
    ) -> None:
        super().__init__()
        self.previous_level = previous_level
        self._stream = stream
        self._json = json
        self._max_length = max_length
        self._limit = limit
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            left_out = 0 if record.name == ACCESS else self._limit.admit(record)
            if left_out is None:
                return
            line = self._as_json(record, left_out) if self._json else self._as_text(record, left_out)
            # Standard error may have been replaced since the installation.
            stream = self._stream if self._stream is not None else sys.stderr
            stream.write(line + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)

    def _as_text(self, record: logging.LogRecord, left_out: int) -> str:
        text = f"{_time(record)} {from_python(record.levelno):<9} {record.name}: {self._cut(record.getMessage())}"
        if left_out:
            text += f" [{left_out} more like this were left out]"
        if record.exc_info:
            text += "\n" + self._cut_traceback(record.exc_info)
        return _on_one_entry(text)

    def _as_json(self, record: logging.LogRecord, left_out: int) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": from_python(record.levelno),
            "logger": record.name,
            "data": _encodable(self._cut(record.getMessage())),
        }
        if left_out:
            entry["leftOut"] = left_out
        if record.exc_info:
            entry["exception"] = _encodable(self._cut_traceback(record.exc_info))
        return msgspec.json.encode(entry).decode()

    def _cut(self, text: str) -> str:
        if len(text) <= self._max_length:
            return text
        return f"{text[: self._max_length]}… [{len(text) - self._max_length} more characters]"

    def _cut_traceback(self, raised: Any) -> str:
        """Format a traceback.

        A long one keeps its end, where the error is, and its beginning.
        """
        text = self._formatter.formatException(raised)
        if len(text) <= self._max_length:
            return text
        end = self._max_length * 3 // 4
        begin = self._max_length - end
        return f"{text[:begin]}… [{len(text) - self._max_length} more characters]\n{text[len(text) - end :]}"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _on_one_entry(text: str) -> str:
    """Indent further lines and escape control characters, because logged text may come from a peer.

    Such text must neither look like an entry of the log nor control a terminal.
    """
    return "\n    ".join(printable(line) for line in text.split("\n"))


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
