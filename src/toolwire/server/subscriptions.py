"""Subscriptions: who is told of list changes and resource updates, on both eras.

A legacy connection gets list changes unasked, and updates of the resources that it subscribed to. A modern client gets
only the changes that it asked for with `subscriptions/listen`, on that stream (2026-07-28
basic/patterns/subscriptions).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.changes import (
    LIST_CHANGED,
    UPDATED,
    Change,
    FrozenParams,
    covers,
    declared_extensions,
    everything,
    legacy_notification,
    updated_params,
)
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, counted
from toolwire.protocol.lifecycle import ServerLifecycle
from toolwire.server.call import Call
from toolwire.server.extensions import AnyMethod, Extension
from toolwire.server.limits import Limits
from toolwire.server.watched_addresses import WatchedAddresses
from toolwire.util.out_queue import FULL, OutBound
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Session
from toolwire.wire.shares import Shares
from toolwire.wire.threads import call_on

log: logging.Logger = logging.getLogger("toolwire.server")

# The number of different changes that are kept for a client that reads slowly.
MAX_HELD: Final = 1000
# The bytes of these changes. They fit into an outgoing queue whose reader has caught up.
MAX_HELD_BYTES: Final = FULL // 2
# The number of addresses that are remembered because HTTP sessions subscribed to them.
MAX_WATCHED: Final = 10_000
#: The log level of a client that set none.
USUAL_LEVEL: Final = "info"
#: How many seconds a client that sets its log level waits for the servers behind this one.
LEVEL_SECONDS: Final = 2.0
_FILTERS: Final = {
    "tools": "tools_list_changed",
    "prompts": "prompts_list_changed",
    "resources": "resources_list_changed",
}


class LegacyClient:
    """The state of one legacy connection: its log level, and what it subscribed to."""

    def __init__(self, session: Session, hears: Callable[[Change], bool] | None = None) -> None:
        """`hears` says whether the client may know of an update; without it, the client may know of all."""
        self.session = session
        self._hears = hears
        self.level: t.LoggingLevel = USUAL_LEVEL
        self.uris: set[str] = set()
        self.loop: asyncio.AbstractEventLoop = session.loop
        self._held: dict[Change, tuple[str, Any]] = {}
        self._held_size: OutBound
        self._is_behind = False
        """Whether changes were dropped, so that the client has to read everything again."""
        self._unsent_logs = 0

    def tell(self, change: Change) -> None:
        lifecycle = self.session.peer.lifecycle
        if not isinstance(lifecycle, ServerLifecycle) or lifecycle.era != "legacy" or not lifecycle.ready:
            return  # 1.3.1.4: before `initialized` a server keeps to pings and log messages.
        declared = declared_extensions(lifecycle.capabilities)
        notification = legacy_notification(change, self.uris, lifecycle.promised, declared)
        if notification is None or (change.kind == "updated" and not self._may_hear(change)):
            return
        if self.session.channel.congested:
            self._hold(change, notification)
        else:
            self.session.notify(*notification)

    def tell_everything(self) -> None:
        for change in everything(self.uris):
            self.tell(change)

    def _may_hear(self, change: Change) -> bool:
        return self._hears is None or self._hears(change)

    def log(self, params: t.LoggingMessageNotificationParams) -> None:
        """Send a log message of the server, if the client wants its level; drop it if the client reads slowly."""
        wanted = t.severity(params.level) >= t.severity(self.level)
        if self.session.peer.lifecycle.revision is None or not wanted:
            return
        if self.session.channel.congested:
            if not self._unsent_logs:
                log.warning("a client reads too slowly: log messages to it are dropped")
                self.loop.create_task(self._tell_unsent())
            self._unsent_logs += 1
        else:
            self.session.notify("notifications/message", params)

    async def _tell_unsent(self) -> None:
        await self.session.channel.drain()
        count, self._unsent_logs = self._unsent_logs, 0
        text = f"The client was behind, so {count} log {'message was' if count == 1 else 'messages were'} not sent"
        self.log(t.LoggingMessageNotificationParams(level="warning", data=text))

    def _hold(self, change: Change, notification: tuple[str, Any]) -> None:
        """Keep a change for a client that reads slowly. It gets each change once, when it has caught up."""
        if self._is_behind or change in self._held:
            return
        size = _size_of(change)
        if not self._held:
            self._held_size = OutBound(limit=MAX_HELD_BYTES)
            self.loop.create_task(self._release())
        elif len(self._held) >= MAX_HELD or not self._held_size.has_room(size):
            log.warning("a client is too far behind: it is told to look at everything again")
            self._is_behind = True
            return
        self._held[change] = notification
        self._held_size.add(size)

    async def _release(self) -> None:
        await self.session.channel.drain()
        held, self._held = self._held, {}
        if self._is_behind:
            self._is_behind = False
            # Each change is sent once, even if the client is still behind. Later changes are kept again.
            self.tell_everything()
            return
        for notification in held.values():
            self.session.notify(*notification)


class Stream:
    """One `subscriptions/listen` that is open."""

    def __init__(self, call: Call, accepted: t.SubscriptionFilter, hears: Callable[[Change], bool]) -> None:
        """`hears` says whether the listener may know of an update."""
        self.call = call
        self.outlet: Outlet = call.outlet
        self._hears = hears
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.accepted = accepted
        self.extra: dict[str, Any] = {}
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self._meta = {t.SUBSCRIPTION_ID_KEY: call.request_id}
        self.uris: set[str] = (
            set() if accepted.resource_subscriptions is UNSET else set(accepted.resource_subscriptions)
        )
        self._held: dict[Change, None] = {}
        self._held_size: OutBound
        self._is_acknowledged = False
        self._early: list[Change] = []
        self._early_size = OutBound(limit=MAX_HELD_BYTES)

    def acknowledge(self) -> None:
        """SUB-2: tell the client, in the first message of the stream, which notifications it will get."""
        self._is_acknowledged = True
        accepted: Any = self.accepted
        if self.extra:
            accepted = {**self.accepted.to_dict(), **self.extra}
        params = t.SubscriptionsAcknowledgedNotificationParams(notifications=accepted, meta=self._meta)
        self.outlet.notify("notifications/subscriptions/acknowledged", params)
        early, self._early = self._early, []
        for change in early:
            self._tell(change)

    def tell(self, change: Change) -> None:
        if self._is_acknowledged and self._wants(change):
            self._tell(change)  # SUB-2, SUB-5

    def hand_on(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification of a server elsewhere that the client asked for."""
        change = Change("", method=method, params=FrozenParams(params))
        if self._is_acknowledged:
            self._tell(change)
        elif len(self._early) < MAX_HELD and self._early_size.has_room(size := _size_of(change)):
            self._early.append(change)
            self._early_size.add(size)

    def _tell(self, change: Change) -> None:
        if self.ended.done():
            return
        if self.outlet.congested:
            if change not in self._held:
                self._hold(change)
            return
        self._send(change)

    def _hold(self, change: Change) -> None:
        """Keep a change for a client that reads slowly. End the stream of one that is too far behind."""
        size = _size_of(change)
        if not self._held:
            self._held_size = OutBound(limit=MAX_HELD_BYTES)
            self.loop.create_task(self._release())
        elif len(self._held) >= MAX_HELD or not self._held_size.has_room(size):
            # The client can fetch the current state and listen again.
            log.warning("a listen stream is too far behind, and ends")
            self._held.clear()
            self.end()
            return
        self._held[change] = None
        self._held_size.add(size)

    def tell_everything(self) -> None:
        for change in everything(self.uris):
            self.tell(change)

    def _wants(self, change: Change) -> bool:
        if change.method:
            wanted = self.extra.get(change.kind)
            return wanted is not None and (not isinstance(wanted, list) or change.uri in wanted)
        if change.kind == "updated":
            return covers(self.uris, change.uri) and self._hears(change)
        return getattr(self.accepted, _FILTERS[change.kind]) is True

    def _send(self, change: Change) -> None:
        # SUB-6: everything on a subscription carries its id.
        if change.method:
            members = change.params if isinstance(change.params, dict) else dict(change.params or {})
            meta = {**members.get("_meta", {}), **self._meta}
            self.outlet.notify(change.method, {**members, "_meta": meta})  # type: ignore[arg-type]
        elif change.kind == "updated":
            self.outlet.notify(UPDATED, updated_params(change, self._meta))
        else:
            self.outlet.notify(LIST_CHANGED[change.kind], t.NotificationParams(meta=self._meta))

    async def _release(self) -> None:
        await self.outlet.drain()
        held, self._held = self._held, {}
        for change in held:
            self._send(change)

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _size_of(change: Change) -> int:
    """Return about how many bytes the notification of a change has."""
    return len(change.uri) + (0 if change.params is None else len(t.encode(change.params)))


