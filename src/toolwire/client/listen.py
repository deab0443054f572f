"""Changes on a server as an async iterator, the same on both eras.

2026-07-28 has one request that opens a stream of changes (basic/patterns/subscriptions). Before that, servers announce
changes of lists by themselves, and updates of a resource after `resources/subscribe`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolwire.client.connection import ClientConnection
from toolwire.client.errors import InvalidResponse
from toolwire.client.reconnect import Connector, pause_after
from toolwire.client.requests import encode_arguments
from toolwire.protocol import types as t
from toolwire.protocol.changes import FrozenParams
from toolwire.protocol.errors import NotSupported, Timeout, ToolwireError, TransportError, Unreachable
from toolwire.util.backoff import LONGEST_SECONDS, Backoff
from toolwire.wire.channel import Sender

log: logging.Logger = logging.getLogger("toolwire.client")

# Equal changes count once, so only a server that keeps naming new resources reaches this limit, or one that keeps
# telling of an extension.
MAX_WAITING: Final = 10_000
#: How many bytes the notifications of extensions may have together while nobody takes them.
MAX_BYTES: Final = 16 * 1024 * 1024

_KINDS: Final[dict[str, Literal["tools", "prompts", "resources", "resource"]]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "resource",
}
_LISTS: Final[tuple[Literal["tools", "prompts", "resources"], ...]] = ("tools", "prompts", "resources")
# Tasks are an extension, whose member the type knows.
_FILTERS: Final = frozenset(t.SubscriptionFilter.__struct_encode_fields__) - {"taskIds"}
_CAPABILITIES: Final = {
    "tools": "tools.listChanged",
    "prompts": "prompts.listChanged",
    "resources": "resources.listChanged",
    "resource": "resources.subscribe",
}


class Change(Struct, frozen=True):
    """A change: of the list of tools, prompts or resources, or (`resource`) of the contents at `uri`.

    `params` are the further members of the notification of a `resource`, if it has any. `extension` is a notification
    of an extension, with its method and params. It has neither where notifications may have been missed.
    """

    kind: Literal["tools", "prompts", "resources", "resource", "extension"]
    uri: str | None = None
    method: str | None = None
    params: Mapping[str, Any] | None = None


class _ChangeStream:
    """The changes of one subscription on one connection that nobody has taken yet."""

    def __init__(self, kinds: frozenset[str], uris: tuple[str, ...], hears_extensions: bool) -> None:
        self.kinds = kinds
        self.uris = uris
        self.hears_extensions = hears_extensions
        self.accepted: t.SubscriptionFilter | None = None
        self.opened = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        self.subscribed: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        # Each with the bytes that it counts for.
        self._waiting: dict[Change, int] = {}
        self._bytes = 0
        self._wake = asyncio.Event()
        self._over = False
        self._error: BaseException | None = None

    def acknowledged(self, accepted: t.SubscriptionFilter) -> None:
        if self.accepted is None:
            self.accepted = accepted
            self.opened.set()

    def changed(self, method: str, uri: str | None, params: Raw | UnsetType) -> None:
        """Take a change of a list, or of the resource at `uri`."""
        kind = _KINDS.get(method)
        if kind is None or kind not in self.kinds:
            return
        if uri is not None and params is not UNSET and (further := _further(params)):
            self._add(Change(kind, uri, params=FrozenParams(further)), memoryview(params).nbytes)
        else:
            self._add(Change(kind, uri), 0)

    def told(self, method: str, params: Raw | UnsetType) -> None:
        """Take a notification of an extension."""
        size = 0 if params is UNSET else memoryview(params).nbytes
        members = {} if params is UNSET else msgspec.json.decode(params)
        self._add(Change("extension", method=method, params=FrozenParams(members)), size)

    def _add(self, change: Change, size: int) -> None:
        if self._over:
            return
        if len(self._waiting) >= MAX_WAITING or self._bytes + size > MAX_BYTES:
            limit = f"{MAX_WAITING} changes" if len(self._waiting) >= MAX_WAITING else f"{MAX_BYTES} bytes"
            self.end(InvalidResponse(f"The server announced more than {limit} that nobody took"))
            return
        if change not in self._waiting:
            self._waiting[change] = size
            self._bytes += size
        self._wake.set()

    def missed(self) -> None:
        for change in self.everything():
            self._waiting.setdefault(change, 0)
        self._wake.set()

    def everything(self) -> list[Change]:
        lists = [Change(kind) for kind in _LISTS if kind in self.kinds]
        notifications = [Change("extension")] if self.hears_extensions else []
        return [*lists, *(Change("resource", uri) for uri in self.uris), *notifications]

    def age(self) -> float:
        """Return how many seconds it has existed."""
        return self._loop.time() - self._began

    def covers(self, uri: str) -> bool:
        return any(uri == own or uri.startswith((f"{own.rstrip('/')}/", f"{own}#", f"{own}?")) for own in self.uris)

    def end(self, error: BaseException | None) -> None:
        if not self._over:
            self._over = True
            self._error = error
            self._wake.set()
            self.opened.set()

    def finished(self, task: asyncio.Task[Any]) -> None:
        """Note the end of the request: by its result, by the server's cancellation (no result), or by an error."""
        if task.cancelled():
            self.end(None)
            return
        self.end(task.exception())

    def raise_error(self) -> None:
        if self._over and self._error is not None:
            raise self._error

    async def next(self) -> Change | None:
        """Return the next change; None when the server ended the stream."""
        while not self._waiting:
            self.raise_error()
            if self._over:
                return None
            self._wake.clear()
            await self._wake.wait()
        change = next(iter(self._waiting))
        self._bytes -= self._waiting.pop(change)
        return change


