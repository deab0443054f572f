"""`LoopbackServer`: a few pages for the browser of the user who started this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

#: How many bytes the head of a request may have, and its body.
MAX_BYTES: Final = 16_384
_REQUEST_SECONDS: Final = 10.0
#: How many requests are read at a time.
_MAX_REQUESTS: Final = 16


class Reply(NamedTuple):
    """The answer to one request."""

    status: str
    headers: Iterable[tuple[bytes, bytes]] = ()
    body: bytes = b""
    when_done: Callable[[], None] | None = None
    """Called when the answer is written, or the browser has left."""

    def __repr__(self) -> str:
        return f"Reply({self.status!r})"


Respond: TypeAlias = Callable[[str, asyncio.StreamReader], Awaitable[Reply]]


class LoopbackServer:
    """Answers each request with what `respond` returns for its head, on a connection of its own.

    Requests that are too long, too slow or too many, and those that `respond` raises ValueError for, get no answer.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self, host: str, port: int) -> None:
        """Begin to listen. Raise OSError where the port is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_BYTES)

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
        if len(self._serving) >= _MAX_REQUESTS:
            writer.transport.abort()
            return
        self._serving[task] = writer
        reply: Reply | None = None
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
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
            del self._serving[task]
            writer.close()
            if reply is not None and reply.when_done is not None:
                reply.when_done()
