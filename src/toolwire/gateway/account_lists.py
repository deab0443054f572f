"""`AccountLists`: the lists of one upstream, read with the account of each caller.

Nobody but the callers has an account there. So each caller gets the lists that the server shows to that caller. Callers
whose lists are the same share one catalogue, which they see and others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Hashable, Iterable, Mapping
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import json, structs

from toolwire.auth.errors import NotConnected, SignInFailed
from toolwire.auth.principal import Principal
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker
from toolwire.auth.verify.verifier import Unavailable
from toolwire.client.connection import ClientConnection
from toolwire.client.reconnect import Connector
from toolwire.client.target import Target
from toolwire.gateway.back_connections import IDLE_SECONDS, BackConnections
from toolwire.gateway.back_credentials import BackCredentials
from toolwire.gateway.capability_lists import CapabilityLists
from toolwire.gateway.conversation import Conversations, ListOverlay
from toolwire.gateway.list_follower import LEAST_SECONDS, FollowSettings, ListFollower
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_lists import FAMILIES, KnownServer, RemoteLists
from toolwire.gateway.shared_lists import ListsOwner, SharedLists
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.protocol.changes import Change, FrozenParams
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ToolwireError, TransportError, Unauthorized, Unreachable
from toolwire.protocol.rounds import digest
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.components.restriction import Audience
from toolwire.server.server import Server

if TYPE_CHECKING:
    from toolwire.client.relay import RelayConnection

#: How many accounts, and how many different lists, one server may have in one process at a time.
MAX_OWNERS: Final = 1024
MAX_GROUPS: Final = 256  # With those for clients that can do less.

#: A text for an account and its token or secret, and the place of the server for it. They always go together: the text
#: names the connections of the place.
Place: TypeAlias = tuple[str, Target]

#: Requests for a list, before which it is made sure that the account is still there, and that its lists are fresh.
_LISTS: Final = frozenset(("tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list"))
#: Requests that are about no component.
_WITHOUT_COMPONENTS: Final = frozenset(("ping", "initialize", "server/discover", "logging/setLevel"))


class ListGroup(Server):
    """The components of callers to whom a server shows the same lists."""

    def __init__(self, name: str, lists: RemoteLists) -> None:
        super().__init__(name)
        self.lists = lists
        self.owners: set[str] = set()
        """The ids of the callers' accounts."""
        self.varying: CapabilityLists | None = None
        """The lists for clients that can do less, where the only account here has such."""
        self.catalog.audience = Audience(picks=self._has)

    def _has(self, principal: Principal) -> bool:
        return Owner.from_principal(principal).id in self.owners

    def show_to(self, audience: Audience | None) -> None:
        """Show the components to the clients in an audience who have no other ones for what they can do."""
        self.catalog.own_audience = audience if self.varying is None else self.varying.narrow(audience)


