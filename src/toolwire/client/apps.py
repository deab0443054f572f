"""Views of tools on the client (SEP-1865): their pages, and the calls and reads that they make.

A view is a program of its server, which a host runs in a sandbox. So a view reaches nothing but its own server, and
there only what is open to views. A gateway says in `_meta` which upstream a component belongs to. "Clause" in the
comments names a section of specification/2026-01-26/apps.mdx of modelcontextprotocol/ext-apps.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import UNSET, Struct

from toolwire.client.errors import Denied, InvalidResponse
from toolwire.client.safety import Check
from toolwire.client.target import Target
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import (
    APP_MIME_TYPE,
    Audience,
    audiences,
    has_destructive_hint,
    is_app_type,
    ui_of,
    view_address,
)
from toolwire.protocol.errors import NotSupported, ToolwireError, Unreachable
from toolwire.protocol.open_codec import replace_members
from toolwire.protocol.upstreams import UPSTREAM_KEY, UpstreamPath, read_upstream, upstream_meta
from toolwire.wire.deadlines import CallClock

log: logging.Logger = logging.getLogger("toolwire.client")

R = TypeVar("R")

#: How long the address may be that a view asks for.
MAX_ADDRESS: Final = 8192
#: A function that makes a call of a view: the name of the tool, the arguments, `_meta`, the timeout that the program
#: has set, the time limit, and a check before the call.
CallForView: TypeAlias = Callable[
    [str, Mapping[str, Any] | None, Mapping[str, Any] | None, float | None, CallClock, Check], Awaitable[ToolResult]
]
#: A function that returns the definition of a tool within a time limit.
FindTool: TypeAlias = Callable[[str, CallClock], Awaitable[t.Tool | None]]
#: A function that returns the definitions of all tools within a time limit.
FindTools: TypeAlias = Callable[[CallClock], Awaitable[builtins.list[t.Tool]]]
_Contents: TypeAlias = builtins.list[t.ResourceContents]
#: A function that makes a read of a view, and records it: the server of the view, the address, and the read itself.
ReadForView: TypeAlias = Callable[[str, str, Callable[[], Awaitable[_Contents]]], Awaitable[_Contents]]


class ServerClient(Protocol):
    """The client of a server, as far as views need it."""

    async def list_tools(self, *, audience: Audience | None, timeout: float | None) -> list[t.Tool]: ...

    async def list_resources(self, *, timeout: float | None) -> list[t.Resource]: ...

    async def list_resource_templates(self, *, timeout: float | None) -> list[t.ResourceTemplate]: ...

    async def read_resource(
        self, uri: str, *, timeout: float | None, meta: Mapping[str, Any] | None = None
    ) -> list[t.ResourceContents]: ...


class ListedView(Struct, frozen=True):
    """A tool that has a view. The page of the view is not read yet."""

    server: str
    """This program's name for the server."""
    tool: t.Tool
    uri: str
    """The address of the view."""


class View:
    """A view whose page was read. `client.apps.open()` returns it."""

    def __init__(self, apps: Apps, listed: ListedView, html: str, meta: Mapping[str, Any]) -> None:
        self.apps: Apps = apps
        """The `client.apps` that read it, the only one that acts for it."""
        self.server: str = listed.server
        self.tool: t.Tool = listed.tool
        self.uri: str = listed.uri
        self.html: str = html
        self.meta: Mapping[str, Any] = meta
        """`_meta.ui` of the view, as the server wrote it."""
        named = UPSTREAM_KEY in _object(listed.tool.meta)
        self.upstream: UpstreamPath | None = read_upstream(listed.tool.meta) if named else None
        """The upstream that the view belongs to; None as long as it is unknown."""

    @property
    def csp(self) -> Mapping[str, Any]:
        """The origins that the view asks for. `toolwire.apps.host_policy` makes a policy of them."""
        return _object(self.meta.get("csp"))

    @property
    def permissions(self) -> Mapping[str, Any]:
        """The features of the browser that the view asks for. `toolwire.apps.allow_attribute` makes `allow` of them."""
        return _object(self.meta.get("permissions"))

    @property
    def domain(self) -> str | None:
        """The origin that the server wants for the view, in the form that its host defines."""
        domain = self.meta.get("domain")
        return domain if isinstance(domain, str) else None

    @property
    def prefers_border(self) -> bool | None:
        wish = self.meta.get("prefersBorder")
        return wish if isinstance(wish, bool) else None

    def __repr__(self) -> str:
        return f"View({self.uri!r}, server={self.server!r}, tool={self.tool.name!r})"


