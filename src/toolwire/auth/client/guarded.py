"""Makes the requests of a flow, with checked URLs and limits for size and time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.messages import Fetch, Fetched, Flow
from toolwire.auth.flow.urls import Reach, Zone
from toolwire.http1.fetch import fetch
from toolwire.http1.pool import REDIRECTS, HttpPool, target_of
from toolwire.http1.public_addresses import Vet, is_public
from toolwire.http1.url import origin
from toolwire.protocol.errors import Timeout, TransportError

MAX_BYTES: Final = 256 * 1024
MAX_HOPS: Final = 3
SECONDS: Final = 15.0

_VETS: Final[dict[Zone, Vet | None]] = {
    Zone.NAMED: None,
    Zone.LOOPBACK: lambda address: address.is_loopback,
    Zone.PUBLIC: is_public,
}

T = TypeVar("T")

#: A function that gets every request with its answer or its error. Both contain secrets.
OnFetch: TypeAlias = Callable[[Fetch, Fetched | SignInFailed], None]


class Fetcher:
    """Use it with `async with`, for as long as a sign-in takes."""

    def __init__(
        self,
        reach: Reach,
        *,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
        on_fetch: OnFetch | None = None,
    ) -> None:
        self._reach = reach
        self._on_fetch = on_fetch
        self._tls = tls
        self._seconds = seconds
        self._pools: dict[Zone, HttpPool] = {}

    async def run(self, flow: Flow[T]) -> T:
        """Play a flow to its end."""
        try:
            request = next(flow)
            while True:
                request = flow.send(await self.fetch(request))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            flow.close()

    async def fetch(self, request: Fetch) -> Fetched:
        """Make one request, redirects included; raise `SignInFailed` if it fails or is not allowed."""
        try:
            answer = await self._fetch(request)
        except SignInFailed as error:
            if self._on_fetch is not None:
                self._on_fetch(request, error)
            raise
        if self._on_fetch is not None:
            self._on_fetch(request, answer)
        return answer

    async def _fetch(self, request: Fetch) -> Fetched:
        try:
            response, body = await fetch(
                request.method,
                request.url,
                headers=request.headers,
                body=request.body or None,
                max_bytes=MAX_BYTES,
                seconds=self._seconds,
                redirects=MAX_HOPS if request.redirects else 0,
                pool_of=self._pool_of,
            )
        except Timeout:
            raise SignInFailed(f"{origin(request.url)} did not answer within {self._seconds:g} s") from None
        except TransportError as error:
            raise SignInFailed(f"{origin(request.url)} could not be asked: {error}") from None
        if request.redirects and response.status in REDIRECTS and response.header("location"):
            if target_of(request.method, response) is None:
                raise SignInFailed(f"{origin(request.url)} redirects to something that is not a URL")
            raise SignInFailed(f"{origin(request.url)} redirects too often")
        return Fetched(response.status, response.headers, body)

    def _pool_of(self, url: str) -> HttpPool:
        zone = self._reach.zone(url, "A URL that the server named")
        pool = self._pools.get(zone)
        if pool is None:
            pool = self._pools[zone] = HttpPool(vet=_VETS[zone], tls=self._tls)
        return pool

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.close()
