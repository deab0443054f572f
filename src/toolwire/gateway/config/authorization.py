"""The authorization in front of a gateway, in the file: who is let in, and how callers sign in."""

from __future__ import annotations

from typing import Any, Final

from toolwire.auth import presets
from toolwire.auth.jose import ALGORITHMS
from toolwire.auth.principal import Principal
from toolwire.auth.resource import ResourceServer
from toolwire.auth.verify.claims import SKEW, SUBJECT_CLAIMS
from toolwire.auth.verify.github import API, PROVIDER, SECONDS
from toolwire.auth.verify.introspection import Introspection
from toolwire.auth.verify.keys import PROVIDER as API_KEY
from toolwire.auth.verify.keys import Anonymous, ApiKeys
from toolwire.auth.verify.token_cache import LONGEST
from toolwire.auth.verify.verifier import Chain, Verifier
from toolwire.gateway.config.credentials import SignInTable, sign_in_of
from toolwire.gateway.file_types import Secret, Table, given
from toolwire.protocol.errors import ServerError


class ApiKeyTable(Table, kw_only=True, frozen=True):
    """An API key. Its name in the file is the subject of the caller."""

    key: Secret
    """The key, or `sha256:` and its digest."""
    scopes: list[str] = []
    """The scopes of the caller."""
    username: str | None = None
    """A name for people to read; the subject by default."""


class ApiKeysTable(Table, kw_only=True, frozen=True):
    """API keys, and whose they are."""

    keys: dict[str, ApiKeyTable]
    """The keys, by the subject of their caller."""
    header: str | None = None
    """A header in which clients may send a key, beside `Authorization`."""


class JwtTable(Table, kw_only=True, frozen=True):
    """Signed tokens of an issuer. The issuer is published as the authorization server, unless another one is named."""

    issuer: str | list[str]
    """The `iss` of the tokens."""
    audience: str | list[str]
    """The `aud` that the issuer writes into tokens for this gateway."""
    jwks_uri: str | None = None
    """The address of the keys of the issuer; by default its metadata names it."""
    keys: dict[str, Any] | None = None
    """A key set (`{"keys": [...]}`) instead."""
    algorithms: tuple[str, ...] = ALGORITHMS
    """The algorithms that are accepted."""
    other_audiences: list[str] = []
    """Whom a token may be meant for besides this gateway."""
    scope_claims: tuple[str, ...] = ("scope", "scp")
    """The claims with the scopes."""
    subject_claims: tuple[str, ...] = SUBJECT_CLAIMS
    """The claims that say who the caller is; the first one present counts."""
    skew: float = SKEW
    """Seconds by which clocks may differ."""
    remember: float = LONGEST
    """Seconds for which a token that was verified is known."""


class IntrospectionTable(Table, kw_only=True, frozen=True):
    """Tokens about which the authorization server is asked (RFC 7662)."""

    endpoint: str
    """The introspection endpoint."""
    audience: str | list[str]
    """The `aud` that the answer needs."""
    client_id: str | None = None
    """The client that the gateway is there."""
    client_secret: Secret | None = None
    """The secret of the client."""
    issuer: str | None = None
    """The issuer of the tokens, which is published as the authorization server."""
    other_audiences: list[str] = []
    """Whom a token may be meant for besides this gateway."""
    subject_claims: tuple[str, ...] = SUBJECT_CLAIMS
    """The members that say who the caller is; the first one present counts."""
    skew: float = SKEW
    """Seconds by which clocks may differ."""
    remember: float = LONGEST
    """Seconds for which an answer is kept."""


class AnonymousTable(Table, kw_only=True, frozen=True):
    """Lets everybody in whom nothing before it knows, as the same caller. For trying things out."""

    subject: str = "anonymous"
    """The subject of this caller."""
    scopes: list[str] = []
    """The scopes of this caller."""


