"""One list handler and one call handler instead of components, for servers that make up their tools as they go."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.errors import ServerError
from toolwire.protocol.shaping import shape
from toolwire.server.catalog import Found
from toolwire.server.components import Tool
from toolwire.server.components.tools import output_schema_for
from toolwire.server.context import Context
from toolwire.server.questions import principal_key

#: Callers whose tools are remembered.
MAX_CALLERS: Final = 256


class LowLevel:
    """The two handlers of a server, and the tools that the list handler named."""

    def __init__(self) -> None:
        self._list: Callable[..., Any] | None = None
        self._call: Callable[..., Any] | None = None
        # By caller: a handler may list other tools for somebody else, and those are not this one's to call.
        self._known: dict[str, dict[str, Found[Tool]]] = {}

    @property
    def active(self) -> bool:
        return self._call is not None

    @property
    def lists(self) -> bool:
        return self._list is not None

    def on_list(self, handler: Callable[..., Any]) -> None:
        self._list = handler

    def on_call(self, handler: Callable[..., Any]) -> None:
        if len(inspect.signature(handler).parameters) not in (2, 3):
            raise ServerError("The call handler takes (name, arguments) or (name, arguments, ctx)")
        self._call = handler

    async def tools(self, ctx: Context) -> list[t.Tool]:
        """What the list handler says now; arguments are checked against it."""
        assert self._list is not None
        takes_context = bool(inspect.signature(self._list).parameters)
        listed = self._list(ctx) if takes_context else self._list()
        if inspect.isawaitable(listed):
            listed = await listed
        definitions = [each if isinstance(each, t.Tool) else msgspec.convert(each, t.Tool) for each in listed]
        caller = principal_key(ctx.principal)
        known = self._known.pop(caller, {})
        while len(self._known) >= MAX_CALLERS:
            del self._known[next(iter(self._known))]
        self._known[caller] = {each.name: self._tool(each, ctx.server, known) for each in definitions}
        return definitions

    async def listed(self, ctx: Context) -> list[Any]:
        """The tools as the client of a request gets to see them."""
        return [_for_revision(each, ctx.revision) for each in await self.tools(ctx)]

    async def find(self, name: str, ctx: Context) -> Found[Tool] | None:
        caller = principal_key(ctx.principal)
        if name not in self._known.get(caller, {}) and self._list is not None:
            await self.tools(ctx)
        return self._known.get(caller, {}).get(name)

    def _tool(self, definition: t.Tool, owner: Any, known: dict[str, Found[Tool]]) -> Found[Tool]:
        before = known.get(definition.name)
        if before is not None and before.component.input_schema == definition.input_schema:
            return before
        handler, name = self._call, definition.name
        if handler is None:
            raise ServerError("A list handler needs a call handler: @server.on_call_tool")
        takes_context = len(inspect.signature(handler).parameters) == 3

        async def call(arguments: dict[str, Any], ctx: Context) -> Any:
            result = handler(name, arguments, ctx) if takes_context else handler(name, arguments)
            return await result if inspect.isawaitable(result) else result

        output = definition.output_schema
        execution = definition.execution
        return Found(
            Tool(
                call,
                name=name,
                input_schema=definition.input_schema,
                output_schema=output if isinstance(output, dict) else None,
                task=None if execution is UNSET or execution.task_support is UNSET else execution.task_support,
            ),
            owner,
        )


def _for_revision(definition: t.Tool, revision: str) -> Any:
    output = definition.output_schema
    if isinstance(output, dict):
        definition = msgspec.structs.replace(definition, output_schema=output_schema_for(output, revision))
    return shape(definition, revision)
