"""The line of a client's audit log about one call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolwire.audit.log import AuditLog, now
from toolwire.client.errors import BudgetExceeded, Denied, ToolChanged
from toolwire.content import ToolResult
from toolwire.protocol.errors import ToolFailed

_MAX_NAME: Final = 200


class CallRecord:
    """Begun when the call is wanted, written when it has ended or was not made."""

    def __init__(self, log: AuditLog, server: str, name: str, arguments: Mapping[str, Any] | None) -> None:
        self.arguments = arguments
        """What was sent, in the end."""
        self._log = log
        self._entry: dict[str, Any] = {"time": now(), "server": server, "name": log.redaction.text(name[:_MAX_NAME])}
        self._started = time.perf_counter()

    def ended(self, result: Any) -> None:
        failed = isinstance(result, ToolResult) and result.is_error
        self._write({"outcome": "error" if failed else "ok"})

    def failed(self, error: BaseException) -> None:
        match error:
            case Denied() | BudgetExceeded() | ToolChanged():
                outcome = "denied"
            case ToolFailed():
                outcome = "error"
            case asyncio.CancelledError():
                outcome = "cancelled"
            case _:
                outcome = "failed"
        # Only its kind: what it says may quote the arguments.
        self._write({"outcome": outcome, "error": type(error).__name__})

    def _write(self, outcome: dict[str, Any]) -> None:
        self._entry["arguments"] = self._shown()
        self._entry["ms"] = round((time.perf_counter() - self._started) * 1000, 3)
        self._log.record(self._entry | outcome)

    def _shown(self) -> Any:
        # Imported here because it is about types that plain arguments do not have.
        from toolwire.adapters import encode_hook

        try:
            encoded = msgspec.json.encode(self.arguments or {}, enc_hook=encode_hook)
        except Exception:
            return None  # What cannot be sent either.
        return self._log.shown(lambda: msgspec.json.decode(encoded), len(encoded))
