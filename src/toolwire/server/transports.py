"""The transports of a server: any connection, standard input and output, HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Unpack, cast
from weakref import WeakKeyDictionary, WeakSet

from msgspec import UNSET
from msgspec.structs import replace

from toolwire.auth.principal import Principal
from toolwire.loops import run as run_loop
from toolwire.protocol.errors import ServerError
from toolwire.protocol.lifecycle import SUPPORTED
from toolwire.server.catalog import Catalog
from toolwire.server.components.restriction import Effective
from toolwire.server.kernel import Kernel
from toolwire.server.limits import Limits
from toolwire.server.runtime import Runtime
from toolwire.server.settings import Settings
from toolwire.stores import Stores
from toolwire.util.text_lists import text_list
from toolwire.wire.channel import Channel
from toolwire.wire.server_files import current_host, is_started_by_client
from toolwire.wire.shares import caller_of

if TYPE_CHECKING:
    from toolwire.auth.authentication import Gate
    from toolwire.auth.vault.vault import Vault
    from toolwire.http.app_settings import AppSettings
    from toolwire.http.asgi import HttpApp
    from toolwire.http.limits import HttpLimits
    from toolwire.server.metrics import Metrics
    from toolwire.server.run_http import HttpOptions

# Other libraries use these names, and a setting that already exists may hold one of them.
_NAMES_OF_HTTP: dict[str, HttpOptions] = {"streamable-http": {}, "sse": {"sse": True}}


class Serving:
    """The part of a server that runs."""

    name: str
    local_principal: Principal | None
    stores: Stores
    kernel: Kernel
    catalog: Catalog
    metrics: Metrics | None
    apply_settings: Callable[[Settings], None]
    _has_secret: bool
    _vault: Vault | None
    _stores_are_given: bool

    def __init__(self) -> None:
        if (host := current_host()) is not None:
            host.server_created()
        self._run_lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._applications: WeakKeyDictionary[HttpApp, Callable[..., Any] | None] = WeakKeyDictionary()
        """The HTTP applications of the server, with what makes their gates; None: an `auth=` of its own."""
        self.hears_hangup: bool = False
        """Whether SIGHUP means that the configuration is to be read again."""
        self._gates: WeakSet[Gate] = WeakSet()
        """The gates whose users cannot connect accounts yet."""

    @property
    def auth(self) -> Any:
        """The verifier over HTTP, a callable, a list of those, or a `ResourceServer`; None lets everybody in."""
        return self.kernel.settings.auth

    @auth.setter
    def auth(self, auth: Any) -> None:
        self.apply_settings(replace(self.kernel.settings, auth=auth))

    @property
    def limits(self) -> Limits:
        return self.kernel.settings.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.apply_settings(replace(self.kernel.settings, limits=limits))

    @property
    def active(self) -> bool:
        """Return whether `run` or `start` is under way."""
        return self._stop is not None

    async def serve(
        self, channel: Channel, *, principal: Principal | None = None, revisions: Sequence[str] = SUPPORTED
    ) -> None:
        """Serve one connection until it ends; `revisions` are those that its transport belongs to."""
        known = self.local_principal if principal is None else principal
        await self._runtime().serve(channel, known, revisions, caller_of(principal))

    def _runtime(self) -> Runtime:
        """Return what the server has on the running loop; make it if there is nothing yet."""
        return cast("Runtime", self.kernel.runtimes.here())

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
        trusted_proxies: Iterable[str] = (),
        auth: Any = UNSET,
    ) -> HttpApp:
        """Return an ASGI application to mount anywhere, or to hand to any ASGI server.

        `public_url` is the address that clients use, when a proxy stands in front: with the path of the endpoint or
        without. `allowed_origins` are the origins of web pages that may call and read the answers, such as
        `https://app.example`, or `*` for all (CORS); `cors` is another name for it. `auth` says who is let in, instead
        of the server's own. `stateless` gives legacy clients no session: each of their requests stands alone, without
        subscriptions, notices of changes or log messages. `sse` adds the transport of 2024-11-05 at `/sse` and
        `/messages`. `trusted_proxies` are the addresses and networks of proxies whose `X-Forwarded-For` says where a
        request comes from, so that callers without a principal are told apart.
        """
        from toolwire.http.app_settings import AppSettings
        from toolwire.http.asgi import HttpApp
        from toolwire.http.callers import Callers
        from toolwire.http.origin_check import Guard

        guard = Guard(
            allowed_hosts=text_list(allowed_hosts, "allowed_hosts="),
            allowed_origins=(*text_list(allowed_origins, "allowed_origins="), *text_list(cors, "cors=")),
            public_url=public_url,
            local_pages=True,
        )
        address = _before(path, public_url)
        application = HttpApp(
            self._runtime,
            path=path,
            guard=guard,
            settings=AppSettings(
                limits=_http_limits(self.limits),
                gate=self._gate(self.auth if auth is UNSET else auth, self.kernel.access.effective, path, address),
            ),
            stateless=stateless,
            sse=sse,
            pages=self._pages(),
            callers=Callers(text_list(trusted_proxies, "trusted_proxies=")),
        )
        self._applications[application] = (
            None if auth is not UNSET else partial(self._gate, path=path, public_url=address)
        )
        if self.metrics is not None:
            from toolwire.server.observe.switches import measure_sessions

            measure_sessions(self.metrics, application)
        return application

    def _pages(self) -> dict[str, Any]:
        """Return the pages that an HTTP application has beside its endpoint."""
        return {} if self.metrics is None else {"/metrics": self.metrics.page()}

    def _gate(self, auth: Any, effective: Effective, path: str, public_url: str | None, beside: Any = None) -> Any:
        if auth is None:
            return None
        from toolwire.auth.authentication import make_gate

        gate = make_gate(
            auth,
            name=self.name,
            path=path,
            public_url=public_url,
            sealer=self.kernel.questions.sealer,
            has_secret=self._has_secret,
            kv=self.stores.kv,
            effective=effective,
            share=self.limits.share,
            beside=beside,
        )
        if gate is not None:
            self._gates.add(gate)
            if self._vault is not None:
                self._open_accounts(self._vault)
        return gate

    def _settings_of_applications(
        self, settings: Settings, effective: Effective | None
    ) -> list[tuple[HttpApp, AppSettings]]:
        """Make the settings of all HTTP applications that follow from other options of the server.

        An application with an `auth=` of its own keeps its gate.
        """
        if not self._applications:
            return []
        # Imported here because many servers have no application.
        from toolwire.http.app_settings import AppSettings

        is_same = settings.has_same_admission(self.kernel.settings)
        found: list[tuple[HttpApp, AppSettings]] = []
        for application, make in self._applications.items():
            gate = application.settings.gate
            if make is not None and not is_same:
                # The gate of now decides, too, while the rules for callers change.
                beside = None if settings.beside is None else gate
                gate = make(settings.auth, effective or frozenset, beside=beside) or beside
            found.append((application, AppSettings(limits=_http_limits(settings.limits), gate=gate)))
        return found

    def _open_accounts(self, vault: Vault) -> None:
        """Let the users of all gates connect accounts, also those of applications that were made before."""
        from toolwire.auth.vault.gate import open_accounts

        for gate in tuple(self._gates):
            open_accounts(gate, vault)
        self._gates.clear()

    async def serve_stdio(self) -> None:
        """Serve standard input and output until the input ends, a signal comes, or the parent process dies."""
        from toolwire.wire import stdio

        claimed = stdio.claim()
        channel = stdio.StdioChannel(claimed.input, claimed.output, limit=self.limits.line)
        await self._serve_until_stopped(channel, stdio, self.limits.drain_stdio, self.limits.drain_stdio)

    async def _serve_until_stopped(self, channel: Channel, stdio: Any, drain: float, drain_tasks: float = inf) -> None:
        """Serve until the input ends or a signal comes.

        At the end of input, calls get `drain` seconds to finish, and tasks at most `drain_tasks`. A signal leaves none.
        """
        runtime = self._runtime()

        def hurry() -> None:
            session.hurry()
            runtime.work.drain(0.0)

        # A signal that comes while started processes are ended would leave them behind, if nobody watched for it.
        with ExitStack() as watching:
            async with runtime.held():
                await channel.connect()
                session = runtime.open_local_session(channel)
                self._stop = lambda: _discard(runtime.loop.call_soon_threadsafe(session.end))
                unwatch = stdio.parent_watch(hurry)
                try:
                    watching.enter_context(stdio.signals(hurry))
                    await session.run()
                    until = runtime.loop.time() + min(drain_tasks, self.limits.drain_tasks)
                    await session.close(drain)
                    # Only now: calls that came before the end of input begin as always.
                    runtime.work.drain(max(until - runtime.loop.time(), 0.0))
                finally:
                    unwatch()
                    self._stop = None
                    await session.close()

    async def _serve_http(self, application: Any, sockets: Any, signals: Any, ready: Callable[[], None]) -> None:
        """Serve an application of this server on sockets until `stop`, or what `signals` watches, ends it."""
        from toolwire.http.serving import HttpServer

        runtime = self._runtime()
        with ExitStack() as watching:
            async with runtime.held():
                serving = HttpServer(application, sockets, drain=self.limits.drain)
                self._stop = lambda: _discard(runtime.loop.call_soon_threadsafe(serving.stop))
                try:
                    watching.enter_context(signals(serving.stop))
                    await serving.serve(ready)
                finally:
                    self._stop = None

    def _copy_settings(self, other: Serving) -> None:
        """Copy the vault of another server, and whether its secret and its stores were given."""
        self._vault = other._vault
        self._has_secret, self._stores_are_given = other._has_secret, other._stores_are_given

    def _use_stores(self, stores: Stores) -> None:
        """Use other stores from now on. Call this before anything is served."""
        self.stores = stores
        self.kernel.use_stores(stores)
        if self._vault is not None:
            self._vault.use_store(self.stores.kv)

    def run(self, transport: str | Channel = "stdio", **options: Unpack[HttpOptions]) -> None:
        """Run until the client goes away or a signal comes. `transport` is "stdio", "http" or any `Channel`.

        The options of "http" are `host`, `port`, `path`, `workers`, `public_url`, `allowed_hosts`, `allowed_origins`,
        `cors`, `allow_unauthenticated`, `stateless`, `sse`, `trusted_proxies`, `access_log`, `log_level`, `on_ready`
        and `stores_wait`. "streamable-http" is "http", and "sse" is "http" with `sse=True`.

        A command that runs the file of the server, such as `toolwire run`, decides the transport itself. In a process
        that an MCP client of this library started, "http" means "stdio": the client waits at standard output.
        """
        if isinstance(transport, str) and transport in _NAMES_OF_HTTP:
            transport, options = "http", {**_NAMES_OF_HTTP[transport], **options}
        if options and transport != "http":
            raise ServerError(f"run() has no option {next(iter(options))!r} for {transport!r}")
        if transport not in ("stdio", "http") and not isinstance(transport, Channel):
            raise ServerError(f"{transport!r} is not a transport: use 'stdio', 'http' or a Channel")
        if asyncio._get_running_loop() is not None:
            raise ServerError(
                "run() starts an event loop, and one is running here already: await serve_stdio() or serve(channel), "
                "or hand http_app() to an ASGI server"
            )
        if (host := current_host()) is not None and isinstance(transport, str):
            host.run(self, transport, options)
            return
        if transport == "http" and is_started_by_client():
            transport = "stdio"
        if not self._run_lock.acquire(blocking=False):
            raise ServerError(f"The server {self.name!r} is already running")
        try:
            if transport == "http":
                from toolwire.server.run_http import run_http

                run_http(self, options)
                return
            from toolwire.wire import stdio

            if isinstance(transport, Channel):
                run_loop(self._serve_until_stopped(transport, stdio, self.limits.drain))
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


def _http_limits(limits: Limits) -> HttpLimits:
    from toolwire.http.limits import HttpLimits

    shared = (name for name in HttpLimits.__struct_fields__ if name in Limits.__struct_fields__)
    return HttpLimits(body=limits.line, **{name: getattr(limits, name) for name in shared})


def _before(path: str, public_url: str | None) -> str | None:
    """Return a public address without the path of the endpoint, which it may end with."""
    return None if public_url is None else public_url.rstrip("/").removesuffix(path.rstrip("/"))


def _discard(_: object) -> None:
    return
