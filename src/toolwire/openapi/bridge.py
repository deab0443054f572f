"""Three tools for a large API: list its operations, describe one, call one.

Their definitions cost the same however many operations there are. Each operation is a tool that is in no list, with its
own scopes, audiences and policies. Those hold for all three: an operation that a caller may not use is neither listed
nor described, and calling it is refused as calling its tool would be. Schemas are compiled by the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from toolwire.loops import in_thread
from toolwire.openapi.model import DescriptionError, ToolDefinition
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolError
from toolwire.redaction import Redaction
from toolwire.schemas.secret_members import secret_members
from toolwire.schemas.wording import nearest
from toolwire.search import IndexedTool, ToolIndex
from toolwire.server.call import Call
from toolwire.server.components import Tool
from toolwire.server.components.base import checked_name
from toolwire.server.components.tools import ToolBase, error_result
from toolwire.server.context import Context, call_of
from toolwire.server.tool_search import joined_annotations, object_of
from toolwire.util.single_flight import SingleFlight

LIST, DESCRIBE, CALL = "list_operations", "describe_operation", "call_operation"
#: How many operations one answer names.
PAGE: Final = 50
_SHORT: Final = 120
#: How many operations a search finds.
MAX_FOUND: Final = 20
#: How many operations are indexed without a thread.
_FEW: Final = 200
_LOOKS: Final = t.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

_Search = Annotated[
    str, Meta(description=f"Words for what the operation does. The best {MAX_FOUND} are listed, the best one first.")
]
_Tag = Annotated[str, Meta(description="Only operations with this tag.")]
_From = Annotated[int, Meta(ge=0, description="How many operations to leave out, for the next page.")]
_Name = Annotated[str, Meta(description=f"The name of an operation, as {LIST} has it.")]


class ListedOperation(TypedDict):
    """An operation in a list."""

    operation: str
    summary: str


class OperationPage(TypedDict):
    """A part of the operations."""

    operations: list[ListedOperation]
    total: int
    tags: list[str]


class DescribedOperation(TypedDict, total=False):
    """Everything that a model needs to call an operation."""

    operation: str
    description: str
    arguments: dict[str, Any]
    annotations: dict[str, Any]
    returns: dict[str, Any]


class _Entry(Struct, frozen=True):
    definition: ToolDefinition
    summary: str


class ApiBridge:
    """The three tools of one API."""

    def __init__(self, title: str, definitions: Iterable[ToolDefinition], tools: Iterable[ToolBase]) -> None:
        """Add the operations' tools.

        Raises `DescriptionError` where one has the name of a tool of the bridge.
        """
        self._entries = {each.name: _entry(each) for each in definitions}
        for name in (LIST, DESCRIBE, CALL):
            if (entry := self._entries.get(name)) is not None:
                place = f"{entry.definition.operation.method} {entry.definition.operation.path}"
                raise DescriptionError(
                    f"{place} cannot be called {name!r}, which is a tool of the bridge. Give it another name: "
                    f'--name "{place}=NAME" of toolwire openapi add, or operations={{"{place}": {{"name": ...}}}}'
                )
        self._title = title
        self._tools = list(tools)
        self._index: ToolIndex | None = None
        self._building: SingleFlight[ToolIndex] = SingleFlight()

    def leave_out(self, name: str) -> None:
        """Offer an operation no longer, because a tool of a person takes its place."""
        self._entries.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def tools(self) -> list[ToolBase]:
        """Make the tools."""
        return [self._list_tool(), self._describe_tool(), CallOperation(self)]

    def _list_tool(self) -> Tool:
        async def list_operations(ctx: Context, search: _Search = "", tag: _Tag = "", skip: _From = 0) -> OperationPage:
            host, call = call_of(ctx).host, call_of(ctx)
            matching = await self._search(call, search) if search.strip() else self._entries.values()
            found = [
                each
                for each in matching
                if (not tag or tag in each.definition.operation.tags) and host.sees_tool(call, each.definition.name)
            ]
            if search.strip():
                found = found[:MAX_FOUND]
            shown = found[skip : skip + PAGE]
            return {
                "operations": [{"operation": each.definition.name, "summary": each.summary} for each in shown],
                "total": len(found),
                "tags": sorted({name for each in found for name in each.definition.operation.tags})[:PAGE],
            }

        count = len(self._entries)
        described = f"List the operations of the API {self._title}: {count} in all, {PAGE} at a time."
        return Tool(list_operations, name=LIST, description=described, annotations=_LOOKS)

    def _describe_tool(self) -> Tool:
        async def describe_operation(operation: _Name, ctx: Context) -> DescribedOperation:
            call = call_of(ctx)
            entry = self._entries.get(operation)
            if entry is None or not call.host.sees_tool(call, operation):
                raise ToolError(self.unknown(call, operation))
            return _described(entry.definition)

        described = f"Describe an operation of the API {self._title}: what it does, and which arguments it takes."
        return Tool(describe_operation, name=DESCRIBE, description=described, annotations=_LOOKS)

    async def _search(self, call: Call, search: str) -> list[_Entry]:
        """Return the operations that fit words, the best ones first."""
        index = self._index or await self._building.run(lambda: self._build_index(call))
        hits = index.search(search, len(index))
        return [self._entries[hit.name] for hit in hits if hit.name in self._entries]

    async def _build_index(self, call: Call) -> ToolIndex:
        entries = list(self._entries.values())

        def build() -> ToolIndex:
            return ToolIndex(map(_searchable, entries))

        # In a thread, because a thousand operations take a tenth of a second.
        self._index = build() if len(entries) <= _FEW else await in_thread(build, "operation search")
        return self._index

    def unknown(self, call: Call, name: str) -> str:
        """Say that there is no such operation, and name one that is called like it."""
        seen = [each for each in self._entries if call.host.sees_tool(call, each)]
        close = nearest(name, seen)
        meant = f" Did you mean {close!r}?" if close is not None else ""
        return f"There is no operation {name[:100]!r}.{meant} {LIST} names all of them."

    @property
    def timeout(self) -> float | None:
        """The longest time of an operation; None where one has no limit of its own."""
        times = [each.timeout for each in self._tools]
        known = [each for each in times if each is not None]
        return max(known, default=None) if len(known) == len(times) else None

    @property
    def task(self) -> t.TaskSupport | None:
        """Return whether calls may become tasks: where an operation may."""
        return None if all(each.task is None for each in self._tools) else "optional"

    @property
    def detaches(self) -> bool:
        """Return whether a call becomes a task when its operation continues after the answer."""
        return any(each.detaches for each in self._tools)

    @property
    def annotations(self) -> t.ToolAnnotations:
        """Return hints that are true for every operation."""
        return joined_annotations([each.definition.annotations for each in self._entries.values()])

    @property
    def secret_names(self) -> frozenset[str]:
        """Return the arguments of operations, and the members of their values, that no record shows.

        A record is begun before it is known which operation is called, so that those of all operations are hidden.
        """
        definitions = [each.definition for each in self._entries.values()]
        inside = (secret_members(each.argument_schema()) for each in definitions)
        return frozenset().union(*(each.secret_names for each in definitions), *inside)

    @property
    def title(self) -> str:
        return self._title


class _Arguments(Struct):
    operation: str
    arguments: Raw | UnsetType = UNSET


_read = msgspec.json.Decoder(_Arguments).decode


class CallOperation(ToolBase):
    """The tool that calls an operation."""

    def __init__(self, bridge: ApiBridge) -> None:
        self._bridge = bridge
        self.name: str = checked_name(CALL, "tool")
        self.key: str = self.name
        self.annotations: t.ToolAnnotations | UnsetType = bridge.annotations
        self.task: t.TaskSupport | None = bridge.task
        self.detaches: bool = bridge.detaches
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "operation": {"type": "string", "description": f"The name of an operation, as {LIST} has it."},
                "arguments": {
                    "type": "object",
                    "description": f"The arguments of the operation, as {DESCRIBE} has them.",
                },
            },
            "required": ["operation"],
        }
        self.output_schema: dict[str, Any] | None = None
        self.wraps: bool = False
        self.headers: Mapping[str, tuple[str, ...]] = {}
        done = f"Call an operation of the API {bridge.title}, and return its answer."
        described = f"{done} Ask {DESCRIBE} for its arguments first."
        super().__init__(None, description=described, timeout=bridge.timeout)

    @cached_property
    def secret_arguments(self) -> Redaction | None:
        names = self._bridge.secret_names
        return Redaction(names) if names else None

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        try:
            sent = _read(b"{}" if isinstance(raw, UnsetType) else raw)
            arguments = Raw(b"{}") if isinstance(sent.arguments, UnsetType) else object_of(sent.arguments)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return error_result(f"The arguments are a name `operation` and an object `arguments`: {error}")
        result = None
        if sent.operation in self._bridge:
            result = await call.host.call_tool_for(call, sent.operation, arguments)
        return error_result(self._bridge.unknown(call, sent.operation)) if result is None else result


def _entry(definition: ToolDefinition) -> _Entry:
    # The texts of the definition are those that were locked.
    summary = " ".join((definition.title or definition.description).split())
    return _Entry(definition, summary[:_SHORT])


def _searchable(entry: _Entry) -> IndexedTool:
    definition = entry.definition
    return IndexedTool(
        name=definition.name,
        title=definition.title or "",
        description=definition.description,
        input_schema=definition.input_schema,
        keywords=(definition.operation.path,),
        server=" ".join(definition.operation.tags),
    )


def _described(definition: ToolDefinition) -> DescribedOperation:
    made: DescribedOperation = {
        "operation": definition.name,
        "description": definition.description,
        "arguments": definition.input_schema,
        "annotations": definition.annotations.to_dict(),
    }
    if definition.output_schema is not None:
        made["returns"] = definition.output_schema
    return made