class Apps:
    """The views of the servers of a client, for a program that shows them.

    With several servers, a view belongs to one of them. It names the tools and resources of that server as the server
    does, because its page was written there, and reaches no other server.
    """

    def __init__(
        self,
        client: ServerClient,
        members: Mapping[str, ServerClient],
        target: Target,
        clock: Callable[[float | None], CallClock],
        find: FindTool,
        find_all: FindTools,
        call: CallForView,
        read: ReadForView,
    ) -> None:
        """`members` are the clients of the servers, by name.

        `clock` returns the time limit of a call, `find` the definition of a tool, and `find_all` those of all tools.
        """
        self._client = client
        self._members = members
        self._target = target
        self._clock = clock
        self._find = find
        self._find_all = find_all
        self._call = call
        self._read = read

    async def list(self, *, timeout: float | None = None) -> builtins.list[ListedView]:
        """List the tools for models that have a view. No page is read."""
        tools = await self._client.list_tools(audience="model", timeout=timeout)
        found = [self._listed(tool) for tool in tools]
        return [each for each in found if each is not None]

    def _listed(self, tool: t.Tool) -> ListedView | None:
        uri, server = view_address(tool.meta), self._target.server_of(tool.name)
        return None if uri is None or server is None else ListedView(server, tool, uri)

    async def open(self, tool: str | ListedView, *, timeout: float | None = None) -> View:
        """Read the view of a tool, by the name of the tool or as `list` returned it.

        Raise `NotSupported` for a tool without a view, and `InvalidResponse` for a page that is none.
        """
        clock = self._clock(timeout)
        listed = tool if isinstance(tool, ListedView) else await self._named(tool, clock)
        reader = self._member(listed.server)
        address = self._target.address_at(listed.server, listed.uri)
        contents = await reader.read_resource(address, timeout=clock.rest("resources/read"))
        if len(contents) != 1:
            raise InvalidResponse(f"The view {listed.uri[:200]} has {len(contents)} contents; a view has one")
        (page,) = contents
        meta, mime_type = ui_of(page.meta), page.mime_type
        if not meta or mime_type is UNSET:
            # Draft, "Resource metadata": it may stand in the list or in the contents, and the contents win.
            entry = await _entry(reader, address, clock)
            meta = meta or ({} if entry is None else ui_of(entry.meta))
            mime_type = mime_type or (UNSET if entry is None else entry.mime_type)
        if not is_app_type(mime_type):
            raise InvalidResponse(
                f"The view {listed.uri[:200]} has the type {str(mime_type or 'none')[:100]!r}, not {APP_MIME_TYPE!r}"
            )
        return View(self, listed, _html(listed.uri, page), meta)

    def view(self, tool: t.Tool, uri: str, html: str, meta: Mapping[str, Any]) -> View:
        """Return a view whose page the program read by itself. `meta` is its `_meta.ui`.

        Raise `NotSupported` for a tool that no server lists.
        """
        server = self._target.server_of(tool.name)
        if server is None:
            raise NotSupported(f"No tool {tool.name[:100]!r} is listed, so it has no view")
        return View(self, ListedView(server, tool, uri), html, meta)

    async def _named(self, name: str, clock: CallClock) -> ListedView:
        definition = await self._find(name, clock)
        if definition is None:
            raise NotSupported(f"No tool {name[:100]!r} is listed, so it has no view")
        listed = self._listed(definition)
        if listed is None:
            raise NotSupported(f"The tool {name[:100]!r} has no view")
        return listed

    # --- what views do ---

    async def tools_for_view(self, view: View, *, timeout: float | None = None) -> builtins.list[t.Tool]:
        """List the tools that a view may call, under the names that they have at their server."""
        self._check_own(view)
        clock = self._clock(timeout)
        tools = await self._client.list_tools(audience="app", timeout=timeout)
        upstream = await self._upstream(view, clock)
        return [
            replace_members(tool, name=self._names_in(view, upstream, tool)[0])
            for tool in tools
            if self._is_own(view, upstream, tool)
        ]

    async def _upstream(self, view: View, clock: CallClock) -> UpstreamPath:
        """Return the upstream of a view. It has no servers unless the server of the view is a gateway."""
        if view.upstream is None:
            # The program may have made up the definition that it gave.
            listed = await self._find(view.tool.name, clock)
            if listed is None:
                raise Denied(f"The tool {view.tool.name[:100]!r} of the view is not listed any more")
            view.upstream = read_upstream(listed.meta)
        return view.upstream

    def _is_own(self, view: View, upstream: UpstreamPath, tool: t.Tool) -> bool:
        is_there = self._target.server_of(tool.name) == view.server
        return is_there and upstream.has(read_upstream(tool.meta).servers)

    def _names_in(self, view: View, upstream: UpstreamPath, tool: t.Tool) -> builtins.list[str]:
        """Return the names by which a view may call a tool of its upstream, that at its server first."""
        listed, named = self._target.own_name(tool.name), read_upstream(tool.meta)
        names = [listed, tool.name]
        if not upstream.servers:
            return names
        if named.servers == upstream.servers and named.name is not None:
            return [named.name, *names]
        # The view is one of a gateway behind this one, which has names for the tools of its own upstreams.
        shown = self._target.own_name(view.tool.name)
        prefix = shown.removesuffix(upstream.name) if upstream.name else shown
        return [listed.removeprefix(prefix), *names] if prefix != shown else names

    async def call_from_view(
        self, view: View, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Make a call that a view asks for. `approve`, `budget`, `pins` and `audit` of the client hold for it.

        Raise `Denied` for a tool that the server of the view does not list, and for one that is not open to views.
        """
        self._check_own(view)
        clock = self._clock(timeout)
        name = await self._name_here(view, tool, clock)

        async def check() -> None:
            await self._definition(view, tool, name, clock)

        return await self._call(name, arguments, await self._meta(view, clock), timeout, clock, check)

    async def _meta(self, view: View, clock: CallClock) -> Mapping[str, Any] | None:
        """Return `_meta` of a request of a view, by which a gateway keeps it at its upstream."""
        upstream = await self._upstream(view, clock)
        return upstream_meta(UpstreamPath(upstream.servers)) if upstream.servers else None

    async def is_destructive(self, view: View, tool: str, *, timeout: float | None = None) -> bool:
        """Return whether a tool that a view names has `destructiveHint`: a host asks the user before the call.

        A tool that the view may not call has no hint; `call_from_view` refuses it.
        """
        self._check_own(view)
        clock = self._clock(timeout)
        try:
            found = await self._definition(view, tool, await self._name_here(view, tool, clock), clock)
        except Denied:
            return False
        return has_destructive_hint(found)

    async def _definition(self, view: View, tool: str, name: str, clock: CallClock) -> t.Tool:
        """Return a tool that a view may call; raise `Denied` for any other. `name` is that of the client for it."""
        definition = await self._find(name, clock)
        if definition is None or not self._is_own(view, await self._upstream(view, clock), definition):
            raise Denied(f"The view {view.uri[:200]} called {tool[:100]!r}, which its server does not list")
        # Clause "Visibility": a host rejects a call from a view of a tool without "app".
        if "app" not in audiences(definition.meta):
            raise Denied(f"The view {view.uri[:200]} called {tool[:100]!r}, which is not open to views")
        return definition

    async def _name_here(self, view: View, tool: str, clock: CallClock) -> str:
        """Return the name under which the client knows a tool that a view names."""
        upstream = await self._upstream(view, clock)
        if upstream.servers:
            tools = [each for each in await self._find_all(clock) if self._is_own(view, upstream, each)]
            for place in range(3):
                for each in tools:
                    if self._names_in(view, upstream, each)[place : place + 1] == [tool]:
                        return each.name
            return tool
        own = self._target.tool_at(view.server, tool)
        if await self._find(own, clock) is None and self._target.server_of(tool) == view.server:
            return tool  # Results name tools as the client knows them.
        return own

    async def read_from_view(
        self, view: View, uri: str, *, timeout: float | None = None
    ) -> builtins.list[t.ResourceContents]:
        """Read a resource that a view asks for, at the server of the view and nowhere else. `audit` records it."""
        self._check_own(view)
        clock = self._clock(timeout)

        async def make() -> _Contents:
            if len(uri) > MAX_ADDRESS:
                raise Denied(f"The view {view.uri[:200]} asked for an address of more than {MAX_ADDRESS} characters")
            address = self._target.address_at(view.server, uri)
            meta = await self._meta(view, clock)
            return await self._member(view.server).read_resource(address, timeout=timeout, meta=meta)

        return await self._read(view.server, uri, make)

    async def resources_for_view(self, view: View, *, timeout: float | None = None) -> builtins.list[t.Resource]:
        """List the resources of the server of a view."""
        self._check_own(view)
        clock = self._clock(timeout)
        upstream = await self._upstream(view, clock)
        listed = await self._member(view.server).list_resources(timeout=timeout)
        return [each for each in listed if upstream.has(read_upstream(each.meta).servers)]

    async def templates_for_view(
        self, view: View, *, timeout: float | None = None
    ) -> builtins.list[t.ResourceTemplate]:
        """List the resource templates of the server of a view."""
        self._check_own(view)
        clock = self._clock(timeout)
        upstream = await self._upstream(view, clock)
        listed = await self._member(view.server).list_resource_templates(timeout=timeout)
        return [each for each in listed if upstream.has(read_upstream(each.meta).servers)]

    def _member(self, server: str) -> ServerClient:
        if server not in self._members:
            raise Unreachable(f"The server {server!r} of the view was removed from the client")
        return self._members[server]

    def _check_own(self, view: View) -> None:
        if view.apps is not self:
            raise ValueError("The view was opened by another client, which is the one that can act for it")
        self._member(view.server)


async def _entry(reader: ServerClient, uri: str, clock: CallClock) -> t.Resource | None:
    """Return the entry of a view in the list of resources; None where there is none."""
    try:
        listed = await reader.list_resources(timeout=clock.rest("resources/list"))
    except ToolwireError as error:
        log.debug("the resources could not be listed for the view %s: %s", uri[:200], error)
        return None
    return next((each for each in listed if each.uri == uri), None)


def _html(uri: str, page: t.ResourceContents) -> str:
    if page.text is not UNSET:
        return page.text
    try:
        return (page.blob or b"").decode()
    except UnicodeDecodeError:
        raise InvalidResponse(f"The view {uri[:200]} is neither text nor UTF-8") from None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- Without an event loop --------------------------------------------------------------------------------------------


class Wait(Protocol):
    """A function that runs a coroutine on the loop of the client and waits for its result."""

    def __call__(self, work: Coroutine[Any, Any, R], /) -> R: ...


class BlockingApps:
    """The views of the servers of a client, as `Apps`, with methods that wait."""

    def __init__(self, apps: Apps, wait: Wait) -> None:
        self._apps = apps
        self._wait = wait

    def list(self, *, timeout: float | None = None) -> builtins.list[ListedView]:
        return self._wait(self._apps.list(timeout=timeout))

    def open(self, tool: str | ListedView, *, timeout: float | None = None) -> View:
        return self._wait(self._apps.open(tool, timeout=timeout))

    def tools_for_view(self, view: View, *, timeout: float | None = None) -> builtins.list[t.Tool]:
        return self._wait(self._apps.tools_for_view(view, timeout=timeout))

    def view(self, tool: t.Tool, uri: str, html: str, meta: Mapping[str, Any]) -> View:
        return self._apps.view(tool, uri, html, meta)

    def call_from_view(
        self, view: View, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        return self._wait(self._apps.call_from_view(view, tool, arguments, timeout=timeout))

    def read_from_view(
        self, view: View, uri: str, *, timeout: float | None = None
    ) -> builtins.list[t.ResourceContents]:
        return self._wait(self._apps.read_from_view(view, uri, timeout=timeout))

    def resources_for_view(self, view: View, *, timeout: float | None = None) -> builtins.list[t.Resource]:
        return self._wait(self._apps.resources_for_view(view, timeout=timeout))

    def templates_for_view(self, view: View, *, timeout: float | None = None) -> builtins.list[t.ResourceTemplate]:
        return self._wait(self._apps.templates_for_view(view, timeout=timeout))
