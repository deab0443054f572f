"""Newline-framed channels over byte streams: by readiness where the system offers it, by daemon threads elsewhere."""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import LINE_LIMIT, LineDecoder
from toolwire.wire import system
from toolwire.wire.channel import Channel, Ended, Feed, Inbox
from toolwire.wire.handover import hand_over, start_daemon

CHUNK: Final = 64 * 1024
# How many bytes go into one write call; also the step in which a long queue gets shorter.
BATCH: Final = 256 * 1024
CONGESTED: Final = 1024 * 1024
# Messages kept for `read()` before the descriptor is left alone.
READ_AHEAD_MESSAGES: Final = 1_000
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
CLOSE_SECONDS: Final = 2.0
# More than any pipe holds; somebody who writes for ever is not followed for ever.
PIPE_CHUNKS: Final = 32
# How a stream says that the other side is gone: the end of a terminal, a reset, a broken pipe.
GONE: Final = frozenset({errno.EIO, errno.ECONNRESET, errno.EPIPE, errno.ENXIO, errno.ESHUTDOWN})

Received: TypeAlias = Callable[[bytes], None]
Sent: TypeAlias = Callable[[OSError | None], None]


class End(Protocol):
    """A descriptor that can be waited for on the loop and never blocks."""

    def read(self) -> bytes: ...
    def write(self, data: bytes | memoryview, /) -> int: ...
    def watch_input(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object], /) -> None: ...
    def unwatch_input(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def watch_output(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object], /) -> None: ...
    def unwatch_output(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def close(self) -> None: ...


class Source(ABC):
    """Where bytes come from. It starts paused; an error or the end is told once, and nothing after `close()`."""

    def start(self, loop: asyncio.AbstractEventLoop, received: Received, ended: Ended) -> None:
        self._loop = loop
        self._received = received
        self._ended = ended

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Sink(ABC):
    """Where bytes go, one batch at a time."""

    def start(self, loop: asyncio.AbstractEventLoop, sent: Sent) -> None:
        self._loop = loop
        self._sent = sent

    @abstractmethod
    def send(self, data: bytes) -> bool:
        """True when everything left at once; otherwise `sent` is called when it has, or could not."""

    @abstractmethod
    def close(self) -> None: ...


class ReadySource(Source):
    def __init__(self, end: End) -> None:
        self._end: End | None = end
        self._watching = False

    def resume(self) -> None:
        if self._end is not None and not self._watching:
            self._watching = True
            self._end.watch_input(self._loop, self._take)

    def pause(self) -> None:
        if self._end is not None and self._watching:
            self._watching = False
            self._end.unwatch_input(self._loop)

    def close(self) -> None:
        if self._end is not None:
            self.pause()
            self._end.close()
            self._end = None

    def take_arrived(self) -> None:
        """Take what is already there, without waiting for more."""
        for _ in range(PIPE_CHUNKS):
            if self._end is None or not self._take():
                return

    def _take(self) -> bool:
        assert self._end is not None
        try:
            chunk = self._end.read()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close()
            self._ended(None if error.errno in GONE else error)
            return False
        if chunk:
            self._received(chunk)
            return True
        self.close()
        self._ended(None)
        return False


class ReadySink(Sink):
    def __init__(self, end: End) -> None:
        self._end: End | None = end
        self._rest: memoryview | None = None

    def send(self, data: bytes) -> bool:
        assert self._end is not None
        try:
            written = self._end.write(data)
        except (BlockingIOError, InterruptedError):
            written = 0
        except OSError as error:
            self._loop.call_soon(self._sent, error)
            return False
        if written == len(data):
            return True
        self._rest = memoryview(data)[written:]
        self._end.watch_output(self._loop, self._ready)
        return False

    def close(self) -> None:
        if self._end is not None:
            self._stop_watching()
            self._end.close()
            self._end = None

    def _ready(self) -> None:
        assert self._end is not None and self._rest is not None
        failure: OSError | None = None
        try:
            self._rest = self._rest[self._end.write(self._rest) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            failure = error
        if failure is not None or not self._rest:
            self._stop_watching()
            self._sent(failure)

    def _stop_watching(self) -> None:
        if self._rest is not None and self._end is not None:
            self._rest = None
            self._end.unwatch_output(self._loop)


class ThreadSource(Source):
    """Reads in a daemon thread, one chunk at a time and only when allowed. The thread alone closes what it reads."""

    def __init__(self, read: Callable[[], bytes], release: Callable[[], None]) -> None:
        self._read = read
        self._release = release
        self._permits: SimpleQueue[bool] = SimpleQueue()
        self._paused = True
        self._permitted = False
        self._closed = False

    def start(self, loop: asyncio.AbstractEventLoop, received: Received, ended: Ended) -> None:
        super().start(loop, received, ended)
        start_daemon("reader", self._run)

    def resume(self) -> None:
        self._paused = False
        if not self._permitted and not self._closed:
            self._permitted = True
            self._permits.put(True)

    def pause(self) -> None:
        self._paused = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._permits.put(False)

    def _run(self) -> None:
        try:
            while self._permits.get():
                chunk, failure = b"", None
                try:
                    chunk = self._read()
                except (OSError, ValueError) as error:
                    failure = error
                if not hand_over(self._loop, self._arrived, chunk, failure) or not chunk:
                    return
        finally:
            self._release()

    def _arrived(self, chunk: bytes, failure: Exception | None) -> None:
        if self._closed:
            return
        if not chunk:
            self._closed = True
            gone = isinstance(failure, OSError) and failure.errno in GONE
            self._ended(None if gone else failure)
            return
        self._permitted = False
        self._received(chunk)
        if not self._paused:
            self.resume()


class ThreadSink(Sink):
    """Writes in a daemon thread, which may be stuck for as long as nobody reads."""

    def __init__(self, write: Callable[[memoryview], int | None], release: Callable[[], None]) -> None:
        self._write = write
        self._release = release
        self._batches: SimpleQueue[bytes] = SimpleQueue()
        self._closed = False

    def start(self, loop: asyncio.AbstractEventLoop, sent: Sent) -> None:
        super().start(loop, sent)
        start_daemon("writer", self._run)

    def send(self, data: bytes) -> bool:
        self._batches.put(data)
        return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._batches.put(b"")

    def _run(self) -> None:
        try:
            while batch := self._batches.get():
                failure: OSError | None = None
                rest = memoryview(batch)
                try:
                    while rest:
                        written = self._write(rest)
                        rest = rest[len(rest) if written is None else written :]
                except OSError as error:
                    failure = error
                except ValueError as error:  # a closed file object
                    failure = OSError(errno.EBADF, str(error))
                if not hand_over(self._loop, self._done, failure):
                    return
        finally:
            self._release()

    def _done(self, failure: OSError | None) -> None:
        if not self._closed:
            self._sent(failure)


def blocking_source(fd: int, release: Callable[[], None]) -> ThreadSource:
    """Reads a descriptor in a thread, which releases it at the end."""

    def read() -> bytes:
        while True:
            try:
                return os.read(fd, CHUNK)
            except BlockingIOError:
                system.wait_ready(fd, False)

    return ThreadSource(read, release)


def blocking_sink(fd: int, release: Callable[[], None]) -> ThreadSink:
    """Writes a descriptor in a thread, which releases it at the end."""

    def write(data: memoryview) -> int:
        while True:
            try:
                return os.write(fd, data)
            except BlockingIOError:
                system.wait_ready(fd, True)

    return ThreadSink(write, release)


class ByteChannel(Channel):
    """One message a line over a source and a sink, which it opens when it is first used."""

    def __init__(self, *, limit: int = LINE_LIMIT, stop_reading_at: int | None = None) -> None:
        self._inbox = Inbox()
        self._decoder = LineDecoder(limit)
        self._stop_reading_at = stop_reading_at
        self._source: Source | None = None
        self._sink: Sink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reading = False
        self._held = False
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._in_sink = 0
        self._flushing = False
        self._writable = True
        self._drained: list[asyncio.Future[None]] = []
        self._closer: asyncio.Task[None] | None = None

    # --- what a concrete channel provides

    @abstractmethod
    def _open(self) -> tuple[Source | None, Sink | None]:
        """Where bytes come from and go to; None for a side that is closed from the start."""

    def _input_ended(self, error: BaseException | None) -> None:
        """The other side will send nothing more."""
        self._inbox.end(error)

    def _output_broke(self, error: OSError | None) -> None:
        """Nobody reads what this side writes any more."""

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
        # 2026-07-28 basic/transports/stdio: no newline inside a message. In JSON it can only be white space.
        if b"\n" in message:
            message = message.replace(b"\n", b" ")
        self._queue.append(message)
        self._queued += len(message) + 1
        if not self._flushing:
            # Everything written in one turn of the loop leaves in one call.
            self._flushing = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    @property
    def is_connected(self) -> bool:
        return self._writable

    @property
    def congested(self) -> bool:
        return self._queued + self._in_sink > CONGESTED

    async def drain(self) -> None:
        while self.congested and self._writable:
            await self._progress()

    async def flush(self) -> None:
        while self._queued + self._in_sink and self._writable:
            await self._progress()

    async def close(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self._closer is None:
            self._closer = self._loop.create_task(self._shut())
        # The caller may be cancelled; the closing goes on.
        await asyncio.shield(self._closer)

    # --- closing

    async def _shut(self) -> None:
        self._inbox.silence()
        self._stop_reading()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._send_rest()
        except TimeoutError:
            pass
        finally:
            self._stop_writing()

    async def _send_rest(self) -> None:
        """Send what is queued while refusing anything new."""
        self._writable = False
        while self._sink is not None and self._queued + self._in_sink:
            await self._progress()

    def _stop_reading(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _stop_writing(self) -> None:
        self._writable = False
        self._queue.clear()
        self._queued = self._in_sink = 0
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        self._tell_progress()

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
        for message in self._decoder.feed(chunk):
            deliver(message)
        self._adjust()

    def _ended(self, error: BaseException | None) -> None:
        self._source = None
        for message in self._decoder.finish():
            self._inbox.deliver(message)
        self._input_ended(error)

    def _adjust(self) -> None:
        """Read on, or leave the bytes with the sender, who then feels that this side is busy."""
        if self._source is None:
            return
        inbox = self._inbox
        wanted = not self._held and len(inbox) < READ_AHEAD_MESSAGES and inbox.size < READ_AHEAD_BYTES
        if self._stop_reading_at is not None and self._queued + self._in_sink > self._stop_reading_at:
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
            self._queued -= len(data)
            self._in_sink = len(data)
            if self._sink.send(data):
                self._in_sink = 0
        if self._drained:
            self._tell_progress()
        if not self._reading:
            self._adjust()

    def _batch(self) -> bytes:
        if self._queued <= BATCH:
            self._queue.append(b"")
            data = b"\n".join(self._queue)
            self._queue.clear()
            return data
        size, messages = 0, []
        while self._queue and size < BATCH:
            message = self._queue.popleft()
            size += len(message) + 1
            messages.append(message)
        messages.append(b"")
        return b"\n".join(messages)

    def _left(self, error: OSError | None) -> None:
        self._in_sink = 0
        if error is not None:
            self._stop_writing()
            self._output_broke(None if error.errno in GONE else error)
        else:
            self._flush()

    async def _progress(self) -> None:
        progress = asyncio.get_running_loop().create_future()
        self._drained.append(progress)
        await progress

    def _tell_progress(self) -> None:
        waiting, self._drained = self._drained, []
        for progress in waiting:
            if not progress.done():
                progress.set_result(None)
