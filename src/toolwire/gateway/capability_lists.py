"""The lists of one upstream, or of one account there, for clients that declare less than the gateway can carry.

Some servers list a tool only for clients that can do what the tool needs. The shared lists are those for a client that
can do everything. They are compared with the lists for a client that can do nothing. Where these differ, each set of
capabilities has lists of its own, which are read when a client with this set asks for a list. Both are compared again
after a change; when they are the same, all clients see the shared lists again.

The components are in a catalogue that is mounted in that of the upstream (`ListOverlay`). So names, policies, pins,
restrictions and masks hold for them as for shared ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from toolwire.client.requests import Read
from toolwire.gateway.back_connections import EVERYTHING, BackConnections
from toolwire.gateway.conversation import Conversations, ListOverlay
from toolwire.gateway.list_follower import ANNOUNCED_SECONDS, UNLISTED_SECONDS, ListFollower
from toolwire.gateway.list_pace import ListPace
from toolwire.gateway.relaying import Relay
from toolwire.gateway.remote_lists import FAMILIES, RemoteLists, read_lists
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE, UI_EXTENSION
from toolwire.protocol.errors import InvalidResponse, ToolwireError
from toolwire.server.access import client_key
from toolwire.server.call import Call
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.components.restriction import Audience, ListClient
from toolwire.wire.deadlines import CallClock

if TYPE_CHECKING:
    from toolwire.client.connection import ClientConnection
    from toolwire.client.reconnect import Connector
    from toolwire.client.relay import RelayConnection

#: How many sets of capabilities of one upstream have lists of their own.
MAX_SETS: Final = 8
#: After how many seconds without a request the lists of a set make room for another set.
UNUSED_SECONDS: Final = 60.0
#: How many seconds pass between two readings of a legacy upstream for one set. Each takes a connection, or a process.
#: The second number is for readings that calls of unlisted tools lead to.
LEGACY_SECONDS: Final = 2.0
LEGACY_UNLISTED_SECONDS: Final = 30.0
#: How many seconds pass before lists are compared again that were read again without a change, and those of a legacy
#: upstream in any case.
COMPARE_SECONDS: Final = 300.0
#: How many seconds pass before lists are compared again that could not be read.
FAILED_SECONDS: Final = 60.0
#: How many seconds a request for a page may take.
READ_SECONDS: Final = 10.0

_NOTHING: Final[dict[str, Any]] = {}

_encode = msgspec.json.Encoder(order="sorted").encode


class VaryingServer(Protocol):
    """The lists of a server, for all clients or for one account, that may depend on the capabilities of clients."""

    name: str
    back_connections: BackConnections
    relay: Relay
    conversations: Conversations
    follower: ListFollower
    """That of the lists for a client that can do everything."""

    @property
    def catalog(self) -> Catalog:
        """The catalogue of the upstream."""

    @property
    def overlaid(self) -> Catalog:
        """The catalogue in which overlays are mounted."""

    @property
    def version(self) -> float | None:
        """A number that changes with the lists."""

    @property
    def shows_views(self) -> bool:
        """Return whether views stay in the lists."""

    async def open_connection(self) -> ClientConnection:
        """Return the connection for lists; open it if it is not open."""

    async def open_beside(self, capabilities: Mapping[str, Any]) -> RelayConnection:
        """Open a connection to a legacy upstream that declares these capabilities, for lists alone."""

    def find_connector(self) -> Connector | None:
        """Return what keeps the connection for lists; None where there is none now."""

    def check_lists(self, lists: RemoteLists) -> None:
        """Raise `Unreachable` for lists of this gateway itself; leave out of others what came through it."""

    def fill_overlay(self, overlay: ListOverlay) -> None:
        """Make the components of an overlay."""

    def hide_shared(self, audience: Audience | None) -> None:
        """Show the components of the lists to this audience only; None for everybody."""


class SetLists:
    """The lists of one set of capabilities."""

    def __init__(self) -> None:
        self.overlay: ListOverlay | None = None
        """Its components; None where they are the shared ones."""
        self.version: float | None = None
        """The change of the shared lists after which they were read."""
        self.read_at: float = -inf
        self.used: float = -inf


class CapabilityLists:
    """The lists of one upstream by what clients declare."""

    def __init__(self, server: VaryingServer, timeout: float | None) -> None:
        self._server = server
        self._timeout = READ_SECONDS if timeout is None else min(timeout, READ_SECONDS)
        self._sets: dict[bytes, SetLists] = {}
        self.varies: bool = False
        """Whether the lists depend on the capabilities of clients, as far as that is known."""
        self._compared: float | None = None
        """The change of the shared lists after which they were compared."""
        self._compared_at = -inf
        self._pace = ListPace()
        self._readings: dict[bytes, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._newest_key: tuple[Any, Any, Any, bytes] = (None, None, None, b"")
        """The capabilities that were looked at last, the extensions that counted then, and their key."""

    # --- clients ---

    def _key(self, capabilities: Mapping[str, Any]) -> bytes:
        """Return a text that names the set of capabilities of a client. Each overlay asks for it in each request."""
        known, offered, withheld, key = self._newest_key
        now = self._server.catalog.upstream_capabilities, self._server.relay.withheld
        if known is not capabilities or offered is not now[0] or withheld is not now[1]:
            key = _encode(self._relevant(capabilities))
            self._newest_key = (capabilities, *now, key)
        return key

    def _relevant(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a client's capabilities that lists may depend on, in one form."""
        upstream = self._server.catalog.upstream_capabilities or {}
        offered = upstream.get("extensions")
        names = {UI_EXTENSION, *(offered if isinstance(offered, Mapping) else ())}
        return relevant_capabilities(capabilities, names - {t.TASKS_EXTENSION, *self._server.relay.withheld})

    def _is_of(self, key: bytes, client: ListClient) -> bool:
        return self._server.conversations.sees_shared(client) and self._key(client.capabilities) == key

    def _sees_shared(self, others: Audience | None, client: ListClient) -> bool:
        if others is not None and not others.admits(None, frozenset(), client):
            return False
        known = self._sets.get(self._key(client.capabilities))
        return known is None or known.overlay is None

    def narrow(self, audience: Audience | None) -> Audience | None:
        """Return the audience of the shared lists: those in `audience` who have no other ones."""
        if not any(each.overlay is not None for each in self._sets.values()):
            return audience
        return Audience(clients=partial(self._sees_shared, audience))

    @property
    def overlays(self) -> Iterator[ListOverlay]:
        """Yield the components of all sets that differ from the shared ones."""
        for each in tuple(self._sets.values()):
            if each.overlay is not None:
                yield each.overlay

    # --- requests ---

    def freshen(self, call: Call) -> Awaitable[Any] | None:
        """Return what a list of a client waits for: the lists for its capabilities, where they are to be read."""
        server, now = self._server, asyncio.get_running_loop().time()
        version = server.version
        lists = server.follower.lists
        if lists is None or lists.is_partial or not (self.varies or self._is_to_be_compared(version, now)):
            return None
        key = self._key(call.request.capabilities)
        if key == self._key(EVERYTHING) or not server.conversations.sees_shared(_client_of(call)):
            return None
        known = self._sets.get(key)
        if known is not None:
            known.used = now
            if known.version == version and not self._is_too_old(known, now):
                return None
        if not self._may_read(key, known, now):
            return None
        return self._wait(self._begin(key, call.request.capabilities))

    def look_again(self, call: Call) -> Awaitable[Any] | None:
        """Read the lists of a client again that has other ones than the shared; None where that tells nothing new."""
        now = asyncio.get_running_loop().time()
        known = self._sets.get(self._key(call.request.capabilities)) if self.varies else None
        seconds = UNLISTED_SECONDS if self._is_modern else LEGACY_UNLISTED_SECONDS
        if known is None or known.overlay is None or now - known.read_at < seconds:
            return None
        known.version = None
        return self._wait(self._begin(self._key(call.request.capabilities), call.request.capabilities))

    def _is_to_be_compared(self, version: float | None, now: float) -> bool:
        """Return whether nothing says any more whether the lists are the same for all clients."""
        if self._compared is None:
            return now >= self._compared_at + FAILED_SECONDS
        if now < self._compared_at + COMPARE_SECONDS:
            return self._compared != version and self._is_modern
        return self._compared != version or self._server.follower.read_at > self._compared_at

    def _is_too_old(self, known: SetLists, now: float) -> bool:
        """Return whether the shared lists were read after those of a set."""
        if known.read_at >= self._server.follower.read_at:
            return False
        return self._is_modern or now >= known.read_at + LEGACY_UNLISTED_SECONDS

    def _may_read(self, key: bytes, known: SetLists | None, now: float) -> bool:
        """Return whether there is room for the lists of a set, and they can be read soon."""
        if self._pause(known, now) > ANNOUNCED_SECONDS:
            return False
        if known is not None or len(self._sets) < MAX_SETS:
            return True
        oldest = min(self._sets, key=lambda each: self._sets[each].used)
        if self._sets[oldest].used + UNUSED_SECONDS > now:
            return False
        self._drop(oldest)
        return True

    def _pause(self, known: SetLists | None, now: float) -> float:
        """Return how many seconds the next reading has to wait: lists are large, or a process was started for them."""
        after_last = 0.0 if known is None or self._is_modern else known.read_at + LEGACY_SECONDS - now
        return max(self._pace.seconds_until_next(now), self._server.follower.seconds_until_reading, after_last)

    @property
    def _is_modern(self) -> bool:
        connector = self._server.find_connector()
        connection = None if connector is None else connector.connection
        return connection is not None and connection.modern

    async def _wait(self, reading: asyncio.Task[None]) -> None:
        """Wait for a reading, for as long as lists wait for one that was announced. A late one is a change."""
        varied = self.varies
        await asyncio.wait({reading}, timeout=ANNOUNCED_SECONDS)
        if not reading.done():
            reading.add_done_callback(partial(self._announce, varied))

    def _announce(self, varied: bool, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled() and (varied or self.varies):
            for family in FAMILIES:
                self._server.catalog.changed(family)

    # --- reading ---

    def _begin(self, key: bytes, capabilities: Mapping[str, Any]) -> asyncio.Task[None]:
        """Read the lists of a set once, however many clients wait for them."""
        reading = self._readings.get(key)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read(key, self._relevant(capabilities)))
            self._readings[key] = reading
            reading.add_done_callback(lambda _: self._readings.pop(key, None))
        return reading

    async def _read(self, key: bytes, capabilities: Mapping[str, Any]) -> None:
        server, loop = self._server, asyncio.get_running_loop()
        try:
            # One after the other: each may be a process.
            async with self._turn:
                await asyncio.sleep(self._pause(self._sets.get(key), loop.time()))
                is_known = self.varies and not self._is_to_be_compared(server.version, loop.time())
                if not is_known and not await self._compare():
                    return
                known = self._sets.get(key)
                version = server.version
                if known is None or known.version != version or self._is_too_old(known, loop.time()):
                    self._put(key, await self._read_for(capabilities), version)
        except ToolwireError as error:
            server.back_connections.log.debug("its lists for other clients cannot be read: %s", error)

    async def _compare(self) -> bool:
        """Compare the shared lists with those for a client that can do nothing; return whether they differ."""
        self._compared, self._compared_at = None, asyncio.get_running_loop().time()
        version = self._server.version
        bare = await self._read_for(_NOTHING)
        self._put(self._key(_NOTHING), bare, version)
        return self.varies

    async def _read_for(self, capabilities: Mapping[str, Any]) -> RemoteLists:
        """Read the lists that the upstream has for a client with these capabilities."""
        server, loop = self._server, asyncio.get_running_loop()
        views = server.shows_views
        self._pace.begin(loop.time())
        shared = await server.open_connection()
        if shared.modern:
            asking = cast("ClientConnection", _Asking(cast("RelayConnection", shared), capabilities))
            lists = await read_lists(server.back_connections.log, asking, None, self._timeout, views)
        else:
            connection = await server.open_beside(capabilities)
            try:
                lists = await read_lists(server.back_connections.log, connection, None, self._timeout, views)
            finally:
                server.back_connections.close_beside(connection)
        self._pace.end(loop.time(), lists.size, has_changed=True)
        if lists.is_partial:
            raise InvalidResponse("a list could not be read to its end")
        server.check_lists(lists)
        return lists

    # --- components ---

    def _put(self, key: bytes, lists: RemoteLists, version: float | None) -> None:
        """Show lists to the clients with a set of capabilities."""
        server, now = self._server, asyncio.get_running_loop().time()
        shared = server.follower.lists
        is_shared = shared is not None and _are_same(lists, shared)
        if key == self._key(_NOTHING):
            self._compared, self._compared_at = version, now
            if is_shared or shared is None:
                self._share_again()
                return
            self.varies = True
            if key not in self._sets and len(self._sets) >= MAX_SETS:
                return
        known = self._sets.setdefault(key, SetLists())
        known.version, known.read_at, known.used = version, now, max(known.used, now)
        before = known.overlay
        if not is_shared and before is not None and _are_same(lists, before.lists):
            return
        known.overlay = None if is_shared else ListOverlay(server.name, lists, partial(self._is_of, key))
        if known.overlay is not None:
            server.fill_overlay(known.overlay)
        self._exchange(before, known.overlay)

    def _share_again(self) -> None:
        """Show the shared lists to all clients: they do not depend on what clients can do."""
        if not self.varies:
            return
        for key in tuple(self._sets):
            self._drop(key)
        self.varies = False
        self._server.hide_shared(self._server.conversations.shared_audience)

    def _drop(self, key: bytes) -> None:
        self._exchange(self._sets.pop(key).overlay, None)

    def _exchange(self, before: ListOverlay | None, after: ListOverlay | None) -> None:
        """Mount components in place of others. Those who have none of their own see the shared ones."""
        server = self._server
        # First, because the catalogue looks at demands anew when something is mounted or removed.
        server.hide_shared(server.conversations.shared_audience)
        if after is not None:
            server.overlaid.mount(Mount("", after.catalog))
        if before is not None:
            server.overlaid.unmount(before.catalog)

    async def close(self) -> None:
        """Forget all lists."""
        if ending := self.drop_sets():
            await asyncio.wait(ending)

    def drop_sets(self) -> list[asyncio.Task[None]]:
        """Show the shared lists to all clients, and read no other ones; return the tasks that are about to end."""
        ending = list(self._readings.values())
        for reading in ending:
            reading.cancel()
        for key in tuple(self._sets):
            self._drop(key)
        self.varies, self._compared, self._compared_at = False, None, -inf
        self._turn = asyncio.Lock()  # The next one who waits may do so on another loop.
        return ending


