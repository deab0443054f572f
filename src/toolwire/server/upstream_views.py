"""Requests of views at a gateway: the tools that they name, and the upstream that they must not leave.

A view names the tools of its server as that server does, and most hosts send the name as it is. So an unlisted name is
replaced by the public name of the tool before anything judges the request. A host may name the upstream of a view in
`_meta`. Then the request reaches nothing but this upstream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, zip_longest
from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from toolwire.protocol import types as t
from toolwire.protocol.apps import view_address
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError
from toolwire.protocol.lifecycle.terms import Incoming
from toolwire.protocol.open_codec import meta_of, replace_meta
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import (
    GATEWAYS_KEY,
    MAX_SERVERS,
    UPSTREAM_KEY,
    GatewayMark,
    UpstreamPath,
    encode_marks,
    read_upstream,
    upstream_meta,
)
from toolwire.server.access import Access, View
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Found, Mount, Seen, Sees, Way
from toolwire.server.components import Component, ToolBase

log: logging.Logger = logging.getLogger("toolwire.server")

_KEY: Final = UPSTREAM_KEY.encode()
#: How many names that two upstreams have are logged.
_MAX_LOGGED: Final = 1_000


def servers_on(way: Way) -> tuple[str, ...]:
    """Return the servers on a way, as far as the last upstream of a gateway; none if there is no upstream."""
    last = max((index for index, mount in enumerate(way) if mount.upstream is not None), default=-1)
    return tuple(_name_of(mount) for mount in way[: last + 1])


def _name_of(mount: Mount) -> str:
    # Two gateways in one server may have the same name, and upstreams of the same names.
    plain = mount.catalog.owner.name
    return mount.upstream or (f"{plain}:{mount.prefix}" if mount.prefix else plain)


def upstream_of(found: Found[Any]) -> UpstreamPath:
    """Return the upstream that a component belongs to. An upstream that is a gateway names those behind it."""
    servers = servers_on(found.way)
    if not servers:
        return UpstreamPath()
    named = read_upstream(meta_of(found.component.wire(MODERN)))
    name = named.name or _own_name(found.component)
    return UpstreamPath((*servers, *named.servers)[:MAX_SERVERS], name)


def _own_name(component: Component) -> str | None:
    """Return the name that an upstream gives a tool; None for anything else."""
    while component.original is not None:
        component = component.original
    # A name that is too long for this server is the key in another form.
    return getattr(component, "upstream_name", component.key) if component.kind == "tools" else None


def with_upstream(definition: Any, found: Found[Any]) -> Any:
    """Return the entry of a list with the upstream that a component belongs to."""
    if not any(mount.upstream is not None for mount in found.way):
        return definition
    return replace_meta(definition, {**meta_of(definition), **upstream_meta(upstream_of(found))})


def list_notes(catalog: Catalog, view: Seen | None) -> dict[str, Any]:
    """Return the further members of `_meta` of a list, with the marks of all gateways on the way to its entries."""
    notes: dict[str, Any] = catalog.all_notes(view)
    behind: dict[str, dict[GatewayMark, None]] = {}
    for each, way in _ways_to_marks(catalog, view, ()):
        marks = (mark.behind(servers_on(way)) for mark in each.gateways)
        behind.setdefault(next(iter(servers_on(way)), ""), {}).update(dict.fromkeys(marks))
    if behind:
        # In turns: an upstream with many marks must not displace those of the other upstreams.
        turns = chain.from_iterable(zip_longest(*behind.values()))
        notes[GATEWAYS_KEY] = [*notes.get(GATEWAYS_KEY, ()), *encode_marks(filter(None, turns))]
    return notes


def _ways_to_marks(catalog: Catalog, view: Seen | None, way: Way) -> Iterator[tuple[Catalog, Way]]:
    """Yield the catalogues that have marks of other gateways, as far as callers see them, with the ways to them."""
    if catalog.gateways and (catalog.audience is None or (view is not None and view.enters(catalog.audience))):
        yield catalog, way
    for mount in tuple(catalog.mounts):
        yield from _ways_to_marks(mount.catalog, view, (*way, mount))


class _Tool(Struct, frozen=True):
    """A tool of an upstream: the upstream, and the name that it has here."""

    upstream: UpstreamPath
    public: str


class _Index(Struct, frozen=True):
    """The tools of all upstreams that have views, by the names that the upstreams give them."""

    names: Mapping[str, tuple[_Tool, ...]]
    views: Mapping[str, frozenset[tuple[str, ...]]]
    """The upstreams of each view, by its address."""


class UpstreamViews:
    """Finds the tools that views name, and keeps views at their upstream."""

    def __init__(self, catalog: Catalog, access: Access, has_own_names: Callable[[], bool]) -> None:
        """`has_own_names` says whether the program has tools that are in no list."""
        self._catalog = catalog
        self._access = access
        self._has_own_names = has_own_names
        self._version = -1
        self._index = _Index({}, {})
        self._logged: set[str] = set()

    def resolve(self, call: Call) -> bool:
        """Give a request of a view the name that its tool has here. Return whether the request is refused."""
        request = call.request
        raw = request.raw
        if request.method == "tools/call":
            # Nearly all calls end here, so this is short.
            if self._version != self._catalog.version:
                self._renew_index()
            if raw is UNSET or _KEY not in bytes(raw):
                if request.params.name not in self._index.names:
                    return False
                call.denial = self._resolve_unlisted(call)
            elif (view := view_of(raw)) is not None:
                call.denial = self._resolve_at(call, view)
        elif request.method == "resources/read" and raw is not UNSET and (view := view_of(raw)) is not None:
            call.denial = self._check_read(call, view)
        return call.denial is not None

    def _renew_index(self) -> None:
        self._version, self._index = self._catalog.version, _index(self._catalog)

    def find_unlisted(self, name: str, sees: Sees | None) -> Found[ToolBase] | None:
        """Return the tool that a caller means by a name which is in no list; None if that is not clear."""
        if name in self._catalog.reserved_tools:
            return None
        if self._version != self._catalog.version:
            self._renew_index()
        tools = self._index.names.get(name, ())
        if len(tools) != 1 or self._may_be_of_another(name, tools[0]):
            return None
        return self._found(tools[0], sees)

    def _resolve_at(self, call: Call, view: UpstreamPath) -> ProtocolError | None:
        """Find a tool at the upstream of a view, which the request names."""
        name = call.request.params.name
        found = self._catalog.tool(name, self._sees(call))
        if found is None or not view.has(upstream_of(found).servers):
            tools = [each for each in self._index.names.get(name, ()) if view.has(each.upstream.servers)]
            exact = [each for each in tools if each.upstream.servers == view.servers] or tools
            found = self._found(exact[0], self._sees(call)) if len(exact) == 1 else None
            if found is None:
                return ProtocolError(INVALID_PARAMS, f"The server of the view has no tool {name[:200]!r}")
            call.request.params.name = exact[0].public
        call.view_servers = view.servers[len(servers_on(found.way)) :]
        return None

    def _resolve_unlisted(self, call: Call) -> ProtocolError | None:
        """Find the tool with a name that is in no list: that of the one upstream that has it and has views."""
        name = call.request.params.name
        if name in self._catalog.reserved_tools:
            return None
        is_own = self._has_own_names() or self._catalog.unlisted_component("tools", name) is not None
        if is_own or self._catalog.tool(name) is not None:
            return None
        tools = self._index.names[name]
        of_view = self._of_view(call.request, tools)
        if not of_view and any(self._may_be_of_another(name, each) for each in tools):
            return None
        tools = of_view or tools
        sees = self._sees(call)
        seen = [each for each in tools if self._found(each, sees) is not None]
        if len(tools) == 1:
            if seen:
                call.request.params.name = seen[0].public
            return None
        if len(seen) < 2:
            return None  # Nothing reveals the tools that the caller does not see.
        names = " or ".join(repr(each.public) for each in seen)
        if name not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(name)
            text = "a view called %r, which may be %s: say views=False for the upstream of one of them"
            log.warning(text, name, names)
        return ProtocolError(INVALID_PARAMS, f"The tool {name[:200]!r} may be {names}: call it by one of these names")

    def _may_be_of_another(self, name: str, tool: _Tool) -> bool:
        """Return whether another server may have a tool of a name.

        Clients call the tool also while the server cannot be reached.
        """
        found = self._catalog.tool(tool.public)
        own = () if found is None else found.way
        return _is_claimed(self._catalog, name, own) or bool(self._catalog.missing_for(name))

    def _of_view(self, request: Incoming, tools: tuple[_Tool, ...]) -> tuple[_Tool, ...]:
        """Return the tools of the upstream whose view the request names, as some hosts do."""
        address = None if request.raw is UNSET else view_address(t.request_meta(request.raw))
        owners = self._index.views.get(address, frozenset()) if address is not None else frozenset()
        return tuple(each for each in tools if each.upstream.servers in owners) if len(owners) == 1 else ()

    def _found(self, tool: _Tool, sees: Sees | None) -> Found[ToolBase] | None:
        """Return a tool as a caller sees it. None if a shape takes it away, or gives its name to another one."""
        found = self._catalog.tool(tool.public, sees)
        return found if found is not None and upstream_of(found) == tool.upstream else None

    def _check_read(self, call: Call, view: UpstreamPath) -> ProtocolError | None:
        """Refuse to read a resource that does not belong to the upstream of a view."""
        params = call.request.params
        found = self._readable(call, params.uri)
        if found is None or not view.has(upstream_of(found).servers):
            public = self._public_uri(view, params.uri)
            renamed = None if public == params.uri else self._readable(call, public)
            if renamed is not None and view.has(upstream_of(renamed).servers):
                params.uri, found = public, renamed
        if found is None:
            call.view_servers = view.servers  # No other upstream is asked for what no list has.
        elif view.has(upstream_of(found).servers):
            call.view_servers = view.servers[len(servers_on(found.way)) :]
        else:
            return ProtocolError(INVALID_PARAMS, "The server of the view has no such resource")
        return None

    def _public_uri(self, view: UpstreamPath, uri: str) -> str:
        """Return the public form of a URI that a view names as its server does."""
        way = next((each for each in _ways(self._catalog, ()) if servers_on(each) == view.servers), ())
        rename = way[-1].catalog.public_uri if way else None
        return uri if rename is None else rename(uri)

    def _readable(self, call: Call, uri: str) -> Found[Any] | None:
        return self._access.readable(uri, self._view(call))

    def _view(self, call: Call) -> View | None:
        return self._access.view(call.request, call.outlet) if self._access.active else None

    def _sees(self, call: Call) -> Sees | None:
        view = self._view(call)
        return None if view is None else view.sees


def view_of(raw: Raw) -> UpstreamPath | None:
    """Return the upstream of the view that a request comes from, as its host says; None if it says nothing."""
    upstream = read_upstream(t.request_meta(raw))
    return upstream if upstream.servers else None


def _index(catalog: Catalog) -> _Index:
    tools: dict[_Tool, None] = {}
    views: dict[str, set[tuple[str, ...]]] = {}
    for way in _ways(catalog, ()):
        # Also those that a shape takes away: their names belong to no other upstream.
        listed = [(name, found) for name, found in way[-1].catalog.merged("tools", None, way)]
        if not any(_view_address(found) for _, found in listed):
            continue
        for name, found in listed:
            public = name
            for mount in reversed(way):
                public = mount.public_name("tools", public)
            tool = _Tool(upstream_of(found), public)
            tools[tool] = None
            if (address := _view_address(found)) is not None:
                views.setdefault(address, set()).add(tool.upstream.servers)
    having = {servers for each in views.values() for servers in each}
    names: dict[str, tuple[_Tool, ...]] = {}
    for tool in tools:
        if tool.upstream.servers in having and tool.upstream.name is not None:
            names[tool.upstream.name] = (*names.get(tool.upstream.name, ()), tool)
    return _Index(names, {address: frozenset(owners) for address, owners in views.items()})


def _is_claimed(catalog: Catalog, name: str, own: Way) -> bool:
    """Return whether a server beside a way may have a name."""
    for mount in tuple(catalog.mounts):
        inner = mount.inner(name)
        if inner is None:
            continue
        if mount not in own and (mount.prefix or not mount.catalog.is_read):
            return True
        if _is_claimed(mount.catalog, inner, own):
            return True
    return False


def _view_address(found: Found[Any]) -> str | None:
    return view_address(found.component.wire(MODERN).meta or None)


def _ways(catalog: Catalog, way: Way) -> Iterator[Way]:
    """Yield the ways to all upstreams."""
    for mount in tuple(catalog.mounts):
        path = (*way, mount)
        if mount.upstream is None:
            yield from _ways(mount.catalog, path)
        else:
            yield path
