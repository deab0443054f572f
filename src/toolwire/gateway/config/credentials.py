"""Credentials in the file: whose account acts at a server, and how it is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

from toolwire.auth.client.grants import ClientCredentials, Grant, WorkloadIdentity
from toolwire.auth.client.signing import PrivateKey
from toolwire.auth.flow.flows import ACCESS_TOKEN, ID_TOKEN
from toolwire.auth.vault.kinds import (
    IdentityAssertion,
    Kind,
    NoCredential,
    Passthrough,
    ServerOAuth,
    StaticSecret,
    TokenExchange,
    UserOAuth,
    UserSecret,
)
from toolwire.gateway.file_types import FilePath, Secret, Table, given

#: How many bytes the assertion of a platform may have.
_MAX_ASSERTION: Final = 64 * 1024


class NoCredentialTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="none"):
    """No credential: requests are sent without one."""


class StaticSecretTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="static_secret"):
    """One secret for all callers."""

    secret: Secret
    """The secret."""
    header: str = "Authorization"
    """The header that carries it."""
    scheme: str = "Bearer"
    """The word before the secret in the header; empty for none."""


class UserSecretTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="user_secret"):
    """A secret of each user, who enters it on the page of the gateway."""

    hint: str = ""
    """Tells users where they find it."""
    header: str = "Authorization"
    """The header that carries it."""
    scheme: str = "Bearer"
    """The word before the secret in the header; empty for none."""


class KeyTable(Table, kw_only=True, frozen=True):
    """The private key of a client (`private_key_jwt`)."""

    key: Secret
    """The key, as PEM or a JWK."""
    algorithm: str = "ES256"
    """The algorithm of its signatures."""
    key_id: str | None = None
    """The name of the key at the provider."""


class ProviderTable(Table, kw_only=True, frozen=True):
    """The authorization server of a credential, and the client that the gateway is there."""

    issuer: str | None = None
    """The authorization server. Its metadata says the rest."""
    token_endpoint: str | None = None
    """The token endpoint of an authorization server that publishes no metadata."""
    authorization_endpoint: str | None = None
    """Its authorization endpoint."""
    revocation_endpoint: str | None = None
    """Its revocation endpoint."""
    resource: str | None = None
    """The service that tokens are for; the address of the server by default."""
    client_id: str | None = None
    """The client. Without it, the gateway registers itself, where that is allowed."""
    client_secret: Secret | None = None
    """The secret of the client."""
    client_key: KeyTable | None = None
    """The key of the client, instead of a secret."""
    token_endpoint_auth_method: str | None = None
    """How the client proves itself, where the provider takes one way only."""
    scopes: list[str] = []
    """What the tokens are for."""
    accepts_fewer_scopes: bool = False
    """Whether tokens are used that the provider gave fewer scopes."""
    dpop: bool = False
    """Whether tokens are bound to a key (RFC 9449)."""
    parameters: dict[str, str] | None = None
    """Further parameters of the authorization request."""
    trusted_hosts: list[str] = []
    """Hosts of the provider that may be at private addresses."""
    accept_issuer: dict[str, str] | None = None
    """Issuers that are named, each with the other issuer that the metadata found there may name."""


class SignInTable(ProviderTable, kw_only=True, frozen=True):
    """The client by which the pages of the gateway sign users in."""


class UserOAuthTable(ProviderTable, kw_only=True, frozen=True, tag_field="kind", tag="user_oauth"):
    """The account of each user, who connects it once in a browser."""


class ClientCredentialsTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="client_credentials"):
    """A grant with the id and the secret, or the key, of the gateway."""

    client_id: str
    """The client."""
    secret: Secret | None = None
    """The secret of the client."""
    key: KeyTable | None = None
    """The key of the client, instead of a secret."""
    issuer: str | None = None
    """The only authorization server that may see them."""
    token_endpoint_auth_method: str | None = None
    """How the client proves itself, where the provider takes one way only."""


class WorkloadIdentityTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="workload_identity"):
    """A grant with the token that the platform writes into a file, such as that of a Kubernetes service account."""

    client_id: str
    """The client."""
    assertion_file: FilePath
    """The file. It is read each time, because the platform replaces the token."""
    secret: Secret | None = None
    """The secret of the client."""
    key: KeyTable | None = None
    """The key of the client, instead of a secret."""
    issuer: str | None = None
    """The only authorization server that may see them."""


class ServerOAuthTable(ProviderTable, kw_only=True, frozen=True, tag_field="kind", tag="server_oauth"):
    """The account of the gateway itself, for all callers."""

    grant: ClientCredentialsTable | WorkloadIdentityTable | None = None
    """How the gateway gets tokens without a person."""
    operators: list[str] = []
    """The subjects who may connect the account in a browser, instead of a grant."""


class TokenExchangeTable(ProviderTable, kw_only=True, frozen=True, tag_field="kind", tag="token_exchange"):
    """A token for the caller, in exchange for the token that the caller came with (RFC 8693)."""

    audience: str | None = None
    """The name of the service at the authorization server."""
    subject_token_type: str = ACCESS_TOKEN
    """The type of the token that is exchanged."""
    subject_issuers: list[str] = []
    """The providers of callers whose tokens are exchanged; all by default."""


class IdentityAssertionTable(ProviderTable, kw_only=True, frozen=True, tag_field="kind", tag="identity_assertion"):
    """A token for the caller, by an assertion of the company's identity provider (ID-JAG)."""

    provider: str
    """The identity provider, by its issuer."""
    provider_token_endpoint: str
    """The token endpoint of the identity provider."""
    provider_client_id: str
    """The client that the gateway is there."""
    provider_secret: Secret | None = None
    """The secret of that client."""
    subject_token_type: str = ID_TOKEN
    """The type of the token that the caller came with."""
    subject_issuers: list[str] = []
    """The providers of callers whose tokens are used; all by default."""


