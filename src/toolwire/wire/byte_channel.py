"""A channel of lines over byte streams. It reads no faster than its owner takes messages, and writes in batches."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import LINE_LIMIT, LineDecoder
from toolwire.util.out_queue import OutQueue
from toolwire.wire.byte_streams import GONE, ByteSink, ByteSource
from toolwire.wire.channel import Channel, Ended, Feed, Inbox
from toolwire.wire.deadlines import in_time

# How many bytes go into one write call.
BATCH: Final = 256 * 1024
# Messages and bytes that are kept for `read()` before reading pauses.
READ_AHEAD_MESSAGES: Final = 1_000
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
# This and the time that calls get to finish are together shorter than the time after which a client kills a server.
CLOSE_SECONDS: Final = 1.0


class ByteChannel(Channel):
    """A channel with one message in each line. It opens its source and its sink when it is first used."""

    def __init__(self, *, limit: int = LINE_LIMIT, stop_reading_at: int | None = None) -> None:
        self._inbox = Inbox()
        self._decoder = LineDecoder(limit)
        self._stop_reading_at = stop_reading_at
        self._source: ByteSource | None = None
        self._sink: ByteSink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading = False
        self._held = False
        # Its size counts newlines, and what the sink has and has not written.
        self._queue = OutQueue()
        self._in_sink = 0
        self._flushing = False
        self._alone = False
        self._writable = True
        self._closer: asyncio.Task[None] | None = None

    # --- what a concrete channel provides

    @abstractmethod
    def _open(self) -> tuple[ByteSource | None, ByteSink | None]:
        """Open the source and the sink; None for a side that is closed from the start."""

    def _input_ended(self, error: BaseException | None) -> None:
        """Take note that the other side will send nothing more."""
        self._inbox.end(error)

    def _output_broke(self, error: OSError | None) -> None:
        """Take note that nobody reads what this side writes any more."""

    # --- the channel

    async def connect(self) -> None:
        self._start()

    async def read(self) -> bytes | None:
        self._start()
        message = await self._inbox.read()
        if not self._reading:
            self._adjust()
        return message

    def attach(self, feed: Feed, ended: Ended) -> bool:
        self._start()
        self._inbox.attach(feed, ended)
        self._adjust()
        return True

    def pause(self) -> None:
        self._held = True
        self._inbox.pause()
        self._adjust()

    def resume(self) -> None:
        self._held = False
        self._inbox.resume()
        self._adjust()

    def write(self, message: bytes) -> None:
        if self._loop is None:
            self._start()
        if not self._writable:
            raise Unreachable("the connection is closed")
        # 2026-07-28 basic/transports/stdio: no newline inside a message. In JSON a newline can only be white space.
        if b"\n" in message:
            message = message.replace(b"\n", b" ")
        self._queue.messages.append(message)
        self._queue.size += len(message) + 1
        if self._flushing:
            return
        if self._alone:
            # This answers a single message, so no other answer is about to be written: send it at once.
            self._alone = False
            self._flush()
        else:
            # Everything that is written in one turn of the loop is sent in one call.
            self._flushing = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    @property
    def is_connected(self) -> bool:
        return self._writable

    @property
    def unread(self) -> int | None:
        if self._sink is None or (unread := self._sink.unread()) is None:
            return None
        return self._queue.size + unread

    @property
    def congested(self) -> bool:
        return self._queue.size > self._queue.high

    @property
    def full(self) -> bool:
        return self._queue.full

    def admits(self, optional: bool) -> bool:
        return self._queue.admits(optional)

    async def drain(self) -> None:
        while self.congested and self._writable:
            await self._queue.progress()

    async def flush(self) -> None:
        while self._queue.size and self._writable:
            await self._queue.progress()

    async def close(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._closer is None:
            self._closer = self._loop.create_task(self._shut())
        # Closing goes on when the caller is cancelled.
        await asyncio.shield(self._closer)

    # --- closing

    async def _shut(self) -> None:
        self._inbox.silence()
        self._stop_reading()
        try:
            await in_time(CLOSE_SECONDS, self._send_rest())
        finally:
            self._stop_writing()

    async def _send_rest(self) -> None:
        """Send what is queued, and refuse new messages."""
        self._writable = False
        while self._sink is not None and self._queue.size:
            await self._queue.progress()

    def _stop_reading(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _stop_writing(self) -> None:
        self._writable = False
        self._in_sink = 0
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._queue.clear()

    # --- reading

    def _start(self) -> None:
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._source, self._sink = self._open()
        if self._sink is not None:
            self._sink.start(self._loop, self._left)
        else:
            self._writable = False
        if self._source is not None:
            self._source.start(self._loop, self._received, self._ended)
            self._adjust()
        else:
            self._inbox.end()

    def _received(self, chunk: bytes) -> None:
        deliver = self._inbox.deliver
        messages = self._decoder.feed(chunk)
        self._alone = len(messages) == 1
        for message in messages:
            deliver(message)
        self._adjust()

    def _ended(self, error: BaseException | None) -> None:
        self._source = None
        for message in self._decoder.finish():
            self._inbox.deliver(message)
        self._input_ended(error)

    def _adjust(self) -> None:
        """Read on, or leave the bytes in the pipe, so that the sender notices that this side is busy."""
        if self._source is None:
            return
        inbox = self._inbox
        wanted = not self._held and len(inbox) < READ_AHEAD_MESSAGES and inbox.size < READ_AHEAD_BYTES
        if self._stop_reading_at is not None and self._queue.size > self._stop_reading_at:
            wanted = False
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._source.resume()
            else:
                self._source.pause()

    # --- writing

    def _flush(self) -> None:
        self._flushing = False
        while self._queue and not self._in_sink and self._sink is not None:
            data = self._batch()
            self._in_sink = len(data)
            if self._sink.send(data):
                self._sent()
        if not self._reading:
            self._adjust()

    def _batch(self) -> bytes:
        queued = self._queue.messages
        if self._queue.size <= BATCH:
            queued.append(b"")
            data = b"\n".join(queued)
            queued.clear()
            return data
        size, messages = 0, []
        while queued and size < BATCH:
            message = queued.popleft()
            size += len(message) + 1
            messages.append(message)
        messages.append(b"")
        return b"\n".join(messages)

    def _left(self, error: OSError | None) -> None:
        if error is not None:
            self._stop_writing()
            self._output_broke(None if error.errno in GONE else error)
        else:
            self._sent()
            self._flush()

    def _sent(self) -> None:
        self._queue.remove(self._in_sink)
        self._in_sink = 0
