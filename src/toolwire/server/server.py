"""`Server`: the class that users build their server with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from toolwire.auth.principal import Principal
from toolwire.content import ToolResult
from toolwire.lazy_parts import load_part
from toolwire.loops import plain_callback
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.methods import methods
from toolwire.protocol.revisions import CARRY_EXTENSIONS, MODERN
from toolwire.protocol.sealing import HmacSealer, secret_bytes
from toolwire.protocol.surrogates import encode_readable
from toolwire.schemas import PROFILES, Profile
from toolwire.sealing_aes import make_sealer
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.components import (
    Cache,
    Icons,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    checked_policy,
    icons_of,
)
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.context import Progress
from toolwire.server.described_api import DescribedApi
from toolwire.server.extensions import Extension
from toolwire.server.in_process import Nowhere
from toolwire.server.kernel import Kernel
from toolwire.server.lifespan import checked_lifespan
from toolwire.server.limits import Limits
from toolwire.server.middleware import Middleware
from toolwire.server.registration import Registering, all_of
from toolwire.server.runtime import Runtime
from toolwire.server.settings import Settings
from toolwire.server.transports import Serving
from toolwire.stores import Stores
from toolwire.stores.by_address import open_stores, stores_of_environment
from toolwire.util.numbers import COUNT, check_number

if TYPE_CHECKING:
    from toolwire.audit import AuditLog
    from toolwire.auth.vault.kinds import Kind
    from toolwire.auth.vault.vault import Vault
    from toolwire.search import SearchSettings
    from toolwire.server.connections import Connection
    from toolwire.server.metrics import Metrics
    from toolwire.server.policy import Policy
    from toolwire.server.policy.enforcement import Enforcer
    from toolwire.server.shaping import Shape
    from toolwire.server.tasks.host_tasks import HostTasks


F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]
_SECRET = "TOOLWIRE_SECRET"


class Server(Registering, Serving):
    """An MCP server: its components, its description of itself, and its options."""

    _included_apis: Any = None

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
        stores: Stores | str | os.PathLike[str] | None = None,
        secret: str | bytes | Sequence[str | bytes] | None = None,
        credentials: Mapping[str, Kind] | None = None,
        page_size: int | None = None,
        cache: Cache | None = None,
        schema_profile: Profile = "portable",
        search: SearchSettings | bool | Literal["auto"] = False,
        tasks: bool = False,
        debug: bool = False,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ServerError("A server needs a name")
        if page_size is not None:
            check_number("Server", "page_size", page_size, COUNT)
        if schema_profile not in PROFILES:
            raise ServerError(f"schema_profile= is one of {', '.join(PROFILES)}, not {schema_profile!r}")
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
        self.schema_profile: Profile = schema_profile
        """The schema profile of the tools that the server makes. A `Tool` object that is added has its own."""
        given = _stores(stores)
        self.stores: Stores = given or Stores.memory()
        self._stores_are_given = given is not None
        keys = _secrets(secret)
        self._has_secret = keys is not None
        self._vault: Vault | None = None
        self._secrets = keys
        self.catalog: Catalog = Catalog(self)
        # Declared from the start: a client reads the capabilities once, perhaps long before the first task.
        self.catalog.own_tasks = tasks
        self.kernel: Kernel = Kernel(
            self,
            self.catalog,
            Settings(
                identity=implementation,
                instructions=instructions or "",
                capabilities=dict(capabilities or {}),
                auth=auth,
                local_principal=local_principal,
                policy=checked_policy(policy),
                limits=limits,
                audit=audit,
                page_size=page_size or limits.page,
                cache=cache or Cache(),
                debug=debug,
                search=_search(search),
            ),
            stores=self.stores,
            sealer=make_sealer(keys, random=os.urandom),
            signer=HmacSealer(keys or [os.urandom(32)], purpose="names"),
            make_runtime=lambda: Runtime(self.kernel),
        )
        self.catalog.listeners.append(self._changed)
        self.catalog.reserve_tools(self.settings.reserved_tools)
        if policy is not None:
            self.catalog.guarded = True
            self._enforce()
        self.metrics: Metrics | None = None
        if tracing or metrics or audit is not None:
            from toolwire.server.observe.switches import observe

            observe(self, tracing=tracing, metrics=metrics, audit=audit)
        self.lifespan: Callable[[Self], AbstractAsyncContextManager[Any]] | None = checked_lifespan(lifespan)
        super().__init__()
        for key, kind in (credentials or {}).items():
            self.vault.add(key, kind)
        for each in all_of(middleware):
            self.kernel.use(each)
        self._register_all(tools, resources, templates, prompts, completions, directory)

    @classmethod
    def from_asgi(cls, application: Callable[..., Any], name: str | None = None, **options: Any) -> Self:
        """Make a server of an ASGI application that serves an OpenAPI description, such as `FastAPI()`.

        The application is read and called in this process, without a socket. `options` are those of
        `toolwire.openapi.openapi()`: `keep=` says which operations become tools, and without it none do. The server has
        the title of the API as its name, unless another one is given. For the options of `Server`, include the API in
        a server of your own: `server.include(openapi(application))`.
        """
        return cast("Self", load_part("server.from_asgi")(cls, application, name, options))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the server runs on, of several the first one; None while it does not run."""
        entered = self.kernel.runtimes.entered
        return entered[0].loop if entered else None

    @property
    def lifespan_value(self) -> Any:
        """The value that the lifespan yielded on the running loop, or else on the loop that entered it first."""
        entered = tuple(self.kernel.lifespans.items())
        here = asyncio._get_running_loop()
        own = (value for each, value in entered if each.loop is here)
        return next(own, entered[0][1] if entered else None)

    @property
    def vault(self) -> Vault:
        """The credentials of the server: `credentials=`, and what its users have connected."""
        if self._vault is None:
            from toolwire.auth.vault.vault import Vault  # Here, because few servers have credentials.

            self._vault = Vault(self.stores.kv, self._secrets, server_name=self.name)
            self._open_accounts(self._vault)
            self._vault.on_connected = self._tell_connected
        return self._vault

    def _tell_connected(self, session: str, elicitation: str) -> None:
        params = t.ElicitationCompleteNotificationParams(elicitation_id=elicitation)
        self.kernel.say(session, "notifications/elicitation/complete", params)

    def vault_with(self, credential: str) -> Vault | None:
        """Return the vault of the server if it has a credential of this name."""
        return self._vault if self._vault is not None and credential in self._vault else None

    # --- what belongs to it beside components ---

    def mount(self, other: Server | Any, prefix: str | None = None, *, shape: Shape | None = None) -> Server:
        """Offer another server's components and extensions, with all changes.

        `other` is a `Server`, or anything else that a `Client` connects to: a URL, a command as a list, the path of a
        server file. The names of tools and prompts start with `prefix_`. `shape` says which components come through,
        and in which form.
        """
        upstream: str | None = None
        if not isinstance(other, Server):
            other = cast("Server", load_part("server.mount")(other, prefix))
            upstream = prefix or other.name
        if other.kernel.lowlevel.active or other.kernel.lowlevel.lists:
            raise other._unmountable("low-level handlers")
        if other._vault is not None and other._vault.has_accounts:
            # The pages on which users connect accounts are those of the server that is called.
            raise other._unmountable("credentials= of callers")
        self.mount_catalog(f"{prefix}_" if prefix else "", other.catalog, shape, upstream)
        return self

    def mount_catalog(self, prefix: str, catalog: Catalog, shape: Shape | None, upstream: str | None = None) -> Mount:
        """Mount a catalogue, and return the mount. `upstream` is its name as an upstream of a gateway."""
        if shape is None:
            mount = Mount(prefix, catalog)
        else:
            # Imported here because most servers shape nothing.
            from toolwire.server.shaping import ShapedMount

            mount = ShapedMount(prefix, catalog, shape, self, lambda: self.stores)
            if not catalog.followers:
                # All components are known. Those of a server elsewhere come later, and mistakes are logged then.
                mount.check()
        mount.upstream = upstream
        self.catalog.mount(mount)
        return mount

    def unmount(self, other: Server) -> None:
        """Offer the components of a mounted server no longer. Calls in flight end where they began."""
        self.catalog.unmount(other.catalog)

    def include(self, api: DescribedApi, prefix: str | None = None, *, shape: Shape | None = None) -> Server:
        """Offer the tools of an API that `toolwire.openapi.openapi()` read, also while the server runs.

        The names of the tools start with `prefix_`. `shape` says which of them come through, and in which form.
        Accounts of callers at the API are kept in the vault of this server.
        """
        self.included_apis.add(api, f"{prefix}_" if prefix else "", shape)
        return self

    def exclude(self, api: DescribedApi) -> Server:
        """Offer the tools of an API no longer. Calls in flight end as they began."""
        self.included_apis.remove(api)
        return self

    @property
    def included_apis(self) -> Any:
        """The APIs that this server includes (`toolwire.openapi.included.IncludedApis`)."""
        if self._included_apis is None:
            self._included_apis = load_part("server.include")(self)
        return self._included_apis

    def _unmountable(self, what: str) -> ServerError:
        return ServerError(f"{self.name!r} cannot have {what} and be mounted: give them to the server that mounts it")

    def _check_unmounted(self, what: str) -> None:
        if self.catalog.hosts():
            raise self._unmountable(what)

    def _compose_hosts(self) -> None:
        """Rebuild the chains of every server in which this server is mounted, so that they run its middleware."""
        for catalog in self.catalog.hosts():
            catalog.owner.kernel.compose()

    def extension(
        self,
        identifier: str,
        settings: Mapping[str, Any] | None = None,
        *,
        needs_client: bool = True,
        revisions: Iterable[str] = CARRY_EXTENSIONS,
        families: Iterable[str] = (),
    ) -> Extension:
        """Declare an extension; return the object on which its methods and filters are registered.

        `needs_client=False`: its methods work for every client, whether or not the client declares the extension.
        `revisions` are those on which the extension is declared and its methods exist. `families` are families of
        components (`tools`, `resources`, `prompts`) that are declared with it, also while they are empty.
        """
        extension = Extension(
            identifier,
            settings or {},
            needs_client=needs_client,
            revisions=revisions,
            families=families,
            catalog=self.catalog,
        )
        self.catalog.add_extension(extension)
        return extension

    def restrict(self, tag: str, *, scopes: str | Iterable[str] | None = None, visible_to: VisibleTo = None) -> Server:
        """Restrict every component with a tag, as `scopes=` and `visible_to=` restrict one component.

        Earlier restrictions of the tag stay.
        """
        self.kernel.access.restrict(tag, scopes, visible_to)
        return self

    def use(self, middleware: Middleware) -> Middleware:
        """Add a middleware around every request: `async def (ctx, call_next)`."""
        self.kernel.use(middleware)
        self._compose_hosts()
        return middleware

    def on_list_tools(self, handler: F) -> F:
        """Register the one function that lists the tools (low level)."""
        self._check_unmounted("low-level handlers")
        self.kernel.lowlevel.on_list(handler)
        self.kernel.offer.refresh()
        return handler

    def on_call_tool(self, handler: F) -> F:
        """Register the one function that calls tools (low level): `(name, arguments)` or `(name, arguments, ctx)`."""
        self._check_unmounted("low-level handlers")
        self.kernel.lowlevel.on_call(handler)
        self.kernel.offer.refresh()
        return handler

    def on_notification(self, method: str, callback: Callable[[Any], Any]) -> None:
        """Call a plain function for a notification of a client, such as `notifications/roots/list_changed`."""
        self.kernel.notice_callbacks.setdefault(method, []).append(plain_callback(callback, "on_notification()"))

    # --- its options ---

    @property
    def settings(self) -> Settings:
        """The options that everything which begins now reads."""
        return self.kernel.settings

    @property
    def policy(self) -> Policy | None:
        """The policy for all calls."""
        return cast("Policy | None", self.kernel.settings.policy)

    @policy.setter
    def policy(self, policy: Policy | None) -> None:
        self.apply_settings(replace(self.settings, policy=policy))

    @property
    def local_principal(self) -> Principal | None:
        """The caller on stdio and in memory; None for a caller without any restriction."""
        return self.kernel.settings.local_principal

    @local_principal.setter
    def local_principal(self, principal: Principal | None) -> None:
        self.apply_settings(replace(self.settings, local_principal=principal))

    def apply_settings(self, settings: Settings) -> None:
        """Have everything that begins from now on use other options. Calls that run keep those they began with.

        Raise `ServerError`, and change nothing, for options that an HTTP application of the server cannot use. What was
        counted for policies stays counted.
        """
        kernel, before = self.kernel, self.settings
        checked_policy(settings.policy)
        effective = settings.find_effective()
        applications = self._settings_of_applications(settings, effective)
        self.catalog.reserve_tools(settings.reserved_tools)
        kernel.settings = settings
        for application, each in applications:
            application.apply_settings(each)
        if settings.identity != before.identity:
            kernel.introduce(settings.identity)
        if settings.instructions != before.instructions:
            kernel.offer.tell_instructions(settings.instructions)
        if settings.capabilities != before.capabilities:
            kernel.offer.override(settings.capabilities)
        if settings.policies != before.policies:
            kernel.access.imply(effective)
            if any(each is not None for each in settings.policies):
                self.catalog.guarded = True
                self._enforce()
            self.catalog.changed("policy")
        if _page_options(settings) != _page_options(before):
            self.catalog.changed("pages")
        if settings.search != before.search:
            self.catalog.changed("tools")
        if settings.audit is not before.audit:
            from toolwire.server.observe.audit import change_log  # Here, because few servers have an audit log.

            change_log(self, settings.audit)

    # --- what is there ---

    @property
    def enforcer(self) -> Enforcer | None:
        return self.kernel.enforcer

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
    def identity(self) -> t.Implementation:
        """The name, version, title, description, address and icons that clients are told."""
        return self.kernel.offer.implementation

    @property
    def instructions(self) -> str | None:
        """The instructions that clients are told."""
        return self.kernel.offer.instructions or None

    def capabilities(self, revision: str = MODERN) -> dict[str, Any]:
        """Return the capabilities that clients of a revision are told."""
        return dict(self.kernel.offer.capabilities(revision))

    @property
    def connections(self) -> list[Connection]:
        """The clients that are connected to this process now. Over HTTP, those whose request is being handled."""
        from toolwire.server.connections import connections_of  # Here, because few servers are asked.

        return [each for hub in self.kernel.hubs for each in connections_of(hub)]

    @property
    def subscriptions(self) -> Mapping[str, int]:
        """The addresses with listeners in this process, each with the number of its listeners."""
        from toolwire.server.connections import subscriptions_of  # Here, because few servers are asked.

        return subscriptions_of(self.kernel.hubs, self.kernel.callbacks)

    @property
    def progress(self) -> list[Progress]:
        """The progress of the calls that report with `ctx.track()`."""
        return [each for runtime in self.kernel.runtimes.live for each in runtime.work.tracked]

    @property
    def tasks(self) -> HostTasks:
        """Tasks whose work your program does: `create` (needs `Server(tasks=True)`), `update`, `finish`, `fail`."""
        return self.kernel.hosted_tasks

    # --- telling ---

    def _changed(self, family: str) -> None:
        if self.catalog.guarded:
            self._enforce()

    def _enforce(self) -> None:
        """Apply policies from now on, because the first policy was given."""
        if self.enforcer is None:
            from toolwire.server.policy.enforcement import Enforcer

            self.kernel.enforce(Enforcer(self))

    def notify_changed(self, family: str) -> None:
        """Tell clients that the list of `tools`, `resources` or `prompts` changed, when the server cannot notice it."""
        if family not in ("tools", "resources", "prompts"):
            raise ServerError(f"{family!r} is not tools, resources or prompts")
        self.catalog.changed(family)

    def notify_updated(self, uri: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the subscribers of a resource that it has new contents.

        `params` are further members of the notification, such as `{"_meta": {"version": 7}}`. Clients that do not
        know them ignore them.
        """
        change = Change(
            "updated", uri, params=None if not params else _further(params), server=self.name, mark=self.catalog.mark
        )
        for catalog in (self.catalog, *self.catalog.hosts_told_of(uri)):
            catalog.owner.kernel.tell(change)

    def publish(self, filter: str, key: str, method: str, params: Mapping[str, Any]) -> None:
        """Send an extension's notification to the listen streams whose `filter` names `key`.

        Clients of the legacy era get it if the filter was made with `legacy=True`.
        """
        extension = next((each for each in self.catalog.all_extensions().values() if filter in each.filters), None)
        change = Change(filter, key, method, FrozenParams(params))
        if extension is not None and extension.filters[filter].legacy:
            change = replace(change, extension=extension.identifier, needs_client=extension.needs_client)
        for catalog in (self.catalog, *self.catalog.hosts()):
            catalog.owner.kernel.tell(change)

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None, *, session: str | None = None) -> None:
        """Log to every legacy connection that wants the level; on 2026-07-28 messages belong to a request.

        `session` is the `ctx.session_id` of a client over HTTP: only that client gets the message, on any process.
        """
        t.severity(level)
        # Encoded here, so that a value that is not JSON fails in the caller's own code.
        encoded = Raw(encode_readable(data))
        if self.kernel.offer.has_logging:
            params = t.LoggingMessageNotificationParams(level=level, data=encoded, logger=logger or UNSET)
            self.kernel.log(params, session)

    def subscribe(self, uri: str, callback: Callable[[str], Any]) -> Server:
        """Call a plain function in this process when a resource is updated, in the thread that announces it."""
        self.kernel.callbacks.setdefault(uri, []).append(plain_callback(callback, "subscribe()"))
        return self

    def unsubscribe(self, uri: str, callback: Callable[[str], Any]) -> Server:
        callbacks = self.kernel.callbacks.get(uri, [])
        if callback in callbacks:
            callbacks.remove(callback)
        return self

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
        runtime = self._runtime()
        async with runtime.held():
            # A task of its own, so that the context variables of the caller do not change.
            result = await asyncio.create_task(_awaited(runtime.handle(request, Nowhere(is_local=True))))
        # A result that has members which its type does not know is encoded already.
        return t.decode(row.result, result) if isinstance(result, Raw) else result

    async def process(self, message: str | bytes) -> str | None:
        """Take one JSON-RPC message as text and return the answer as text; None where there is nothing to answer.

        The messages on one event loop form one connection: a legacy client has to `initialize` first. The connection
        and the lifespan last as long as the loop. Messages that are no answers are dropped, and handlers cannot ask the
        client.
        """
        text = message.encode() if isinstance(message, str) else message
        return await self._runtime().process(text)

    def __repr__(self) -> str:
        return f"Server({self.name!r}, version={self.version!r})"


def _further(params: Mapping[str, Any]) -> FrozenParams:
    if "uri" in params:
        raise ServerError("params= of notify_updated() are further members: the uri is the first argument")
    # Copied as JSON, so that a value that cannot be sent fails in the caller's own code.
    return FrozenParams(msgspec.json.decode(encode_readable(params)))


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _search(search: Any) -> SearchSettings | None:
    if search is False or search is None:
        return None
    from toolwire.search.settings import search_settings  # Here, because few servers have a search.

    return search_settings(search)


def _page_options(settings: Settings) -> tuple[int, Cache, int]:
    """Return the options that pages of lists, which are kept, depend on."""
    return settings.page_size, settings.cache, settings.limits.result


def _secrets(secret: Any) -> list[str | bytes] | None:
    origin: str
    keys: list[str | bytes]
    if secret is None:
        # A comma separates them. So a new secret can be added, and the old one taken away, without a change of code.
        origin, keys = _SECRET, [each.strip() for each in os.environ.get(_SECRET, "").split(",") if each.strip()]
    else:
        origin, keys = "secret=", [secret] if isinstance(secret, str | bytes) else list(secret)
        if not keys:
            raise ServerError("secret= is an empty list: leave it out, or give at least one secret")
    try:
        for each in keys:
            secret_bytes(each)
    except ValueError as error:
        raise ServerError(f"{origin} cannot be used: {error}") from None
    return keys or None


def _stores(stores: Stores | str | os.PathLike[str] | None) -> Stores | None:
    if stores is None:
        return stores_of_environment()
    return stores if isinstance(stores, Stores) else open_stores(stores)
