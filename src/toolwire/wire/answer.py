"""The answer to a request whose handler raised. All transports use these rules.

A transport handles a request in three steps. It awaits `handler.handle(request, outlet)`, encodes the result with
`encode_answer`, and passes whatever was raised on the way to `encode_failure`. A coroutine that did all of this would
cost every call one more await, so the steps stand in each transport, and the rules stand here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError, outcome_unknown
from toolwire.protocol.jsonrpc import RequestId, encode_error, shorten_error
from toolwire.protocol.lifecycle import Incoming

log: logging.Logger = logging.getLogger("toolwire.wire")


#: The error for a request that outlives the drain. Its handler is cancelled at an unknown point.
_STOPPED: Final = "The server stopped before it answered; the request may have run"


def encode_stopped(identifier: RequestId) -> bytes:
    """Encode the answer to a request whose server stops before the handler is done."""
    error = outcome_unknown(_STOPPED)
    return encode_error(identifier, error.code, error.message, error.data)


def encode_failure(
    request: Incoming, raised: BaseException, limit: int, *, may_be_cancelled: bool = True
) -> bytes | None:
    """Encode the answer to a request whose handling raised; return None when the request itself was cancelled.

    An error over `limit` bytes is shortened.

    A transport that has not cancelled the request sets `may_be_cancelled` to False. Then a handler that cancels its own
    task is answered like any other handler that fails.
    """
    if isinstance(raised, ProtocolError):
        data = encode_error(request.id, raised.code, raised.message, raised.data)
        if len(data) > limit:
            short = shorten_error(raised, len(data), limit)
            data = encode_error(request.id, short.code, short.message)
        return data
    if isinstance(raised, asyncio.CancelledError):
        if may_be_cancelled and is_task_cancelled():
            return None
        # Something that the handler waited for was cancelled, not the request: the client still waits for an answer.
    elif is_abandoned(raised):
        try:
            raise raised
        finally:
            del raised
    else:
        # Any exception of a handler, even SystemExit, ends only its request. The client does not get the cause.
        log.error("the answer to %s could not be formed", request.method, exc_info=raised)
    return encode_error(request.id, INTERNAL_ERROR, "Internal error")


def is_task_cancelled() -> bool:
    """Return whether somebody asked for the end of the running task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_abandoned(error: BaseException) -> bool:
    """Return whether a coroutine was closed after its loop had ended, so that nothing in it has failed."""
    return isinstance(error, GeneratorExit) and asyncio._get_running_loop() is None
