"""A page on loopback on which the user who started this process enters a secret.

MCP asks for secrets on pages only, and never in a form of the client (2025-11-25 client/elicitation). The address has a
random path, which nobody but the client of this process is told. So other pages in the browser cannot send a secret.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from html import escape
from typing import Final

from toolwire.auth.browser import PAGE_HEADERS, error_page, form_of, page
from toolwire.auth.errors import SignInFailed
from toolwire.protocol.errors import ServerError

_HOST: Final = "127.0.0.1"
#: How many bytes the head and the body of a request may have.
_MOST_BYTES: Final = 16_384
_REQUEST_SECONDS: Final = 10.0
#: How many requests are read at a time.
_MOST_REQUESTS: Final = 16


class SecretPage:
    """Serves one page until a secret was entered there.

    `keep` checks and keeps the secret. It raises `ServerError` for one that cannot be used.
    """

    def __init__(self, name: str, hint: str, keep: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._hint = hint
        self._keep = keep
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._kept = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> str:
        """Begin to serve; return the address. Raise `SignInFailed`."""
        try:
            self._server = await asyncio.start_server(self._serve, _HOST, 0, limit=_MOST_BYTES)
        except OSError as error:
            raise SignInFailed(f"There is no port for the page: {error.strerror}") from None
        return f"http://{self._own_host}{self._path}"

    async def wait(self, seconds: float) -> bool:
        """Wait until a secret was entered; return False where that took too long."""
        try:
            async with asyncio.timeout(seconds):
                await self._kept.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        # The answer to the browser is written before. Browsers open connections in advance and keep them.
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    @property
    def _own_host(self) -> str:
        assert self._server is not None
        return f"{_HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._serving) >= _MOST_REQUESTS:
            writer.transport.abort()
            return
        self._serving[task] = writer
        is_kept = False
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status, body, is_kept = await self._answered(head, reader)
                lines = [f"HTTP/1.1 {status}".encode(), *(name + b": " + value for name, value in PAGE_HEADERS)]
                lines += [b"connection: close", b"content-length: %d" % len(body)]
                writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # It was not the browser of the user.
        finally:
            del self._serving[task]
            writer.close()
            if is_kept:
                self._kept.set()

    async def _answered(self, head: str, reader: asyncio.StreamReader) -> tuple[str, bytes, bool]:
        """Return the status and the page for a request, and whether it brought the secret."""
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = rest.partition(" ")[0]
        # A name of somebody else's that leads to this machine is not the address that the user was given.
        if headers.get("host") != self._own_host or not hmac.compare_digest(path.encode(), self._path.encode()):
            return "404 Not Found", b"", False
        if method == "GET":
            return "200 OK", self._form(), False
        length = headers.get("content-length", "")
        if method != "POST" or not length.isdecimal() or int(length) > _MOST_BYTES or self._kept.is_set():
            return "400 Bad Request", error_page("This page cannot be used any more"), False
        entered = form_of(await reader.readexactly(int(length))).get("secret", "")
        try:
            await self._keep(entered)
        except ServerError:
            return (
                "400 Bad Request",
                error_page("A key consists of visible characters, without spaces around it"),
                False,
            )
        done = "is connected. Close this page, and go back to the application."
        return "200 OK", page("Connected", f"<p><strong>{escape(self._name)}</strong> {done}</p>"), True

    def _form(self) -> bytes:
        body = f"""<p>Enter your key for <strong>{escape(self._name)}</strong>. {escape(self._hint)}</p>
<form method="post">
<p><input type="password" name="secret" autocomplete="off" required></p>
<button>Keep it</button>
</form>"""
        return page("Enter a key", body)