class EntraTable(Table, kw_only=True, frozen=True):
    """Microsoft Entra ID."""

    tenant: str
    """The id of the tenant."""
    client_id: str
    """The application that stands for this gateway."""
    client_secret: Secret | None = None
    """Its secret; needed with `proxy`."""
    app_id_uri: str | None = None
    """The URI of the application; `api://` and its id by default."""
    proxy: bool = False
    """Whether the gateway itself signs callers in."""
    login: str = presets.MICROSOFT
    """The address of Entra ID, for national clouds."""


class GoogleTable(Table, kw_only=True, frozen=True):
    """Google."""

    client_id: str | list[str]
    """The client that tokens are for."""
    client_secret: Secret | None = None
    """Its secret; needed with `proxy`."""
    proxy: bool = False
    """Whether the gateway itself signs callers in."""


class Auth0Table(Table, kw_only=True, frozen=True):
    """Auth0."""

    domain: str
    """The domain of the tenant."""
    audience: str
    """The identifier of the API."""


class KeycloakTable(Table, kw_only=True, frozen=True):
    """Keycloak."""

    url: str
    """The address of Keycloak."""
    realm: str
    """The realm."""
    audience: str
    """The `aud` that the audience mapper writes into tokens for this gateway."""


class GithubTable(Table, kw_only=True, frozen=True):
    """GitHub."""

    client_id: str | None = None
    """The OAuth application whose tokens are accepted."""
    client_secret: Secret | None = None
    """Its secret."""
    users: list[str] | None = None
    """Only these logins."""
    organization: str | None = None
    """Only the members of this organization."""
    any_app: bool = False
    """Whether the tokens of every application are accepted."""
    remember: float = SECONDS
    """Seconds for which an answer is kept."""
    proxy: bool = False
    """Whether the gateway itself signs callers in."""
    site: str = PROVIDER
    """The address of GitHub, for GitHub Enterprise."""
    api: str = API
    """The address of its API."""


class ProxyTable(Table, kw_only=True, frozen=True):
    """A provider at which the gateway itself signs callers in. `jwt` or `introspection` verifies its tokens."""

    authorize_url: str
    """The authorization endpoint of the provider."""
    token_url: str
    """The token endpoint of the provider."""
    client_id: str
    """The client that the gateway is there."""
    client_secret: Secret
    """The secret of the client."""
    parameters: dict[str, str] = {}
    """Further parameters of the authorization request."""


class AuthTable(Table, kw_only=True, frozen=True):
    """The callers that are let in over HTTP. Several verifiers are asked in the order of this list."""

    api_keys: ApiKeysTable | None = None
    """API keys."""
    jwt: JwtTable | list[JwtTable] | None = None
    """Signed tokens, of one issuer or of several."""
    introspection: IntrospectionTable | None = None
    """Tokens about which the authorization server is asked."""
    anonymous: AnonymousTable | None = None
    """Lets everybody in."""
    entra: EntraTable | None = None
    """Microsoft Entra ID."""
    google: GoogleTable | None = None
    """Google."""
    auth0: Auth0Table | None = None
    """Auth0."""
    keycloak: KeycloakTable | None = None
    """Keycloak."""
    github: GithubTable | None = None
    """GitHub."""
    proxy: ProxyTable | None = None
    """A provider at which the gateway itself signs callers in, because MCP clients cannot register there."""
    redirect_schemes: list[str] | None = None
    """Private schemes to which a proxy may redirect clients, such as `cursor`."""
    scopes: list[str] | None = None
    """The scopes that every request needs."""
    scopes_supported: list[str] | None = None
    """What the metadata names; `scopes` by default."""
    authorization_servers: list[str] | None = None
    """Where tokens come from, by issuer; those of `jwt` and `introspection` by default."""
    resource: str | None = None
    """The public address of the endpoint; `http.public_url` and the path by default."""
    resource_name: str | None = None
    """The name of the gateway for people who sign in."""
    documentation: str | None = None
    """The address of a page about the gateway."""
    allow: list[str] | None = None
    """Only callers with these subjects."""
    allow_usernames: list[str] | None = None
    """Callers with these user names, too, in any case of letters; for `api_keys` and `github`."""
    enabled: bool | None = None
    """False lets everybody in, as if there were no authorization."""
    sign_in: SignInTable | None = None
    """The client by which the pages of the gateway sign users in at the authorization server."""