class OwnerLists:
    """The lists that a server shows to one account."""

    def __init__(self, all_lists: AccountLists, owner: str, place: Place) -> None:
        self.name: str = all_lists.name
        self.log: UpstreamLog = all_lists.log
        self.owner = owner
        self.place: Place = place
        """The account with the token or secret that was used last."""
        self.watched: set[str] = set()
        """The resources that clients of the owner subscribed to, as the server knows them."""
        self.group: ListGroup | None = None
        self.used: float = asyncio.get_running_loop().time()
        self.next_reading: float = -inf
        """When the lists may be read again, after that failed."""
        self.follower: ListFollower = ListFollower(
            self, structs.replace(all_lists.follower.settings, is_pinned=True, persists=False)
        )
        self.version: float = 0.0
        """A number that changes with the lists."""
        self.back_connections: BackConnections = all_lists.back_connections
        self.relay: Relay = all_lists.relay
        self.conversations: Conversations = all_lists.conversations
        self.catalog: Catalog = all_lists.catalog
        self.capability_lists: CapabilityLists = CapabilityLists(self, all_lists.follower.settings.timeout)
        """The lists for clients of this account that declare less than the gateway can carry."""
        self._all = all_lists
        self._overlaid: ListGroup | None = None

    async def open_connection(self) -> ClientConnection:
        return await self._all.back_connections.signed(*self.place)

    async def open_beside(self, capabilities: Mapping[str, Any]) -> RelayConnection:
        signed = await self.back_connections.signed(*self.place)
        return await self.back_connections.open_beside(capabilities, signed.revision, self.place[1])

    def find_connector(self) -> Connector | None:
        return self._all.back_connections.connector_of(self.place[0])

    def leave_address(self, error: ToolwireError, connection: ClientConnection) -> bool:
        return False

    def check_connection(self, connection: ClientConnection) -> None:
        """Take every upstream: each account has a connection of its own."""

    def check_lists(self, lists: RemoteLists) -> None:
        self._all.check_circle(lists)

    @property
    def is_ready(self) -> bool:
        return self.group is not None

    @property
    def shows_views(self) -> bool:
        return self._all.shows_views

    def publish_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        before = self.group
        self._all.take_lists_of(self, lists, connection)
        return self.group is not before

    def note_lost(self, error: ToolwireError) -> None:
        self.follower.mark_stale()
        if isinstance(error, NotConnected):
            self._all.drop_owner(self)
        else:
            self._all.note_failure(self, error)

    def fill_overlay(self, overlay: ListOverlay) -> None:
        self._all.make_room_beside(self)
        self._all.fill_overlay(overlay)

    @property
    def overlaid(self) -> Catalog:
        """The catalogue, for this account alone, in which overlays are mounted."""
        if self._overlaid is None:
            self._overlaid = self._all.make_group(RemoteLists())
            self._overlaid.owners.add(self.owner)
            self._all.catalog.mount(Mount("", self._overlaid.catalog))
        return self._overlaid.catalog

    def hide_shared(self, audience: Audience | None) -> None:
        """Show the components of the lists only to clients who have no other ones. Other accounts may have none."""
        if self.group is not None and (self.group.varying is None) == self.capability_lists.varies:
            self._all.regroup(self)
        if self.group is not None:
            self.group.show_to(audience)
        if not self.capability_lists.varies:
            self._unmount_overlaid()

    def drop_sets(self) -> list[asyncio.Task[None]]:
        """Forget the lists for clients that can do less; return the tasks that are about to end."""
        ending = self.capability_lists.drop_sets()
        self._unmount_overlaid()
        return ending

    def _unmount_overlaid(self) -> None:
        if self._overlaid is not None:
            self._all.catalog.unmount(self._overlaid.catalog)
            self._overlaid = None

    def watched_uris(self) -> list[str]:
        return sorted(self._all.still_watched(self))

    def announce_update(self, uri: str, params: Any) -> None:
        if (public := self._all.components.find_updated(uri)) is not None:
            self._all.tell_updated(self, public, params)


