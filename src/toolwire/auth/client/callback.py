"""A loopback server for one sign-in, to which the browser returns with the answer."""

from __future__ import annotations

import asyncio
import hmac
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from toolwire.auth.errors import SignInFailed
from toolwire.auth.loopback_server import LoopbackReply, LoopbackServer

PATH: Final = "/callback"
_PAGE: Final = (
    b"<!doctype html><meta charset=utf-8><title>Done</title>"
    b"<p>That is all. You can close this window and go back to the application."
)
_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
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
        self._server = LoopbackServer(self._respond)

    async def __aenter__(self) -> Self:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self._server.open(self._host, self._port)
        except OSError as error:
            raise SignInFailed(f"Port {self._port} for the answer of the sign-in is taken: {error.strerror}") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.close()

    @property
    def redirect_uri(self) -> str:
        if self._given is not None:
            return self._given
        return f"http://{self._host}:{self._server.port}{self._path}"

    def expect(self, state: str) -> None:
        self._expected = state

    async def answer(self, seconds: float) -> str:
        """Wait for the answer; return its query with the question mark."""
        assert self._answer is not None
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise SignInFailed(f"There was no sign-in within {seconds:g} s") from None

    async def _respond(self, head: str, reader: asyncio.StreamReader) -> LoopbackReply:
        query = self._query(head)
        if query is None:
            return LoopbackReply("404 Not Found", _HEADERS)
        return LoopbackReply("200 OK", _HEADERS, _PAGE, lambda: self._deliver_answer(query))

    def _deliver_answer(self, query: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(query)

    def _query(self, head: str) -> str | None:
        """Return the query of the expected request; None for any other request."""
        method, _, rest = head.partition("\r\n")[0].partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != self._path or not self._expected:
            return None
        # A foreign page that guesses the port must not be able to end the sign-in.
        states = parse_qs(target.query).get("state", [""])
        return f"?{target.query}" if hmac.compare_digest(states[0].encode(), self._expected.encode()) else None