class PassthroughTable(Table, kw_only=True, frozen=True, tag_field="kind", tag="passthrough"):
    """The token that the caller came with, for a service of the same audience."""

    audience: str
    """The audience that the gateway and the server share."""


CredentialTable: TypeAlias = (
    NoCredentialTable
    | StaticSecretTable
    | UserSecretTable
    | UserOAuthTable
    | ServerOAuthTable
    | TokenExchangeTable
    | IdentityAssertionTable
    | PassthroughTable
)
_KINDS: Final[dict[type[Table], type[Any]]] = {
    NoCredentialTable: NoCredential,
    StaticSecretTable: StaticSecret,
    UserSecretTable: UserSecret,
    UserOAuthTable: UserOAuth,
    SignInTable: UserOAuth,
    ServerOAuthTable: ServerOAuth,
    TokenExchangeTable: TokenExchange,
    IdentityAssertionTable: IdentityAssertion,
    PassthroughTable: Passthrough,
}


def credential_of(table: CredentialTable) -> Kind:
    """Make the kind of credential that a table describes. Raise `ServerError` or `ValueError` for wrong settings."""
    options = given(table)
    if "client_key" in options:
        options["client_key"] = _key(options["client_key"])
    if "grant" in options:
        options["grant"] = _grant(options["grant"])
    made: Kind = _KINDS[type(table)](**options)
    return made


def sign_in_of(table: SignInTable) -> UserOAuth:
    """Make the client by which pages sign users in."""
    options = given(table)
    if "client_key" in options:
        options["client_key"] = _key(options["client_key"])
    return UserOAuth(**options)


def _grant(table: ClientCredentialsTable | WorkloadIdentityTable) -> Grant:
    options = given(table)
    if "key" in options:
        options["key"] = _key(options["key"])
    if isinstance(table, ClientCredentialsTable):
        return ClientCredentials(**options)
    path = Path(options.pop("assertion_file"))
    return WorkloadIdentity(assertion=lambda: _assertion(path), **options)


def _key(table: KeyTable) -> PrivateKey:
    return PrivateKey(table.key, algorithm=table.algorithm, key_id=table.key_id)


def _assertion(path: Path) -> str:
    with path.open(encoding="ascii") as file:
        return file.read(_MAX_ASSERTION).strip()
