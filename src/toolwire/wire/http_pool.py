"""HTTP requests over pooled connections; the only module that knows the HTTP client library.

A response is streamed: its body arrives chunk by chunk as the server sends it, and closing it early closes the
connection, which is how the other side learns that nobody wants the rest. Redirects stay within their origin, cookies
are not kept, and a failure says whether the request may have reached the server (`OutcomeUnknown`) or can not have
(`Unreachable`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib import request
from urllib.parse import SplitResult, urljoin, urlsplit

from toolwire._version import __version__
from toolwire.extras import require
from toolwire.protocol.errors import (
    InvalidResponse,
    OutcomeUnknown,
    Timeout,
    ToolwireError,
    TransportError,
    Unreachable,
)
from toolwire.wire import addresses

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractResolver, ResolveResult

USER_AGENT: Final = f"toolwire/{__version__}"
CONNECTIONS: Final = 100
CONNECT_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 3
# Below the 5 seconds after which uvicorn closes an idle connection, so that a request is not sent into the closing.
IDLE_SECONDS: Final = 4.0
_MANY_URLS: Final = 1_000
# How long the end of an answer may take that is complete already, how long it may be, and how many are waited for.
END_SECONDS: Final = 0.5
_LONG_END: Final = 4_096
_MANY_ENDING: Final = 100
_REDIRECTS_ANY_METHOD: Final = frozenset({307, 308})
_REDIRECTS_TO_GET: Final = frozenset({301, 302, 303})
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


class TooLarge(TransportError, InvalidResponse):
    """A body was longer than the caller was ready to take."""


class HttpResponse(ABC):
    """The answer to one request. Close it, or use `async with`: an unread rest closes the connection."""

    status: int
    url: str

    @abstractmethod
    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """All headers by lower-case name; those that came more than once are joined by commas."""

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises `OutcomeUnknown` when it breaks off."""

    @abstractmethod
    def close(self) -> None:
        """Let go. What was not read is not wanted any more."""

    def let_go(self) -> None:
        """Close, where nothing but the end is still to come: the connection is kept if it comes soon."""
        self.close()

    async def read(self, limit: int) -> bytes:
        """The whole body, if it has no more than `limit` bytes; otherwise `TooLarge`."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                self.close()
                raise TooLarge(f"The answer of {origin(self.url)} has more than {limit} bytes")
        return bytes(body)

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pool(ABC):
    """Whatever carries out HTTP requests: connections to other machines, or an application in this process."""

    @abstractmethod
    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """One request, without redirects; returns when the headers of the answer are there."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections. May be called twice."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float | None = None,
        redirects: int = MAX_REDIRECTS,
    ) -> HttpResponse:
        """One request and up to `redirects` redirects within its origin; a redirect to elsewhere is the answer.

        `timeout` is for everything up to the headers of the answer, and raises `Timeout`; how long the body may take
        is the reader's business.
        """
        sent = headers or {}
        try:
            async with asyncio.timeout(timeout):
                response = await self.send(method, url, sent, body)
                while redirects > 0 and (target := redirect_of(method, response)) is not None:
                    response.close()
                    redirects -= 1
                    if response.status in _REDIRECTS_TO_GET:
                        body = None
                    response = await self.send(method, target, sent, body)
                return response
        except TimeoutError as error:
            if isinstance(error, ToolwireError):
                raise
            raise Timeout(f"{origin(url)} did not answer in {timeout:g} s") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def origin(url: str) -> str:
    """Scheme, host and port of a URL; nothing of it that could be a secret."""
    parts = urlsplit(url)
    port = _port(parts)
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    host = parts.hostname or ""
    return f"{parts.scheme}://[{host}]{shown}" if ":" in host else f"{parts.scheme}://{host}{shown}"


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return None


def redirect_of(method: str, response: HttpResponse) -> str | None:
    """Where a response sends its request, if that is within the same origin and may be repeated there as it is."""
    wanted = response.status in _REDIRECTS_ANY_METHOD or (
        response.status in _REDIRECTS_TO_GET and method in ("GET", "HEAD")
    )
    location = response.header("location") if wanted else None
    if location is None:
        return None
    try:
        target = urljoin(response.url, location)
        return target if origin(target) == origin(response.url) else None
    except ValueError:
        return None


class HttpPool(Pool):
    """Pooled connections to any host.

    * `vet`: judges every address before it is connected to (`addresses.is_public`); with it, proxies are not used,
      because a proxy would do the resolving.
    * `tls`: the terms of TLS; the system's certificates by default.
    * `proxy`: the URL of a proxy; by default what the environment says (`HTTPS_PROXY`, `NO_PROXY`).
    """

    def __init__(
        self,
        *,
        vet: addresses.Vet | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connections: int = CONNECTIONS,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        if vet is not None and proxy is not None:
            raise ValueError("addresses can not be vetted through a proxy: use vet= or proxy=")
        self._vet = vet
        self._tls = tls
        self._proxy = proxy
        self._connections = connections
        self._connect_timeout = connect_timeout
        self._session: ClientSession | None = None
        self._proxies: dict[str, str | None] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        if self._closed:
            raise Unreachable("The HTTP connections are closed")
        session = self._session or self._open()
        if self._vet is not None:
            self._vet_literal(url)
        proxy = self._proxy if self._proxy is not None or self._vet is not None else self._proxy_of(url)
        try:
            response = await session.request(
                method, url, headers=headers, data=body, allow_redirects=False, proxy=proxy
            )
        except _errors() as error:
            if isinstance(error, ToolwireError):
                raise
            raise _failure(url, error) from None
        return _Streamed(response, url, self._ending)

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        ending = set(self._ending)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        if session is not None:
            await session.close()

    def _open(self) -> ClientSession:
        # Imported here because only who speaks HTTP needs it.
        aiohttp = require("aiohttp", extra="http", what="Reaching a server by URL")
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            keepalive_timeout=IDLE_SECONDS,
            resolver=None if self._vet is None else _vetting(self._vet),
            # A name that resolved to a good address may resolve to another one when it is asked again.
            use_dns_cache=self._vet is None,
            ssl=True if self._tls is None else self._tls,
        )
        session: ClientSession = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
        )
        self._session = session
        return session

    def _proxy_of(self, url: str) -> str | None:
        """What the environment names for a URL. The library would look it up in a thread for every single request."""
        where = url.partition("?")[0]
        if where not in self._proxies:
            if len(self._proxies) >= _MANY_URLS:
                self._proxies.clear()
            self._proxies[where] = _proxy_in_environment(url)
        return self._proxies[where]

    def _vet_literal(self, url: str) -> None:
        """An address written out in the URL is never resolved, so it is judged here."""
        host = urlsplit(url).hostname
        address = None if host is None else addresses.parse(host)
        if address is not None and self._vet is not None and not self._vet(address):
            raise _refused(str(host))