PRESETS: Final[tuple[str, ...]] = ("entra", "google", "auth0", "keycloak", "github")
_VERIFIERS: Final = ("api_keys", "jwt", "introspection", "anonymous")
_PROXY_ONLY: Final = "redirect_schemes"


def auth_of(table: AuthTable) -> ResourceServer:
    """Make the resource server that a table describes. Raise `ServerError` for one that lets nobody in."""
    options = given(table)
    chosen = [name for name in PRESETS if name in options]
    signs_in = "proxy" in options or any(getattr(options[name], "proxy", False) for name in chosen)
    if _PROXY_ONLY in options and not signs_in:
        raise ServerError("redirect_schemes is for a proxy")
    if "sign_in" in options:
        options["sign_in"] = sign_in_of(options["sign_in"])
    verifiers = [verifier for name in _VERIFIERS if name in options for verifier in _verifiers(options.pop(name))]
    if "proxy" in options:
        return _proxy(options.pop("proxy"), verifiers, chosen, options)
    if len(chosen) > 1 or (signs_in and verifiers):
        raise ServerError(f"{chosen[0]} stands alone here: leave the others out")
    if chosen:
        if "authorization_servers" in options:
            raise ServerError(f"{chosen[0]} is the authorization server: leave authorization_servers out")
        made = _preset(chosen[0], options.pop(chosen[0]), options)
        if verifiers:
            made.verifier = Chain([made.verifier, *verifiers])
            made.check_usernames()
        return made
    if not verifiers:
        raise ServerError(f"nothing says who is let in: use {', '.join((*_VERIFIERS, *PRESETS))}")
    options.setdefault("authorization_servers", _issuers(table))
    return ResourceServer(verifiers, **options)


def _verifiers(table: ApiKeysTable | JwtTable | IntrospectionTable | AnonymousTable | list[JwtTable]) -> list[Verifier]:
    if isinstance(table, list):
        return [verifier for each in table for verifier in _verifiers(each)]
    options = given(table)
    if isinstance(table, ApiKeysTable):
        return [_api_keys(table)]
    if isinstance(table, JwtTable):
        # Imported here because it needs an optional package.
        from toolwire.auth.verify.jwt import JWT

        return [JWT(options.pop("issuer"), **options)]
    if isinstance(table, IntrospectionTable):
        return [Introspection(options.pop("endpoint"), **options)]
    return [Anonymous(Principal(table.subject, "anonymous", scopes=frozenset(table.scopes)))]


def _api_keys(table: ApiKeysTable) -> ApiKeys:
    keys: dict[str, str | Principal] = {}
    for subject, each in table.keys.items():
        if each.key in keys:
            raise ServerError(f"the API key of {subject!r} is that of another caller, too")
        keys[each.key] = Principal(subject, API_KEY, each.username or subject, frozenset(each.scopes))
    return ApiKeys(keys, header=table.header)


def _issuers(table: AuthTable) -> list[str]:
    signed = table.jwt if isinstance(table.jwt, list) else [table.jwt] if table.jwt is not None else []
    named = [issuer for each in signed for issuer in ([each.issuer] if isinstance(each.issuer, str) else each.issuer)]
    if table.introspection is not None and table.introspection.issuer is not None:
        named.append(table.introspection.issuer)
    return named


def _preset(name: str, table: Any, options: dict[str, Any]) -> ResourceServer:
    make = getattr(presets, name)
    made: ResourceServer = make(**given(table), **options)
    return made


def _proxy(table: ProxyTable, verifiers: list[Verifier], chosen: list[str], options: dict[str, Any]) -> ResourceServer:
    from toolwire.auth.proxy.proxy import OAuthProxy, Upstream

    if chosen or len(verifiers) != 1:
        raise ServerError("proxy needs jwt or introspection, one of them, which verifies the tokens of the provider")
    return OAuthProxy(verifiers[0], Upstream(**given(table)), **options)
