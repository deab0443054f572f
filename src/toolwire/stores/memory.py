"""The protocols `KV`, `Log` and `Bus`, and their in-process form.

`KV` holds values by key, `Log` holds streams of events that can be read again, `Bus` carries messages to everybody who
listens now. They are small, so that a file or a server can take the place of memory. The fourth store, `Queue`, has
modules of its own.

One store may serve several servers, each on an event loop and in a thread of its own. So the in-process forms are safe
in any thread: each method holds a lock for a few steps, and none of them waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from toolwire.protocol.errors import ServerError, ToolwireError
from toolwire.stores.numbers import add_to, check_amount, check_limit, check_ttl

_logger = logging.getLogger("toolwire.stores")


#: A place in a stream, as `append` and `read_after` return it. It is opaque.
Position: TypeAlias = int | str


class StoreFull(ToolwireError):
    """The store has reached a limit and nothing in it has expired: new state is refused, live state is kept."""


class StoreFailed(ServerError):
    """The store cannot be used: its file or its server is missing, refuses, or does not answer."""

    temporary: bool = False
    """Whether waiting may help: a server that is not reached now may be there later, a wrong password stays wrong."""


class PositionLost(ToolwireError):
    """The log cannot continue after this position: it dropped what followed, or never knew the position."""


class Evictions(NamedTuple):
    """Keys that a store evicts, as far as this process knows."""

    evicts: bool
    """Whether the store is set up to evict keys when its memory is full."""
    keys: int
    """Keys that were evicted while this process watched, also those of other programs."""


class KV(Protocol):
    """Values under keys, each with an optional time to live in seconds.

    A store that several machines share may have a text `name`, which it keeps when it loses its content. Stores with
    the same name count as one: what is missing in such a store has ended, and is not in some other store.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        if_absent: bool = False,
        expect: bytes | None = None,
    ) -> bool:
        """Store a value with a time to live (None: no limit), and say whether it was stored.

        `if_absent`: only when there is no value. `expect`: only when this is the value now. Raise `StoreFull`, and
        `ValueError` for a time to live that is not a number.
        """

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        """Add to a number in one atomic step, and return the sum.

        Without a value it begins at 0, with a time to live of `ttl` seconds. Raise `StoreFull`, and `ValueError` where
        the value is not a number in digits, or a number is not whole or beyond 2**53 - 1.
        """

    async def delete(self, key: str) -> bool:
        """Delete the value, and say whether there was one."""

    async def expire(self, key: str, ttl: float | None) -> bool:
        """Give the value a new time to live (None: no limit), and say whether there was one.

        Raise `ValueError` for a time to live that is not a number.
        """

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return at most `limit` keys that begin with `prefix` and come after `after`, in the order of their UTF-8
        bytes.
        """


class Log(Protocol):
    """Streams of events, of which the newest are kept."""

    async def append(self, stream: str, data: bytes) -> Position: ...

    async def read_after(self, stream: str, position: Position | None, limit: int) -> list[tuple[Position, bytes]]:
        """Return at most `limit` events after a position (None: from the oldest that is kept). Raise `PositionLost`."""

    async def delete(self, stream: str) -> bool:
        """Delete the stream, and say whether there was one. All its positions are lost."""


class Bus(Protocol):
    """Messages to all who listen now. Each subscriber gets a topic's messages in order, on its own event loop."""

    async def publish(self, topic: str, data: bytes) -> None: ...

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Call `callback` on the running loop for each message. Return a function that ends this at once, from any
        thread.

        Messages of this process are heard from now on; those of others at the latest when an operation of the stores
        that is begun afterwards has ended. `on_lost` is called when messages were dropped, before the messages that
        follow: a subscriber that mirrors a state should read all of it again. Raise `StoreFull`.
        """


# --- KV -------------------------------------------------------------------------------------------

#: How many expired values one call removes, so that no call has to remove all of them.
SWEEP_STEPS: Final = 16


class KeyIndex(Protocol):
    """Something that is known of keys, as long as they have a value."""

    def forget(self, key: str) -> None:
        """Forget a key whose value was removed, under the lock of the store."""


class MemoryKV:
    def __init__(
        self,
        *,
        max_items: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_items: int = max_items
        self.max_bytes: int = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._items: dict[str, tuple[bytes, float | None]] = {}
        self._bytes = 0
        # Every deadline that was set. One that its key no longer has is skipped when its turn comes.
        self._deadlines: list[tuple[float, str]] = []
        # The keys in order, kept from the first call of `keys()` on.
        self._sorted: list[str] | None = None
        #: `MemoryQueue`, which works under this lock and with the methods below it.
        self._index: KeyIndex | None = None

    async def get(self, key: str) -> bytes | None:
        with self._lock:
            self._sweep(SWEEP_STEPS)
            return self._live(key)

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        if_absent: bool = False,
        expect: bytes | None = None,
    ) -> bool:
        check_ttl(ttl)
        with self._lock:
            self._sweep(SWEEP_STEPS)
            present = self._live(key)
            if (if_absent and present is not None) or (expect is not None and present != expect):
                return False
            self._store(key, bytes(value), present)
            self._set_deadline(key, ttl)
            return True

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        check_amount(amount)
        check_ttl(ttl)
        with self._lock:
            self._sweep(SWEEP_STEPS)
            present = self._live(key)
            deadline = self._items[key][1] if present is not None else None
            total = add_to(present, amount)
            self._store(key, b"%d" % total, present)
            if present is None:
                self._set_deadline(key, ttl)
            else:
                self._items[key] = (self._items[key][0], deadline)
            return total

    async def delete(self, key: str) -> bool:
        with self._lock:
            return self._live(key) is not None and self._remove(key)

    async def expire(self, key: str, ttl: float | None) -> bool:
        check_ttl(ttl)
        with self._lock:
            self._sweep(SWEEP_STEPS)
            if self._live(key) is None:
                return False
            self._set_deadline(key, ttl)
            return True

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        limit = check_limit(limit)
        with self._lock:
            return self._keys(prefix, after, limit)

    def _keys(self, prefix: str, after: str, limit: int) -> list[str]:
        self._sweep(len(self._deadlines))
        if self._sorted is None:
            self._sorted = sorted(self._items)
        found: list[str] = []
        start = bisect_right(self._sorted, after) if after and after >= prefix else bisect_left(self._sorted, prefix)
        for key in islice(self._sorted, start, start + limit):
            if not key.startswith(prefix):
                break
            found.append(key)
        return found

    def _store(self, key: str, value: bytes, present: bytes | None) -> None:
        """Store a value in place of one that lives, or of none. It has no deadline yet."""
        self._make_room(key, value, present)
        if present is not None:
            self._bytes -= len(key) + len(present)
        elif self._sorted is not None:
            insort(self._sorted, key)
        self._items[key] = (value, None)
        self._bytes += len(key) + len(value)

    def _live(self, key: str) -> bytes | None:
        item = self._items.get(key)
        if item is None:
            return None
        value, deadline = item
        if deadline is not None and deadline <= self._clock():
            self._remove(key)
            return None
        return value

    def _remove(self, key: str) -> bool:
        item = self._items.pop(key, None)
        if item is None:
            return False
        self._bytes -= len(key) + len(item[0])
        if self._index is not None:
            self._index.forget(key)
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, key)]
        return True

    def _set_deadline(self, key: str, ttl: float | None) -> None:
        deadline = None if ttl is None else self._clock() + ttl
        self._items[key] = (self._items[key][0], deadline)
        if deadline is not None:
            heapq.heappush(self._deadlines, (deadline, key))
        # Each renewal of a value leaves an old deadline behind. Keep no more of those than values.
        if len(self._deadlines) > 2 * len(self._items) + 64:
            self._deadlines = [(d, k) for k, (_, d) in self._items.items() if d is not None]
            heapq.heapify(self._deadlines)

    def _make_room(self, key: str, value: bytes, present: bytes | None) -> None:
        items = 0 if present is not None else 1
        size = len(value) - len(present) if present is not None else len(key) + len(value)
        if self._fits(items, size):
            return
        self._sweep(len(self._deadlines))
        if not self._fits(items, size):
            raise StoreFull("The key-value store is full.")

    def _fits(self, items: int, size: int) -> bool:
        # A change that needs no more room is never refused.
        return (items <= 0 or len(self._items) + items <= self.max_items) and (
            size <= 0 or self._bytes + size <= self.max_bytes
        )

    def _sweep(self, steps: int) -> None:
        if not self._deadlines:
            return
        now = self._clock()
        while steps > 0 and self._deadlines and self._deadlines[0][0] <= now:
            deadline, key = heapq.heappop(self._deadlines)
            item = self._items.get(key)
            if item is not None and item[1] == deadline:
                self._remove(key)
            steps -= 1


# --- Log ------------------------------------------------------------------------------------------


class _LogStream(Struct):
    #: The position before the oldest event that is kept.
    floor: int
    events: deque[tuple[int, bytes]] = field(default_factory=deque)
    size: int = 0


class MemoryLog:
    """Streams in memory.

    Positions count up over all streams and start at the time of day in microseconds. So the log recognises a position
    from before a restart, or from a stream that was dropped and began anew, as lost.
    """

    def __init__(
        self,
        *,
        max_events: int = 256,
        max_bytes: int = 1024 * 1024,
        max_streams: int = 10_000,
        max_total_bytes: int = 256 * 1024 * 1024,
        first_position: int | None = None,
    ) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_streams = max_streams
        self._max_total_bytes = max_total_bytes
        self._last = time.time_ns() // 1000 if first_position is None else first_position - 1
        self._lock = threading.Lock()
        # Ordered by the last append.
        self._streams: dict[str, _LogStream] = {}
        self._total = 0

    async def append(self, stream: str, data: bytes) -> int:
        with self._lock:
            kept = self._streams.pop(stream, None) or _LogStream(self._last)
            self._streams[stream] = kept
            self._last += 1
            kept.events.append((self._last, bytes(data)))
            kept.size += len(data)
            self._total += len(data)
            while len(kept.events) > self._max_events or kept.size > self._max_bytes:
                self._drop_oldest(kept)
            while len(self._streams) > self._max_streams or self._total > self._max_total_bytes:
                self._forget(next(iter(self._streams)))
            return self._last

    async def read_after(self, stream: str, position: Position | None, limit: int) -> list[tuple[Position, bytes]]:
        limit = check_limit(limit)
        with self._lock:
            kept = self._streams.get(stream)
            if position is not None:
                last = kept.events[-1][0] if kept and kept.events else kept.floor if kept else None
                if kept is None or last is None or not isinstance(position, int) or not kept.floor <= position <= last:
                    raise PositionLost("The events after this position are no longer kept.")
            found: list[tuple[Position, bytes]] = []
            for event in kept.events if kept else ():
                if len(found) == limit:
                    break
                if position is None or event[0] > position:
                    found.append(event)
            return found

    async def delete(self, stream: str) -> bool:
        with self._lock:
            return self._forget(stream)

    def _drop_oldest(self, kept: _LogStream) -> None:
        kept.floor, data = kept.events.popleft()
        kept.size -= len(data)
        self._total -= len(data)

    def _forget(self, stream: str) -> bool:
        kept = self._streams.pop(stream, None)
        if kept is None:
            return False
        self._total -= kept.size
        return True


# --- Bus ------------------------------------------------------------------------------------------


class MemoryBus:
    def __init__(self, *, max_subscribers: int = 100_000, max_pending: int = 1024) -> None:
        self._max_subscribers = max_subscribers
        self._max_pending = max_pending
        self._lock = threading.Lock()
        self._topics: dict[str, dict[_Subscriber, None]] = {}
        self._count = 0

    async def publish(self, topic: str, data: bytes) -> None:
        self._hand_out(topic, bytes(data), asyncio.get_running_loop())

    def _hand_out(self, topic: str, data: bytes, running: asyncio.AbstractEventLoop | None) -> None:
        """Give a message to the subscribers; `running` is the loop of the calling thread, if it has one."""
        with self._lock:
            subscribers = list(self._topics.get(topic, ()))
            waking = [subscriber for subscriber in subscribers if subscriber.offer(data, self._max_pending)]
        for subscriber in waking:
            if not subscriber.wake(running, self._lock):
                self._remove(topic, subscriber)

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        subscriber = _Subscriber(asyncio.get_running_loop(), callback, on_lost)
        with self._lock:
            if self._count >= self._max_subscribers:
                raise StoreFull("The bus has too many subscribers.")
            self._topics.setdefault(topic, {})[subscriber] = None
            self._count += 1
        return lambda: self._remove(topic, subscriber)

    def _tell_lost(self, only: str | None = None) -> None:
        """Tell the subscribers of one topic or of all, from a thread without a loop, that messages were dropped before
        they arrived here.
        """
        with self._lock:
            everyone = [
                (topic, subscriber)
                for topic in (tuple(self._topics) if only is None else (only,))
                for subscriber in self._topics.get(topic, ())
            ]
            waking = [(topic, subscriber) for topic, subscriber in everyone if subscriber.miss()]
        for topic, subscriber in waking:
            if not subscriber.wake(None, self._lock):
                self._remove(topic, subscriber)

    def _remove(self, topic: str, subscriber: _Subscriber) -> None:
        with self._lock:
            subscriber.active = False
            subscribers = self._topics.get(topic, {})
            if subscriber in subscribers:
                del subscribers[subscriber]
                self._count -= 1
                if not subscribers:
                    del self._topics[topic]


class _Subscriber:
    __slots__ = ("_callback", "_context", "_loop", "_lost", "_missed", "_on_lost", "_pending", "_woken", "active")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: Callable[[bytes], None],
        on_lost: Callable[[], None] | None,
    ) -> None:
        self.active = True
        self._loop = loop
        self._callback = callback
        self._on_lost = on_lost
        self._pending: deque[bytes] = deque()
        # Whether messages were dropped because too many waited here, and whether some never arrived.
        self._lost = self._missed = False
        self._woken = False
        # Otherwise a callback would run in the context of the publisher, with that request's principal.
        self._context = contextvars.copy_context()

    def offer(self, data: bytes, max_pending: int) -> bool:
        """Queue a message, under the lock of the bus, and say whether the loop has to be woken for it."""
        if len(self._pending) >= max_pending:
            self._pending.popleft()
            self._lost = True
        self._pending.append(data)
        waking, self._woken = not self._woken, True
        return waking

    def miss(self) -> bool:
        """Note, under the lock of the bus, that messages were lost. Return as `offer` does."""
        self._missed = True
        waking, self._woken = not self._woken, True
        return waking

    def wake(self, running: asyncio.AbstractEventLoop | None, lock: threading.Lock) -> bool:
        """Schedule the delivery. Return False when the subscriber's loop has ended."""
        # Only the loop of another thread needs the system call that wakes it.
        schedule = self._loop.call_soon if self._loop is running else self._loop.call_soon_threadsafe
        try:
            schedule(self._deliver, lock, context=self._context)
        except RuntimeError:
            return False
        return True

    def _deliver(self, lock: threading.Lock) -> None:
        with lock:
            messages, self._pending = self._pending, deque()
            is_behind, has_missed = self._lost, self._missed
            self._lost = self._missed = self._woken = False
        if is_behind and self.active:
            _logger.warning("messages of the bus were dropped: a subscriber was behind, and looks at everything again")
        if (is_behind or has_missed) and self.active and self._on_lost is not None:
            self._guard(self._on_lost)
        for message in messages:
            if not self.active:
                return
            self._guard(self._callback, message)

    def _guard(self, function: Callable[..., None], *arguments: bytes) -> None:
        try:
            function(*arguments)
        except Exception:
            _logger.exception("A subscriber of the bus failed")
