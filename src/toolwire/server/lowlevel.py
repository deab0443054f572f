"""One list handler and one call handler instead of components, for servers that make up their tools as they go."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from toolwire.protocol import types as t
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import ServerError
from toolwire.protocol.methods import methods
from toolwire.protocol.open_codec import replace_members, restored
from toolwire.protocol.shaping import shape
from toolwire.server.call import Call
from toolwire.server.catalog import Found, Owner
from toolwire.server.components import Tool, ToolBase
from toolwire.server.components.tools import output_schema_for
from toolwire.server.context import Context, context_of, is_context
from toolwire.server.replay_state import principal_key
from toolwire.util.expiring import Expiring

_LIST: Final = "tools/list"
_NO_CURSOR: Final = t.PaginatedRequestParams()
#: Compiled tools that are remembered.
MAX_TOOLS: Final = 1024


class LowLevel:
    """The two handlers of a server.

    The list handler runs at every call, because it may list other tools for another caller, or later. Only tools that
    it lists now can be called. A tool is compiled again only when its definition has changed.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._list: Callable[..., Any] | None = None
        self._call: Callable[..., Any] | None = None
        # Keyed by caller and name. The tool that was called longest ago is first.
        self._compiled: Expiring[tuple[str, str], tuple[t.Tool, Found[ToolBase]]] = Expiring(MAX_TOOLS)

    @property
    def active(self) -> bool:
        return self._call is not None

    @property
    def lists(self) -> bool:
        return self._list is not None

    @property
    def looks_at_caller(self) -> bool:
        """Return whether the list handler takes the context, and so may list other tools for another caller."""
        return self._list is not None and bool(inspect.signature(self._list).parameters)

    def on_list(self, handler: Callable[..., Any]) -> None:
        self._list = handler

    def on_call(self, handler: Callable[..., Any]) -> None:
        parameters = {name: each.annotation for name, each in inspect.signature(handler).parameters.items()}
        context = next((name for name, annotation in parameters.items() if is_context(annotation)), None)
        if len(parameters) not in (2, 3) or (context is not None and len(parameters) != 3):
            raise ServerError("The call handler takes (name, arguments) or (name, arguments, ctx)")
        if context is not None and list(parameters)[2] != context:
            first = ", ".join(each for each in parameters if each != context)
            raise ServerError(f"The call handler gets its context last: write ({first}, {context}: Context)")
        self._call = handler

    async def tools(self, call: Call) -> list[t.Tool]:
        """Return the tools that the list handler lists for a caller now."""
        assert self._list is not None
        if self._call is None:
            raise ServerError("A list handler needs a call handler: @server.on_call_tool")
        listed = self._list(_list_context(call)) if self.looks_at_caller else self._list()
        if inspect.isawaitable(listed):
            listed = await listed
        return [each if isinstance(each, t.Tool) else restored(convert_to(each, t.Tool), each) for each in listed]

    async def listed(self, call: Call) -> list[Any]:
        """Return the tools as the client of a request gets to see them."""
        return [_for_revision(each, call.revision) for each in await self.tools(call)]

    async def find(self, name: str, call: Call) -> Found[ToolBase] | None:
        """Return the tool of a name, if the list handler lists it for this caller now."""
        if self._list is None:
            return None
        definition = next((each for each in reversed(await self.tools(call)) if each.name == name), None)
        if definition is None:
            return None
        key = (principal_key(call.principal), name)
        compiled = self._compiled.use(key)
        if compiled is None or compiled[0] != definition:
            compiled = (definition, self._tool(definition))
            self._compiled.put(key, compiled)
        return compiled[1]

    def _tool(self, definition: t.Tool) -> Found[ToolBase]:
        handler, name = self._call, definition.name
        assert handler is not None
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
            self._owner,
        )


def _list_context(call: Call) -> Context:
    """Return the context for a list handler. It shows `tools/list`, even if a tool call needs the list."""
    request = call.request
    if request.method == _LIST:
        return context_of(call)
    row = methods(request.revision)[_LIST]
    listing = Call(
        call.host, msgspec.structs.replace(request, method=_LIST, row=row, params=_NO_CURSOR), call.outlet, call.work
    )
    listing.state = call.state
    return context_of(listing)


def _for_revision(definition: t.Tool, revision: str) -> Any:
    output = definition.output_schema
    if isinstance(output, dict):
        definition = replace_members(definition, output_schema=output_schema_for(output, revision))
    return shape(definition, revision)
