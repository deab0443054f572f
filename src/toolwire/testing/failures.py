"""What a check of a server found, and the exceptions that the server hides from its clients."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from msgspec import Struct

from toolwire.cli.screen import as_json


class Failure(Struct, frozen=True):
    """A call that should not have ended as it did."""

    name: str
    problem: str
    arguments: Any
    cause: BaseException | None = None
    answers: Sequence[Any] = ()
    """What it was told when it asked the user or the model, where the answers were made up."""

    def __str__(self) -> str:
        text = f"{self.name} {self.problem}; the arguments were\n{as_json(_shortened(self.arguments))}"
        if self.answers:
            text += f"\nand the answers to what it asked\n{as_json(_shortened(list(self.answers)))}"
        if self.cause is None:
            return text
        # Imported here because only a failure needs it.
        import traceback

        frames = _own_frames(self.cause.__traceback__)
        return text + "\n" + "".join(traceback.format_exception(type(self.cause), self.cause, frames)).rstrip()


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """From the first frame on that is not ours: how the call got there is of no interest."""
    found = trace
    while found is not None and _PACKAGE in Path(found.tb_frame.f_code.co_filename).parents:
        found = found.tb_next
    return found or trace


_PACKAGE: Final = Path(__file__).parent.parent
# What is shown of one text.
_LONGEST: Final = 200


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: _shortened(member) for key, member in value.items()}
    return [_shortened(member) for member in value] if isinstance(value, list) else value


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
