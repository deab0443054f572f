"""`LoopbackServer`: a few pages for the browser of the user who started this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: How many bytes the head of a request may have, and its body.
MAX_BYTES: Final = 16_384
_REQUEST_SECONDS: Final = 10.0
#: How many heads are read at a time. A new connection ends the oldest one whose head is not complete.
MAX_HEADS: Final = 64
# Fewer connections than that are accepted at once, so that none ends before it was read.
_BACKLOG: Final = 16


class LoopbackReply(NamedTuple):
    """The answer to one request."""

    status: str
    headers: Iterable[tuple[bytes, bytes]] = ()
    body: bytes = b""
    when_done: Callable[[], None] | None = None
    """Called when the answer is written, or the browser has left."""

    def __repr__(self) -> str:
        return f"Reply({self.status!r})"


Respond: TypeAlias = Callable[[str, asyncio.StreamReader], Awaitable[LoopbackReply]]


class LoopbackServer:
    """Answers each HTTP request on loopback with what `respond` returns for its head.

    Requests with a method that is not in `methods`, those that are too long or too slow, and those that `respond`
    raises ValueError for, get no answer. Programs that hold connections open keep no other program out.
    """

    def __init__(self, respond: Respond, methods: Sequence[str] = ("GET",)) -> None:
        self._respond = respond
        self._starts = [f"{method} /".encode() for method in methods]
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        # Those whose head is not complete, the oldest first.
        self._reading: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self, host: str, port: int) -> None:
        """Begin to listen. Raise OSError where the port is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_BYTES, backlog=_BACKLOG)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self._server.close()
        # Browsers open connections in advance and keep them.
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._reading) >= MAX_HEADS:
            self._reading.pop(next(iter(self._reading))).transport.abort()
        self._serving[task] = self._reading[task] = writer
        reply: LoopbackReply | None = None
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await self._read_head(reader)
                self._reading.pop(task, None)
                answer = await self._respond(head, reader)
                lines = [
                    f"HTTP/1.1 {answer.status}".encode(),
                    *(name + b": " + value for name, value in answer.headers),
                ]
                lines += [b"connection: close", b"content-length: %d" % len(answer.body)]
                writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + answer.body)
                await writer.drain()
                reply = answer
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # It was not the browser of the user.
        finally:
            self._reading.pop(task, None)
            del self._serving[task]
            writer.close()
            if reply is not None and reply.when_done is not None:
                reply.when_done()

    async def _read_head(self, reader: asyncio.StreamReader) -> str:
        """Read the head of a request; raise ValueError for a method that is not allowed."""
        start = b""
        while start not in self._starts:
            start += await reader.readexactly(1)
            if not any(each.startswith(start) for each in self._starts):
                raise ValueError("This is not a request for a page")
        return (start + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
