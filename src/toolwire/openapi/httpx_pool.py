"""Requests to an API through an `httpx.AsyncClient` of the operator."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from toolwire.base_errors import InvalidResponse, OutcomeUnknown, ServerError, Unreachable
from toolwire.http1.pool import Pool
from toolwire.http1.response import HttpResponse, joined
from toolwire.http1.unpacking import ENCODINGS, Unpacker
from toolwire.http1.url import origin

# Failures of httpx before anything of a request was sent. They are named, because httpx need not be installed.
_NOT_SENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"})


class AsyncHttpClient(Protocol):
    """The part of `httpx.AsyncClient` that is used."""

    def build_request(self, method: str, url: str, *, headers: Any = None, content: Any = None) -> Any: ...

    async def send(self, request: Any, *, stream: bool = False, follow_redirects: bool = False) -> Any: ...


def check_client(client: Any) -> AsyncHttpClient:
    """Return an HTTP client that can be used. Raise `ServerError` for anything else."""
    if not all(callable(getattr(client, name, None)) for name in ("build_request", "send", "aclose")):
        raise ServerError(f"client= is an httpx.AsyncClient, not {type(client).__name__}")
    return client  # type: ignore[no-any-return]


class HttpxPool(Pool):
    """Requests through an `httpx.AsyncClient`, which its maker closes.

    Callers share the client. Each request has a copy of its cookies, and cookies of an answer are dropped. A request to
    another origin than those in `home` gets no headers, cookies, authentication or parameters of the client.
    """

    def __init__(self, client: AsyncHttpClient, home: frozenset[str]) -> None:
        self._client = client
        self._home = home
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        try:
            sent = {"accept-encoding": ENCODINGS, **headers}
            is_home = origin(url) in self._home
            client = _with_own_cookies(self._client) if is_home else _without_secrets(self._client)
            request = client.build_request(method, url, headers=sent, content=body)
            # Redirects are followed by the caller, within the origins that are permitted.
            response = await client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            raise _failure(error, url) from error
        return _Response(response, url, self._closing)

    async def close(self) -> None:
        """Wait for answers that are being closed. The client belongs to the operator."""
        if self._closing:
            await asyncio.wait(self._closing)


def _with_own_cookies(client: Any) -> AsyncHttpClient:
    """Return the client with a copy of its cookie jar.

    So an answer changes no other request. The connections, the authentication and the hooks are those of the client.
    """
    if not hasattr(client, "cookies"):
        return client  # type: ignore[no-any-return]
    own = copy.copy(client)
    own.cookies = client.cookies  # The setter of httpx copies the jar.
    return own  # type: ignore[no-any-return]


def _without_secrets(client: Any) -> AsyncHttpClient:
    """Return the client without what its maker put into every request."""
    bare = copy.copy(client)
    for name, empty in (("headers", {}), ("cookies", {}), ("params", {}), ("auth", None)):
        if hasattr(client, name):
            setattr(bare, name, empty)
    return bare  # type: ignore[no-any-return]


def _failure(error: Exception, url: str) -> Exception:
    """Convert an error of httpx to one of this library; return any other unchanged."""
    names = {each.__name__ for each in type(error).__mro__}
    if names.isdisjoint({"RequestError", "InvalidURL"}):
        return error
    told = f"{origin(url)}: {type(error).__name__}"
    if "InvalidURL" in names:
        # The address of the request was read before. This is one to which an answer leads, so the request was sent.
        return InvalidResponse(told)
    return OutcomeUnknown(told) if names.isdisjoint(_NOT_SENT) else Unreachable(told)


class _Response(HttpResponse):
    def __init__(self, response: Any, url: str, closing: set[asyncio.Task[None]]) -> None:
        self._response = response
        self._closing = closing
        self._pieces: AsyncIterator[bytes] | None = None
        self.status = response.status_code
        self.url = url

    def header(self, name: str) -> str | None:
        wanted = name.lower()
        return next((value for key, value in self._response.headers.multi_items() if key.lower() == wanted), None)

    @property
    def headers(self) -> Mapping[str, str]:
        return joined((key.lower(), value) for key, value in self._response.headers.multi_items())

    def chunks(self) -> AsyncIterator[bytes]:
        if self._pieces is None:
            self._pieces = self._unpacked()
        return self._pieces

    async def _unpacked(self) -> AsyncIterator[bytes]:
        """Yield the body, unpacked in small parts.

        httpx would unpack a piece to any size.
        """
        if self._response.is_stream_consumed:  # A hook of the client has read all of it.
            yield self._response.content
            return
        encoding = (self.header("content-encoding") or "identity").strip().lower()
        try:
            unpacker = None if encoding == "identity" else Unpacker(encoding)
            async for piece in self._response.aiter_raw():
                for part in [piece] if unpacker is None else unpacker.feed(piece):
                    yield part
        except Exception as error:
            raise OutcomeUnknown(f"The answer of {origin(self.url)} broke off") from error

    def close(self) -> None:
        if not self._response.is_closed:
            task = asyncio.get_running_loop().create_task(self._response.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
