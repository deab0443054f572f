"""Finding the line on standard error that tells why a program died.

Most programs write that line last. But the runtimes of Go, Rust, Node, Java and .NET write it first, and the place of
the error below. Warnings that have nothing to do with the error may come at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A warning of Python, which the line of code follows, and the two lines of a warning of Node.
_PYTHON_WARNING: Final = re.compile(r"\S.*:\d+: \w*Warning: ")
_NODE_WARNING: Final = re.compile(r"\(node:\d+\) (\[\w+\] )?\w*Warning: |\(Use `\w+ --trace-\w+ ")
# Lines below the error itself: the version of Node, the log file of npm, a hint of Rust, the status that `go run`
# prints, and closing brackets.
_POSTSCRIPT: Final = re.compile(
    r"Node\.js v\d|npm (ERR!|error)\s+A complete log|note: |exit status \d+$|[\])}>]+[,;]?$|\.\.\. \d+ more$"
)
_TRACEBACK: Final = "Traceback (most recent call last):"
# The first line of a panic, and the unindented lines that a runtime writes below.
_PANIC: Final = re.compile(r"(panic|fatal error): |thread '.*' (\(\d+\) )?panicked at ")
_BELOW_PANIC: Final = re.compile(r"goroutine \d+ |created by |\[signal |stack backtrace:|[\w./*()·-]+\(.*\)$")
# Error libraries of Rust write the error above this line, and its cause below.
_CAUSE: Final = "Caused by:"
_NODE_ERROR: Final = re.compile(r"(Uncaught )?\w*Error\b.*: ")


def reason(stderr: Iterable[str]) -> str:
    """Return the line that tells why a program died; "" where there is none."""
    written = [line for line in (_COLOURS.sub("", each).rstrip() for each in stderr) if line]
    lines = [line for line in _without_warnings(written) if _POSTSCRIPT.match(line.lstrip()) is None]
    if not lines:
        return ""
    panic = _panic(lines)
    if panic is not None:
        return panic
    whole = [line for line in lines if not line[0].isspace()]
    if written[-1].startswith("Node.js v"):
        errors = [line for line in whole if _NODE_ERROR.match(line)]
        return (errors or whole or lines)[-1].strip()
    if not whole or whole[-1] is lines[-1]:
        return lines[-1].strip()
    # The last line is part of something that began further up.
    return _raised(lines) or next((line for line in reversed(whole) if line != _CAUSE), whole[-1])


def _without_warnings(lines: list[str]) -> list[str]:
    kept: list[str] = []
    below_warning = False
    for line in lines:
        if _PYTHON_WARNING.match(line):
            below_warning = True
        elif below_warning and line[0].isspace():
            below_warning = False
        elif not _NODE_WARNING.match(line):
            below_warning = False
            kept.append(line)
    return kept


def _panic(lines: list[str]) -> str | None:
    """Return the message of a panic, if a panic is the last thing that was written."""
    at = max((number for number, line in enumerate(lines) if _PANIC.match(line)), default=None)
    if at is None:
        return None
    head, below = lines[at], lines[at + 1 :]
    if head.endswith(":") and below:
        # Rust writes the message on a line of its own.
        head, below = f"{head} {below[0].strip()}", below[1:]
    return head if all(line[0].isspace() or _BELOW_PANIC.match(line) for line in below) else None


def _raised(lines: list[str]) -> str | None:
    """Return the line under the last Python traceback that names the exception. Its message may go on below."""
    if _TRACEBACK not in lines:
        return None
    start = len(lines) - lines[::-1].index(_TRACEBACK)
    return next((line for line in lines[start:] if not line[0].isspace()), None)