class _Asking:
    """A connection to a modern upstream, for requests that declare other capabilities than it."""

    def __init__(self, connection: RelayConnection, capabilities: Mapping[str, Any]) -> None:
        self._connection = connection
        self._meta = connection.describe(capabilities)
        self.callable = connection.callable
        self.agreement = connection.agreement
        self.modern = True
        self.session = connection.session

    async def ask(self, method: str, params: t.RequestParams, decode: Read[Any], clock: CallClock) -> Any:
        params.meta = cast("t.RequestMeta", self._meta)
        raw = await self._connection.send(method, params, timeout=clock.limit(method))
        try:
            return decode(raw)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise InvalidResponse(f"The server's answer to {method} is broken: {error}") from None


def relevant_capabilities(capabilities: Mapping[str, Any], extensions: set[str]) -> dict[str, Any]:
    """Return the part of a client's capabilities that lists may depend on, in one form.

    `extensions` are those that count. A client decides nothing else, so that there are few different sets.
    """
    found: dict[str, Any] = {}
    elicitation, sampling = capabilities.get("elicitation"), capabilities.get("sampling")
    if isinstance(elicitation, Mapping):
        # 2025-11-25 client/elicitation: an empty object stands for forms.
        found["elicitation"] = {mode: {} for mode in ("form", "url") if mode in elicitation} or {"form": {}}
    if isinstance(sampling, Mapping):
        found["sampling"] = {part: {} for part in ("tools", "context") if part in sampling}
    if isinstance(capabilities.get("roots"), Mapping):
        found["roots"] = {}
    declared = capabilities.get("extensions")
    if isinstance(declared, Mapping):
        known: dict[str, Any] = {name: {} for name in sorted(extensions & declared.keys()) if name != UI_EXTENSION}
        if UI_EXTENSION in extensions and _shows_views(declared.get(UI_EXTENSION)):
            known[UI_EXTENSION] = {"mimeTypes": [APP_MIME_TYPE]}
        if known:
            found["extensions"] = known
    return found


def _are_same(lists: RemoteLists, others: RemoteLists) -> bool:
    """Return whether lists have the same entries, in whatever order."""
    return lists.digest() == others.digest() or all(
        sorted(lists.family(family)) == sorted(others.family(family)) for family in FAMILIES
    )


def _shows_views(settings: Any) -> bool:
    types = settings.get("mimeTypes") if isinstance(settings, Mapping) else None
    return isinstance(types, list) and APP_MIME_TYPE in types


def _client_of(call: Call) -> ListClient:
    return ListClient(client_key(call.request, call.outlet), call.request.capabilities)
