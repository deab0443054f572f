"""The server as an HTTP application sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from toolwire.auth.principal import Principal
from toolwire.protocol.changes import Change
from toolwire.protocol.errors import InsufficientScope
from toolwire.protocol.lifecycle import Incoming, Offer
from toolwire.protocol.sealing import Sealer
from toolwire.server.access import Access
from toolwire.server.catalog import Catalog
from toolwire.server.in_process import Nowhere
from toolwire.server.lifespan import Held
from toolwire.server.offer import ReducedOffer, for_anybody, for_one_request
from toolwire.server.replay_state import Questions, principal_key
from toolwire.server.settings import Settings
from toolwire.server.subscriptions import Hub, LegacyClient
from toolwire.server.upstream_views import UpstreamViews
from toolwire.stores import Stores
from toolwire.wire.bus_link import BusLink
from toolwire.wire.channel import Channel
from toolwire.wire.deadlines import in_time
from toolwire.wire.session import Handler, Session
from toolwire.wire.shares import Caller, is_distinct

if TYPE_CHECKING:
    from toolwire.http.legacy.session_records import BackSession

#: How long messages to the other processes may take to leave when the application stops.
FLUSH_SECONDS: Final = 1.0

HeaderPaths: TypeAlias = Callable[[str], Mapping[str, tuple[str, ...]]]


class ServedKernel(Handler, Protocol):
    """The kernel, as far as transports need it."""

    @property
    def offer(self) -> Offer: ...

    @property
    def access(self) -> Access: ...

    @property
    def needing_client(self) -> list[str]:
        """The extensions that need a client that declares them."""

    @property
    def hub(self) -> Hub: ...

    @property
    def questions(self) -> Questions: ...

    @property
    def upstream_views(self) -> UpstreamViews: ...

    @property
    def settings(self) -> Settings: ...

    def opened(self, session: Session) -> None: ...

    def drain(self) -> None: ...

    def use_stores(self, stores: Stores) -> None: ...


class ServedServer(Protocol):
    """The server, as far as an HTTP application needs it."""

    name: str
    remark: str
    stores: Stores
    catalog: Catalog
    kernel: ServedKernel
    _life: Held

    def _bus_link(self) -> BusLink: ...

    async def _serve_as(
        self,
        channel: Channel,
        principal: Principal | None,
        revisions: Sequence[str],
        caller: Caller,
        handler: Handler | None = None,
    ) -> None: ...


class Endpoint:
    """The server as the HTTP application sees it."""

    def __init__(self, server: ServedServer) -> None:
        self._server = server
        self.name: str = server.name
        self.offer: Offer = server.kernel.offer
        self.handler: Handler = server.kernel
        self._anonymous = ReducedOffer(self.offer, for_anybody)
        self._alone = ReducedOffer(self.offer, self._for_one_request)
        self._anonymous_alone = ReducedOffer(self._anonymous, self._for_one_request)
        self.sealer: Sealer = server.kernel.questions.sealer
        self.link: BusLink = server._bus_link()

    @property
    def stores(self) -> Stores:
        return self._server.stores

    @property
    def is_strict(self) -> bool:
        return self._server.catalog.is_strict

    @property
    def remark(self) -> str:
        return self._server.remark

    def missing(self) -> list[str]:
        """Return the servers behind this one whose components are missing."""
        catalog = self._server.catalog
        return catalog.missing() if catalog.followers else []

    def left_out(self) -> list[str]:
        """Return the components of servers behind this one that cannot be offered."""
        catalog = self._server.catalog
        return catalog.find_left_out() if catalog.followers else []

    def header_paths_for(self, principal: Principal | None) -> HeaderPaths:
        """Return a function that finds the header parameters of those tools that a principal sees."""
        access = self._server.kernel.access
        if not access.active:
            return self._header_paths
        sees = access.view_of(principal).sees

        def visible_paths(tool: str) -> Mapping[str, tuple[str, ...]]:
            views = self._server.kernel.upstream_views
            found = self._server.catalog.tool(tool, sees) or views.find_unlisted(tool, sees)
            return {} if found is None else found.component.headers

        return visible_paths

    def _header_paths(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        catalog = self._server.catalog
        own = catalog.tools.get(tool)
        if own is not None:
            return own.headers
        if not catalog.repeats_arguments:
            return {}
        found = catalog.tool(tool) or self._server.kernel.upstream_views.find_unlisted(tool, None)
        return {} if found is None else found.component.headers

    def client_state(self, connection: Any) -> LegacyClient:
        return LegacyClient(connection)

    def principal_key(self, principal: Principal | None) -> str:
        return principal_key(principal)

    def hearing(self, principal: Principal | None) -> Callable[[Change], bool]:
        access = self._server.kernel.access
        return lambda change: access.may_hear(principal, change)

    def has_moved(self, backs: Mapping[str, BackSession]) -> bool:
        hub = self._server.kernel.hub
        return any(key not in hub.backs and held.server in hub.back_names for key, held in backs.items())

    def roots_changed(self, session: str) -> None:
        self._server.kernel.hub.tell_roots_changed(session)

    def session_ended(self, session: str) -> None:
        self._server.kernel.hub.end_session(session)

    async def admit(self, calls: Sequence[Incoming]) -> None:
        kernel = self._server.kernel
        try:
            kernel.access.admit_all(calls)
        except InsufficientScope:
            for call in calls:
                # Observers and metrics count this call as refused.
                if kernel.access.needed(call) is not None:
                    with suppress(InsufficientScope):
                        await kernel.handle(call, Nowhere(is_local=False))
            raise

    async def serve(
        self, channel: Channel, principal: Principal | None, revisions: Sequence[str], caller: Caller, handler: Handler
    ) -> None:
        await self._server._serve_as(channel, principal, revisions, caller, handler)

    def offer_to(self, principal: Principal | None) -> Offer:
        return self.offer if is_distinct(principal) else self._anonymous

    def offer_alone_to(self, principal: Principal | None) -> Offer:
        return self._alone if is_distinct(principal) else self._anonymous_alone

    def _for_one_request(self, capabilities: dict[str, Any]) -> dict[str, Any]:
        return for_one_request(capabilities, self._server.kernel.needing_client)

    def check_loop(self) -> None:
        """Raise `ServerError` when the server runs on another event loop."""
        self._server._life.check_loop()

    async def start(self) -> None:
        await self._server._life.enter()
        self.link.open()
        await self._announce_lists()

    def drain(self) -> None:
        self._server.kernel.drain()

    async def stop(self) -> None:
        self.drain()
        # The last changes that were told here are for the clients of other processes, too.
        await in_time(FLUSH_SECONDS, self.link.flushed())
        await self._announce_lists()
        self.link.close()
        await self._server._life.exit()

    async def _announce_lists(self) -> None:
        relay = self._server.kernel.hub.relay
        if relay is not None:
            await relay.announce_lists()
