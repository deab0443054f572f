"""Resource servers for five providers, with what is peculiar to each written down once.

With `proxy=True` the server itself signs callers in at the provider (see `proxy`). That is the way for Entra ID, Google
and GitHub, where MCP clients can neither register nor be known by a metadata document.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from toolwire.auth.resource import ResourceServer
from toolwire.auth.verify import github as verify_github
from toolwire.auth.verify import google as verify_google
from toolwire.auth.verify.fetch import ProviderAnswer, checked_url, fetch
from toolwire.auth.verify.github import GitHub
from toolwire.auth.verify.google import Google
from toolwire.auth.verify.jwt import JWT
from toolwire.protocol.errors import ServerError

Fetch = Callable[..., Awaitable[ProviderAnswer]]

MICROSOFT: Final = "https://login.microsoftonline.com"
_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def entra(
    tenant: str,
    client_id: str,
    client_secret: str | None = None,
    *,
    app_id_uri: str | None = None,
    scopes: Iterable[str] = (),
    proxy: bool = False,
    login: str = MICROSOFT,
    fetch: Fetch = fetch,
    **options: Any,
) -> ResourceServer:
    """Microsoft Entra ID, for one tenant and the application registration of this server.

    `client_id` is the id of that registration.

    * Whether tokens have the v1.0 or the v2.0 form is a setting of the registration, null means v1.0; the two differ in
      issuer and audience, so both are accepted
      (https://learn.microsoft.com/en-us/entra/identity-platform/access-tokens#token-formats).
    * A scope is asked for as `api://<client id>/<scope>` and granted as `<scope>`, in `scp`; applications that act for
      themselves have `roles` instead
      (https://learn.microsoft.com/en-us/entra/identity-platform/access-token-claims-reference).
    * There is no dynamic registration, and `resource` is refused beside `scope` (AADSTS9010010)
      (https://learn.microsoft.com/en-us/entra/identity-platform/v2-oauth2-auth-code-flow).
    """
    if _GUID.fullmatch(tenant) is None:
        # `common` and the like let in every tenant there is, and the issuer has the id, not the name.
        raise ServerError("tenant= is the id of one tenant, as in 9188040d-6c67-4c5b-b112-36a304b66dad")
    prefix = (app_id_uri or f"api://{client_id}").rstrip("/")
    base = f"{checked_url(login, 'address of Entra ID').rstrip('/')}/{tenant}"
    issuers = [f"{base}/v2.0", f"https://sts.windows.net/{tenant}/"]
    verifier = JWT(
        issuers,
        audience=[client_id, prefix],
        jwks_uri=f"{base}/discovery/v2.0/keys",
        scope_claims=("scp", "roles"),
        fetch=fetch,
    )

    def advertise(scope: str) -> str:
        return scope if "/" in scope or scope in _OPENID else f"{prefix}/{scope}"

    common: dict[str, Any] = {"scopes": scopes, "advertise": advertise, **options}
    if not proxy:
        return ResourceServer(verifier, authorization_servers=[issuers[0]], **common)
    from toolwire.auth.proxy.proxy import OAuthProxy, Upstream

    upstream = Upstream(
        authorize_url=f"{base}/oauth2/v2.0/authorize",
        token_url=f"{base}/oauth2/v2.0/token",
        client_id=client_id,
        client_secret=_needed(client_secret),
        scope_text=lambda wanted: " ".join([*map(advertise, sorted(wanted)), "offline_access"]),
        fetch=fetch,
    )
    return OAuthProxy(verifier, upstream, **{**common, "advertise": str})


def google(
    client_id: str | Sequence[str],
    client_secret: str | None = None,
    *,
    scopes: Iterable[str] = ("openid", "email"),
    proxy: bool = False,
    endpoints: Sequence[str] = (
        "https://accounts.google.com/o/oauth2/v2/auth",
        "https://oauth2.googleapis.com/token",
        verify_google.TOKEN_INFO,
    ),
    fetch: Fetch = fetch,
    **options: Any,
) -> ResourceServer:
    """Google.

    * Access tokens are opaque and know no resource: `tokeninfo` is asked, and its `aud` is the client
      (https://developers.google.com/identity/protocols/oauth2).
    * `email` and `profile` are granted under their full addresses
      (https://developers.google.com/identity/protocols/oauth2/scopes#google-sign-in).
    * A refresh token comes only with `access_type=offline`, and only at the first consent unless `prompt=consent`
      (https://developers.google.com/identity/protocols/oauth2/web-server#offline).
    """
    authorize_url, token_url, token_info = endpoints
    verifier = Google(client_id, endpoint=token_info, fetch=fetch)
    if not proxy:
        return ResourceServer(verifier, authorization_servers=[verify_google.ISSUER], scopes=scopes, **options)
    from toolwire.auth.proxy.proxy import OAuthProxy, Upstream

    upstream = Upstream(
        authorize_url=authorize_url,
        token_url=token_url,
        client_id=client_id if isinstance(client_id, str) else client_id[0],
        client_secret=_needed(client_secret),
        parameters={"access_type": "offline", "prompt": "consent"},
        includes=verify_google.SAME_SCOPES,
        fetch=fetch,
    )
    return OAuthProxy(verifier, upstream, scopes=scopes, **options)


def auth0(
    domain: str, audience: str, *, scopes: Iterable[str] = (), fetch: Fetch = fetch, **options: Any
) -> ResourceServer:
    """Auth0, for the API whose identifier is `audience`.

    * The issuer ends with a slash (https://auth0.com/docs/secure/tokens/access-tokens/access-token-profiles).
    * With `openid` among the scopes, tokens are for the user information endpoint as well
      (https://auth0.com/docs/secure/tokens/access-tokens/get-access-tokens#multiple-audiences).
    * With role-based access control, what a user may do is in `permissions`
      (https://auth0.com/docs/get-started/apis/enable-role-based-access-control-for-apis).
    """
    base = checked_url(domain if "://" in domain else f"https://{domain}", "domain of Auth0").rstrip("/")
    verifier = JWT(
        f"{base}/",
        audience=audience,
        jwks_uri=f"{base}/.well-known/jwks.json",
        other_audiences=[f"{base}/userinfo"],
        scope_claims=("scope", "permissions"),
        fetch=fetch,
    )
    return ResourceServer(verifier, authorization_servers=[f"{base}/"], scopes=scopes, **options)


def keycloak(
    url: str, realm: str, audience: str, *, scopes: Iterable[str] = (), fetch: Fetch = fetch, **options: Any
) -> ResourceServer:
    """Keycloak, for one realm.

    * Tokens are for this server only with an audience mapper, or a client scope that has one; otherwise, and beside it,
      they are for `account` (https://www.keycloak.org/docs/latest/server_admin/#_audience).
    * The keys are under `protocol/openid-connect/certs`, encryption keys among them
      (https://www.keycloak.org/securing-apps/oidc-layers).
    """
    issuer = f"{checked_url(url, 'address of Keycloak').rstrip('/')}/realms/{realm}"
    verifier = JWT(
        issuer,
        audience=audience,
        jwks_uri=f"{issuer}/protocol/openid-connect/certs",
        other_audiences=["account"],
        fetch=fetch,
    )
    return ResourceServer(verifier, authorization_servers=[issuer], scopes=scopes, **options)


def github(
    client_id: str | None = None,
    client_secret: str | None = None,
    *,
    users: Iterable[str] | None = None,
    organization: str | None = None,
    any_app: bool = False,
    remember: float = verify_github.SECONDS,
    scopes: Iterable[str] = ("read:user",),
    proxy: bool = False,
    site: str = verify_github.PROVIDER,
    api: str = verify_github.API,
    fetch: Fetch = fetch,
    **options: Any,
) -> ResourceServer:
    """GitHub.

    * Tokens are opaque and name no audience; what takes its place is the check that they were made for our application
      (https://docs.github.com/en/rest/apps/oauth-applications#check-a-token).
    * Scopes that another one includes are dropped when they are granted
      (https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps#normalized-scopes).
    * The token endpoint reports its errors with status 200, and separates scopes by commas
      (https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps).
    """
    verifier = GitHub(
        client_id,
        client_secret,
        users=users,
        organization=organization,
        any_app=any_app,
        remember=remember,
        api=api,
        provider=site,
        fetch=fetch,
    )
    wanted = {*scopes, *(("read:org",) if organization is not None else ())}
    base = f"{checked_url(site, 'address of GitHub').rstrip('/')}/login/oauth"
    if not proxy:
        return ResourceServer(verifier, authorization_servers=[base], scopes=wanted, **options)
    from toolwire.auth.proxy.proxy import OAuthProxy, Upstream

    if client_id is None:
        raise ServerError("proxy=True needs client_id=, that of our own application at the provider")
    upstream = Upstream(
        authorize_url=f"{base}/authorize",
        token_url=f"{base}/access_token",
        client_id=client_id,
        client_secret=_needed(client_secret),
        includes=verify_github.INCLUDED,
        fetch=fetch,
    )
    return OAuthProxy(verifier, upstream, scopes=wanted, **options)


_OPENID: Final = frozenset({"openid", "profile", "email", "offline_access"})


def _needed(client_secret: str | None) -> str:
    if client_secret is None:
        raise ServerError("proxy=True needs client_secret=, that of our own application at the provider")
    return client_secret
