"""One request on an HTTP connection and its answer, as an ASGI application sees them.

An application that knows `Direct` need not wait for a body that has arrived completely. And
its answer, when there is only one piece, is written in one go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, MutableMapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Protocol

from toolwire.http1.asgi_types import HeaderList, Receive, SendMessage

log: logging.Logger = logging.getLogger("toolwire.http")

#: A body of which more than this waits for the application is not read on.
HIGH_WATER: Final = 64 * 1024

STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("latin-1") for status in HTTPStatus
}
_NO_BODY: Final = frozenset({204, 304})
_CLOSE: Final = b"connection: close\r\n"
_FAILURE: Final = b"Internal Server Error"


class Application(Protocol):
    async def __call__(self, scope: Any, receive: Receive, send: SendMessage, /) -> None: ...


class Connection(Protocol):
    """The connection that carries a request."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    default_headers: bytes
    writable: asyncio.Event | None
    """An event that is set when there is room again; None while there is room."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def answered(self) -> None:
        """Note that the answer is complete."""

    def close(self) -> None:
        """Close when everything is sent."""


class RequestCycle:
    """One request: the parts that have arrived, and the state of its answer.

    It is also the `Direct` of its request.
    """

    # Defaults of the class, since most requests are complete when they begin, and have one answer.
    task: asyncio.Task[None] | None = None
    disconnected: bool = False
    started: bool = False
    complete: bool = False
    # What has arrived and not been asked for yet; whether the body has ended, and whether the application knows.
    _body: bytes = b""
    _parts: list[bytes] | None = None
    _size: int = 0
    _ended: bool = False
    _told: bool = False
    _event: asyncio.Event | None = None
    on_lost: Callable[[], None] | None = None
    _head: bytes = b""
    _chunked: bool = False
    _remaining: int | None = None

    def __init__(
        self, connection: Connection, keep_alive: bool, awaits_continue: bool, is_head: bool, takes_chunks: bool
    ) -> None:
        self.keep_alive: bool = keep_alive
        self.loop: asyncio.AbstractEventLoop = connection.loop
        self._connection = connection
        self._awaits_continue = awaits_continue
        self._is_head = is_head
        self._takes_chunks = takes_chunks

    # --- what the connection says ---

    def feed(self, data: bytes) -> None:
        """Take a part of the body."""
        if self.complete:
            return  # The client does not want the rest.
        if self._size:
            if self._parts is None:
                self._parts = [self._body]
            self._parts.append(data)
        else:
            self._body = data
        self._size += len(data)
        if self._size > HIGH_WATER:
            self._connection.pause_reading()
        if self._event is not None:
            self._event.set()

    def end(self) -> None:
        """Note that the body is complete."""
        self._ended = True
        if self._event is not None:
            self._event.set()

    def lose(self) -> None:
        """Note that the client is gone."""
        if not self.complete:
            self.disconnected = True
            if self._event is not None:
                self._event.set()
            self._tell_lost()

    def _tell_lost(self) -> None:
        callback, self.on_lost = self.on_lost, None
        if callback is not None:
            callback()

    async def run(self, application: Application, scope: MutableMapping[str, Any], tasks: set[Any]) -> None:
        """Run the application.

        The client always gets an answer or the end of the connection.
        """
        try:
            await application(scope, self.receive, self.send)
        except Exception:
            log.exception("a request could not be answered")
        except BaseException:
            self._connection.transport.abort()
            raise
        finally:
            tasks.discard(self.task)
            self.task = None
        if not (self.complete or self.disconnected):
            self._fail()

    def _fail(self) -> None:
        """Answer for an application that ended without an answer."""
        if self.started and not self._head:
            self._connection.close()
            return
        self._head = b""
        self.keep_alive = False
        self._start(500, ((b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_FAILURE))))
        self._continue(_FAILURE, more=False)

    # --- what an application that knows us does ---

    def whole_body(self) -> bytes | None:
        if not self._ended or self._told or self.disconnected:
            return None
        self._told = True
        return self._pop_body()

    def answer(self, status: int, headers: HeaderList, body: bytes) -> bool:
        connection = self._connection
        if connection.writable is not None or self.started or self._is_head:
            return False
        if self.disconnected:
            return True
        answer = b"%b%b%b%bcontent-length: %d\r\n\r\n%b" % (
            STATUS_LINES[status],
            connection.default_headers,
            _usual_lines(headers),
            b"" if self.keep_alive else _CLOSE,
            len(body),
            body,
        )
        self.started = True
        connection.transport.write(answer)
        self._complete()
        return True

    def watch(self) -> None:
        if self.disconnected:
            self._tell_lost()
        else:
            self._connection.resume_reading()  # Or the end of the connection would not be noticed.

    # --- what any application does ---

    async def receive(self) -> MutableMapping[str, Any]:
        if self._awaits_continue:
            self._awaits_continue = False
            if not self.started and not self._connection.transport.is_closing():
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.disconnected or self.complete):
            if self._size or self._ended is not self._told:
                self._told = self._ended
                return {"type": "http.request", "body": self._pop_body(), "more_body": not self._ended}
            self._connection.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()
        return {"type": "http.disconnect"}

    def _pop_body(self) -> bytes:
        body = self._body if self._parts is None else b"".join(self._parts)
        self._body, self._parts, self._size = b"", None, 0
        return body

    async def send(self, message: MutableMapping[str, Any]) -> None:
        while self._connection.writable is not None and not self.disconnected:
            await self._connection.writable.wait()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.started and not self.complete:
            self._continue(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and not self.started:
            self._start(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"{kind!r} is out of place here")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        headers = tuple(headers)
        length = next((value for name, value in headers if name == b"content-length"), None)
        parts = [STATUS_LINES[status], self._connection.default_headers, _lines(headers)]
        # RFC 9112 section 6.1: HTTP/1.0 has no chunks, and there the end of the connection is the end of the body.
        if length is None and status not in _NO_BODY and self._takes_chunks:
            self._chunked = not self._is_head
            parts.append(b"transfer-encoding: chunked\r\n")
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            parts.append(_CLOSE)
        parts.append(b"\r\n")
        self.started = True
        if length is None:
            self._connection.transport.write(b"".join(parts))
        else:
            self._head = b"".join(parts)  # It leaves together with what follows.
            self._remaining = int(length)

    def _continue(self, body: bytes, *, more: bool) -> None:
        if self._is_head:
            body = b""
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                body += b"0\r\n\r\n"
        elif self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining and not more):
                raise RuntimeError("The body is not as long as its content-length says")
        if self._head:
            body = self._head + body
            self._head = b""
        if body:
            self._connection.transport.write(body)
        if not more:
            self._complete()

    def _complete(self) -> None:
        self.complete = True
        self.on_lost = None
        if self._event is not None:
            self._event.set()
        if not self.keep_alive:
            self._connection.close()
        self._connection.answered()


def _lines(headers: HeaderList) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    # A header that brings a line of its own would be read as another header, or as another answer.
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers):
        raise RuntimeError("A header contains a line break")
    return lines


# Answers in one piece have the same few headers again and again, and none that belongs to one client.
_usual_lines: Final = lru_cache(maxsize=64)(_lines)
