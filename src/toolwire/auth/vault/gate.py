"""The gate's part of a vault: callers' tokens for exchanges, and account pages."""

from __future__ import annotations

from functools import partial

from toolwire.auth.authentication import Gate
from toolwire.auth.bearer import MalformedCredentials, credentials
from toolwire.auth.browser import BrowserSignIn
from toolwire.auth.flow.clients import Naming
from toolwire.auth.principal import Principal, with_token
from toolwire.auth.resource import ResourcePages, ResourceServer
from toolwire.auth.vault.connect_pages import ConnectPages, ServerSignIn
from toolwire.auth.vault.kinds import UserOAuth
from toolwire.auth.vault.providers import FrontClient
from toolwire.auth.vault.vault import Vault
from toolwire.auth.verify.keys import ApiKeys
from toolwire.auth.verify.verifier import each_of
from toolwire.http1.asgi_types import Scope


class TokenKeeper:
    """Keeps the token of a caller available to the vault while a credential is made."""

    def __init__(self, vault: Vault, gate: Gate, server: ResourceServer) -> None:
        self._vault = vault
        self._admit = gate.admit
        self._key_headers = gate.key_headers
        self._keys = [each for each in each_of(server.verifier) if isinstance(each, ApiKeys)]
        inner = getattr(server.verifier, "subject_token", None)
        self._inner = inner
        """Returns the token inside a token of an `OAuthProxy`; None where tokens are those of the provider."""

    async def admit(self, scope: Scope, headers: dict[str, str]) -> Principal:
        token = self._bearer_token(headers) if self._vault.needs_subject_tokens else None
        principal = await self._admit(scope, headers)
        subject_token = None if token is None else await self._subject_token(token)
        return principal if subject_token is None else with_token(principal, subject_token)

    def _bearer_token(self, headers: dict[str, str]) -> str | None:
        try:
            sent = credentials(headers, self._key_headers)
        except MalformedCredentials:
            return None
        return sent.token if sent is not None and sent.header == "authorization" else None

    async def _subject_token(self, token: str) -> str | None:
        for keys in self._keys:
            if await keys.verify(token) is not None:
                return None  # A key of this server must not reach any other server.
        found: str | None = token if self._inner is None else self._inner(token)
        return found


def open_accounts(gate: Gate, vault: Vault) -> None:
    """Add the account pages to a gate, and keep callers' tokens for exchanges."""
    gate.admit_by(lambda gate, server: TokenKeeper(vault, gate, server).admit)
    gate.add_pages(partial(connect_pages, vault))


def connect_pages(
    vault: Vault, gate: Gate, server: ResourceServer, pages: ResourcePages | None, public_url: str, path: str
) -> ConnectPages:
    """Make the pages on which users connect accounts.

    Users sign in there as the server's callers do.
    """
    public_url = public_url.rstrip("/")
    if isinstance(pages, BrowserSignIn):
        return ConnectPages(vault, gate, public_url, pages)
    if not server.authorization_servers and server.sign_in is None:
        return ConnectPages(vault, gate, public_url, None)
    resource, scopes = server.resource or f"{public_url}{path}", server.scope_text(server.scopes).split()
    providers = {issuer: UserOAuth(issuer, resource=resource, scopes=scopes) for issuer in server.authorization_servers}
    if server.sign_in is not None:
        given = server.sign_in
        issuer = given.issuer or next(iter(providers), "")
        providers = {issuer: given, **{each: other for each, other in providers.items() if each != issuer}}
    clients = {
        issuer: FrontClient(provider, naming=Naming(vault.server_name), clock=vault.clock)
        for issuer, provider in providers.items()
    }
    return ConnectPages(vault, gate, public_url, ServerSignIn(vault, clients, gate, public_url))
