"""A failure from both sides: what the caller is told, and what stays with whoever runs the server."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from toolwire.client import Client
from toolwire.testing.connecting import connect
from toolwire.testing.outcomes import Outcome, outcome_of
from toolwire.testing.revealing import revealed, texts_in

_ERROR_ID: Final = re.compile(r"\(error id ([0-9a-f]+)\)")


class BothSides(Struct, frozen=True, kw_only=True):
    """One call, and what was said about it on either side."""

    outcome: Outcome
    """How it ended, as the caller sees it."""
    texts: list[str]
    """Every text that the caller was sent, the names of members among them."""
    records: list[logging.LogRecord]
    """What was logged meanwhile, by the library and by the handler."""
    audit: list[Mapping[str, Any]]
    """The lines about it in the audit log, if the server has one."""

    @property
    def error_id(self) -> str | None:
        """The id under which the caller can ask about an error that was kept from it."""
        found = filter(None, map(_ERROR_ID.search, self.texts))
        return next((match[1] for match in found), None)

    @property
    def log(self) -> str:
        """What was logged, as text, with tracebacks."""
        formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        return "\n".join(formatter.format(record) for record in self.records)

    @property
    def cause(self) -> BaseException | None:
        """The exception that was logged first."""
        return next((record.exc_info[1] for record in self.records if record.exc_info), None)

    def check(self, *secrets: str) -> None:
        """Fail unless the call failed, its cause can be found in the log, and the caller was told nothing of it.

        The caller may be told what a `ToolError` says, or an error id and no more: no traceback, no folder, no object,
        none of `secrets`.
        """
        __tracebackhide__ = True
        if self.outcome.kind is None:
            raise AssertionError("the call did not fail")
        if self.outcome.kind == "refused":
            raise AssertionError(f"the call was refused before it could fail: {self.outcome.text}")
        found = revealed(self.texts, is_error=True, secrets=secrets)
        if found is not None:
            raise AssertionError(f"the caller was shown {found.what}:\n{found.text}")
        if self.error_id is not None and self.error_id not in self.log:
            raise AssertionError(f"the log says nothing of the error id {self.error_id}:\n{self.log}")


async def both_sides(server: Any, call: Callable[[Client], Awaitable[Any]], **options: Any) -> BothSides:
    """Make a call and see it from both sides: `await both_sides(server, lambda client: client.call_tool("broken"))`.

    `options` are those of `connect`.
    """
    async with connect(server, **options) as (client, wire):
        wire.messages.clear()
        with _logged() as records, _audited(server) as audit:
            outcome = await outcome_of(call(client))
    return BothSides(outcome=outcome, texts=list(texts_in(wire.received)), records=records, audit=audit)


class _Keeper(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.NOTSET)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        if record not in self._records:
            self._records.append(record)


@contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    records: list[logging.LogRecord] = []
    keeper = _Keeper(records)
    # A program may have taken the library's logger away from the root.
    loggers = [logging.getLogger(), logging.getLogger("toolwire")]
    for logger in loggers:
        logger.addHandler(keeper)
    try:
        yield records
    finally:
        for logger in loggers:
            logger.removeHandler(keeper)


@contextmanager
def _audited(server: Any) -> Iterator[list[Mapping[str, Any]]]:
    entries: list[Mapping[str, Any]] = []
    log = server.kernel.audit
    if log is None:
        yield entries
        return
    record = log.record

    def kept(entry: Mapping[str, Any]) -> None:
        entries.append(dict(entry))
        record(entry)

    log.record = kept
    try:
        yield entries
    finally:
        del log.record
