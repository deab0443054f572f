"""Where a command shows its results: plain text, tables, JSON. Whatever a server wrote is made harmless on the way.

With `rich` installed (the extra `cli`) a terminal gets tables that wrap and colours; everything else gets plain text.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

import msgspec

from toolwire.printable import printable, printable_lines

# What a terminal is shown of one text; who wants the rest redirects it.
SHOWN_ON_TERMINAL: Final = 64 * 1024
_GAP: Final = "  "
_NARROWEST: Final = 8


class Screen:
    """A stream that takes text of unknown origin."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal: bool = stream.isatty()

    def line(self, text: str = "") -> None:
        """A line of our own making, in which what came from elsewhere may stand."""
        self._write(printable_lines(text) + "\n")

    def heading(self, text: str) -> None:
        self.line(text)

    def text(self, text: str) -> None:
        """A text as a server sent it; a terminal gets the beginning of a very long one."""
        shown, left_out = self._bounded(text)
        self._write(printable_lines(shown) + ("" if shown.endswith("\n") else "\n"))
        if left_out:
            self._say_left_out(left_out)

    def json(self, value: Any) -> None:
        """A value as indented JSON, with nothing in it that a terminal obeys."""
        shown, left_out = self._bounded(as_json(value))
        self._write(shown + "\n")
        if left_out:
            self._say_left_out(left_out)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [[printable(cell) for cell in row] for row in (headers, *rows)]
        widths = [max(len(row[column]) for row in lines) for column in range(len(headers))]
        if self.is_terminal:
            widths = _fitting(widths, shutil.get_terminal_size().columns)
        for row in lines:
            cells = (_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
            self._write(_GAP.join(cells).rstrip() + "\n")

    def raw(self, data: str) -> None:
        """Something that a terminal is meant to obey; never text from a server."""
        self._write(data)

    def _bounded(self, text: str) -> tuple[str, int]:
        if not self.is_terminal or len(text) <= SHOWN_ON_TERMINAL:
            return text, 0
        return text[:SHOWN_ON_TERMINAL], len(text) - SHOWN_ON_TERMINAL

    def _say_left_out(self, count: int) -> None:
        note(f"… and {count:,} more characters; send standard output to a file to have them all")

    def _write(self, text: str) -> None:
        # A lone surrogate, or a terminal that is not UTF-8, must not end the command.
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self.stream.flush()


def note(text: str) -> None:
    """Something beside the results, on standard error."""
    Screen(sys.stderr).line(text)


def as_json(value: Any) -> str:
    """Indented JSON; control characters beyond ASCII are written as escapes too."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if text.isascii() else _escaped(text, lambda character: character in "\n\t" or character.isprintable())


def _escaped(text: str, keeps: Callable[[str], bool]) -> str:
    return "".join(character if keeps(character) else _escape(character) for character in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _fitting(widths: list[int], available: int) -> list[int]:
    """Narrower columns, the widest first, until a row fits."""
    widths = list(widths)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - available
    while excess > 0 and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        second = max((width for at, width in enumerate(widths) if at != widest), default=0)
        cut = min(excess, max(1, widths[widest] - max(second, _NARROWEST)))
        widths[widest] -= cut
        excess -= cut
    return widths


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
