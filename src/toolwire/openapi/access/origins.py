"""The origins that requests to an API may go to, fixed at the start.

An address that the operator typed may be anywhere. An address in a description from the network is the choice of a
remote party: it must lead to a public address, each time that its name is resolved, so that it cannot be made to lead
into the network of this server.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from typing import Final

from toolwire.auth.flow.urls import Zone, is_loopback_host
from toolwire.base_errors import Unreachable
from toolwire.http1 import public_addresses
from toolwire.http1.pool import HttpPool, Pool
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import origin, parse_url
from toolwire.openapi.model import DescriptionError, OperationObject
from toolwire.protocol.errors import ToolError

#: How many bytes the body of a request to an API may have.
MAX_BODY: Final = 16 * 1024 * 1024


def is_from_network(document_uri: str) -> bool:
    """Return whether a document was fetched.

    A file, or a value of the program, is in the hands of the operator.
    """
    return document_uri.startswith(("http://", "https://"))


def zone_of(url: str, document_uri: str | None, typed: Iterable[str] = ()) -> Zone:
    """Return the addresses to which the URL of a server may lead.

    Raises `DescriptionError` for one that is refused. `document_uri` is the document that names it; None for a URL that
    the operator typed. `typed` are the other URLs that the operator typed, such as that of the description itself.
    """
    try:
        host = parse_url(url).host
    except (ValueError, UnicodeError):
        raise DescriptionError(
            f"{url[:200]!r} is not an http or https URL that can be requested: give base_url="
        ) from None
    if document_uri is None or not is_from_network(document_uri) or origin(url) in map(origin, typed):
        return Zone.NAMED
    address = public_addresses.parse(host)
    if is_loopback_host(host) or (address is not None and not public_addresses.is_public(address)):
        raise DescriptionError(
            f"{document_uri}: the server {url[:200]} is inside a private network, which a description from the network "
            "may not choose: give base_url= if it is the right one"
        )
    return Zone.PUBLIC


def permitted_origins(
    operations: Iterable[tuple[OperationObject, str]], *, base_url: str | None = None, typed: Iterable[str] = ()
) -> dict[str, Zone]:
    """Return the origins of an API.

    Each operation comes with the URL under which it is served.
    """
    known = tuple(typed)
    found: dict[str, Zone] = {}
    for operation, url in operations:
        # The servers of an operation stand in one document: in the operation, its path, or the root.
        document = operation.servers[0].document_uri if base_url is None and operation.servers else None
        zone = zone_of(url, document, known)
        # A URL that the operator typed somewhere may lead anywhere.
        if found.get(origin(url)) is not Zone.NAMED:
            found[origin(url)] = zone
    return found


class PermittedPool(Pool):
    """Requests to the permitted origins of one API, and to no other.

    `zones` are the permitted origins. `pool` carries all requests, where the operator handed in a client or the API is
    an application in this process, and then all origins are typed; otherwise the pool has connections of its own.
    `max_body` bounds what is sent. A `proxy` resolves names itself, so it is used only for addresses that the operator
    typed.
    """

    def __init__(
        self,
        zones: Mapping[str, Zone],
        *,
        pool: Pool | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        self.origins: frozenset[str] = frozenset(zones)
        self._max_body = max_body
        named = HttpPool(tls=tls, proxy=proxy, repeats_writes=False) if pool is None else pool
        public = HttpPool(tls=tls, vet=public_addresses.is_public, repeats_writes=False) if pool is None else pool
        self._pools: dict[str, Pool] = {each: named if zone is Zone.NAMED else public for each, zone in zones.items()}
        self._own = (named, public) if pool is None else ()

    @property
    def at_once(self) -> int | None:
        return next((each.at_once for each in self._pools.values()), None)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        pool = self._pools.get(origin(url))
        if pool is None:
            raise Unreachable(f"{origin(url)} is not an origin of this API")
        if body is not None and len(body) > self._max_body:
            raise ToolError(f"The request has {len(body)} bytes, and at most {self._max_body} are sent")
        return await pool.send(method, url, headers, body)

    async def close(self) -> None:
        for each in self._own:
            await each.close()
