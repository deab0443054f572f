"""`RemoteServer`: a server whose components live at another server.

It is a `Server` like any other, so that access rules, policies, middleware, audit and metrics of the servers that mount
it hold for the other server, too. Its catalogue is filled from the lists of the other server and follows their changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from msgspec import UNSET

from toolwire._version import __version__
from toolwire.client.connection import ClientConnection
from toolwire.client.reconnect import Connector
from toolwire.client.relay import RelayConnection
from toolwire.client.target import Target
from toolwire.client.targets import ServerTarget, TargetOptions, resolve
from toolwire.gateway.addresses import Addresses, Unit, units_of
from toolwire.gateway.back_connections import BackConnections, ConnectionBounds, Conversation
from toolwire.gateway.back_health import BreakerState, HealthChecks, Send, UpstreamGuard, UpstreamLimits
from toolwire.gateway.back_urls import Returning
from toolwire.gateway.conversation import Conversations, ListOverlay
from toolwire.gateway.linked_uris import LinkedUris, may_be_secret, origin_of
from toolwire.gateway.list_follower import LIST_SECONDS, FollowSettings, ListFollower
from toolwire.gateway.names import MAX_NAME, bounded_name
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_components import (
    RemoteCompletion,
    RemotePrompt,
    RemoteResource,
    RemoteTemplate,
    RemoteTool,
    UnlistedResources,
)
from toolwire.gateway.remote_extensions import extensions_of, further_capabilities
from toolwire.gateway.remote_lists import GATEWAYS_KEY, MAX_LEFT_OUT, RemoteLists
from toolwire.gateway.remote_tasks import RemoteTasks
from toolwire.gateway.upstream_access import UpstreamAccess
from toolwire.gateway.upstream_options import TIMEOUT_SECONDS
from toolwire.gateway.uris import UriNames
from toolwire.protocol import types as t
from toolwire.protocol.apps import UI_EXTENSION
from toolwire.protocol.changes import UPDATED
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import (
    NotSupported,
    ServerError,
    Timeout,
    ToolwireError,
    Unreachable,
)
from toolwire.protocol.revisions import MODERN
from toolwire.server.access import client_key
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog, SkillSet
from toolwire.server.components import Component, ToolBase, checked_policy
from toolwire.server.components.restriction import Audience
from toolwire.server.hops import BackFigures
from toolwire.server.offer import is_marked_restricted
from toolwire.server.ping import answer_ping, refuse_ping
from toolwire.server.server import Server
from toolwire.server.subscriptions import Hub
from toolwire.stores import MemoryKV

if TYPE_CHECKING:
    from toolwire.gateway.account_relay import CallerPlaces
    from toolwire.server.policy import Policy

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: The components of a server that is away for this many seconds leave the lists.
GRACE_SECONDS: Final = 5.0
#: How many seconds a server that was added may take to begin, while others end.
BEGIN_SECONDS: Final = 60.0
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
State: TypeAlias = Literal["connecting", "ready", "away"]


class RemoteServer(Server):
    """A server whose components live at another server.

    `target` is what a `Client` connects to. `room` is how long the names of tools and prompts may be. `list_timeout` is
    how many seconds lists wait for the other server. `keeps_stale_lists`: the components stay in lists while the other
    server is away. `trusts`: what the other server calls public is public. `credentials` are those of the callers, with
    which their calls are made. `policy` holds for all calls.
    """

    meet: Callable[[Call], Awaitable[None] | None] | None = None
    has_many_callers: bool = True
    """Whether requests come from several callers, which a server that is a command cannot tell apart."""

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
        connections: BackConnections | None = None,
        credentials: CallerPlaces | None = None,
        protection: UpstreamLimits | None = None,
        policy: Policy | None = None,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        """`connections` are those to use, instead of new ones."""
        super().__init__(name, lifespan=_running)
        if policy is not None:
            # The servers that mount this one apply it. Nobody calls this one itself.
            self.policy: Policy | None = checked_policy(policy)
            self.catalog.guarded = True
        identity = t.Implementation("toolwire-gateway", __version__)
        self.back_connections: BackConnections = connections or BackConnections(
            target, identity, changed=self._note_change, timeout=timeout, revision=revision, bounds=bounds
        )
        self.follower: ListFollower = ListFollower(
            self, FollowSettings(timeout=timeout, patience=list_timeout, is_pinned=revision is not None)
        )
        self.conversations: Conversations = Conversations(self)
        self.back_connections.closed = self.conversations.lose
        self.back_connections.is_kept = self.conversations.keeps
        self._access = _access_of(target, self.catalog)
        self.catalog.upstream_access = self._access
        self._stop_following: Callable[[], None] | None = None
        """Ends the watch over the restrictions of an upstream in this process."""
        self._addresses = Addresses(self)
        self.uris: UriNames = self._addresses.names
        """The URIs of the other server that are renamed here."""
        self.catalog.public_uri = self.uris.public
        self.relay: Relay = _relay(
            credentials,
            name,
            self.back_connections,
            timeout=timeout,
            suspect=self.suspect,
            uris=self._addresses.names,
        )
        self._protection = protection or UpstreamLimits()
        if self._access is not None:
            self.relay.find_sender = self._access.find_sender
        self.guard: UpstreamGuard = UpstreamGuard(
            name, self._protection, self.relay.sending, self._send_by, self._breaker_moved
        )
        if credentials is None or target.transport != "stdio":
            # The process of one caller says nothing about those of others.
            self.relay.on_failure = self.guard.record_failure
        self.credential: str | None = None
        """The kind of the credential with which calls are made; None where there is none."""
        self._returning: Returning | None = None
        if self.back_connections.urls is not None:
            self.relay.on_lost = self.back_connections.lost
            self.back_connections.moved = self.follower.follow_elsewhere
            self.guard.on_success = self.back_connections.urls.forgive
        self.relay.is_repeatable = self.is_repeatable
        self.signs: HealthChecks = HealthChecks(self.guard, self._protection.health, self._is_quiet, self._ask_for_sign)
        self.reads_directories: bool = False
        self.answers_pings: bool = True
        self.origins: frozenset[str] = frozenset()
        self.links: LinkedUris = LinkedUris(self.uris, self.relay.key)
        self.shows_views: bool = True
        self.tool_tasks: RemoteTasks = RemoteTasks(self, name)
        self.catalog.foreign_tasks = self.tool_tasks
        self.state: State = "connecting"
        self.error: str | None = None
        """Why the other server is away; None while it is there."""
        self.published: list[Callable[[], None]] = []
        """Called when the components, or the state of the other server, have changed."""
        self.last_change: float | None = None
        """When the components changed last, in seconds since 1970; None before they were known."""
        self.trusts = trusts
        self.keeps_stale_lists: bool = keeps_stale_lists
        self._was_public = False
        self._unlisting: asyncio.TimerHandle | None = None
        self._room = room
        self._is_offered = False
        self._watched: list[Any] = []
        self._listened: list[Catalog] = []
        self._deadline = 0.0
        self._users = 0
        self._made_for = 0
        """The generation of addresses that the components were made for."""
        self.is_settled: asyncio.Event = asyncio.Event()
        """Set when the lists are known, or when their time is over."""
        self.is_circular: bool = False
        """Whether its lists lead back to the servers that mount this one."""
        self._is_held_back = False
        self.retired: dict[str, Mapping[str, Component]] | None = None
        """The tools and prompts that a server had before it was taken away; None for one that is offered."""
        self.leaving: asyncio.Task[None] | None = None
        """Waits for the end of what began here before the server was taken away."""
        self.catalog.notes = {MISSING_KEY: [name]}
        self.catalog.follower = self
        self.catalog.is_read = False

    @property
    def known_connection(self) -> ClientConnection | None:
        """The connection on which the other server said what it is, and what it can do. It may be closed."""
        return self.back_connections.shared.connection

    def hide_views(self) -> None:
        """Offer no views, and no tools that are for views alone. Call this before `begin`."""
        self.shows_views = False
        self.uris.hide_views()
        self._host_changed("extensions")

    # --- beginning and end ---

    def begin(self) -> None:
        """Connect to the other server, and follow its lists, until `end`.

        Two servers that mount this one may both run. The first one begins, and the last one ends.
        """
        self._users += 1
        if self._users > 1:
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self.follower.patience
        self._is_offered = False
        self.is_settled.clear()
        for catalog in (self.catalog, *self.catalog.hosts()):
            hub = catalog.owner.kernel.hub
            hub.watchers.append(self._watch)
            hub.backs.append(self.relay.key)
            hub.session_callbacks.append(self.back_connections.end_session)
            hub.roots_callbacks.append(self.back_connections.tell_roots_changed)
            hub.closing_callbacks.append(self.conversations.end)
            self._watched.append(hub)
        for catalog in self.catalog.hosts():
            catalog.listeners.append(self._host_changed)
            self._listened.append(catalog)
        if any(not isinstance(catalog.owner.kernel.stores.kv, MemoryKV) for catalog in self.catalog.hosts()):
            # A session of another process may have subscriptions, and lists of its own, at the upstream.
            self._meet_conversations()
        if self._access is not None:
            self._stop_following = self._access.follow()
        self._start_following()
        self.signs.plan()
        self._returning = self.back_connections.returning()

    async def end(self) -> None:
        """Close all connections to the other server."""
        self._users -= 1
        if self._users:
            return
        self._leave_hosts()
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
        await self.signs.stop()
        if self._returning is not None:
            await self._returning.stop()
        await self.follower.stop()
        await self.conversations.close()
        if self.leaving is not None:
            await _stop(self.leaving)
        self.leaving = None
        self._cancel_unlisting()
        await self.relay.held.close()
        await self.tool_tasks.close()
        await self.back_connections.close()

    def _leave_hosts(self) -> None:
        """Hear nothing more of the clients of the servers that mount this one."""
        for hub in self._watched:
            hub.watchers.remove(self._watch)
            hub.session_callbacks.remove(self.back_connections.end_session)
            hub.roots_callbacks.remove(self.back_connections.tell_roots_changed)
            hub.closing_callbacks.remove(self.conversations.end)
            hub.backs.remove(self.relay.key)
        self._watched.clear()
        for catalog in self._listened:
            catalog.listeners.remove(self._host_changed)
        self._listened.clear()

    def retire(self) -> None:
        """Offer nothing more. The calls, questions and tasks that began here end here (see `used`)."""
        catalog = self.catalog
        for conversation in self.conversations:
            self.conversations.end(conversation.key.client)
        self.retired = {"tools": catalog.tools, "prompts": catalog.prompts}
        self.published.clear()
        self.give_up_addresses()
        self._leave_hosts()
        self._cancel_unlisting()
        self.follower.cancel()
        catalog.follower = catalog.elsewhere = None
        catalog.tools, catalog.prompts, catalog.resources, catalog.templates = {}, {}, {}, {}
        catalog.skill_set, catalog.completions, catalog.notes = SkillSet(), {}, {}
        catalog.further_capabilities = {}
        catalog.set_extensions({})
        for family in ("tools", "prompts", "resources"):
            catalog.changed(family, for_sure=False)

    async def used(self) -> None:
        """Wait until no call is in flight, none waits for an answer, and no task that began here is left."""
        while True:
            await self.back_connections.idle()
            if not self.relay.held.count and not self.tool_tasks.is_used:
                return
            await asyncio.sleep(USED_SECONDS)

    async def settle(self) -> None:
        """Wait for the lists of the other server, up to the deadline that began with `begin`."""
        try:
            async with asyncio.timeout_at(self._deadline):
                await self.follower.first.wait()
        except TimeoutError:
            self._away(f"it has not listed its components after {self.follower.patience:g} seconds, and is waited for")
        self.is_settled.set()
        if not self._is_held_back:
            self._begin_publishing()

    def _begin_publishing(self) -> None:
        self._is_offered = True
        if self.follower.lists is not None:
            self._publish(self.follower.lists)

    def hold_back(self) -> None:
        """Offer nothing until `offer`, and say of nothing that it is missing."""
        self._is_held_back = True
        self.catalog.notes = {}

    async def until_settled(self) -> None:
        """Wait until the lists are known, or their time is over. Call this of a server that is held back."""
        async with asyncio.timeout(self.follower.patience + BEGIN_SECONDS):
            await self.is_settled.wait()

    def offer(self) -> None:
        """Offer what was held back."""
        self._is_held_back = False
        self.follower.updates.may_have_missed = True
        if self.state != "ready":
            self._note([self.name], ())
        self._begin_publishing()

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
        if self.has_many_callers and self._access is None and is_marked_restricted(connection.agreement.capabilities):
            raise NotSupported(_RESTRICTED)

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists that came through this gateway itself."""
        self.is_circular = not set(self._marks()).isdisjoint(lists.gateways)
        if self.is_circular:
            # Each reading would find the tools of the one before, under longer names.
            self.follower.lists = RemoteLists()
            if self._is_offered:
                self._publish(self.follower.lists)
            raise Unreachable("its lists lead back to this server: the gateways form a circle")

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    def take_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        """Offer lists that were just read, unless the breaker is open; return whether they differ."""
        before = self.last_change
        if self.guard.state != "open":
            self._there()
        return self.last_change != before

    def note_lost(self, error: ToolwireError) -> None:
        self._away(str(error))

    def announce_update(self, uri: str, params: Any) -> None:
        self.notify_updated(self.uris.public(uri), params)

    def _watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Follow the resources that clients are subscribed to now; return what the client of new ones waits for."""
        call = CURRENT.get(None)
        in_conversation = None if call is None else self._watch_in_conversation(call, uris)
        if in_conversation is not None:
            return in_conversation
        new = [self.uris.inner(uri) for uri in uris if self._has_resource(uri)]
        return self.follower.watch(new if self.state == "ready" else ())

    def watched_uris(self) -> list[str]:
        """Return the URIs, as the upstream has them, that clients are subscribed to outside of conversations."""
        is_left_out = self._is_in_conversation if len(self.conversations) else None
        watched = {uri for hub in self._watched for uri in hub.watched(is_left_out)}
        return sorted(self.uris.inner(uri) for uri in watched if self._has_resource(uri))

    def _has_resource(self, uri: str) -> bool:
        """Return whether the other server has a resource, and clients may hear of it."""
        return bool(self.catalog.resource(uri) or self.catalog.template(uri)) and bool(self.catalog.hosts_told_of(uri))

    # --- lists ---

    @property
    def is_public(self) -> bool:
        """Return whether the lists are for everybody: the other server says so, and the operator trusts it."""
        return self.trusts and self.follower.lists is not None and self.follower.lists.is_public

    def freshen(self) -> Awaitable[None] | None:
        """Read lists again that are older than the upstream allows; return what a client waits for."""
        if self.state == "away":
            self.follower.hurry()
        if self.state != "ready":
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
        if self.state != "ready":
            return None
        return self.conversations.look_again(call) or self.follower.look_again()

    async def suspect(self) -> None:
        """Read the lists again, because something went wrong that outdated lists, or a dead server, may explain."""
        await self.follower.suspect()

    def _note_change(self, conversation: Conversation, method: str | None, uri: str | None) -> None:
        """Read lists again, because a legacy upstream announced a change in a conversation."""
        if method != UPDATED and not self.conversations.note_change(conversation, method):
            self._read_again(conversation.credential)

    def _read_again(self, credential: Hashable) -> None:
        self.follower.read_again()

    def _marks(self) -> list[str]:
        """Return the marks of the servers that list the components. Where nobody mounts this server, it is this one."""
        return [catalog.mark for catalog in self.catalog.hosts() or [self.catalog]]

    # --- conversations ---

    @property
    def hubs(self) -> Iterable[Hub]:
        return self._watched

    @property
    def back_key(self) -> str:
        return self.relay.key

    def find_shared_lists(self, credential: Hashable) -> RemoteLists | None:
        return self.follower.lists

    async def read_shared_lists(self, credential: Hashable) -> None:
        await self.follower.refresh()

    def fill_overlay(self, overlay: ListOverlay) -> None:
        """Make the components of an overlay. Those that the shared lists have, too, are the same objects."""
        catalog = overlay.catalog
        catalog.follower = self
        catalog.upstream_access, catalog.foreign_tasks = self._access, self.catalog.foreign_tasks
        catalog.is_unlisted = self.catalog.is_unlisted
        catalog.tools, catalog.prompts = self.catalog.tools, self.catalog.prompts
        catalog.resources, catalog.templates = self.catalog.resources, self.catalog.templates
        self._addresses.settle(self._units())
        self._fill(catalog, overlay.lists, is_overlay=True)

    def hide_shared(self, audience: Audience | None) -> None:
        self.catalog.own_audience = audience

    def follow_shared(self) -> None:
        self.follower.want()

    def own_uris(self, call: Call, uris: Iterable[str]) -> list[str]:
        return [self.uris.inner(uri) for uri in uris if self._has_resource(uri) or self.links.has(call, uri)]

    def public_uri(self, uri: str) -> str:
        return self.uris.public(uri)

    async def connect_for(self, call: Call) -> ClientConnection:
        return await self.relay.conversation_connection(call)

    def _overlaid_lists(self) -> list[RemoteLists]:
        return [each.overlay.lists for each in self.conversations if each.overlay is not None]

    def _units(self) -> Iterable[Unit]:
        """Return the URIs in the shared lists and in the overlays, each once."""
        found: dict[tuple[str, str], Unit] = {}
        shared = () if self.follower.lists is None else (self.follower.lists,)
        for lists in (*shared, *self._overlaid_lists()):
            for unit in units_of(lists.resources, lists.templates, lists.skills, lists.tools):
                found.setdefault((unit.kind, unit.main), unit)
        return found.values()

    def _is_in_conversation(self, client: Hashable, uri: str) -> bool:
        return self.conversations.has_subscribed(client, self.uris.inner(uri))

    def _watch_in_conversation(self, call: Call, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Subscribe in the conversation of a legacy client; None where its calls go over the shared connection."""
        connection = self.known_connection
        is_legacy = connection is not None and not connection.modern and client_key(call.request, call.outlet)
        if not is_legacy or self.state != "ready" or self.back_connections.is_shared:
            return None
        if call.method == "resources/unsubscribe":
            known = self.conversations.find(call)
            if known is not None:
                known.unsubscribe(self.uris.inner(call.params.uri))
            return None
        new = self.own_uris(call, uris)
        return self.conversations.subscribe(call, new) if new else None

    def _meet_conversations(self) -> None:
        self.meet = self.conversations.meet
        for catalog in self.catalog.hosts():
            catalog.owner.kernel.compose()

    def _publish(self, lists: RemoteLists) -> None:
        """Offer the components in the lists. Clients are told of a change only if there is one."""
        if self.retired is not None:
            return
        self._cancel_unlisting()
        generation = self.uris.generation
        self._addresses.settle(self._units())
        changed = self._fill(self.catalog, lists)
        self.conversations.compare_all()
        for each in self.conversations:
            if each.overlay is not None and (self.uris.generation != generation or changed):
                self._fill(each.overlay.catalog, each.overlay.lists, is_overlay=True)
        if not (self.catalog.is_read or self.is_circular or lists.is_partial):
            self.catalog.is_read = True
            changed = list(dict.fromkeys((*changed, "tools")))  # Pins approve the first list, also an empty one.
        own = [self.name] if lists.is_partial else []
        self._note([*own, *(f"{self.name}/{each}" for each in lists.missing)], lists.gateways)
        if changed or self.last_change is None:
            self.last_change = time.time()
        for family in changed:
            self.catalog.changed(family, for_sure=False)
        if "resources" in changed:
            # Clients may be subscribed already, such as those of a server in whose place this one is now.
            self.follower.want()
        self._tell_published()

    def _fill(self, catalog: Catalog, lists: RemoteLists, *, is_overlay: bool = False) -> list[str]:
        """Make the components in the lists those of a catalogue; return the families that are others now."""
        out = dict(lists.left_out)
        tools = self._made(lists.tools, lambda each: RemoteTool(self, each, self._name(each.name)), catalog.tools, out)
        prompts = self._made(
            lists.prompts, lambda each: RemotePrompt(self, each, self._name(each.name)), catalog.prompts, out
        )
        resources = self._made(lists.resources, lambda each: RemoteResource(self, each), catalog.resources, out)
        templates = self._made(lists.templates, lambda each: RemoteTemplate(self, each), catalog.templates, out)
        if is_overlay:
            catalog.tools, catalog.prompts = tools, prompts
            catalog.resources, catalog.templates = resources, templates
            self._offer_completions(catalog)
            return []
        self._note_left_out(catalog, out)
        self._made_for = self.uris.generation
        listed = (*(each.uri for each in lists.resources), *(each.uri_template for each in lists.templates))
        self.origins = frozenset(map(origin_of, listed))
        skill_set = self._extend(catalog, lists.skills)
        changed = [
            family
            for family, before, after in (
                ("tools", catalog.tools, tools),
                ("prompts", catalog.prompts, prompts),
                ("resources", catalog.resources, resources),
                ("resources", catalog.templates, templates),
                ("resources", catalog.skill_set.skills, skill_set.skills),
            )
            if before != after or (catalog.is_unlisted and after)
        ]
        for each in (catalog, *catalog.family()):
            each.is_unlisted = False
        catalog.tools, catalog.prompts = tools, prompts
        catalog.resources, catalog.templates, catalog.skill_set = resources, templates, skill_set
        self._offer_completions(catalog)
        return list(dict.fromkeys(changed))

    def _note_left_out(self, catalog: Catalog, left_out: dict[str, str]) -> None:
        for name, reason in left_out.items():
            if catalog.left_out.get(name) != reason:
                log.warning("%s: %r is left out: %s", self.name, name, reason)
        catalog.left_out = left_out

    def _made(
        self,
        definitions: Iterable[Any],
        make: Callable[[Any], Any],
        before: dict[str, Any],
        left_out: dict[str, str],
    ) -> dict[str, Any]:
        """Make components by their keys. One whose definition is the one that stands in `before` stays that object.

        `left_out` gets the reasons for those that cannot be made, by name.
        """
        made: dict[str, Any] = {}
        for definition in definitions:
            try:
                component = make(definition)
            except (ServerError, ValueError) as error:
                if len(left_out) < MAX_LEFT_OUT:
                    left_out[getattr(definition, "name", "")[:200]] = str(error)
                continue
            if self._access is not None:
                component.tags = self._access.tags(component)
            known = before.get(component.key)
            if known is not None and self._is_same(known, component):
                component = known
            made.setdefault(component.key, component)
        return made

    def _is_same(self, known: Any, made: Any) -> bool:
        """Return whether two components are listed the same way. Addresses may stand in their definitions."""
        # The same tool may run as a task now, because the server was replaced by one that has tasks.
        tasks = (getattr(known, "task", None), getattr(made, "task", None))
        if tasks[0] != tasks[1] or known.tags != made.tags or t.encode(known.remote) != t.encode(made.remote):
            return False
        return self._made_for == self.uris.generation or t.encode(known.wire(MODERN)) == t.encode(made.wire(MODERN))

    def _name(self, name: str) -> str:
        return bounded_name(name, self._room)

    def _extend(self, filled: Catalog, skills: list[t.Skill]) -> SkillSet:
        """Offer the extensions that the other server declares; return the skills of a catalogue.

        Those that it had before stay.
        """
        connection = self.known_connection
        catalog = self.catalog
        if connection is None:
            return filled.skill_set
        if catalog.upstream_capabilities != connection.agreement.capabilities:
            catalog.upstream_capabilities = connection.agreement.capabilities
            catalog.changed("notes")
        declared = extensions_of(self, catalog, connection.agreement.capabilities)
        further = further_capabilities(connection.agreement.capabilities)
        catalog.elsewhere = UnlistedResources(self) if "resources/read" in connection.callable else None
        extensions = connection.agreement.capabilities.get("extensions", {})
        self.reads_directories = (
            t.SKILLS_EXTENSION in declared and extensions[t.SKILLS_EXTENSION].get("directoryRead") is True
        )
        kept = {
            name: each if (known := catalog.extensions.get(name)) is None or known.settings != each.settings else known
            for name, each in declared.items()
        }
        if (kept, further) != (catalog.extensions, catalog.further_capabilities):
            catalog.further_capabilities = further
            catalog.set_extensions(kept)
            self._host_changed("extensions")
        if t.SKILLS_EXTENSION not in kept:
            return SkillSet()
        from toolwire.gateway.remote_skills import skill_set_of

        return skill_set_of(self, skills, filled.skill_set)

    def _host_changed(self, family: str) -> None:
        """Take note of the extensions that this server has, and that no server which mounts it can offer."""
        if family == "extensions":
            withheld = (
                identifier
                for host in self.catalog.hosts()
                for identifier, owners in host.withheld_extensions().items()
                if self in owners
            )
            hidden = () if self.shows_views else (UI_EXTENSION,)
            self.relay.withhold(frozenset((*withheld, *hidden)))

    def give_up_addresses(self) -> None:
        """Leave all addresses to others, before the server is unmounted."""
        self._addresses.give_up()

    def _offer_completions(self, catalog: Catalog) -> None:
        """Offer completions for all arguments, where the other server has any."""
        connection = self.known_connection
        catalog.completions = {}
        if connection is None or "completion/complete" not in connection.callable:
            return
        for prompt in cast("dict[str, RemotePrompt]", catalog.prompts).values():
            reference = {"type": "ref/prompt", "name": prompt.remote.name}
            for argument in prompt.argument_names:
                catalog.complete("ref/prompt", prompt.key, argument, RemoteCompletion(self, reference, argument))
        for template in cast("dict[str, RemoteTemplate]", catalog.templates).values():
            reference = {"type": "ref/resource", "uri": template.remote.uri_template}
            for variable in template.template.variables:
                catalog.complete("ref/resource", template.key, variable, RemoteCompletion(self, reference, variable))

    def task_support(self, definition: t.Tool) -> t.TaskSupport | None:
        """Return whether calls of a tool may, or must, be tasks of the other server; None for never."""
        connection = self.known_connection
        if connection is None:
            return None
        declared = connection.agreement.capabilities
        if connection.modern:
            # The extension does not say it of a tool: the server decides for each call.
            return "optional" if t.has_capability(declared, f"extensions.{t.TASKS_EXTENSION}") else None
        execution = definition.execution
        if execution is UNSET or not t.has_capability(declared, "tasks.requests.tools.call"):
            return None
        return execution.task_support if execution.task_support in ("optional", "required") else None

    def listed_tool(self, key: str) -> ToolBase | None:
        """Return the tool that is listed under a key now."""
        return self.catalog.tools.get(key)

    def has_named_secret(self, uri: str) -> bool:
        """Return whether the server named a URI to the caller that others should not get."""
        call = CURRENT.get(None)
        return call is not None and may_be_secret(uri) and self.links.has(call, uri)

    # --- the state of the other server ---

    def figures(self) -> BackFigures:
        """Return what the metrics say of the other server, beside the requests to it."""
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

    def _send_by(self, send: Send) -> None:
        self.relay.sending = send

    def _breaker_moved(self, state: BreakerState) -> None:
        """Take the components out of lists while the breaker is open, and plan the next health check."""
        if state == "open":
            self._away(f"its calls failed: {self.guard.error}")
        elif self.state == "away" and self.follower.lists is not None:
            self._there()
        # Also for a server that was taken away: the tasks that began there are asked about.
        self.signs.plan()

    def _is_quiet(self) -> bool:
        """Return whether nothing else tells soon whether the server works: it is there, and no call is in flight."""
        return self.state == "ready" and not self.back_connections.is_busy

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
        assert self.follower.lists is not None
        if self.state == "away":
            log.warning("the server %r is there now", self.name)
            # The stream of its changes ended, and what changed meanwhile was told to nobody.
            self.follower.updates.may_have_missed = True
            self.follower.hurry()
        self.state, self.error = "ready", None
        if self._is_offered:
            self._publish(self.follower.lists)

    def _away(self, why: str) -> None:
        if self.retired is not None:
            return
        if self.state != "away":
            log.warning("the server %r is away: %s", self.name, why)
        self.state, self.error = "away", why
        self._note([self.name], ())
        if self._unlisting is None and not self.keeps_stale_lists and not self.catalog.is_unlisted:
            # A server that comes back soon is no change.
            self._unlisting = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._unlist)
        self._tell_published()

    def answer_pings(self, answers: bool) -> None:
        """Answer the pings of hosts that show views of this server on 2026-07-28, or not."""
        self.answers_pings = answers
        extension = self.catalog.extensions.get(UI_EXTENSION)
        if extension is not None:
            (answer_ping if answers else refuse_ping)(extension)
            self.catalog.changed("extensions")

    def keep_stale_lists(self, keeps: bool) -> None:
        """Keep the components in lists while the other server is away, or not."""
        self.keeps_stale_lists = keeps
        if keeps:
            self._cancel_unlisting()
            if self.catalog.is_unlisted and self.follower.lists is not None:
                self._publish(self.follower.lists)
        elif self.state == "away" and not self.catalog.is_unlisted:
            self._unlist()

    def _unlist(self) -> None:
        """Leave the components out of lists, because their server is away."""
        self._unlisting = None
        self._set_unlisted(True)

    def _set_unlisted(self, is_unlisted: bool) -> None:
        """Leave the components out of lists, or take them in again."""
        for catalog in (self.catalog, *self.catalog.family()):
            catalog.is_unlisted = is_unlisted
        for family in ("tools", "prompts", "resources"):
            self.catalog.changed(family, for_sure=False)

    def _cancel_unlisting(self) -> None:
        if self._unlisting is not None:
            self._unlisting.cancel()
        self._unlisting = None

    def _note(self, missing: list[str], gateways: Iterable[str]) -> None:
        """Say in lists whose components are missing, or may be out of date, and which gateways they came through."""
        if self._is_held_back:
            return
        notes = {GATEWAYS_KEY: [*self._marks(), *gateways]}
        if missing:
            notes[MISSING_KEY] = missing
        if notes != self.catalog.notes or self.is_public != self._was_public:
            self.catalog.notes, self._was_public = notes, self.is_public
            # Clients are not told: the list is the same.
            self.catalog.changed("notes")

    def _tell_published(self) -> None:
        for callback in tuple(self.published):
            callback()

    @property
    def remote_instructions(self) -> str | None:
        """The instructions of the other server, where they are known."""
        connection = self.known_connection
        told = None if connection is None else getattr(connection, "agreement", None)
        return None if told is None or told.instructions is UNSET else told.instructions


