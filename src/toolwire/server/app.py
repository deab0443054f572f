"""`Server`: what a user builds, and the ways to run it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw

from toolwire import logs
from toolwire.auth.principal import Principal
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.lifecycle import SUPPORTED, Incoming, ServerLifecycle
from toolwire.protocol.methods import methods
from toolwire.protocol.peer import Peer
from toolwire.protocol.revisions import MODERN
from toolwire.sealing_aes import make_sealer
from toolwire.server import discovery
from toolwire.server.catalog import Catalog
from toolwire.server.completion import Completion
from toolwire.server.components import (
    Cache,
    Component,
    Icons,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    checked_policy,
    icons_of,
)
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.direct import Direct, Nowhere
from toolwire.server.endpoint import Endpoint
from toolwire.server.extensions import Extension
from toolwire.server.kernel import Kernel
from toolwire.server.life import Life
from toolwire.server.limits import Limits
from toolwire.server.middleware import Middleware
from toolwire.server.relay import BusRelay
from toolwire.stores import Stores
from toolwire.wire.bus_link import Link
from toolwire.wire.channel import Channel
from toolwire.wire.loops import run as run_loop
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.audit import AuditLog
    from toolwire.server.metrics import Metrics
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcing import Enforcer
    from toolwire.server.tasks.hosting import HostTasks

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]
_SECRET = "TOOLWIRE_SECRET"
# What other libraries call it, for a server whose transport comes from a setting that its users already have.
_NAMES_OF_HTTP: dict[str, dict[str, Any]] = {"streamable-http": {}, "sse": {"sse": True}}


def _all_of(items: Any) -> list[Any]:
    """One item, several, or none."""
    if items is None:
        return []
    is_one = callable(items) or isinstance(items, Component | str) or not isinstance(items, Iterable)
    return [items] if is_one else list(items)


class Server:
    """An MCP server: its components, and what it says about itself."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "1.0.0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Icons = None,
        instructions: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
        tools: Tool | Callable[..., Any] | Iterable[Any] | None = None,
        resources: Resource | Iterable[Resource] | None = None,
        templates: ResourceTemplate | Iterable[ResourceTemplate] | None = None,
        prompts: Prompt | Callable[..., Any] | Iterable[Any] | None = None,
        completions: Mapping[tuple[str, str], Any] | None = None,
        directory: str | os.PathLike[str] | None = None,
        lifespan: Lifespan | None = None,
        auth: Any = None,
        local_principal: Principal | None = None,
        middleware: Middleware | Sequence[Middleware] | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        audit: AuditLog | None = None,
        metrics: Metrics | bool | None = None,
        tracing: Any = None,
        stores: Stores | None = None,
        secret: str | bytes | Sequence[str | bytes] | None = None,
        page_size: int | None = None,
        cache: Cache | None = None,
        debug: bool = False,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ServerError("A server needs a name")
        if page_size is not None and page_size < 1:
            raise ServerError("page_size= is at least 1")
        if capabilities is not None and not isinstance(capabilities, Mapping):
            raise ServerError("capabilities= is a mapping such as {'experimental': {}}")
        limits = limits or Limits()
        implementation = t.Implementation(
            name=name,
            version=version,
            title=title or UNSET,
            description=description or UNSET,
            website_url=website_url or UNSET,
            icons=icons_of(icons),
        )
        self.name = name
        self.version = version
        self.limits = limits
        self.policy: Policy | None = checked_policy(policy)
        self.auth = auth
        """Who is let in over HTTP: a verifier, a callable, a list of those, or a `ResourceServer`."""
        self.local_principal = local_principal
        """Who calls on stdio and in memory; None for somebody to whom no restriction applies."""
        self.stores: Stores = stores or Stores.memory()
        self._stores_are_given = stores is not None
        keys = _secrets(secret)
        self._has_secret = keys is not None
        self.catalog: Catalog = Catalog(self)
        self.kernel: Kernel = Kernel(
            self,
            self.catalog,
            implementation,
            instructions=instructions,
            capabilities=capabilities,
            limits=limits,
            stores=self.stores,
            sealer=make_sealer(keys, random=os.urandom),
            page_size=page_size or limits.page,
            cache=cache or Cache(),
            debug=debug,
        )
        self.catalog.listeners.append(self._changed)
        self.enforcer: Enforcer | None = None
        if policy is not None:
            self.catalog.guarded = True
            self._enforce()
        self.metrics: Metrics | None = None
        if tracing or metrics or audit is not None:
            from toolwire.server.observing import observe

            observe(self, tracing=tracing, metrics=metrics, audit=audit)
        self.lifespan_value: Any = None
        self.lifespan = lifespan
        self._life = Life(self)
        self._parents: list[Server] = []
        self._direct: Direct | None = None
        self._notice_callbacks: dict[str, list[Callable[[Any], Any]]] = {}
        self._run_lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._link: Link | None = None
        for each in _all_of(middleware):
            self.kernel.use(each)
        self._register_all(tools, resources, templates, prompts, completions, directory)

    def _register_all(
        self, tools: Any, resources: Any, templates: Any, prompts: Any, completions: Any, directory: Any
    ) -> None:
        for each in _all_of(tools):
            self.add(each if isinstance(each, Component) else Tool(each))
        for each in [*_all_of(resources), *_all_of(templates)]:
            self.add(each)
        for each in _all_of(prompts):
            self.add(each if isinstance(each, Component) else Prompt(each))
        for key, source in (completions or {}).items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise ServerError(f"The keys of completions= are (prompt or template, argument), not {key!r}")
            target, argument = key
            kind = "ref/resource" if "://" in target or "{" in target else "ref/prompt"
            self.catalog.complete(kind, target, argument, Completion(source))
        if directory is not None:
            for component in discovery.scan(directory).all():
                self.add(component)

    # --- registering ---

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, name: str | None = None, /, **options: Any) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool; bare or called with the options of `Tool`. Returns the function."""
        if isinstance(function, str):
            options.setdefault("name", function)
            function = None
        return self._decorate(function, lambda each: Tool(each, **options))

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, name: str | None = None, /, **options: Any) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt; bare or called with the options of `Prompt`. Returns the function."""
        if isinstance(function, str):
            options.setdefault("name", function)
            function = None
        return self._decorate(function, lambda each: Prompt(each, **options))

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as a resource, or as a template when the address has `{variables}`."""
        if callable(uri):
            raise ServerError('A resource needs an address: @server.resource("note://today")')
        kind: Any = ResourceTemplate if "{" in uri else Resource

        def register(function: F) -> F:
            self.add(kind(uri, function, **options))
            return function

        return register

    def completion(self, *, prompt: str | None = None, template: str | None = None, argument: str) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or a variable of a template."""
        if (prompt is None) == (template is None):
            raise ServerError("A completion is for prompt= or for template=, one of the two")
        kind, target = ("ref/prompt", prompt) if prompt is not None else ("ref/resource", template)

        def register(function: F) -> F:
            self.catalog.complete(kind, str(target), argument, Completion(function))
            return function

        return register

    def _decorate(self, function: Any, make: Callable[[Any], Component]) -> Any:
        def register(each: F) -> F:
            self.add(make(each))
            return each

        return register if function is None else register(function)

    def add(self, component: Component) -> Server:
        """Add a component, at any time and from any thread; every client that can be told is told."""
        self.catalog.add(component)
        return self

    def remove(self, component: Component | str) -> Server:
        """Remove a component, or the one of that name or address."""
        self.catalog.remove(component)
        return self

    def mount(self, other: Server, prefix: str | None = None) -> Server:
        """Offer another server's components as well, live; the names of its tools and prompts start with `prefix_`."""
        if not isinstance(other, Server):
            raise ServerError(f"Only a Server can be mounted, not {type(other).__name__}")
        self.catalog.mount(f"{prefix}_" if prefix else "", other.catalog)
        other._parents.append(self)
        return self

    def extension(self, identifier: str, settings: Mapping[str, Any] | None = None) -> Extension:
        """Declare an extension; its methods and filters are registered on what this returns."""
        extension = self.kernel.extensions[identifier] = Extension(identifier, settings or {})
        self.kernel.refresh()
        return extension

    def restrict(self, tag: str, *, scopes: str | Iterable[str] | None = None, visible_to: VisibleTo = None) -> Server:
        """Say of every component with a tag what `scopes=` and `visible_to=` say of one."""
        self.kernel.access.restrict(tag, scopes, visible_to)
        return self

    def use(self, middleware: Middleware) -> Middleware:
        """Add a middleware around every request: `async def (ctx, call_next)`."""
        self.kernel.use(middleware)
        return middleware

    def on_list_tools(self, handler: F) -> F:
        """Low level: the one function that lists the tools."""
        self.kernel.lowlevel.on_list(handler)
        self.kernel.refresh()
        return handler

    def on_call_tool(self, handler: F) -> F:
        """Low level: the one function that calls tools, `(name, arguments)` or `(name, arguments, ctx)`."""
        self.kernel.lowlevel.on_call(handler)
        self.kernel.refresh()
        return handler

    def on_notification(self, method: str, callback: Callable[[Any], Any]) -> None:
        """Call back for a notification of a client, such as `notifications/roots/list_changed`."""
        self._notice_callbacks.setdefault(method, []).append(callback)

    # --- what is there ---

    @property
    def tools(self) -> list[Tool]:
        return [found.component for _, found in sorted(self.catalog.all("tools").items())]

    @property
    def resources(self) -> list[Resource]:
        return [found.component for _, found in sorted(self.catalog.all("resources").items())]

    @property
    def templates(self) -> list[ResourceTemplate]:
        return [found.component for _, found in sorted(self.catalog.all("templates").items())]

    @property
    def prompts(self) -> list[Prompt]:
        return [found.component for _, found in sorted(self.catalog.all("prompts").items())]

    @property
    def tasks(self) -> HostTasks:
        """Tasks whose work the host does itself: `create`, `update`, `finish`, `fail`, `cancel`."""
        self.kernel.offer_tasks()
        return self.kernel.tasks.hosted

    @property
    def active(self) -> bool:
        """Whether `run` or `start` is under way."""
        return self._stop is not None

    # --- telling ---

    def _changed(self, family: str) -> None:
        if self.catalog.guarded:
            self._enforce()
        self.kernel.hub.tell(Change(family))

    def _enforce(self) -> None:
        """Hold calls to policies from now on: the first one has been given."""
        if self.enforcer is None:
            from toolwire.server.policy.enforcing import Enforcer

            self.enforcer = Enforcer(self)
            # Before any other middleware, so that what is refused costs nothing and what is answered is masked.
            self.kernel.use(self.enforcer, outermost=True)

    def notify_changed(self, family: str) -> None:
        """Say that the list of `tools`, `resources` or `prompts` changed, where it changed behind the server's back."""
        if family not in ("tools", "resources", "prompts"):
            raise ServerError(f"{family!r} is not tools, resources or prompts")
        self.catalog.changed(family)

    def notify_updated(self, uri: str) -> None:
        """Say that a resource has new contents, to whoever subscribed to it."""
        for server in (self, *self._ancestors()):
            server.kernel.hub.tell(Change("updated", uri))

    def _ancestors(self) -> list[Server]:
        return [each for parent in self._parents for each in (parent, *parent._ancestors())]

    def publish(self, filter: str, key: str, method: str, params: Mapping[str, Any]) -> None:
        """Send an extension's notification to the listen streams whose `filter` names `key`."""
        self.kernel.hub.tell(Change(filter, key, method, FrozenParams(params)))

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Log to every legacy connection that wants the level; on 2026-07-28 messages belong to a request."""
        t.severity(level)
        # Encoded here, so that what is not JSON fails in the hands of whoever logs it.
        encoded = Raw(msgspec.json.encode(data))
        self.kernel.hub.log(t.LoggingMessageNotificationParams(level=level, data=encoded, logger=logger or UNSET))

    def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Server:
        """Call back in this process when a resource is updated."""
        self.kernel.hub.callbacks.setdefault(uri, []).append(callback)
        return self

    def unsubscribe(self, uri: str, callback: Callable[[str], Any]) -> Server:
        callbacks = self.kernel.hub.callbacks.get(uri, [])
        if callback in callbacks:
            callbacks.remove(callback)
        return self

    def _level_changed(self, level: t.LoggingLevel) -> None:
        # C17: a handler that the user installed follows; the library never installs one.
        logs.set_level(level)

    # --- calling without a transport ---

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool in this process, with no transport."""
        raw = UNSET if arguments is None else Raw(msgspec.json.encode(arguments))
        result = await self._locally("tools/call", t.CallToolRequestParams(name=name, arguments=raw))
        if not isinstance(result, t.CallToolResult):
            raise ProtocolError(INVALID_PARAMS, "The tool asked a question, and there is no client to answer it")
        return ToolResult.from_wire(t.decode(t.CallToolResult, t.encode(result)))

    async def read_resource(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource in this process, by its address or its name, with no transport."""
        uri = self.catalog.address(uri)
        result = await self._locally("resources/read", t.ReadResourceRequestParams(uri=uri))
        return result.contents  # type: ignore[no-any-return]

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> t.GetPromptResult:
        """Get a prompt in this process, with no transport."""
        raw = UNSET if arguments is None else Raw(msgspec.json.encode(arguments))
        return await self._locally("prompts/get", t.GetPromptRequestParams(name=name, arguments=raw))  # type: ignore[no-any-return]

    async def _locally(self, method: str, params: Any) -> Any:
        row = methods(MODERN)[method]
        request = Incoming(0, method, row, params, UNSET, MODERN, {}, UNSET, UNSET, UNSET, self.local_principal)
        async with self._life.held():
            # A task of its own, so that the caller's context variables stay as they are.
            return await asyncio.create_task(_awaited(self.kernel.handle(request, Nowhere())))

    async def process(self, message: str | bytes) -> str | None:
        """One JSON-RPC message as text in, the answer as text out; None where there is nothing to answer.

        The messages of one server form one connection: a legacy client is expected to `initialize` first. It lasts, and
        with it the lifespan, as long as the event loop.
        """
        if self._direct is None or self._direct.loop is not asyncio.get_running_loop():
            self._direct = Direct(self._local_session, self._life)
        return await self._direct.process(message.encode() if isinstance(message, str) else message)

    # --- serving ---

    async def serve(self, channel: Channel, *, principal: Any = None, revisions: Sequence[str] = SUPPORTED) -> None:
        """Serve one connection until it ends; `revisions` are those that its transport belongs to."""
        await self._serve_as(channel, self.local_principal if principal is None else principal, revisions)

    async def _serve_as(self, channel: Channel, principal: Any, revisions: Sequence[str]) -> None:
        async with self._life.held():
            await channel.connect()
            session = self._session(channel, principal, revisions)
            try:
                await session.run()
            finally:
                await session.close(self.limits.drain)

    def _local_session(self, channel: Channel) -> Session:
        return self._session(channel, self.local_principal)

    def _session(self, channel: Channel, principal: Any = None, revisions: Sequence[str] = SUPPORTED) -> Session:
        peer = Peer(ServerLifecycle(self.kernel, revisions), max_depth=self.limits.depth, max_batch=self.limits.batch)
        session = Session(
            channel,
            peer,
            self.kernel,
            in_flight=self.limits.in_flight,
            max_result=self.limits.result,
            principal=principal,
        )
        self.kernel.opened(session)
        return session

    def http_app(
        self,
        *,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        public_url: str | None = None,
        cors: Iterable[str] = (),
        stateless: bool = False,
        sse: bool = False,
        auth: Any = UNSET,
    ) -> Any:
        """An ASGI application to mount anywhere, or to hand to any ASGI server.

        `auth` says who is let in, instead of the server's own. `stateless` gives legacy clients no session: each of
        their requests stands alone. `sse` adds the transport of 2024-11-05 at `/sse` and `/messages`.
        """
        from toolwire.wire.asgi import HttpApp
        from toolwire.wire.http_guard import Guard
        from toolwire.wire.http_limits import HttpLimits

        guard = Guard(allowed_hosts=allowed_hosts, allowed_origins=[*allowed_origins, *cors], public_url=public_url)
        limits = HttpLimits(
            body=self.limits.line,
            depth=self.limits.depth,
            batch=self.limits.batch,
            result=self.limits.result,
            in_flight=self.limits.in_flight,
            exchanges=self.limits.exchanges,
            sessions=self.limits.sessions,
            session_idle=self.limits.session_idle,
            session_age=self.limits.session_age,
            streams=self.limits.streams,
            drain=self.limits.drain,
        )
        endpoint = Endpoint(self)
        application = HttpApp(
            endpoint,
            path=path,
            guard=guard,
            cors=cors,
            limits=limits,
            stateless=stateless,
            sse=sse,
            gate=self._gate(self.auth if auth is UNSET else auth, path, public_url),
            pages=self._pages(),
        )
        if self.metrics is not None:
            from toolwire.server.observing import measure_sessions

            measure_sessions(self.metrics, application)
        endpoint.when_host_ends = application.drain
        return application

    def _pages(self) -> dict[str, Any]:
        """What an HTTP application shows beside its endpoint."""
        return {} if self.metrics is None else {"/metrics": self.metrics.page()}

    def _gate(self, auth: Any, path: str, public_url: str | None) -> Any:
        if auth is None:
            return None
        from toolwire.auth.gate import make_gate

        return make_gate(
            auth,
            name=self.name,
            path=path,
            public_url=public_url,
            sealer=self.kernel.questions.sealer,
            has_secret=self._has_secret,
            kv=self.stores.kv,
            effective=self.kernel.access.effective,
        )

    def _bus_link(self) -> Link:
        """The one place of this server on the bus, however many applications it has."""
        if self._link is None:
            self._link = Link(self.stores.bus, f"toolwire:{self.name}:all")
            self.kernel.hub.relay = BusRelay(self.kernel.hub, self._link)
        return self._link

    async def serve_stdio(self) -> None:
        """Serve standard input and output until the input ends, a signal comes, or the parent process dies."""
        from toolwire.wire import stdio

        claimed = stdio.claim()
        channel = stdio.StdioChannel(claimed.input, claimed.output, limit=self.limits.line)
        await self._serve_until_stopped(channel, stdio)

    async def _serve_until_stopped(self, channel: Channel, stdio: Any) -> None:
        loop = asyncio.get_running_loop()
        async with self._life.held():
            await channel.connect()
            session = self._local_session(channel)
            self._stop = lambda: _discard(loop.call_soon_threadsafe(session.end))
            unwatch = stdio.parent_watch(session.end)
            try:
                with stdio.signals(session.end):
                    await session.run()
                    await session.close(self.limits.drain)
            finally:
                unwatch()
                self._stop = None
                await session.close()

    async def _serve_http(self, application: Any, sockets: Any, signals: Any, ready: Callable[[], None]) -> None:
        """Serve an application of this server on sockets until `stop`, or what `signals` watches, ends it."""
        from toolwire.wire.http_server import HttpServer

        loop = asyncio.get_running_loop()
        async with self._life.held():
            serving = HttpServer(application, sockets, drain=self.limits.drain)
            self._stop = lambda: _discard(loop.call_soon_threadsafe(serving.stop))
            try:
                with signals(serving.stop):
                    await serving.serve(ready)
            finally:
                self._stop = None

    def _use_stores(self, stores: Stores) -> None:
        """Keep state elsewhere from now on; before anything is served."""
        for name in ("kv", "log", "bus"):
            # In place: several parts of the server hold the same container.
            object.__setattr__(self.stores, name, getattr(stores, name))
        self._link = None

    def run(self, transport: str | Channel = "stdio", **options: Any) -> None:
        """Run until the client goes away or a signal comes. `transport` is "stdio", "http" or any `Channel`.

        The options of "http" are `host`, `port`, `path`, `workers`, `public_url`, `allowed_hosts`, `allowed_origins`,
        `cors`, `allow_unauthenticated`, `stateless`, `sse`, `log_level` and `on_ready`. "streamable-http" is "http",
        and "sse" is "http" with `sse=True`.
        """
        transport = options.pop("transport", transport)
        if isinstance(transport, str) and transport in _NAMES_OF_HTTP:
            transport, options = "http", {**_NAMES_OF_HTTP[transport], **options}
        if options and transport != "http":
            raise ServerError(f"run() has no option {next(iter(options))!r} for {transport!r}")
        if transport not in ("stdio", "http") and not isinstance(transport, Channel):
            raise ServerError(f"{transport!r} is not a transport: use 'stdio', 'http' or a Channel")
        if not self._run_lock.acquire(blocking=False):
            raise ServerError(f"The server {self.name!r} is already running")
        try:
            if transport == "http":
                from toolwire.server.run_http import run_http

                run_http(self, options)
                return
            from toolwire.wire import stdio

            if isinstance(transport, Channel):
                run_loop(self._serve_until_stopped(transport, stdio))
            else:
                stdio.claim()  # Before there is a loop, which may open descriptors of its own.
                run_loop(self.serve_stdio())
        finally:
            self._run_lock.release()

    start = run

    def stop(self) -> None:
        """Stop a server that runs, from any thread."""
        stop = self._stop
        if stop is None:
            raise ServerError(f"The server {self.name!r} is not running")
        stop()

    def __repr__(self) -> str:
        return f"Server({self.name!r}, version={self.version!r})"


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _discard(_: object) -> None:
    return


def _secrets(secret: Any) -> list[str | bytes] | None:
    given = secret if secret is not None else os.environ.get(_SECRET)
    return None if not given else [given] if isinstance(given, str | bytes) else list(given)
