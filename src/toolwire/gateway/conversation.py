"""The lists and subscriptions of client sessions at one legacy upstream.

A legacy upstream keeps its state by session: subscriptions, and tools or resources that it adds while it runs. Each
client session has a session of its own there (`BackConnections`). When the upstream announces a change in one of them,
the lists of that session are read. Where they differ from the shared lists, they are an overlay: this client lists,
calls and reads what is in it, and this client alone is notified. Its `resources/subscribe` goes to that session, too.

The components of an overlay are in a catalogue that is mounted in that of the upstream. So names, policies, pins,
restrictions and masks hold for them as for shared ones. An overlay ends with the connection of its session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolwire.client.connection import ClientConnection
from toolwire.client.reconnect import Connector
from toolwire.gateway.back_connections import BackConnections, Conversation
from toolwire.gateway.hosts import Hosts
from toolwire.gateway.list_follower import ANNOUNCED_SECONDS, LIST_SECONDS, FollowSettings, ListFollower
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_lists import FAMILIES, RemoteLists
from toolwire.gateway.upstream_components import UpstreamComponents
from toolwire.gateway.upstream_log import UpstreamLog
from toolwire.http.legacy.session_calls import SessionConnection
from toolwire.http.legacy.session_records import SessionRecord
from toolwire.protocol import types as t
from toolwire.protocol.changes import UPDATED, Change
from toolwire.protocol.errors import ProtocolError, ToolwireError, Unreachable
from toolwire.server.access import client_key
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.components.restriction import Audience, ListClient
from toolwire.server.server import Server
from toolwire.stores import MemoryKV, StoreFailed, StoreFull
from toolwire.wire.session import Session

if TYPE_CHECKING:
    from toolwire.client.relay import RelayConnection

log: logging.Logger = logging.getLogger("toolwire.gateway")

#: How many bytes the overlays of one upstream have together, and those of one caller. The components that an overlay
#: shares with the shared lists count, too.
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_BYTES_OF_CALLER: Final = 16 * 1024 * 1024


class ListOverlay(Server):
    """The components in lists that differ from the shared ones, for some clients."""

    def __init__(self, name: str, lists: RemoteLists, is_for: Callable[[ListClient], bool]) -> None:
        super().__init__(name)
        self.lists = lists
        self.catalog.audience = Audience(clients=is_for)
        self.catalog.gateways = lists.gateways


class OverlaidServer(Protocol):
    """The server whose lists are overlaid."""

    name: str
    catalog: Catalog
    back_connections: BackConnections
    relay: Relay
    components: UpstreamComponents
    hosts: Hosts
    follower: ListFollower
    """That of the shared lists."""

    def find_shared_lists(self, credential: Hashable) -> RemoteLists | None:
        """Return the shared lists that the holder of a credential sees; None before they were read."""

    async def read_shared_lists(self, credential: Hashable) -> None:
        """Read the shared lists again."""

    def fill_overlay(self, overlay: ListOverlay) -> None:
        """Make the components of an overlay."""

    def hide_shared(self, audience: Audience | None) -> None:
        """Show the shared components to this audience only; None for everybody."""

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists of this gateway itself; leave out of others what came through it."""


