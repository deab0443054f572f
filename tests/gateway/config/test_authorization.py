"""Who is let in, as the file says it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.auth.issuing import AUDIENCE, ISSUER, RSA, key_set, token
from tests.cases import cases

from toolwire.auth import OAuthProxy, ResourceServer, hashed
from toolwire.gateway.config import gateway_options, read_gateway_file
from toolwire.protocol.errors import ServerError

BACKS = {"back": {"url": "http://localhost:1/mcp"}}
KEYS = {"api_keys": {"keys": {"ann": {"key": "key-of-ann", "scopes": ["read"]}}}}
SIGNED = {"issuer": ISSUER, "audience": AUDIENCE, "keys": key_set(RSA)}
UPSTREAM = {
    "authorize_url": "https://login.example/authorize",
    "token_url": "https://login.example/token",
    "client_id": "gateway",
    "client_secret": "s3cret",
}
TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad"


def made(**auth: Any) -> ResourceServer:
    found: ResourceServer = gateway_options(read_gateway_file({"mcpServers": BACKS, "gateway": {"auth": auth}}))["auth"]
    return found


async def test_api_keys_stand_there_hashed_or_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_BOB", "key-of-bob")
    keys = {
        "ann": {"key": hashed("key-of-ann"), "scopes": ["read", "write"], "username": "Ann"},
        "bob": {"key": {"env": "KEY_OF_BOB"}},
    }
    auth = made(api_keys={"keys": keys, "header": "X-API-Key"}, scopes=["read"], allow=["ann"])
    ann, bob = await auth.verifier.verify("key-of-ann"), await auth.verifier.verify("key-of-bob")
    assert ann is not None and bob is not None
    assert (ann.subject, ann.username, ann.scopes) == ("ann", "Ann", {"read", "write"})
    assert (bob.subject, bob.username, bob.scopes) == ("bob", "bob", frozenset())
    assert (auth.allows(ann), auth.allows(bob)) == (True, False)
    assert auth.scopes == {"read"}
    assert await auth.verifier.verify("another") is None


@pytest.mark.parametrize("several", [False, True])
async def test_tokens_of_an_issuer_and_api_keys_together(several: bool) -> None:
    auth = made(**KEYS, jwt=[SIGNED, {**SIGNED, "issuer": "https://other.example"}] if several else SIGNED)
    now = time.time()
    principal = await auth.verifier.verify(token(exp=now + 60, iat=now))
    assert principal is not None and principal.subject == "alice"
    principal = await auth.verifier.verify("key-of-ann")
    assert principal is not None and principal.subject == "ann"
    # Clients find the authorization server in the metadata.
    metadata = auth.metadata("https://gateway.example/mcp")
    assert metadata is not None
    assert metadata["authorization_servers"] == [ISSUER, *(["https://other.example"] if several else [])]


async def test_everybody_else_is_one_caller() -> None:
    auth = made(**KEYS, anonymous={"subject": "guest", "scopes": ["read"]})
    guest = await auth.verifier.verify("")
    assert guest is not None and (guest.subject, guest.scopes) == ("guest", {"read"})


PRESETS: dict[str, dict[str, Any]] = {
    "entra": {"tenant": TENANT, "client_id": "app", "client_secret": "s3cret"},
    "google": {"client_id": "app", "client_secret": "s3cret"},
    "github": {"client_id": "app", "client_secret": "s3cret", "users": ["ann"]},
    "auth0": {"domain": "tenant.auth0.example", "audience": "api"},
    "keycloak": {"url": "https://login.example", "realm": "work", "audience": "api"},
}


@cases("name", PRESETS)
async def test_presets(name: str) -> None:
    auth = made(**{name: PRESETS[name]}, scopes=["read"])
    assert auth.scopes == {"read"}
    assert auth.authorization_servers
    # API keys for programs, beside the users who sign in.
    beside = made(**{name: PRESETS[name]}, **KEYS)
    principal = await beside.verifier.verify("key-of-ann") if name in ("entra", "auth0", "keycloak") else None
    assert principal is None or principal.subject == "ann"
    if "client_secret" in PRESETS[name]:
        proxy = made(**{name: {**PRESETS[name], "proxy": True}}, redirect_schemes=["cursor"])
        assert isinstance(proxy, OAuthProxy)


def test_a_proxy_in_front_of_any_provider() -> None:
    auth = made(proxy={**UPSTREAM, "parameters": {"prompt": "login"}}, jwt=SIGNED, scopes=["read"])
    assert isinstance(auth, OAuthProxy)
    introspection = {"endpoint": "https://login.example/introspect", "audience": "api", "client_id": "a"}
    assert isinstance(made(proxy=UPSTREAM, introspection=introspection), OAuthProxy)


def test_tokens_that_the_authorization_server_is_asked_about() -> None:
    introspection = {
        "endpoint": "https://login.example/introspect",
        "audience": "api",
        "issuer": "https://login.example",
    }
    auth = made(introspection=introspection, resource_name="Work", documentation="https://docs.example", enabled=True)
    assert auth.authorization_servers == ("https://login.example",)
    assert (auth.resource_name, auth.documentation) == ("Work", "https://docs.example")


def test_the_pages_of_the_gateway_sign_users_in() -> None:
    auth = made(jwt=SIGNED, sign_in={"issuer": ISSUER, "client_id": "pages", "scopes": ["openid"]})
    assert auth.sign_in is not None and auth.sign_in.client is not None
    assert auth.sign_in.client.client_id == "pages"


@cases(
    ("auth", "text"),
    [
        ({}, "gateway.auth: nothing says who is let in"),
        ({"scopes": ["read"]}, "nothing says who is let in"),
        ({"entra": PRESETS["entra"], "google": PRESETS["google"]}, "entra stands alone"),
        ({"google": {**PRESETS["google"], "proxy": True}, **KEYS}, "google stands alone"),
        ({"google": PRESETS["google"], "authorization_servers": ["https://a.example"]}, "google is the authorization"),
        ({"proxy": UPSTREAM}, "proxy needs jwt or introspection"),
        ({"proxy": UPSTREAM, "jwt": SIGNED, **KEYS}, "proxy needs jwt or introspection"),
        ({**KEYS, "redirect_schemes": ["cursor"]}, "redirect_schemes is for a proxy"),
        ({"api_keys": {"keys": {"ann": {"key": "short"}}}}, "at least 8 characters"),
        ({"api_keys": {"keys": {}}}, "at least one key"),
        ({"api_keys": {"keys": {"a": {"key": "12345678"}, "b": {"key": "12345678"}}}}, "'b' is that of another caller"),
        ({"api_keys": {"keys": {"ann": {}}}}, "missing required field `key`"),
        ({"jwt": {"issuer": ISSUER}}, "gateway.auth.jwt: .*missing required field `audience`"),
        ({"jwt": {**SIGNED, "algorithms": ["none"]}}, "none cannot be used"),
        ({"jwt": {**SIGNED, "audiense": "x"}}, "gateway.auth.jwt.audiense: .*'audience'"),
        ({"entra": {"tenant": "common", "client_id": "a"}}, "tenant= is the id of one tenant"),
    ],
)
def test_mistakes(auth: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        made(**auth)
