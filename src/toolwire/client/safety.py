"""What stands between a model and the tools it wants to call: pins, budgets, a person who may say no, and a record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from toolwire.audit import AuditLog
from toolwire.client.approval import Approve, Arguments, ToolCall, approved
from toolwire.client.audit_records import CallRecord
from toolwire.client.budget import Budget
from toolwire.client.errors import Denied
from toolwire.client.pins import Pins
from toolwire.client.target import Target
from toolwire.protocol import types as t

#: Makes the call: with these arguments, within this time.
Make: TypeAlias = Callable[[Arguments | None, float | None], Awaitable[Any]]
#: Finds the definition of a tool.
Find: TypeAlias = Callable[[str], Awaitable[t.Tool | None]]


class Safety:
    """Everything that one client was told to be careful about."""

    def __init__(
        self,
        target: Target,
        approve: Approve | None,
        budget: Budget | None,
        pins: Pins | None,
        audit: AuditLog | None,
    ) -> None:
        self._label = target.label
        self._address = target.address
        self._approve = approve
        self._budget = budget
        self._pins = pins
        self._audit = audit

    def listed(self, tools: list[t.Tool]) -> None:
        if self._pins is not None:
            self._pins.listed(self._address, tools)

    def check(self, name: str, tool: t.Tool | None) -> None:
        """`ToolChanged` for a tool that is not what was agreed to."""
        if self._pins is not None:
            self._pins.check(self._address, name, tool)

    async def call(self, name: str, arguments: Arguments | None, timeout: float | None, find: Find, make: Make) -> Any:
        """Make a call if nothing speaks against it, and record it either way."""
        if self._audit is None:
            return await self._call(name, arguments, timeout, find, make, None)
        if self._audit.required and not self._audit.ready:
            raise Denied("Calls cannot be recorded at the moment, so none are made")
        record = CallRecord(self._audit, self._label, name, arguments)
        try:
            result = await self._call(name, arguments, timeout, find, make, record)
        except BaseException as error:
            record.failed(error)
            raise
        record.ended(result)
        return result

    async def _call(
        self,
        name: str,
        arguments: Arguments | None,
        timeout: float | None,
        find: Find,
        make: Make,
        record: CallRecord | None,
    ) -> Any:
        tool = await find(name) if self._pins is not None or self._approve is not None else None
        self.check(name, tool)
        # Before anybody is asked: nobody has to think about a call that there is no budget for.
        held = None if self._budget is None else self._budget.hold(name)
        try:
            if self._approve is not None:
                arguments = await approved(self._approve, ToolCall(name, arguments or {}, tool), arguments)
                if record is not None:
                    record.arguments = arguments
                if self._pins is not None:
                    # Who approves takes time, in which the tool may have become another.
                    self.check(name, await find(name))
        except BaseException:
            if held is not None:
                held.give_back()
            raise
        if self._budget is None or held is None:
            return await make(arguments, timeout)
        held.begin()
        try:
            return await make(arguments, self._budget.timeout(timeout))
        finally:
            held.end()

    async def close(self) -> None:
        if self._audit is not None:
            # In a thread, because where the log goes may not answer.
            await asyncio.to_thread(self._audit.close)
