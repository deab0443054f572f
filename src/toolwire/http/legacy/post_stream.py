"""The answer to one legacy POST: a JSON object, or an event stream that outlives its connection.

2025-03-26 basic/transports: a connection that breaks does not cancel anything. The calls go on, their messages are kept
in the log, and the client comes back for them by GET with the id of the last event it saw.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final, Protocol

from toolwire.http.exchange import KEEP_ALIVE, STREAM_HEADERS
from toolwire.http.legacy.event_log import (
    END,
    HEADER_EVERY,
    LAST,
    MAX_ENTRY,
    MAX_HEADER,
    MESSAGE,
    PRIMING,
    EventLog,
    StreamHeader,
    encode_header,
    event_id,
)
from toolwire.http.responses import JSON_TYPE, respond
from toolwire.http.unsent_answers import PacedSend
from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage
from toolwire.protocol.errors import INTERNAL_ERROR
from toolwire.protocol.framing import encode_comment, encode_event
from toolwire.protocol.jsonrpc import RequestId, encode_batch, encode_error
from toolwire.protocol.revisions import supports
from toolwire.stores import Position, StoreFailed, StoreFull
from toolwire.util.out_queue import OutQueue
from toolwire.wire.deadlines import Timeouts, in_time, timeouts

log: logging.Logger = logging.getLogger("toolwire.http")

# After so many seconds a call without messages becomes a stream, where its revision then lets the client resume it.
OPENS_AFTER: Final = 1.0
DEFAULT_RETRY: Final = 1000
# How long the events of a finished stream are kept: for a client that was there, and for one that was not.
KEPT_AFTER: Final = 30.0
KEPT_FOR_RETURN: Final = 300.0
# The bytes that may wait for the log when the client has left, until the call has to wait as well.
CONGESTED_ALONE: Final = 64 * 1024
# The bytes of messages that were sent and that the log has yet to take.
MAX_UNLOGGED: Final = 64 * 1024


class PostStreams(Protocol):
    """The streams of a process, as one of them sees the others."""

    events: EventLog
    process: str
    """The name of this process, which no other has."""

    async def lease(self) -> str:
        """Return the name of the lease of this process; empty where the stores have no leases."""

    def woken(self, session: str, stream: str, carrier: str) -> None:
        """Tell the process that carries a stream, if there is one, that there are new events in the log."""

    def over(self, stream: PostStream) -> None:
        """Take note that a stream has ended."""


class PostStream:
    """The answer to one POST. It ends when all `expected` calls have settled."""

    def __init__(
        self,
        streams: PostStreams,
        session: str,
        name: str,
        revision: str,
        receive: Receive,
        send: PacedSend,
        headers: HeaderList,
        ready: list[bytes] | None = None,
    ) -> None:
        """`ready`: the answers that a batch already has; None for a single request."""
        self.session = session
        self.name = name
        self.expected: int = 0
        self._requests: list[RequestId] = []
        self._streams = streams
        self._revision = revision
        self._receive: Receive | None = receive
        self._send: PacedSend | None = send
        self._headers = headers
        self._batch = ready is not None
        self._loop = asyncio.get_running_loop()
        self._answers: list[bytes] = ready or []
        self._cancelled: list[RequestId] = []
        self._last_request: RequestId | None = None
        self._queue = OutQueue()
        self._position: Position | None = None
        self._header = b""
        self._lease = ""  # The lease that is in the header.
        self._is_header_due_now = False  # Whether that lease was lost, or perhaps the header.
        self._since_header = (HEADER_EVERY, 0)  # The events since the last header in the log, and their bytes.
        self._has_event_id = False  # Whether the client has an event id to come back with.
        self._unlogged: deque[bytes] = deque()  # Messages that the log failed to take, and takes before all others.
        self._is_torn = False  # Whether a message is in no log. Nothing that follows is logged either.
        self._unkept: tuple[bytes, bytes] | None = None  # The end of the stream, where the log failed to take it.
        self._carrier = ""  # The process whose connection carries the stream now; empty where no client came back.
        self._retry: int | None = None
        self._closing = False
        self._sending = False
        self._wake: asyncio.Event | None = None
        self._writer: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._silence: Timeouts | None = None
        # Done when the connection of this POST has nothing more to carry.
        self.done: asyncio.Future[None] = self._loop.create_future()

    # --- the connection ---

    @property
    def attached(self) -> bool:
        """Return whether the POST's own connection still carries the stream."""
        return self._send is not None

    async def serve(self) -> None:
        """Keep the POST's connection until it has its answer, is closed early, or is gone."""
        try:
            await self.done
        except asyncio.CancelledError:
            self.detach()  # The host gave the connection up, but the calls go on.
            raise
        if self._writer is None and self._send is not None:
            send, self._send = self._send, None
            self._disconnect()
            try:
                await self._send_json(send)
            finally:
                send.release()

    async def _send_json(self, send: SendMessage) -> None:
        for identifier in self._cancelled:
            # 1.5.7: a cancelled request needs no answer, but its HTTP request does.
            self._answers.append(encode_error(identifier, INTERNAL_ERROR, "The request was cancelled"))
        # 1.1.1.6: the answer to a batch is an array.
        body = encode_batch(self._answers) if self._batch else self._answers[0]
        self._answers.clear()
        await respond(send, 200, body, (*JSON_TYPE, *self._headers))

    def waits(self) -> None:
        """Begin to watch for a disconnect and to fill silence: a call waits for something."""
        if self._watch is None and self._receive is not None:
            self._watch = self._loop.create_task(self._watch_disconnect(self._receive))
            after = OPENS_AFTER if supports(self._revision, "sse_priming") else KEEP_ALIVE
            self._silence = timeouts(self._loop, after)
            self._silence.start(self._start)

    async def _watch_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.detach()

    def detach(self) -> None:
        """Leave the connection, because it is gone or another one carries the stream from now on."""
        self._disconnect()
        if self._wake is not None:
            self._wake.set()

    def _disconnect(self) -> None:
        if self._send is not None:
            self._send.release()
        self._receive = self._send = None
        # The cancelled task keeps its frame, and so the stream: a reference back would make a cycle.
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
        if self._silence is not None:
            self._silence.stop(self._start)
        if self._sending and self._writer is not None:
            self._writer.cancel()
        # A client that has left does not slow the call down, but the log does.
        self._queue.high = CONGESTED_ALONE
        self._queue.wake()
        if not self.done.done():
            self.done.set_result(None)

    async def finished(self) -> None:
        """Wait until every message is on its way."""
        if self._writer is not None:
            await asyncio.wait({self._writer})

    def taken(self, process: str) -> None:
        """Leave the stream to another connection, in the process of this name, and tell it of the events so far."""
        self._carrier = process
        self.detach()
        if self._writer is not None:
            self._streams.woken(self.session, self.name, self._carrier)

    def repeat_header(self) -> None:
        """Log a header as soon as possible: the lease that it names was lost, or the store may have lost it."""
        self._is_header_due_now = self._has_event_id
        if self._wake is not None:
            self._wake.set()

    # --- messages of calls ---

    def expect(self, identifier: RequestId) -> None:
        """Count a call whose answer belongs on this stream."""
        self.expected += 1
        self._requests.append(identifier)

    @property
    def congested(self) -> bool:
        return self._queue.congested

    @property
    def full(self) -> bool:
        return self._queue.full

    def admits(self, optional: bool) -> bool:
        """Return whether a notification may be sent now; count it as dropped if not."""
        return self._queue.admits(optional)

    async def drain(self) -> None:
        await self._queue.drain()

    def put(self, message: bytes) -> bool:
        """Send a message before the answer; return False when no client can ever get it, or too much waits already."""
        if self.expected == 0 or not (self.attached or self._has_event_id) or self._queue.full:
            return False
        self._queue.put(message)
        self._start()
        return True

    def settle(self, identifier: RequestId, answer: bytes | None) -> None:
        """Take the answer of a call that has ended; None for one that was cancelled."""
        self.expected -= 1
        self._last_request = identifier
        if answer is None:
            self._cancelled.append(identifier)
        elif self._send is not None:
            self._answers.append(self._send.hold(identifier, answer))
        elif self._writer is not None:
            self._answers.append(self._fit_log(identifier, answer))
        if self._writer is not None:
            self._move_answers()
            assert self._wake is not None
            self._wake.set()
        elif self.expected == 0:
            if self._silence is not None:
                self._silence.stop(self._start)  # The answer is JSON now. A stream must not begin beside it.
            if not self.done.done():
                self.done.set_result(None)
            self._streams.over(self)

    async def close_early(self, retry_ms: int | None) -> None:
        """Close the connection and let the client come back for the rest, where its revision allows that."""
        # 2025-11-25 basic/transports: only after an event id, and after `retry` with the time to wait.
        if not self.attached or not supports(self._revision, "early_stream_close"):
            return
        self._retry = retry_ms
        self._closing = True
        self._start()
        assert self._wake is not None
        self._wake.set()
        await asyncio.shield(self.done)

    # --- the stream ---

    def _start(self) -> None:
        if self._writer is None:
            self._wake = asyncio.Event()
            self._move_answers()
            self._writer = self._loop.create_task(self._run())
        else:
            assert self._wake is not None
            self._wake.set()

    def _move_answers(self) -> None:
        for answer in self._answers:
            self._queue.put(answer)
        self._answers.clear()

    async def _run(self) -> None:
        try:
            await self._begin()
            await self._carry()
            if self._unkept is not None and self._has_event_id:
                self._disconnect()
                await self._log_later()
                await self._end_later(*self._unkept)
        except Exception:
            log.exception("the stream of a request broke")
        finally:
            attached = self.attached
            self._queue.clear()
            self._disconnect()
            if self._has_event_id:
                self._streams.events.retire(self.session, self.name, KEPT_AFTER if attached else KEPT_FOR_RETURN)
                self._has_event_id = False  # No more messages are taken, also when the log failed.
            self._streams.over(self)

    async def _begin(self) -> None:
        if not self.attached:
            return
        first = b""
        if supports(self._revision, "sse_priming") and await self._keep(PRIMING, b""):
            # 2025-11-25 basic/transports: an event with an id and no data, so that the client can come back.
            retry = DEFAULT_RETRY if self._retry is None else self._retry
            first = encode_event(b"", id=event_id(self.name, self._position), retry=retry)
            self._retry = None
        await self._transmit(
            {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *self._headers]}
        )
        if first:
            await self._body(first)

    async def _carry(self) -> None:
        assert self._wake is not None
        while True:
            self._wake.clear()
            finished = self.expected == 0
            if self._is_header_due_now:
                self._is_header_due_now = not await self._keep(PRIMING, b"")
            if self._unlogged and not self.attached:
                await self._log_later()
            if self._queue or finished:
                await self._flush(finished)
            if finished:
                break
            if self._closing and self.attached:
                await self._close()
            if self._queue or (self._unlogged and not self.attached):
                continue
            if not await in_time(KEEP_ALIVE, self._wake.wait()):
                await self._body(encode_comment("keep-alive"))
        await self._body(b"", more=False)

    async def _close(self) -> None:
        if self._retry is not None:
            await self._body(encode_event(b"", id=self._event_id(), retry=self._retry))
        await self._body(b"", more=False)
        self._disconnect()

    async def _flush(self, finished: bool) -> None:
        messages = self._queue.messages.copy()
        self._queue.clear()
        if not self.attached and not self._has_event_id:
            return
        lines: list[bytes] = []
        last = False
        while messages:
            last = finished and len(messages) == 1
            # No name for the message, which would keep a large answer twice while it is sent.
            lines.append(await self._logged(messages.popleft(), last))
            if not self.attached:
                lines.clear()
        if finished and not last:
            await self._keep(END, b"")
        data = b"".join(lines)
        lines.clear()
        if self.attached:
            await self._body(data)
        else:
            self._streams.woken(self.session, self.name, self._carrier)

    async def _body(self, data: bytes, more: bool = True) -> None:
        await self._transmit({"type": "http.response.body", "body": data, "more_body": more})

    async def _transmit(self, message: dict[str, Any]) -> None:
        """Send on the connection of the POST, for as long as it carries the stream."""
        if self._send is None:
            return
        self._sending = True
        try:
            await self._send(message)
        except asyncio.CancelledError:
            # A connection that takes no more bytes must not hold up the one that replaced it.
            task = asyncio.current_task()
            if self.attached or task is None or task.uncancel():
                raise
        finally:
            self._sending = False

    async def _logged(self, message: bytes, last: bool) -> bytes:
        """Log a message, and return the event that carries it."""
        kept = message
        if len(message) > MAX_ENTRY:
            if not last:
                return encode_event(message)  # Only a client that is connected gets it.
            kept = self._fit_log(self._last_request, message)
        is_kept = await self._keep(LAST if last else MESSAGE, kept)
        if not is_kept and (last or not self._has_event_id or self._is_torn):
            return encode_event(message)
        if not is_kept:
            self._unlogged.append(kept)
            if not self.attached:
                await self._log_later()
            elif sum(map(len, self._unlogged)) > MAX_UNLOGGED:
                self._tear("too much waits for it")
                return encode_event(message)
        return encode_event(message, id=self._event_id())

    def _fit_log(self, identifier: RequestId | None, answer: bytes) -> bytes:
        """Return an answer as the log takes it: an error in place of one that is too large."""
        if len(answer) <= MAX_ENTRY:
            return answer
        text = "The answer is too large to be kept for a connection that was lost"
        return encode_error(identifier, INTERNAL_ERROR, text)

    def _event_id(self) -> str:
        return event_id(self.name, self._position, len(self._unlogged))

    async def _keep(self, kind: bytes, data: bytes) -> bool:
        """Log an event; return False when the log cannot take it now."""
        if self._is_torn:
            return False
        try:
            while self._unlogged:
                again = (self.session, self.name, self._position, MESSAGE, self._unlogged[0])
                self._logged_late(await self._streams.events.append_again(*again))
            header = await self._make_header()
            if len(header) > MAX_HEADER:
                return False
            if kind == MESSAGE and self._is_header_due(len(data)):
                await self._append(PRIMING, header)
            self._position = await self._append(kind, header if kind == PRIMING else data)
        except (StoreFailed, StoreFull) as error:
            log.error("an event could not be kept for a client that comes back: %s", error)
            if kind in (LAST, END):
                self._unkept = (kind, data)
            return False
        self._has_event_id = True
        return True

    async def _log_later(self) -> None:
        """Log the messages that the log did not take, before those that follow: a client that comes back expects them.

        Where that fails in the end, the client gets an error instead of the rest.
        """
        events = self._streams.events
        try:
            while self._unlogged:
                late = (self.session, self.name, self._position, MESSAGE, self._unlogged[0])
                self._logged_late(await events.append_later(*late, KEPT_FOR_RETURN))
        except (StoreFailed, StoreFull) as error:
            self._tear(error)
        else:
            self._streams.woken(self.session, self.name, self._carrier)

    def _logged_late(self, position: Position) -> None:
        self._position = position
        self._count(MESSAGE, self._unlogged.popleft())

    def _tear(self, why: object) -> None:
        """Log nothing more, because the log lacks a message: a client that comes back is told so by an error."""
        log.error("the rest of a stream is lost to a client that comes back: %s", why)
        self._is_torn = True
        self._unlogged.clear()
        self._unkept = None

    async def _make_header(self) -> bytes:
        lease = await self._streams.lease()
        if not self._header or lease != self._lease:
            self._lease = lease
            self._header = encode_header(StreamHeader(self._streams.process, self._requests, lease))
            self._since_header = (HEADER_EVERY, 0)
        return self._header

    def _is_header_due(self, size: int) -> bool:
        """Return whether the log could drop the last header before the next event is dropped."""
        events, total = self._since_header
        return events >= HEADER_EVERY or total + size > MAX_ENTRY

    async def _append(self, kind: bytes, data: bytes) -> Position:
        position = await self._streams.events.append(self.session, self.name, kind, data)
        self._count(kind, data)
        return position

    def _count(self, kind: bytes, data: bytes) -> None:
        """Count the events since the last header."""
        events, total = self._since_header
        self._since_header = (0, 0) if kind == PRIMING else (events + 1, total + len(data))

    async def _end_later(self, kind: bytes, data: bytes) -> None:
        """Log the end of the stream after all, because a client that comes back waits for it."""
        if self._is_torn:
            return
        try:
            events = self._streams.events
            await events.append_later(self.session, self.name, self._position, kind, data, KEPT_FOR_RETURN)
        except (StoreFailed, StoreFull) as error:
            log.error("the answer of a call is lost to a client that comes back: %s", error)
        else:
            self._streams.woken(self.session, self.name, self._carrier)
