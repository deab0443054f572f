"""Several servers as one: their tools and prompts under the name of their server, their resources as they are.

The group is itself a server in this process, which hands every request on to the client of the server it concerns. So
each server is spoken to in its own revision, and one that went away is found again like any other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from toolwire._version import __version__
from toolwire.client.errors import ResourceNotFound
from toolwire.client.listen import Change, Subscription
from toolwire.client.target import MEMBER_KEY, Link
from toolwire.client.targets import ServerTarget
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.changes import LIST_CHANGED, UPDATED
from toolwire.protocol.errors import INVALID_PARAMS, NotSupported, ProtocolError, ToolwireError
from toolwire.protocol.jsonrpc import RequestId
from toolwire.protocol.lifecycle import ClientLifecycle, Incoming, ServerLifecycle
from toolwire.protocol.methods import METHODS, Method
from toolwire.protocol.open_codec import has_unknown, replace_members
from toolwire.protocol.peer import Notice, Peer
from toolwire.protocol.revisions import MODERN
from toolwire.wire.channel import Channel
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import ClientHandler, OnProgress, Session

log: logging.Logger = logging.getLogger("toolwire.client")

SEPARATOR: Final = "_"
_NOTIFICATIONS: Final = {**LIST_CHANGED, "resource": UPDATED}
# What `_meta` says of the connection that a request came on.
_OF_THE_CONNECTION: Final = frozenset(
    {
        t.PROTOCOL_VERSION_KEY,
        t.CLIENT_CAPABILITIES_KEY,
        t.CLIENT_INFO_KEY,
        t.LOG_LEVEL_KEY,
        t.PROGRESS_TOKEN_KEY,
        MEMBER_KEY,
    }
)

_KNOWN: Final = frozenset(row.name for row in METHODS)

Named = TypeVar("Named", t.Tool, t.Prompt)
Found = TypeVar("Found")


class Member(Protocol):
    """The client of one server of a group."""

    @property
    def capabilities(self) -> dict[str, Any]: ...

    @property
    def instructions(self) -> str | None: ...

    async def connect(self) -> Any: ...

    async def close(self) -> None: ...

    async def list_tools(self) -> list[t.Tool]: ...

    async def call_tool(
        self, name: str, arguments: Any, *, timeout: float, on_progress: Any, meta: Any
    ) -> ToolResult: ...

    async def list_resources(self) -> list[t.Resource]: ...

    async def list_resource_templates(self) -> list[t.ResourceTemplate]: ...

    async def read_resource(
        self, uri: str, *, timeout: float, on_progress: Any, meta: Any
    ) -> list[t.ResourceContents]: ...

    async def list_prompts(self) -> list[t.Prompt]: ...

    async def get_prompt(
        self, name: str, arguments: Any, *, timeout: float, on_progress: Any, meta: Any
    ) -> t.GetPromptResult: ...

    async def complete(self, ref: Any, argument: tuple[str, str], context: Any) -> t.Completion: ...

    def listen(
        self,
        *,
        tools: bool,
        prompts: bool,
        resources_list: bool,
        resources: Sequence[str],
        extensions: Mapping[str, Any],
    ) -> Subscription: ...

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeout: float,
        on_progress: Any,
        meta: Any,
        repeatable: bool,
        result_types: Sequence[str],
    ) -> dict[str, Any]: ...

    async def notify(self, method: str, params: Any) -> None: ...


# What may ask the user has its deadline where it asks, because there it stands still meanwhile.
_ASKING: Final = frozenset({"tools/call", "resources/read", "prompts/get"})


class _OpenParams(t.RequestParams, kw_only=True):
    """The params of an extension's method, which are handed on as they are."""


