"""A channel that passes a copy of every message to a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from toolwire.wire.channel import Channel, Ended, Feed

Direction: TypeAlias = Literal["→", "←"]
Tap: TypeAlias = Callable[[Direction, bytes], Any]
"""Called with "→" for a message that is written, "←" for one that was read; it may not raise."""


class TappedChannel(Channel):
    """Another channel with a tap."""

    def __init__(self, inner: Channel, tap: Tap) -> None:
        self._inner = inner
        self._tap = tap

    def __getattr__(self, name: str) -> Any:
        # Members that only some channels have, such as the exit status of a process.
        return getattr(self._inner, name)

    async def connect(self) -> None:
        await self._inner.connect()

    async def read(self) -> bytes | None:
        message = await self._inner.read()
        if message is not None:
            self._tap("←", message)
        return message

    def write(self, message: bytes) -> None:
        self._tap("→", message)
        self._inner.write(message)

    def attach(self, feed: Feed, ended: Ended) -> bool:
        def tapped(message: bytes) -> None:
            self._tap("←", message)
            feed(message)

        return self._inner.attach(tapped, ended)

    async def close(self) -> None:
        await self._inner.close()

    @property
    def is_connected(self) -> bool:
        return self._inner.is_connected

    @property
    def unread(self) -> int | None:
        return self._inner.unread

    @property
    def congested(self) -> bool:
        return self._inner.congested

    @property
    def full(self) -> bool:
        return self._inner.full

    def admits(self, optional: bool) -> bool:
        return self._inner.admits(optional)

    async def drain(self) -> None:
        await self._inner.drain()

    async def flush(self) -> None:
        await self._inner.flush()

    def pause(self) -> None:
        self._inner.pause()

    def resume(self) -> None:
        self._inner.resume()

    @property
    def principal(self) -> Any:
        return self._inner.principal

    def negotiated(self, revision: str) -> None:
        self._inner.negotiated(revision)

    def route(self) -> Feed:
        inner = self._inner.route()

        def tapped(message: bytes) -> None:
            self._tap("→", message)
            inner(message)

        return tapped