def _further(params: Raw) -> dict[str, Any]:
    """Return the members of a notification besides the address, and besides what names the stream."""
    members: dict[str, Any] = msgspec.json.decode(params)
    del members["uri"]
    meta = members.get("_meta")
    if isinstance(meta, dict):
        meta.pop(t.SUBSCRIPTION_ID_KEY, None)
        if not meta:
            del members["_meta"]
    return members


class Subscription:
    """The result of `Client.listen`: iterate over it, or enter it first to know that it is open.

    `accepted` is what the server agreed to announce, known once it is open. The iteration ends when the server ends the
    stream. If a server process that the client started dies, the client starts it again. A stream that broke is opened
    again, and then everything that it listens for counts as changed, because announcements may have been missed.
    """

    def __init__(
        self,
        keeper: Connector,
        wanted: t.SubscriptionFilter,
        timeout: float | None,
        *,
        heals: bool = True,
        meta: Any = UNSET,
        sender: Sender | None = None,
    ) -> None:
        """`heals`: a stream that broke is opened again. Otherwise the iteration raises `TransportError`.

        `meta` is `_meta` of the request, where a program in between sends it for its own client, and `sender` names
        that client to a server of this process.
        """
        self._meta = meta
        self._sender = sender
        self._connector = keeper
        self._heals = heals
        self._wanted = wanted
        self._timeout = timeout
        self._open_on: ClientConnection | None = None
        self._stream: _ChangeStream | None = None
        self.accepted: t.SubscriptionFilter | None = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self._changes()

    async def close(self) -> None:
        """Stop listening. An iteration that waits ends."""
        connection, stream = self._open_on, self._stream
        self._open_on = self._stream = None
        if connection is None or stream is None:
            return
        if stream.task is not None:
            await _stop_modern(connection, stream)
        else:
            await _stop_legacy(connection, stream)
        stream.end(None)

    async def _changes(self) -> AsyncIterator[Change]:
        try:
            stream = self._stream or await self._open()
            # A server that dies at every subscription is not started without end.
            backoff = Backoff(1 + self._connector.attempts)
            while True:
                try:
                    change = await stream.next()
                except TransportError as error:
                    if not self._heals or isinstance(error, InvalidResponse):
                        raise
                    backoff.settle(stream.age())
                    stream = await self._reopen(error, backoff)
                    for missed in stream.everything():
                        yield missed
                    continue
                if change is None:
                    return
                backoff.ease()
                yield change
        finally:
            await self.close()

    async def _reopen(self, error: TransportError, backoff: Backoff) -> _ChangeStream:
        """Open the stream again after a pause, and once more while the server is busy; raise the last error."""
        while True:
            pause = backoff.next()
            if pause is None or (pause := pause_after(error, pause)) > LONGEST_SECONDS:
                raise error
            await self.close()
            await asyncio.sleep(pause)
            try:
                return await self._open(lost=True)
            except Unreachable as refusal:
                if refusal.retry_after is None:
                    raise
                error = refusal

    async def _open(self, *, lost: bool = False) -> _ChangeStream:
        connection = await (self._connector.recovered() if lost else self._connector.usable())
        stream = _ChangeStream(*_selection(self._wanted), hears_extensions=bool(_extension_filters(self._wanted)))
        _require(connection, stream.kinds)
        self._open_on, self._stream = connection, stream
        try:
            if connection.modern:
                await _open_modern(connection, stream, self._wanted, self._timeout, self._meta, self._sender)
                if self._meta is UNSET:
                    _compare(self._wanted, stream.accepted)
            else:
                await _open_legacy(connection, stream, self._timeout)
        except BaseException:
            await self.close()
            raise
        self.accepted = self._wanted if stream.accepted is None else stream.accepted
        return stream


