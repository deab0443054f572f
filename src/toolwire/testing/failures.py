"""`Failure`: a finding of a check; and exceptions that a server hides from clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from msgspec import Struct

from toolwire.cli.screen import as_json
from toolwire.printable import printable, printable_lines


class Failure(Struct, frozen=True):
    """A call that ended as it should not."""

    name: str
    problem: str
    arguments: Any
    cause: BaseException | None = None
    answers: Sequence[Any] = ()
    """The generated answers to the questions that the call asked the user or the model."""

    def __str__(self) -> str:
        text = f"{printable(f'{self.name} {self.problem}')}; the arguments were\n{as_json(_shortened(self.arguments))}"
        if self.answers:
            text += f"\nand the answers to its questions\n{as_json(_shortened(list(self.answers)))}"
        if self.cause is None:
            return text
        # Imported here because only a failure needs it.
        import traceback

        frames = _own_frames(self.cause.__traceback__)
        trace = "".join(traceback.format_exception(type(self.cause), self.cause, frames)).rstrip()
        return f"{text}\n{printable_lines(trace)}"


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames of this library before the first frame of the user."""
    found = trace
    while found is not None and _PACKAGE in Path(found.tb_frame.f_code.co_filename).parents:
        found = found.tb_next
    return found or trace


_PACKAGE: Final = Path(__file__).parent.parent
# The part of one text that is shown.
_LONGEST: Final = 200


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: _shortened(member) for key, member in value.items()}
    return [_shortened(member) for member in value] if isinstance(value, list) else value


class _CauseCollector(logging.Handler):
    """A log handler that collects the exceptions of log records."""

    def __init__(self, causes: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._causes = causes

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._causes.append(record.exc_info[1])


@contextmanager
def hidden_causes() -> Iterator[list[BaseException]]:
    """Collect the exceptions that the server hides from its clients and writes to its log."""
    causes: list[BaseException] = []
    listener = _CauseCollector(causes)
    logger = logging.getLogger("toolwire")
    propagates = logger.propagate
    logger.addHandler(listener)
    # The log lines are expected here, and the failure shows them.
    logger.propagate = False
    try:
        yield causes
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates
