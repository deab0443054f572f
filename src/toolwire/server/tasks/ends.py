"""The ends of tasks: how an outcome becomes part of the record, and how long writing it down is tried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from msgspec import UNSET, Raw

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.protocol.jsonrpc import bound_error
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.protocol.tasks import Record
from toolwire.server.limits import Limits
from toolwire.server.tasks.task_records import NoRoom, id_in
from toolwire.stores import LeaseLost
from toolwire.util.backoff import Backoff
from toolwire.wire.shares import Caller, StorageBudget

log: logging.Logger = logging.getLogger("toolwire.tasks")

#: The longest pause before the end of a task is written again, when the store does not take it.
LONGEST_PAUSE: Final = 10.0

Ending = Callable[[Record], bool]
Restore = Callable[[], Awaitable[bool]]
# Changes the record under a key, and announces the change. It takes `holder=` and `last=`, as `Records.change` does.
Change = Callable[..., Awaitable[Record | None]]


EndDamaged = Callable[[str, float], Awaitable[Record | None]]


class Ends:
    """Brings tasks to their end."""

    def __init__(
        self,
        write_result: Callable[[str, Any], Any],
        find_limits: Callable[[], Limits],
        change: Change,
        end_damaged: EndDamaged,
    ) -> None:
        """`write_result` writes a result for a revision, as `Results.finish` does."""
        self._write_result = write_result
        self._find_limits = find_limits
        self._change = change
        self._end_damaged = end_damaged
        limits = find_limits()
        self._kept = StorageBudget(limits.task_results, limits.share)

    @property
    def limits(self) -> Limits:
        """The limits of a task that ends now."""
        return self._find_limits()

    def ending(self, revision: str, outcome: Any, caller: Caller = None) -> Ending:
        """Return the change of a record when its call comes to this outcome; the result is kept for a caller."""
        try:
            if isinstance(outcome, ProtocolError):
                error = bound_error(outcome, self.limits.result)
                return lambda record: rules.fail(record, error)
            if isinstance(outcome, t.InputRequiredResult):
                log.error("a task ended with questions in place of its result")
                return _internal_error
            result = Raw(encode_readable(self._write_result(revision, outcome)))
        except (TypeError, ValueError, RecursionError):
            log.exception("the outcome of a task could not be written as JSON")
            return _internal_error
        if len(result) > self.limits.result:
            failure = ProtocolError(INTERNAL_ERROR, f"The result is over the limit of {self.limits.result} bytes")
            return lambda record: rules.fail(record, failure)
        admitted = False

        def complete(record: Record) -> bool:
            nonlocal admitted
            # Counted once, however often it has to be written.
            admitted = admitted or record.over or bool(self._kept.admit(caller, len(result), record.ttl_ms / 1000))
            if not admitted:
                raise NoRoom
            return rules.complete(record, result, _failure_in(outcome), revision)

        return complete

    async def write_end(
        self,
        key: str,
        ending: Ending,
        kept: float,
        *,
        holder: str = "",
        last: bytes | None = None,
        restore: Restore | None = None,
    ) -> Record | None:
        """Write down the end of a task, also where the store is full or out of reach for long.

        It is tried for `kept` seconds, which is how long the store keeps the record of a task that runs. A process that
        does not hold the task any more has nothing to write. `restore` finds out whether it does, where the store says
        that it does not, and writes the record again that the store has lost.
        """
        loop = asyncio.get_running_loop()
        until, pauses = loop.time() + kept, None
        while True:
            try:
                return await self._change_or_restore(key, ending, holder, last, restore)
            except LeaseLost:
                log.warning("the end of the task %s is not kept: this process does not hold it any more", id_in(key))
                return None
            except rules.Unreadable:
                with suppress(ProtocolError):  # The log has the reason.
                    return await self._end_damaged(key, self.limits.task_ttl)
            except NoRoom:
                if ending is not _no_room:
                    log.warning("the result of the task %s is dropped: there is no room for it", id_in(key))
                    ending = _no_room  # Shorter than what it replaces, so that the store takes it.
                    continue
            except ProtocolError:
                pass  # The log has the reason.
            except (TypeError, ValueError, RecursionError):
                if ending is _internal_error:
                    raise
                log.exception("the end of the task %s could not be written as JSON", id_in(key))
                ending = _internal_error
                continue
            if loop.time() >= until:
                log.error("the end of a task could not be kept")
                return None
            last = None
            pauses = pauses or Backoff(longest=LONGEST_PAUSE)
            await asyncio.sleep(pauses.after(None))

    async def _change_or_restore(
        self, key: str, ending: Ending, holder: str, last: bytes | None, restore: Restore | None
    ) -> Record | None:
        """Change a record. Where the store has lost it, restore it first."""
        try:
            record = await self._change(key, ending, holder=holder, last=last)
        except LeaseLost:
            if restore is None or not await restore():
                raise
        else:
            if record is not None or restore is None or not await restore():
                return record
        return await self._change(key, ending, holder=holder)

    def in_words_of(self, revision: str, record: Record) -> Record:
        """Return the record with its result as the revision has it, which may not be that of the call."""
        if record.result is UNSET or record.revision == revision:
            return record
        result = t.decode(t.CallToolResult, record.result)
        if isinstance(result.meta, dict):
            result.meta.pop(t.SERVER_INFO_KEY, None)
            result.meta = result.meta or UNSET
        if revision != MODERN and result.structured_content is not UNSET:
            # Imported here because a worker writes ends, and never reads them.
            from toolwire.server.components.tools import as_object

            result.structured_content = as_object(result.structured_content, False, revision)
        record.result = Raw(encode_readable(self._write_result(revision, result)))
        return record


def _failure_in(outcome: Any) -> str | None:
    """Return the text of a tool's error; None for any other result."""
    if getattr(outcome, "is_error", False) is not True:
        return None
    texts = (block.text for block in outcome.content if isinstance(block, t.TextContent))
    return next(texts, "The tool failed")


def _internal_error(record: Record) -> bool:
    return rules.fail(record, ProtocolError(INTERNAL_ERROR, "Internal error"))


def _no_room(record: Record) -> bool:
    text = "The result could not be kept: the store of the server is full"
    return rules.fail(record, ProtocolError(INTERNAL_ERROR, text))
