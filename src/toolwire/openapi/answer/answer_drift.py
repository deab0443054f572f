"""Answers that differ from their description: marked in the result, counted, logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolwire import schemas
from toolwire.openapi.answer.left_out import pointer_of
from toolwire.printable import printable
from toolwire.server.metrics import Metrics

if TYPE_CHECKING:
    from toolwire.schemas import Validator

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: A longer answer is not compared, because that would hold up other calls.
MAX_COMPARED: Final = 1_000_000
_SHOWN_PROBLEMS: Final = 3
_MAX_PLACES: Final = 10


class AnswerDrift:
    """The differences between the answers of an API and its description, counted by operation."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def for_operation(self, operation: str, schema: dict[str, Any]) -> OperationDrift:
        """Return the comparison of an operation's answers with its described schema."""
        return OperationDrift(operation, schema, self.counts)


class OperationDrift:
    """The comparison of the answers of one operation with its description."""

    def __init__(self, operation: str, schema: dict[str, Any], counts: dict[str, int]) -> None:
        self._operation = operation
        self._schema = schema
        self._counts = counts
        self._validator: Validator | None = None
        self._is_usable = True

    def compare(self, value: Any, text: bytes) -> list[str]:
        """Compare an answer with the description. Return the JSON Pointers of the first differences.

        `text` is the JSON of the answer. A long one is not compared, because that would hold up other calls.
        """
        return self._compare(value, text) if self._is_usable and len(text) <= MAX_COMPARED else []

    def found(self, what: str) -> None:
        """Count a difference, and log the first one."""
        before = self._counts.get(self._operation, 0)
        self._counts[self._operation] = before + 1
        if not before:
            log.warning(
                "the answers of %s differ from its description: %s; this is logged once and counted from now on",
                printable(self._operation),
                printable(what),
            )

    def _compare(self, value: Any, text: bytes) -> list[str]:
        try:
            validator = self._validator or self._compiled()
        except schemas.SchemaError as error:
            self._is_usable = False
            log.warning("the answers of %s are not compared: %s", printable(self._operation), printable(str(error)))
            return []
        if validator.fits(value, text):
            return []
        problems = validator.check(value, text)
        if problems == [schemas.TOO_LARGE]:
            return []
        # Only the first difference is put in words.
        is_first = self._operation not in self._counts
        self.found("; ".join(map(difference, problems[:_SHOWN_PROBLEMS])) if is_first else "")
        return list(dict.fromkeys(pointer_of(each.path) for each in problems))[:_MAX_PLACES]

    def _compiled(self) -> Validator:
        self._validator = schemas.compile(self._schema, what=f"the described answer of {self._operation!r}")
        return self._validator


def difference(problem: schemas.Problem) -> str:
    """Put a difference between an answer and a schema in words."""
    return schemas.sentence(problem, "member" if problem.path else "answer")


def publish_drift(metrics: Metrics, drifts: Callable[[], Iterable[AnswerDrift]]) -> None:
    """Show the differences of all APIs of a server as `toolwire_openapi_drift_total`."""

    def read() -> Mapping[str, float]:
        total: dict[str, float] = {}
        for drift in drifts():
            for operation, count in drift.counts.items():
                total[operation] = total.get(operation, 0) + count
        return total

    metrics.counter(
        "openapi_drift_total", "Answers of an API that differ from its description.", read, label="operation"
    )
