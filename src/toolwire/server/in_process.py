"""Using a server with no transport: the outlet of a call without a client, and the connections of `Server.process`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable
from toolwire.server.lifespan import Held
from toolwire.wire.channel import Channel, Feed
from toolwire.wire.session import Session


class Nowhere:
    """The outlet of a call that has no client."""

    connection = None
    answered = None
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


class Directs:
    """The connections behind `Server.process`, one for each event loop that it is used on."""

    def __init__(self) -> None:
        self._open: dict[asyncio.AbstractEventLoop, Direct] = {}

    def here(self, open_session: Callable[[Channel], Session], life: Held) -> Direct:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        direct = self._open.get(loop)
        if direct is None:
            for ended in [each for each in tuple(self._open) if each.is_closed()]:
                if (gone := self._open.pop(ended, None)) is not None:
                    gone.forget()
            direct = self._open[loop] = Direct(open_session, life)
        return direct


class Direct:
    """The connection behind `Server.process`: what is written is the answer of the message that was fed.

    Nothing ends it but the end of its event loop, and so it is with its hold on the lifespan.
    """

    def __init__(self, open_session: Callable[[Channel], Session], life: Held) -> None:
        self._channel = _Answers()
        self._session = open_session(self._channel)
        self._life = life
        self._holds = False

    def forget(self) -> None:
        """Its loop is gone."""
        self._session.handler.closing(self._session)

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
        before = set(self._session.peer.incoming)
        with self._channel.answering() as written:
            self._session.feed(message)
        serving = self._session.serving.items()
        own = [outlet.task for each, outlet in serving if each not in before and outlet.task is not None]
        if own:
            await asyncio.wait(own)
        answers = [each for each in written if _is_answer(each)]
        return answers[-1].decode() if answers else None


def _is_answer(message: bytes) -> bool:
    content = msgspec.json.decode(message)
    return any("method" not in item for item in (content if isinstance(content, list) else [content]))


class _Answers(Channel):
    """A channel on which a message gets its answers, and nothing can be said unasked."""

    def __init__(self) -> None:
        self._written: list[bytes] | None = None

    @contextmanager
    def answering(self) -> Iterator[list[bytes]]:
        """While a message is fed; what is written for it, then and later."""
        written: list[bytes] = []
        self._written = written
        try:
            yield written
        finally:
            self._written = None

    def route(self) -> Feed:
        assert self._written is not None
        return self._written.append

    async def read(self) -> bytes | None:
        return None

    def write(self, message: bytes) -> None:
        if self._written is None:
            raise Unreachable("process() has no way to ask the client, or to tell it anything unasked")
        self._written.append(message)

    async def close(self) -> None:
        return
