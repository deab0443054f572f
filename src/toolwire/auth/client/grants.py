"""Grants without a person: client credentials, and assertions of an identity provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from toolwire.auth.client.signing import KeyCredentials, PrivateKey
from toolwire.auth.flow.clients import Credentials, Registration
from toolwire.auth.flow.flows import client_credentials, exchange_for_id_jag, jwt_bearer
from toolwire.auth.flow.messages import Flow
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered
from toolwire.auth.flow.scopes import Scopes
from toolwire.auth.flow.tokens import Prover, TokenResponse

T = TypeVar("T")

#: A text, or a function that returns it when it is needed. The function may be `async`.
Supplied = str | Callable[[], str | Awaitable[str]]


class Runner(Protocol):
    """Plays flows to their end."""

    async def run(self, flow: Flow[T]) -> T: ...


class Grant(Protocol):
    """A way to get a token without a person.

    `issuer`: the only authorization server that may see the credentials.
    """

    client_id: str
    issuer: str | None
    #: Hosts that the user named, which may be at any address.
    hosts: tuple[str, ...]

    async def token(
        self, found: Discovered, scopes: Scopes, runner: Runner, prover: Prover | None
    ) -> TokenResponse: ...


class ClientCredentials:
    """A program with its own id, and a secret or key (RFC 6749 section 4.4)."""

    hosts: tuple[str, ...] = ()

    def __init__(
        self,
        client_id: str,
        secret: str | None = None,
        *,
        key: PrivateKey | None = None,
        issuer: str | None = None,
        token_endpoint_auth_method: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.issuer = issuer
        self._credentials = _credentials(client_id, secret, key, token_endpoint_auth_method)
        if secret is None and key is None:
            raise ValueError("client credentials are a secret or a key")

    async def token(self, found: Discovered, scopes: Scopes, runner: Runner, prover: Prover | None) -> TokenResponse:
        return await runner.run(client_credentials(found, self._credentials, scopes, prover=prover))


class WorkloadIdentity:
    """A program with a JWT of its platform, as an assertion (RFC 7523 section 2.1)."""

    hosts: tuple[str, ...] = ()

    def __init__(
        self,
        client_id: str,
        assertion: Supplied,
        *,
        secret: str | None = None,
        key: PrivateKey | None = None,
        issuer: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.issuer = issuer
        self._assertion = assertion
        self._credentials = _credentials(client_id, secret, key)

    async def token(self, found: Discovered, scopes: Scopes, runner: Runner, prover: Prover | None) -> TokenResponse:
        assertion = await supplied(self._assertion)
        return await runner.run(jwt_bearer(found, self._credentials, assertion, scopes, prover=prover))


class EnterpriseManaged:
    """A person whose company's identity provider decides what this client may use.

    The provider exchanges the person's ID token for an assertion (ID-JAG) that the server's authorization server takes
    instead of asking the person.
    """

    def __init__(
        self,
        client_id: str,
        secret: str | None = None,
        *,
        id_token: Supplied,
        provider: str,
        provider_token_endpoint: str,
        provider_client_id: str,
        provider_secret: str | None = None,
        key: PrivateKey | None = None,
        issuer: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.issuer = issuer
        self.hosts: tuple[str, ...] = tuple(filter(None, [urlsplit(provider_token_endpoint).hostname]))
        self._credentials = _credentials(client_id, secret, key)
        self._provider = AuthorizationServer(provider, provider_token_endpoint)
        self._provider_client = Registration(provider_client_id, provider_secret)
        self._id_token = id_token

    async def token(self, found: Discovered, scopes: Scopes, runner: Runner, prover: Prover | None) -> TokenResponse:
        id_token = await supplied(self._id_token)
        assertion = await runner.run(
            exchange_for_id_jag(self._provider, self._provider_client, id_token, found, scopes)
        )
        return await runner.run(jwt_bearer(found, self._credentials, assertion, scopes, prover=prover))


def _credentials(client_id: str, secret: str | None, key: PrivateKey | None, method: str | None = None) -> Credentials:
    if secret is not None and key is not None:
        raise ValueError("a client proves itself with a secret or with a key, not with both")
    return Registration(client_id, secret, method) if key is None else KeyCredentials(client_id, key)


async def supplied(what: Supplied) -> str:
    """Return a text, or what the function for it returns now."""
    if isinstance(what, str):
        return what
    found = what()
    return await found if isawaitable(found) else found
