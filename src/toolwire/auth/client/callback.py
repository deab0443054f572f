"""A server on loopback for one sign-in. The browser is redirected to it with the answer."""

from __future__ import annotations

import asyncio
import hmac
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from toolwire.auth.errors import SignInFailed

PATH: Final = "/callback"
_HEAD_BYTES: Final = 16_384
_HEAD_SECONDS: Final = 10.0
_PAGE: Final = (
    b"<!doctype html><meta charset=utf-8><title>Done</title>"
    b"<p>That is all. You can close this window and go back to the application."
)
_HEADERS: Final = (
    b"content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    b"content-security-policy: default-src 'none'\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
)


class CallbackServer:
    """Waits for the request with the expected state, and ignores every other request.

    `redirect_uri` fixes host, port and path; without one the port is `port`, or any.
    """

    def __init__(self, redirect_uri: str | None = None, port: int = 0) -> None:
        parts = urlsplit(redirect_uri or f"http://127.0.0.1:{port}{PATH}")
        self._host = parts.hostname or "127.0.0.1"
        self._port = (parts.port or 80) if redirect_uri else port
        self._path = parts.path or "/"
        self._given = redirect_uri
        self._expected = ""
        self._answer: asyncio.Future[str] | None = None
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=_HEAD_BYTES)
        except OSError as error:
            raise SignInFailed(f"Port {self._port} for the answer of the sign-in is taken: {error.strerror}") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        # Browsers open connections in advance and keep them.
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    @property
    def redirect_uri(self) -> str:
        if self._given is not None:
            return self._given
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://{self._host}:{port}{self._path}"

    def expect(self, state: str) -> None:
        self._expected = state

    async def answer(self, seconds: float) -> str:
        """Wait for the answer; return its query with the question mark."""
        assert self._answer is not None
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise SignInFailed(f"Nobody signed in within {seconds:g} s") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                query = self._query(await reader.readuntil(b"\r\n\r\n"))
                status, page = (b"404 Not Found", b"") if query is None else (b"200 OK", _PAGE)
                writer.write(b"HTTP/1.1 " + status + b"\r\n" + _HEADERS)
                writer.write(b"content-length: %d\r\n\r\n" % len(page) + page)
                await writer.drain()
            if query is not None and self._answer is not None and not self._answer.done():
                self._answer.set_result(query)
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # It was not the browser with the answer.
        finally:
            del self._serving[task]
            writer.close()

    def _query(self, head: bytes) -> str | None:
        """Return the query of the expected request; None for any other request."""
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != self._path or not self._expected:
            return None
        # A foreign page that guesses the port must not be able to end the sign-in.
        states = parse_qs(target.query).get("state", [""])
        return f"?{target.query}" if hmac.compare_digest(states[0].encode(), self._expected.encode()) else None