class Relay(Protocol):
    """The way to the other processes that serve the same clients."""

    @property
    def is_open(self) -> bool:
        """Return whether messages are sent now."""

    def changed(self, change: Change) -> None: ...

    def logged(self, params: t.LoggingMessageNotificationParams, session: str) -> None: ...

    def said(self, session: str, message: bytes) -> None: ...

    async def announce_lists(self) -> None: ...


class BehindHub(Protocol):
    """A server behind this one, which learns what the clients of this one do."""

    @property
    def back_key(self) -> str:
        """A hash of its name and address, which names it in the records of sessions."""

    @property
    def back_name(self) -> str:
        """A hash of its name alone."""

    def watch(self, uris: Iterable[str]) -> asyncio.Future[None] | None:
        """Follow the resources that a client subscribes to; return what the client waits for.

        There are none when a client may have ended subscriptions.
        """

    def end_session(self, session: str) -> None:
        """Note that the legacy HTTP session with this id is over."""

    def end_connection(self, session: Session) -> None:
        """Note that a connection closes."""

    def tell_roots_changed(self, client: Hashable) -> None:
        """Note that a client has changed roots. It is a connection, or the id of an HTTP session."""

    def hand_on_level(self, client: Hashable, level: t.LoggingLevel) -> Sequence[asyncio.Task[None]]:
        """Set the log level of a client in its conversations; return what it waits for."""


