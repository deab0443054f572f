"""Streams that a GET carries: one that goes on with what a POST began, or the session's own for what nobody asked for.

Both are read from the log, so it does not matter which process wrote there. An idle stream is one task that waits for
the client to go away; everything else is made when there is something to send.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Protocol

from toolwire.http.exchange import KEEP_ALIVE, STREAM_HEADERS, version_header
from toolwire.http.legacy.event_log import END, LAST, MAX_ENTRY, MESSAGE, PAGE, EventLog, Resume, event_id
from toolwire.http.legacy.post_stream import DEFAULT_RETRY
from toolwire.http.legacy.session_token import SessionToken
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, everything, legacy_notification
from toolwire.protocol.framing import encode_comment, encode_event
from toolwire.protocol.jsonrpc import encode_notification
from toolwire.protocol.revisions import supports
from toolwire.stores import Position, PositionLost

log: logging.Logger = logging.getLogger("toolwire.http")

# How long a stream is written on after its connection broke.
LINGER: Final = 60.0
# Different notifications that are kept for a log that is behind.
MAX_PENDING: Final = 1000
# How seldom, in seconds, a client is told to look at everything again.
LOST_EVERY: Final = 10.0


class Owner(Protocol):
    """Whoever knows the streams of a process."""

    events: EventLog

    async def alive(self, token: SessionToken) -> bool:
        """Return whether the session still exists; it counts as used."""

    def woken(self, session: str, stream: str) -> None:
        """Something was appended that no connection of this stream carries here."""

    def disconnected(self, stream: GetStream) -> None:
        """The client went away."""

    def closed(self, stream: GetStream) -> None:
        """The stream has come to its end here."""

    def doubts(self, listener: Listener) -> None:
        """A listener has been without the word for a while: somebody else of its session should have it."""


class GetStream:
    """A connection that carries a stream from the log, after a position; it ends where the stream ends."""

    __slots__ = (
        "_ended",
        "_send",
        "_sending",
        "_sends_comment",
        "_task",
        "_timer",
        "_woken",
        "_work",
        "id",
        "name",
        "owner",
        "position",
        "taken",
        "token",
    )

    def __init__(self, owner: Owner, identifier: str, token: SessionToken, resume: Resume) -> None:
        self.owner: Owner = owner
        self.id: str = identifier
        self.token: SessionToken = token
        self.name: str = resume.stream
        self.position: Position | None = resume.position
        self.taken: bool = False
        """Whether another connection has gone on with the stream."""
        self._send: SendMessage | None = None
        self._task: asyncio.Task[Any] | None = None
        self._work: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False
        self._sending = False
        self._sends_comment = False
        self._ended = False

    @property
    def attached(self) -> bool:
        """Return whether a connection carries the stream here."""
        return self._send is not None

    async def serve(self, receive: Receive, send: SendMessage, headers: HeaderList) -> None:
        """Carry the stream until the client goes away, or the stream ends."""
        start = [*STREAM_HEADERS, version_header(self.token.revision), *headers]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": start})
            # Whatever the first event is, headers that wait for a body would look like a server that hangs.
            await send({"type": "http.response.body", "body": self._first(), "more_body": True})
            self._send = send
            self.wake()
            if not self._ended:
                self._task = asyncio.current_task()
                self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._beat)
                while (await receive())["type"] != "http.disconnect":
                    pass
        except asyncio.CancelledError:
            if not self._ended or self._task is None or self._task.uncancel():
                raise
        finally:
            self._leave()
        if self._ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _leave(self) -> None:
        self._send = self._task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None and self._sending:
            self._work.cancel()
        if self._ended:
            self.owner.closed(self)
        else:
            self.owner.disconnected(self)

    def _first(self) -> bytes:
        return encode_comment("open")

    def end(self) -> None:
        """End the connection properly."""
        if self._ended:
            return
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    def wake(self) -> None:
        """There is something new in the log."""
        self._woken = True
        if self._work is None and (self._unwritten or not self._ended):
            self._work = asyncio.get_running_loop().create_task(self._run())

    @property
    def _unwritten(self) -> bool:
        """Return whether there is something to append, which whoever goes on with the stream has to find."""
        return False

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._beat)
        self._sends_comment = True
        self.wake()

    async def _run(self) -> None:
        try:
            while self._woken:
                self._woken = False
                await self._write()
                if self._send is not None:
                    await self._carry(self._send)
        except Exception:
            log.exception("a stream broke")
            self.end()
        finally:
            self._work = None
            if self._woken:
                self.wake()

    def lost(self) -> None:
        """Events were dropped before the client had them."""

    async def _write(self) -> None:
        """Append what this process has to say on the stream."""

    async def _carry(self, send: SendMessage) -> None:
        quiet, self._sends_comment = self._sends_comment, False
        if quiet and not await self.owner.alive(self.token):
            self.end()
            return
        while self._send is send and (entries := await self._read()):
            quiet = False
            events = [
                encode_event(entry.data, id=event_id(self.name, entry.position))
                for entry in entries
                if entry.kind in (MESSAGE, LAST)
            ]
            if events:
                await self._transmit(send, b"".join(events))
            self.position = entries[-1].position
            if entries[-1].kind in (LAST, END):
                self.end()
                return
        if quiet:
            await self._transmit(send, encode_comment("keep-alive"))

    async def _transmit(self, send: SendMessage, data: bytes) -> None:
        self._sending = True
        try:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._sending = False

    async def _read(self) -> list[Any]:
        try:
            return await self.owner.events.read(self.token.id, Resume(self.name, self.position), PAGE)
        except PositionLost:
            if self.position is None:
                raise
            # More was said than is kept; what is left comes next.
            log.warning("a client is too far behind on its stream: events were dropped")
            self.position = None
            self.lost()
            return await self.owner.events.read(self.token.id, Resume(self.name, None), PAGE)


class Listener(GetStream):
    """The session's own stream: list changes, updates of what it subscribed to, and log messages.

    Of all listeners of a session, in whatever process, one at a time has the word (`speaks`), so that nothing is said
    on two streams (2025-03-26 basic/transports, multiple connections).
    """

    __slots__ = (
        "_early",
        "_hears",
        "_lost_until",
        "_pending",
        "_promised",
        "claimed",
        "doubtful",
        "level",
        "lingering",
        "missed",
        "named",
        "speaks",
        "told",
        "uris",
    )

    def __init__(
        self,
        owner: Owner,
        identifier: str,
        token: SessionToken,
        resume: Resume,
        hears: Callable[[str], bool],
        promised: Mapping[str, Any],
    ) -> None:
        """`hears`: whether the client may know what happens at an address; `promised`: what the server declares."""
        super().__init__(owner, identifier, token, resume)
        self._hears = hears
        self._promised = promised
        self.speaks: bool = False
        self.claimed: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self.level: t.LoggingLevel = "info"
        self.uris: frozenset[str] = frozenset()
        self.told: bool = False
        """Whether another process has said what the session wants since the stream was opened."""
        self.doubtful: bool = False
        """Whether the one that has the word was asked for, and has not answered yet."""
        self.missed: bool = False
        """Whether something may have happened that nobody said."""
        self.lingering: asyncio.TimerHandle | None = None
        self.named: bool = resume.position is not None
        """Whether the client has an id to come back with."""
        self._pending: deque[bytes] | None = None
        self._lost_until: float = -inf
        self._early: list[Callable[[], None]] | None = None
        """What was heard while this stream had the word, but did not know yet what the session wants."""

    def _first(self) -> bytes:
        if not supports(self.token.revision, "sse_priming"):
            return super()._first()
        # Nothing is logged for it: the beginning of a stream is a place like any other.
        self.named = True
        return encode_event(b"", id=event_id(self.name, self.position), retry=DEFAULT_RETRY)

    async def settle(self, level: t.LoggingLevel, uris: frozenset[str]) -> None:
        """Begin to speak; nobody else has said what was heard since the claim, so it is said now."""
        if not self.told:
            self.level, self.uris = level, uris
        self.claimed = None
        if self._early is not None:
            early, self._early = self._early, None
            # Also when another stream has the word by now: it was not its turn yet.
            spoke, self.speaks = self.speaks, True
            for say in early:
                say()
            self.speaks = spoke
            await self._write()

    def changed(self, change: Change) -> None:
        if self.claimed is not None:
            self._keep(lambda: self.changed(change))
            return
        notification = legacy_notification(change, self.uris, self._promised)
        if notification is not None and (change.kind != "updated" or self._hears(change.uri)):
            self.say(encode_notification(*notification))

    def logged(self, level: t.LoggingLevel, message: bytes) -> None:
        if self.claimed is not None:
            self._keep(lambda: self.logged(level, message))
        elif t.severity(level) >= t.severity(self.level):
            self.say(message)

    def lost(self) -> None:
        """Tell the client to look at everything again; it does not know what it missed."""
        now = asyncio.get_running_loop().time()
        if now < self._lost_until:
            return  # All that is told then may be more than the log keeps.
        self._lost_until = now + LOST_EVERY
        for change in everything(self.uris):
            self.changed(change)

    def _keep(self, say: Callable[[], None]) -> None:
        if not self.speaks:
            return
        if self._early is None:
            self._early = []
        if len(self._early) < MAX_PENDING:
            self._early.append(say)
        elif len(self._early) == MAX_PENDING:
            log.warning("too much is said before a stream has begun: the rest is dropped, and the client looks again")
            self._early.append(self.lost)

    def say(self, message: bytes) -> None:
        """Say something on this stream, if it has the word."""
        if not self.speaks:
            return
        if len(message) > MAX_ENTRY:
            log.warning("a notification of %d bytes is dropped: at most %d bytes are kept", len(message), MAX_ENTRY)
            return
        if self.claimed is not None:
            self._keep(lambda: self.say(message))
            return
        if self._pending is None:
            self._pending = deque()
        if message in self._pending:
            return  # A log that is behind need not be told twice.
        if len(self._pending) >= MAX_PENDING:
            log.warning("the log of events is too slow: notifications are dropped, and the client looks again")
            self._pending.clear()
            self.lost()
        self._pending.append(message)
        self.wake()

    @property
    def _unwritten(self) -> bool:
        return bool(self._pending)

    def _beat(self) -> None:
        super()._beat()
        if not self.speaks and self.claimed is None:
            self.owner.doubts(self)

    async def _write(self) -> None:
        if not self._pending:
            return
        while self._pending:
            await self.owner.events.append(self.token.id, self.name, MESSAGE, self._pending.popleft())
            self.named = True
        self._pending = None
        if not self.attached:
            self.owner.woken(self.token.id, self.name)  # Whoever carries the stream now may have looked already.

    def linger(self, release: Callable[[], None]) -> None:
        """Go on writing for a client that may come back."""
        self.lingering = asyncio.get_running_loop().call_later(LINGER, release)

    def fall_silent(self) -> None:
        """The session is over: what has not been said need not be."""
        self.let_go()
        self.taken = True
        self._pending = None

    def let_go(self) -> None:
        """Stop writing: nobody came back, or another connection has taken over."""
        self.speaks = False
        if self.lingering is not None:
            self.lingering.cancel()
            self.lingering = None
