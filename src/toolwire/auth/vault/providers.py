"""Requests of the vault to authorization servers, with cached discovery."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from msgspec import structs

from toolwire.auth.client.guarded import Fetcher
from toolwire.auth.client.signing import ProofKey
from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.authorization import Attempt, begin, read_code
from toolwire.auth.flow.clients import Naming, Registration, register
from toolwire.auth.flow.discovery import discover, find_server
from toolwire.auth.flow.flows import (
    exchange_code,
    exchange_for_id_jag,
    exchange_token,
    jwt_bearer,
    refresh,
    revoke,
)
from toolwire.auth.flow.messages import Flow
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered
from toolwire.auth.flow.scopes import Scopes, union, with_offline_access
from toolwire.auth.flow.tokens import Token, TokenResponse
from toolwire.auth.flow.urls import Reach, origin_url
from toolwire.auth.vault.kinds import IdentityAssertion, Provider, ServerOAuth, TokenExchange

T = TypeVar("T")

#: For how many seconds the metadata of an authorization server counts.
FOUND_SECONDS: Final = 3600.0


def find(provider: Provider) -> Flow[Discovered]:
    """Find the authorization server of a provider: by its endpoints, its issuer, or the resource."""
    if provider.token_endpoint is not None:
        server = AuthorizationServer(
            provider.issuer or origin_url(provider.token_endpoint),
            provider.token_endpoint,
            provider.authorization_endpoint,
            revocation_endpoint=provider.revocation_endpoint,
            # The operator vouches for it in the place of metadata.
            code_challenge_methods_supported=["S256"],
            # Servers from before RFC 8414 read the secret in the form.
            token_endpoint_auth_methods_supported=["client_secret_post"],
        )
        return Discovered(server, provider.resource or "")
    if provider.resource is not None:
        return (
            yield from discover(provider.resource, None, issuer=provider.issuer, accept_issuer=provider.accept_issuer)
        )
    if provider.issuer is None:
        raise SignInFailed("The settings name no authorization server")
    found = yield from _find_issuer(provider, provider.issuer)
    if found is None:
        raise SignInFailed("The authorization server publishes no metadata", "name its endpoints")
    return Discovered(found, "")


def _find_issuer(provider: Provider, issuer: str) -> Flow[AuthorizationServer | None]:
    accepted = [provider.accept_issuer[issuer]] if issuer in provider.accept_issuer else []
    return (yield from find_server(issuer, accepted=accepted))


class ProviderClient:
    """This server as a client of one authorization server."""

    def __init__(
        self,
        provider: Provider,
        *,
        naming: Naming,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider = provider
        self._naming = naming
        self._tls = tls
        self._clock = clock
        self._found: tuple[float, Discovered] | None = None

    def _fetcher(self) -> Fetcher:
        return Fetcher(self._reach, tls=self._tls)

    @property
    def _reach(self) -> Reach:
        return Reach(self.provider.urls[0] if self.provider.is_named else None, self.provider.hosts)

    def _find(self) -> Flow[Discovered]:
        return find(self.provider)

    async def found(self, fetcher: Fetcher) -> Discovered:
        now = self._clock()
        if self._found is None or self._found[0] <= now:
            self._found = (now + FOUND_SECONDS, await fetcher.run(self._find()))
        return self._found[1]

    async def _run(self, make: Callable[[Discovered], Flow[T]]) -> tuple[T, Discovered]:
        async with self._fetcher() as fetcher:
            found = await self.found(fetcher)
            return await fetcher.run(make(found)), found

    # --- with a person ---

    async def register(self, redirect_uri: str) -> Registration:
        """Register this server as a client."""
        scopes = self.provider.scopes
        made, _ = await self._run(lambda found: register(found.server, self._naming, redirect_uri, scopes))
        return made

    async def begin(self, client: Registration, redirect_uri: str, scopes: Scopes) -> Attempt:
        """Begin the sign-in of a person.

        The secret of the client is not part of the attempt, which is stored.
        """
        async with self._fetcher() as fetcher:
            found = await self.found(fetcher)
        asked = with_offline_access(union(self.provider.scopes, scopes), found.server.scopes_supported)
        attempt = begin(
            found,
            client,
            redirect_uri,
            asked,
            reach=self._reach,
            random=secrets.token_bytes,
            now=self._clock(),
            server_url=found.resource,
            extra=self.provider.parameters,
            send_resource=bool(found.resource),
        )
        return structs.replace(attempt, client=structs.replace(client, client_secret=None))

    async def redeem(
        self, attempt: Attempt, client: Registration, parameters: Mapping[str, str], prover: ProofKey | None
    ) -> TokenResponse:
        """Exchange the code in the answer to an attempt."""
        code = read_code(attempt, parameters, self._clock())
        flow = exchange_code(
            attempt,
            self.provider.credentials(client),
            code,
            prover=prover,
            send_resource=bool(attempt.found.resource),
        )
        async with self._fetcher() as fetcher:
            return await fetcher.run(flow)

    async def refresh(self, client: Registration, issuer: str, token: str, prover: ProofKey | None) -> TokenResponse:
        """Exchange a refresh token, only at the issuer that gave it."""

        def flow(found: Discovered) -> Flow[TokenResponse]:
            if found.issuer != issuer:
                # 2026-07-28 basic/authorization/client-registration: nothing of the old server goes to the new one.
                raise SignInFailed("The service uses another authorization server now")
            held = Token("", refresh_token=token)
            credentials = self.provider.credentials(client)
            return refresh(found, credentials, held, prover=prover, send_resource=bool(found.resource))

        response, _ = await self._run(flow)
        return response

    async def revoke(self, client: Registration, token: str, hint: str) -> None:
        await self._run(lambda found: revoke(found.server, self.provider.credentials(client), token, hint))

    # --- without a person ---

    async def granted(self, provider: ServerOAuth, scopes: Scopes, prover: ProofKey | None) -> TokenResponse:
        """Get a token for this server itself."""
        if provider.grant is None:
            raise SignInFailed("An operator of this server has to connect the account")
        async with self._fetcher() as fetcher:
            return await provider.grant.token(await self.found(fetcher), scopes, fetcher, prover)

    async def exchanged(
        self, provider: TokenExchange, subject_token: str, scopes: Scopes, prover: ProofKey | None
    ) -> TokenResponse:
        """Exchange the token of a caller."""
        client = _given_client(provider)
        response, _ = await self._run(
            lambda found: exchange_token(
                found,
                provider.credentials(client),
                subject_token,
                scopes,
                subject_token_type=provider.subject_token_type,
                audience=provider.audience,
                prover=prover,
            )
        )
        return response

    async def asserted(
        self, provider: IdentityAssertion, subject_token: str, scopes: Scopes, prover: ProofKey | None
    ) -> TokenResponse:
        """Have the identity provider vouch for a caller, and get a token for that."""
        client = _given_client(provider)
        identity_provider = AuthorizationServer(provider.provider, provider.provider_token_endpoint)
        async with self._fetcher() as fetcher:
            found = await self.found(fetcher)
            assertion = await fetcher.run(
                exchange_for_id_jag(
                    identity_provider,
                    provider.provider_client,
                    subject_token,
                    found,
                    scopes,
                    subject_token_type=provider.subject_token_type,
                )
            )
            credentials = provider.credentials(client)
            return await fetcher.run(jwt_bearer(found, credentials, assertion, scopes, prover=prover))


class FrontClient(ProviderClient):
    """This server as a client of the authorization server that its own callers use.

    The resource is this server itself, whose metadata need not be fetched.
    """

    def _find(self) -> Flow[Discovered]:
        if self.provider.token_endpoint is not None or self.provider.issuer is None:
            return (yield from find(self.provider))
        server = yield from _find_issuer(self.provider, self.provider.issuer)
        if server is None:
            raise SignInFailed("The authorization server publishes no metadata", "name its endpoints")
        return Discovered(server, self.provider.resource or "")


def _given_client(provider: Provider) -> Registration:
    if provider.client is None:
        raise SignInFailed("This needs a client that is registered by hand", "give it as client_id=")
    return provider.client