class Hub:
    """The clients of one event loop that are told of changes. The changes may come from any thread."""

    def __init__(self, limits: Limits) -> None:
        self.shares: Shares = Shares(limits.listeners, limits.share, "listen streams open", seconds=5)
        self.clients: dict[Session, LegacyClient] = {}
        self.streams: set[Stream] = set()
        self.relay: Relay | None = None
        self.upstreams: list[BehindHub] = []
        """The running servers behind this one."""
        self.backs: list[str] = []
        """Their keys. They are looked at for each request of a legacy session."""
        self.back_names: list[str] = []
        self._of_sessions = WatchedAddresses(MAX_WATCHED)

    def attach(self, upstream: BehindHub) -> None:
        """Tell a server behind this one what clients do, until `detach`."""
        self.upstreams.append(upstream)
        self.backs.append(upstream.back_key)
        self.back_names.append(upstream.back_name)

    def detach(self, upstream: BehindHub) -> None:
        """Tell a server that was behind this one nothing more."""
        self.upstreams.remove(upstream)
        self.backs.remove(upstream.back_key)
        self.back_names.remove(upstream.back_name)

    def watched(self, is_left_out: Callable[[Hashable, str], bool] | None = None) -> set[str]:
        """Return the addresses that clients may be subscribed to.

        `is_left_out` gets a legacy connection, or None for any HTTP session, and an address.
        """
        if is_left_out is None:
            return {*self._of_sessions, *(uri for listener in self._listeners() for uri in listener.uris)}
        found = {uri for stream in self.streams for uri in stream.uris}
        found |= {uri for each in self.clients.values() for uri in each.uris if not is_left_out(each.session, uri)}
        return found | {uri for uri in self._of_sessions if not is_left_out(None, uri)}

    async def subscribed(self, client: LegacyClient, uri: str, caller: Hashable) -> None:
        """Take note of a subscription. That of an HTTP session is kept, because any process may end the session."""
        if client.session not in self.clients:
            self._of_sessions.add(caller, uri)
        await self.watch((uri,))

    async def watch(self, uris: Iterable[str]) -> None:
        """Tell the upstreams of new subscriptions, and wait until they miss no update of these resources."""
        waits = [waited for each in tuple(self.upstreams) if (waited := each.watch(uris)) is not None]
        if waits:
            await asyncio.wait(waits)

    def tell_roots_changed(self, client: Hashable) -> None:
        """Tell the servers behind this one that the roots of a client have changed."""
        for upstream in tuple(self.upstreams):
            upstream.tell_roots_changed(client)

    def end_session(self, session: str) -> None:
        """Tell the servers behind this one that a legacy HTTP session is over."""
        for upstream in tuple(self.upstreams):
            upstream.end_session(session)

    def end_connection(self, session: Session) -> None:
        """Tell the servers behind this one that a connection closes."""
        for upstream in tuple(self.upstreams):
            upstream.end_connection(session)

    async def hand_on_level(self, client: Hashable, level: t.LoggingLevel) -> None:
        """Have the servers behind this one send the log messages that a client wants."""
        waits = [waited for each in tuple(self.upstreams) for waited in each.hand_on_level(client, level)]
        if waits:
            await asyncio.wait(waits, timeout=LEVEL_SECONDS)

    def watching_changed(self) -> None:
        """Tell the upstreams that clients may have ended subscriptions."""
        for upstream in tuple(self.upstreams):
            upstream.watch(())

    def tell_here(self, change: Change) -> None:
        """Tell the connections and streams of this loop of a change. HTTP sessions read the bus themselves."""
        if change.session:
            return
        for listener in self._listeners():
            call_on(listener.loop, listener.tell, change)

    def tell_client(self, client: Hashable, change: Change) -> None:
        """Tell one client of a change: a connection, or a legacy HTTP session by its id."""
        if isinstance(client, str):
            if self.relay is not None:
                self.relay.changed(msgspec.structs.replace(change, session=client))
            return
        for listener in self._listeners():
            connection = listener.session if isinstance(listener, LegacyClient) else listener.outlet.connection
            if connection is client:
                call_on(listener.loop, listener.tell, change)

    def tell_everything_here(self) -> None:
        """Tell the clients of this loop to read everything again, because changes of other processes were missed."""
        for listener in self._listeners():
            call_on(listener.loop, listener.tell_everything)

    def _listeners(self) -> list[LegacyClient | Stream]:
        return [*self.clients.values(), *self.streams]

    def log_here(self, params: t.LoggingMessageNotificationParams) -> None:
        """Send a log message to the connections of this loop. HTTP sessions read the bus themselves."""
        for client in tuple(self.clients.values()):
            call_on(client.loop, client.log, params)

    def end_streams(self, session: Session | None = None) -> None:
        for stream in tuple(self.streams):
            if session is None or stream.outlet.connection is session:
                call_on(stream.loop, stream.end)


