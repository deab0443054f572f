"""An authorization server in front of a provider that MCP clients cannot use by themselves.

Entra ID, Google and GitHub know one client, registered by hand. The proxy is that client, and is to MCP clients what
the protocol asks of an authorization server: they register or name their metadata document, the user consents to each
of them, and the tokens they get are for this server alone. It stores nothing: all that it hands out is sealed values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from toolwire.auth.marks import Marks
from toolwire.auth.proxy.clients import Clients
from toolwire.auth.proxy.endpoints import Endpoints
from toolwire.auth.proxy.sealed import Seals
from toolwire.auth.proxy.tokens import ProxyVerifier, TokenDesk
from toolwire.auth.proxy.upstream import Upstream
from toolwire.auth.resource import ResourceServer
from toolwire.auth.verify.fetch import checked_url, fetch_from_anywhere
from toolwire.auth.verify.verifier import Verifies
from toolwire.protocol.errors import ServerError
from toolwire.protocol.sealing import Sealer

__all__ = ["OAuthProxy", "Upstream"]


class OAuthProxy(ResourceServer):
    """A resource server that signs its callers in at `upstream`.

    * `verifier`: finds the user of a token of the provider.
    * `redirect_schemes`: private schemes to which clients may be redirected, such as `cursor`; https, and http on the
      user's machine, always are allowed.
    * The rest is as for `ResourceServer`. `http_app` and `run` need `public_url=`, and the server a `secret=`.
    """

    hands_out = True

    def __init__(
        self,
        verifier: Verifies,
        upstream: Upstream,
        *,
        redirect_schemes: Iterable[str] = (),
        fetch_metadata: Callable[[str], Any] = fetch_from_anywhere,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        if "authorization_servers" in options:
            raise ServerError("OAuthProxy is the authorization server of this resource; there is no other to name")
        super().__init__(verifier, **options)
        self._upstream = upstream
        self._schemes = frozenset(each.lower() for each in redirect_schemes)
        if self._schemes & {"javascript", "data", "file", "vbscript", "http", "blob", "about"}:
            raise ServerError("redirect_schemes= are private schemes of applications, such as 'cursor'")
        self._fetch_metadata = fetch_metadata
        self._clock = clock

    def opened(
        self, *, name: str, path: str, public_url: str | None, sealer: Sealer, marks: Marks
    ) -> tuple[ResourceServer, Endpoints]:
        """Return the resource server that accepts the proxy's tokens, and its endpoints."""
        if public_url is None:
            raise ServerError("OAuthProxy needs public_url=: clients and the provider have to find it there")
        issuer = checked_url(public_url, "public_url").rstrip("/")
        if urlsplit(issuer).query:
            raise ServerError("public_url= has no query")
        resource = self.resource or f"{issuer}{path}"
        seals = Seals(sealer, issuer, resource, self._upstream.identity, self._clock)
        inner = self.verifier
        server = self._copy(ProxyVerifier(self._upstream, inner, seals), issuer, resource)
        endpoints = Endpoints(
            issuer=issuer,
            resource=resource,
            server_name=self.resource_name or name,
            scopes=self.scopes,
            upstream=self._upstream,
            seals=seals,
            clients=Clients(seals, schemes=self._schemes, fetch=self._fetch_metadata),
            desk=TokenDesk(self._upstream, inner, seals, marks),
        )
        return server, endpoints

    def _copy(self, verifier: ProxyVerifier, issuer: str, resource: str) -> ResourceServer:
        return ResourceServer(
            verifier,
            authorization_servers=[issuer],
            scopes=self.scopes,
            scopes_supported=self.scopes_supported,
            resource=resource,
            resource_name=self.resource_name,
            documentation=self.documentation,
            allow=self._allow,
            allow_usernames=self._allow_usernames,
            advertise=self._advertise,
        )
