"""The HTTP+SSE transport of 2024-11-05: a stream by GET, and an address to POST to that the stream names.

The connection is the session (2024-11-05 basic/transports): it begins and ends with the stream. A process that receives
a POST for a stream of another process passes it on over the bus.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote

import msgspec
from msgspec import Struct

from toolwire.http.app_settings import HasSettings
from toolwire.http.exchange import KEEP_ALIVE, STREAM_HEADERS
from toolwire.http.legacy.event_log import answered_request
from toolwire.http.legacy.session_token import HOME_BYTES, ID_BYTES, SessionToken, SessionTokens, principal_digest
from toolwire.http.responses import json_refusal, respond
from toolwire.http.unsent_answers import PIECE_BYTES, PacedSend, UnsentAnswers, unread
from toolwire.http1.asgi_types import HeaderList, Receive, Scope, SendMessage
from toolwire.protocol.classifier import Notice
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import encode_comment, encode_event
from toolwire.protocol.http import accepts
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.sealing import Sealer, encode_base64url
from toolwire.stores import Stores
from toolwire.util.out_queue import FULL, OutQueue
from toolwire.wire.bus_link import BusLink
from toolwire.wire.channel import Channel, Ended, Feed, Inbox
from toolwire.wire.deadlines import in_time
from toolwire.wire.outlet import Outlet
from toolwire.wire.session import Handler, Session
from toolwire.wire.shares import Caller, Shares

STREAM_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages"
REVISION: Final = "2024-11-05"
MAX_UNREAD: Final = 256
#: Bytes that wait for the reader of a stream at most. Above that the stream ends.
MOST_UNREAD: Final = 64 * 1024 * 1024


class SseHost(Protocol):
    """The server behind the transport."""

    @property
    def name(self) -> str: ...

    @property
    def stores(self) -> Stores: ...

    @property
    def sealer(self) -> Sealer: ...

    def principal_key(self, principal: Any) -> str: ...

    @property
    def handler(self) -> Handler: ...

    async def serve(
        self, channel: Channel, principal: Any, revisions: Sequence[str], caller: Caller, handler: Handler
    ) -> None:
        """Serve one connection, which speaks one of these revisions, until it ends."""


class SseServerChannel(Channel):
    """A stream as a channel: messages that are posted come in, messages that are written become events."""

    def __init__(self, send: PacedSend) -> None:
        self._send = send
        self._inbox = Inbox()
        self._sender: Any = None
        self._queue = OutQueue()
        self._wake = asyncio.Event()
        self._closed = False

    # --- what the HTTP side uses ---

    @property
    def inbox_full(self) -> bool:
        """Return whether so many posted messages wait to be read that no more should be taken."""
        return len(self._inbox) >= MAX_UNREAD

    @property
    def finishing(self) -> bool:
        """Return whether no more messages are taken."""
        return self._inbox.over

    def deliver(self, message: bytes, sender: Any = None) -> None:
        """Take a posted message. Its sender may have other scopes now than when the stream was opened."""
        self._sender = sender
        try:
            self._inbox.deliver(message)
        finally:
            self._sender = None

    def finish(self) -> None:
        """Take no more messages. The session ends when its calls have been answered, and the stream with it."""
        self._inbox.end()

    def end(self) -> None:
        """End the channel, because the client disconnected."""
        self._closed = True
        self._inbox.end()
        self._queue.close()
        self._wake.set()

    async def pump(self) -> None:
        """Send what is written, until the channel is closed."""
        while self._queue or not self._closed:
            if self._queue:
                data = self._queue.take_all()
                await self._body(data)
                self._queue.remove(len(data))
                continue
            self._wake.clear()
            if not await in_time(KEEP_ALIVE, self._wake.wait()):
                await self._body(encode_comment("keep-alive"))

    async def _body(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    # --- what the session uses ---

    async def read(self) -> bytes | None:
        return await self._inbox.read()

    def write(self, message: bytes) -> None:
        if self._closed:
            raise Unreachable("the stream is closed")
        if self._queue.size + len(message) > MOST_UNREAD:
            # Its client posts calls, and does not read the answers.
            self._queue.clear()
            self.end()
            raise Unreachable("the client leaves its answers unread")
        if len(message) > PIECE_BYTES and (identifier := answered_request(message)) is not None:
            message = self._send.hold(identifier, message)
        self._queue.put(encode_event(message, event="message"))
        self._wake.set()

    async def close(self) -> None:
        self._closed = True
        self._inbox.silence()
        self._queue.close()
        self._wake.set()

    @property
    def principal(self) -> Any:
        return self._sender

    @property
    def is_local(self) -> bool:
        return False

    @property
    def is_connected(self) -> bool:
        return not self._closed

    @property
    def congested(self) -> bool:
        return self._queue.congested and not self._closed

    @property
    def full(self) -> bool:
        return self._queue.full

    def admits(self, optional: bool) -> bool:
        return self._queue.admits(optional)

    async def drain(self) -> None:
        await self._queue.drain()

    def attach(self, feed: Feed, ended: Ended) -> bool:
        self._inbox.attach(feed, ended)
        return True

    def pause(self) -> None:
        self._inbox.pause()

    def resume(self) -> None:
        self._inbox.resume()


class _Counting:
    """The handler of one connection. It counts running requests in the share of their caller."""

    def __init__(self, handler: Handler, caller: Caller, exchanges: Shares, unsent: UnsentAnswers) -> None:
        self._handler = handler
        self._caller = caller
        self._exchanges = exchanges
        self._unsent = unsent

    async def handle(self, request: Incoming, outlet: Outlet) -> Any:
        self._unsent.check(self._caller)
        if outlet.full:
            raise unread(FULL)
        self._exchanges.take(self._caller)
        try:
            return await self._handler.handle(request, outlet)
        finally:
            self._exchanges.give_back(self._caller)

    def notified(self, notice: Notice, session: Session) -> None:
        self._handler.notified(notice, session)

    def closing(self, session: Session) -> None:
        self._handler.closing(session)


class _Posted(Struct):
    stream: str
    message: bytes


class SseTransport:
    """All streams of this process, for as long as one event loop serves it."""

    def __init__(
        self,
        host: SseHost,
        application: HasSettings,
        exchanges: Shares,
        unsent: UnsentAnswers,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`exchanges` counts the requests of the whole application that run, and `unsent` their unread answers."""
        self._host = host
        self._application = application
        limits = application.settings.limits
        self._exchanges = exchanges
        self._unsent = unsent
        self._shares = Shares(limits.sessions, limits.share, "streams open", seconds=5)
        self._clock = clock
        self._random = random
        self._link = BusLink(host.stores.bus, f"toolwire:{host.name}:sse")
        self._link.on("", self._heard)
        self._tokens = SessionTokens(host.sealer, f"sse/{host.name}")
        self._process = random(HOME_BYTES)
        self._channels: dict[str, SseServerChannel] = {}
        self._leave: Callable[[], None] | None = None
        self._emptied = asyncio.Event()

    async def open(self) -> None:
        self._leave = self._link.hear(encode_base64url(self._process))

    def drain(self) -> None:
        """Take no more messages, and end every stream as soon as its calls are answered."""
        for channel in tuple(self._channels.values()):
            channel.finish()

    async def close(self) -> None:
        """Give calls some time to finish, then end every stream."""
        self.drain()
        if self._channels:
            self._emptied.clear()
            await in_time(self._application.settings.limits.drain, self._emptied.wait())
        for channel in tuple(self._channels.values()):
            channel.end()
        if self._leave is not None:
            self._leave()

    def __len__(self) -> int:
        return len(self._channels)

    async def stream(
        self,
        scope: Scope,
        principal: Any,
        caller: Caller,
        headers: Mapping[str, str],
        receive: Receive,
        send: PacedSend,
        extra: HeaderList,
    ) -> None:
        """Answer a GET: open a connection, and serve it until the client disconnects."""
        if not accepts(headers, "text/event-stream"):
            raise json_refusal(406, "Accept text/event-stream")
        self._shares.take(caller)
        identifier = encode_base64url(self._random(ID_BYTES))
        channel = self._channels[identifier] = SseServerChannel(send)
        watch: asyncio.Task[None] | None = None
        pump: asyncio.Task[None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *extra]})
            address = f"{scope.get('root_path', '')}{MESSAGES_PATH}?session={quote(self._token(identifier, principal))}"
            # 2024-11-05 basic/transports: the first event says where to post.
            first = encode_event(address.encode(), event="endpoint")
            await send({"type": "http.response.body", "body": first, "more_body": True})
            watch = asyncio.create_task(_watch(receive, channel))
            pump = asyncio.create_task(channel.pump())
            # 2025-03-26 basic/transports: this transport belongs to the revision that had it, not to later ones.
            handler = _Counting(self._host.handler, caller, self._exchanges, self._unsent)
            await self._host.serve(channel, principal, (REVISION,), caller, handler)
            await pump
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._shares.give_back(caller)
            del self._channels[identifier]
            if not self._channels:
                self._emptied.set()
            channel.end()
            send.release()
            for task in (watch, pump):
                if task is not None:
                    task.cancel()

    async def post(self, scope: Scope, principal: Any, body: bytes, send: SendMessage, extra: HeaderList) -> None:
        """Answer a POST: deliver its message to the process that has the stream."""
        texts = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=8).get("session", [])
        token = None
        if len(texts) == 1:
            token = self._tokens.read(texts[0], principal=self._digest(principal), now=self._clock())
        if token is None:
            raise _no_stream()
        if token.home != self._process:
            posted = msgspec.msgpack.encode(_Posted(token.id, body))
            await self._link.send(encode_base64url(token.home), "", posted)
        else:
            channel = self._channels.get(token.id)
            if channel is None:
                raise _no_stream()
            if channel.finishing:
                raise json_refusal(
                    503, "The stream is about to end: open another one", headers=((b"retry-after", b"1"),)
                )
            if channel.inbox_full:
                raise json_refusal(429, "Too many messages wait to be read", headers=((b"retry-after", b"1"),))
            channel.deliver(body, principal)
        await respond(send, 202, b"", extra)

    def _heard(self, data: bytes) -> None:
        posted = _decode_posted(data)
        channel = self._channels.get(posted.stream)
        if channel is not None and not channel.inbox_full:
            channel.deliver(posted.message)

    def _token(self, identifier: str, principal: Any) -> str:
        now = int(self._clock())
        expires = now + int(self._application.settings.limits.session_age)
        token = SessionToken(identifier, REVISION, 0, self._digest(principal), now, expires, self._process)
        return self._tokens.write(token)

    def _digest(self, principal: Any) -> bytes:
        return principal_digest(self._host.principal_key(principal))


async def _watch(receive: Receive, channel: SseServerChannel) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    channel.end()


def _no_stream() -> Exception:
    return json_refusal(404, f"There is no such stream: open one with GET {STREAM_PATH}")


_decode_posted = msgspec.msgpack.Decoder(_Posted).decode
