"""One HTTP request, read to its end, with limits on bytes, time, redirects and addresses.

It raises `Timeout` and `TransportError`, which its callers put into their own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TypeAlias

from toolwire.base_errors import Timeout, ToolwireError
from toolwire.http1.pool import REDIRECTS_ANY_METHOD, HttpPool, Pool, redirect_of, target_of
from toolwire.http1.public_addresses import Vet
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import origin

#: Returns the pool for a URL; it raises for a URL that may not be requested.
PoolOf: TypeAlias = Callable[[str], Pool]


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    max_bytes: int,
    seconds: float,
    redirects: int = 0,
    vet: Vet | None = None,
    pool: Pool | None = None,
    pool_of: PoolOf | None = None,
    wants_body: Callable[[HttpResponse], bool] | None = None,
) -> tuple[HttpResponse, bytes]:
    """Send a request and return the closed response with its body.

    * `max_bytes`: a longer body raises `TooLarge`.
    * `seconds`: for everything, redirects and body included; then `Timeout` is raised.
    * `redirects`: how many are followed within the origin of the URL. The next one is the answer.
    * `vet`: judges each address before it is connected to.
    * `pool`: carries the request; by default a pool for this request alone.
    * `pool_of`: in place of `vet` and `pool`, chooses the pool of each URL. Redirects may lead to other origins.
    * `wants_body`: whether to read the body of a response. A body that is not read is empty.
    """
    follow = redirect_of if pool_of is None else target_of
    at, carrier = url, pool
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(seconds):
            while True:
                if pool_of is not None:
                    carrier = pool_of(at)
                elif carrier is None:
                    carrier = await stack.enter_async_context(HttpPool(vet=vet))
                async with await carrier.send(method, at, headers or {}, body) as response:
                    target = follow(method, response) if redirects > 0 else None
                    if target is None:
                        is_wanted = wants_body is None or wants_body(response)
                        return response, await response.read(max_bytes) if is_wanted else b""
                redirects -= 1
                at = target
                if response.status not in REDIRECTS_ANY_METHOD:
                    body = None
    except TimeoutError as error:
        if isinstance(error, ToolwireError):
            raise
        raise Timeout(f"{origin(url)} did not answer in {seconds:g} s") from None
