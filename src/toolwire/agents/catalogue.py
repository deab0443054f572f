"""`Catalogue`: the tools of all servers in one order, for every interface.

One object answers the list, the search and the call, so that a tool that is found can be called. Tools that come later
stand at the end: what a model was given before stays the same, byte for byte.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from toolwire.agents.conversion import (
    ConvertedTool,
    Loss,
    Names,
    ToolKey,
    convert_tool,
    is_for_models,
    output_schema,
)
from toolwire.agents.tool_names import ToolNames
from toolwire.agents.vendors import NAMESPACE_SIZE, PLAIN_NAMES, TARGETS, NameRule, Target
from toolwire.client.config import owner_of
from toolwire.protocol import types as t
from toolwire.search import IndexedTool, ToolHit, ToolIndex
from toolwire.tokens import definition_tokens

log: logging.Logger = logging.getLogger("toolwire.agents")

#: Which tools are left out of a model's context until they are needed.
Defer: TypeAlias = Literal["auto"] | bool
#: Who searches for deferred tools: the vendor where it can, or the toolset.
SearchMode: TypeAlias = Literal["hosted", "own"]

SEARCH_TOOL: Final = "search_tools"
READ_TOOL: Final = "read_result"
#: Below so many tools, or below this share of the context, nothing is deferred.
FEWEST_DEFERRED: Final = 10
CONTEXT_SHARE: Final = 0.1
#: The member of `_meta` with which a server asks hosts to keep a tool loaded, and for how many tools it is honoured.
ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
MOST_ALWAYS_LOADED: Final = 10

#: Anthropic's search, and the programs of both vendors that may call tools.
_ANTHROPIC_SEARCH: Final = {"name": "tool_search_tool_bm25", "type": "tool_search_tool_bm25_20251119"}
_OPENAI_SEARCH: Final = {"type": "tool_search"}
_OPENAI_CODE: Final = {"type": "programmatic_tool_calling"}
_ANTHROPIC_CODE: Final = {"name": "code_execution", "type": "code_execution_20260521"}

_SEARCH_TEXT: Final = (
    "Search for tools by what they do. Found tools can be called in the next step. Use a few words for one step of the "
    "task, or `select:NAME,NAME` for tools whose names you know."
)
_SEARCH_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
    },
    "required": ["query"],
}
_READ_TEXT: Final = "Read on in a result of which only the beginning and the end were shown."
_READ_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "The address that stood in the result: toolwire://results/…"},
        "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "The first character to read."},
    },
    "required": ["uri"],
}
#: The tools of the toolset itself, which no server answers.
OWN_TOOLS: Final = {
    SEARCH_TOOL: t.Tool(SEARCH_TOOL, _SEARCH_SCHEMA, description=_SEARCH_TEXT),
    READ_TOOL: t.Tool(READ_TOOL, _READ_SCHEMA, description=_READ_TEXT),
}


class Entry(Struct):
    """One tool of a server."""

    server: str
    name: str
    """The name at its server."""
    call_name: str
    """The name that the client of the toolset calls it by."""
    tool: t.Tool
    source: Any
    """The server of the toolset that has it."""
    generation: int
    is_deferred: bool
    tokens: int

    @property
    def key(self) -> ToolKey:
        return (self.server, self.name)

    @property
    def is_parallel(self) -> bool:
        """Return whether calls may run at the same time, as the server says."""
        hints = self.tool.annotations
        return hints is not UNSET and (hints.read_only_hint is True or hints.idempotent_hint is True)

    @property
    def is_harmless(self) -> bool:
        """Return whether programs may call it: it only reads, in a closed world."""
        hints = self.tool.annotations
        return hints is not UNSET and hints.read_only_hint is True and hints.open_world_hint is False


class Listed(Struct, frozen=True):
    """A tool as a server lists it now."""

    server: str
    name: str
    call_name: str
    tool: t.Tool


class SavedTools(Struct):
    """The order of the tools and what is loaded, as `state()` returns it."""

    version: int = 1
    tools: list[tuple[str, str, int, bool]] = []
    """Server, name, generation, and whether the tool is deferred."""
    loaded: list[ToolKey] = []


class Catalogue:
    """All tools that a model may call."""

    def __init__(
        self,
        *,
        has_prefixes: bool,
        strict: bool | ToolNames,
        defer: Defer,
        pinned: Collection[str],
        servers: Callable[[], Collection[str]],
        context: int,
        search: SearchMode,
        allow: Callable[[str, t.Tool], bool],
        code: bool,
        cache: bool,
        reads_results: bool,
        rank: Callable[[str, Sequence[Entry]], Iterable[Entry]] | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        self._has_prefixes = has_prefixes
        self._strict = strict
        self._defer = defer
        self._pinned = frozenset(pinned)
        self._is_pinned = ToolNames(pinned, servers)
        self._servers = servers
        self._context = context
        self._search = search
        self._allow = allow
        self._code = code
        self._cache = cache
        self._reads_results = reads_results
        self._rank = rank
        self._names: dict[str, Names] = {}
        self._entries: dict[ToolKey, Entry] = {}
        self._by_name: dict[str, dict[str, Entry]] = {}
        self._converted: dict[str, dict[ToolKey, ConvertedTool]] = {}
        self._written: dict[str, list[dict[str, Any]]] = {}
        self._left_out: dict[int, list[Loss]] = {}
        self._index: tuple[ToolIndex, list[Entry]] | None = None
        self._generation = 0
        saved = SavedTools() if state is None else msgspec.convert(state, SavedTools)
        self._saved = {(server, name): (number, is_deferred) for server, name, number, is_deferred in saved.tools}
        self._generation = max((number for number, _ in self._saved.values()), default=-1) + 1
        # Tools that an earlier conversation had loaded, and those that this one found, with their place in the list.
        self._restored: dict[ToolKey, int] = dict.fromkeys(saved.loaded, 0)
        self._found: dict[ToolKey, int] = {}

    # --- what servers list ---

    def update(self, source: Any, listed: Iterable[Listed]) -> bool:
        """Take what a server lists now. Return whether anything changed."""
        now = {
            (each.server, each.name): each
            for each in sorted(listed, key=lambda each: (each.server, each.name))
            if is_for_models(each.tool) and self._allow(each.server, each.tool)
        }
        self._leave_out(source, now)
        before = {key: entry for key, entry in self._entries.items() if entry.source is source}
        is_changed = False
        for key in before.keys() - now.keys():
            del self._entries[key]
            self._found.pop(key, None)
            is_changed = True
        added: list[Entry] = []
        for key, each in now.items():
            known = before.get(key)
            if known is not None and known.tool == each.tool:
                continue
            is_changed = True
            if known is not None:
                known.tool, known.tokens = each.tool, _tokens(each.tool)
                self._forget(key)
                continue
            added.append(Entry(*key, each.call_name, each.tool, source, -1, False, _tokens(each.tool)))
        if is_changed:
            self._add(added)
            self._by_name.clear()
            self._written.clear()
            self._index = None
        return is_changed

    def _leave_out(self, source: Any, listed: dict[ToolKey, Listed]) -> None:
        """Take out the tools whose names belong to another server."""
        losses: list[Loss] = []
        for server, name in list(listed) if self._has_prefixes else ():
            known = self._entries.get((server, name))
            owner = owner_of(f"{server}_{name}", self._servers())
            if owner not in (None, server) or (known is not None and known.source is not source):
                del listed[server, name]
                text = f"names that begin with {owner or server}_ belong to another server"
                losses.append(Loss("", server, name, "", "name", text))
                if all(loss.tool != name for loss in self._left_out.get(id(source), ())):
                    log.warning("the tool %r of %s is left out: %s", name[:100], server, text)
        self._left_out[id(source)] = losses

    def begin_generation(self) -> None:
        """Put tools that are added from now on behind those that are there."""
        if self._entries:
            self._generation = max(entry.generation for entry in self._entries.values()) + 1

    def defer_new_tools(self) -> None:
        """Decide which tools of the newest generation are deferred, once all servers were listed."""
        fresh = [entry for entry in self._entries.values() if entry.generation == self._generation]
        fresh = [entry for entry in fresh if entry.key not in self._saved]
        if not fresh or not self._is_too_much():
            return
        always: dict[str, int] = {}
        for entry in sorted(fresh, key=lambda entry: entry.key):
            if self._is_pinned.has(*entry.key) or self.name_of(entry) in self._pinned:
                continue
            meta = entry.tool.meta
            if isinstance(meta, Mapping) and meta.get(ALWAYS_LOAD) is True:
                always[entry.server] = always.get(entry.server, 0) + 1
                if always[entry.server] <= MOST_ALWAYS_LOADED:
                    continue
            if not entry.is_deferred:
                entry.is_deferred = True
                self._written.clear()

    def _is_too_much(self) -> bool:
        if self._defer != "auto":
            return self._defer
        tokens = sum(entry.tokens for entry in self._entries.values())
        return len(self._entries) >= FEWEST_DEFERRED and tokens > self._context * CONTEXT_SHARE

    def _add(self, added: list[Entry]) -> None:
        for entry in added:
            entry.generation, entry.is_deferred = self._saved.get(entry.key, (self._generation, False))
            self._entries[entry.key] = entry
        # Legal names first: a changed name never takes one of these.
        for rule in self._rules():
            for entry in sorted(added, key=lambda entry: (entry.generation, entry.key)):
                if rule.legal.fullmatch(self._wanted(entry)):
                    self._name(entry, rule)

    def _forget(self, key: ToolKey) -> None:
        for converted in self._converted.values():
            converted.pop(key, None)

    @property
    def entries(self) -> list[Entry]:
        """All tools in the order in which models get them."""
        return sorted(self._entries.values(), key=lambda entry: (entry.generation, entry.key))

    # --- names ---

    def _rules(self) -> list[NameRule]:
        return [TARGETS[name].names for name in ("anthropic", "gemini")]

    def _wanted(self, entry: Entry) -> str:
        return f"{entry.server}_{entry.name}" if self._has_prefixes else entry.name

    def _name(self, entry: Entry, rule: NameRule) -> str:
        names = self._names.get(rule.legal.pattern)
        if names is None:
            names = self._names[rule.legal.pattern] = Names(rule, OWN_TOOLS)
        return names.name(entry.server, entry.name, has_prefix=self._has_prefixes)

    def name_of(self, entry: Entry, rule: NameRule = PLAIN_NAMES) -> str:
        """Return the name that models know a tool by."""
        return self._name(entry, rule)

    def find(self, name: str, target: Target) -> Entry | None:
        """Return the tool that a model means by a name."""
        found = self._by_name.get(target.names.legal.pattern)
        if found is None:
            found = {self._name(entry, target.names): entry for entry in self.entries}
            self._by_name[target.names.legal.pattern] = found
        return found.get(name)

    def names(self, target: Target) -> Iterable[str]:
        """Return all names that models know tools by."""
        self.find("", target)
        return self._by_name[target.names.legal.pattern]

    # --- definitions ---

    def convert(self, entry: Entry, target: Target) -> ConvertedTool:
        """Return a tool as an interface takes it."""
        known = self._converted.setdefault(target.name, {})
        found = known.get(entry.key)
        if found is None:
            strict = self._strict if isinstance(self._strict, bool) else self._strict.has(*entry.key)
            name = self._name(entry, target.names)
            found = known[entry.key] = convert_tool(entry.tool, entry.server, name, target, strict=strict)
        return found

    def definitions(self, target: Target) -> list[dict[str, Any]]:
        """Return `tools=` for an interface, as dicts that the caller may change."""
        written = self._written.get(target.name)
        if written is None:
            written = self._written[target.name] = self._write(target)
        if target.name == "openai-chat":
            return [{**each, "function": {**each["function"]}} for each in written]
        if target.name.startswith("gemini"):
            declared = [{**each} for each in written]
            return [{"function_declarations": declared}] if declared else []
        return [{**each} for each in written]

    def losses(self) -> list[Loss]:
        """Return what could not be said to the interfaces that definitions were written for."""
        left_out = [loss for losses in self._left_out.values() for loss in losses]
        return left_out + [
            loss for known in self._converted.values() for tool in known.values() for loss in tool.losses
        ]

    def _write(self, target: Target) -> list[dict[str, Any]]:
        entries = self.entries
        written = list(self._own_definitions(target))
        can_defer = target.name in ("openai", "anthropic")
        loaded = {**self._restored, **({} if can_defer else self._found)}
        has_search = False
        for place in sorted({entry.generation for entry in entries}):
            group = [entry for entry in entries if entry.generation == place]
            pending = [entry for entry in group if entry.is_deferred and entry.key not in self._restored]
            if pending and not has_search:
                # Not before tools that were given without it.
                written.append(self._search_definition(target))
                has_search = True
            written += [self._define(entry, target) for entry in group if not entry.is_deferred]
            if can_defer and not (target.name == "openai" and self._search == "own"):
                written += self._write_deferred(pending, target, place)
            if not can_defer:
                written += [self._define(self._entries[key], target) for key in self._loaded_at(loaded, place)]
        if can_defer:
            keys = [key for key in self._restored if key in self._entries and self._entries[key].is_deferred]
            written += [self._define(self._entries[key], target) for key in keys]
        if self._cache and target.name == "anthropic":
            # A deferred tool may have no breakpoint.
            last = next((each for each in reversed(written) if "defer_loading" not in each), None)
            if last is not None:
                last["cache_control"] = {"type": "ephemeral"}
        return written

    def _loaded_at(self, loaded: Mapping[ToolKey, int], place: int) -> Iterator[ToolKey]:
        """Yield the tools that were found while this generation was the newest."""
        last = max((entry.generation for entry in self._entries.values()), default=0)
        for key, number in loaded.items():
            if key in self._entries and self._entries[key].is_deferred and min(number, last) == place:
                yield key

    def _own_definitions(self, target: Target) -> Iterator[dict[str, Any]]:
        if self._code and target.name == "openai":
            yield dict(_OPENAI_CODE)
        if self._code and target.name == "anthropic":
            yield dict(_ANTHROPIC_CODE)
        if self._reads_results:
            yield convert_tool(OWN_TOOLS[READ_TOOL], "", READ_TOOL, target).definition()

    def _search_definition(self, target: Target) -> dict[str, Any]:
        if target.name == "anthropic" and self._search == "hosted":
            return dict(_ANTHROPIC_SEARCH)
        if target.name == "openai":
            return dict(_OPENAI_SEARCH) if self._search == "hosted" else _client_search()
        return convert_tool(OWN_TOOLS[SEARCH_TOOL], "", SEARCH_TOOL, target).definition()

    def _define(self, entry: Entry, target: Target, **members: Any) -> dict[str, Any]:
        if self._code and target.name == "openai":
            members["allowed_callers"] = ["direct", "programmatic"] if entry.is_harmless else ["direct"]
            schema = output_schema(entry.tool)
            if schema is not None:
                members["output_schema"] = schema
        if self._code and target.name == "anthropic":
            callers = ["direct", "code_execution_20260120"] if entry.is_harmless else ["direct"]
            members["allowed_callers"] = callers
        return self.convert(entry, target).definition(**members)

    def _write_deferred(self, entries: list[Entry], target: Target, place: int) -> list[dict[str, Any]]:
        if target.name == "anthropic":
            return [self._define(entry, target, defer_loading=True) for entry in entries]
        namespaces: list[dict[str, Any]] = []
        by_server: dict[str, list[Entry]] = {}
        for entry in entries:
            by_server.setdefault(entry.server, []).append(entry)
        for server, own in by_server.items():
            for at in range(0, len(own), NAMESPACE_SIZE):
                chunk = own[at : at + NAMESPACE_SIZE]
                number = at // NAMESPACE_SIZE + 1
                suffix = "" if place == 0 and number == 1 else f"_{place}_{number}" if place else f"_{number}"
                name = PLAIN_NAMES.illegal.sub("_", server or "tools")[:50] + suffix
                inner = [self._define(entry, target, defer_loading=True) for entry in chunk]
                text = f"Tools of {server or 'the server'}: {', '.join(entry.name for entry in chunk)}"
                namespaces.append({"description": text[:1_000], "name": name, "tools": inner, "type": "namespace"})
        return namespaces

    # --- search ---

    def search(self, query: str, limit: int) -> list[tuple[Entry, ToolHit]]:
        """Return the tools that fit a query, best first."""
        if self._index is None:
            entries = self.entries
            indexed = [
                msgspec.structs.replace(
                    IndexedTool.from_definition(entry.tool, entry.server), name=self._name(entry, PLAIN_NAMES)
                )
                for entry in entries
            ]
            self._index = (ToolIndex(indexed), entries)
        index, entries = self._index
        by_name = {self._name(entry, PLAIN_NAMES): entry for entry in entries}
        hits = [(by_name[hit.name], hit) for hit in index.search(query, limit)]
        if self._rank is None:
            return hits
        try:
            ranked = list(islice(self._rank(query, list(entries)), limit))
            found = [self._entries[entry.key] for entry in ranked]
        except Exception:
            log.exception("rank= failed, and the plain order of the search counts")
            return hits
        known = {entry.key: hit for entry, hit in hits}
        once = {entry.key: entry for entry in found}
        return [(entry, known.get(key) or self._plain_hit(entry)) for key, entry in once.items()]

    def _plain_hit(self, entry: Entry) -> ToolHit:
        return ToolHit(self._name(entry, PLAIN_NAMES), entry.server, 0.0, (), entry.tokens)

    def load(self, entries: Iterable[Entry]) -> None:
        """Note that a model was given the definitions of these tools."""
        last = max((entry.generation for entry in self._entries.values()), default=0)
        for entry in entries:
            if entry.is_deferred and entry.key not in self._restored and entry.key not in self._found:
                self._found[entry.key] = last
                self._written = {
                    name: written for name, written in self._written.items() if name in ("openai", "anthropic")
                }

    def is_loaded(self, entry: Entry) -> bool:
        """Return whether a model was given the definition of a tool."""
        return not entry.is_deferred or entry.key in self._restored or entry.key in self._found

    # --- state ---

    def state(self) -> dict[str, Any]:
        """Return the order of the tools and what is loaded, as JSON types."""
        tools = [(entry.server, entry.name, entry.generation, entry.is_deferred) for entry in self.entries]
        saved = SavedTools(tools=tools, loaded=[*self._restored, *self._found])
        state: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(saved))
        return state


def _tokens(tool: t.Tool) -> int:
    return definition_tokens(
        tool.name, tool.description if isinstance(tool.description, str) else "", tool.input_schema
    )


def _client_search() -> dict[str, Any]:
    return {**_OPENAI_SEARCH, "description": _SEARCH_TEXT, "execution": "client", "parameters": _SEARCH_SCHEMA}
