"""Sources and sinks of bytes: with readiness events where the system has them, with daemon threads elsewhere."""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

from toolwire import platforms
from toolwire.wire.channel import Ended
from toolwire.wire.threads import hand_over, start_daemon

CHUNK: Final = 64 * 1024
# More than any pipe holds, so that reading ends also when somebody writes for ever.
PIPE_CHUNKS: Final = 32
# The errors of a stream whose other side is gone: the end of a terminal, a reset, a broken pipe.
GONE: Final = frozenset({errno.EIO, errno.ECONNRESET, errno.EPIPE, errno.ENXIO, errno.ESHUTDOWN})

Received: TypeAlias = Callable[[bytes], None]
Sent: TypeAlias = Callable[[OSError | None], None]


class End(Protocol):
    """A descriptor that never blocks, and that the loop can wait for."""

    def read(self) -> bytes: ...
    def write(self, data: bytes | memoryview, /) -> int: ...
    def watch_input(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object], /) -> None: ...
    def unwatch_input(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def watch_output(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object], /) -> None: ...
    def unwatch_output(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def unread(self) -> int | None: ...
    def close(self) -> None: ...


class ByteSource(ABC):
    """A source of bytes. It starts paused, reports an error or the end once, and reports nothing after `close()`."""

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


class ByteSink(ABC):
    """A sink of bytes. It takes one batch at a time."""

    def start(self, loop: asyncio.AbstractEventLoop, sent: Sent) -> None:
        self._loop = loop
        self._sent = sent

    @abstractmethod
    def send(self, data: bytes) -> bool:
        """Send a batch; return True when all of it left at once. Otherwise `sent` is called when it left or failed."""

    def unread(self) -> int | None:
        """Return how many sent bytes the other side has not read yet; None where the system does not tell."""
        return None

    @abstractmethod
    def close(self) -> None: ...


class ReadySource(ByteSource):
    """A source that reads when the loop reports that there is something to read."""

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
        """Take the bytes that have arrived, without waiting for more."""
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


class ReadySink(ByteSink):
    """A sink that writes at once, and the rest when the loop reports that there is room."""

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

    def unread(self) -> int | None:
        return None if self._end is None else self._end.unread()

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


class ThreadSource(ByteSource):
    """A source that reads in a daemon thread, one chunk at a time and only when allowed. The thread alone closes it."""

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


class ThreadSink(ByteSink):
    """A sink that writes in a daemon thread, which may be stuck for as long as nobody reads."""

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
    """Make a source that reads a descriptor in a thread, which releases it at the end."""

    def read() -> bytes:
        while True:
            try:
                return os.read(fd, CHUNK)
            except BlockingIOError:
                platforms.wait_ready(fd, False)

    return ThreadSource(read, release)


def blocking_sink(fd: int, release: Callable[[], None]) -> ThreadSink:
    """Make a sink that writes a descriptor in a thread, which releases it at the end."""

    def write(data: memoryview) -> int:
        while True:
            try:
                return os.write(fd, data)
            except BlockingIOError:
                platforms.wait_ready(fd, True)

    return ThreadSink(write, release)
