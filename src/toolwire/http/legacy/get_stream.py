"""Streams that a GET carries: the rest of a stream that a POST began, or the session's own stream of notifications.

Both are read from the event log, so any process can carry them. An idle stream is one task that waits for the client to
disconnect; everything else is created when there is something to send.

A session may have several streams of its own, in several processes. One of them is the *owner*: notifications that no
request caused are written there and nowhere else (2025-03-26 basic/transports, multiple connections: the same message
goes out on one stream only). A stream becomes the owner by a *claim*: a compare-and-set of the session's record gives
it a number, and `SessionStreams` publishes it to all processes. The owner before answers with a *handover*, if the
client can find all notifications so far. Without a handover, the new owner tells its client to read everything again.
When the connection of the owner breaks, it keeps a *lease*: for a while it continues to write to the log, for a client
that comes back. With every *heartbeat* a stream sends a keep-alive comment, and compares the record with the claims.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Protocol

from toolwire.http.exchange import KEEP_ALIVE, STREAM_HEADERS, version_header
from toolwire.http.legacy.event_log import (
    END,
    LAST,
    MAX_ENTRY,
    MESSAGE,
    PAGE,
    PRIMING,
    EventLog,
    LoggedEvent,
    Resume,
    StreamHeader,
    event_id,
    header_of,
    unanswered,
    up_to_end,
)
from toolwire.http.legacy.post_stream import DEFAULT_RETRY, KEPT_FOR_RETURN
from toolwire.http.legacy.session_records import StreamOwner
from toolwire.http.legacy.session_token import SessionToken
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol import types as t
from toolwire.protocol.changes import Change, everything, legacy_notification
from toolwire.protocol.errors import INTERNAL_ERROR
from toolwire.protocol.framing import encode_comment, encode_event
from toolwire.protocol.jsonrpc import encode_batch, encode_error, encode_notification
from toolwire.protocol.revisions import supports
from toolwire.stores import Position, PositionLost
from toolwire.util.out_queue import CONGESTED, OutBound, OutQueue
from toolwire.wire.deadlines import Timeouts, timeouts

log: logging.Logger = logging.getLogger("toolwire.http")

# How long the owner goes on writing after its connection broke.
LEASE: Final = 60.0
# Different notifications that are kept for a log that is behind.
MAX_PENDING: Final = 1000
# How seldom, in seconds, a client is told to read everything again.
LOST_EVERY: Final = 10.0
# How long a handover may take. A client that is told to read everything again for nothing is the lesser evil.
HANDOVER_SECONDS: Final = 2.0
# How often, and after how many seconds each time, a resumed stream looks for the header that a store has lost.
HEADER_LOOKS: Final = 15
HEADER_PAUSE = 1.0


class GetStreams(Protocol):
    """The streams of a process, as one of them sees the others."""

    events: EventLog

    async def alive(self, stream: GetStream) -> bool:
        """Return whether the session of a stream still exists.

        This counts as a use of the session.
        """

    def woken(self, session: str, stream: str, carrier: str) -> None:
        """Tell the process that carries a stream, if there is one, that there are new events in the log."""

    def disconnected(self, stream: GetStream) -> None:
        """Take note that the client of a stream disconnected."""

    def closed(self, stream: GetStream) -> None:
        """Take note that a stream has ended here."""

    def check_writer(self, stream: ResumedStream) -> None:
        """Find out whether the process that writes a stream still does."""

    def hand_over(self, stream: SessionStream, to: str) -> None:
        """Tell the new owner of a session that its client can find all notifications so far."""


class GetStream:
    """A connection that carries a stream from the log, after a position. It ends where the stream ends."""

    __slots__ = (
        "_ahead",
        "_ended",
        "_heartbeats",
        "_lingers",
        "_send",
        "_sending",
        "_sends_comment",
        "_task",
        "_woken",
        "_work",
        "carrier",
        "claim_heard",
        "id",
        "name",
        "position",
        "streams",
        "taken",
        "token",
    )

    def __init__(self, streams: GetStreams, identifier: str, token: SessionToken, resume: Resume) -> None:
        self.streams: GetStreams = streams
        self.id: str = identifier
        self.token: SessionToken = token
        self.name: str = resume.stream
        self.position: Position | None = resume.position
        self._ahead = resume.ahead  # The messages after the position that the client has already.
        self.taken: bool = False
        """Whether another connection carries the stream now."""
        self.carrier: str = ""
        """The process of that connection."""
        self.claim_heard: bool = False
        """Whether the claim of this stream has come back. Claims that come before are older, and do not end it."""
        self._send: SendMessage | None = None
        self._task: asyncio.Task[Any] | None = None
        self._work: asyncio.Task[None] | None = None
        self._heartbeats: Timeouts | None = None
        self._woken = False
        self._sending = False
        self._sends_comment = False
        self._ended = False
        self._lingers = False

    @property
    def attached(self) -> bool:
        """Return whether a connection carries the stream here."""
        return self._send is not None

    async def serve(self, receive: Receive, send: SendMessage, headers: HeaderList) -> None:
        """Carry the stream until the client disconnects or the stream ends."""
        start = [*STREAM_HEADERS, version_header(self.token.revision), *headers]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": start})
            # Sent at once: headers that wait for a body would look like a server that hangs.
            await send({"type": "http.response.body", "body": self._first(), "more_body": True})
            self._send = send
            self.wake()
            if not self._ended:
                self._task = asyncio.current_task()
                self._heartbeats = timeouts(asyncio.get_running_loop(), KEEP_ALIVE)
                self._heartbeats.start(self._heartbeat)
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
        if self._heartbeats is not None:
            self._heartbeats.stop(self._heartbeat)
        if self._work is not None and self._sending:
            self._work.cancel()
        if self._ended and not self._lingers:
            self.streams.closed(self)
        else:
            self.streams.disconnected(self)

    def _first(self) -> bytes:
        """Return the first bytes of the body."""
        return encode_comment("open")

    def end(self) -> None:
        """End the stream, and its connection with the proper end of a body."""
        if self._ended:
            return
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    def linger(self) -> None:
        """End the connection properly, but go on as if it had broken: the client is to come back elsewhere."""
        if not self._ended:
            self._lingers = True
            self.end()

    def wake(self) -> None:
        """Look for something new in the log."""
        self._woken = True
        if self._work is None and (self._unwritten or not self._ended):
            self._work = asyncio.get_running_loop().create_task(self._run())

    @property
    def _unwritten(self) -> bool:
        """Return whether something has yet to be logged, for the connection that carries the stream next."""
        return False

    async def written(self) -> None:
        """Wait until everything that this process has for the stream is logged, or could not be."""
        while self._unwritten and self._work is not None:
            await asyncio.wait({self._work})

    def _heartbeat(self) -> None:
        assert self._heartbeats is not None
        self._heartbeats.start(self._heartbeat)
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
        """Make up for events that were dropped before the client had them."""

    async def _write(self) -> None:
        """Append what this process has for the stream to the log."""

    async def _carry(self, send: SendMessage) -> None:
        quiet, self._sends_comment = self._sends_comment, False
        if quiet and not await self.streams.alive(self):
            self.end()
            return
        while self._send is send and (entries := up_to_end(await self._read())):
            if self._send is not send:
                return  # The connection ended while the log was read.
            quiet = False
            events = [
                encode_event(entry.data, id=event_id(self.name, entry.position))
                for entry in entries
                if entry.kind in (MESSAGE, LAST) and not self._has_already(entry)
            ]
            if events:
                await self._transmit(send, b"".join(events))
            self.position = entries[-1].position
            if entries[-1].is_end:
                self.end()
                return
        if quiet and self._send is send:
            await self._transmit(send, encode_comment("keep-alive"))

    def _has_already(self, event: LoggedEvent) -> bool:
        """Return whether the client got a message before it was logged."""
        if not self._ahead or event.kind != MESSAGE:
            return False
        self._ahead -= 1
        return True

    async def _transmit(self, send: SendMessage, data: bytes) -> None:
        self._sending = True
        try:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._sending = False

    async def _read(self) -> list[LoggedEvent]:
        try:
            return await self.streams.events.read(self.token.id, Resume(self.name, self.position), PAGE)
        except PositionLost:
            if self.position is None:
                raise
            # The log keeps less than was written since. The client gets what is left, and is told of the loss.
            log.warning("a client is too far behind on its stream: events were dropped")
            self.position, self._ahead = None, 0
            self.lost()
            return await self.streams.events.read(self.token.id, Resume(self.name, None), PAGE)


class ResumedStream(GetStream):
    """The rest of a stream that answers a POST. The process that runs the calls writes it, this one or another."""

    __slots__ = ("_why_ended", "header")

    def __init__(self, streams: GetStreams, identifier: str, token: SessionToken, resume: Resume) -> None:
        super().__init__(streams, identifier, token, resume)
        self.header: StreamHeader | None = None
        self._why_ended = ""

    async def begin(self) -> None:
        """Read who writes the stream; end at once where the client has had the last message.

        Raise `PositionLost` if nobody can know who writes it. A failover of the store may lose the header. A process
        that lives logs it again within seconds. If that process is gone too, nobody answers on this stream any more.
        """
        for _ in range(HEADER_LOOKS):
            kept = await self.streams.events.kept(self.token.id, self.name)
            self.header = header_of(kept)
            if kept and kept[-1].kind == LAST and kept[-1].position == self.position:
                self.end()
            if self.header is not None or (kept and kept[-1].is_end):
                return
            await asyncio.sleep(HEADER_PAUSE)
        raise PositionLost

    def writer_ended(self, why: str) -> None:
        """Answer for the process that wrote the stream, because it writes no more."""
        self._why_ended = why
        self.wake()

    def waits_for(self, process: str) -> bool:
        """Return whether the rest of the stream has to come from another process than this one."""
        return self.header is not None and self.header.process != process and not self._ended

    def _heartbeat(self) -> None:
        super()._heartbeat()
        if self.header is not None:
            self.streams.check_writer(self)

    async def _carry(self, send: SendMessage) -> None:
        await super()._carry(send)
        if self._why_ended and not self._ended:
            await self._answer(self._why_ended)
            await super()._carry(send)

    async def _answer(self, why: str) -> None:
        """Log an error as the answer to each request that has none: one event, so that it is there wholly or not."""
        events = self.streams.events
        kept = await events.kept(self.token.id, self.name)
        header = header_of(kept) or self.header
        if header is None or (kept and kept[-1].is_end):
            return
        if self.header is not None and header.lease != self.header.lease:
            # The process lives. It had lost its lease, and has another one.
            self.header, self._why_ended = header, ""
            return
        log.warning("a stream is ended with an error: %s", why)
        errors = [encode_error(request, INTERNAL_ERROR, why) for request in unanswered(header, kept)]
        answer = encode_batch(errors) if len(errors) > 1 else b"".join(errors)
        await events.append(self.token.id, self.name, LAST if errors else END, answer)
        events.retire(self.token.id, self.name, KEPT_FOR_RETURN)


class SessionStream(GetStream):
    """A session's own stream: list changes, updates of subscribed resources, and log messages.

    It writes notifications only while it is the owner (`owns`).
    """

    __slots__ = (
        "_before_claim",
        "_before_claim_size",
        "_declared",
        "_handovers",
        "_hears",
        "_is_handed_over",
        "_is_new",
        "_logged_up_to",
        "_lost_timer",
        "_lost_until",
        "_pending",
        "_promised",
        "_successor",
        "claimed",
        "has_doubt",
        "has_event_id",
        "has_gap",
        "lease",
        "level",
        "newest",
        "newest_name",
        "number",
        "owns",
        "state_told",
        "uris",
    )

    def __init__(
        self,
        streams: GetStreams,
        identifier: str,
        token: SessionToken,
        resume: Resume,
        hears: Callable[[Change], bool],
        promised: Mapping[str, Any],
        declared: frozenset[str],
    ) -> None:
        """`hears` says whether the client may know of an update.

        `promised` are the capabilities that the server declares, `declared` the extensions that the client declares.
        """
        super().__init__(streams, identifier, token, resume)
        self._hears = hears
        self._promised = promised
        self._declared = declared
        self.owns: bool = False
        """Whether this stream is the owner of its session."""
        self.claimed: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        """Done when the claim of this stream has come back; None when the stream has begun to write."""
        self.level: t.LoggingLevel = "info"
        self.uris: frozenset[str] = frozenset()
        self.state_told: bool = False
        """Whether another process has told the level and the subscriptions since the stream was opened."""
        self.number: int = 0
        """The number of the last claim of this stream; 0 before it has one."""
        self.newest: StreamOwner | None = None
        """The owner by the newest claim that came."""
        self.newest_name: str = ""
        """The name of the stream of that claim."""
        self.has_doubt: bool = False
        """Whether the record named another owner than the claims do, or one that is gone, at the last heartbeat."""
        self.has_gap: bool = False
        """Whether there may have been notifications that are in no log, and the client has not been told."""
        self.lease: asyncio.TimerHandle | None = None
        """The end of the lease, while the owner writes for a client that is not connected."""
        self.has_event_id: bool = resume.position is not None
        """Whether the client has an event id to come back with."""
        self._pending: OutQueue | None = None
        self._logged_up_to: Position | None = None  # The last event that this stream has logged itself.
        self._is_new = False  # Whether nothing was logged yet.
        self._is_handed_over = False
        self._handovers: Timeouts | None = None
        self._successor = ""  # The owner that waits for a handover.
        self._lost_until: float = -inf
        self._lost_timer: asyncio.TimerHandle | None = None
        self._before_claim: list[Callable[[], None]] | None = None
        """Notifications that arrived while this stream was the owner, but did not know the subscriptions yet."""
        self._before_claim_size: OutBound

    def _first(self) -> bytes:
        if not supports(self.token.revision, "sse_priming"):
            return super()._first()
        # Nothing is logged for this event: the beginning of a stream is a position like any other.
        self.has_event_id = True
        return encode_event(b"", id=event_id(self.name, self.position), retry=DEFAULT_RETRY)

    async def look_for_events(self) -> None:
        """Find out whether something was logged already. The first event is there for as long as none was dropped."""
        if self.position is None:
            self._is_new = not await self.streams.events.read(self.token.id, Resume(self.name, None), 1)

    async def begin(self, level: t.LoggingLevel, uris: frozenset[str], *, is_first: bool) -> None:
        """Begin to write. What arrived since the claim was written by no other stream, so it is written now.

        `is_first`: the session never had a stream of its own before, so there is nothing that its client can have
        missed on one.
        """
        if not self.state_told:
            self.level, self.uris = level, uris
        self.claimed = None
        if self.owns and not is_first and not self._is_handed_over:
            self.await_handover()
        if self._before_claim is not None:
            kept, self._before_claim = self._before_claim, None
            # Also when another stream is the owner by now: these arrived before it was.
            self._write_anyway(*kept)
            await self._write()

    def changed(self, change: Change) -> None:
        """Notify the client of a change, if it subscribed to it and may know of it."""
        if change.session not in ("", self.token.id):
            return
        if self.claimed is not None:
            params = 0 if change.params is None else len(t.encode(change.params))
            self._hold_until_claimed(lambda: self.changed(change), len(change.uri) + params)
            return
        notification = legacy_notification(change, self.uris, self._promised, self._declared)
        if notification is not None and (change.kind != "updated" or self._hears(change)):
            self.notify(encode_notification(*notification))

    def logged(self, level: t.LoggingLevel, message: bytes) -> None:
        """Send a log message, if the client wants those of its level."""
        if self.claimed is not None:
            self._hold_until_claimed(lambda: self.logged(level, message), len(message))
        elif t.severity(level) >= t.severity(self.level):
            self.notify(message)

    def changed_everything(self) -> None:
        """Notify the client of every change that may have happened, so that it reads everything again."""
        for change in everything(self.uris):
            self.changed(change)

    def lost(self) -> None:
        """Tell the client to read everything again, because it does not know what it missed."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._lost_until:
            # Later, because all these notifications may themselves be more than the log keeps.
            self.has_gap = True
            if self._lost_timer is None:
                self._lost_timer = loop.call_at(self._lost_until, self._lost_again)
            return
        self._lost_until = loop.time() + LOST_EVERY
        self.has_gap = False
        self._stop_waiting()
        # Also when another stream is the owner: the events were on this one.
        self._write_anyway(self.changed_everything)

    def _lost_again(self) -> None:
        self._lost_timer = None
        self._lost_until = -inf
        if self.attached or self.lease is not None:
            self.lost()

    # --- handovers ---

    def await_handover(self) -> None:
        """Wait for the owner before to say that nothing was missed."""
        self.has_gap = True
        self._handovers = timeouts(asyncio.get_running_loop(), HANDOVER_SECONDS)
        self._handovers.start(self.not_handed_over)

    def handed_over(self) -> None:
        """Take note that the client can find all notifications that came before the claim."""
        self._is_handed_over = True
        self.has_gap = False
        self._stop_waiting()

    def not_handed_over(self) -> None:
        """Tell the client to read everything again: the owner before is gone, or has missed something itself."""
        self._stop_waiting()
        if self.owns:
            self.has_gap = False
            self.changed_everything()

    def _stop_waiting(self) -> None:
        if self._handovers is not None:
            self._handovers.stop(self.not_handed_over)
            self._handovers = None

    def yield_to(self, successor: str, stream: str) -> None:
        """Stop being the owner, for another stream that claimed the session; hand over what there is to hand over."""
        if not self.owns:
            return
        self.owns = False
        self._stop_waiting()
        # A client that is not connected finds what it was not sent when it resumes this stream, and on no other.
        is_found = self.attached or stream == self.name or not (self._pending or self._unsent)
        if is_found and self.claimed is None and not self.has_gap:
            self._successor = successor
            self.wake()

    @property
    def _unsent(self) -> bool:
        return self._logged_up_to not in (None, self.position)

    def _write_anyway(self, *notifies: Callable[[], None]) -> None:
        """Write notifications as the owner, whichever stream that is now."""
        owned, self.owns = self.owns, True
        for notify in notifies:
            notify()
        self.owns = owned

    def _hold_until_claimed(self, notify: Callable[[], None], size: int) -> None:
        """Hold a notification of `size` bytes until the subscriptions are known."""
        if not self.owns:
            return
        if self._before_claim is None:
            self._before_claim, self._before_claim_size = [], OutBound(limit=CONGESTED)
        if self._before_claim and self._before_claim[-1] == self.lost:
            return
        if len(self._before_claim) < MAX_PENDING and self._before_claim_size.has_room(size):
            self._before_claim.append(notify)
            self._before_claim_size.add(size)
        else:
            log.warning("too many notifications before a stream has begun: the rest is dropped, and the client is told")
            self._before_claim.append(self.lost)

    def notify(self, message: bytes) -> None:
        """Write a notification, if this stream is the owner."""
        if not self.owns:
            return
        if len(message) > MAX_ENTRY:
            log.warning("a notification of %d bytes is dropped: at most %d bytes are kept", len(message), MAX_ENTRY)
            return
        if self.claimed is not None:
            self._hold_until_claimed(lambda: self.notify(message), len(message))
            return
        if self._pending is None:
            self._pending = OutQueue(limit=CONGESTED)
        if message in self._pending.messages:
            return  # The same notification waits already, for a log that is behind.
        if len(self._pending.messages) >= MAX_PENDING or not self._pending.has_room(len(message)):
            log.warning("the log of events is too slow: notifications are dropped, and the client looks again")
            self._pending.clear()
            self.lost()
        self._pending.put(message)
        self.wake()

    @property
    def _unwritten(self) -> bool:
        return bool(self._pending or self._successor)

    async def _read(self) -> list[LoggedEvent]:
        beginning = self.position is None
        entries = await super()._read()
        if beginning and entries and entries[0].kind != PRIMING:
            log.warning("a client is too far behind on its stream: events were dropped")
            self.lost()
        return entries

    async def _write(self) -> None:
        if self._pending:
            await self._write_pending(self._pending)
            self._pending = None
            if not self.attached:
                # Another process may carry the stream now, and may have looked already.
                self.streams.woken(self.token.id, self.name, self.carrier)
        if self._successor:
            successor, self._successor = self._successor, ""
            if not self.has_gap:
                self.streams.hand_over(self, successor)

    async def _write_pending(self, pending: OutQueue) -> None:
        append = self.streams.events.append
        try:
            if self._is_new:
                self._is_new = False
                await append(self.token.id, self.name, PRIMING, b"")
            while pending:
                message = pending.pop()
                self._logged_up_to = await append(self.token.id, self.name, MESSAGE, message)
                self.has_event_id = True
        except BaseException:
            self.has_gap = True
            raise

    def keep_lease(self, expire: Callable[[], None]) -> None:
        """Stay the owner without a connection, for a client that may come back."""
        self.lease = asyncio.get_running_loop().call_later(LEASE, expire)

    def give_up(self) -> None:
        """Stop writing: nobody came back, or another connection carries the stream."""
        self.owns = False
        self._stop_waiting()
        if self.lease is not None:
            self.lease.cancel()
            self.lease = None

    def discard(self) -> None:
        """Drop what is not written yet, because the session is over."""
        self.give_up()
        self.taken = True
        if self._pending is not None:
            self._pending.clear()
        self._successor = ""
