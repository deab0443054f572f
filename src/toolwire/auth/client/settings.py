"""The settings of `OAuth` as one value."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolwire.auth.client.grants import Grant
from toolwire.auth.client.guarded import OnFetch
from toolwire.auth.client.login import Announce, Login
from toolwire.auth.client.signing import PrivateKey
from toolwire.auth.flow.clients import Naming, Registration
from toolwire.auth.flow.scopes import Scopes


@dataclass(frozen=True)
class OAuthSettings:
    naming: Naming
    client: Registration | None
    key: PrivateKey | None
    issuer: str | None
    scopes: Scopes
    login: Login
    announce: Announce | None
    redirect_uri: str | None
    login_seconds: float
    grant: Grant | None
    dpop: bool
    send_resource: bool
    default_endpoints: bool
    trusted_hosts: tuple[str, ...]
    accept_issuer: Mapping[str, str]
    parameters: Mapping[str, str]
    tls: ssl.SSLContext | None
    clock: Callable[[], float]
    on_fetch: OnFetch | None = None

    @property
    def given_client_id(self) -> str | None:
        """The client id that the user gave, if any."""
        if self.grant is not None:
            return self.grant.client_id
        return None if self.client is None else self.client.client_id

    @property
    def given_issuer(self) -> str | None:
        """The only authorization server that may see the user's credentials; None if any may."""
        return self.issuer if self.grant is None else self.grant.issuer

    @property
    def named_hosts(self) -> tuple[str, ...]:
        return self.trusted_hosts if self.grant is None else (*self.trusted_hosts, *self.grant.hosts)