async def listen(
    call: Call,
    hub: Hub,
    limits: Limits,
    declared: Mapping[str, Any],
    extensions: Mapping[str, Extension],
    more: Mapping[str, Any],
    hears: Callable[[Change], bool],
    elsewhere: Sequence[AnyMethod] = (),
) -> t.SubscriptionsListenResult:
    """Keep a stream open until either side ends it. `more` are accepted filters besides those of the protocol.

    `elsewhere` are the servers that may know members of the filter which nobody here knows.
    """
    caller = call.request.caller
    hub.shares.take(caller)
    try:
        async with AsyncExitStack() as stack:
            return await _listen(call, hub, limits, declared, extensions, more, hears, elsewhere, stack)
    finally:
        hub.shares.give_back(caller)


async def _listen(
    call: Call,
    hub: Hub,
    limits: Limits,
    declared: Mapping[str, Any],
    extensions: Mapping[str, Extension],
    more: Mapping[str, Any],
    hears: Callable[[Change], bool],
    elsewhere: Sequence[AnyMethod],
    stack: AsyncExitStack,
) -> t.SubscriptionsListenResult:
    stream = Stream(call, _accepted(call.params.notifications, limits, declared), hears)
    stream.extra = {**_extension_filters(call, declared, extensions), **more}
    unknown = _unknown_filters(call, extensions) if elsewhere else {}
    for server in elsewhere if unknown else ():
        accepted = await stack.enter_async_context(server.listening(call, unknown, stream.hand_on, stream.end))
        stream.extra = {**accepted, **stream.extra}
    hub.streams.add(stream)
    connection = call.outlet.connection
    # `Limits.listeners` bounds the streams. They do not count as requests in flight, so others need not wait.
    aside = connection.set_aside() if isinstance(connection, Session) else nullcontext()
    try:
        with aside:
            if stream.uris:
                await hub.watch(stream.uris)
            stream.acknowledge()
            await stream.ended
    finally:
        hub.streams.discard(stream)
        if stream.uris:
            hub.watching_changed()
    # 2026-07-28 basic/patterns/cancellation: on stdio the end is announced by this notification too.
    notify = getattr(connection, "notify", None)
    if notify is not None:
        gone = t.CancelledNotificationParams(request_id=call.request_id, reason="The subscription ended")
        asyncio.get_running_loop().call_soon(notify, "notifications/cancelled", gone)
    return t.SubscriptionsListenResult(meta={t.SUBSCRIPTION_ID_KEY: call.request_id})


