"""The kinds of credentials: which account at another service, and who owns it.

A kind is settings alone. It holds no token of a user, opens no connection and looks at no clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from typing import Final, Self, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from toolwire.auth.client.grants import Grant, Supplied
from toolwire.auth.client.signing import KeyCredentials, PrivateKey
from toolwire.auth.flow.clients import Credentials, Registration
from toolwire.auth.flow.flows import ACCESS_TOKEN, ID_TOKEN
from toolwire.auth.flow.scopes import Scopes, clean_scopes
from toolwire.auth.flow.urls import checked_issuers, same_origin
from toolwire.auth.verify.fetch import checked_url
from toolwire.protocol.errors import ServerError
from toolwire.protocol.rounds import digest
from toolwire.util.text_lists import text_list

#: Scopes that say what the answer holds. Providers do not repeat them among the scopes that they granted.
NOT_GRANTED: Final = frozenset({"openid", "offline_access", "profile", "email"})
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
# RFC 9110: headers that say how a message is framed, or where it goes. A secret never stands in them.
_NOT_FOR_SECRETS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te"})


class NoCredential:
    """No credential: requests are sent without one."""

    is_per_user: bool = False

    @property
    def identity(self) -> str:
        return "none"


class _InHeader:
    """The header that a secret travels in."""

    def __init__(self, header: str, scheme: str) -> None:
        if _HEADER.fullmatch(header) is None or header.lower() in _NOT_FOR_SECRETS:
            raise ServerError(f"{header[:100]!r} is not a header for a secret")
        if scheme and _HEADER.fullmatch(scheme) is None:
            raise ServerError(f"{scheme[:100]!r} is not a scheme of the Authorization header")
        self.header: str = header.lower()
        self.scheme: str = scheme

    def headers(self, secret: str) -> dict[str, str]:
        return {self.header: f"{self.scheme} {secret}" if self.scheme else secret}


class StaticSecret(_InHeader):
    """One secret for all callers, such as an API key of the server itself.

    `secret` is a text, or a function that returns it when it is needed. `header` and `scheme` say how requests carry
    it; the default is `Authorization: Bearer ...`.
    """

    is_per_user: bool = False

    def __init__(self, secret: Supplied, *, header: str = "Authorization", scheme: str = "Bearer") -> None:
        super().__init__(header, scheme)
        if isinstance(secret, str):
            checked_secret(secret)
        self.secret = secret

    @property
    def identity(self) -> str:
        return "static"

    def __repr__(self) -> str:
        return "StaticSecret(...)"


class UserSecret(_InHeader):
    """A secret of each user, such as a personal API key.

    The user enters it on the page of the server.

    `hint` tells the user where to find it. `header` and `scheme` are those of `StaticSecret`.
    """

    is_per_user: bool = True

    def __init__(self, *, hint: str = "", header: str = "Authorization", scheme: str = "Bearer") -> None:
        super().__init__(header, scheme)
        self.hint = hint
        self.service: str = ""
        """The origin that the secret is for; empty for any (see `bind_to_origin`)."""

    @property
    def identity(self) -> str:
        return digest("user secret", self.header, *([self.service] if self.service else []))

    def __repr__(self) -> str:
        return "UserSecret()"


class Provider:
    """The authorization server of a credential, and this server's client there.

    * `issuer`: the authorization server. Its metadata says the rest.
    * `token_endpoint`, `authorization_endpoint`, `revocation_endpoint`: for one that publishes no metadata.
    * `resource`: the service that tokens are for (RFC 8707). Without `issuer` and endpoints, the metadata of the
      service names the authorization server. A gateway fills in the address of the server behind it.
    * `client_id`, `client_secret`, `client_key`, `token_endpoint_auth_method`: the client. Without an id, it registers
      itself, where that is allowed.
    * `scopes`: what the tokens are for. `accepts_fewer_scopes`: tokens that the provider gave fewer scopes are used.
    * `dpop`: tokens are bound to a key (RFC 9449), and unbound ones are refused.
    * `parameters`: further ones of the authorization request, such as `{"prompt": "select_account"}`.
    * `trusted_hosts`: hosts of the provider that may be at private addresses.
    * `accept_issuer`: issuers that are named, each with the other issuer that the metadata found there may name.
    """

    def __init__(
        self,
        issuer: str | None = None,
        *,
        token_endpoint: str | None = None,
        authorization_endpoint: str | None = None,
        revocation_endpoint: str | None = None,
        resource: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_key: PrivateKey | None = None,
        token_endpoint_auth_method: str | None = None,
        scopes: Iterable[str] = (),
        accepts_fewer_scopes: bool = False,
        dpop: bool = False,
        parameters: Mapping[str, str] | None = None,
        trusted_hosts: Collection[str] = (),
        accept_issuer: Mapping[str, str] | None = None,
    ) -> None:
        if client_id is None and (client_secret is not None or client_key is not None):
            raise ServerError("client_secret= and client_key= need client_id=")
        if client_secret is not None and client_key is not None:
            raise ServerError("a client proves itself with a secret or with a key, not with both")
        named = {
            "issuer": issuer,
            "token endpoint": token_endpoint,
            "authorization endpoint": authorization_endpoint,
            "revocation endpoint": revocation_endpoint,
            "resource": resource,
        }
        for what, url in named.items():
            if url is not None:
                checked_url(url, what)
        self.issuer = issuer
        self.token_endpoint = token_endpoint
        self.authorization_endpoint = authorization_endpoint
        self.revocation_endpoint = revocation_endpoint
        self.resource = resource
        self.client: Registration | None = (
            None if client_id is None else Registration(client_id, client_secret, token_endpoint_auth_method)
        )
        self._key = client_key
        self.scopes: Scopes = clean_scopes(text_list(scopes, "scopes="))
        self.accepts_fewer_scopes = accepts_fewer_scopes
        self.dpop = dpop
        self.parameters: Mapping[str, str] = dict(parameters or {})
        self.trusted_hosts: tuple[str, ...] = text_list(trusted_hosts, "trusted_hosts=")
        try:
            self.accept_issuer: Mapping[str, str] = checked_issuers(accept_issuer or {})
        except ValueError as error:
            raise ServerError(str(error)) from None
        self.service: str = ""
        """The origin that tokens are sent to; empty for any (see `bind_to_origin`)."""
        self.is_named: bool = True
        """Whether the operator vouches for the addresses. Otherwise only public addresses are used."""

    def found_at(
        self,
        *,
        issuer: str | None = None,
        token_endpoint: str | None = None,
        authorization_endpoint: str | None = None,
        is_named: bool,
    ) -> Self:
        """Return the same settings with the addresses that a description of the service names."""
        found = copy(self)
        named = {
            "issuer": issuer,
            "token_endpoint": token_endpoint,
            "authorization_endpoint": authorization_endpoint,
        }
        for attribute, url in named.items():
            if url is not None:
                setattr(found, attribute, checked_url(url, attribute.replace("_", " ")))
        found.is_named = is_named
        return found

    @property
    def urls(self) -> list[str]:
        """The addresses that the operator named."""
        named = (self.issuer, self.token_endpoint, self.authorization_endpoint, self.resource)
        return [url for url in named if url is not None]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that may be at any address, because the operator named them."""
        named = (urlsplit(url).hostname for url in self.urls) if self.is_named else ()
        return (*self.trusted_hosts, *(host for host in named if host))

    @property
    def identity(self) -> str:
        """A text that changes when tokens come from another issuer, or are for another service."""
        client = None if self.client is None else self.client.client_id
        # A resource at the origin of the service names the origin already.
        is_named = not self.service or (self.resource is not None and same_origin(self.resource, self.service))
        service = [] if is_named else [self.service]
        return digest(type(self).__name__, self.issuer, self.token_endpoint, self.resource, client, self.dpop, *service)

    def credentials(self, client: Registration) -> Credentials:
        """Return what proves a client at the token endpoint."""
        return client if self._key is None else KeyCredentials(client.client_id, self._key)

    def lacks(self, granted: Scopes) -> Scopes:
        """Return the scopes that are needed and were not granted."""
        if self.accepts_fewer_scopes:
            return ()
        return tuple(scope for scope in self.scopes if scope not in NOT_GRANTED and scope not in granted)

    def check(self, name: str) -> None:
        """Raise `ServerError` for settings with which no token can be obtained."""
        if not self.urls:
            raise ServerError(f"The credential {name!r} needs issuer=, token_endpoint= or resource=")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer or self.token_endpoint or self.resource!r})"


