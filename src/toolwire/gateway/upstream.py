"""`Upstream`: one server behind a gateway, as a server that the gateway mounts.

It is a `Server` like any other, so that access rules, policies, middleware, audit and metrics of the servers that mount
it hold for the upstream, too. Its parts do the work, and each gets what it needs when it is made:

back_connections  the connections and conversations, and the pool
relay             sends requests (`Relay.send`); `guard` and `signs` are its breaker, limits and health checks
lists             the lists, followed and offered: `SharedLists`, or `AccountLists` where each caller has an account
components        makes components from the lists, for the catalogue of the server
availability      the state that operators and lists show
hosts             the servers that mount it, and the clients of these
lifecycle         whether it is held back, offered or retired
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, structs

from toolwire._version import __version__
from toolwire.client.target import Target
from toolwire.client.targets import ServerTarget, TargetOptions, resolve
from toolwire.gateway.addresses import Addresses
from toolwire.gateway.availability import Availability
from toolwire.gateway.back_connections import BackConnections, ConnectionBounds, ConnectionsOwner, Conversation
from toolwire.gateway.back_health import BreakerState, HealthChecks, Send, Source, UpstreamGuard, UpstreamLimits
from toolwire.gateway.hosts import Hosts
from toolwire.gateway.list_follower import LIST_SECONDS, FollowSettings
from toolwire.gateway.names import MAX_NAME, bounded_name
from toolwire.gateway.relaying import Relay
from toolwire.gateway.shared_lists import ListsOwner, SharedLists
from toolwire.gateway.upstream_access import UpstreamAccess
from toolwire.gateway.upstream_components import UpstreamComponents
from toolwire.gateway.upstream_lifecycle import UpstreamLifecycle
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS, UpstreamRules
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog
from toolwire.server.components import checked_policy
from toolwire.server.hops import BackFigures
from toolwire.server.server import Server
from toolwire.wire.channel import Sender
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.gateway.account_relay import CallerPlaces
    from toolwire.server.policy import Policy

#: How many seconds pass between two looks at a server that was taken away, and has questions or tasks left.
USED_SECONDS: Final = 0.1


class Upstream(Server):
    """One server behind a gateway: its identity, and the parts that hold its state.

    `target` is what a `Client` connects to. `room` is how long the names of tools and prompts may be. `list_timeout` is
    how many seconds lists wait for it. `find_rules` returns what the gateway says about all upstreams now. `trusts`:
    what the upstream calls public is public. `views`: its views are offered. `credentials` are those of the callers,
    with which their calls are made, and `credential` is the kind of them. `policy` holds for all calls. `forwards` are
    the headers of clients that go on to the upstream.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        timeout: float | None = TIMEOUT_SECONDS,
        revision: str | None = None,
        room: int = MAX_NAME,
        list_timeout: float = LIST_SECONDS,
        find_rules: Callable[[], UpstreamRules] = UpstreamRules,
        trusts: bool = False,
        views: bool = True,
        credentials: CallerPlaces | None = None,
        credential: str | None = None,
        protection: UpstreamLimits | None = None,
        policy: Policy | None = None,
        bounds: ConnectionBounds | None = None,
        forwards: Iterable[str] = (),
        make_connections: Callable[[ConnectionsOwner], BackConnections] | None = None,
        make_relay: Callable[..., Relay] | None = None,
        make_lists: Callable[[ListsOwner, FollowSettings], SharedLists] = SharedLists,
    ) -> None:
        """`make_connections`, `make_relay` and `make_lists` make these parts in place of the usual ones."""
        super().__init__(name, lifespan=_running)
        catalog = self.catalog
        if policy is not None:
            # The servers that mount this one apply it: clients call those, and not this one.
            self.kernel.settings = structs.replace(self.kernel.settings, policy=checked_policy(policy))
            catalog.guarded = True
        self.credential: str | None = credential
        """The kind of the credential with which calls are made; None where there is none."""
        self.lifecycle: UpstreamLifecycle = UpstreamLifecycle(list_timeout)
        target.texts.name = name
        self.availability: Availability = Availability(
            name, catalog, target.texts, lambda: self.lists.announce(), find_rules
        )
        if make_connections is None:
            identity = t.Implementation("toolwire-gateway", __version__)
            make_connections = partial(
                BackConnections,
                target=target,
                identity=identity,
                timeout=timeout,
                revision=revision,
                bounds=bounds,
            )
        self.back_connections: BackConnections = make_connections(self)
        log = self.back_connections.log
        addresses = Addresses(self, log)
        self.relay: Relay = (make_relay or _relay_for(credentials))(
            name, self.back_connections, self, timeout=timeout, uris=addresses.names, forwards=forwards
        )
        self.components: UpstreamComponents = UpstreamComponents(
            catalog,
            self.relay,
            addresses,
            find_connection=lambda: self.lists.known_connection,
            rename=lambda inner: self.rename(inner, room),
            find_rules=find_rules,
            access=_access_of(target, catalog),
            trusts=trusts,
            views=views,
        )
        limits = protection or UpstreamLimits()
        urls = self.back_connections.urls
        self.guard: UpstreamGuard = UpstreamGuard(
            log,
            limits,
            self.relay.sending,
            self._send_by,
            self._breaker_moved,
            check_needed=lambda: self.signs.plan(),
            succeeded=None if urls is None else urls.forgive,
        )
        self.signs: HealthChecks = HealthChecks(
            self.guard, limits.health, self._is_idle, lambda seconds: self.lists.check_upstream(seconds)
        )
        self.hosts: Hosts = Hosts(catalog, self, self.components.withhold_extensions)
        settings = FollowSettings(timeout=timeout, patience=list_timeout, is_pinned=revision is not None)
        self.lists: SharedLists = make_lists(self, settings)
        catalog.notes = {MISSING_KEY: [name]}
        catalog.follower = self
        catalog.is_read = False

    @property
    def uris(self) -> UriNames:
        """The URIs of the upstream that are renamed here."""
        return self.components.uris

    def rename(self, inner: str, room: int) -> str:
        """Return the name here of a tool or prompt. Raise `ServerError` for one that cannot be offered."""
        return bounded_name(inner, room)

    # --- beginning and end ---

    def begin(self) -> None:
        """Connect to the upstream, and follow its lists, until `end`.

        Two servers that mount this one may both run. The first one begins, and the last one ends.
        """
        if not self.lifecycle.enter():
            return
        self.hosts.join()
        if self.components.access is not None:
            self.components.access.follow()
        self.lists.start()
        self.signs.plan()
        self.back_connections.start_failback()

    async def end(self) -> None:
        """Close all connections to the upstream."""
        if not self.lifecycle.leave():
            return
        self.hosts.leave()
        if self.components.access is not None:
            self.components.access.stop_following()
        await self.signs.stop()
        await self.back_connections.stop_failback()
        await self.lists.stop()
        await self.lifecycle.stop_leaving()
        self.availability.cancel_unlisting()
        await self.relay.held.close()
        await self.components.tool_tasks.close()
        await self.back_connections.close()

    def retire(self) -> None:
        """Offer nothing more. The calls, questions and tasks that began here end here (see `used`)."""
        self.lists.retire()
        self.lifecycle.is_retired = self.catalog.is_retired = True
        self.availability.watchers.clear()
        self.hosts.leave()
        self.availability.cancel_unlisting()
        self.components.clear()

    async def used(self) -> None:
        """Wait until no call is in flight, none waits for an answer, and no task that began here is left."""
        relay = self.relay
        while True:
            await self.back_connections.idle()
            if not relay.held.count and not relay.asked and not self.components.tool_tasks.is_used:
                return
            await asyncio.sleep(USED_SECONDS)

    def hold_back(self) -> None:
        """Offer nothing until `offer`, and say of nothing that it is missing."""
        self.lifecycle.is_held_back = True
        self.catalog.notes, self.catalog.gateways = {}, ()

    def offer(self) -> None:
        """Offer what was held back."""
        self.lifecycle.is_held_back = False
        self.lists.offer()

    def apply_rules(self) -> None:
        """Follow the rules for all upstreams, which have changed."""
        self.lists.apply_stale_rule()
        self.components.apply_ping_rule()

    # --- as its catalogue has it ---

    @property
    def load_caller_lists(self) -> Callable[[Call], Awaitable[None] | None] | None:
        return self.lists.load_caller_lists

    @property
    def is_public(self) -> bool:
        return self.lists.is_public

    async def wait_until_known(self) -> None:
        await self.lists.wait_until_known()

    def freshen(self) -> Awaitable[None] | None:
        return self.lists.freshen()

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        return self.lists.look_again(call)

    def has_named_secret(self, uri: str) -> bool:
        return self.components.has_named_secret(uri)

    def is_named_secret(self, uri: str) -> bool:
        return self.components.is_named_secret(uri)

    def figures(self) -> BackFigures:
        """Return what the metrics say of the upstream, beside the requests to it."""
        connections, follower = self.back_connections, self.lists.follower
        return BackFigures(
            self.guard.state,
            self.guard.waiting + connections.waiting,
            connections.target.transport,
            connections.count,
            follower.kept,
            follower.readings,
            {} if connections.urls is None else {url: why is None for url, why in connections.urls.errors.items()},
        )

    # --- as the servers that mount it have it ---

    @property
    def back_key(self) -> str:
        return self.relay.key

    @property
    def back_name(self) -> str:
        return self.relay.name_key

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        return self.lists.watch(uris)

    def end_session(self, session: str) -> None:
        self.back_connections.end_session(session)

    def end_connection(self, session: Session) -> None:
        self.lists.conversations.end(session)

    def tell_roots_changed(self, client: Hashable) -> None:
        self.back_connections.tell_roots_changed(client)

    def hand_on_level(self, client: Hashable, level: t.LoggingLevel) -> list[asyncio.Task[None]]:
        return self.back_connections.hand_on_level(client, level)

    # --- as its connections have it ---

    def note_change(self, conversation: Conversation, method: str | None, uri: str | None) -> None:
        self.lists.note_change(conversation, method)

    def note_closed(self, conversation: Conversation) -> None:
        self.lists.conversations.lose(conversation)

    def is_kept(self, client: Hashable) -> bool:
        return self.lists.conversations.keeps(client)

    def note_opening(self) -> None:
        self.lists.note_opening()

    def note_moved(self) -> None:
        self.lists.follower.follow_elsewhere()

    # --- as its relay has it ---

    async def reread_lists(self) -> None:
        await self.lists.reread_lists()

    def record_failure(self, error: ToolwireError, source: Source) -> None:
        # A process that belongs to one caller says nothing about the processes of the other callers.
        if self.relay.shares_connection or self.back_connections.target.transport != "stdio":
            self.guard.record_failure(error, source)

    def is_repeatable(self, tool: Any) -> bool:
        return self.lists.is_repeatable(tool)

    def find_sender(self, call: Call) -> Sender | None:
        access = self.components.access
        return None if access is None else access.find_sender(call)

    # --- as its guard has it ---

    def _send_by(self, send: Send) -> None:
        self.relay.sending = send

    def _breaker_moved(self, state: BreakerState) -> None:
        self.lists.apply_breaker()
        # Also for a server that was taken away: the tasks that began there are asked about.
        self.signs.plan()

    def _is_idle(self) -> bool:
        """Return whether nothing else tells soon whether the upstream works: it is ready, and no call is in flight."""
        return self.availability.is_ready and not self.back_connections.is_busy and not self.lists.is_asleep

    # --- for operators ---

    @property
    def remote_instructions(self) -> str | None:
        """The instructions of the upstream, where they are known."""
        connection = self.lists.known_connection
        agreement = None if connection is None else getattr(connection, "agreement", None)
        return None if agreement is None or agreement.instructions is UNSET else agreement.instructions