class ClientConversation:
    """One client session at one legacy upstream: what it subscribed to, and its lists where they differ."""

    def __init__(
        self,
        server: OverlaidServer,
        key: Conversation,
        call: Call,
        publish_lists: Callable[[ClientConversation, RemoteLists], None],
    ) -> None:
        """`publish_lists` gets lists that were read."""
        self.name: str = server.name
        self.log: UpstreamLog = server.back_connections.log
        self.key: Conversation = key
        self.caller: Hashable = call.request.caller
        self.front: Any = call.outlet.connection
        """The session of the newest call; it tells other processes which lists the client has."""
        self.is_shared: bool = not isinstance(call.host.stores.kv, MemoryKV)
        """Whether other processes may serve the session, too."""
        self.uris: set[str] = set()
        """The resources that the client subscribed to, as the upstream has them."""
        self.overlay: ListOverlay | None = None
        self.digest: str = ""
        """A text that names the lists of the overlay; empty without one."""
        self.follower: ListFollower = ListFollower(
            self, FollowSettings(timeout=LIST_SECONDS, persists=False, hears_lists=False)
        )
        self._server = server
        self._reading: asyncio.Task[None] | None = None
        self._is_announced = False
        self._publish_lists = publish_lists

    # --- the upstream, as its follower has it ---

    async def open_connection(self) -> ClientConnection:
        connector = self.find_connector()
        if connector is None:
            raise Unreachable("the conversation has ended")
        return await connector.live()

    def find_connector(self) -> Connector | None:
        return self._server.back_connections.find_lane(self.key)

    def leave_address(self, error: ToolwireError, connection: ClientConnection) -> bool:
        return False

    def check_connection(self, connection: ClientConnection) -> None:
        """Take every connection: the shared one was checked."""

    def check_lists(self, lists: RemoteLists) -> None:
        self._server.check_lists(lists)

    @property
    def is_ready(self) -> bool:
        return True  # The shared lists are shown meanwhile.

    @property
    def shows_views(self) -> bool:
        return self._server.components.shows_views

    def publish_lists(self, lists: RemoteLists, connection: ClientConnection) -> bool:
        before = self.digest
        self._publish_lists(self, lists)
        return self.digest != before

    def note_lost(self, error: ToolwireError) -> None:
        self.log.debug("a conversation cannot be followed: %s", error)

    def watched_uris(self) -> list[str]:
        return sorted(self.uris) if self.find_connector() is not None else []

    def announce_update(self, uri: str, params: Any) -> None:
        if (public := self._server.components.find_updated(uri)) is not None:
            self.tell_client(Change("updated", public, params=params, server=self.name, mark=self._server.catalog.mark))

    # --- the client ---

    def tell_client(self, change: Change) -> None:
        """Tell the client, and no other, of a change."""
        for hub in self._server.hosts.hubs:
            hub.tell_client(self.key.client, change)

    async def subscribe(self, uris: Iterable[str]) -> None:
        """Have the upstream announce updates of these resources in this conversation."""
        self.uris.update(uris)
        self.follower.start()
        waiting = self.follower.watch(self.uris)
        if waiting is not None:
            await waiting

    def unsubscribe(self, uri: str) -> None:
        """Let the upstream announce no more updates of a resource in this conversation."""
        self.uris.discard(uri)
        self.follower.renew_subscription()

    def read_soon(self) -> asyncio.Task[None]:
        """Read the lists of the conversation after the shared ones, because one of them was announced to change."""
        self._is_announced = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        return self._reading

    @property
    def reading(self) -> asyncio.Task[None] | None:
        """The reading that was announced; None where there is none."""
        return None if self._reading is None or self._reading.done() else self._reading

    async def _read(self) -> None:
        while self._is_announced:
            self._is_announced = False
            with suppress(ToolwireError):
                # First, so that what changed for all clients is no overlay.
                await self._server.read_shared_lists(self.key.credential)
            await self.follower.ensure_read()

    def cancel(self) -> None:
        """Follow the conversation no more."""
        self.follower.cancel()
        if self._reading is not None:
            self._reading.cancel()


