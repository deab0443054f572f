"""What a check of a server found, and the exceptions that the server hides from its clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from toolwire.cli.screen import as_json


class Failure(Struct, frozen=True):
    """A call that should not have ended as it did."""

    name: str
    problem: str
    arguments: Any
    cause: BaseException | None = None

    def __str__(self) -> str:
        text = f"{self.name} {self.problem}; the arguments were\n{_shown(self.arguments)}"
        if self.cause is None:
            return text
        # Imported here because only a failure needs it.
        import traceback

        return text + "\n" + "".join(traceback.format_exception(self.cause)).rstrip()


_LONGEST = 2_000


def _shown(arguments: Any) -> str:
    text = as_json(arguments)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


class _Listener(logging.Handler):
    def __init__(self, causes: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._causes = causes

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._causes.append(record.exc_info[1])


@contextmanager
def hidden_causes() -> Iterator[list[BaseException]]:
    """The exceptions that the server hides from its clients and writes to its log (D12)."""
    causes: list[BaseException] = []
    listener = _Listener(causes)
    logger = logging.getLogger("toolwire")
    propagates = logger.propagate
    logger.addHandler(listener)
    # They are expected here, and shown with the failure.
    logger.propagate = False
    try:
        yield causes
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates
