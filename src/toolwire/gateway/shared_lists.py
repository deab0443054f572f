"""`SharedLists`: the lists of one upstream that all clients share, followed and offered as components.

`AccountLists` has the lists that an upstream shows to holders of accounts, each its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol, cast

from toolwire.client.connection import ClientConnection
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection
from toolwire.gateway.availability import Availability
from toolwire.gateway.back_connections import BackConnections, Conversation
from toolwire.gateway.back_health import UpstreamGuard
from toolwire.gateway.capability_lists import CapabilityLists
from toolwire.gateway.conversation import Conversations, ListOverlay
from toolwire.gateway.hosts import Hosts
from toolwire.gateway.list_follower import FollowSettings, ListFollower
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_lists import KnownServer, RemoteLists
from toolwire.gateway.upstream_components import UpstreamComponents
from toolwire.gateway.upstream_lifecycle import UpstreamLifecycle
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol import types as t
from toolwire.protocol.changes import UPDATED
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import NotSupported, ToolwireError, Unauthorized, Unreachable
from toolwire.protocol.upstreams import GATEWAYS_KEY, GatewayMark
from toolwire.server.access import client_key
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog, Follower
from toolwire.server.components.restriction import Audience
from toolwire.server.offer import is_marked_restricted

#: A list that is asked for so soon after the end of a call waits for an announcement of what the call changed, so long.
AFTER_CALL_SECONDS: Final = 0.1
ANNOUNCEMENT_SECONDS: Final = 0.05
_RESTRICTED: Final = (
    "it has scopes=, visible_to= or restrict(), and cannot tell the callers of this gateway apart, because the gateway "
    "is its only caller. Start it with toolwire run FILE --as SUBJECT (and --scope), or give it local_principal=, so "
    "that its restrictions hold for that caller; or serve it over HTTP with auth="
)


class ListsOwner(Follower, Protocol):
    """The upstream that lists belong to, with the parts that they use."""

    name: str
    catalog: Catalog
    back_connections: BackConnections
    relay: Relay
    guard: UpstreamGuard
    components: UpstreamComponents
    availability: Availability
    hosts: Hosts
    lifecycle: UpstreamLifecycle

    def notify_updated(self, uri: str, params: Any = None) -> None:
        """Announce to clients that a resource has new contents."""


class SharedLists:
    """Follows the lists of one upstream, and offers what is in them."""

    load_caller_lists: Callable[[Call], Awaitable[None] | None] | None = None
    """Called before a request is looked at, where components differ between callers."""

    def __init__(self, owner: ListsOwner, settings: FollowSettings) -> None:
        self.owner: ListsOwner = owner
        self.name: str = owner.name
        self.catalog: Catalog = owner.catalog
        self.back_connections: BackConnections = owner.back_connections
        self.log: UpstreamLog = owner.back_connections.log
        self.relay: Relay = owner.relay
        self.components: UpstreamComponents = owner.components
        self.availability: Availability = owner.availability
        self.hosts: Hosts = owner.hosts
        self.follower: ListFollower = ListFollower(self, settings)
        self.conversations: Conversations = Conversations(self)
        """The lists and subscriptions of single client sessions."""
        self.capability_lists: CapabilityLists = CapabilityLists(self, settings.timeout)
        """The lists for clients that declare less than the gateway can carry."""
        self.is_circular: bool = False
        """Whether the upstream is one of the servers that mount it."""

    @property
    def known_connection(self) -> KnownServer | None:
        """The capabilities of the upstream, from a connection that may be closed."""
        return self.back_connections.shared.connection

    # --- beginning and end ---

    def start(self) -> None:
        """Follow the lists until `stop`."""
        if self.hosts.are_replicated:
            # A session of another process may have subscriptions, and lists of its own, at the upstream.
            self._load_session_lists()
        self._start_following()

    def _load_session_lists(self) -> None:
        self.load_caller_lists = self.conversations.take_up_session
        self.hosts.compose()

    def _start_following(self) -> None:
        self.follower.start()

    async def stop(self) -> None:
        """Follow the lists no more."""
        await self.follower.stop()
        await self.conversations.close()
        await self.capability_lists.close()

    def retire(self) -> None:
        """Forget the lists of client sessions, and follow the shared ones no more."""
        for conversation in self.conversations:
            self.conversations.end(conversation.key.client)
        self.capability_lists.drop_sets()
        self.follower.cancel()

    async def wait_until_known(self) -> None:
        """Wait for the lists of the upstream, up to the deadline that began with its start."""
        lifecycle = self.owner.lifecycle
        try:
            async with asyncio.timeout_at(lifecycle.deadline):
                await self.follower.first.wait()
        except TimeoutError:
            self._note_away(
                f"it has not listed its components after {self.follower.patience:g} seconds, and is waited for"
            )
        lifecycle.is_settled.set()
        self._publish_known()

    def offer(self) -> None:
        """Offer what was held back."""
        self.follower.updates.may_have_missed = True
        if not self.is_ready:
            self._show_missing([self.name])
        self._publish_known()

    def apply_stale_rule(self) -> None:
        """Keep the components of an upstream that is away in lists from now on, or take them out."""
        if self.availability.keeps_stale_lists:
            self.availability.cancel_unlisting()
            if self.catalog.is_unlisted and self.follower.lists is not None:
                self._publish(self.follower.lists)
        elif self.availability.is_away and not self.catalog.is_unlisted:
            self.availability.unlist()

    # --- the upstream, as its follower has it ---

    async def open_connection(self) -> ClientConnection:
        return await self.back_connections.shared_connection()

    def find_connector(self) -> Connector | None:
        return self.back_connections.shared

    def leave_address(self, error: ToolwireError, connection: ClientConnection) -> bool:
        return self.back_connections.lost(error, cast("RelayConnection", connection), for_sure=True)

    def check_connection(self, connection: KnownServer) -> None:
        """Raise `NotSupported` for an upstream with restrictions that cannot tell the callers apart."""
        if self.components.access is None and is_marked_restricted(connection.agreement.capabilities):
            raise NotSupported(_RESTRICTED)

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists of this gateway itself; leave out of others what came through it."""
        self.is_circular = lists.leave_out_circles(self.hosts.marks)
        if self.is_circular:
            # Each reading would find the tools of the one before, under longer names.
            self.follower.lists = RemoteLists()
            self._publish_known()
            raise Unreachable("its lists lead back to this server: the gateways form a circle")

    @property
    def is_ready(self) -> bool:
        return self.availability.is_ready

    @property
    def shows_views(self) -> bool:
        return self.components.shows_views

    def publish_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        """Offer lists that were just read, unless the breaker is open; return whether they differ."""
        before = self.availability.last_change
        if self.owner.guard.state != "open":
            self._note_ready()
        return self.availability.last_change != before

    def note_lost(self, error: ToolwireError) -> None:
        text = str(error)
        if isinstance(error, Unauthorized) and text != error.message:
            text = f"{error.message}; give it credentials or headers"  # A program and a file have both.
        self._note_away(self.log.texts.describe(error, text))

    def watched_uris(self) -> list[str]:
        """Return the URIs, as the upstream has them, that clients are subscribed to outside of conversations."""
        components = self.components
        watched = self.hosts.watched(self._is_in_conversation if len(self.conversations) else None)
        return sorted(components.uris.inner(uri) for uri in watched if components.has_resource(uri))

    def _is_in_conversation(self, client: Hashable, uri: str) -> bool:
        return self.conversations.has_subscribed(client, self.components.uris.inner(uri))

    def announce_update(self, uri: str, params: Any) -> None:
        if (public := self.components.find_updated(uri)) is not None:
            self.owner.notify_updated(public, params)

    # --- the lists for all clients, as those for each set of capabilities have them ---

    @property
    def overlaid(self) -> Catalog:
        return self.catalog

    @property
    def version(self) -> float | None:
        return self.availability.last_change

    async def open_beside(self, capabilities: Mapping[str, Any]) -> RelayConnection:
        shared = await self.back_connections.shared_connection()
        return await self.back_connections.open_beside(capabilities, shared.revision)

    # --- what clients ask for ---

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
        waiting, current = self.follower.freshen(), CURRENT.get(None)
        further = None if current is None else self.find_capability_lists(current)
        if current is None or further is None:
            return waiting
        return further.freshen(current) if waiting is None else self._freshen_both(waiting, further, current)

    async def _freshen_both(self, waiting: Awaitable[None], further: CapabilityLists, call: Call) -> None:
        await waiting
        again = further.freshen(call)
        if again is not None:
            await again

    def find_capability_lists(self, call: Call) -> CapabilityLists | None:
        """Return the lists for clients that can do less than those of the lists that the caller sees; None for none.

        A client of a legacy pool sees the lists of the pool, whatever it can do.
        """
        connection = self.known_connection
        may_vary = not self.back_connections.is_shared or (connection is not None and connection.modern)
        return self.capability_lists if may_vary else None

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
        waited = self.conversations.look_again(call) or self.capability_lists.look_again(call)
        return waited or self.follower.look_again()

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Follow the resources that clients are subscribed to now; return what the client of new ones waits for."""
        call = CURRENT.get(None)
        in_conversation = None if call is None else self._watch_in_conversation(call, uris)
        if in_conversation is not None:
            return in_conversation
        components = self.components
        new = [components.uris.inner(uri) for uri in uris if components.has_resource(uri)]
        return self.follower.watch(new if self.is_ready else ())

    def _watch_in_conversation(self, call: Call, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Subscribe in the conversation of a legacy client; None for the shared connection."""
        connection = self.known_connection
        is_legacy = connection is not None and (not connection.modern or self.relay.may_open_session(call))
        if not is_legacy or not self.is_ready or self.back_connections.is_shared:
            return None
        if not client_key(call.request, call.outlet):
            return None
        if call.method == "resources/unsubscribe":
            known = self.conversations.find(call)
            if known is not None:
                known.unsubscribe(self.components.uris.inner(call.params.uri))
            return None
        new = self.components.own_uris(call, uris)
        return self.conversations.subscribe(call, new) if new else None

    def is_repeatable(self, tool: Any) -> bool:
        """Return whether a tool, by the name that the upstream gives it, claims that a second call does no harm."""
        lists = self.follower.lists
        listed = None if lists is None else next((each for each in lists.tools if each.name == tool), None)
        hints = None if listed is None else listed.annotations
        return isinstance(hints, t.ToolAnnotations) and (hints.read_only_hint is True or hints.idempotent_hint is True)

    # --- what happens at the upstream ---

    @property
    def is_asleep(self) -> bool:
        """Return whether the upstream starts with the next call."""
        return False

    def note_opening(self) -> None:
        """Note that a request opens the shared connection."""

    async def reread_lists(self) -> None:
        """Read the lists again, because something went wrong that outdated lists, or a dead server, may explain."""
        await self.follower.reread_lists()

    def note_change(self, conversation: Conversation, method: str | None) -> None:
        """Read lists again, because a legacy upstream announced a change in a conversation."""
        if method != UPDATED and not self.conversations.note_change(conversation, method):
            self._read_again(conversation.credential)

    def _read_again(self, credential: Hashable) -> None:
        self.follower.read_again()

    def apply_breaker(self) -> None:
        """Take the components out of lists while the breaker is open."""
        if self.owner.guard.state == "open":
            self._note_away(f"its calls failed: {self.owner.guard.error}")
        elif self.availability.is_away and self.follower.lists is not None:
            self._note_ready()

    async def check_upstream(self, seconds: float) -> None:
        """Send a health check, and wait for the answer for so many seconds. Raise what is wrong."""
        await self.back_connections.check(seconds)

    def _note_ready(self) -> None:
        """Offer the components: the server lists them, and nothing says that it does not work."""
        if self.availability.note_ready():
            # The stream of its changes ended, and changes since then were not announced.
            self.follower.updates.may_have_missed = True
            self.follower.hurry()
        self._publish_known()

    def _note_away(self, why: str) -> None:
        """Say in lists that the components are missing, and take them out of lists after a while."""
        if self.owner.lifecycle.is_retired:
            return
        self.availability.note_away(why)
        self._show_missing([self.name])
        self.availability.unlist_soon()
        self.availability.tell_watchers()

    def _show_missing(self, missing: list[str], gateways: list[GatewayMark] | None = None) -> None:
        """Say in lists whose components are missing, or may be out of date, and which gateways they came through."""
        if self.owner.lifecycle.is_held_back:
            return
        notes = {GATEWAYS_KEY: self.hosts.marks}
        if missing:
            notes[MISSING_KEY] = missing
        self.availability.show_notes(notes, gateways or [], is_public=self.is_public)

    def announce(self) -> None:
        """Announce that the components left the lists, or came back."""
        for family in ("tools", "prompts", "resources"):
            self.catalog.changed(family, for_sure=False)

    # --- components ---

    def _publish_known(self) -> None:
        """Offer the components that were listed last, where clients may have them now."""
        if self.owner.lifecycle.is_offered and self.follower.lists is not None:
            self._publish(self.follower.lists)

    def _publish(self, lists: RemoteLists) -> None:
        """Offer the components in the lists; announce a change only where one was made."""
        if self.owner.lifecycle.is_retired:
            return
        self.availability.cancel_unlisting()
        components, catalog = self.components, self.catalog
        generation = components.uris.generation
        components.choose_addresses(self._all_lists())
        changed = components.fill(catalog, lists)
        self.conversations.compare_all()
        if components.uris.generation != generation or changed:
            for each in self._overlays():
                components.fill_overlay(each.catalog, each.lists)
        if not (catalog.is_read or self.is_circular or lists.is_partial):
            catalog.is_read = True
            changed = list(dict.fromkeys((*changed, "tools")))  # Pins approve the first list, also an empty one.
        own = [self.name] if lists.is_partial else []
        self._show_missing([*own, *(f"{self.name}/{each}" for each in lists.missing)], lists.gateways)
        if changed or self.availability.last_change is None:
            self.availability.note_change()
        for family in changed:
            catalog.changed(family, for_sure=False)
        if "resources" in changed:
            # Clients may be subscribed already, such as those of a server in whose place this one is now.
            self.follower.renew_subscription()
        self.availability.tell_watchers()

    def _all_lists(self) -> Iterable[RemoteLists]:
        """Return the shared lists, and those of the overlays."""
        shared = () if self.follower.lists is None else (self.follower.lists,)
        return (*shared, *self._overlaid_lists())

    def _overlays(self) -> list[ListOverlay]:
        own = (each.overlay for each in self.conversations if each.overlay is not None)
        return [*own, *self.capability_lists.overlays]

    def _overlaid_lists(self) -> list[RemoteLists]:
        return [each.lists for each in self._overlays()]

    # --- the shared lists, as conversations have them ---

    def find_shared_lists(self, credential: Hashable) -> RemoteLists | None:
        return self.follower.lists

    async def read_shared_lists(self, credential: Hashable) -> None:
        await self.follower.refresh()

    def fill_overlay(self, overlay: ListOverlay) -> None:
        """Make the components of an overlay. Those that the shared lists have, too, are the same objects."""
        overlay.catalog.follower = self.owner
        self.components.begin_overlay(overlay.catalog)
        self.components.choose_addresses(self._all_lists())
        self.components.fill_overlay(overlay.catalog, overlay.lists)

    def hide_shared(self, audience: Audience | None) -> None:
        self.catalog.own_audience = self.capability_lists.narrow(audience)