class GroupTarget(ServerTarget):
    """A group as what a client connects to."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._group = group
        self.label: str = f"the servers {group.name}"

    async def open(self) -> Link:
        await self._group.connect()
        link = await super().open()
        return _GroupLink(link, self._group)

    def member_for(self, method: str, extension: str | None, server: str | None) -> str | None:
        return self._group.member_for(method, extension, server)

    async def notify(self, member: str, method: str, params: Mapping[str, Any]) -> None:
        await self._group.notify(member, method, params)


class _GroupLink(Link):
    def __init__(self, link: Link, group: Group) -> None:
        super().__init__(link.channel, link.label)
        self._link = link
        self._group = group

    def session(self, lifecycle: ClientLifecycle, handler: ClientHandler, ceiling: float) -> Session:
        session = _GroupSession(self.channel, Peer(lifecycle), handler, ceiling=ceiling)
        session.group = self._group
        return session

    async def close(self) -> None:
        await self._link.close()


class _GroupSession(Session):
    """The client's end: raises what the client of the server behind raised."""

    group: Group

    async def request(
        self,
        method: str,
        params: Any,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        identifier: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw | None:
        own = self.peer.next_id() if identifier is None else identifier
        if timeout is not None and (method in _ASKING or method not in _KNOWN):
            self.group.deadlines[own] = timeout
            timeout = None
        try:
            return await super().request(method, params, timeout, on_progress, own)
        except ProtocolError as error:
            raise self.group.errors.get(own, error) from None
        finally:
            self.group.errors.pop(own, None)
            self.group.deadlines.pop(own, None)


class Group:
    """The servers of a configuration, as one server. Made for one client, and connected with it."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.name: str = ", ".join(members)
        self._members = dict(members)
        # By length, so that of `a` and `a_b` the longer one is found first.
        self._by_length = sorted(members, key=len, reverse=True)
        self._owners: dict[str, str] = {}
        self.errors: dict[RequestId, ToolwireError] = {}
        self.deadlines: dict[RequestId, float] = {}
        self._handlers: dict[str, Callable[[Any, Outlet, Incoming], Awaitable[t.Wire]]] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }

    # --- what a server says about itself ---

    implementation: t.Implementation = t.Implementation("toolwire-group", __version__)

    @property
    def instructions(self) -> str | UnsetType:
        """What each server says of itself, under the name that its tools begin with."""
        told = [f"{name}: {member.instructions}" for name, member in self._members.items() if member.instructions]
        return "\n\n".join(told) or UNSET

    def capabilities(self, revision: str) -> dict[str, Any]:
        """What any of the servers can do, as far as a group can hand it on."""
        merged: dict[str, Any] = {}
        for member in self._members.values():
            for name in ("tools", "prompts", "resources", "completions"):
                declared = member.capabilities.get(name)
                if isinstance(declared, dict):
                    flags = {flag: True for flag, value in declared.items() if value is True}
                    merged[name] = {**merged.get(name, {}), **flags}
            for identifier, settings in _extensions(member).items():
                # Of two servers with one extension the settings of the first are shown.
                merged.setdefault("extensions", {}).setdefault(identifier, settings)
        return merged

    def extension_method(self, method: str) -> Method | None:
        """Return a row for every method that the protocol does not have. The server that it goes to may know it."""
        return Method(name=method, kind="request", sender="client", params=_OpenParams, result=t.Result)

    def member_for(self, method: str, extension: str | None, server: str | None) -> str:
        """Return the server that a method of an extension goes to. Raise `NotSupported` where that is not clear."""
        if server is not None:
            if server not in self._members:
                raise ValueError(f"There is no server {server!r:.100}: the servers are {self.name}")
            return server
        having = [name for name, member in self._members.items() if extension in _extensions(member)]
        if len(having) == 1:
            return having[0]
        if extension is None:
            raise NotSupported(f"{method} could go to any of the servers {self.name}: say extension= or server=")
        if not having:
            raise NotSupported(f"None of the servers {self.name} declared the extension {extension}")
        raise NotSupported(f"{', '.join(having)} have the extension {extension}: say with server= which one is meant")

    async def notify(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        await self._members[server].notify(method, params)

    async def _request(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        """Hand a method of an extension on to the server that it goes to."""
        members: dict[str, Any] = {} if request.raw is UNSET else msgspec.json.decode(request.raw)
        chosen = members.pop("_meta", {}).get(MEMBER_KEY)
        if chosen is None:
            raise ProtocolError(INVALID_PARAMS, f"A group of servers does not hand on {request.method}")
        result: Any = await self._members[chosen["server"]].request(
            request.method,
            members,
            repeatable=chosen["repeatable"],
            result_types=chosen["resultTypes"],
            **self._options(request, outlet),
        )
        return cast("t.Wire", result)

    # --- serving ---

    async def connect(self) -> None:
        """Connect to every server; one that cannot be reached is reason enough to let go of the others."""
        try:
            await asyncio.gather(*[member.connect() for member in self._members.values()])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await asyncio.gather(*[member.close() for member in self._members.values()])

    async def serve(self, channel: Channel) -> None:
        session = Session(channel, Peer(ServerLifecycle(self, (MODERN,))), self)
        try:
            await session.run()
        finally:
            await session.close()
            await self.close()

    async def handle(self, request: Incoming, outlet: Outlet) -> t.Wire | Raw:
        handler = self._handlers.get(request.method, self._request)
        try:
            result = await handler(request.params, outlet, request)
            return Raw(t.encode(result)) if has_unknown(result) else result
        except ToolwireError as error:
            # What happened is raised as it is on the other side, see `_GroupSession`.
            self.errors[request.id] = error
            raise ProtocolError(INVALID_PARAMS, str(error)) from None

    def notified(self, notice: Notice, session: Session) -> None:
        return

    def closing(self, session: Session) -> None:
        return

    async def _discover(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        return t.DiscoverResult(
            supported_versions=[MODERN],
            capabilities=self.capabilities(MODERN),
            instructions=self.instructions,
            ttl_ms=0,
            cache_scope="private",
        )

    # --- tools and prompts, by name ---

    async def _list_tools(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        found = await self._from_all("tools", lambda member: member.list_tools())
        return t.ListToolsResult(tools=self._prefixed(found), ttl_ms=0, cache_scope="private")

    async def _call_tool(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        member, name = self._split(params.name, "tool")
        arguments = None if params.arguments is UNSET else msgspec.json.decode(params.arguments)
        return (await member.call_tool(name, arguments, **self._options(request, outlet))).to_wire()

    async def _list_prompts(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        found = await self._from_all("prompts", lambda member: member.list_prompts())
        return t.ListPromptsResult(prompts=self._prefixed(found), ttl_ms=0, cache_scope="private")

    async def _get_prompt(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        member, name = self._split(params.name, "prompt")
        arguments = None if params.arguments is UNSET else msgspec.json.decode(params.arguments)
        return await member.get_prompt(name, arguments, **self._options(request, outlet))

    def _options(self, request: Incoming, outlet: Outlet) -> dict[str, Any]:
        """What is handed on with a request: its deadline, who is told of its progress, the caller's own `_meta`."""

        def report(progress: t.ProgressNotificationParams) -> None:
            outlet.notify("notifications/progress", structs.replace(progress, progress_token=request.progress_token))

        meta = {} if request.raw is UNSET else t.request_meta(request.raw)
        return {
            "timeout": self.deadlines.get(request.id, math.inf),
            "on_progress": None if request.progress_token is UNSET else report,
            "meta": {key: value for key, value in meta.items() if key not in _OF_THE_CONNECTION} or None,
        }

    def _server_in(self, name: str) -> str | None:
        return next((server for server in self._by_length if name.startswith(server + SEPARATOR)), None)

    def _split(self, name: str, what: str) -> tuple[Member, str]:
        server = self._server_in(name)
        if server is None:
            raise ProtocolError(INVALID_PARAMS, f"Unknown {what}: {name[:200]}; names begin with that of a server")
        return self._members[server], name[len(server) + len(SEPARATOR) :]

    def _prefixed(self, found: Mapping[str, Sequence[Named]]) -> list[Named]:
        """Under the names that lead to them; `b_x` of `a` has none where there is a server `a_b`."""
        listed: list[Named] = []
        for server, several in found.items():
            for each in several:
                name = f"{server}{SEPARATOR}{each.name}"
                other = self._server_in(name)
                if other == server:
                    listed.append(replace_members(each, name=name))
                else:
                    log.warning(
                        "%r of %s is left out: %r would be one of %s", each.name[:200], server, name[:200], other
                    )
        return listed

    # --- resources, by URI ---

    async def _list_resources(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        return t.ListResourcesResult(resources=await self._resources(), ttl_ms=0, cache_scope="private")

    async def _resources(self) -> list[t.Resource]:
        """Those of all servers; from now on it is known whose they are."""
        found = await self._from_all("resources", lambda member: member.list_resources())
        listed: dict[str, t.Resource] = {}
        owners: dict[str, str] = {}
        for server, resources in found.items():
            for resource in resources:
                if resource.uri in listed:
                    log.warning("%s has a resource that another server has too: %s", server, resource.uri[:200])
                    continue
                listed[resource.uri] = resource
                owners[resource.uri] = server
        self._owners = owners
        return list(listed.values())

    async def _list_templates(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        found = await self._from_all("resources", lambda member: member.list_resource_templates())
        templates = [template for templates in found.values() for template in templates]
        return t.ListResourceTemplatesResult(resource_templates=templates, ttl_ms=0, cache_scope="private")

    async def _read(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        missing: ResourceNotFound | None = None
        for server in self._readers(params.uri):
            try:
                contents = await self._members[server].read_resource(params.uri, **self._options(request, outlet))
                return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="private")
            except ResourceNotFound as error:
                missing = error
            except NotSupported:
                continue
        if missing is not None:
            raise missing
        raise ProtocolError(INVALID_PARAMS, f"No server has the resource {params.uri[:200]}", {"uri": params.uri})

    def _readers(self, uri: str) -> list[str]:
        """Who may have a resource: its owner, or everybody where none is known."""
        owner = self._owners.get(uri)
        return (
            [owner] if owner is not None else [name for name, each in self._members.items() if _has(each, "resources")]
        )

    def _of(self, server: str, uris: list[str]) -> list[str]:
        """Those that a server may have. Nobody else is told of them, and would refuse them if it was."""
        return [uri for uri in uris if server in self._readers(uri)]

    # --- the rest ---

    async def _complete(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        ref = params.ref
        context = None if params.context is UNSET else params.context.arguments
        argument = (params.argument.name, params.argument.value)
        if isinstance(ref, t.PromptReference):
            member, name = self._split(ref.name, "prompt")
            return t.CompleteResult(
                completion=await member.complete(structs.replace(ref, name=name), argument, context)
            )
        for server in self._readers(ref.uri):
            try:
                return t.CompleteResult(completion=await self._members[server].complete(ref, argument, context))
            except (ProtocolError, NotSupported):
                continue
        raise ProtocolError(INVALID_PARAMS, f"No server completes {ref.uri[:200]}")

    async def _listen(self, params: Any, outlet: Outlet, request: Incoming) -> t.Wire:
        """2026-07-28 basic/patterns/subscriptions: acknowledged first, then everything, each with the id."""
        meta: t.MetaDict = {t.SUBSCRIPTION_ID_KEY: request.id}
        wanted = params.notifications
        # With the members that extensions add to the filter.
        whole = t.decode(t.SubscriptionsListenRequestParams, cast("Raw", request.raw)).notifications
        uris = [] if wanted.resource_subscriptions is UNSET else wanted.resource_subscriptions
        if not self._owners.keys() >= set(uris):
            await self._resources()
        async with AsyncExitStack() as stack:
            # Open everywhere before it is acknowledged: what changes from then on is announced.
            listening = [
                await stack.enter_async_context(member.listen(**selection))
                for server, member in self._members.items()
                if any((selection := _selection(member, whole, self._of(server, uris))).values())
            ]
            acknowledged = t.SubscriptionsAcknowledgedNotificationParams(notifications=_accepted(listening), meta=meta)
            outlet.notify("notifications/subscriptions/acknowledged", cast("t.Wire", Raw(t.encode(acknowledged))))
            await asyncio.gather(*[_hand_on(changes, outlet, meta) for changes in listening])
        return t.SubscriptionsListenResult(meta=meta)

    async def _from_all(self, capability: str, ask: Callable[[Member], Awaitable[Found]]) -> dict[str, Found]:
        """The answers of all servers that have something to answer, by name."""
        asked = {name: member for name, member in self._members.items() if _has(member, capability)}
        return dict(zip(asked, await asyncio.gather(*map(ask, asked.values())), strict=True))


def _has(member: Member, capability: str) -> bool:
    return t.has_capability(member.capabilities, capability)


def _extensions(member: Member) -> dict[str, Any]:
    """The extensions of a server that a group can hand on; tasks are not among them."""
    declared = member.capabilities.get("extensions")
    found = declared.items() if isinstance(declared, dict) else ()
    return {identifier: settings for identifier, settings in found if identifier != t.TASKS_EXTENSION}


def _selection(member: Member, wanted: t.SubscriptionFilter, uris: list[str]) -> dict[str, Any]:
    """What to listen for at one server: what is wanted and it can tell."""
    return {
        "tools": wanted.tools_list_changed is True and _has(member, "tools.listChanged"),
        "prompts": wanted.prompts_list_changed is True and _has(member, "prompts.listChanged"),
        "resources_list": wanted.resources_list_changed is True and _has(member, "resources.listChanged"),
        "resources": uris if _has(member, "resources.subscribe") else [],
        "extensions": wanted.extra if _extensions(member) else {},
    }


def _accepted(listening: Sequence[Subscription]) -> t.SubscriptionFilter:
    """SUB-4: what any of the servers agreed to tell."""
    agreed = [each.accepted for each in listening if each.accepted is not None]
    uris = {uri: None for each in agreed if each.resource_subscriptions for uri in each.resource_subscriptions}
    accepted = t.SubscriptionFilter(
        tools_list_changed=any(each.tools_list_changed is True for each in agreed) or UNSET,
        prompts_list_changed=any(each.prompts_list_changed is True for each in agreed) or UNSET,
        resources_list_changed=any(each.resources_list_changed is True for each in agreed) or UNSET,
        resource_subscriptions=list(uris) or UNSET,
    )
    for each in agreed:
        accepted.extra.update(each.extra)
    return accepted


async def _hand_on(changes: Subscription, outlet: Outlet, meta: t.MetaDict) -> None:
    async for change in changes:
        if change.kind != "extension":
            outlet.notify(_NOTIFICATIONS[change.kind], _params(change, meta))
        elif change.method is not None:
            members = dict(change.params or {})
            members["_meta"] = {**members.get("_meta", {}), **meta}
            outlet.notify(change.method, cast("t.Wire", Raw(msgspec.json.encode(members))))


def _params(change: Change, meta: t.MetaDict) -> t.Wire:
    if change.uri is not None:
        return t.ResourceUpdatedNotificationParams(uri=change.uri, meta=meta)
    return t.NotificationParams(meta=meta)