def _accepted(wanted: t.SubscriptionFilter, limits: Limits, declared: Mapping[str, Any]) -> t.SubscriptionFilter:
    """SUB-3: return the part of the filter that the server honours."""
    uris = wanted.resource_subscriptions
    if uris is not UNSET and len(uris) > limits.uris:
        raise ProtocolError(INVALID_PARAMS, f"At most {counted(limits.uris, 'resource')} can be subscribed to at once")
    return t.SubscriptionFilter(
        tools_list_changed=_honoured(wanted.tools_list_changed, declared, "tools.listChanged"),
        prompts_list_changed=_honoured(wanted.prompts_list_changed, declared, "prompts.listChanged"),
        resources_list_changed=_honoured(wanted.resources_list_changed, declared, "resources.listChanged"),
        resource_subscriptions=uris if t.has_capability(declared, "resources.subscribe") else UNSET,
    )


def _honoured(wanted: bool | UnsetType, declared: Mapping[str, Any], capability: str) -> bool | UnsetType:
    return True if wanted is True and t.has_capability(declared, capability) else UNSET


def _unknown_filters(call: Call, extensions: Mapping[str, Extension]) -> dict[str, Any]:
    """Return the members of the filter that nobody here knows."""
    asked = msgspec.json.decode(cast(Raw, call.request.raw)).get("notifications", {})
    own = {name for each in extensions.values() for name in each.filters}
    known = own.union(t.SubscriptionFilter.__struct_encode_fields__)
    return {name: value for name, value in asked.items() if name not in known}


def _extension_filters(call: Call, declared: Mapping[str, Any], extensions: Mapping[str, Extension]) -> dict[str, Any]:
    filters = {
        name: each.accept
        for extension in extensions.values()
        if extension.filters and extension.in_force(declared, call.request.capabilities)
        for name, each in extension.filters.items()
    }
    if not filters:
        return {}
    asked = msgspec.json.decode(cast(Raw, call.request.raw)).get("notifications", {})
    accepted = {name: accept(asked[name]) for name, accept in filters.items() if name in asked}
    return {name: value for name, value in accepted.items() if value is not None}