class Conversations:
    """The conversations of all clients at one upstream that have subscriptions, or lists of their own."""

    def __init__(self, server: OverlaidServer) -> None:
        self._server = server
        self._by_client: dict[Hashable, ClientConversation] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._shared = Audience(clients=self.sees_shared)

    def __len__(self) -> int:
        return len(self._by_client)

    def __iter__(self) -> Iterator[ClientConversation]:
        return iter(tuple(self._by_client.values()))

    def sees_shared(self, client: ListClient) -> bool:
        """Return whether a client has no lists of its own."""
        known = self._by_client.get(client.session)
        return known is None or known.overlay is None

    @property
    def shared_audience(self) -> Audience | None:
        """The clients without lists of their own; None where these are all clients."""
        return self._shared if any(each.overlay is not None for each in self) else None

    def find(self, call: Call) -> ClientConversation | None:
        """Return the conversation of a call; None where it has neither subscriptions nor lists of its own."""
        client = client_key(call.request, call.outlet)
        return None if client is None else self._by_client.get(client)

    def has_subscribed(self, client: Hashable, uri: str) -> bool:
        """Return whether a client gets the updates of a resource in its conversation.

        `client` is a connection; None stands for any HTTP session.
        """
        if client is not None:
            known = self._by_client.get(client)
            return known is not None and uri in known.uris
        return any(uri in each.uris for name, each in self._by_client.items() if isinstance(name, str))

    def keeps(self, client: Hashable) -> bool:
        """Return whether a client has subscriptions, or lists of its own, in its conversation."""
        known = self._by_client.get(client)
        return known is not None and (bool(known.uris) or known.overlay is not None)

    def _make(self, key: Conversation, call: Call) -> ClientConversation:
        known = self._by_client.get(key.client)
        if known is None or known.key != key:
            if known is not None:
                self.end(key.client)
            known = self._by_client[key.client] = ClientConversation(self._server, key, call, self._publish_lists)
        known.front = call.outlet.connection
        return known

    # --- subscriptions ---

    def subscribe(self, call: Call, uris: Iterable[str]) -> asyncio.Task[None]:
        """Subscribe to resources in the conversation of a call; return what its client waits for."""
        return self._begin(self._subscribe(call, list(uris)))

    async def _subscribe(self, call: Call, uris: list[str]) -> None:
        conversation = await self._open(call)
        connector = None if conversation is None else conversation.find_connector()
        connection = None if connector is None else connector.connection
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                if conversation is not None and connection is not None and _announces_updates(connection):
                    await conversation.subscribe(uris)
                elif self._server.follower.is_running and (waiting := self._server.follower.watch(uris)) is not None:
                    await waiting  # Some servers have subscriptions in the new era alone.

    async def _open(self, call: Call) -> ClientConversation | None:
        """Return the conversation of a call, with a connection; None where there is none."""
        try:
            connection = await self._server.relay.conversation_connection(call)
        except ToolwireError as error:
            self._log.debug("a conversation cannot be opened: %s", error)
            return None
        key = self._server.back_connections.conversation(connection)
        is_own = key is not None and not connection.modern and key.client == client_key(call.request, call.outlet)
        return self._make(key, call) if is_own and key is not None else None

    # --- changes ---

    def note_change(self, key: Conversation, method: str | None) -> bool:
        """Read the lists of a conversation whose upstream announced a change; return whether it is that of a client.

        Updates of resources come with the subscription of the conversation.
        """
        if method == UPDATED:
            return True
        connector = self._server.back_connections.find_lane(key)
        connection: RelayConnection | None = None if connector is None else connector.connection  # type: ignore[assignment]
        call = None if connection is None else connection.newest_call
        if method is None or call is None or client_key(call.request, call.outlet) != key.client:
            known = self._by_client.get(key.client)
            if known is not None and known.key == key:
                known.read_soon()  # The connection was opened again, and the upstream may have forgotten everything.
            return known is not None
        self._make(key, call).read_soon()
        return True

    def _publish_lists(self, conversation: ClientConversation, lists: RemoteLists) -> None:
        """Show a client the lists of its session, as an overlay where they differ from the shared ones."""
        if self._by_client.get(conversation.key.client) is not conversation:
            return
        shared = self._server.find_shared_lists(conversation.key.credential)
        before = shared if conversation.overlay is None else conversation.overlay.lists
        digest = lists.digest()
        if shared is not None and digest == shared.digest():
            digest = ""
        if digest == conversation.digest:
            return
        if digest and not self._has_room(conversation, lists):
            self._log.warning("the lists of a client session are too large to be kept beside the shared ones")
            return
        changed = [family for family in FAMILIES if before is None or before.family(family) != lists.family(family)]
        self._set_overlay(conversation, lists if digest else None, digest)
        self._begin(self._tell(conversation, changed))

    @property
    def _name(self) -> str:
        return self._server.name

    @property
    def _log(self) -> UpstreamLog:
        return self._server.back_connections.log

    def _has_room(self, conversation: ClientConversation, lists: RemoteLists) -> bool:
        held = [
            (each.caller, each.overlay.lists.size)
            for each in self
            if each.overlay is not None and each is not conversation
        ]
        of_caller = sum(size for caller, size in held if caller == conversation.caller)
        total = sum(size for _, size in held)
        return of_caller + lists.size <= MAX_BYTES_OF_CALLER and total + lists.size <= MAX_BYTES

    def _set_overlay(self, conversation: ClientConversation, lists: RemoteLists | None, digest: str) -> None:
        catalog = self._server.catalog
        before, conversation.overlay, conversation.digest = conversation.overlay, None, digest
        if lists is not None:
            client = conversation.key.client
            overlay = ListOverlay(self._name, lists, lambda other: other.session == client)
            conversation.overlay = overlay
            self._server.fill_overlay(overlay)
            catalog.mount(Mount("", overlay.catalog))
        if before is not None:
            catalog.unmount(before.catalog)
        self._server.hide_shared(self.shared_audience)

    async def _tell(self, conversation: ClientConversation, families: Iterable[str]) -> None:
        """Tell the other processes of the gateway, and then the client, that the lists of a session changed."""
        front = conversation.front
        if conversation.is_shared and isinstance(front, SessionConnection):
            held = front.record.backs.get(self._server.relay.key)
            if held is not None and held.lists == conversation.digest:
                return  # Another process told the client.
            try:
                await front.note_lists(self._server.relay.key, conversation.digest)
            except (ProtocolError, StoreFull, StoreFailed) as error:
                self._log.warning("other processes do not know the lists of a session: %s", str(error))
        for family in families:
            conversation.tell_client(Change(family))

    def compare_all(self) -> None:
        """Drop the overlays that are the same as the shared lists now, which have changed; read the others again."""
        for each in self:
            shared = self._server.find_shared_lists(each.key.credential)
            if each.overlay is None or shared is None:
                continue
            if each.digest == shared.digest():
                self._publish_lists(each, each.overlay.lists)
            else:
                # What changed for all clients changed here, too, and not every server announces it in each session.
                each.follower.read_again()

    # --- requests ---

    def freshen(self, call: Call) -> Awaitable[Any] | None:
        """Return what a list of a client waits for: a reading that was announced in its conversation."""
        known = self.find(call)
        if known is None or known.reading is None:
            return None
        return asyncio.wait({known.reading}, timeout=ANNOUNCED_SECONDS)

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        """Read the lists of the conversation of a call again; None where it has none, or they were just read."""
        client = client_key(call.request, call.outlet)
        if client is None:
            return None
        known = self._by_client.get(client)
        if known is not None:
            return self.freshen(call) or known.follower.look_again()
        key = self._server.back_connections.find_conversation(client)
        return None if key is None else asyncio.wait({self._make(key, call).read_soon()}, timeout=ANNOUNCED_SECONDS)

    def take_up_session(self, call: Call) -> Awaitable[None] | None:
        """Take up the subscriptions and lists that a session of another process has at the upstream."""
        front = call.outlet.connection
        if not isinstance(front, SessionConnection) or isinstance(call.host.stores.kv, MemoryKV):
            return None
        held = front.record.backs.get(self._server.relay.key)
        if held is None:
            return None
        known = self._by_client.get(front.session_id)
        is_known = not front.record.uris if known is None else True
        if is_known and held.lists == ("" if known is None else known.digest):
            return None
        return self._take_up(call, front.record)

    async def _take_up(self, call: Call, record: SessionRecord) -> None:
        conversation = await self._open(call)
        if conversation is None:
            return
        subscribed = self._server.components.own_uris(call, record.uris)
        if subscribed:
            await asyncio.wait({self._begin(conversation.subscribe(subscribed))}, timeout=LIST_SECONDS)
        if record.backs[self._server.relay.key].lists != conversation.digest:
            await asyncio.wait({conversation.read_soon()}, timeout=LIST_SECONDS)

    # --- the end ---

    def lose(self, key: Conversation) -> None:
        """Forget a conversation whose connection is closed. Its client gets the shared lists from now on."""
        known = self._by_client.get(key.client)
        if known is not None and known.key == key:
            self.end(key.client)

    def end(self, client: Hashable, *, quietly: bool = False) -> None:
        """Forget the conversation of a client. `quietly`: the client is not told that it gets the shared lists."""
        known = self._by_client.get(client)
        if known is None:
            return
        known.cancel()
        families = () if known.overlay is None else FAMILIES
        if known.overlay is not None:
            self._set_overlay(known, None, "")
        del self._by_client[client]
        self._server.follower.renew_subscription()  # The shared connection subscribes in its place.
        if not (quietly or (isinstance(client, Session) and client.over)):
            for family in families:
                known.tell_client(Change(family))

    async def close(self) -> None:
        """Forget all conversations."""
        for client in list(self._by_client):
            self.end(client, quietly=True)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _announces_updates(connection: ClientConnection) -> bool:
    """Return whether the upstream takes subscriptions on a connection."""
    return t.has_capability(connection.agreement.capabilities, "resources.subscribe")
