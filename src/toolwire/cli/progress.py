"""How far a call has come: one line on standard error that is drawn again and again, on a terminal only."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Final

from msgspec import UNSET

from toolwire.printable import printable
from toolwire.protocol import types as t

_BAR: Final = 24
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    def __init__(self) -> None:
        self._stream = sys.stderr
        self._draws = self._stream.isatty()
        self._drawn = False

    def __call__(self, params: t.ProgressNotificationParams) -> None:
        if self._draws:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(_CLEAR + line(params)[:width])
            self._stream.flush()
            self._drawn = True

    def clear(self) -> None:
        """Take the line away, before something else is written."""
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False


def line(params: t.ProgressNotificationParams) -> str:
    message = "" if params.message is UNSET else f" {printable(params.message)}"
    done, total = params.progress, params.total
    if total is UNSET or not _is_number(total) or total <= 0:
        return f"… {done:g}{message}"
    share = min(max(done / total, 0.0), 1.0)
    filled = round(share * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%}{message}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value
