"""The interface of every transport of whole messages, and the transport within one process.

A `Channel` moves messages (one JSON text each, as bytes) and does not know what they mean. A transport of your own
implements `read`, `write` and `close`; everything else has a default (2026-07-28 basic/transports: custom transports
keep the JSON-RPC format and the message patterns).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from toolwire.protocol.errors import Unreachable
from toolwire.protocol.jsonrpc import RequestId
from toolwire.util.out_queue import OutBound
from toolwire.wire.shares import Caller

Feed: TypeAlias = Callable[[bytes], None]
Ended: TypeAlias = Callable[[BaseException | None], None]
M = TypeVar("M", bound="MemoryChannel")
N = TypeVar("N", bound="MemoryChannel")

UNREAD_CONGESTED = 256
UNREAD_MESSAGES = 10_000
UNREAD_BYTES = 64 * 1024 * 1024


class Sender(Struct, frozen=True):
    """The client of a request that another server of this process sends on."""

    principal: Any
    caller: Caller
    is_local: bool


class Channel(ABC):
    """One connection that carries whole messages in both directions.

    All methods are called on the event loop's thread. `ended`, or None from `read()`, means that the other side has
    disconnected, or that this side has closed. It is reported once, after every message that arrived before.
    """

    @abstractmethod
    async def read(self) -> bytes | None:
        """Return the next message, without its newline; None at the end of input.

        A message over the size limit is returned as an empty `toolwire.protocol.framing.Oversized`, so that the owner
        can refuse it and go on. Only one task reads at a time. Cancelling it loses no message.
        """

    @abstractmethod
    def write(self, message: bytes) -> None:
        """Queue one message and return at once; raise `Unreachable` when the channel is closed or broken."""

    @abstractmethod
    async def close(self) -> None:
        """Send what is queued, within a deadline, then release everything. May be called twice and from any task."""

    async def connect(self) -> None:
        """Open the transport. The owner calls this once, before anything else."""
        return

    @property
    def is_connected(self) -> bool:
        """Return whether `write` can still work."""
        return True

    @property
    def unread(self) -> int | None:
        """Return the number of written bytes that the other end has not read; None where the system does not tell."""
        return None

    @property
    def congested(self) -> bool:
        """Return whether the other end reads more slowly than this end writes."""
        return False

    @property
    def full(self) -> bool:
        """Return whether too many bytes wait: a call that sends more has to end."""
        return False

    def admits(self, optional: bool) -> bool:
        """Return whether a notification may be written now. An `optional` one needs an uncongested channel."""
        return not (self.full or (optional and self.congested))

    async def drain(self) -> None:
        """Wait until the channel is no longer congested, or has ended."""
        return

    async def flush(self) -> None:
        """Wait until everything queued is sent, or the channel has ended."""
        return

    async def taken(self) -> None:
        """Wait a moment for the other end to read what was sent, where it must read that before the next message."""
        return

    def attach(self, feed: Feed, ended: Ended) -> bool:
        """Ask for messages by call instead of by `read()`; return whether the channel can do that.

        From then on it calls `feed(message)` synchronously for each message, and `ended(error)` exactly once when the
        other side disconnects, but not when this side closes. Neither may raise.
        """
        return False

    def pause(self) -> None:
        """Ask an attached channel to hold messages back. A channel that cannot may go on delivering."""
        return

    def resume(self) -> None:
        """Deliver messages again after `pause()`."""
        return

    @property
    def principal(self) -> Any:
        """Return the sender of the message that is being delivered, where the transport authenticates; otherwise None.

        It has a meaning only inside `feed`, or after `read()` returned and before the next await.
        """
        return None

    @property
    def is_local(self) -> bool:
        """Return whether the other side is on this machine by the nature of the transport, and so needs no token."""
        return True

    @property
    def senders(self) -> Mapping[RequestId, Sender] | None:
        """Return the senders of the requests in flight, where this process sends them for others; otherwise None."""
        return None

    def negotiated(self, revision: str) -> None:
        """Take note of the revision of the protocol that was agreed."""
        return

    def route(self) -> Feed:
        """Return the function that sends the answer to the message that is being delivered.

        It is called with the answer, possibly much later and out of order. Most transports send all messages the same
        way.
        """
        return self.write


class Inbox:
    """The messages that arrived on a channel. They are passed on at once to an attached owner, or kept for `read()`."""

    __slots__ = ("_bytes", "_end_told", "_ended", "_held", "_messages", "_paused", "_waiter", "error", "feed", "over")

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        # The function that takes the next message at once; None while messages are kept.
        self.feed: Feed | None = None
        self._held: Feed | None = None
        self._ended: Ended | None = None
        self._end_told = False
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.over: bool = False
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size(self) -> int:
        """Return the number of bytes that wait."""
        return self._bytes

    def deliver(self, message: bytes) -> None:
        """Take a message that has arrived."""
        if self.feed is not None:
            self.feed(message)
            return
        if self.over:
            return
        self._messages.append(message)
        self._bytes += len(message)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Take note that nothing more will arrive. Only the first call counts."""
        if not self.over:
            self.over = True
            self.error = error
            self._wake()
            self._tell_end()

    def silence(self) -> None:
        """Close this side: drop kept messages, and do not report the end, which the owner itself asked for."""
        self._end_told = True
        self.feed = None
        self._messages.clear()
        self._bytes = 0
        self.end()

    async def read(self) -> bytes | None:
        """Return the next message, without an await where one is kept; None at the end."""
        while not self._messages:
            if self.over:
                return None
            if self._waiter is not None:
                raise RuntimeError("another task is already reading this channel")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._take()

    def attach(self, feed: Feed, ended: Ended) -> None:
        """Call `feed` and `ended` from now on. Kept messages come first."""
        self._held = feed
        self._ended = ended
        self._pass_on()

    def pause(self) -> None:
        self._paused = True
        self.feed = None

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._pass_on()

    def _pass_on(self) -> None:
        feed = self._held
        if feed is None:
            return
        while self._messages and not self._paused:
            feed(self._take())
        if not self._paused and not self.over:
            self.feed = feed
        self._tell_end()

    def _take(self) -> bytes:
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message

    def _tell_end(self) -> None:
        if self.over and not self._end_told and not self._messages and self._ended is not None:
            self._end_told = True
            self.feed = None
            self._ended(self.error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MemoryChannel(Channel):
    """One side of a pair in the same loop. Writing calls the other side's `feed`, without a queue in between."""

    # An attribute and no property, because it is read twice for each request.
    congested: bool = False

    def __init__(self) -> None:
        self._peer = self
        self._inbox = Inbox()
        self._closed = False
        # The bytes that the other side has left unread. They wait in its inbox.
        self._unread = OutBound()

    async def read(self) -> bytes | None:
        message = await self._inbox.read()
        self._peer._count_unread()
        return message

    def write(self, message: bytes) -> None:
        if self._closed or self._peer._closed:
            raise Unreachable("the channel is closed")
        inbox = self._peer._inbox
        if inbox.feed is not None:
            inbox.feed(message)
            return
        # Nobody reads on the other side: refuse rather than fill the memory of the process that both share.
        if len(inbox) >= UNREAD_MESSAGES or inbox.size > UNREAD_BYTES:
            raise Unreachable(f"the other side has left {len(inbox)} messages unread")
        inbox.deliver(message)
        self._count_unread()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.silence()
            self._unread.close()
            self._peer._inbox.end()
            self._peer._unread.close()

    @property
    def is_connected(self) -> bool:
        return not (self._closed or self._peer._closed)

    @property
    def full(self) -> bool:
        return self._unread.full

    def admits(self, optional: bool) -> bool:
        return not (optional and self.congested) and self._unread.admits(optional)

    async def drain(self) -> None:
        while self.congested and self.is_connected:
            await self._unread.progress()

    def attach(self, feed: Feed, ended: Ended) -> bool:
        self._inbox.attach(feed, ended)
        self._peer._count_unread()
        return True

    def pause(self) -> None:
        self._inbox.pause()

    def resume(self) -> None:
        self._inbox.resume()
        self._peer._count_unread()

    def _count_unread(self) -> None:
        """Compare what the other side has left unread with the bounds."""
        inbox, unread = self._peer._inbox, self._unread
        # An attached side takes messages by call, so none can pile up.
        unread.size = inbox.size if inbox.feed is None else 0
        self.congested = inbox.feed is None and (len(inbox) > UNREAD_CONGESTED or unread.congested)
        unread.wake()


class RelayedChannel(MemoryChannel):
    """The serving side of a pair whose other side sends requests for clients of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._senders: dict[RequestId, Sender] = {}

    @property
    def senders(self) -> dict[RequestId, Sender]:
        return self._senders


def memory_pair() -> tuple[MemoryChannel, MemoryChannel]:
    """Make two channels that are connected to each other."""
    return _connect(MemoryChannel(), MemoryChannel())


def relayed_pair() -> tuple[MemoryChannel, RelayedChannel]:
    """Make two channels that are connected to each other: one to send requests of others, and one to serve them."""
    return _connect(MemoryChannel(), RelayedChannel())


def _connect(left: M, right: N) -> tuple[M, N]:
    left._peer, right._peer = right, left
    return left, right