def _selection(wanted: t.SubscriptionFilter) -> tuple[frozenset[str], tuple[str, ...]]:
    uris = () if wanted.resource_subscriptions is UNSET else tuple(wanted.resource_subscriptions)
    flags = {
        "tools": wanted.tools_list_changed is True,
        "prompts": wanted.prompts_list_changed is True,
        "resources": wanted.resources_list_changed is True,
        "resource": bool(uris),
    }
    return frozenset(kind for kind, chosen in flags.items() if chosen), uris


def _extension_filters(wanted: t.SubscriptionFilter) -> set[str]:
    """Return the names of the members that extensions add to the filter."""
    return {*wanted.extra, *(() if wanted.task_ids is UNSET else ("taskIds",))}


def _require(connection: ClientConnection, kinds: frozenset[str]) -> None:
    for kind in sorted(kinds):
        capability = _CAPABILITIES[kind]
        if not t.has_capability(connection.agreement.capabilities, capability):
            raise NotSupported(
                f"The server did not declare the capability {capability!r}, so it announces no such change"
            )


def _compare(wanted: t.SubscriptionFilter, accepted: t.SubscriptionFilter | None) -> None:
    """SUB-4: log what the server will not announce although it was asked to."""
    asked, uris = _selection(wanted)
    given, given_uris = _selection(accepted or t.SubscriptionFilter())
    told = set() if accepted is None else _extension_filters(accepted)
    missing = [*sorted(asked - given), *sorted(set(uris) - set(given_uris)), *sorted(_extension_filters(wanted) - told)]
    if missing:
        log.warning("the server will not announce changes of: %s", ", ".join(missing)[:500])


async def _open_modern(
    connection: ClientConnection,
    stream: _ChangeStream,
    wanted: t.SubscriptionFilter,
    timeout: float | None,
    meta: Any,
    sender: Sender | None,
) -> None:
    # SUB-1: the id of the request names the stream.
    identifier = connection.session.peer.next_id()
    params = t.SubscriptionsListenRequestParams(notifications=wanted, meta=connection.meta if meta is UNSET else meta)
    connection.streams[identifier] = stream
    senders = connection.link.senders
    if senders is not None and sender is not None:
        senders[identifier] = sender
    stream.task = asyncio.ensure_future(connection.open_stream(params, identifier))
    stream.task.add_done_callback(stream.finished)
    if senders is not None:
        stream.task.add_done_callback(lambda ended: senders.pop(identifier, None))
    try:
        async with asyncio.timeout(timeout):
            await stream.opened.wait()
    except TimeoutError:
        raise Timeout("The server did not acknowledge subscriptions/listen in time") from None
    stream.raise_error()


