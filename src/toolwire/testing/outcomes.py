"""The outcome of a call, for its caller and in the log of the server."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from toolwire.client import Client
from toolwire.content import ToolResult
from toolwire.protocol.errors import ProtocolError, ToolFailed, ToolwireError
from toolwire.protocol.rounds import read_pause, repeat_pause
from toolwire.testing.connecting import connect

_ERROR_ID: Final = re.compile(r"\(error id ([0-9a-f]+)\)")
_TRACE: Final = re.compile(r"Traceback \(most recent call last\)|File \"[^\"\n]+\", line \d+")
_OBJECT: Final = re.compile(r"<[\w.]+ object at 0x[0-9a-fA-F]+>")


class Outcome(NamedTuple):
    """The end of a call, as its caller sees it.

    `kind` is None for a call that succeeded.
    """

    kind: str | None = None
    """`refused`, `isError`, `ProtocolError -32602`, or the name of another exception."""
    text: str = ""
    retry_after: float | None = None
    """The seconds after which a refused caller may try again."""


async def outcome_of(call: Awaitable[Any]) -> Outcome:
    """Wait for a call and return its outcome.

    Exceptions that are not errors of the library are raised.
    """
    try:
        result = await call
    except ProtocolError as error:
        return _failed(f"ProtocolError {error.code}", error.message, repeat_pause(error))
    except ToolFailed as error:
        result = error.result
    except ToolwireError as error:
        return Outcome(type(error).__name__, str(error))
    if isinstance(result, ToolResult) and result.is_error:
        return _failed("isError", result.text, read_pause(result.meta.get("toolwire/retryAfterMs")))
    return Outcome()


def _failed(kind: str, text: str, retry_after: float | None) -> Outcome:
    return Outcome(kind if retry_after is None else "refused", text, retry_after)


# --- both sides of a failure ------------------------------------------------------------------------------------------


class BothSides(Struct, frozen=True, kw_only=True):
    """A call, seen by its caller and by the operator of the server."""

    outcome: Outcome
    """The end of the call, as the caller sees it."""
    texts: list[str]
    """Every text that the caller was sent, names of members included."""
    records: list[logging.LogRecord]
    """The log records of the library and of the handler during the call."""
    audit: list[Mapping[str, Any]]
    """The entries of the audit log during the call, if the server has one."""

    @property
    def error_id(self) -> str | None:
        """Return the id that the caller was given in place of a hidden error."""
        found = filter(None, map(_ERROR_ID.search, self.texts))
        return next((match[1] for match in found), None)

    @property
    def log(self) -> str:
        """Return the log records as text, with tracebacks."""
        formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        return "\n".join(formatter.format(record) for record in self.records)

    @property
    def cause(self) -> BaseException | None:
        """Return the exception that was logged first."""
        return next((record.exc_info[1] for record in self.records if record.exc_info), None)

    def check(self, *secrets: str) -> None:
        """Fail unless the call failed, and only the log has the cause.

        The caller may get the text of a `ToolError` or an error id, and nothing else: no traceback, no folder, no
        object, none of `secrets`.
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
    """Make a call and record both sides: `await both_sides(server, lambda client: client.call_tool("broken"))`.

    `options` are those of `connect`.
    """
    async with connect(server, **options) as (client, wire):
        wire.messages.clear()
        with _logged() as records, _audited(server) as audit:
            outcome = await outcome_of(call(client))
    return BothSides(outcome=outcome, texts=list(texts_in(wire.received)), records=records, audit=audit)


class _RecordKeeper(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.NOTSET)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        if record not in self._records:
            self._records.append(record)


@contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    records: list[logging.LogRecord] = []
    keeper = _RecordKeeper(records)
    # The library's logger may not propagate to the root.
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


# --- what an answer reveals -------------------------------------------------------------------------------------------


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, names of members included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_in(member)


class Revealed(NamedTuple):
    """A part of the server that an answer shows, and the text that shows it."""

    what: str
    text: str


def revealed(texts: list[str], *, is_error: bool, secrets: Iterable[str] = (), sent: str = "") -> Revealed | None:
    """Return the first thing that an answer reveals, if any.

    `sent` is text that the caller knows anyway. A good answer may name folders and objects, because the caller may ask
    for them. An error may not.
    """
    signs = {f"a secret ({secret[:3]}…)": re.compile(re.escape(secret)) for secret in secrets}
    signs["a traceback"] = _TRACE
    if is_error:
        signs["an object of the server"] = _OBJECT
        own = (folder for folder in _own_folders() if folder not in sent)
        signs |= {f"a folder of this machine ({folder})": re.compile(re.escape(folder)) for folder in own}
    found = (Revealed(what, text) for what, sign in signs.items() for text in texts if sign.search(text))
    return next(found, None)


def _own_folders() -> set[str]:
    """Return the folders of this program.

    The root is left out, because every path contains it.
    """
    folders = {Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent, Path.home()}
    return {str(folder) for folder in folders if len(folder.parts) > 2}
