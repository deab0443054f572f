"""Answers to requests that failed. They tell the client only what it may know and what it can do."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    CALL_FORBIDDEN,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    TOO_MANY_CALLS,
    URL_ELICITATION_REQUIRED,
    CallRefused,
    NotSupported,
    ProtocolError,
    ResourceNotFound,
    ToolError,
    ToolwireError,
    UrlRequired,
    counted,
)
from toolwire.protocol.revisions import supports
from toolwire.server.call import Call
from toolwire.server.components import Component, error_result, failed_result
from toolwire.server.context import check_url
from toolwire.server.handler_deadline import Deadline
from toolwire.server.input_requests import Replay, Unwind, sendable
from toolwire.server.replay_state import Questions, uncancel
from toolwire.stores import StoreFailed, StoreFull
from toolwire.wire.answer import is_abandoned, is_task_cancelled
from toolwire.wire.thread_workers import Busy

log: logging.Logger = logging.getLogger("toolwire.server")

#: Requests that change nothing: where the store fails, they can be made again.
_READS: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})

T = TypeVar("T")


class Failures:
    """Makes the answers to failed requests. With `debug` they include the cause of an internal error."""

    def __init__(self, questions: Questions, seconds: float) -> None:
        self._questions = questions
        self._seconds = seconds

    async def in_time(self, call: Call, work: Coroutine[Any, Any, T], what: str, *, guarded: bool = False) -> T:
        """Wait for a handler that is no component, such as a completion, within the time of any other handler.

        `guarded`: the policies of the request hold for it.
        """
        seconds = self._seconds
        if guarded and call.guard is not None:
            seconds, work = call.guard(seconds, work)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            call.cancelled = True
            raise ToolError(_not_in_time(what, seconds)) from None

    async def answer(self, call: Call, failure: Exception, what: str) -> Any:
        """Return the answer to a request that failed."""
        if isinstance(failure, ResourceNotFound) and call.method == "tools/call":
            return error_result(failure.message)
        if isinstance(failure, ProtocolError):
            try:
                raise as_revision_has_it(call, failure)
            finally:
                del failure  # Its traceback has this frame: a cycle that keeps the call in memory.
        if isinstance(failure, UrlRequired):
            return await self._url_required(call, failure)
        return self._told(call, failure, what)

    def _told(self, call: Call, error: Exception, what: str) -> t.CallToolResult:
        """Turn an exception into the error result of a tool, or raise a protocol error for any other request."""
        modern = call.request.modern
        is_tool = call.method == "tools/call"
        if isinstance(error, NotSupported) and modern and error.required:
            # CAP-1
            raise ProtocolError(
                MISSING_CLIENT_CAPABILITY, str(error), {"requiredCapabilities": error.required}
            ) from None
        if isinstance(error, CallRefused):
            return self.refused(call, error)
        if isinstance(error, ToolError | NotSupported | Busy):
            if is_tool:
                return failed_result(error) if isinstance(error, ToolError) else error_result(str(error))
            raise ProtocolError(INTERNAL_ERROR, str(error) or f"{what} failed") from None
        if isinstance(error, StoreFailed | StoreFull) and call.method in _READS:
            log.error("%s could not be read, because the store failed: %s", what, error)
            text = f"{what[:1].upper()}{what[1:]} is not available now; try again later"
            raise ProtocolError(INTERNAL_ERROR, text, {"retryAfterMs": 1000}) from None
        # D12, R19: the cause stays in the log. The client gets an id under which the log has it.
        identifier = call.error_id = os.urandom(6).hex()
        log.error("error %s in %s%s", identifier, what, _advice_for(error), exc_info=error)
        text = f"Internal error in {what} (error id {identifier})"
        if call.settings.debug:
            text = f"{text}: {type(error).__name__}: {error}"
        if is_tool:
            return error_result(text)
        raise ProtocolError(INTERNAL_ERROR, text) from None

    def refused(self, call: Call, refusal: CallRefused) -> t.CallToolResult:
        """Answer a refused call. The text tells the model when to try again, a number tells programs."""
        call.refusal = refusal.reason
        later = refusal.retry_after
        hint = {} if later is None else {"retryAfterMs": math.ceil(later * 1000)}
        if call.method == "tools/call":
            result = error_result(str(refusal))
            result.meta = {f"toolwire/{key}": value for key, value in hint.items()} or UNSET
            return result
        code = CALL_FORBIDDEN if later is None else TOO_MANY_CALLS
        raise ProtocolError(code, str(refusal), hint or UNSET) from None

    async def _url_required(self, call: Call, error: UrlRequired) -> Any:
        """Ask the user to open a page: by an error on 2025-11-25, a question on 2026-07-28, else by a text."""
        check_url(error.url)
        if call.client_can("elicitation.url"):
            if not call.request.modern:
                entry = {
                    "mode": "url",
                    "elicitationId": error.id or os.urandom(16).hex(),
                    "url": error.url,
                    "message": error.message,
                }
                raise ProtocolError(URL_ELICITATION_REQUIRED, error.message, {"elicitations": [entry]})
            asking = (call.asking or await call.open_asking()) if call.request.row.rounds else None
            params = sendable(t.ElicitRequestParams(mode="url", message=error.message, url=error.url))
            if type(asking) is Replay and asking.rounds.ask("elicitation/create", params) is None:
                return await self._questions.input_required(call)
        elif call.request.modern:
            required: dict[str, Any] = {"elicitation": {"url": {}}}
            raise ProtocolError(MISSING_CLIENT_CAPABILITY, error.message, {"requiredCapabilities": required})
        text = f"{error.message}\nOpen {error.url} and try again."
        if call.method == "tools/call":
            return error_result(text)
        raise ProtocolError(INTERNAL_ERROR, text)


def as_revision_has_it(call: Call, error: ProtocolError) -> ProtocolError:
    """RES-1, 1.10.8: use the error code of the revision: 2026-07-28 has a new code for a missing resource."""
    if error.code != RESOURCE_NOT_FOUND and not isinstance(error, ResourceNotFound):
        return error
    code = RESOURCE_NOT_FOUND if supports(call.revision, "resource_not_found_code") else INVALID_PARAMS
    data = error.data
    if data is UNSET and call.method == "resources/read":
        data = {"uri": call.params.uri[:8192]}
    return ResourceNotFound(error.message, data, code=code)


def of_handler(call: Call, component: Component, deadline: Deadline | None, error: BaseException) -> Exception | None:
    """Return the failure of a handler; None for an error that its caller raises again.

    `deadline` is None for a handler without one. An error that was raised here would refer to this frame, and the
    frame to the error: a cycle that keeps the call in memory until a garbage collection.
    """
    if isinstance(error, Exception):
        telling = _telling(error)
        if deadline is None or not deadline.expired or isinstance(telling, ToolwireError):
            return telling
        log.warning("%s failed to clean up after its timeout", component.key, exc_info=error)
        return _out_of_time(call, component, deadline)
    if is_abandoned(error):
        return None
    if not isinstance(error, asyncio.CancelledError | Unwind):
        # SystemExit and similar exceptions fail this call and never end the server.
        return _caused(RuntimeError(f"the handler raised {type(error).__name__}"), error)
    if deadline is not None and deadline.expired:
        return _out_of_time(call, component, deadline)
    call.cancelled = True
    if is_task_cancelled():
        return None
    # Something that the handler waited for was cancelled, not the call. So the client still waits for an answer.
    return _caused(RuntimeError("the handler was cancelled from within"), error)


def _out_of_time(call: Call, component: Component, deadline: Deadline) -> ToolError:
    call.cancelled = True
    uncancel()
    return ToolError(_not_in_time(component.key, deadline.seconds))


def _not_in_time(what: str, seconds: float) -> str:
    return f"{what} did not finish within {counted(seconds, 'second')}"


def _telling(error: Exception) -> Exception:
    """Return the first error in a group that has something to tell the client."""
    if isinstance(error, ExceptionGroup):
        leaves = [_telling(each) for each in error.exceptions]
        return next((each for each in leaves if isinstance(each, ToolwireError)), error)
    return error


def _caused(failure: Exception, cause: BaseException) -> Exception:
    failure.__cause__ = cause
    return failure


def _advice_for(error: Exception) -> str:
    """Return the remedy of a missing `await`, whose own text names only a coroutine."""
    if isinstance(error, AttributeError | TypeError) and "'coroutine' object" in str(error):
        return ": an await is missing; write `await` before the call whose result is used"
    return ""
