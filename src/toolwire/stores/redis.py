"""The four stores on Redis: for several machines behind a load balancer.

    server = Server("notes", stores=RedisStores("redis://redis.internal:6379/0"))

The limits hold for all processes with the same prefix together. Needs Redis 6.2 or later, or Valkey: one server, a
primary with replicas and Sentinels, or a cluster; and `pip install 'toolwire[redis]'`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

from toolwire.protocol.errors import ServerError
from toolwire.stores import redis_scripts as scripts
from toolwire.stores.memory import Evictions, Position, PositionLost, StoreFailed, StoreFull
from toolwire.stores.names import decode_name, encode_name
from toolwire.stores.numbers import MOST_SUM, check_amount, check_limit, check_ttl, make_value_error
from toolwire.stores.redis_address import DEFAULT_PREFIX, read_address
from toolwire.stores.redis_bus import RedisBus
from toolwire.stores.redis_link import RedisLink
from toolwire.stores.redis_queue import RedisQueue
from toolwire.stores.stores import Stores

__all__ = ["RedisBus", "RedisKV", "RedisLog", "RedisQueue", "RedisStores", "StoreFailed"]

_TIMEOUT: Final = 5.0
#: Scripts in Redis hold integers exactly up to here.
_LARGEST: Final = 2**53
#: Codes that the scripts of the KV return.
_FULL: Final = -1
_NO_NUMBER: Final = -2
_DEFAULTS: Final = {
    "max_items": 100_000,
    "max_bytes": 64 * 1024 * 1024,
    "max_events": 256,
    "max_stream_bytes": 1024 * 1024,
    "max_streams": 10_000,
    "max_log_bytes": 256 * 1024 * 1024,
    "max_subscribers": 100_000,
    "max_pending": 1024,
}


class RedisStores(Stores):
    """`KV`, `Log`, `Bus` and `Queue` on the Redis at `url`: `redis://`, `rediss://` for TLS, or `unix://` for a socket.

    `redis://one,two,three` names several servers; the one that takes changes is found. In a cluster, each node leads to
    the one that has the keys. `redis+sentinel://one,two,three/name/0` (`rediss+sentinel://` for TLS) asks Sentinels for
    the primary with that name.

    `prefix` (by default "toolwire") separates programs that share a Redis. Each operation ends within about twice
    `timeout` seconds (5). Both can be part of the address, and so can the limits:
    `redis://host/0?prefix=notes&timeout=2&max_items=500000&max_bytes=256MiB`.

    The limits are 100,000 values (`max_items`) of 64 MiB together (`max_bytes`); 10,000 streams (`max_streams`) of 256
    events (`max_events`) and 1 MiB each (`max_stream_bytes`) and 256 MiB together (`max_log_bytes`); 100,000
    subscribers of the bus in a process (`max_subscribers`), each up to 1,024 messages behind (`max_pending`).

    Nothing is opened before the first use, so the stores can be made before a process forks and used afterwards.
    """

    _link: RedisLink

    def __init__(
        self,
        url: str,
        *,
        prefix: str | None = None,
        timeout: float | None = None,
        max_items: int | None = None,
        max_bytes: int | None = None,
        max_events: int | None = None,
        max_stream_bytes: int | None = None,
        max_streams: int | None = None,
        max_log_bytes: int | None = None,
        max_subscribers: int | None = None,
        max_pending: int | None = None,
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

        def limit(name: str, given: int | None) -> int:
            return given if given is not None else address.limits.get(name, _DEFAULTS[name])

        link = RedisLink(address, name, seconds, listener=lambda: bus)
        bus = RedisBus(
            link,
            max_subscribers=limit("max_subscribers", max_subscribers),
            max_pending=limit("max_pending", max_pending),
        )
        room: dict[str, Any] = {
            "max_items": limit("max_items", max_items),
            "max_bytes": limit("max_bytes", max_bytes),
            "clock": clock,
        }
        super().__init__(
            RedisKV(link, name=f"redis:{name}", **room),
            RedisLog(
                link,
                max_events=limit("max_events", max_events),
                max_bytes=limit("max_stream_bytes", max_stream_bytes),
                max_streams=limit("max_streams", max_streams),
                max_total_bytes=limit("max_log_bytes", max_log_bytes),
                first_position=first_position,
            ),
            bus,
            RedisQueue(link, **room),
        )
        # The dataclass is frozen.
        object.__setattr__(self, "_link", link)

    async def hear(self) -> None:
        # Over the second connection, by which all messages of other processes come.
        assert isinstance(self.bus, RedisBus)
        await self.bus.hear()

    async def open(self) -> None:
        """Connect now instead of at the first use. Raise `StoreFailed` when Redis cannot be used."""
        await self.check()

    def evictions(self) -> Evictions:
        return self._link.evictions

    def may_lack_writes(self) -> bool:
        return self._link.may_lack_writes

    def close(self) -> None:
        """Finish what is under way and close the connections. The stores cannot be used afterwards."""
        self._link.close()


# --- KV -------------------------------------------------------------------------------------------


class RedisKV:
    def __init__(
        self, link: RedisLink, *, name: str, max_items: int, max_bytes: int, clock: Callable[[], float] | None = None
    ) -> None:
        self.name = name
        self._link = link
        self.max_items: int = max_items
        self.max_bytes: int = max_bytes
        self._clock = clock

    async def get(self, key: str) -> bytes | None:
        name = encode_name(key)
        value: bytes | None = await self._link.ask(scripts.GET, self._now(), name, keys=(b"kv:" + name,))
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
        code, _ = await self._change(
            scripts.PUT, key, bytes(value), _milliseconds(ttl), int(if_absent), int(expect is not None), expect or b""
        )
        return code == 1

    async def add(self, key: str, amount: int, *, ttl: float | None = None) -> int:
        check_amount(amount)
        code, total = await self._change(scripts.ADD, key, amount, _milliseconds(ttl), MOST_SUM)
        if code == _NO_NUMBER:
            raise make_value_error()
        return total

    async def _change(self, script: scripts.Script, key: str, *arguments: Any) -> tuple[int, int]:
        """Run a script that may need room, and make room for it by removing values that are over."""
        name = encode_name(key)
        while True:
            code, number, *overdue = await self._link.ask(
                script, self._now(), name, *arguments, self.max_items, self.max_bytes, keys=(b"kv:" + name,)
            )
            if overdue:
                # What was changed is changed, also where this fails.
                with contextlib.suppress(StoreFailed):
                    await self._sweep(overdue)
            if code != _FULL:
                return code, number
            if not overdue:
                raise StoreFull("The key-value store is full.")

    async def _sweep(self, names: list[bytes]) -> None:
        await self._link.ask(scripts.SWEEP, self._now(), *names, keys=[b"kv:" + name for name in names])

    async def delete(self, key: str) -> bool:
        name = encode_name(key)
        found: int = await self._link.ask(scripts.DELETE, self._now(), name, keys=(b"kv:" + name,))
        return found == 1

    async def expire(self, key: str, ttl: float | None) -> bool:
        name = encode_name(key)
        found: int = await self._link.ask(scripts.EXPIRE, self._now(), name, _milliseconds(ttl), keys=(b"kv:" + name,))
        return found == 1

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        limit = check_limit(limit)
        found: list[str] = await self._link.ask(
            scripts.LIST, self._now(), *scripts.list_arguments(prefix, after, limit), then=_decode_names
        )
        return found

    def _now(self) -> str:
        return "" if self._clock is None else repr(self._clock() * 1000)


def _decode_names(names: list[bytes]) -> list[str]:
    return [decode_name(name) for name in names]


def _milliseconds(ttl: float | None) -> str:
    check_ttl(ttl)
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
        name = encode_name(stream)
        place, *silent = await self._link.ask(
            scripts.APPEND, name, bytes(data), self._first, *self._limits, keys=(b"log:" + name,)
        )
        with contextlib.suppress(StoreFailed):
            # The event is kept, also where this fails: then the next one tries again.
            while silent:
                silent = await self._link.ask(
                    scripts.FORGET_SILENT, *self._limits[2:], *silent, keys=[b"log:" + name for name in silent]
                )
        return int(place)

    async def read_after(self, stream: str, position: Position | None, limit: int) -> list[tuple[Position, bytes]]:
        limit = check_limit(limit)
        after = "" if position is None else str(position)
        found: list[bytes] | None = None
        if position is None or (isinstance(position, int) and 0 <= position < _LARGEST):
            name = encode_name(stream)
            found = await self._link.ask(scripts.READ_AFTER, name, after, limit, keys=(b"log:" + name,))
        if found is None:
            raise PositionLost("The events after this position are no longer kept.")
        return [(int(found[index]), found[index + 1]) for index in range(0, len(found), 2)]

    async def delete(self, stream: str) -> bool:
        name = encode_name(stream)
        found: int = await self._link.ask(scripts.FORGET, name, keys=(b"log:" + name,))
        return found == 1
