"""The channel of a client over Streamable HTTP: notifications, answers to the server, and the GET stream.

The channel posts notifications, and answers to requests of the server, one after the other. Before 2026-07-28 the
server may give out a session id. It sends its own messages on a stream that the client opens by GET.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from toolwire.http.client.endpoint import TURNED_AWAY, Endpoint
from toolwire.http.client.event_reader import EventReader
from toolwire.http1.response import HttpResponse, MalformedResponse
from toolwire.protocol.errors import (
    InvalidResponse,
    OutcomeUnknown,
    ToolwireError,
    TransportError,
    Unauthorized,
    Unreachable,
)
from toolwire.protocol.framing import Oversized, OversizedEvent
from toolwire.protocol.http import SESSION, VERSION
from toolwire.protocol.jsonrpc import ErrorResponse, Notification, Response, decode
from toolwire.protocol.revisions import MODERN, is_modern, supports
from toolwire.util.backoff import Backoff
from toolwire.util.out_queue import OutQueue
from toolwire.wire.channel import UNREAD_CONGESTED, UNREAD_MESSAGES, Channel, Ended, Feed, Inbox
from toolwire.wire.deadlines import TimeoutClock

log: logging.Logger = logging.getLogger("toolwire.http")

EVENT_STREAM: Final = "text/event-stream"
ACCEPT_STREAM: Final = {"accept": EVENT_STREAM}
_POST: Final = {"accept": f"application/json, {EVENT_STREAM}", "content-type": "application/json"}
#: The time in which a server confirms a notification or an answer, and the time for which requests wait for that.
POST_SECONDS: Final = 5.0
#: The number of times that a message is posted again at once: a process behind a load balancer may be gone.
POST_REPEATS: Final = 3
#: The time for which an answer to a question of a call is repeated, at most: a server waits that long for answers.
ANSWER_SECONDS: Final = 600.0
#: The time for which all other answers, and cancellations, are repeated.
REPEAT_SECONDS: Final = 60.0
# The longest pause between two posts of a message, unless the server asks for a longer one, and the longest such one.
LONGEST_PAUSE: Final = 5.0
LONGEST_ASKED: Final = 30.0
SETTLING_SECONDS: Final = 2.0
# The time for which requests wait for the GET stream to open. Some servers send no headers before the first event.
OPENING_SECONDS: Final = 0.5
# The time that closing may take: sending the last messages and ending the session.
GOODBYE_SECONDS: Final = 2.0
SESSION_ID_LIMIT: Final = 4096


class Asking(Protocol):
    """A request of ours in flight, in whose stream the server asked a question."""

    method: str

    @property
    def in_flight(self) -> bool: ...

    def fail(self, error: BaseException) -> None:
        """End the request with an error."""


class HttpChannel(Channel):
    """The channel of an `HttpSession`."""

    def __init__(self, endpoint: Endpoint, missed: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._missed = missed
        self.asking: Asking | None = None
        """The request whose stream brings the message that is being delivered."""
        # The requests to which the messages in the queue belong.
        self._asking: deque[Asking | None] = deque()
        self._repeating: set[asyncio.Task[None]] = set()
        self._inbox = Inbox()
        self._queue = OutQueue()
        self._posting: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._opened: asyncio.Event | None = None
        self._closed = False
        self._session_id: str | None = None
        self._headers: dict[str, str] = {**_POST, VERSION: MODERN}
        self.revision: str | None = None
        self.modern: bool = False
        self.listens: bool = True
        """Whether the server's own stream is opened, before 2026-07-28."""

    # --- the headers of requests ---

    def request_headers(self, method: str) -> dict[str, str]:
        return dict(_POST) if method == "initialize" else dict(self._headers)

    def resume_headers(self, method: str, last_event_id: str) -> dict[str, str]:
        """Return the headers that resume a stream. The stream of `initialize` may belong to a session already."""
        headers = {**self.request_headers(method), **ACCEPT_STREAM, "last-event-id": last_event_id}
        if self._session_id is not None:
            headers[SESSION] = self._session_id
        return headers

    @property
    def session_id(self) -> str | None:
        """The id of the session; None where the server has none."""
        return self._session_id

    def begin(self, session_id: str | None) -> None:
        """Keep the session id, if `initialize` gave one (2025-03-26 basic/transports, session management)."""
        if session_id is None:
            return
        if not session_id or len(session_id) > SESSION_ID_LIMIT or not all("!" <= char <= "~" for char in session_id):
            raise InvalidResponse("The server gave out a session id that may not be sent back")
        self._session_id = session_id

    def negotiated(self, revision: str) -> None:
        self.revision = revision
        self.modern = is_modern(revision)
        self._headers = dict(_POST)
        if supports(revision, "protocol_version_header"):
            self._headers[VERSION] = revision
        if not self.modern and self._session_id is not None:
            self._headers[SESSION] = self._session_id

    def forget_session(self) -> None:
        """Drop the session id, because the server has ended the session; `close` does not end it again."""
        self._session_id = None

    # --- messages to the server ---

    def route(self) -> Feed:
        asking = self.asking
        return self.write if asking is None else partial(self._answer, asking)

    def _answer(self, asking: Asking, message: bytes) -> None:
        """Post the answer to a question. If that fails, end the asking request."""
        try:
            self._put(message, asking)
        except Unreachable as error:
            self._fail(asking, error)

    def write(self, message: bytes) -> None:
        self._put(message, None)

    def _put(self, message: bytes, asking: Asking | None) -> None:
        if self._closed:
            raise Unreachable("The connection is closed")
        if len(self._queue.messages) + len(self._repeating) >= UNREAD_MESSAGES:
            raise Unreachable("The server has left too many messages unread")
        self._queue.put(message)
        self._asking.append(asking)
        if self._posting is None:
            self._posting = asyncio.get_running_loop().create_task(self._post_all())

    async def _post_all(self) -> None:
        try:
            while self._queue:
                await self._post(self._queue.messages.popleft(), self._asking.popleft())
        finally:
            self._posting = None
            self._queue.wake()
        # `notifications/initialized` was posted. Before it, a server sends nothing on a stream.
        self.begin_listening()

    def begin_listening(self) -> None:
        """Open the server's own stream, in a legacy session that is initialized."""
        is_legacy = self.revision is not None and not self.modern
        if is_legacy and self.listens and self._listening is None and not self._closed:
            self._opened = asyncio.Event()
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._opened))

    async def _post(self, message: bytes, asking: Asking | None) -> None:
        """Post a message. Retry a lost answer or cancellation in the background."""
        try:
            error = await self._deliver(message, POST_REPEATS)
        except BaseException:
            self._queue.remove(len(message))
            raise
        if error is not None and not self._closed and may_repeat(error, message):
            task = asyncio.get_running_loop().create_task(self._repeat(message, asking, error))
            self._repeating.add(task)
            task.add_done_callback(self._repeating.discard)
            return
        self._queue.remove(len(message))
        if error is not None:
            self._fail(asking, error)

    async def _deliver(self, message: bytes, repeats: int = 0) -> ToolwireError | None:
        """Post a message, with retries if it did not arrive. Return the last error."""
        backoff = Backoff(repeats)
        error: ToolwireError | None = None
        try:
            async with asyncio.timeout(POST_SECONDS) as deadline:
                while True:
                    try:
                        await self._endpoint.deliver(self._headers, message, TimeoutClock(deadline))
                        return None
                    except ToolwireError as caught:
                        error = caught
                    pause = backoff.next()
                    if pause is None or not (_was_unreached(error) or may_repeat(error, message)):
                        return error
                    if may_repeat(error, message) and retry_after(error):
                        return error
                    await asyncio.sleep(pause)
        except TimeoutError:
            return error or OutcomeUnknown("The server did not confirm a notification or an answer")

    async def _repeat(self, message: bytes, asking: Asking | None, error: ToolwireError) -> None:
        """Post an answer or a cancellation until it arrives, or its request ends."""
        loop, backoff = asyncio.get_running_loop(), Backoff(longest=LONGEST_PAUSE)
        until = loop.time() + (REPEAT_SECONDS if asking is None else ANSWER_SECONDS)
        last: ToolwireError | None = error
        try:
            while last is not None and (asking is None or asking.in_flight):
                if loop.time() >= until or not may_repeat(last, message):
                    self._fail(asking, last)
                    return
                await asyncio.sleep(max(backoff.after(None), retry_after(last)))
                if asking is None or asking.in_flight:
                    last = await self._deliver(message)
        finally:
            self._queue.remove(len(message))

    def _fail(self, asking: Asking | None, error: ToolwireError) -> None:
        """End the request whose question stays without an answer: it could wait for ever."""
        if asking is None or not asking.in_flight:
            texts = self._endpoint.texts
            log.warning(
                "%s: a notification or an answer did not arrive: %s", self._endpoint.name, texts.describe(error)
            )
            return
        asking.fail(OutcomeUnknown(f"The answer to a question of {asking.method} did not arrive: {error}"))

    @property
    def unsettled(self) -> bool:
        """Return whether a request has to wait for a post, or for the GET stream to open."""
        return self._posting is not None or (self._opened is not None and not self._opened.is_set())

    async def settled(self) -> None:
        try:
            async with asyncio.timeout(SETTLING_SECONDS):
                await self.flush()
        except TimeoutError:
            return  # A server that does not confirm a notification does not hold requests up for ever.
        if self._opened is not None:
            try:
                async with asyncio.timeout(OPENING_SECONDS):
                    await self._opened.wait()
            except TimeoutError:
                self._opened.set()

    @property
    def congested(self) -> bool:
        return len(self._queue.messages) > UNREAD_CONGESTED or self._queue.congested

    @property
    def full(self) -> bool:
        return self._queue.full

    def admits(self, optional: bool) -> bool:
        return not (optional and self.congested) and self._queue.admits(optional)

    async def drain(self) -> None:
        while self.congested and self._posting is not None:
            await self._queue.progress()

    async def flush(self) -> None:
        while self._posting is not None:
            await asyncio.wait({self._posting})

    # --- messages from the server ---

    async def read(self) -> bytes | None:
        return await self._inbox.read()

    def attach(self, feed: Feed, ended: Ended) -> bool:
        self._inbox.attach(feed, ended)
        return True

    async def _listen(self, opened: asyncio.Event) -> None:
        """Keep the server's own stream open (2025-03-26 basic/transports, listening for messages from the server)."""
        last_event_id, retry, heard_before = "", None, False
        backoff, loop = Backoff(), asyncio.get_running_loop()
        try:
            while True:
                headers = {**self._headers, **ACCEPT_STREAM}
                if last_event_id:
                    headers["last-event-id"] = last_event_id
                try:
                    async with await self._endpoint.send("GET", headers, None) as response:
                        opened.set()
                        if last_event_id and response.status == 400:
                            # The server has lost that event: a new stream follows, and what was missed is unknown.
                            last_event_id = ""
                            continue
                        if not self._offers_stream(response, heard_before):
                            return
                        if heard_before and not last_event_id:
                            self._missed()
                        heard_before = True
                        decoder = EventReader(self._endpoint.limit, last_event_id)
                        opened_at = loop.time()
                        try:
                            await self._hear(response, decoder, backoff)
                        finally:
                            backoff.settle(loop.time() - opened_at)
                            last_event_id = decoder.last_event_id
                            retry = retry if decoder.retry is None else decoder.retry
                    asked = 0.0
                except TransportError as error:
                    if isinstance(error, MalformedResponse):
                        raise
                    log.debug("the server's stream broke off: %s", error)
                    asked = retry_after(error)
                await asyncio.sleep(max(backoff.after(retry), asked))
        except (Unauthorized, MalformedResponse) as error:
            what = "was refused" if isinstance(error, Unauthorized) else "cannot be read"
            log.warning(
                "%s: the stream of the server %s: %s", self._endpoint.name, what, self._endpoint.texts.hide(str(error))
            )
            if heard_before:
                # It would fail in the same way again, and listeners would wait for ever.
                self._inbox.end(error)
        finally:
            opened.set()

    def _offers_stream(self, response: HttpResponse, heard_before: bool) -> bool:
        if response.status == 200 and response.media_type == EVENT_STREAM:
            return True
        if response.status >= 500 or response.status in TURNED_AWAY:
            busy = TransportError(f"the status was {response.status}")
            busy.retry_after = response.retry_after
            raise busy
        if heard_before and response.status == 404 and self._session_id is not None:
            # There was a stream before, so 404 means that the session is gone.
            self.forget_session()
            self._inbox.end(Unreachable("The server has ended the session"))
        return False  # 405 is normal: the server offers no stream.

    async def _hear(self, response: HttpResponse, decoder: EventReader, backoff: Backoff) -> None:
        async for chunk in response.chunks():
            for event in decoder.feed(chunk):
                backoff.ease()
                if isinstance(event, OversizedEvent):
                    self._inbox.deliver(Oversized())
                elif event.data and event.event == "message":
                    data = event.data.encode()
                    if self._endpoint.tap is not None:
                        self._endpoint.tap("←", data)
                    self._inbox.deliver(data)

    # --- the end ---

    @property
    def is_connected(self) -> bool:
        return not self._closed

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # The user is leaving, and opens no browser for the last messages.
        self._endpoint.may_sign_in = False
        self._inbox.silence()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.flush()
                await self._end_session()
        except TimeoutError:
            log.debug("the server did not say goodbye in time")
        unfinished = {*self._repeating} if self._posting is None else {self._posting, *self._repeating}
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def _end_session(self) -> None:
        """Send DELETE for the session (2025-03-26 basic/transports). A server that does not allow it answers 405."""
        if self._session_id is None or self.modern:
            return
        try:
            (await self._endpoint.send("DELETE", {**self._headers, SESSION: self._session_id}, None)).close()
        except ToolwireError as error:
            log.debug("the session could not be ended: %s", error)


def retry_after(error: ToolwireError) -> float:
    """Return the seconds of `Retry-After`; 0 without one."""
    asked = error.retry_after if isinstance(error, TransportError) else None
    return min(asked or 0.0, LONGEST_ASKED)


def _was_unreached(error: ToolwireError) -> bool:
    """Return whether a message certainly did not reach the server."""
    return isinstance(error, Unreachable) and (error.status is None or error.status >= 500)


def may_repeat(error: ToolwireError, message: bytes) -> bool:
    """Return whether a message may be retried: a second answer or cancellation does nothing."""
    if not isinstance(error, TransportError) or isinstance(error, InvalidResponse):
        return False
    if error.status is not None and error.status < 500 and error.status != 429:
        return False
    sent = decode(message)
    is_cancellation = isinstance(sent, Notification) and sent.method == "notifications/cancelled"
    return is_cancellation or isinstance(sent, Response | ErrorResponse)
