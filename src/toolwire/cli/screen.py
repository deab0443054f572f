"""Output of a command: results on standard output, notes and progress on standard error.

All output of the command line passes a `Screen`, which makes text from a server harmless: no character of it steers the
terminal, and it is one line wherever a line of our own is written, so that it cannot forge another. A terminal gets
colours and tables that wrap when `rich` is installed (the extra `cli`). Everything else gets plain text.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec
from msgspec import UNSET

from toolwire.extras import require
from toolwire.printable import is_printable, printable, printable_lines
from toolwire.protocol import types as t
from toolwire.protocol.errors import counted

if TYPE_CHECKING:
    from argparse import ArgumentParser

# A terminal gets this many characters of one text. A file gets the whole text.
SHOWN_ON_TERMINAL: Final = 64 * 1024
_GAP: Final = "  "
_NARROWEST: Final = 8
_BAR: Final = 24
_CLEAR: Final = "\r\x1b[2K"
_OF_SERVER: Final = "server| "
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[22m"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=["auto", "always", "never"],
        default="auto",
        help="whether to use colours and tables that wrap (default: on a terminal)",
    )


def results(color: str = "auto") -> Screen:
    """Return the screen for results: with `rich` on a terminal if installed, else plain.

    Raise `MissingExtra` for `--color always` without `rich`.
    """
    if color == "never" or (color == "auto" and not (sys.stdout.isatty() and find_spec("rich") is not None)):
        return Screen(sys.stdout)
    require("rich", extra="cli", what="--color always")
    return RichScreen(sys.stdout, forced=color == "always")


def note(text: str) -> None:
    """Write one line that is not a result to standard error."""
    Screen(sys.stderr).line(text)


def server_note(text: str) -> None:
    """Write a line of a server's output to standard error, with a mark.

    Without the mark, a server could write a line that looks like one of this command.
    """
    screen = Screen(sys.stderr)
    is_dimmed = screen.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    line = f"{_OF_SERVER}{printable(text)}\n"
    # One write, so that output that is held back and cut keeps the two sequences together.
    screen.raw(f"{_DIM}{line}{_PLAIN}" if is_dimmed else line)


@contextmanager
def hold_output() -> Iterator[TextIO]:
    """Delay what is written to standard error until the block ends.

    Yields the stream for the question.

    Without this, a server could extend or erase a question that a person is about to answer.
    """
    stream = sys.stderr
    held = HeldOutput(stream)
    sys.stderr = held
    try:
        yield stream
    finally:
        sys.stderr = stream
        held.release()


class HeldOutput(io.TextIOBase):
    """A stream that stores the beginning of its text and counts the remaining lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: list[str] = []
        self._size = 0
        self._left_out = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._left_out or self._size + len(text) > SHOWN_ON_TERMINAL:
            self._left_out += text.count("\n")
        else:
            self._texts.append(text)
            self._size += len(text)
        return len(text)

    def release(self) -> None:
        """Write what was kept, and how many lines were not."""
        self._stream.write("".join(self._texts))
        if self._left_out:
            left_out = counted(self._left_out, "line")
            self._stream.write(f"toolwire: {left_out} of output left out while the question was open\n")
        self._stream.flush()


class Screen:
    """An output stream that makes text from a server harmless."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_terminal: bool = stream.isatty()

    def line(self, text: str = "") -> None:
        """Write one line of our own. Line breaks in words of a server become escapes."""
        self._write(printable(text) + "\n")

    def prompt(self, question: str) -> None:
        """Write a question without the end of its line."""
        self._write(printable(question))

    def heading(self, text: str) -> None:
        self.line(text)

    def text(self, text: str) -> None:
        """Write a text of a server with its lines; on a terminal, only its beginning."""
        shown, left_out = self._bounded(text)
        self._write(printable_lines(shown) + ("" if shown.endswith("\n") else "\n"))
        if left_out:
            self._say_left_out(left_out)

    def json(self, value: Any) -> None:
        """Write a value as indented JSON without any character that a terminal obeys."""
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
        """Write text with sequences for the terminal. Never use it for a server's raw text."""
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


class RichScreen(Screen):
    """A screen with tables that wrap and a little colour.

    `rich` is imported in the methods because it is an extra. Cells are `Text`, so that `rich` reads no markup in them.
    """

    def __init__(self, stream: TextIO, *, forced: bool = False) -> None:
        from rich.console import Console

        super().__init__(stream)
        self._console = Console(
            file=stream, force_terminal=forced or None, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def heading(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(printable(text), style="bold"))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for position, header in enumerate(headers):
            table.add_column(Text(printable(header)), overflow="fold", style="cyan" if position == 0 else None)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._console.print(table)

    def json(self, value: Any) -> None:
        from rich.highlighter import JSONHighlighter
        from rich.text import Text

        text = as_json(value)
        if len(text) > SHOWN_ON_TERMINAL:
            super().json(value)
        else:
            # The text is only coloured. Reading and writing it again would undo the escapes.
            self._console.print(JSONHighlighter()(Text(text)))


class ProgressLine:
    """The progress of a call: one redrawn line on standard error.

    It is shown on a terminal only.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._draws = self._stream.isatty()
        self._drawn = False

    def __call__(self, params: t.ProgressNotificationParams) -> None:
        # Progress is not held back while a question is open: it would be outdated.
        if self._draws and not isinstance(sys.stderr, HeldOutput):
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(_CLEAR + _progress(params)[:width])
            self._stream.flush()
            self._drawn = True

    def clear(self) -> None:
        """Remove the line before something else is written."""
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False


def _progress(params: t.ProgressNotificationParams) -> str:
    message = "" if params.message is UNSET else f" {printable(params.message)}"
    done, total = params.progress, params.total
    if total is UNSET or not _is_number(total) or total <= 0:
        return f"… {done:g}{message}"
    share = min(max(done / total, 0.0), 1.0)
    filled = round(share * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}{message}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value


def as_json(value: Any) -> str:
    """Write indented JSON with all control characters escaped.

    JSON leaves DEL and those beyond ASCII as they are.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if is_printable(text.replace("\n", "").replace("\t", "")):
        return text
    return _escaped(text, lambda character: character in "\n\t" or is_printable(character))


def _escaped(text: str, keeps: Callable[[str], bool]) -> str:
    return "".join(character if keeps(character) else _escape(character) for character in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _fitting(widths: list[int], available: int) -> list[int]:
    """Make columns narrower, the widest first, until a row fits."""
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
