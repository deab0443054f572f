"""The checks between a model and the tools that it wants to call: pins, budgets, approval, and an audit record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from toolwire.audit.log import AuditLog, now
from toolwire.client.approval import Approve, Arguments, ToolCall, Via, approved
from toolwire.client.budget import Budget
from toolwire.client.errors import BudgetExceeded, Denied, ToolChanged
from toolwire.client.pins import Pins
from toolwire.client.target import Target
from toolwire.client.tools import RawResult
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolFailed
from toolwire.wire.deadlines import CallClock

R = TypeVar("R")

_MAX_NAME: Final = 200
#: A function that makes the call, with these arguments and this time limit.
Make: TypeAlias = Callable[[Arguments | None, CallClock], Awaitable[Any]]
#: A function that returns the definition of a tool.
Find: TypeAlias = Callable[[str], Awaitable[t.Tool | None]]
#: A function that raises `Denied` for a call that must not be made.
Check: TypeAlias = Callable[[], Awaitable[None]]


class Safety:
    """The checks of one client."""

    def __init__(
        self,
        target: Target,
        approve: Approve | None,
        budget: Budget | None,
        pins: Pins | None,
        audit: AuditLog | None,
    ) -> None:
        self._target = target
        self._approve = approve
        self._budget = budget
        self._pins = pins
        self._audit = audit

    def listed(self, tools: list[t.Tool]) -> None:
        if self._pins is not None:
            for address, own in self._target.pinned_lists(tools).items():
                self._pins.listed(address, own)

    def check(self, name: str, tool: t.Tool | None) -> None:
        """Raise `ToolChanged` for a tool that differs from its pin."""
        if self._pins is not None:
            self._pins.check(*self._target.pinned(name, tool))

    async def call(
        self,
        name: str,
        arguments: Arguments | None,
        clock: CallClock,
        find: Find,
        make: Make,
        *,
        via: Via = None,
        check: Check | None = None,
    ) -> Any:
        """Make a call if every check passes, and record it either way.

        `via` says who makes it, if it is not the program. `check` is a check of the caller, which comes first.
        """
        if self._audit is None:
            return await self._call(name, arguments, clock, find, make, None, via, check)
        self._check_recording(self._audit)
        record = CallRecord(self._audit, self._target.label, name, arguments, via)
        try:
            result = await self._call(name, arguments, clock, find, make, record, via, check)
        except BaseException as error:
            record.failed(error)
            raise
        record.ended(result)
        return result

    async def read(self, server: str, uri: str, make: Callable[[], Awaitable[R]]) -> R:
        """Make a read that a view asks for, and record it either way. `server` is the server of the view."""
        if self._audit is None:
            return await make()
        self._check_recording(self._audit)
        record = CallRecord(self._audit, server, uri, {"uri": uri}, "app", method="resources/read")
        try:
            result = await make()
        except BaseException as error:
            record.failed(error)
            raise
        record.ended(result)
        return result

    def _check_recording(self, log: AuditLog) -> None:
        if log.required and not log.ready:
            raise Denied("Calls cannot be recorded at the moment, so none are made")

    async def _call(
        self,
        name: str,
        arguments: Arguments | None,
        clock: CallClock,
        find: Find,
        make: Make,
        record: CallRecord | None,
        via: Via,
        check: Check | None,
    ) -> Any:
        if check is not None:
            await check()
        tool = await find(name) if self._pins is not None or self._approve is not None else None
        self.check(name, tool)
        # First, so that nobody is asked to approve a call that the budget forbids.
        held = None if self._budget is None else self._budget.hold(name)
        try:
            if self._approve is not None:
                with clock.leave_out():
                    arguments = await approved(self._approve, ToolCall(name, arguments or {}, tool, via), arguments)
                if record is not None:
                    record.arguments = arguments
                if self._pins is not None:
                    # The tool may have changed while somebody decided.
                    self.check(name, await find(name))
        except BaseException:
            if held is not None:
                held.give_back()
            raise
        if self._budget is None or held is None:
            return await make(arguments, clock)
        held.begin()
        clock.cap(self._budget.timeout(None))
        try:
            return await make(arguments, clock)
        finally:
            held.end()

    async def close(self) -> None:
        if self._audit is not None:
            # In a thread, because the target of the log may not answer.
            await asyncio.to_thread(self._audit.close)


class CallRecord:
    """The audit record of one call: begun when the call is wanted, written when it has ended or was not made.

    `method` is for what is no call of a tool.
    """

    def __init__(
        self,
        log: AuditLog,
        server: str,
        name: str,
        arguments: Mapping[str, Any] | None,
        via: Via = None,
        *,
        method: str | None = None,
    ) -> None:
        self.arguments = arguments
        """The arguments that the client sent, after approval."""
        self._log = log
        self._entry: dict[str, Any] = {"time": now(), "server": server, "name": log.redaction.text(name[:_MAX_NAME])}
        if method is not None:
            self._entry["method"] = method
        if via is not None:
            self._entry["via"] = via
        self._started = time.perf_counter()

    def ended(self, result: Any) -> None:
        failed = isinstance(result, ToolResult | RawResult) and result.is_error
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
        # Only the type of the error, because its text may quote the arguments.
        self._write({"outcome": outcome, "error": type(error).__name__})

    def _write(self, outcome: dict[str, Any]) -> None:
        self._entry["arguments"] = self._shown()
        self._entry["ms"] = round((time.perf_counter() - self._started) * 1000, 3)
        self._log.record(self._entry | outcome)

    def _shown(self) -> Any:
        # Imported here because plain arguments do not need it.
        from toolwire.adapters import encode_hook

        try:
            encoded = msgspec.json.encode(self.arguments or {}, enc_hook=encode_hook)
        except Exception:
            return None  # What cannot be sent either.
        return self._log.shown(lambda: msgspec.json.decode(encoded), len(encoded))