class AccountLists(SharedLists):
    """The lists of an upstream that shows them only to callers with an account."""

    def __init__(self, credentials: BackCredentials, owner: ListsOwner, settings: FollowSettings) -> None:
        super().__init__(owner, settings)
        self._credentials = credentials
        self._owners: dict[str, OwnerLists] = {}
        """By the ids of owners. The one that was used longest ago comes first."""
        self._groups: dict[str, ListGroup] = {}
        self._last_connection: ClientConnection | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def known_connection(self) -> KnownServer | None:
        return self._last_connection

    # --- beginning and end ---

    def _start_following(self) -> None:
        """Forget accounts that nobody uses. There is no connection without an account that could be kept."""
        self.follower.first.set()
        self._note_ready()
        self._sweeping = asyncio.get_running_loop().create_task(self._forget_idle(), name=f"gateway {self.name}")

    async def _forget_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS / 4)
            now = asyncio.get_running_loop().time()
            for known in list(self._owners.values()):
                if known.used < now - IDLE_SECONDS and not self.still_watched(known):
                    self.drop_owner(known)

    async def stop(self) -> None:
        ending = [task for known in list(self._owners.values()) for task in self.drop_owner(known)]
        if ending:
            await asyncio.wait(ending)
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})
            self._sweeping = None
        await super().stop()

    def retire(self) -> None:
        for known in list(self._owners.values()):
            self.drop_owner(known)
        super().retire()

    # --- subscriptions ---

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Have the server tell the account of a caller of the resources that the caller subscribes to."""
        call = CURRENT.get(None)
        owner = None if call is None else self._credentials.asker(call).owner
        known = None if owner is None else self._owners.get(owner.id)
        if known is None or known.group is None or call is None:
            return None
        in_conversation = self._watch_in_conversation(call, uris)
        if in_conversation is not None:
            return in_conversation
        catalog = known.group.catalog
        told = (uri for uri in uris if self.catalog.hosts_told_of(uri))
        new = {self.components.uris.inner(uri) for uri in told if catalog.resource(uri) or catalog.template(uri)}
        if new <= known.watched:
            return None
        known.watched = self.still_watched(known) | new
        known.follower.start()
        return known.follower.watch(new)

    def still_watched(self, known: OwnerLists) -> set[str]:
        """Return the resources of an account that clients of this process are subscribed to."""
        if not known.watched:
            return set()
        watched = self.hosts.watched()
        return {uri for uri in known.watched if self.components.uris.public(uri) in watched}

    # --- callers ---

    def load_caller_lists(self, call: Call) -> Awaitable[None] | None:
        """Read the lists of the caller, and of its session, where they are not known here."""
        reading = self._load_owner_lists(call)
        if not self.hosts.are_replicated or self.owner.lifecycle.is_retired:
            return reading
        return self._load_both(call, reading)

    async def _load_both(self, call: Call, reading: Awaitable[None] | None) -> None:
        if reading is not None:
            await reading
        waited = self.conversations.take_up_session(call)
        if waited is not None:
            await waited

    def _load_session_lists(self) -> None:
        """Leave it to `load_caller_lists`, which every request passes here."""

    def _load_owner_lists(self, call: Call) -> Awaitable[None] | None:
        """Read the lists of the caller where they are not known here, or are too old to be listed."""
        if call.method in _WITHOUT_COMPONENTS or self.owner.lifecycle.is_retired:
            return None
        asker = self._credentials.asker(call)
        if asker.owner is None:
            return None
        known = self._owners.pop(asker.owner.id, None)
        if known is not None:
            # At the end: the first one is the one that was used longest ago.
            self._owners[known.owner] = known
            known.used = asyncio.get_running_loop().time()
            if call.method not in _LISTS and known.group is not None and known.follower.read_at > -inf:
                return None
        return self._look(asker, asker.owner.id)

    async def _look(self, asker: Asker, owner: str) -> None:
        """Make the lists of a caller known, within the time that lists wait."""
        try:
            place = await self._credentials.place_of(asker)
        except (Unavailable, SignInFailed) as error:
            self.log.warning("the lists of a caller cannot be read: %s", error)
            return
        known = self._owners.get(owner)
        if place is None:
            if known is not None:
                self.drop_owner(known)  # The account was revoked.
            return
        if known is not None and not self._is_of_account(known, place[0]):
            self.drop_owner(known)  # Another secret may be another account.
            known = None
        if known is None:
            self._make_room()
            known = self._owners[owner] = OwnerLists(self, owner, place)
        known.place = place
        is_fresh = known.group is not None and known.follower.is_fresh()
        if not is_fresh and asyncio.get_running_loop().time() >= known.next_reading:
            await known.follower.ensure_read()

    def _is_of_account(self, known: OwnerLists, text: str) -> bool:
        account = self._credentials.account
        return account(known.place[0]) == account(text)

    def _make_room(self) -> None:
        while len(self._owners) >= MAX_OWNERS:
            self.drop_owner(next(iter(self._owners.values())))

    def drop_owner(self, known: OwnerLists) -> list[asyncio.Task[None]]:
        """Forget the lists of an account; return the tasks that end. The next request of its owner reads them again."""
        self._owners.pop(known.owner, None)
        ending = known.follower.cancel() + known.drop_sets()
        self._assign(known, None)
        return ending

    # --- lists ---

    def check_circle(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists of this gateway itself; leave out of others what came through it."""
        if lists.leave_out_circles(self.hosts.marks):
            raise Unreachable("its lists lead back to this server: the gateways form a circle")

    def take_lists_of(self, known: OwnerLists, lists: RemoteLists, connection: ClientConnection) -> None:
        """Show lists that were just read to the account that they are for."""
        self.follower.readings += 1
        self._last_connection = connection
        self._assign(known, self._group_of(lists, known))
        if not (self.catalog.is_read or lists.is_partial):
            self.catalog.is_read = True
            self.catalog.changed("tools", for_sure=False)
        self.make_room_beside(known)
        self._note_ready()

    def _note_ready(self) -> None:
        """Take note that the server answers, and list what was taken out of lists."""
        if self.owner.guard.state == "open":
            return
        self.availability.note_ready()
        self._show_missing([])
        self.availability.list_again()
        self.availability.tell_watchers()

    def announce(self) -> None:
        super().announce()
        for family in ("tools", "prompts", "resources"):
            self.catalog.changed(family, for_sure=False)

    def apply_breaker(self) -> None:
        super().apply_breaker()
        if self.availability.is_away and not self.owner.lifecycle.is_retired:
            self._note_ready()  # Unless the breaker is open.

    async def check_upstream(self, seconds: float) -> None:
        if self.back_connections.target.transport != "http":
            return  # Each account has a process of its own, and none of them says anything of the next one.
        try:
            await super().check_upstream(seconds)
        except Unauthorized:
            return  # It answers.

    def note_failure(self, known: OwnerLists, error: ToolwireError) -> None:
        """Say in the lists of a caller that those of this server are missing, unless the last ones are known."""
        known.next_reading = asyncio.get_running_loop().time() + LEAST_SECONDS
        if isinstance(error, TransportError) and not isinstance(error, Unauthorized):
            self.availability.note_away(error)
            self.availability.tell_watchers()
        else:
            self.log.warning("the lists of a caller cannot be read: %s", error)
        if known.group is None and known.owner in self._owners:
            lists = RemoteLists()
            lists.is_partial = True
            self._assign(known, self._group_of(lists, known))

    def make_group(self, lists: RemoteLists) -> ListGroup:
        """Return a catalogue that nobody sees yet."""
        group = ListGroup(self.name, lists)
        group.catalog.follower = self.owner
        group.catalog.is_unlisted = self.catalog.is_unlisted
        return group

    def regroup(self, known: OwnerLists) -> None:
        """Give an account whose lists depend on its clients a catalogue of its own, and any other a common one."""
        assert known.group is not None
        self._assign(known, self._group_of(known.group.lists, known))
        self.make_room_beside(known)

    def _group_of(self, lists: RemoteLists, known: OwnerLists) -> ListGroup:
        """Return the catalogue with these lists for an account; make it where it is new."""
        varies = known.capability_lists.varies
        key = f"{_fingerprint(lists)}:{known.owner if varies else ''}"
        group = self._groups.pop(key, None)
        is_new = group is None
        if group is None:
            group = self.make_group(lists)
            group.varying = known.capability_lists if varies else None
            group.show_to(self.conversations.shared_audience)
        # At the end: the first one is the one that was used longest ago.
        self._groups[key] = group
        group.lists.ttl = lists.ttl
        if is_new:
            self._offer(group)
        return group

    def make_room_beside(self, known: OwnerLists) -> None:
        """Forget other accounts, those whose lists were used longest ago, while there are too many different lists."""
        overlays = (each.capability_lists.overlays for each in self._owners.values())
        excess = len(self._groups) + sum(1 for _ in chain.from_iterable(overlays)) - MAX_GROUPS
        for oldest in list(self._groups.values()) if excess > 0 else ():
            if excess <= 0:
                return
            if oldest is known.group:
                continue
            excess -= 1 + (0 if oldest.varying is None else sum(1 for _ in oldest.varying.overlays))
            for each in [each for each in self._owners.values() if each.group is oldest]:
                self.drop_owner(each)

    def _offer(self, group: ListGroup) -> None:
        generation = self.components.uris.generation
        self.components.choose_addresses(self._all_lists())
        has_moved = self.components.uris.generation != generation
        for each in self._groups.values() if has_moved else (group,):
            self.components.fill(each.catalog, each.lists)
        for overlay in self._overlays() if has_moved else ():
            self.components.fill_overlay(overlay.catalog, overlay.lists)
        self.conversations.compare_all()
        lists = group.lists
        missing = [*([self.name] if lists.is_partial else []), *(f"{self.name}/{each}" for each in lists.missing)]
        group.catalog.gateways, group.catalog.notes = lists.gateways, {MISSING_KEY: missing} if missing else {}
        self.catalog.mount(Mount("", group.catalog))
        self.availability.note_change()

    def _all_lists(self) -> Iterable[RemoteLists]:
        return (*(group.lists for group in self._groups.values()), *self._overlaid_lists())

    def _assign(self, known: OwnerLists, group: ListGroup | None) -> None:
        """Show an account the components of a group from now on."""
        before, known.group = known.group, group
        if before is group:
            return
        if group is not None and (before is None or before.lists.digest() != group.lists.digest()):
            known.version += 1
        if group is not None:
            group.owners.add(known.owner)
        if before is None:
            return
        before.owners.discard(known.owner)
        if not before.owners:
            self._groups = {key: each for key, each in self._groups.items() if each is not before}
            self.catalog.unmount(before.catalog)
        if group is None:
            return
        self.availability.note_change()
        for family in FAMILIES:
            if before.lists.family(family) != group.lists.family(family):
                # The groups are the same as before, and so is the merged list. But the caller has another one.
                self.catalog.changed(family)

    # --- changes ---

    def tell_updated(self, known: OwnerLists, uri: str, params: Mapping[str, Any] | None) -> None:
        """Tell the clients of one account that its resource has new contents. Others may have one of the same name."""
        frozen = None if params is None else FrozenParams(params)
        change = Change("updated", uri, params=frozen, owner=known.owner, server=self.name, mark=self.catalog.mark)
        for catalog in (self.catalog, *self.catalog.hosts_told_of(uri)):
            catalog.owner.kernel.tell(change)

    def _read_again(self, credential: Hashable) -> None:
        known = self._find_owner(credential)
        if known is not None:
            known.follower.mark_stale()

    def _find_owner(self, credential: Hashable) -> OwnerLists | None:
        return next((each for each in self._owners.values() if self._is_of_account(each, str(credential))), None)

    def find_shared_lists(self, credential: Hashable) -> RemoteLists | None:
        known = self._find_owner(credential)
        return None if known is None or known.group is None else known.group.lists

    async def read_shared_lists(self, credential: Hashable) -> None:
        known = self._find_owner(credential)
        if known is not None:
            await known.follower.ensure_read()

    def hide_shared(self, audience: Audience | None) -> None:
        super().hide_shared(audience)
        for group in self._groups.values():
            group.show_to(audience)

    def find_capability_lists(self, call: Call) -> CapabilityLists | None:
        known = self._find_asker(call)
        return None if known is None or known.group is None else known.capability_lists

    def _find_asker(self, call: Call) -> OwnerLists | None:
        owner = self._credentials.asker(call).owner
        return None if owner is None else self._owners.get(owner.id)

    def _overlays(self) -> list[ListOverlay]:
        own = (known.capability_lists.overlays for known in self._owners.values())
        return [*super()._overlays(), *chain.from_iterable(own)]

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        known = self._find_asker(call)
        if known is None:
            return None
        waited = self.conversations.look_again(call) or known.capability_lists.look_again(call)
        return waited or known.follower.look_again()

    async def reread_lists(self) -> None:
        """Read the lists of each caller again before its next request: one of them led to an error."""
        for known in self._owners.values():
            known.follower.mark_stale()


def _fingerprint(lists: RemoteLists) -> str:
    """Return a text that is the same for lists that look the same."""
    return digest(json.encode([lists.digest(), lists.is_partial, lists.missing, lists.gateways]).decode())