def remote(target: Any, prefix: str | None = None) -> Upstream:
    """Return a server in front of what a `Client` connects to, for `Server.mount`."""
    try:
        place = resolve(target, TargetOptions())
    except TypeError:
        text = f"Only a Server, a URL, a command or a server file can be mounted, not {type(target).__name__}"
        raise ServerError(text) from None
    except ValueError as error:
        raise ServerError(f"The server cannot be mounted: {error}") from None
    return Upstream(prefix or place.label, place, room=MAX_NAME - len(prefix) - 1 if prefix else MAX_NAME)


def _relay_for(credentials: CallerPlaces | None) -> Callable[..., Relay]:
    """Return what makes a relay. Most servers know no accounts of callers, and their calls pay nothing for it."""
    if credentials is None:
        return Relay
    from toolwire.gateway.account_relay import AccountRelay

    return partial(AccountRelay, credentials=credentials)


def _access_of(target: Target, catalog: Catalog) -> UpstreamAccess | None:
    """Return the restrictions of a server of this process, which learns the client of each request from now on."""
    if not isinstance(target, ServerTarget) or not isinstance(target.server, Server):
        return None
    target.is_relayed = True
    return UpstreamAccess(target.server, catalog)


@asynccontextmanager
async def _running(server: Server) -> AsyncIterator[None]:
    assert isinstance(server, Upstream)
    server.begin()
    try:
        yield
    finally:
        await server.end()
