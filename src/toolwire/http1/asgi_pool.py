"""HTTP requests to an ASGI application in the same process, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from toolwire.base_errors import OutcomeUnknown, Unreachable
from toolwire.http1.pool import USER_AGENT, Pool
from toolwire.http1.response import HttpResponse, joined
from toolwire.http1.url import origin

Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

# How much an application may send ahead of its reader.
_AHEAD: Final = 64
_GRACE_SECONDS: Final = 2.0


class AsgiPool(Pool):
    """Requests to one application.

    `extra` is added to the scope of every request, as an authenticating host would do. `state` is what the lifespan of
    the application left for its requests.
    """

    def __init__(
        self,
        application: Application,
        extra: Mapping[str, Any] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._application = application
        self._state = state
        self._extra = dict(extra or {})
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        if self._closed:
            raise Unreachable("The HTTP connections are closed")
        exchange = _Exchange(url, body or b"")
        scope = {**_scope(method, url, headers, body), **self._extra}
        if self._state is not None:
            # ASGI, lifespan state: each request has a copy of its own.
            scope["state"] = dict(self._state)
        task = asyncio.get_running_loop().create_task(exchange.run(self._application, scope))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await exchange.started.wait()
        except BaseException:
            exchange.close()
            raise
        if exchange.status == 0:
            raise OutcomeUnknown(f"The application at {origin(url)} ended without an answer") from exchange.error
        return exchange

    async def close(self) -> None:
        self._closed = True
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=_GRACE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


def _scope(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> dict[str, Any]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    sent = {"host": parts.netloc.rpartition("@")[2], "user-agent": USER_AGENT}
    sent.update((name.lower(), value) for name, value in headers.items())
    if body is not None:
        sent["content-length"] = str(len(body))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": parts.scheme,
        "path": unquote(parts.path) or "/",
        "raw_path": (parts.path or "/").encode("ascii", "replace"),
        "query_string": parts.query.encode("ascii", "replace"),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname or "localhost", port),
    }


class _Exchange(HttpResponse):
    def __init__(self, url: str, body: bytes) -> None:
        self.url = url
        self.status = 0
        self.started = asyncio.Event()
        self.error: BaseException | None = None
        self._request: bytes | None = body
        self._headers: list[tuple[str, str]] = []
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        self._gone = asyncio.Event()
        self._ended = False

    async def run(self, application: Application, scope: dict[str, Any]) -> None:
        try:
            await application(scope, self._receive, self._send)
        except Exception as error:
            self.error = error
        finally:
            self.started.set()
            await self._put(None)

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = [
                (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in message.get("headers", ())
            ]
            # A server sends the headers with the first piece of the body, or when it has to wait for one.
            self.started.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                await self._put(message["body"])
            if not message.get("more_body"):
                self._ended = True
                await self._put(None)

    async def _put(self, chunk: bytes | None) -> None:
        """Hand a piece to the reader, waiting for room, unless the reader has gone."""
        if not self._gone.is_set():
            await self._chunks.put(chunk)

    def header(self, name: str) -> str | None:
        wanted = name.lower()
        return next((value for key, value in self._headers if key == wanted), None)

    @property
    def headers(self) -> Mapping[str, str]:
        return joined(self._headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        if not self._ended:
            raise OutcomeUnknown(f"The answer of {origin(self.url)} broke off") from self.error

    def close(self) -> None:
        self._gone.set()
        while not self._chunks.empty():  # A writer that waits for room has it now, and learns that the reader has gone.
            self._chunks.get_nowait()
