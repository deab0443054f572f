"""`Upstream`: one server behind a gateway, as a server that the gateway mounts.

It is a `Server` like any other, so that access rules, policies, middleware, audit and metrics of the servers that mount
it hold for the upstream, too. Its parts do the work, and each gets what it needs when it is made:

back_connections  the connections and conversations, and the pool
relay             sends requests (`Relay.send`); `guard` and `signs` are its breaker, limits and health checks
follower          reads the lists and follows their changes; `conversations` has those of single client sessions
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
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET

from toolwire._version import __version__
from toolwire.client.connection import ClientConnection
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection
from toolwire.client.target import Target
from toolwire.client.targets import ServerTarget, TargetOptions, resolve
from toolwire.gateway.addresses import Addresses
from toolwire.gateway.availability import Availability
from toolwire.gateway.back_connections import BackConnections, ConnectionBounds, ConnectionsOwner, Conversation
from toolwire.gateway.back_health import BreakerState, HealthChecks, Send, Source, UpstreamGuard, UpstreamLimits
from toolwire.gateway.conversation import Conversations, ListOverlay
from toolwire.gateway.hosts import Hosts
from toolwire.gateway.list_follower import LIST_SECONDS, FollowSettings, ListFollower
from toolwire.gateway.names import MAX_NAME, bounded_name
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_lists import GATEWAYS_KEY, RemoteLists
from toolwire.gateway.upstream_access import UpstreamAccess
from toolwire.gateway.upstream_components import UpstreamComponents
from toolwire.gateway.upstream_lifecycle import UpstreamLifecycle
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.changes import UPDATED
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import NotSupported, ServerError, Timeout, ToolwireError, Unreachable
from toolwire.server.access import client_key
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog
from toolwire.server.components import checked_policy
from toolwire.server.components.restriction import Audience
from toolwire.server.hops import BackFigures
from toolwire.server.offer import is_marked_restricted
from toolwire.server.server import Server
from toolwire.wire.channel import Sender
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.gateway.account_relay import CallerPlaces
    from toolwire.server.policy import Policy

#: A list that is asked for so soon after the end of a call waits for an announcement of what the call changed, so long.
AFTER_CALL_SECONDS: Final = 0.1
ANNOUNCEMENT_SECONDS: Final = 0.05
#: How many seconds pass between two looks at a server that was taken away, and has questions or tasks left.
USED_SECONDS: Final = 0.1
_RESTRICTED: Final = (
    "it has scopes=, visible_to= or restrict(), and cannot tell the callers of this gateway apart, because the gateway "
    "is its only caller. Start it with toolwire run FILE --as SUBJECT (and --scope), or give it local_principal=, so "
    "that its restrictions hold for that caller; or serve it over HTTP with auth="
)


class Upstream(Server):
    """One server behind a gateway: its identity, and the parts that hold its state.

    `target` is what a `Client` connects to. `room` is how long the names of tools and prompts may be. `list_timeout` is
    how many seconds lists wait for it. `keeps_stale_lists`: the components stay in lists while the upstream is
    away. `trusts`: what the upstream calls public is public. `views`: its views are offered. `credentials` are those of
    the callers, with which their calls are made, and `credential` is the kind of them. `policy` holds for all calls.
    `forwards` are the headers of clients that go on to the upstream.
    """

    meet: Callable[[Call], Awaitable[None] | None] | None = None

    def __init__(
        self,
        name: str,
        target: Target,
        *,
        timeout: float | None = TIMEOUT_SECONDS,
        revision: str | None = None,
        room: int = MAX_NAME,
        list_timeout: float = LIST_SECONDS,
        keeps_stale_lists: bool = False,
        trusts: bool = False,
        views: bool = True,
        answers_pings: bool = True,
        credentials: CallerPlaces | None = None,
        credential: str | None = None,
        protection: UpstreamLimits | None = None,
        policy: Policy | None = None,
        bounds: ConnectionBounds | None = None,
        forwards: Iterable[str] = (),
        make_connections: Callable[[ConnectionsOwner], BackConnections] | None = None,
        make_relay: Callable[..., Relay] | None = None,
        waits_for_lists: bool = False,
    ) -> None:
        """
        * `make_connections`, `make_relay`: make the connections and the relay in place of the usual ones.
        * `waits_for_lists`: a list of a client waits for each reading that was announced.
        """
        super().__init__(name, lifespan=_running)
        catalog = self.catalog
        if policy is not None:
            # The servers that mount this one apply it. Nobody calls this one itself.
            self.policy: Policy | None = checked_policy(policy)
            catalog.guarded = True
        self.credential: str | None = credential
        """The kind of the credential with which calls are made; None where there is none."""
        self.is_circular: bool = False
        """Whether its lists lead back to the servers that mount this one."""
        self.lifecycle: UpstreamLifecycle = UpstreamLifecycle(list_timeout)
        self.availability: Availability = Availability(
            name, catalog, self.announce_lists, keeps_stale_lists=keeps_stale_lists
        )
        if make_connections is None:
            identity = t.Implementation("toolwire-gateway", __version__)
            make_connections = partial(
                BackConnections, target=target, identity=identity, timeout=timeout, revision=revision, bounds=bounds
            )
        self.back_connections: BackConnections = make_connections(self)
        self.conversations: Conversations = Conversations(self)
        addresses = Addresses(self)
        self.relay: Relay = (make_relay or _relay_for(credentials))(
            name, self.back_connections, self, timeout=timeout, uris=addresses.names, forwards=forwards
        )
        self.components: UpstreamComponents = UpstreamComponents(
            catalog,
            self.relay,
            addresses,
            find_connection=lambda: self.known_connection,
            rename=lambda inner: self.rename(inner, room),
            access=_access_of(target, catalog),
            trusts=trusts,
            views=views,
            answers_pings=answers_pings,
        )
        is_pinned = revision is not None or waits_for_lists
        self.follower: ListFollower = ListFollower(
            self, FollowSettings(timeout=timeout, patience=list_timeout, is_pinned=is_pinned, waits=waits_for_lists)
        )
        limits = protection or UpstreamLimits()
        urls = self.back_connections.urls
        self.guard: UpstreamGuard = UpstreamGuard(
            name,
            limits,
            self.relay.sending,
            self._send_by,
            self._breaker_moved,
            check_needed=lambda: self.signs.plan(),
            succeeded=None if urls is None else urls.forgive,
        )
        self.signs: HealthChecks = HealthChecks(self.guard, limits.health, self._is_quiet, self._ask_for_sign)
        self.hosts: Hosts = Hosts(catalog, self, self.components.withhold_extensions)
        catalog.notes = {MISSING_KEY: [name]}
        catalog.follower = self
        catalog.is_read = False

    @property
    def known_connection(self) -> ClientConnection | None:
        """The connection on which the upstream said what it is, and what it can do. It may be closed."""
        return self.back_connections.shared.connection

    @property
    def uris(self) -> UriNames:
        """The URIs of the upstream that are renamed here."""
        return self.components.uris

    @property
    def shows_views(self) -> bool:
        return self.components.shows_views

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
        if self.hosts.are_replicated:
            # A session of another process may have subscriptions, and lists of its own, at the upstream.
            self._meet_conversations()
        if self.components.access is not None:
            self.components.access.follow()
        self._start_following()
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
        await self.follower.stop()
        await self.conversations.close()
        await self.lifecycle.stop_leaving()
        self.availability.cancel_unlisting()
        await self.relay.held.close()
        await self.components.tool_tasks.close()
        await self.back_connections.close()

    def retire(self) -> None:
        """Offer nothing more. The calls, questions and tasks that began here end here (see `used`)."""
        for conversation in self.conversations:
            self.conversations.end(conversation.key.client)
        self.lifecycle.is_retired = True
        self.availability.watchers.clear()
        self.hosts.leave()
        self.availability.cancel_unlisting()
        self.follower.cancel()
        self.components.clear()

    async def used(self) -> None:
        """Wait until no call is in flight, none waits for an answer, and no task that began here is left."""
        while True:
            await self.back_connections.idle()
            if not self.relay.held.count and not self.components.tool_tasks.is_used:
                return
            await asyncio.sleep(USED_SECONDS)

    async def settle(self) -> None:
        """Wait for the lists of the upstream, up to the deadline that began with `begin`."""
        try:
            async with asyncio.timeout_at(self.lifecycle.deadline):
                await self.follower.first.wait()
        except TimeoutError:
            self._away(f"it has not listed its components after {self.follower.patience:g} seconds, and is waited for")
        self.lifecycle.is_settled.set()
        self._publish_known()

    def _publish_known(self) -> None:
        """Offer the components that were listed last, where clients may have them now."""
        if self.lifecycle.is_offered and self.follower.lists is not None:
            self._publish(self.follower.lists)

    def hold_back(self) -> None:
        """Offer nothing until `offer`, and say of nothing that it is missing."""
        self.lifecycle.is_held_back = True
        self.catalog.notes = {}

    def offer(self) -> None:
        """Offer what was held back."""
        self.lifecycle.is_held_back = False
        self.follower.updates.may_have_missed = True
        if not self.is_ready:
            self._note([self.name], ())
        self._publish_known()

    # --- following ---

    def _start_following(self) -> None:
        self.follower.start()

    async def open_connection(self) -> ClientConnection:
        return await self.back_connections.shared_connection()

    def find_connector(self) -> Connector | None:
        return self.back_connections.shared

    def leave_address(self, error: ToolwireError, connection: ClientConnection) -> bool:
        return self.back_connections.lost(error, cast("RelayConnection", connection), for_sure=True)

    def check_connection(self, connection: ClientConnection) -> None:
        """Raise `NotSupported` for an upstream with restrictions that cannot tell the callers apart."""
        if self.components.access is None and is_marked_restricted(connection.agreement.capabilities):
            raise NotSupported(_RESTRICTED)

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists that came through this gateway itself."""
        self.is_circular = not set(self.hosts.marks).isdisjoint(lists.gateways)
        if self.is_circular:
            # Each reading would find the tools of the one before, under longer names.
            self.follower.lists = RemoteLists()
            self._publish_known()
            raise Unreachable("its lists lead back to this server: the gateways form a circle")

    @property
    def is_ready(self) -> bool:
        return self.availability.is_ready

    def take_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        """Offer lists that were just read, unless the breaker is open; return whether they differ."""
        before = self.availability.last_change
        if self.guard.state != "open":
            self._there()
        return self.availability.last_change != before

    def note_lost(self, error: ToolwireError) -> None:
        self._away(str(error))

    def announce_update(self, uri: str, params: Any) -> None:
        self.notify_updated(self.uris.public(uri), params)

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Follow the resources that clients are subscribed to now; return what the client of new ones waits for."""
        call = CURRENT.get(None)
        in_conversation = None if call is None else self._watch_in_conversation(call, uris)
        if in_conversation is not None:
            return in_conversation
        new = [self.uris.inner(uri) for uri in uris if self.components.has_resource(uri)]
        return self.follower.watch(new if self.is_ready else ())

    def watched_uris(self) -> list[str]:
        """Return the URIs, as the upstream has them, that clients are subscribed to outside of conversations."""
        watched = self.hosts.watched(self._is_in_conversation if len(self.conversations) else None)
        return sorted(self.uris.inner(uri) for uri in watched if self.components.has_resource(uri))

    # --- lists ---

    @property
    def is_public(self) -> bool:
        """Return whether the lists are for everybody: the upstream says so, and the operator trusts it."""
        lists = self.follower.lists
        return self.components.trusts and lists is not None and lists.is_public

    def freshen(self) -> Awaitable[None] | None:
        """Read lists again that are older than the upstream allows; return what a client waits for."""
        if self.availability.is_away:
            self.follower.hurry()
        if not self.is_ready:
            return None
        if self.back_connections.has_ended_call(AFTER_CALL_SECONDS):
            return self._freshen_after_call()
        return self._freshen_now()

    def _freshen_now(self) -> Awaitable[None] | None:
        if len(self.conversations) and (call := CURRENT.get(None)) is not None:
            waited = self.conversations.freshen(call)
            if waited is not None:
                return waited
        return self.follower.freshen()

    async def _freshen_after_call(self) -> None:
        """Wait a moment for the announcement of a change that a call made: it comes on another stream."""
        await asyncio.sleep(ANNOUNCEMENT_SECONDS)
        waited = self._freshen_now()
        if waited is not None:
            await waited

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        """Read the lists for a call of a tool that is not listed; None where that tells nothing new."""
        if not self.is_ready:
            return None
        return self.conversations.look_again(call) or self.follower.look_again()

    async def suspect(self) -> None:
        """Read the lists again, because something went wrong that outdated lists, or a dead server, may explain."""
        await self.follower.suspect()

    def note_change(self, conversation: Conversation, method: str | None, uri: str | None) -> None:
        """Read lists again, because a legacy upstream announced a change in a conversation."""
        if method != UPDATED and not self.conversations.note_change(conversation, method):
            self._read_again(conversation.credential)

    def _read_again(self, credential: Hashable) -> None:
        self.follower.read_again()

    # --- conversations ---

    @property
    def back_key(self) -> str:
        return self.relay.key

    def find_shared_lists(self, credential: Hashable) -> RemoteLists | None:
        return self.follower.lists

    async def read_shared_lists(self, credential: Hashable) -> None:
        await self.follower.refresh()

    def fill_overlay(self, overlay: ListOverlay) -> None:
        """Make the components of an overlay. Those that the shared lists have, too, are the same objects."""
        overlay.catalog.follower = self
        self.components.begin_overlay(overlay.catalog)
        self.components.settle_addresses(self._all_lists())
        self.components.fill_overlay(overlay.catalog, overlay.lists)

    def hide_shared(self, audience: Audience | None) -> None:
        self.catalog.own_audience = audience

    def _overlaid_lists(self) -> list[RemoteLists]:
        return [each.overlay.lists for each in self.conversations if each.overlay is not None]

    def _all_lists(self) -> Iterable[RemoteLists]:
        """Return the shared lists, and those of the overlays."""
        shared = () if self.follower.lists is None else (self.follower.lists,)
        return (*shared, *self._overlaid_lists())

    def _is_in_conversation(self, client: Hashable, uri: str) -> bool:
        return self.conversations.has_subscribed(client, self.uris.inner(uri))

    def _watch_in_conversation(self, call: Call, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Subscribe in the conversation of a legacy client; None where its calls go over the shared connection."""
        connection = self.known_connection
        is_legacy = connection is not None and not connection.modern and client_key(call.request, call.outlet)
        if not is_legacy or not self.is_ready or self.back_connections.is_shared:
            return None
        if call.method == "resources/unsubscribe":
            known = self.conversations.find(call)
            if known is not None:
                known.unsubscribe(self.uris.inner(call.params.uri))
            return None
        new = self.components.own_uris(call, uris)
        return self.conversations.subscribe(call, new) if new else None

    def _meet_conversations(self) -> None:
        self.meet = self.conversations.meet
        self.hosts.compose()

    # --- what clients do ---

    def end_session(self, session: str) -> None:
        self.back_connections.end_session(session)

    def end_connection(self, session: Session) -> None:
        self.conversations.end(session)

    def tell_roots_changed(self, client: Hashable) -> None:
        self.back_connections.tell_roots_changed(client)

    # --- components ---

    def _publish(self, lists: RemoteLists) -> None:
        """Offer the components in the lists. Clients are told of a change only if there is one."""
        if self.lifecycle.is_retired:
            return
        self.availability.cancel_unlisting()
        components, catalog = self.components, self.catalog
        generation = self.uris.generation
        components.settle_addresses(self._all_lists())
        changed = components.fill(catalog, lists)
        self.conversations.compare_all()
        for each in self.conversations:
            if each.overlay is not None and (self.uris.generation != generation or changed):
                components.fill_overlay(each.overlay.catalog, each.overlay.lists)
        if not (catalog.is_read or self.is_circular or lists.is_partial):
            catalog.is_read = True
            changed = list(dict.fromkeys((*changed, "tools")))  # Pins approve the first list, also an empty one.
        own = [self.name] if lists.is_partial else []
        self._note([*own, *(f"{self.name}/{each}" for each in lists.missing)], lists.gateways)
        if changed or self.availability.last_change is None:
            self.availability.note_change()
        for family in changed:
            catalog.changed(family, for_sure=False)
        if "resources" in changed:
            # Clients may be subscribed already, such as those of a server in whose place this one is now.
            self.follower.want()
        self.availability.tell_watchers()

    def has_named_secret(self, uri: str) -> bool:
        """Return whether the server named a URI to the caller that others should not get."""
        return self.components.has_named_secret(uri)

    # --- the state of the upstream ---

    def figures(self) -> BackFigures:
        """Return what the metrics say of the upstream, beside the requests to it."""
        connections = self.back_connections
        return BackFigures(
            self.guard.state,
            self.guard.waiting + connections.waiting,
            connections.target.transport,
            connections.count,
            self.follower.kept,
            self.follower.readings,
            {} if connections.urls is None else {url: why is None for url, why in connections.urls.errors.items()},
        )

    def note_closed(self, conversation: Conversation) -> None:
        self.conversations.lose(conversation)

    def is_kept(self, client: Hashable) -> bool:
        return self.conversations.keeps(client)

    def note_moved(self) -> None:
        self.follower.follow_elsewhere()

    def record_failure(self, error: ToolwireError, source: Source) -> None:
        # The process of one caller says nothing about those of others.
        if self.relay.shares_connection or self.back_connections.target.transport != "stdio":
            self.guard.record_failure(error, source)

    def find_sender(self, call: Call) -> Sender | None:
        access = self.components.access
        return None if access is None else access.find_sender(call)

    def _send_by(self, send: Send) -> None:
        self.relay.sending = send

    def _breaker_moved(self, state: BreakerState) -> None:
        """Take the components out of lists while the breaker is open, and plan the next health check."""
        if state == "open":
            self._away(f"its calls failed: {self.guard.error}")
        elif self.availability.is_away and self.follower.lists is not None:
            self._there()
        # Also for a server that was taken away: the tasks that began there are asked about.
        self.signs.plan()

    def _is_quiet(self) -> bool:
        """Return whether nothing else tells soon whether the server works: it is there, and no call is in flight."""
        return self.is_ready and not self.back_connections.is_busy

    async def _ask_for_sign(self, seconds: float) -> None:
        connection: RelayConnection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = await self.back_connections.shared_connection()
                await connection.check()
        except (ToolwireError, TimeoutError) as error:
            failure = (
                error
                if isinstance(error, ToolwireError)
                else Timeout(f"it did not answer a health check within {seconds:g} seconds")
            )
            if connection is None or not self.back_connections.lost(failure, connection, for_sure=True):
                raise failure from None
            # Another address is used from now on.

    def is_repeatable(self, tool: Any) -> bool:
        """Return whether a tool, by the name that the server gives it, claims that a second call does no harm."""
        lists = self.follower.lists
        listed = None if lists is None else next((each for each in lists.tools if each.name == tool), None)
        hints = None if listed is None else listed.annotations
        return isinstance(hints, t.ToolAnnotations) and (hints.read_only_hint is True or hints.idempotent_hint is True)

    def _there(self) -> None:
        """Offer the components: the server lists them, and nothing says that it does not work."""
        if self.availability.note_ready():
            # The stream of its changes ended, and what changed meanwhile was told to nobody.
            self.follower.updates.may_have_missed = True
            self.follower.hurry()
        self._publish_known()

    def _away(self, why: str) -> None:
        if self.lifecycle.is_retired:
            return
        self.availability.note_away(why)
        self._note([self.name], ())
        self.availability.unlist_soon()
        self.availability.tell_watchers()

    def keep_stale_lists(self, keeps: bool) -> None:
        """Keep the components in lists while the upstream is away, or not."""
        self.availability.keeps_stale_lists = keeps
        if keeps:
            self.availability.cancel_unlisting()
            if self.catalog.is_unlisted and self.follower.lists is not None:
                self._publish(self.follower.lists)
        elif self.availability.is_away and not self.catalog.is_unlisted:
            self.availability.unlist()

    def announce_lists(self) -> None:
        """Announce that the components left the lists, or came back."""
        for family in ("tools", "prompts", "resources"):
            self.catalog.changed(family, for_sure=False)

    def _note(self, missing: list[str], gateways: Iterable[str]) -> None:
        """Say in lists whose components are missing, or may be out of date, and which gateways they came through."""
        if self.lifecycle.is_held_back:
            return
        notes = {GATEWAYS_KEY: [*self.hosts.marks, *gateways]}
        if missing:
            notes[MISSING_KEY] = missing
        self.availability.show_notes(notes, is_public=self.is_public)

    @property
    def remote_instructions(self) -> str | None:
        """The instructions of the upstream, where they are known."""
        connection = self.known_connection
        told = None if connection is None else getattr(connection, "agreement", None)
        return None if told is None or told.instructions is UNSET else told.instructions


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
