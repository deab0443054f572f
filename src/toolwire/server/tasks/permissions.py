"""Permissions for tasks: nobody may do more with a task than with the tool behind it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from toolwire.auth.principal import Principal
from toolwire.protocol import tasks as rules
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.tasks import Record
from toolwire.server.access import Access, Permission
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog
from toolwire.server.failures import Failures
from toolwire.server.lowlevel import LowLevel

log: logging.Logger = logging.getLogger("toolwire.tasks")


class OfTool(Protocol):
    """A task, as far as permissions need it."""

    @property
    def tool(self) -> str: ...


class JudgingParts(Protocol):
    """The parts of the kernel that decide who sees what."""

    access: Access
    catalog: Catalog
    failures: Failures
    lowlevel: LowLevel


class TaskPermissions:
    """The permissions of callers for tasks, as they are now."""

    def __init__(self, kernel: JudgingParts) -> None:
        self._kernel = kernel

    @property
    def restrict(self) -> bool:
        """Return whether some callers may have lost the right to a tool."""
        return bool(self._kernel.access.active or self._kernel.lowlevel.lists)

    async def of(self, call: Call, records: Sequence[OfTool]) -> list[Permission]:
        """Return what a caller may do with each task now: no more than with the tool behind it."""
        kernel = self._kernel
        if not self.restrict:
            return ["usable" for _ in records]
        catalog = kernel.catalog
        made_up = [each.tool for each in records if each.tool and catalog.tool(each.tool) is None]
        listed = await self._listed(call) if made_up and kernel.lowlevel.lists else None

        def permission(tool: str) -> Permission:
            if not tool:
                return "usable"  # The host made the task for its owner, outside of any call.
            if listed is not None and tool in made_up:
                return "usable" if tool in listed else "hidden"
            return kernel.access.of_tool(call.principal, call.outlet.is_local, tool)

        return [permission(each.tool) for each in records]

    async def _listed(self, call: Call) -> frozenset[str]:
        """Return the tools that the list handler names for a caller; none when it fails, so that nothing leaks."""
        try:
            tools = await self._kernel.failures.in_time(call, self._kernel.lowlevel.tools(call), "tools/list")
        except Exception:
            log.exception("the list handler failed, so the tasks of its tools are not shown")
            return frozenset()
        return frozenset(each.name for each in tools)

    async def check(self, call: Call, record: OfTool) -> None:
        """Raise what a caller gets who may not use a task: an unknown task, or the scopes that it needs."""
        (permission,) = await self.of(call, [record])
        if permission == "refused":
            access = self._kernel.access
            found = self._kernel.catalog.tool(record.tool, access.view_of(call.principal).sees)
            raise InsufficientScope(frozenset() if found is None else access.scopes(found), call.request_id)
        if permission == "hidden":
            raise rules.unknown_task()

    def may_tell(self, principal: Principal | None, is_local: bool, record: Record) -> bool:
        """Return whether the client that made a task may still hear of it."""
        tool = record.tool
        return not tool or self._kernel.access.of_tool(principal, is_local, tool) == "usable"