class _Streamed(HttpResponse):
    __slots__ = ("_ending", "_response", "status", "url")

    def __init__(self, response: ClientResponse, url: str, ending: set[asyncio.Task[None]]) -> None:
        self._response = response
        self._ending = ending
        self.status = response.status
        self.url = url

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    @property
    def headers(self) -> Mapping[str, str]:
        joined: dict[str, str] = {}
        for name, value in self._response.headers.items():
            key = name.lower()
            joined[key] = f"{joined[key]}, {value}" if key in joined else value
        return joined

    async def chunks(self) -> AsyncIterator[bytes]:
        content = self._response.content
        try:
            while chunk := await content.readany():
                yield chunk
        except _errors() as error:
            raise OutcomeUnknown(f"The answer of {origin(self.url)} broke off: {_reason(error)}") from None

    async def read(self, limit: int) -> bytes:
        # The usual answer is one small piece that is there already, or nearly.
        content = self._response.content
        try:
            first = await content.readany()
            if content.at_eof() and len(first) <= limit:
                return first
        except _errors() as error:
            raise OutcomeUnknown(f"The answer of {origin(self.url)} broke off: {_reason(error)}") from None
        if len(first) > limit:
            self.close()
            raise TooLarge(f"The answer of {origin(self.url)} has more than {limit} bytes")
        return first + await super().read(limit - len(first))

    def close(self) -> None:
        # Whole answers give their connection back; `close` on those does nothing more.
        self._response.close()

    def let_go(self) -> None:
        if self._response.content.at_eof() or len(self._ending) >= _MANY_ENDING:
            self.close()
            return
        task = asyncio.get_running_loop().create_task(self._take_end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _take_end(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                while chunk := await self._response.content.readany():
                    if len(chunk) > _LONG_END:
                        break
        except _errors():
            pass  # Too late included: TimeoutError is an OSError.
        finally:
            self.close()


def _proxy_in_environment(url: str) -> str | None:
    parts = urlsplit(url)
    host = parts.hostname
    if not host or request.proxy_bypass(host if (port := _port(parts)) is None else f"{host}:{port}"):
        return None
    return request.getproxies().get(parts.scheme)


# --- Addresses -------------------------------------------------------------------------------------------------------


def _vetting(vet: addresses.Vet) -> AbstractResolver:
    """The system's resolver, which gives no address that `vet` refuses."""
    from aiohttp.abc import AbstractResolver
    from aiohttp.resolver import ThreadedResolver

    class Vetting(AbstractResolver):
        def __init__(self) -> None:
            self._inner = ThreadedResolver()

        async def resolve(self, host: str, port: int = 0, *args: Any, **kwargs: Any) -> list[ResolveResult]:
            found = await self._inner.resolve(host, port, *args, **kwargs)
            for one in found:
                address = addresses.parse(one["host"])
                # One bad address among good ones is a trick, not an accident.
                if address is None or not vet(address):
                    raise _refused(host)
            return found

        async def close(self) -> None:
            await self._inner.close()

    return Vetting()


def _refused(host: str) -> Unreachable:
    return Unreachable(f"{host[:200]} was not contacted: its address is not one that may be reached from here")


# --- Failures --------------------------------------------------------------------------------------------------------


def _errors() -> tuple[type[Exception], ...]:
    """What the library raises, and lets through."""
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    return (aiohttp.ClientError, HttpProcessingError, OSError, ValueError, RuntimeError)


def _failure(url: str, error: Exception) -> TransportError:
    """Blame, by where it failed: before a connection stood, nothing can have reached the server."""
    import aiohttp

    where = origin(url)
    # Certificate errors first: they are ValueErrors too.
    if isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ClientConnectorCertificateError
        | aiohttp.ClientProxyConnectionError
        | aiohttp.ConnectionTimeoutError,
    ):
        return Unreachable(f"{where} can not be reached: {_reason(error)}")
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError | ValueError):
        return Unreachable(f"{url[:200]!r} is not a URL that can be requested")
    return OutcomeUnknown(f"The connection to {where} failed before it answered: {_reason(error)}")


def _reason(error: Exception) -> str:
    os_error = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(os_error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {os_error.verify_message}"
    if isinstance(os_error, ssl.SSLError):
        return f"TLS failed: {(os_error.reason or 'unknown reason').replace('_', ' ').lower()}"
    number = getattr(os_error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    text = getattr(os_error, "strerror", None) or getattr(error, "message", None) or str(error)
    return str(text)[:200] or type(error).__name__
