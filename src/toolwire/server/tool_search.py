"""`ToolSearch`: `search_tools` and `call_tool` in place of a long list of tools.

A call of `call_tool` becomes a call of the inner tool before anything looks at it. So scopes, policies, approval,
pins, audit, tasks, progress and masks are those of the inner tool. A search finds what the caller's list would have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from toolwire.loops import in_thread
from toolwire.protocol import types as t
from toolwire.protocol.apps import audiences, declares_apps, ui_of, view_address
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.surrogates import encode_readable
from toolwire.redaction import Redaction
from toolwire.schemas import compile
from toolwire.schemas.wording import nearest
from toolwire.search import IndexedTool, SearchSettings, ToolHit, ToolIndex
from toolwire.search.list_cost import ListCost
from toolwire.search.settings import CALL, SEARCH, TOOL_NAMES, WHOLE_LIST_CLIENTS
from toolwire.search.tool_index import ALWAYS_LOAD, ToolIndexes
from toolwire.server.access import Access, View
from toolwire.server.call import Call, LoopParts
from toolwire.server.call_target import CallTarget, target_of
from toolwire.server.catalog import WITHOUT_OVERLAYS, Catalog, Found, Owner
from toolwire.server.components.restriction import Audience
from toolwire.server.components.search_hints import MAX_RESULT_CHARS, RESULT_CHARS
from toolwire.server.components.tools import ToolBase, error_result
from toolwire.server.results import Results
from toolwire.server.upstream_views import UpstreamViews, servers_on, view_of
from toolwire.tokens import count_tokens
from toolwire.util.single_flight import SingleFlight
from toolwire.wire.outlet import Outlet

if TYPE_CHECKING:
    from toolwire.server.policy.enforcement import Enforcer

#: How many tools a search returns at most.
MAX_RESULTS: Final = 20
#: How many estimated tokens the definitions that a search returns may have. More tools are named without theirs.
MAX_FOUND_TOKENS: Final = 8_000
#: How many tools of an upstream stay in the list because the upstream says so.
MAX_UPSTREAM_PINS: Final = 10
#: How many servers a text names.
MAX_SERVERS: Final = 30
#: How large a schema, in bytes, an error may carry.
MAX_SCHEMA: Final = 32 * 1024
#: How many views are kept for one version of the catalogue.
MAX_SHELVES: Final = 64
#: How many tools are indexed without a thread.
_FEW: Final = 200
_SHORT: Final = 200
_UNKNOWN: Final = "There is no tool"


class Viewing(Protocol):
    """The methods of a server, as far as a search needs them."""

    def view(self, call: Call) -> View | None:
        """Return what the caller sees; None for everything."""


class SearchParts(Protocol):
    """The parts of the kernel that a search works with."""

    server: Owner
    catalog: Catalog
    access: Access
    upstream_views: UpstreamViews
    results: Results
    enforcer: Enforcer | None

    @property
    def methods(self) -> Viewing: ...

    async def handle(self, request: Incoming, outlet: Outlet, work: LoopParts) -> Any:
        """Answer a request. `work` is what the server has on the running loop."""

    async def load_caller_lists(self, call: Call) -> None:
        """Load the lists of servers elsewhere that differ between callers."""


class SearchView:
    """The list of a caller who finds the other tools by a search."""

    def __init__(self, inner: View | None, shelf: Shelf) -> None:
        self._inner = inner
        self._shelf = shelf
        self.admitted: Hashable = ("search", shelf.key)

    def enters(self, audience: Audience) -> bool:
        return self._inner is not None and self._inner.enters(audience)

    def sees(self, found: Found[Any]) -> bool:
        return (self._inner or WITHOUT_OVERLAYS).sees(found)

    def lists(self, found: Found[Any]) -> bool:
        return (found.component, found.way) in self._shelf.pinned

    def added(self, kind: str) -> Mapping[str, Found[Any]]:
        return self._shelf.tools if kind == "tools" else {}


class Shelf:
    """The tools of the callers with one view: those in the list, and those that a search finds."""

    def __init__(self, key: Hashable, pinned: Mapping[str, Found[Any]], deferred: Mapping[str, Found[Any]]) -> None:
        self.key = key
        self.pinned: frozenset[Any] = frozenset((found.component, found.way) for found in pinned.values())
        self.deferred: Mapping[str, Found[Any]] = deferred
        self.tools: dict[str, Found[Any]] = {}
        """`search_tools` and `call_tool`."""
        self.is_long: bool = False
        """Whether the whole list has more tokens than `threshold_tokens`."""


class ToolSearch:
    """The search for the tools of one server."""

    def __init__(self, parts: SearchParts) -> None:
        self._parts = parts
        self._version: tuple[int, SearchSettings | None] = (-1, None)
        self._shelves: dict[Hashable, Shelf] = {}
        self._texts: WeakKeyDictionary[ToolBase, IndexedTool] = WeakKeyDictionary()
        self._indexes = ToolIndexes()
        self._building: SingleFlight[ToolIndex] = SingleFlight()

    # --- lists ---

    def view_for(self, call: Call) -> SearchView | None:
        """Return the view of a caller whose list is short; None for a caller who gets the whole list."""
        settings: SearchSettings = call.settings.search
        client = call.request.client
        whole = (*WHOLE_LIST_CLIENTS, *settings.deferring_clients)
        if not isinstance(client, UnsetType) and client.name.casefold() in map(str.casefold, whole):
            return None
        shelf = self.shelf_for(call)
        if not shelf.deferred or (settings.mode == "auto" and not shelf.is_long):
            return None
        return SearchView(self._parts.methods.view(call), shelf)

    def shelf_for(self, call: Call) -> Shelf:
        """Return the tools of a caller."""
        settings: SearchSettings = call.settings.search
        version = (self._parts.catalog.version, settings)
        if self._version != version:
            self._version, self._shelves = version, {}
        view = self._parts.methods.view(call)
        # The host shows a view where the model calls its tool. It looks for both in the list.
        shows_views = declares_apps(call.request.capabilities)
        key = (None if view is None else view.admitted, shows_views)
        shelf = self._shelves.get(key)
        if shelf is None:
            if len(self._shelves) >= MAX_SHELVES:
                self._shelves.clear()
            shelf = self._shelves[key] = self._make_shelf(key, settings, view, shows_views=shows_views)
        return shelf

    def measure(self, settings: SearchSettings) -> ListCost:
        """Return what the list of a caller who sees everything costs, with and without a search."""
        shelf = self._make_shelf(None, settings, None, shows_views=False)
        tools = self._parts.catalog.listed_ways("tools")
        sizes = {name: self._text_of(name, found).tokens for name, found in tools.items()}
        kept = sum(size for name, size in sizes.items() if name not in shelf.deferred)
        added = sum(self._text_of(*each).tokens for each in shelf.tools.items()) if shelf.deferred else 0
        return ListCost(len(sizes), sum(sizes.values()), kept + added)

    def _make_shelf(self, key: Hashable, settings: SearchSettings, view: View | None, *, shows_views: bool) -> Shelf:
        pinned: dict[str, Found[Any]] = {}
        deferred: dict[str, Found[Any]] = {}
        upstream_pins: Counter[tuple[str, ...]] = Counter()
        for name, found in self._parts.catalog.listed_ways("tools", view).items():
            meta = _meta_of(found)
            servers = servers_on(found.way)
            is_pinned = (
                "model" not in audiences(meta)
                or (shows_views and (view_address(meta) is not None or _is_called_by_views(meta)))
                or any(fnmatchcase(name, pattern) for pattern in settings.pinned)
            )
            if not is_pinned and meta.get(ALWAYS_LOAD) is True:
                upstream_pins[servers] += 1
                is_pinned = not servers or upstream_pins[servers] <= MAX_UPSTREAM_PINS
            (pinned if is_pinned else deferred)[name] = found
        shelf = Shelf(key, pinned, deferred)
        # As soon as the threshold is passed, the rest is not counted.
        sizes = accumulate(self._text_of(*each).tokens for each in chain(pinned.items(), deferred.items()))
        shelf.is_long = any(size > settings.threshold_tokens for size in sizes)
        owner = self._parts.server
        tools = (SearchTools(self, shelf), CallFoundTool(self, shelf))
        shelf.tools = {tool.name: Found(tool, owner) for tool in tools}
        return shelf

    def _text_of(self, name: str, found: Found[Any]) -> IndexedTool:
        component = found.component
        known = self._texts.get(component)
        if known is None or known.name != name:
            definition = replace_members(component.wire(MODERN), name=name)
            known = self._texts[component] = IndexedTool.from_definition(definition, " ".join(servers_on(found.way)))
        return known

    # --- searching ---

    async def search(self, call: Call, query: str, limit: int) -> list[tuple[ToolHit, Found[Any]]]:
        """Return the tools that a caller may call and that fit a query best."""
        tools = self._usable(call)
        index = await self._index_of(tools)
        return [(hit, tools[hit.name]) for hit in index.search(query, limit)]

    def servers_of(self, call: Call) -> Counter[str]:
        """Return the servers and groups of the tools that a search finds, each with the number of its tools."""
        tools = self._usable(call)
        return Counter(filter(None, (self._text_of(name, found).server for name, found in tools.items())))

    def nearest(self, call: Call, name: str) -> str | None:
        """Return a tool of the caller that has nearly this name."""
        return nearest(name, list(self._usable(call)))

    def _usable(self, call: Call) -> Mapping[str, Found[Any]]:
        deferred, access = self.shelf_for(call).deferred, self._parts.access
        if not access.active:
            return deferred
        return {
            name: found for name, found in deferred.items() if access.permits_call(call.request, call.outlet, found)
        }

    async def _index_of(self, tools: Mapping[str, Found[Any]]) -> ToolIndex:
        visible = frozenset((name, found.component) for name, found in tools.items())
        index = self._indexes.find(visible)
        if index is not None:
            return index

        def make() -> ToolIndex:
            return ToolIndex(self._text_of(name, found) for name, found in tools.items())

        async def build() -> ToolIndex:
            # In a thread, because two thousand tools take a quarter of a second.
            made = make() if len(tools) <= _FEW else await in_thread(make, "tool search")
            return self._indexes.get(visible, None, lambda: made)

        return await self._building.run(build, visible)

    # --- calling ---

    async def find_inner(self, call: Call) -> Incoming | None:
        """Return the request that a call of `call_tool` stands for; None for any other request.

        A call of the search itself, and one of `call_tool` that names no tool, gets its target.
        """
        params: t.CallToolRequestParams = call.request.params
        if params.name not in TOOL_NAMES or self._parts.server.kernel.has_list_handler:
            return None
        if not isinstance(call.request.raw, UnsetType) and view_of(call.request.raw) is not None:
            return None  # A view gets the tools of its own upstream alone, which may have this name there.
        await self._parts.load_caller_lists(call)
        found = self.shelf_for(call).tools[params.name]
        if isinstance(found.component, CallFoundTool):
            asked = _read_call(params.arguments)
            if isinstance(asked, _Asked) and not self._is_for_views_alone(call, asked.name):
                return _inner_request(call.request, asked)
        call.target = CallTarget("tools/call", params.name, params, found)
        return None

    def _find(self, call: Call, name: str) -> Found[ToolBase] | None:
        view = self._parts.methods.view(call)
        return self._parts.catalog.tool(name, None if view is None else view.sees)

    def _is_for_views_alone(self, call: Call, name: str) -> bool:
        """Return whether a tool is not for models. Hosts cannot tell that from a call of `call_tool`."""
        view = self._parts.methods.view(call)
        # A view names the tools of its server as that server does.
        unlisted = self._parts.upstream_views.find_unlisted(name, None if view is None else view.sees)
        found = self._find(call, name) or unlisted
        return found is not None and "model" not in audiences(_meta_of(found))

    async def call_inner(self, inner: Incoming, outer: Call) -> Any:
        """Answer a call of an inner tool. An error for bad arguments carries the schema of the tool."""
        try:
            result = await self._parts.handle(inner, outer.outlet, outer.work)
        except ProtocolError as error:
            told = self._about_failure(inner, outer) if error.code == INVALID_PARAMS else None
            if told is None:
                raise
            is_unknown = told.startswith(_UNKNOWN)
            failed = error_result(told if is_unknown else f"{error.message}. {told}")
            return self._parts.results.finish(inner.revision, failed)
        if isinstance(result, Raw):
            return self._with_schema_in_raw(inner, outer, result)
        if isinstance(result, t.CallToolResult) and result.is_error is True:
            told = self._about_failure(inner, outer)
            if told is not None:
                result.content = [*result.content, t.TextContent(told)]
        return result

    def _with_schema_in_raw(self, inner: Incoming, outer: Call, result: Raw) -> Raw:
        if b'"isError":' not in bytes(result):
            return result
        members = msgspec.json.decode(result, type=dict[str, Raw])
        told = self._about_failure(inner, outer) if bytes(members.get("isError", b"")).strip() == b"true" else None
        if told is None:
            return result
        content = msgspec.json.decode(members.get("content", b"[]"), type=list[Raw])
        added = Raw(encode_readable(t.TextContent(told)))
        return Raw(encode_readable({**members, "content": [*content, added]}))

    def _about_failure(self, inner: Incoming, outer: Call) -> str | None:
        """Explain a failed call, masked by the policies of the inner tool."""
        call = Call(outer.host, inner, outer.outlet, outer.work)
        text, enforcer, target = self._explain_failure(call), self._parts.enforcer, target_of(call)
        redaction = None if enforcer is None or target is None else enforcer.redaction(call, target)
        return text if text is None or redaction is None else redaction.text(text)

    def _explain_failure(self, call: Call) -> str | None:
        """Return the name that was meant, or the schema of the arguments; None where the arguments fit."""
        inner = call.request
        params: t.CallToolRequestParams = inner.params
        found = self._find(call, params.name)
        if found is None:
            return self.unknown(call, params.name)
        definition = found.component.wire(MODERN)
        arguments = {} if params.arguments is UNSET else msgspec.json.decode(params.arguments)
        try:
            if compile(definition.input_schema, what="the tool").fits(arguments):
                return None
        except (ServerError, ValueError):
            return None
        shown = encode_readable(definition.input_schema)
        if len(shown) > MAX_SCHEMA:
            return f'The arguments do not fit. Search for "select:{params.name}" to see the schema.'
        return f"The arguments do not fit the input schema of {params.name}: {shown.decode()}"

    def unknown(self, call: Call, name: str) -> str:
        """Say that there is no such tool, and name one that is called like it."""
        close = self.nearest(call, name)
        meant = f" Did you mean {close!r}?" if close is not None else ""
        return f"{_UNKNOWN} {name[:_SHORT]!r}.{meant} Find tools with {SEARCH}."


class _Asked(Struct):
    """The arguments of `call_tool`."""

    name: str
    arguments: Raw | UnsetType = UNSET


class _Query(Struct):
    """The arguments of `search_tools`."""

    query: str = ""
    limit: int | None = None


_decode_asked: Final = msgspec.json.Decoder(_Asked).decode
_decode_query: Final = msgspec.json.Decoder(_Query).decode
_BAD_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _read_call(raw: Raw | UnsetType) -> _Asked | str:
    """Return the arguments of `call_tool`, or what is wrong with them."""
    try:
        asked = _decode_asked(b"{}" if isinstance(raw, UnsetType) else raw)
        if not isinstance(asked.arguments, UnsetType):
            asked.arguments = object_of(asked.arguments)
    except _BAD_JSON as error:
        return f"The arguments are a text `name` and an object `arguments`: {error}"
    return asked


def object_of(arguments: Raw) -> Raw:
    """Return arguments as an object. Some models write them as a text that has the object."""
    text = bytes(arguments).strip()
    if text.startswith(b'"'):
        text = msgspec.json.decode(text, type=str).encode() or b"{}"
    if text == b"null":
        return Raw(b"{}")
    msgspec.json.decode(text, type=dict[str, Raw])
    return Raw(text)


def _inner_request(request: Incoming, asked: _Asked) -> Incoming:
    """Return the request that calls a tool by its own name."""
    params = structs.replace(request.params, name=asked.name, arguments=asked.arguments)
    raw = request.raw
    if not isinstance(raw, UnsetType):
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        members["name"] = Raw(encode_readable(asked.name))
        members.pop("arguments", None)
        if not isinstance(asked.arguments, UnsetType):
            members["arguments"] = asked.arguments
        raw = Raw(encode_readable(members))
    return structs.replace(request, params=params, raw=raw)


def _is_called_by_views(meta: Mapping[str, Any]) -> bool:
    """Return whether a tool says that views call it, which hosts look up in the list."""
    return "visibility" in ui_of(meta) and "app" in audiences(meta)


def _meta_of(found: Found[Any]) -> Mapping[str, Any]:
    meta = found.component.wire(MODERN).meta
    return meta if isinstance(meta, dict) else {}


class _SearchTool(ToolBase):
    """The base of the two tools."""

    is_unlisted = True
    output_schema: dict[str, Any] | None = None
    wraps = False
    headers: Mapping[str, tuple[str, ...]] = {}
    task: t.TaskSupport | None = None

    def __init__(self, search: ToolSearch, name: str, description: str, meta: Mapping[str, Any]) -> None:
        self.search = search
        self.name: str = name
        self.key: str = name
        super().__init__(None, description=description, meta={ALWAYS_LOAD: True, **meta})


class SearchTools(_SearchTool):
    """The tool that finds tools."""

    def __init__(self, search: ToolSearch, shelf: Shelf) -> None:
        self.annotations: t.ToolAnnotations | UnsetType = t.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        )
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Words for what the tool does, or select:NAME,NAME for tools by name.",
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": "How many tools."},
            },
            "required": ["query"],
        }
        servers = sorted({each for found in shelf.deferred.values() for each in servers_on(found.way)[:1]})
        named = ", ".join(servers[:MAX_SERVERS]) + (", …" if len(servers) > MAX_SERVERS else "")
        about = f" Servers: {named}." if servers else ""
        text = (
            f"Find tools that are not in the list, by words. Returns their definitions. Call them with {CALL}. "
            f"Search before you say that something cannot be done.{about}"
        )
        super().__init__(search, SEARCH, text, {})

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        try:
            asked = _decode_query(b"{}" if isinstance(raw, UnsetType) else raw)
        except _BAD_JSON as error:
            return error_result(f"The arguments are a text `query` and a number `limit`: {error}")
        settings: SearchSettings = call.settings.search
        limit = min(max(asked.limit or settings.results, 1), MAX_RESULTS)
        hits = await self.search.search(call, asked.query, limit)
        text = _found_text(hits) if hits else self._nothing_text(call, asked.query)
        return t.CallToolResult(content=[t.TextContent(text)])

    def _nothing_text(self, call: Call, query: str) -> str:
        servers = self.search.servers_of(call)
        named = ", ".join(f"{name} ({count})" for name, count in sorted(servers.items())[:MAX_SERVERS])
        about = f" There are tools of: {named}." if servers else ""
        return f"No tool matches {query[:_SHORT]!r}. Try other words.{about}"


class CallFoundTool(_SearchTool):
    """The tool that calls the tools that were found."""

    def __init__(self, search: ToolSearch, shelf: Shelf) -> None:
        deferred = [found.component for found in shelf.deferred.values()]
        self.annotations: t.ToolAnnotations | UnsetType = joined_annotations(
            [each.annotations or t.ToolAnnotations() for each in deferred]
        )
        # The client asks for a task of this tool, and the inner tool decides.
        self.task: t.TaskSupport | None = "optional" if any(each.task is not None for each in deferred) else None
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The name of the tool, as {SEARCH} has it."},
                "arguments": {"type": "object", "description": "Its arguments, as its inputSchema has them."},
            },
            "required": ["name"],
        }
        chars = [_meta_of(each).get(RESULT_CHARS) for each in shelf.deferred.values()]
        longest = max((each for each in chars if type(each) is int), default=0)
        meta = {RESULT_CHARS: min(longest, MAX_RESULT_CHARS)} if longest > 0 else {}
        text = f"Call a tool that {SEARCH} found, and return its answer."
        super().__init__(search, CALL, text, meta)

    @cached_property
    def secret_arguments(self) -> Redaction | None:
        # A record names it only where no inner tool says which of its arguments are secret.
        return Redaction(["arguments"])

    async def call(self, call: Call, raw: Raw | UnsetType) -> t.CallToolResult:
        asked = _read_call(raw)
        return error_result(asked if isinstance(asked, str) else self.search.unknown(call, asked.name))


def joined_annotations(hints: Collection[t.ToolAnnotations]) -> t.ToolAnnotations:
    """Return the hints that hold for a call of any tool with these hints."""
    return t.ToolAnnotations(
        read_only_hint=all(each.read_only_hint is True for each in hints),
        destructive_hint=any(each.destructive_hint is not False for each in hints),
        idempotent_hint=all(each.idempotent_hint is True for each in hints),
        open_world_hint=any(each.open_world_hint is not False for each in hints),
    )


def _found_text(hits: Iterable[tuple[ToolHit, Found[Any]]]) -> str:
    """Return what a search found, as JSON. Definitions are left out where they would be too long together."""
    tools: list[dict[str, Any]] = []
    spent = left_out = 0
    for hit, found in hits:
        definition = found.component.wire(MODERN).to_dict()
        entry = {"name": hit.name, "server": hit.server} if hit.server else {"name": hit.name}
        members = ("title", "description", "inputSchema", "annotations")
        whole = {**entry, **{each: definition[each] for each in members if each in definition}}
        size = count_tokens(encode_readable(whole).decode())
        if tools and spent + size > MAX_FOUND_TOKENS:
            left_out += 1
            whole = {**entry, "description": str(definition.get("description", ""))[:_SHORT]}
        else:
            spent += size
        tools.append({**whole, "score": hit.score, "matched": hit.words})
    result: dict[str, Any] = {"tools": tools}
    if left_out:
        result["note"] = f"{left_out} definitions are left out. Search for select:NAME to see one."
    return encode_readable(result).decode()
