"""Outcomes of requests, in the words that records, metrics and spans share."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple, TypeAlias

from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError
from toolwire.server.call import Call

#: `error`: the client got the text of the error. `failed`: the client got only an error id.
Word: TypeAlias = Literal["ok", "error", "failed", "refused", "asked", "cancelled", "task"]


class Outcome(NamedTuple):
    word: Word
    code: int | None = None
    """The code of the JSON-RPC error; None if there was no such error."""


_OK, _ERROR, _FAILED = Outcome("ok"), Outcome("error"), Outcome("failed")
_REFUSED, _ASKED, _CANCELLED = Outcome("refused"), Outcome("asked"), Outcome("cancelled")
# The call goes on as a task, and its end is not known yet.
_TASK = Outcome("task")


def of_result(call: Call, result: Any) -> Outcome:
    if call.refusal is not None:
        return _REFUSED
    if call.error_id is not None:
        return _FAILED
    if isinstance(result, t.CallToolResult):
        return _ERROR if result.is_error is True else _OK
    # The answer of an upstream that made a task may be handed on as it came.
    if isinstance(result, t.CreateTaskResult | t.TaskCreatedResult) or call.task_elsewhere is not None:
        return _TASK
    return _ASKED if isinstance(result, t.InputRequiredResult) else _OK


def of_error(call: Call, error: BaseException) -> Outcome:
    if isinstance(error, asyncio.CancelledError):
        return _CANCELLED
    if not isinstance(error, ProtocolError):
        return _FAILED
    word: Word = "refused" if call.refusal is not None else "failed" if call.error_id is not None else "error"
    return Outcome(word, error.code)
