"""Using a server with no transport: the outlet of a call without a client, and the connections of `Server.process`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol

import msgspec
from msgspec import Raw

from toolwire.protocol import types as t
from toolwire.protocol.errors import Unreachable
from toolwire.wire.channel import Channel, Feed
from toolwire.wire.session import Session


class Nowhere:
    """The outlet of a call that has no client."""

    connection = None
    answered = None
    in_process = True  # The caller waits for the result, so it never gets a task.
    congested = False
    full = False
    why = "There is no client"

    def __init__(self, *, is_local: bool) -> None:
        self.is_local: bool = is_local

    async def drain(self) -> None:
        return

    def notify(self, method: str, params: t.Wire) -> bool:
        return False

    async def request(self, method: str, params: t.Wire, timeout: float | None = None) -> Raw:
        raise Unreachable(self.why)


class Held(Protocol):
    """A runtime, which its first user enters and its last user leaves."""

    def held(self) -> AbstractAsyncContextManager[None]: ...

    async def enter(self) -> None: ...


class Direct:
    """The connection behind `Server.process`. A message is fed to it, and what it writes then is the answer.

    The connection and its hold on the lifespan last as long as the event loop.
    """

    def __init__(self, runtime: Held, open_session: Callable[[Channel], Session]) -> None:
        self._runtime = runtime
        self._open_session = open_session
        self._channel = _Answers()
        self._session: Session | None = None

    async def process(self, message: bytes) -> str | None:
        async with self._runtime.held():
            if self._session is None:
                self._session = self._open_session(self._channel)
                # Hold the lifespan once more, until the loop ends. It is entered already, so nothing waits here.
                await self._runtime.enter()
            return await self._answer(self._session, message)

    async def _answer(self, session: Session, message: bytes) -> str | None:
        before = set(session.peer.incoming)
        with self._channel.answering() as written:
            session.feed(message)
        serving = session.serving.items()
        own = [outlet.task for each, outlet in serving if each not in before and outlet.task is not None]
        if own:
            await asyncio.wait(own)
        answers = [each for each in written if _is_answer(each)]
        return answers[-1].decode() if answers else None


def _is_answer(message: bytes) -> bool:
    content = msgspec.json.decode(message)
    return any("method" not in item for item in (content if isinstance(content, list) else [content]))


class _Answers(Channel):
    """A channel that collects the answers to one message, and refuses to send anything else."""

    def __init__(self) -> None:
        self._written: list[bytes] | None = None

    @contextmanager
    def answering(self) -> Iterator[list[bytes]]:
        """Yield a list that gets everything written while a message is fed, and the later answers to the message."""
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
