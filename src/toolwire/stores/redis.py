"""The four stores on Redis: for several machines behind a load balancer.

    server = Server("notes", stores=RedisStores("redis://redis.internal:6379/0"))

The limits hold for all processes with the same prefix together. Needs Redis 6.2 or later, one server or a primary with
replicas, and `pip install 'toolwire[redis]'`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolwire.protocol.errors import ServerError
from toolwire.stores import redis_scripts as scripts
from toolwire.stores.memory import MemoryBus, Position, PositionLost, StoreFailed, StoreFull
from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.redis_address import DEFAULT_PREFIX, read_address
from toolwire.stores.redis_link import LISTEN_SECONDS, Ask, RedisLink
from toolwire.stores.redis_queue import RedisQueue
from toolwire.stores.stores import Stores

__all__ = ["RedisBus", "RedisKV", "RedisLog", "RedisQueue", "RedisStores", "StoreFailed"]

_logger = logging.getLogger("toolwire.stores")

_TIMEOUT: Final = 5.0
#: Scripts in Redis hold integers exactly up to here.
_LARGEST: Final = 2**53


class RedisStores(Stores):
    """`KV`, `Log`, `Bus` and `Queue` on the Redis at `url`: `redis://`, `rediss://` for TLS, or `unix://` for a socket.

    `prefix` (by default "toolwire") separates programs that share a Redis. Each operation ends within about twice
    `timeout` seconds (5). Both can be part of the address: `redis://host/0?prefix=notes&timeout=2`.

    Nothing is opened before the first use, so the stores can be made before a process forks and used afterwards.
    """

    _link: RedisLink

    def __init__(
        self,
        url: str,
        *,
        prefix: str | None = None,
        timeout: float | None = None,
        max_items: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_events: int = 256,
        max_stream_bytes: int = 1024 * 1024,
        max_streams: int = 10_000,
        max_log_bytes: int = 256 * 1024 * 1024,
        max_subscribers: int = 100_000,
        max_pending: int = 1024,
        clock: Callable[[], float] | None = None,
        first_position: int | None = None,
    ) -> None:
        address = read_address(url)
        name = prefix or address.prefix or DEFAULT_PREFIX
        if "{" in name or "}" in name:
            raise ServerError("The prefix of a store has no braces")
        seconds = timeout or address.timeout or _TIMEOUT
        if not 0 < seconds < 3600:
            raise ServerError("timeout= of a store is more than 0 seconds and less than an hour")
        link = RedisLink(address, name, seconds, first=lambda: bus.first_look(), listen=lambda ask: bus.listen(ask))
        bus = RedisBus(link, max_subscribers=max_subscribers, max_pending=max_pending)
        super().__init__(
            RedisKV(link, max_items=max_items, max_bytes=max_bytes, clock=clock),
            RedisLog(
                link,
                max_events=max_events,
                max_bytes=max_stream_bytes,
                max_streams=max_streams,
                max_total_bytes=max_log_bytes,
                first_position=first_position,
            ),
            bus,
            RedisQueue(link, max_items=max_items, max_bytes=max_bytes, clock=clock),
        )
        # The dataclass is frozen.
        object.__setattr__(self, "_link", link)

    async def open(self) -> None:
        """Connect now instead of at the first use. Raise `StoreFailed` when Redis cannot be used."""
        await self.check()

    def close(self) -> None:
        """Finish what is under way and close the connections. The stores cannot be used afterwards."""
        self._link.close()


# --- KV -------------------------------------------------------------------------------------------


class RedisKV:
    def __init__(
        self, link: RedisLink, *, max_items: int, max_bytes: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._link = link
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._clock = clock

    async def get(self, key: str) -> bytes | None:
        value: bytes | None = await self._link.ask(scripts.GET, self._now(), encode_name(key))
        return value

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        if_absent: bool = False,
        expect: bytes | None = None,
    ) -> bool:
        stored: int = await self._link.ask(
            scripts.PUT,
            self._now(),
            encode_name(key),
            bytes(value),
            _milliseconds(ttl),
            int(if_absent),
            int(expect is not None),
            expect or b"",
            self._max_items,
            self._max_bytes,
        )
        if stored < 0:
            raise StoreFull("The key-value store is full.")
        return stored == 1

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        total: int | bytes = await self._link.ask(
            scripts.ADD,
            self._now(),
            encode_name(key),
            amount,
            _milliseconds(ttl),
            self._max_items,
            self._max_bytes,
        )
        if total == b"full":
            raise StoreFull("The key-value store is full.")
        if isinstance(total, bytes):
            raise ValueError("the value is no number")
        return total

    async def delete(self, key: str) -> bool:
        found: int = await self._link.ask(scripts.DELETE, self._now(), encode_name(key))
        return found == 1

    async def expire(self, key: str, ttl: float | None) -> bool:
        found: int = await self._link.ask(scripts.EXPIRE, self._now(), encode_name(key), _milliseconds(ttl))
        return found == 1

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        first, last = encode_name(prefix), encode_name(after)
        # Start at the later of the two.
        is_after = int(last >= first and after != "")
        found: list[str] = await self._link.ask(
            scripts.LIST, self._now(), first, last, max(limit, 0), is_after, then=_decode_names
        )
        return found

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock() * 1000)


def _decode_names(names: list[bytes]) -> list[str]:
    return [decode_name(name) for name in names]


def _milliseconds(ttl: float | None) -> str:
    return "" if ttl is None else repr(ttl * 1000.0)


# --- Log ------------------------------------------------------------------------------------------


class RedisLog:
    def __init__(
        self,
        link: RedisLink,
        *,
        max_events: int,
        max_bytes: int,
        max_streams: int,
        max_total_bytes: int,
        first_position: int | None = None,
    ) -> None:
        self._link = link
        self._limits = (max_events, max_bytes, max_streams, max_total_bytes)
        self._first = "" if first_position is None else str(first_position - 1)

    async def append(self, stream: str, data: bytes) -> int:
        return int(await self._link.ask(scripts.APPEND, encode_name(stream), bytes(data), self._first, *self._limits))

    async def read_after(self, stream: str, position: Position | None, limit: int) -> list[tuple[Position, bytes]]:
        after = "" if position is None else str(position)
        found: list[bytes] | None = None
        if position is None or (isinstance(position, int) and 0 <= position < _LARGEST):
            found = await self._link.ask(scripts.READ_AFTER, encode_name(stream), after, limit)
        if found is None:
            raise PositionLost("The events after this position are no longer kept.")
        return [(int(found[index]), found[index + 1]) for index in range(0, len(found), 2)]

    async def delete(self, stream: str) -> bool:
        found: int = await self._link.ask(scripts.FORGET, encode_name(stream))
        return found == 1


# --- Bus ------------------------------------------------------------------------------------------


class RedisBus(MemoryBus):
    """A bus on Redis.

    Each message is stored first. Each process reads the stored messages in their order, and gives them to its own
    subscribers as the bus in memory does. Numbers have no gaps, so a process that lost its connection finds what it
    missed, or learns that it missed more.
    """

    def __init__(self, link: RedisLink, *, max_subscribers: int, max_pending: int) -> None:
        super().__init__(max_subscribers=max_subscribers, max_pending=max_pending)
        self._link = link
        #: The number of the last message that was handed out; None before the first look. The thread of the link
        #: changes it.
        self._seen: int | None = None

    async def publish(self, topic: str, data: bytes) -> None:
        if self._seen is None:
            # The link runs the first look before any other script.
            await self._link.ask(scripts.LOOK, "")
        seen = self._seen
        # The reply brings all messages up to this one. They are handed out before `publish` returns, so that a later
        # subscriber does not get them.
        await self._link.ask(
            scripts.PUBLISH,
            seen,
            encode_name(topic),
            bytes(data),
            then=lambda reply: self._look(seen, reply),
        )

    def subscribe(
        self, topic: str, callback: Callable[[bytes], None], *, on_lost: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        self._link.wake()
        return super().subscribe(topic, callback, on_lost=on_lost)

    # --- in the thread of the link ---

    def first_look(self) -> tuple[scripts.Script, Sequence[Any], Callable[[Any], None]]:
        """Return the script that runs before all others. From then on no message is missed."""
        seen = self._seen
        return scripts.LOOK, ["" if seen is None else seen], lambda reply: self._look(seen, reply)

    async def listen(self, ask: Ask) -> None:
        """Hand out what other processes send."""
        key = self._link.prefix + b":bus"
        while True:
            while True:
                seen = self._seen
                assert seen is not None
                self._look(seen, await ask(*scripts.LOOK.in_full(self._link.prefix, [seen])))
                if self._seen == seen:
                    break
            wait = int(LISTEN_SECONDS * 1000)
            while reply := await ask("XREAD", "COUNT", 1000, "BLOCK", wait, "STREAMS", key, f"{self._seen}-0"):
                ((_, messages),) = reply
                self._take(messages)

    def _look(self, seen: int | None, reply: Any) -> None:
        """Hand out the messages that followed `seen`, and compare with the number of the last message."""
        last, *messages = reply
        newest = int(last)
        if self._seen is None or seen is None:
            self._seen = newest
            return
        self._take(messages)
        if newest < seen or (newest > self._seen and not messages):
            # Redis lost its data, or no longer has the messages that follow `seen`.
            self._seen = newest
            self._tell_lost()

    def _take(self, messages: Sequence[tuple[bytes, Sequence[bytes]]]) -> None:
        assert self._seen is not None
        for identifier, fields in messages:
            number = int(identifier.partition(b"-")[0])
            if number <= self._seen:
                continue
            if number != self._seen + 1:
                self._tell_lost()
            self._seen = number
            try:
                _, topic, _, data, _, _ = fields
                self._hand_out(decode_name(topic), data, None)
            except ValueError:
                _logger.warning("a message on the bus that nobody of us sent is passed over")
