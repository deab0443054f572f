"""A server behind a gateway whose lists are read with the account of each caller.

Nobody but the callers has an account there. So each caller gets the lists that the server shows to that caller. Callers
whose lists are the same share one catalogue, which they see and others do not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Mapping
from math import inf
from typing import Any, Final, TypeAlias

from msgspec import json

from toolwire.auth.errors import NotConnected, SignInFailed
from toolwire.auth.principal import Principal
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker
from toolwire.auth.verify.verifier import Unavailable
from toolwire.client.connection import ClientConnection
from toolwire.client.listen import Subscription
from toolwire.client.target import Target
from toolwire.gateway.addresses import Unit, units_of
from toolwire.gateway.back_connections import IDLE_SECONDS
from toolwire.gateway.back_credentials import BackCredentials
from toolwire.gateway.back_health import BreakerState
from toolwire.gateway.list_pace import READINGS_A_SECOND
from toolwire.gateway.remote_lists import GATEWAYS_KEY, RemoteLists, read_lists
from toolwire.gateway.remote_server import (
    FIRST_LISTEN_SECONDS,
    FRESH_SECONDS,
    LEAST_SECONDS,
    LIST_SECONDS,
    LISTEN_SECONDS,
    SUBSCRIBE_SECONDS,
    RemoteServer,
    State,
)
from toolwire.protocol import types as t
from toolwire.protocol.changes import UPDATED, Change, FrozenParams
from toolwire.protocol.cursors import MISSING_KEY
from toolwire.protocol.errors import ToolwireError, TransportError, Unauthorized, Unreachable
from toolwire.protocol.rounds import digest
from toolwire.server.call import CURRENT, Call
from toolwire.server.catalog import Mount
from toolwire.server.components import Component
from toolwire.server.components.restriction import Audience
from toolwire.server.server import Server
from toolwire.util.backoff import Backoff

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many accounts, and how many different lists, one server may have in one process at a time.
MAX_OWNERS: Final = 1024
MAX_GROUPS: Final = 256

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
        self.catalog.audience = Audience(picks=self._has)

    def _has(self, principal: Principal) -> bool:
        return Owner.of(principal).id in self.owners


class OwnerLists:
    """The lists that a server shows to one account."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.place: Place | None = None
        """The account with the token or secret that was used last."""
        self.watched: set[str] = set()
        """The resources that clients of the owner subscribed to, as the server knows them."""
        self.group: ListGroup | None = None
        self.used: float = 0.0
        self.read_at: float = -inf
        """When the lists were read; minus infinity where they have to be read again."""
        self.next_reading: float = -inf
        """When the lists may be read again, after that failed."""
        self.is_told: bool = False
        """Whether the server announces all changes to this account now."""
        self.reading: asyncio.Task[None] | None = None
        self.hearing: asyncio.Task[None] | None = None
        self.turn: asyncio.Lock = asyncio.Lock()
        """Held while the server is asked to tell of changes."""
        self.pauses: Backoff = Backoff(first=FIRST_LISTEN_SECONDS, longest=LISTEN_SECONDS)
        self.resubscribing: asyncio.Task[None] | None = None
        """Has the server tell of resources again, after that failed or ended."""

    def is_fresh(self) -> bool:
        """Return whether the lists need not be read again before they are shown."""
        if self.group is None or self.read_at == -inf:
            return False
        ttl = self.group.lists.ttl
        if self.is_told:
            return True
        longest = FRESH_SECONDS if ttl is None else max(ttl, LEAST_SECONDS)
        return asyncio.get_running_loop().time() - self.read_at < longest


