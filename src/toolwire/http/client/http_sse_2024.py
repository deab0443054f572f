"""The client's side of HTTP+SSE, the transport of 2024-11-05: one stream to read from, one URL to post to."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin

from toolwire.http.client.channel import (
    ACCEPT_STREAM,
    EVENT_STREAM,
    LONGEST_PAUSE,
    POST_SECONDS,
    REPEAT_SECONDS,
    may_repeat,
    retry_after,
)
from toolwire.http.client.endpoint import Endpoint
from toolwire.http.client.event_reader import EventReader
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import origin
from toolwire.protocol.errors import ToolwireError, TransportError, Unreachable
from toolwire.protocol.framing import Oversized, OversizedEvent
from toolwire.util.backoff import Backoff
from toolwire.util.out_queue import OutBound
from toolwire.wire.channel import UNREAD_CONGESTED, UNREAD_MESSAGES, Channel, Ended, Feed, Inbox
from toolwire.wire.deadlines import TimeoutClock

log: logging.Logger = logging.getLogger("toolwire.http")

# The time in which a server has to name the URL to post to.
ENDPOINT_SECONDS: Final = 10.0
_POST: Final = {"content-type": "application/json"}


class SseClientChannel(Channel):
    """The channel of a client over HTTP+SSE.

    `connect()` opens the stream. The first event names the URL to post to. The channel ends when the stream ends.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._stream = endpoint
        self._messages: Endpoint | None = None
        self._inbox = Inbox()
        self._posts: set[asyncio.Task[None]] = set()
        # The bytes of the messages that are being posted.
        self._unsent = OutBound()
        self._agreed = False
        self._initialized: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    async def connect(self, seconds: float | None = None) -> None:
        """Open the stream, and wait up to `seconds` for the URL to post to; None for `ENDPOINT_SECONDS`."""
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.get_running_loop().create_task(
            self._read(named, ENDPOINT_SECONDS if seconds is None else min(seconds, ENDPOINT_SECONDS))
        )
        try:
            either: set[asyncio.Future[Any]] = {named, self._reading}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not named.done():
                await self._reading  # This raises an unexpected exception of the reader.
                raise self._inbox.error or Unreachable(f"{origin(self._stream.url)} ended its stream at once")
            url = self._posting_to(named.result())
        except BaseException:
            await self.close()
            raise
        self._messages = self._stream.at(url)

    def _posting_to(self, named: str) -> str:
        try:
            url = urljoin(self._stream.url, named)
            is_own = origin(url) == origin(self._stream.url)
        except ValueError:
            raise Unreachable("The server named an endpoint to post to that is no URL") from None
        if not is_own:
            # 3.2.5: posts carry credentials, so they must not go to another origin.
            raise Unreachable("The server named an endpoint of another origin to post to")
        return url

    async def _read(self, named: asyncio.Future[str], seconds: float) -> None:
        error: ToolwireError | None = None
        try:
            async with asyncio.timeout(seconds) as deadline:
                async with await self._stream.send("GET", ACCEPT_STREAM, None, TimeoutClock(deadline)) as response:
                    if response.status != 200 or response.media_type != EVENT_STREAM:
                        raise await self._stream.failure(response)
                    await self._hear(response, named, deadline)
        except ToolwireError as caught:
            error = caught
        except TimeoutError:
            error = Unreachable(f"{origin(self._stream.url)} did not name an endpoint to post to")
        self._inbox.end(error)

    async def _hear(self, response: HttpResponse, named: asyncio.Future[str], deadline: asyncio.Timeout) -> None:
        decoder = EventReader(self._stream.limit)
        async for chunk in response.chunks():
            for event in decoder.feed(chunk):
                if isinstance(event, OversizedEvent):
                    self._inbox.deliver(Oversized())
                elif event.event == "endpoint":
                    if not named.done():
                        deadline.reschedule(None)
                        named.set_result(event.data)
                elif event.event == "message" and event.data:
                    data = event.data.encode()
                    if self._stream.tap is not None:
                        self._stream.tap("←", data)
                    self._inbox.deliver(data)

    def negotiated(self, revision: str) -> None:
        self._agreed = True

    def write(self, message: bytes) -> None:
        if self._closed or self._inbox.over or self._messages is None:
            raise Unreachable("The connection is closed")
        if len(self._posts) >= UNREAD_MESSAGES:
            raise Unreachable("The server has left too many messages unread")
        # Each message has its own task. A server may answer a POST only after it has handled the message, and may ask
        # a question before that.
        post = asyncio.get_running_loop().create_task(self._post(self._messages, message, self._initialized))
        self._posts.add(post)
        self._unsent.add(len(message))
        post.add_done_callback(partial(self._posted, len(message)))
        if self._agreed and self._initialized is None:
            self._initialized = post

    def _posted(self, size: int, post: asyncio.Task[None]) -> None:
        self._posts.discard(post)
        self._unsent.remove(size)

    async def _post(self, messages: Endpoint, message: bytes, after: asyncio.Task[None] | None) -> None:
        """Post a message.

        `after` is the post of `notifications/initialized`, which ends the handshake. It has to arrive first.
        """
        if after is not None and not after.done():
            await asyncio.wait({after}, timeout=POST_SECONDS)
        loop, backoff = asyncio.get_running_loop(), Backoff(longest=LONGEST_PAUSE)
        until = loop.time() + REPEAT_SECONDS
        while True:
            try:
                await messages.deliver(_POST, message)
                return
            except ToolwireError as error:
                if loop.time() >= until or not may_repeat(error, message):
                    # Answers come on the stream. A message that did not arrive gets no answer, so the channel ends.
                    self._inbox.end(error)
                    return
                pause = max(backoff.after(None), retry_after(error))
            await asyncio.sleep(pause)

    async def read(self) -> bytes | None:
        return await self._inbox.read()

    def attach(self, feed: Feed, ended: Ended) -> bool:
        self._inbox.attach(feed, ended)
        return True

    @property
    def is_connected(self) -> bool:
        return not (self._closed or self._inbox.over)

    @property
    def congested(self) -> bool:
        return len(self._posts) > UNREAD_CONGESTED or self._unsent.congested

    @property
    def full(self) -> bool:
        return self._unsent.full

    def admits(self, optional: bool) -> bool:
        return not (optional and self.congested) and self._unsent.admits(optional)

    async def drain(self) -> None:
        while self.congested:
            await self._unsent.progress()

    async def close(self) -> None:
        self._closed = True
        self._inbox.silence()
        tasks = self._posts if self._reading is None else {self._reading, *self._posts}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def error(self) -> TransportError | None:
        """Return the error that ended the stream; None if it ended without one."""
        error = self._inbox.error
        return error if isinstance(error, TransportError) else None
