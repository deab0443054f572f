"""A loopback page on which the user who started this process enters a secret.

MCP asks for secrets on pages only, and never in a form of the client (2025-11-25 client/elicitation). The address has a
random path, which only the client of this process gets. So other pages in the browser cannot send a secret.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from html import escape
from typing import Final

from toolwire.auth.browser import PAGE_HEADERS, error_page, form_of, page
from toolwire.auth.errors import SignInFailed
from toolwire.auth.loopback_server import MAX_BYTES, LoopbackReply, LoopbackServer
from toolwire.protocol.errors import ServerError

log: logging.Logger = logging.getLogger("toolwire.auth")

_HOST: Final = "127.0.0.1"


class SecretPage:
    """Serves one page until a secret was entered there.

    `keep` checks and keeps the secret. It raises `ServerError` for one that cannot be used, and `SignInFailed` where
    none can be kept any more.
    """

    def __init__(self, name: str, hint: str, keep: Callable[[str], Awaitable[None]]) -> None:
        self._name = name
        self._hint = hint
        self._keep = keep
        self._path = f"/{secrets.token_urlsafe(32)}"
        self._kept = asyncio.Event()
        self._server = LoopbackServer(self._respond, ("GET", "POST"))

    async def open(self) -> str:
        """Begin to serve; return the address. Raise `SignInFailed`."""
        try:
            await self._server.open(_HOST, 0)
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
        await self._server.close()

    @property
    def _own_host(self) -> str:
        return f"{_HOST}:{self._server.port}"

    async def _respond(self, head: str, reader: asyncio.StreamReader) -> LoopbackReply:
        """Answer a request, and take the secret that it brings."""
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        path = rest.partition(" ")[0]
        # A foreign name that leads to this machine is not the address that the user was given.
        if headers.get("host") != self._own_host or not hmac.compare_digest(path.encode(), self._path.encode()):
            return LoopbackReply("404 Not Found", PAGE_HEADERS)
        if method == "GET":
            return LoopbackReply("200 OK", PAGE_HEADERS, self._form())
        length = headers.get("content-length", "")
        if method != "POST" or not length.isdecimal() or int(length) > MAX_BYTES or self._kept.is_set():
            return LoopbackReply("400 Bad Request", PAGE_HEADERS, error_page("This page cannot be used any more"))
        entered = form_of(await reader.readexactly(int(length))).get("secret", "")
        try:
            await self._keep(entered)
        except SignInFailed as error:
            log.warning("a secret for %r was not kept: %s", self._name, error)
            return LoopbackReply("400 Bad Request", PAGE_HEADERS, error_page("This page cannot be used any more"))
        except ServerError:
            wrong = error_page("A key consists of visible characters, without spaces around it")
            return LoopbackReply("400 Bad Request", PAGE_HEADERS, wrong)
        done = "is connected. Close this page, and go back to the application."
        body = page("Connected", f"<p><strong>{escape(self._name)}</strong> {done}</p>")
        return LoopbackReply("200 OK", PAGE_HEADERS, body, self._kept.set)

    def _form(self) -> bytes:
        body = f"""<p>Enter your key for <strong>{escape(self._name)}</strong>. {escape(self._hint)}</p>
<form method="post">
<p><input type="password" name="secret" autocomplete="off" required></p>
<button>Keep it</button>
</form>"""
        return page("Enter a key", body)