def remote(target: Any, prefix: str | None = None) -> RemoteServer:
    """Return a server in front of what a `Client` connects to, for `Server.mount`."""
    try:
        place = resolve(target, TargetOptions())
    except TypeError:
        text = f"Only a Server, a URL, a command or a server file can be mounted, not {type(target).__name__}"
        raise ServerError(text) from None
    except ValueError as error:
        raise ServerError(f"The server cannot be mounted: {error}") from None
    return RemoteServer(prefix or place.label, place, room=MAX_NAME - len(prefix) - 1 if prefix else MAX_NAME)


def _relay(credentials: CallerPlaces | None, *args: Any, **options: Any) -> Relay:
    """Return the way to a server. Most servers know no accounts of callers, and their calls pay nothing for it."""
    if credentials is None:
        return Relay(*args, **options)
    from toolwire.gateway.account_relay import AccountRelay

    return AccountRelay(*args, **options, credentials=credentials)


def _access_of(target: Target, catalog: Catalog) -> UpstreamAccess | None:
    """Return the restrictions of a server of this process, which learns the client of each request from now on."""
    if not isinstance(target, ServerTarget) or not isinstance(target.server, Server):
        return None
    target.is_relayed = True
    return UpstreamAccess(target.server, catalog)


async def _stop(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


@asynccontextmanager
async def _running(server: Server) -> AsyncIterator[None]:
    assert isinstance(server, RemoteServer)
    server.begin()
    try:
        yield
    finally:
        await server.end()