class ProviderOptions(TypedDict, total=False):
    """The options of `Provider` besides the issuer."""

    token_endpoint: str | None
    authorization_endpoint: str | None
    revocation_endpoint: str | None
    resource: str | None
    client_id: str | None
    client_secret: str | None
    client_key: PrivateKey | None
    token_endpoint_auth_method: str | None
    scopes: Iterable[str]
    accepts_fewer_scopes: bool
    dpop: bool
    parameters: Mapping[str, str] | None
    trusted_hosts: Collection[str]
    accept_issuer: Mapping[str, str] | None


class UserOAuth(Provider):
    """The account of each user.

    Users connect it once, in their browser; then it is kept, sealed.
    """

    is_per_user: bool = True

    def check(self, name: str) -> None:
        super().check(name)
        if self.token_endpoint is not None and self.authorization_endpoint is None:
            raise ServerError(f"The credential {name!r} needs authorization_endpoint=, too")


class ServerOAuth(Provider):
    """The account of the server itself, for all callers.

    With `grant` (`ClientCredentials`, `WorkloadIdentity`), no person has to sign in. Otherwise one of the `operators`,
    who are subjects of the server's own authorization, connects it once in a browser.
    """

    is_per_user: bool = False

    def __init__(
        self,
        issuer: str | None = None,
        *,
        grant: Grant | None = None,
        operators: Collection[str] = (),
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(issuer, **options)
        operators = text_list(operators, "operators=")
        if (grant is None) == (not operators):
            raise ServerError("ServerOAuth takes grant=, or the operators= who may connect it")
        if grant is not None and self.client is not None:
            raise ServerError("a grant has a client of its own: use grant= or client_id=")
        self.grant = grant
        self.operators: frozenset[str] = frozenset(operators)

    @property
    def identity(self) -> str:
        return digest(super().identity, None if self.grant is None else self.grant.client_id)

    @property
    def hosts(self) -> tuple[str, ...]:
        return super().hosts if self.grant is None else (*super().hosts, *self.grant.hosts)


class TokenExchange(Provider):
    """A token for the caller, in exchange for the caller's own token (RFC 8693).

    The authorization server has to accept the tokens that callers bring. Behind an `OAuthProxy`, the token of its
    provider is exchanged, which the proxy keeps sealed inside its own. `audience` names the service, where the
    authorization server does not know it by its `resource`. `subject_issuers` are the providers of principals whose
    tokens are exchanged; name them where a server takes tokens of several.
    """

    is_per_user: bool = True

    def __init__(
        self,
        issuer: str | None = None,
        *,
        audience: str | None = None,
        subject_token_type: str = ACCESS_TOKEN,
        subject_issuers: Collection[str] = (),
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(issuer, **options)
        self.audience = audience
        self.subject_issuers: frozenset[str] = frozenset(text_list(subject_issuers, "subject_issuers="))
        self.subject_token_type = subject_token_type

    @property
    def identity(self) -> str:
        return digest(super().identity, self.audience, self.subject_token_type)

    def check(self, name: str) -> None:
        super().check(name)
        if self.client is None:
            raise ServerError(f"The credential {name!r} needs client_id=: an exchange is for known clients")


class IdentityAssertion(Provider):
    """A token for the caller, by an assertion of the company's identity provider (ID-JAG, enterprise-managed).

    `provider_token_endpoint` is the token endpoint of the identity provider, where this server is `provider_client_id`.
    It takes the token of the caller, of the type `subject_token_type`. `issuer` is the authorization server of the
    service, which trusts the identity provider. `subject_issuers` are those of `TokenExchange`.
    """

    is_per_user: bool = True

    def __init__(
        self,
        issuer: str | None = None,
        *,
        provider: str,
        provider_token_endpoint: str,
        provider_client_id: str,
        provider_secret: str | None = None,
        subject_token_type: str = ID_TOKEN,
        subject_issuers: Collection[str] = (),
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(issuer, **options)
        self.provider = provider
        self.provider_token_endpoint: str = checked_url(provider_token_endpoint, "provider_token_endpoint")
        self.provider_client: Registration = Registration(provider_client_id, provider_secret)
        self.subject_issuers: frozenset[str] = frozenset(text_list(subject_issuers, "subject_issuers="))
        self.subject_token_type = subject_token_type

    @property
    def identity(self) -> str:
        return digest(super().identity, self.provider_token_endpoint, self.provider_client.client_id)

    @property
    def hosts(self) -> tuple[str, ...]:
        return (*super().hosts, *filter(None, [urlsplit(self.provider_token_endpoint).hostname]))

    def check(self, name: str) -> None:
        super().check(name)
        if self.client is None:
            raise ServerError(f"The credential {name!r} needs client_id=: an assertion is for a known client")


class Passthrough:
    """The token that the caller came with, for a service of the same audience.

    2025-06-18 basic/authorization, access token privilege restriction: a token is for the server that it was issued
    for. So the token of a caller is handed on only where it names `audience` among its own.
    """

    is_per_user: bool = True

    def __init__(self, audience: str) -> None:
        if not audience:
            raise ServerError("Passthrough needs the audience that this server and the other one share")
        self.audience = audience

    @property
    def identity(self) -> str:
        return digest("passthrough", self.audience)

    def __repr__(self) -> str:
        return f"Passthrough({self.audience!r})"


Kind: TypeAlias = (
    NoCredential | StaticSecret | UserSecret | ServerOAuth | UserOAuth | TokenExchange | IdentityAssertion | Passthrough
)
KINDS: Final = (
    NoCredential,
    StaticSecret,
    UserSecret,
    ServerOAuth,
    UserOAuth,
    TokenExchange,
    IdentityAssertion,
    Passthrough,
)
#: The kinds that need the token with which the caller came.
WITH_SUBJECT_TOKEN: Final = (TokenExchange, IdentityAssertion, Passthrough)


def bind_to_origin(kind: Kind, service: str) -> Kind:
    """Return a kind whose accounts are used for one origin only.

    What a user connected for the service at one origin is not sent to another origin that gets its name.
    """
    if not isinstance(kind, UserSecret | Provider):
        return kind
    bound = copy(kind)
    bound.service = service
    return bound


def checked_secret(secret: str) -> str:
    """Return a secret that a header can carry; raise `ServerError` for any other."""
    # A line break in a secret would begin another header.
    if not 0 < len(secret) <= 8_192 or not secret.isascii() or not secret.isprintable() or secret != secret.strip():
        raise ServerError("A secret is visible ASCII, without spaces around it")
    return secret
