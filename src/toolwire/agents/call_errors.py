"""Errors of calls in words for a model: what happened, and whether to try again."""

from __future__ import annotations

import asyncio
import logging

from toolwire.agents.catalogue import Entry
from toolwire.client.errors import BudgetExceeded, Denied, ToolChanged
from toolwire.client.tasks import TaskCancelled
from toolwire.protocol.errors import (
    MISSING_CLIENT_CAPABILITY,
    InvalidResponse,
    NotSupported,
    OutcomeUnknown,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
    Unauthorized,
    Unreachable,
    UrlRequired,
    find_data_member,
)
from toolwire.redaction import Redaction

log: logging.Logger = logging.getLogger("toolwire.agents")

_LONGEST = 2_000
CANCELLED = "The call was cancelled by the application. It may have taken effect."
NOT_BEGUN = "The call was cancelled by the application before it was made."
_NEEDS = {"elicitation": "input from the user", "sampling": "a model", "roots": "folders of the user"}


def explain(error: BaseException, entry: Entry, redaction: Redaction) -> str:
    """Return what a model reads about a call that failed. Never a traceback."""
    return redaction.text(_explain(error, entry))[:_LONGEST]


def _explain(error: BaseException, entry: Entry) -> str:
    match error:
        case asyncio.CancelledError() | TaskCancelled():
            return CANCELLED
        case Denied():
            return f"{error}. Do not make this call again without a new request of the user."
        case BudgetExceeded():
            return f"{error}. Finish with what is known."
        case ToolChanged():
            # What has changed may be meant for the model: only the application learns of it.
            return f"The tool {entry.name!r} is unavailable: it is not what was approved. Do without it."
        case Timeout() | OutcomeUnknown():
            return f"{error}. {_again(entry)}"
        case UrlRequired():
            return f"{error.message}. The user has to open {error.url} first."
        case Unauthorized():
            return f"The server {entry.server!r} wants the user to sign in: {error.message}"
        case Unreachable():
            return f"The server {entry.server!r} cannot be reached, so the call was not made. Try again later."
        case NotSupported():
            return f"The tool needs what this application does not offer: {error}"
        case ProtocolError() if error.code == MISSING_CLIENT_CAPABILITY:
            needed = find_data_member(error, "requiredCapabilities", dict) or {}
            words = [str(_NEEDS.get(name, name)) for name in needed] or ["more"]
            return f"The tool needs {' and '.join(words)}, which this application does not offer."
        case ProtocolError():
            return error.message
        case InvalidResponse():
            return f"The server {entry.server!r} gave an answer that cannot be used: {error}. {_again(entry)}"
        case TransportError():
            return f"{error}. {_again(entry)}"
        case ToolwireError():
            return str(error)
    return report_failure(error, entry.name)


def report_failure(error: BaseException, what: str) -> str:
    """Log an error of the application, and return words for the model without its text."""
    log.error("the call of %r failed", what[:100], exc_info=error)
    return f"The call failed in the application ({type(error).__name__})."


def _again(entry: Entry) -> str:
    if entry.is_parallel:
        return "It may be tried again."
    return "It may have taken effect: find that out before you try again."
