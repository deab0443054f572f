"""HTTP requests over pooled connections.

A response is streamed: its body arrives chunk by chunk as the server sends it, and closing it early closes the
connection, which is how the other side learns that the rest is not needed. Redirects stay within their origin, cookies
are not kept, and a failure says whether the request may have reached the server (`OutcomeUnknown`) or cannot have
(`Unreachable`).
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urljoin

from toolwire._version import __version__
from toolwire.base_errors import Timeout, ToolwireError, Unreachable, UnsendableRequest
from toolwire.extras import require
from toolwire.http1 import public_addresses
from toolwire.http1.response import HttpResponse, StartedResponse
from toolwire.http1.unpacking import ENCODINGS
from toolwire.http1.url import origin, parse_url
from toolwire.redaction import repr_without

if TYPE_CHECKING:
    from toolwire.http1.dialing import Destination
    from toolwire.http1.pool_connections import Connections

USER_AGENT: Final = f"toolwire/{__version__}"
CONNECTIONS: Final = 100
CONNECT_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 3
_MANY_URLS: Final = 1_000
# How many beginnings of requests are kept for each URL, and how long they may be.
_MANY_HEADS: Final = 256
_SHORT_HEAD: Final = 4_096
#: RFC 9449 section 4.2: the header with a proof that is good for one request.
PROOF: Final = "dpop"
# RFC 9110 section 9.2.1: what changes nothing. Section 9.2.2: what does the same when it is done twice.
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT: Final = SAFE | {"PUT", "DELETE"}
#: The redirects of which the target gets the same method and body, and all that are followed.
REDIRECTS_ANY_METHOD: Final = frozenset({307, 308})
REDIRECTS: Final = REDIRECTS_ANY_METHOD | {301, 302, 303}
# Where a message ends is ours to say.
_FRAMING: Final = frozenset({"transfer-encoding", "connection", "content-length"})
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


class Pool(ABC):
    """A carrier of HTTP requests: connections to other machines, or an application in this process."""

    @property
    def at_once(self) -> int | None:
        """Return how many requests run at once while more wait; None means unlimited."""
        return None

    @abstractmethod
    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """Send one request, without redirects. Return when the headers of the answer are there."""

    def head(self, url: str, headers: Mapping[str, str]) -> bytes | None:
        """Encode the first line and headers for `post`; None for a pool without `post`."""
        return None

    def post(self, url: str, head: bytes, body: bytes) -> StartedResponse | None:
        """Send a POST without waiting; return None where it would have to wait.

        Redirects are left to `follow`.
        """
        return None

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
        """Send a request and follow redirects within its origin.

        At most `redirects` are followed, and a redirect to another origin is returned as the answer.

        `timeout` is for everything up to the headers of the answer, and raises `Timeout`; how long the body may take
        is the reader's business.
        """
        headers = headers or {}
        if timeout is None:
            response = await self.send(method, url, headers, body)
            if response.status < 300:
                return response
            return await self.follow(response, method, headers, body, redirects)
        try:
            async with asyncio.timeout(timeout):
                response = await self.send(method, url, headers, body)
                return await self.follow(response, method, headers, body, redirects)
        except TimeoutError as error:
            if isinstance(error, ToolwireError):
                raise
            raise Timeout(f"{origin(url)} did not answer in {timeout:g} s") from None

    async def follow(
        self,
        response: HttpResponse,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        redirects: int = MAX_REDIRECTS,
    ) -> HttpResponse:
        """Return the answer after the redirects that it asks for."""
        while redirects > 0 and (target := redirect_of(method, response)) is not None:
            response.close()
            redirects -= 1
            if response.status not in REDIRECTS_ANY_METHOD:
                body = None
            response = await self.send(method, target, headers, body)
        return response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def redirect_of(method: str, response: HttpResponse) -> str | None:
    """Return where a redirect leads; None for another origin or an unrepeatable request."""
    target = target_of(method, response)
    return target if target is not None and origin(target) == origin(response.url) else None


def target_of(method: str, response: HttpResponse) -> str | None:
    """Return where a redirect leads, in any origin; None if it cannot be followed."""
    status = response.status
    is_followed = status in REDIRECTS_ANY_METHOD or (status in REDIRECTS and method in ("GET", "HEAD"))
    location = response.header("location") if is_followed else None
    if not location:
        return None
    try:
        return urljoin(response.url, location)
    except ValueError:
        return None


class _Route(NamedTuple):
    """The parts that all requests to one URL share."""

    destination: Destination
    target: str
    headers: dict[str, str]
    heads: dict[tuple[str, tuple[tuple[str, str], ...]], bytes]
    """The encoded beginnings of requests, by the method and the headers of the caller."""

    def __repr__(self) -> str:
        return repr_without(self, "target", "headers", "heads")

    def head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """Return the first line and headers of a request, without those that frame its body."""
        key = (method, tuple(headers.items()))
        head = self.heads.get(key)
        if head is None:
            head = _encoded_head(method, self, headers)
            if len(head) <= _SHORT_HEAD:
                # A plain dict, not `Expiring`: each request looks here, and when it is full it is cheap to begin anew.
                if len(self.heads) >= _MANY_HEADS:
                    self.heads.clear()
                self.heads[key] = head
        return head


def _framed(head: bytes, body: bytes) -> bytes:
    """Return the bytes of a request with a body."""
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


class HttpPool(Pool):
    """Pooled connections to any host.

    * `vet`: judges every address before it is connected to (`public_addresses.is_public`). With `vet`, proxies are not
      used, because a proxy would resolve the names.
    * `tls`: the terms of TLS; the system's certificates by default.
    * `proxy`: the URL of a proxy; by default what the environment says (`HTTPS_PROXY`, `NO_PROXY`).
    * `repeats_writes`: whether PUT and DELETE are sent once more when an idle connection was closed while they were on
      their way, as GET is.

    A request with a proof (`dpop`) is not sent once more: it raises `CrossedClosing`, and its sender makes a new one.
    """

    def __init__(
        self,
        *,
        vet: public_addresses.Vet | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connections: int = CONNECTIONS,
        connect_timeout: float = CONNECT_SECONDS,
        repeats_writes: bool = True,
    ) -> None:
        if vet is not None and proxy is not None:
            raise ValueError("addresses cannot be vetted through a proxy: use vet= or proxy=")
        self._vet = vet
        self._tls = tls
        self._proxy = proxy
        self._limit = connections
        self._connect_timeout = connect_timeout
        self._repeats_writes = repeats_writes
        self._connections: Connections | None = None
        self._routes: dict[str, _Route] = {}
        self._closed = False

    @property
    def at_once(self) -> int:
        return self._limit

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Coroutine[Any, Any, HttpResponse]:
        if self._closed:
            raise Unreachable("The HTTP connections are closed")
        connections = self._connections or self._open()
        route = self._routes.get(url) or self._route(url)
        head = route.head(method, headers)
        request = head + b"\r\n" if body is None and method != "POST" else _framed(head, body or b"")
        return connections.exchange(route.destination, method, url, request, is_single=PROOF in headers)

    def head(self, url: str, headers: Mapping[str, str]) -> bytes:
        return (self._routes.get(url) or self._route(url)).head("POST", headers)

    def post(self, url: str, head: bytes, body: bytes) -> StartedResponse | None:
        connections, route = self._connections, self._routes.get(url)
        if connections is None or route is None:
            return None
        connection = connections.pop_idle(route.destination)
        return None if connection is None else connection.start("POST", url, _framed(head, body), is_usual=True)

    async def close(self) -> None:
        self._closed = True
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def _open(self) -> Connections:
        # Imported here because only who speaks HTTP needs it.
        require("httptools", extra="http", what="Reaching a server by URL")
        from toolwire.http1.dialing import Dialer
        from toolwire.http1.pool_connections import Connections

        repeatable = IDEMPOTENT if self._repeats_writes else SAFE
        dialer = Dialer(self._vet, self._tls, self._connect_timeout)
        self._connections = Connections(dialer, self._limit, repeatable)
        return self._connections

    def _route(self, url: str) -> _Route:
        """Read a URL and its proxy settings once."""
        from toolwire.http1.dialing import Destination, parse_proxy, proxy_of

        try:
            to = parse_url(url)
        except ValueError:
            raise Unreachable(f"{url[:200]!r} is not a URL that can be requested") from None
        named = self._proxy if self._proxy is not None or self._vet is not None else proxy_of(url)
        proxy = None if named is None else parse_proxy(named)
        target = to.target
        headers = {"host": to.authority, "user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": ENCODINGS}
        if to.authorization is not None:
            headers["authorization"] = to.authorization
        if proxy is not None and not to.secure:
            # RFC 9112 section 3.2.2: a proxy gets the whole URL.
            target = f"http://{to.authority}{target}"
            if proxy.authorization is not None:
                headers["proxy-authorization"] = proxy.authorization
        # A plain dict for the same reason as `_Route.heads`.
        if len(self._routes) >= _MANY_URLS:
            self._routes.clear()
        route = self._routes[url] = _Route(Destination(to.secure, to.host, to.port, proxy), target, headers, {})
        return route


def _encoded_head(method: str, route: _Route, headers: Mapping[str, str]) -> bytes:
    """Encode the first line and the headers of a request.

    Text that a server could take for anything else is refused.
    """
    sent = route.headers.copy()
    for name, value in headers.items():
        sent[_field(name)] = value
    sent.pop("", None)
    lines = [f"{name}: {value}\r\n" for name, value in sent.items()]
    head = f"{method} {route.target} HTTP/1.1\r\n{''.join(lines)}"
    breaks = len(lines) + 1
    if head.count("\r") != breaks or head.count("\n") != breaks or "\0" in head:
        raise _unsendable()
    try:
        return head.encode()
    except UnicodeEncodeError:
        raise _unsendable() from None


@lru_cache(maxsize=256)
def _field(name: str) -> str:
    """Return the name of a header as sent; empty if callers may not set it."""
    name = name.lower()
    if not name or not _TOKEN.issuperset(name):
        raise _unsendable()
    return "" if name in _FRAMING else name


def _unsendable() -> UnsendableRequest:
    return UnsendableRequest("A header of the request has a name or a value that cannot be sent")
