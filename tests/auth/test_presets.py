"""The presets, each against a stand-in that behaves as the provider does where it is peculiar."""

from __future__ import annotations

from typing import Any

import pytest
from tests.auth.issuing import AUDIENCE, OTHER_RSA, RSA, Provider, key_set, sign
from tests.cases import cases

from toolwire.auth import InvalidToken, Principal, auth0, entra, github, google, keycloak
from toolwire.auth.resource import ResourceServer
from toolwire.auth.verify.fetch import ProviderAnswer
from toolwire.protocol.errors import ServerError

TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad"
APP = "11111111-2222-3333-4444-555555555555"
LATER = 4_000_000_000


async def verified(server: ResourceServer, claims: dict[str, Any], key: Any = RSA) -> Principal:
    principal = await server.verifier.verify(sign({"exp": LATER, "sub": "s", **claims}, key, typ="JWT"))
    assert principal is not None
    return principal


# --- Entra ID: https://learn.microsoft.com/en-us/entra/identity-platform/access-tokens ---


def make_entra(**options: Any) -> tuple[ResourceServer, Provider]:
    keys = f"https://login.microsoftonline.com/{TENANT}/discovery/v2.0/keys"
    provider = Provider({keys: key_set(RSA)})
    return entra(TENANT, APP, fetch=provider, scopes=["tools.read"], **options), provider


@pytest.mark.parametrize(
    ("issuer", "audience"),
    [
        (f"https://login.microsoftonline.com/{TENANT}/v2.0", APP),
        (f"https://sts.windows.net/{TENANT}/", f"api://{APP}"),
    ],
)
async def test_entra_has_two_forms_of_tokens(issuer: str, audience: str) -> None:
    server, _ = make_entra()
    principal = await verified(server, {"iss": issuer, "aud": audience, "scp": "tools.read tools.write"})
    assert principal.scopes == {"tools.read", "tools.write"}
    with pytest.raises(InvalidToken):
        await verified(server, {"iss": issuer.replace(TENANT, TENANT[::-1]), "aud": audience})
    with pytest.raises(InvalidToken):
        await verified(server, {"iss": issuer, "aud": "00000003-0000-0000-c000-000000000000"})


async def test_entra_gives_applications_roles() -> None:
    server, _ = make_entra()
    issuer = f"https://login.microsoftonline.com/{TENANT}/v2.0"
    assert (await verified(server, {"iss": issuer, "aud": APP, "roles": ["tools.read"]})).scopes == {"tools.read"}


def test_entra_wants_scopes_with_a_prefix_and_grants_them_without() -> None:
    server, _ = make_entra(scopes_supported=["tools.read", "openid"])
    assert server.scope_text(["tools.read"]) == f"api://{APP}/tools.read"
    document = server.metadata("https://h/mcp")
    assert document is not None
    assert document["scopes_supported"] == ["openid", f"api://{APP}/tools.read"]
    assert document["authorization_servers"] == [f"https://login.microsoftonline.com/{TENANT}/v2.0"]
    named, _ = make_entra(app_id_uri="https://api.example.org/")
    assert named.scope_text(["tools.read"]) == "https://api.example.org/tools.read"


@cases("tenant", ["common", "organizations", "consumers", "contoso.onmicrosoft.com", ""])
def test_entra_is_for_one_tenant(tenant: str) -> None:
    with pytest.raises(ServerError, match="tenant"):
        entra(tenant, APP)


# --- Google: https://developers.google.com/identity/protocols/oauth2 ---


async def test_google_grants_scopes_under_other_names() -> None:
    answer = {
        "aud": "our-client",
        "sub": "123",
        "exp": str(LATER),
        "scope": "openid https://www.googleapis.com/auth/userinfo.email https://www.googleapis.com/auth/userinfo.profile",
    }
    server = google("our-client", fetch=Provider({"https://oauth2.googleapis.com/tokeninfo": answer}))
    principal = await server.verifier.verify("ya29.opaque")
    assert principal is not None
    assert principal.scopes >= {"openid", "email", "profile"}
    assert server.scopes <= principal.scopes
    document = server.metadata("https://h/mcp")
    assert document is not None and document["authorization_servers"] == ["https://accounts.google.com"]


# --- Auth0: https://auth0.com/docs/secure/tokens/access-tokens/access-token-profiles ---


@pytest.mark.covers("J96")
async def test_auth0_has_a_slash_two_audiences_and_permissions() -> None:
    provider = Provider({"https://acme.eu.auth0.com/.well-known/jwks.json": key_set(RSA)})
    server = auth0("acme.eu.auth0.com", AUDIENCE, fetch=provider)
    issuer = "https://acme.eu.auth0.com/"
    both = {"iss": issuer, "aud": [AUDIENCE, f"{issuer}userinfo"], "scope": "openid", "permissions": ["read:tools"]}
    assert (await verified(server, both)).scopes == {"openid", "read:tools"}
    for wrong in ({"iss": issuer.rstrip("/")}, {"aud": [AUDIENCE, "https://other"]}, {"aud": [f"{issuer}userinfo"]}):
        with pytest.raises(InvalidToken):
            await verified(server, {**both, **wrong})
    assert server.authorization_servers == (issuer,)


# --- Keycloak: https://www.keycloak.org/docs/latest/server_admin/#_audience ---


async def test_keycloak_has_an_account_and_keys_for_other_purposes() -> None:
    certs = "https://sso.example.org/realms/acme/protocol/openid-connect/certs"
    encryption = {**key_set(OTHER_RSA)["keys"][0], "use": "enc", "alg": "RSA-OAEP"}
    signing = {**key_set(RSA)["keys"][0], "use": "sig", "alg": "RS256"}
    provider = Provider({certs: {"keys": [encryption, signing]}})
    server = keycloak("https://sso.example.org", "acme", "my-mcp", fetch=provider)
    issuer = "https://sso.example.org/realms/acme"
    token = {"iss": issuer, "aud": ["my-mcp", "account"], "azp": "cli", "scope": "profile", "typ": "Bearer"}
    assert (await verified(server, token)).subject == "s"
    with pytest.raises(InvalidToken, match="another server"):
        await verified(server, {**token, "aud": "account"})
    with pytest.raises(InvalidToken, match="signature"):
        await verified(server, token, OTHER_RSA)


# --- GitHub: https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps ---


@pytest.mark.covers("J109")
async def test_github_drops_scopes_that_another_one_includes() -> None:
    answer = ProviderAnswer(200, {"x-oauth-scopes": "user, admin:org"}, b'{"login": "al", "id": 1}')
    member = {"state": "active"}
    urls = {"https://api.github.com/user": answer, "https://api.github.com/user/memberships/orgs/acme": member}
    server = github(any_app=True, organization="acme", fetch=Provider(urls))
    principal = await server.verifier.verify("gho_token")
    assert principal is not None
    assert principal.scopes >= {"user", "read:user", "user:email", "admin:org", "write:org", "read:org"}
    assert server.scopes == {"read:user", "read:org"}
    plain = github(any_app=True).metadata("https://h/mcp")
    assert plain is not None
    assert plain["scopes_supported"] == ["read:user"]
    assert plain["authorization_servers"] == ["https://github.com/login/oauth"]


@cases(
    "make",
    [
        lambda: entra(TENANT, APP, proxy=True),
        lambda: google("c", proxy=True),
        lambda: github("c", proxy=True, any_app=True),
        lambda: github(proxy=True, any_app=True),
    ],
)
def test_a_proxy_needs_the_secret_of_its_own_application(make: Any) -> None:
    with pytest.raises(ServerError, match="client_"):
        make()
