"""The log lines about one upstream: with its name, and without the credentials in use for it."""

from __future__ import annotations

import logging
from typing import Any, Final

from toolwire.server_texts import ServerTexts

log: Final = logging.getLogger("toolwire.gateway")


class Quoted(str):
    """A text that an upstream wrote, for a log line."""

    __slots__ = ()


class UpstreamLog:
    """The log lines about one upstream.

    Each begins with its name. Above `debug`, the text of an upstream that gets accounts of callers is left out: errors
    say what kind they are, and a `Quoted` text is no part of the line.
    """

    def __init__(self, texts: ServerTexts) -> None:
        self.texts = texts

    def debug(self, text: str, *details: Any) -> None:
        """Log a line for debugging, as `warning` does. It may quote any upstream."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug(f"%s: {text}", self.texts.name, *(_hidden(self.texts, each) for each in details))

    def info(self, text: str, *details: Any) -> None:
        """Log what an operator may want to know, as `warning` does."""
        self._write(logging.INFO, text, details)

    def warning(self, text: str, *details: Any) -> None:
        """Log a warning. `text` is as for a logger, and the details are what it shows: errors, texts, numbers."""
        self._write(logging.WARNING, text, details)

    def error(self, text: str, *details: Any) -> None:
        """Log an error, as `warning` does."""
        self._write(logging.ERROR, text, details)

    def exception(self, text: str, error: BaseException) -> None:
        """Log an error of this program, with its traceback."""
        trace = logging.Formatter().formatException((type(error), error, error.__traceback__))
        self._write(logging.ERROR, f"{text}: %s\n%s", (type(error).__name__, Quoted(trace)))

    def _write(self, level: int, text: str, details: tuple[Any, ...]) -> None:
        texts = self.texts
        log.log(level, f"%s: {text}", texts.name, *(_shown(texts, each) for each in details))
        if not texts.is_quotable:
            self.debug(text, *details)


def _shown(texts: ServerTexts, detail: Any) -> Any:
    if isinstance(detail, Quoted) and not texts.is_quotable:
        return "[withheld]"
    return texts.describe(detail) if isinstance(detail, BaseException) else _hidden(texts, detail)


def _hidden(texts: ServerTexts, detail: Any) -> Any:
    return texts.hide(str(detail)) if isinstance(detail, str | BaseException) else detail
