"""Using a server with no transport: the outlet of a call without a client, and the connection of `Server.process`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable
from toolwire.server.life import Held
from toolwire.wire.channel import Channel
from toolwire.wire.session import Session


class Nowhere:
    """The outlet of a call that has no client."""

    connection = None
    in_process = True  # Whoever calls there waits for the result, so it is never handed a task.
    congested = False
    why = "There is no client"

    def __init__(self, *, is_local: bool) -> None:
        self.is_local: bool = is_local

    async def drain(self) -> None:
        return

    def notify(self, method: str, params: t.Wire) -> bool:
        return False

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        raise Unreachable(self.why)


class Direct:
    """The connection behind `Server.process`: what is written is the answer of the message that was fed.

    Nothing ends it but the end of its event loop, and so it is with its hold on the lifespan.
    """

    def __init__(self, open_session: Callable[[Channel], Session], life: Held) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._channel = _Captured()
        self._session = open_session(self._channel)
        self._life = life
        self._holds = False

    async def process(self, message: bytes) -> str | None:
        if not self._holds:
            self._holds = True
            try:
                await self._life.enter()
            except BaseException:
                self._holds = False
                raise
        async with self._life.held():
            return await self._answer(message)

    async def _answer(self, message: bytes) -> str | None:
        written = self._channel.written
        before = len(written)
        incoming = set(self._session.peer.incoming)
        self._session.feed(message)
        # What is answered at once is written before anything else can be.
        replies = written[before:]
        del written[before:]
        serving = self._session.serving.items()
        own = {each: outlet.task for each, outlet in serving if each not in incoming and outlet.task is not None}
        if own:
            await asyncio.wait(own.values())
            replies += [answer for answer in written if not own.keys().isdisjoint(_answered(answer))]
            written[:] = [answer for answer in written if answer not in replies]
        answers = [reply for reply in replies if _answered(reply)]
        return answers[-1].decode() if answers else None


def _answered(message: bytes) -> list[Any]:
    """The ids of the requests that a message answers, None among them where one could not be read."""
    content = msgspec.json.decode(message)
    items = content if isinstance(content, list) else [content]
    return [item.get("id") for item in items if "method" not in item]


class _Captured(Channel):
    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def read(self) -> bytes | None:
        return None

    def write(self, message: bytes) -> None:
        self.written.append(message)

    async def close(self) -> None:
        return
