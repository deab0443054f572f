"""Answers that differ from the description of their API: compared in the background, counted, and logged once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolwire import schemas
from toolwire.printable import printable
from toolwire.server.metrics import Metrics

if TYPE_CHECKING:
    from toolwire.schemas import Validator

log: logging.Logger = logging.getLogger("toolwire.openapi")

#: A longer answer is not compared, because that would hold up other calls.
MAX_COMPARED: Final = 1_000_000
_SHOWN_PROBLEMS: Final = 3


class AnswerDrift:
    """The differences between the answers of an API and its description, counted by operation."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def of(self, operation: str, schema: dict[str, Any]) -> OperationDrift:
        """Return the comparison of one operation's answers with the schema of its description."""
        return OperationDrift(operation, schema, self.counts)


class OperationDrift:
    """The comparison of the answers of one operation with its description."""

    def __init__(self, operation: str, schema: dict[str, Any], counts: dict[str, int]) -> None:
        self._operation = operation
        self._schema = schema
        self._counts = counts
        self._validator: Validator | None = None
        self._is_usable = True

    def compare_later(self, value: Any, text: bytes) -> None:
        """Compare an answer with the description when the result has left. `text` is its JSON."""
        if self._is_usable and len(text) <= MAX_COMPARED:
            asyncio.get_running_loop().call_soon(self._compare, value, text)

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

    def _compare(self, value: Any, text: bytes) -> None:
        try:
            validator = self._validator or self._compiled()
        except schemas.SchemaError as error:
            self._is_usable = False
            log.warning("the answers of %s are not compared: %s", printable(self._operation), printable(str(error)))
            return
        if validator.fits(value, text):
            return
        # Only the first difference is put in words.
        problems = [] if self._operation in self._counts else validator.check(value, text)[:_SHOWN_PROBLEMS]
        if problems != [schemas.TOO_LARGE]:
            self.found("; ".join(map(difference, problems)))

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
