"""The server's side of stdio: the descriptors of the protocol, the channel over them, and the signals to stop.

2026-07-28 basic/transports/stdio: standard output carries protocol messages and nothing else. So the protocol takes
both descriptors for itself, before user code can print, read, or pass them on.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple, TypeAlias

from toolwire import platforms
from toolwire.protocol.framing import LINE_LIMIT
from toolwire.wire.byte_channel import ByteChannel
from toolwire.wire.byte_streams import (
    CHUNK,
    ByteSink,
    ByteSource,
    ReadySink,
    ReadySource,
    ThreadSink,
    ThreadSource,
    blocking_sink,
    blocking_source,
)
from toolwire.wire.child_processes import end_by_signal

# With so many unsent bytes, a client that sends without reading is not read any more. The client's side has no such
# rule: if both had one, each could wait for the other.
STOP_READING_AT: Final = 8 * 1024 * 1024
# How long an answer waits for the client to read the notifications before it, the seconds between two looks, and how
# long the answer waits where the system does not tell what was read.
TAKEN_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.001
UNKNOWN_SECONDS: Final = 0.005

Stream: TypeAlias = int | IO[bytes] | None


class Claimed(NamedTuple):
    """The private descriptors of the protocol; None for one that was closed when the process started."""

    input: int | None
    output: int | None


_claimed: Claimed | None = None


def claim() -> Claimed:
    """Take standard input and output for the protocol alone; later calls return the same descriptors.

    Afterwards descriptor 0 is the null device and descriptor 1 is standard error, for this process, for C libraries
    and for every child. So only the channel can read requests or write to the client. Call it before there is an event
    loop: a loop that finds a standard descriptor closed may use its number.
    """
    global _claimed
    if _claimed is None:
        _claimed = _claim()
    return _claimed


def _claim() -> Claimed:
    # Closed descriptors are filled first, or the duplicates below would get their numbers.
    null = os.open(os.devnull, os.O_RDWR)
    present = [_occupied(fd, stream, null) for fd, stream in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__))]
    requests = os.dup(0) if present[0] else None
    responses = os.dup(1) if present[1] else None
    for descriptor in (requests, responses):
        if descriptor is not None:
            platforms.binary(descriptor)
    if present[0]:
        os.dup2(null, 0)
    if present[1]:
        os.dup2(2, 1)
    if null > 2:
        os.close(null)
    else:
        os.set_inheritable(null, True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Python made it for a pipe. From now on it is for people to read.
        sys.stdout.reconfigure(line_buffering=True)
    return Claimed(requests, responses)


def _occupied(fd: int, stream: object, null: int) -> bool:
    """Return whether a standard descriptor has its proper use; open the null device on one that is free."""
    try:
        os.fstat(fd)
    except OSError:
        os.dup2(null, fd)
        return False
    # If Python found the descriptor closed at the start, a file that is open there now has another purpose.
    return stream is not None and fd != null


class StdioChannel(ByteChannel):
    """The channel of a stdio server, or one over any two streams.

    Each may be a pipe, socket, file, terminal, the null device or closed (None), as a descriptor or as a binary file
    object. Without arguments the channel claims standard input and output. It never closes streams that it was given,
    and never changes them for others who share them.
    """

    def __init__(self, input: Stream = None, output: Stream = None, *, limit: int = LINE_LIMIT) -> None:
        super().__init__(limit=limit, stop_reading_at=STOP_READING_AT)
        if input is None and output is None:
            input, output = claim()
        self._input = input
        self._output = output

    def _open(self) -> tuple[ByteSource | None, ByteSink | None]:
        sink = _open_sink(self._output)
        # Without an output nobody can ever get an answer, so nothing is read either.
        return (None if sink is None else _open_source(self._input)), sink

    async def taken(self) -> None:
        """Wait a moment for the client to read what was sent.

        Some clients handle an answer as soon as they read it, and a notification a little later. When they get both in
        one read they drop the notification, because its call is over.
        """
        try:
            async with asyncio.timeout(TAKEN_SECONDS):
                await self.flush()
                while self._sink is not None and (unread := self._sink.unread()) != 0:
                    if unread is None:
                        await asyncio.sleep(UNKNOWN_SECONDS)
                        return
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            pass

    def _output_broke(self, error: OSError | None) -> None:
        self._stop_reading()
        self._inbox.end(error)


def _descriptor(stream: int | IO[bytes]) -> int | None:
    if isinstance(stream, int):
        return stream
    try:
        return stream.fileno()
    except OSError:  # io.UnsupportedOperation: a file object in memory
        return None


def _open_source(stream: Stream) -> ByteSource | None:
    if stream is None:
        return None
    fd = _descriptor(stream)
    if fd is None:
        assert not isinstance(stream, int)
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        return ThreadSource(lambda: read(CHUNK), _nothing)
    try:
        end = platforms.shared_end(fd, False)
        if end is not None:
            return ReadySource(end)
        duplicate = os.dup(fd)
    except OSError:
        return None
    return blocking_source(duplicate, lambda: os.close(duplicate))


def _open_sink(stream: Stream) -> ByteSink | None:
    if stream is None:
        return None
    fd = _descriptor(stream)
    if fd is None:
        assert not isinstance(stream, int)
        return ThreadSink(_writer(stream), _nothing)
    try:
        end = platforms.shared_end(fd, True)
        if end is not None:
            return ReadySink(end)
        duplicate = os.dup(fd)
    except OSError:
        return None
    return blocking_sink(duplicate, lambda: os.close(duplicate))


def _writer(stream: IO[bytes]) -> Callable[[memoryview], int | None]:
    def write(data: memoryview) -> int | None:
        written = stream.write(data)
        stream.flush()
        return written

    return write


def _nothing() -> None:
    """Leave a stream open that was given to the channel."""


def parent_watch(callback: Callable[[], None]) -> Callable[[], None]:
    """Call back once on the loop when the parent process dies; return a function that stops the watch.

    A client that is killed can leave the pipe open in a process that it started. Then the end of input never comes.
    Without a parent that could die there is no watch.
    """
    loop = asyncio.get_running_loop()
    pid = platforms.parent()
    if pid is None:
        return _nothing
    stop = platforms.watch_exit(loop, pid, callback)
    if platforms.parent() != pid:
        # It died meanwhile, so the watch may be on another process that got its number.
        stop()
        return loop.call_soon(callback).cancel
    return stop


@contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the loop at the first SIGINT or SIGTERM, end the process at the second; restore handlers after.

    This does nothing outside of the main thread, where Python allows no handlers, and nothing for a signal that the
    process was told to ignore.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    stopping = False

    def received(number: int, frame: Any) -> None:
        nonlocal stopping
        if stopping:
            end_by_signal(number)
        stopping = True
        # Not called here: a signal handler runs between any two instructions of the loop's thread.
        loop.call_soon_threadsafe(stop)

    before = {number: signal.getsignal(number) for number in _stop_signals()}
    installed = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in installed:
        signal.signal(number, received)
    try:
        yield
    finally:
        for number, handler in installed.items():
            signal.signal(number, handler)


def _stop_signals() -> list[signal.Signals]:
    names = ("SIGINT", "SIGTERM", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]