async def _stop_modern(connection: ClientConnection, stream: _ChangeStream) -> None:
    for identifier, other in list(connection.streams.items()):
        if other is stream:
            del connection.streams[identifier]
    if stream.task is not None and not stream.task.done():
        stream.task.cancel()  # The session tells the server (STD-9).
        await asyncio.wait({stream.task})


async def _open_legacy(connection: ClientConnection, stream: _ChangeStream, timeout: float | None) -> None:
    connection.streams[f"legacy-{id(stream)}"] = stream
    for uri in stream.uris:
        await subscribe(connection, uri, timeout)
        stream.subscribed.append(uri)
    if not stream.uris:
        # A server announces nothing before it has read `initialized`. Its answer to a ping shows that it has.
        await connection.send("ping", t.RequestParams(), timeout=timeout)


async def _stop_legacy(connection: ClientConnection, stream: _ChangeStream) -> None:
    connection.streams.pop(f"legacy-{id(stream)}", None)
    for uri in stream.subscribed:
        if connection.ended:
            return
        try:
            await unsubscribe(connection, uri, timeout=5.0)
        except ToolwireError as error:
            log.debug("the subscription to %s could not be ended: %s", uri, error)


async def subscribe(connection: ClientConnection, uri: str, timeout: float | None) -> None:
    """Send `resources/subscribe`, once for all who want it (1.10.5)."""
    connection.require("resources/subscribe")
    if uri not in connection.subscribed:
        await connection.send("resources/subscribe", t.SubscribeRequestParams(uri=uri), timeout=timeout)
    connection.subscribed[uri] = connection.subscribed.get(uri, 0) + 1


async def unsubscribe(connection: ClientConnection, uri: str, timeout: float | None) -> None:
    """Send `resources/unsubscribe`, when the last one who wanted it is gone."""
    connection.require("resources/unsubscribe")
    remaining = connection.subscribed.get(uri, 1) - 1
    if remaining > 0:
        connection.subscribed[uri] = remaining
        return
    connection.subscribed.pop(uri, None)
    await connection.send("resources/unsubscribe", t.UnsubscribeRequestParams(uri=uri), timeout=timeout)


def make_filter(
    tools: bool,
    prompts: bool,
    resources_list: bool,
    resources: Sequence[str],
    extensions: Mapping[str, Any] | None,
) -> t.SubscriptionFilter:
    """Return what a program wants to listen for. Raise for nothing, and for what it cannot ask for."""
    if isinstance(resources, str):
        raise TypeError("resources= is a list of URIs")
    if not (tools or prompts or resources_list or resources or extensions):
        raise ValueError(
            "listen() needs something to listen for: tools=, prompts=, resources_list=, resources= or extensions="
        )
    wanted = t.SubscriptionFilter(
        tools_list_changed=tools or UNSET,
        prompts_list_changed=prompts or UNSET,
        resources_list_changed=resources_list or UNSET,
        resource_subscriptions=list(resources) or UNSET,
    )
    filters = _plain_members(extensions or {})
    wanted.task_ids = filters.pop("taskIds", UNSET)
    wanted.extra.update(filters)
    return wanted


def _plain_members(extensions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members as plain JSON. Raise `ValueError` for one that the protocol has."""
    taken = [name for name in extensions if name in _FILTERS]
    if taken:
        raise ValueError(f"{taken[0]} belongs to the protocol, not to an extension: listen() has an argument for it")
    filters: dict[str, Any] = msgspec.json.decode(encode_arguments(dict(extensions)))
    return filters
