"""How a call ended, as its caller sees it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple

from toolwire.content import ToolResult
from toolwire.protocol.errors import ProtocolError, ToolFailed, ToolwireError


class Outcome(NamedTuple):
    """`kind` is None for a call that succeeded."""

    kind: str | None = None
    """`refused`, `isError`, `ProtocolError -32602`, or the name of another exception."""
    text: str = ""
    retry_after: float | None = None
    """Seconds after which a caller that was refused is told to try again."""


async def outcome_of(call: Awaitable[Any]) -> Outcome:
    """Wait for a call. Only errors of the library are an outcome; anything else is raised."""
    try:
        result = await call
    except ProtocolError as error:
        data = error.data if isinstance(error.data, dict) else {}
        return _failed(f"ProtocolError {error.code}", error.message, data.get("retryAfterMs"))
    except ToolFailed as error:
        result = error.result
    except ToolwireError as error:
        return Outcome(type(error).__name__, str(error))
    if isinstance(result, ToolResult) and result.is_error:
        return _failed("isError", result.text, result.meta.get("toolwire/retryAfterMs"))
    return Outcome()


def _failed(kind: str, text: str, milliseconds: Any) -> Outcome:
    if not isinstance(milliseconds, int | float):
        return Outcome(kind, text)
    return Outcome("refused", text, milliseconds / 1000)