class AccountServer(RemoteServer):
    """A server elsewhere that shows its lists to nobody but the holders of accounts."""

    state: State
    error: str | None
    last_change: float | None
    retired: dict[str, Mapping[str, Component]] | None

    def __init__(self, *args: Any, credentials: BackCredentials, **options: Any) -> None:
        super().__init__(*args, credentials=credentials, **options)
        self._credentials = credentials
        self._owners: dict[str, OwnerLists] = {}
        """By the ids of owners. The one that was used longest ago comes first."""
        self._groups: dict[str, ListGroup] = {}
        self._last_connection: ClientConnection | None = None

    @property
    def known_connection(self) -> ClientConnection | None:
        return self._last_connection

    # --- beginning and end ---

    async def _keep(self) -> None:
        """Forget accounts that nobody uses. There is no connection without an account that could be kept."""
        self._first.set()
        self._is_there()
        while True:
            await asyncio.sleep(IDLE_SECONDS / 4)
            now = asyncio.get_running_loop().time()
            for known in list(self._owners.values()):
                if known.used < now - IDLE_SECONDS and not self._still_watched(known):
                    self._forget(known)

    async def end(self) -> None:
        running = {
            task
            for known in self._owners.values()
            for task in (known.reading, known.hearing, known.resubscribing)
            if task is not None
        }
        for known in list(self._owners.values()):
            self._forget(known)
        if running:
            await asyncio.wait(running)
        await super().end()

    def retire(self) -> None:
        shown = {kind: self.catalog.listed(kind) for kind in ("tools", "prompts")}
        for known in list(self._owners.values()):
            self._forget(known)
        super().retire()
        self.retired = {**shown}

    # --- subscriptions ---

    def _watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Have the server tell the account of a caller of the resources that the caller subscribes to."""
        call = CURRENT.get(None)
        owner = None if call is None else self._credentials.asker(call).owner
        known = None if owner is None else self._owners.get(owner.id)
        if known is None or known.group is None:
            return None
        catalog = known.group.catalog
        told = (uri for uri in uris if self.catalog.hosts_told_of(uri))
        new = {self.uris.inner(uri) for uri in told if catalog.resource(uri) or catalog.template(uri)}
        if new <= known.watched:
            return None
        known.watched = self._still_watched(known) | new
        return asyncio.get_running_loop().create_task(self._resubscribe(known))

    def _still_watched(self, known: OwnerLists) -> set[str]:
        """Return the resources of an account that clients of this process are subscribed to."""
        if not known.watched:
            return set()
        watched = {uri for hub in self._watched for uri in hub.watched()}
        return {uri for uri in known.watched if self.uris.public(uri) in watched}

    async def _resubscribe(self, known: OwnerLists) -> None:
        """Listen for what the clients of an account want now."""
        if not await self._hear_anew(known):
            self._resubscribe_later(known)

    async def _hear_anew(self, known: OwnerLists) -> bool:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                assert known.place is not None
                connection = await self.back_connections.signed(*known.place)
                return await self._hear_for(known, connection, known.place, anew=True)
        except (ToolwireError, TimeoutError) as error:
            log.debug("%s does not tell an account of changes: %s", self.name, error)
            return False

    def _resubscribe_later(self, known: OwnerLists) -> None:
        is_trying = known.resubscribing is not None and not known.resubscribing.done()
        if not is_trying and self._owners.get(known.owner) is known:
            known.resubscribing = asyncio.get_running_loop().create_task(self._keep_resubscribing(known))

    async def _keep_resubscribing(self, known: OwnerLists) -> None:
        """Try to listen for resources, after pauses. Then tell the clients of what they may have missed."""
        while True:
            await asyncio.sleep(known.pauses.after(None))
            watched = self._still_watched(known)
            if not watched or await self._hear_anew(known):
                break
        known.pauses.reset()
        for uri in watched:
            self._tell_updated(known, self.uris.public(uri), None)

    # --- callers ---

    def meet(self, call: Call) -> Awaitable[None] | None:
        """Read the lists of the caller where they are not known here, or are too old to be listed."""
        if call.method in _WITHOUT_COMPONENTS or self.retired is not None:
            return None
        asker = self._credentials.asker(call)
        if asker.owner is None:
            return None
        known = self._owners.pop(asker.owner.id, None)
        if known is not None:
            # At the end: the first one is the one that was used longest ago.
            self._owners[known.owner] = known
            known.used = asyncio.get_running_loop().time()
            if call.method not in _LISTS and known.group is not None and known.read_at > -inf:
                return None
        return self._look(asker, asker.owner.id)

    async def _look(self, asker: Asker, owner: str) -> None:
        """Make the lists of a caller known, within the time that lists wait."""
        try:
            place = await self._credentials.place_of(asker)
        except (Unavailable, SignInFailed) as error:
            log.warning("%s: the lists of a caller cannot be read: %s", self.name, error)
            return
        known = self._owners.get(owner)
        if place is None:
            if known is not None:
                self._forget(known)  # The account was revoked.
            return
        if known is not None and not self._is_of_account(known, place[0]):
            self._forget(known)  # Another secret may be another account.
            known = None
        if known is None:
            self._make_room()
            known = self._owners[owner] = OwnerLists(owner)
            known.used = asyncio.get_running_loop().time()
        known.place = place
        if not known.is_fresh() and asyncio.get_running_loop().time() >= known.next_reading:
            await asyncio.wait({self._begin_reading_for(known, place)}, timeout=self._list_timeout)

    def _is_of_account(self, known: OwnerLists, text: str) -> bool:
        account = self._credentials.account
        return known.place is None or account(known.place[0]) == account(text)

    def _make_room(self) -> None:
        while len(self._owners) >= MAX_OWNERS:
            self._forget(next(iter(self._owners.values())))

    def _forget(self, known: OwnerLists) -> None:
        """Forget the lists of an account. The next request of its owner reads them again."""
        self._owners.pop(known.owner, None)
        for task in (known.reading, known.hearing, known.resubscribing):
            if task is not None:
                task.cancel()
        self._assign(known, None)

    # --- lists ---

    def _begin_reading_for(self, known: OwnerLists, place: Place) -> asyncio.Task[None]:
        if known.reading is None or known.reading.done():
            known.reading = asyncio.get_running_loop().create_task(self._read_for(known, place))
        return known.reading

    async def _read_for(self, known: OwnerLists, place: Place) -> None:
        try:
            connection = await self.back_connections.signed(*place)
            await self._hear_for(known, connection, place)
            known.read_at = asyncio.get_running_loop().time()
            before = None if known.group is None else known.group.lists
            lists = await read_lists(self.name, connection, before, self._timeout, self.shows_views)
            self._lists_read += 1
            if not set(self._marks()).isdisjoint(lists.gateways):
                raise Unreachable("its lists lead back to this server: the gateways form a circle")
            self._last_connection = connection
            self._assign(known, self._group_of(lists))
            if not (self.catalog.is_read or lists.is_partial):
                self.catalog.is_read = True
                self.catalog.changed("tools", for_sure=False)
            self._drop_groups()
            self._is_there()
        except NotConnected:
            self._forget(known)
        except ToolwireError as error:
            known.read_at = -inf
            self._failed(known, error)
        except Exception:
            known.read_at = -inf
            log.exception("reading the lists of the server %r failed", self.name)

    def _is_there(self) -> None:
        """Take note that the server answers, and list what was taken out of lists."""
        if self.guard.state == "open":
            return
        if self.state == "away":
            log.warning("the server %r is there now", self.name)
        self.state, self.error = "ready", None
        self._cancel_unlisting()
        self._note([], ())
        if self.catalog.is_unlisted:
            self._set_unlisted(False)
        self._tell_published()

    def _unlist(self) -> None:
        super()._unlist()
        self._set_unlisted(True)

    def _set_unlisted(self, is_unlisted: bool) -> None:
        for catalog in (self.catalog, *(each.catalog for each in self._groups.values())):
            catalog.is_unlisted = is_unlisted
        for family in ("tools", "prompts", "resources"):
            self.catalog.changed(family, for_sure=False)

    def _breaker_moved(self, state: BreakerState) -> None:
        super()._breaker_moved(state)
        if state != "open" and self.state == "away" and self.retired is None:
            self._is_there()

    async def _ask_for_sign(self, seconds: float) -> None:
        if self.back_connections.target.transport != "http":
            return  # Each account has a process of its own, and none of them says anything of the next one.
        try:
            await super()._ask_for_sign(seconds)
        except Unauthorized:
            return  # It answers.

    def _failed(self, known: OwnerLists, error: ToolwireError) -> None:
        """Say in the lists of a caller that those of this server are missing, unless the last ones are known."""
        known.next_reading = asyncio.get_running_loop().time() + LEAST_SECONDS
        if isinstance(error, TransportError) and not isinstance(error, Unauthorized):
            why = str(error)
            if self.state != "away":
                log.warning("the server %r is away: %s", self.name, why)
            self.state, self.error = "away", why
            self._tell_published()
        else:
            log.warning("%s: the lists of a caller cannot be read: %s", self.name, error)
        if known.group is None and known.owner in self._owners:
            lists = RemoteLists()
            lists.is_partial = True
            self._assign(known, self._group_of(lists))

    def _group_of(self, lists: RemoteLists) -> ListGroup:
        """Return the catalogue with these lists; make it where it is new."""
        key = _fingerprint(lists)
        group = self._groups.pop(key, None)
        is_new = group is None
        if group is None:
            group = ListGroup(self.name, lists)
            group.catalog.follower = self
            group.catalog.is_unlisted = self.catalog.is_unlisted
        # At the end: the first one is the one that was used longest ago.
        self._groups[key] = group
        group.lists.ttl = lists.ttl
        if is_new:
            self._offer(group)
        return group

    def _drop_groups(self) -> None:
        """Forget the accounts whose lists were used longest ago, where there are too many different lists."""
        while len(self._groups) > MAX_GROUPS:
            oldest = next(iter(self._groups.values()))
            for known in [each for each in self._owners.values() if each.group is oldest]:
                self._forget(known)

    def _offer(self, group: ListGroup) -> None:
        generation = self.uris.generation
        self._addresses.settle(self._units())
        for each in self._groups.values() if self.uris.generation != generation else (group,):
            self._fill(each.catalog, each.lists)
        self._made_for = self.uris.generation
        lists = group.lists
        missing = [*([self.name] if lists.is_partial else []), *(f"{self.name}/{each}" for each in lists.missing)]
        group.catalog.notes = {GATEWAYS_KEY: lists.gateways, **({MISSING_KEY: missing} if missing else {})}
        self.catalog.mount(Mount("", group.catalog))
        self.last_change = time.time()

    def _units(self) -> Iterator[Unit]:
        """Yield the addresses in all lists, each once."""
        found: dict[tuple[str, str], Unit] = {}
        for group in self._groups.values():
            lists = group.lists
            for unit in units_of(lists.resources, lists.templates, lists.skills, lists.tools):
                found.setdefault((unit.kind, unit.main), unit)
        yield from found.values()

    def _assign(self, known: OwnerLists, group: ListGroup | None) -> None:
        """Show an account the components of a group from now on."""
        before, known.group = known.group, group
        if before is group:
            return
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
        self.last_change = time.time()
        for family in ("tools", "prompts", "resources"):
            if _family(before, family) != _family(group, family):
                # The groups are the same as before, and so is the merged list. But the caller has another one.
                self.catalog.changed(family)

    # --- changes ---

    async def _hear_for(
        self, known: OwnerLists, connection: ClientConnection, place: Place, *, anew: bool = False
    ) -> bool:
        """Have the server tell of changes for one account, before its lists are read; return False if it does not.

        `anew`: also if it tells of changes already. The new subscription is there before the old one ends.
        """
        async with known.turn:
            connector = self.back_connections.connector_of(place[0])
            wanted = self._filter(connection, sorted(known.watched))
            if known.hearing is not None and not known.hearing.done() and not anew:
                return True
            if connector is None or wanted is None:
                return True  # There is nothing to hear of.
            subscription = Subscription(connector, wanted, SUBSCRIBE_SECONDS)
            try:
                await subscription.__aenter__()
            except ToolwireError as error:
                log.debug("%s does not tell an account of changes: %s", self.name, error)
                return False
            before, following = known.hearing, self._follow_for(known, subscription, place)
            known.hearing = asyncio.get_running_loop().create_task(following)
            known.is_told = self._announces_everything(connection)
            if before is not None:
                before.cancel()
            return True

    async def _follow_for(self, known: OwnerLists, subscription: Subscription, place: Place) -> None:
        try:
            async for change in subscription:
                if change.kind == "resource" and change.uri is not None:
                    self._tell_updated(known, self.uris.public(change.uri), change.params)
                    continue
                known.read_at = -inf
                await asyncio.wait({self._begin_reading_for(known, place)})
                await asyncio.sleep(1 / READINGS_A_SECOND)
        except ToolwireError as error:
            log.debug("%s no longer tells an account of changes: %s", self.name, error)
        finally:
            if known.hearing is asyncio.current_task():
                known.is_told = False
            await subscription.close()
        self._resubscribe_later(known)

    def _tell_updated(self, known: OwnerLists, uri: str, params: Mapping[str, Any] | None) -> None:
        """Tell the clients of one account that its resource has new contents. Others may have one of the same name."""
        frozen = None if params is None else FrozenParams(params)
        change = Change("updated", uri, params=frozen, owner=known.owner, server=self.name)
        for catalog in (self.catalog, *self.catalog.hosts_told_of(uri)):
            catalog.owner.kernel.hub.tell(change)

    def _changed_in_conversation(self, credential: Hashable, method: str | None, uri: str | None) -> None:
        if method != UPDATED:
            for known in self._owners.values():
                if self._is_of_account(known, str(credential)):
                    known.read_at = -inf

    async def suspect(self) -> None:
        """Read the lists of each caller again before its next request: one of them led to an error."""
        for known in self._owners.values():
            known.read_at = -inf


def _fingerprint(lists: RemoteLists) -> str:
    """Return a text that is the same for lists that look the same."""
    families = (lists.tools, lists.prompts, lists.resources, lists.templates)
    encoded = [[t.encode(each).decode() for each in family] for family in families]
    skills = [bytes(each).decode() for each in lists.skill_entries]
    return digest(json.encode([encoded, skills, lists.is_partial, lists.missing, lists.gateways]).decode())


def _family(group: ListGroup, family: str) -> list[bytes]:
    lists = group.lists
    if family == "resources":
        entries: list[Any] = [*lists.resources, *lists.templates]
        return [*(t.encode(each) for each in entries), *(bytes(each) for each in lists.skill_entries)]
    return [t.encode(each) for each in getattr(lists, family)]
