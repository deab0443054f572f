"""Signing in without a person: client credentials, workload identity, the company's identity provider, bound tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, import_key
from tests.auth.stand_in import AuthorizationServer, Reply, Request, Scene, Site, Stage, basic
from tests.cases import cases

from toolwire.auth import (
    ClientCredentials,
    EnterpriseManaged,
    MemoryStorage,
    OAuth,
    PrivateKey,
    Refused,
    SignInFailed,
    WorkloadIdentity,
    jose,
)
from toolwire.auth.client.signing import ProofKey
from toolwire.protocol.errors import ToolwireError


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        made.login.document = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
        yield made


def read_jwt(token: str, key: Any, algorithm: str = "ES256") -> tuple[dict[str, Any], dict[str, Any]]:
    found = jws.deserialize_compact(token, key, algorithms=[algorithm])
    return dict(found.headers()), json.loads(found.payload)


# --- client credentials ---


async def test_a_secret(scene: Scene) -> None:
    auth = OAuth(grant=ClientCredentials("robot", "hush"))
    assert await scene.call(auth) == 200
    assert await scene.call(auth) == 200
    (request,) = scene.login.asked("/token")
    assert basic(request) == ("robot", "hush")
    assert request.form == {"grant_type": "client_credentials", "resource": scene.server.mcp, "client_id": "robot"}
    assert scene.login.logins == []


async def test_a_secret_in_the_form(scene: Scene) -> None:
    auth = OAuth(grant=ClientCredentials("robot", "hush", token_endpoint_auth_method="client_secret_post"))
    assert await scene.call(auth) == 200
    assert scene.login.grants[0]["client_secret"] == "hush"


async def test_a_key(scene: Scene) -> None:
    key = ECKey.generate_key("P-256", private=True)
    private = PrivateKey(key.as_pem(private=True), key_id="k1")
    assert await scene.call(OAuth(grant=ClientCredentials("robot", key=private))) == 200
    (form,) = scene.login.grants
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    header, claims = read_jwt(form["client_assertion"], key)
    assert header == {"alg": "ES256", "kid": "k1"}
    assert claims["iss"] == claims["sub"] == "robot"
    assert claims["aud"] == scene.login.url
    assert claims["exp"] - claims["iat"] <= 300
    assert claims["jti"]


@pytest.mark.parametrize("known", ["client_id", "client_metadata_url"])
async def test_a_key_for_a_client_with_a_person(scene: Scene, known: str) -> None:
    scene.login.document = {"client_id_metadata_document_supported": True}
    key = ECKey.generate_key("P-256", private=True)
    options: dict[str, Any] = {known: "https://client.example/me.json"}
    auth = OAuth(login=scene.person, client_key=PrivateKey(key.as_pem(private=True)), **options)
    assert await scene.call(auth) == 200
    scene.login.expire()
    assert await scene.call(auth) == 200
    for form in scene.login.grants:
        assert read_jwt(form["client_assertion"], key)[1]["sub"] == "https://client.example/me.json"
        assert form["client_id"] == "https://client.example/me.json"
    assert [each["grant_type"] for each in scene.login.grants] == ["authorization_code", "refresh_token"]


async def test_an_expired_token_is_asked_for_again(scene: Scene) -> None:
    now = [1000.0]
    auth = OAuth(grant=ClientCredentials("robot", "hush"), clock=lambda: now[0])
    assert await scene.call(auth) == 200
    now[0] += 4000
    assert await scene.call(auth) == 200
    assert [each["grant_type"] for each in scene.login.grants] == ["client_credentials"] * 2
    assert len(scene.server.asked("/mcp")) == 3


async def test_a_secret_is_shown_to_one_issuer_only(scene: Scene) -> None:
    auth = OAuth(grant=ClientCredentials("robot", "hush", issuer=scene.login.url))
    assert await scene.call(auth) == 200
    async with AuthorizationServer() as thief:
        scene.server.login = thief
        with pytest.raises(SignInFailed, match="credentials of this client are for"):
            await scene.call(auth)
        assert thief.grants == []


async def test_scopes_of_a_machine_grow_once(scene: Scene) -> None:
    scene.server.needs = {"/mcp/write": "write"}
    auth = OAuth(grant=ClientCredentials("robot", "hush")).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await scene.call(auth, "/mcp/write") == 200
    assert scene.login.grants[1]["scope"] == "write"


@cases(
    "make",
    [
        lambda: ClientCredentials("robot"),
        lambda: PrivateKey("{}", algorithm="HS256"),
        lambda: PrivateKey(ECKey.generate_key("P-256").as_pem(private=False)),
        lambda: OAuth(grant=ClientCredentials("robot", "s"), client_id="x"),
    ],
)
def test_credentials_that_cannot_work(make: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_a_missing_extra_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    jose._joserfc.cache_clear()
    monkeypatch.setitem(sys.modules, "joserfc.jwk", None)
    with pytest.raises(ToolwireError, match=r"pip install 'toolwire\[auth\]'"):
        PrivateKey("x")


def test_keys_are_not_shown() -> None:
    pem = ECKey.generate_key("P-256").as_pem(private=True)
    assert repr(PrivateKey(pem)) == "PrivateKey('ES256')"


# --- workload identity ---


async def test_what_the_platform_says(scene: Scene) -> None:
    asked = 0

    async def token() -> str:
        nonlocal asked
        asked += 1
        return "a.b.c"

    assert await scene.call(OAuth(grant=WorkloadIdentity("robot", token))) == 200
    (form,) = scene.login.grants
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["assertion"] == "a.b.c"
    assert form["client_id"] == "robot"
    assert asked == 1


async def test_a_refused_assertion_is_not_tried_again(scene: Scene) -> None:
    scene.login.refuses["urn:ietf:params:oauth:grant-type:jwt-bearer"] = "invalid_grant"
    with pytest.raises(Refused, match="invalid_grant"):
        await scene.call(OAuth(grant=WorkloadIdentity("robot", lambda: "a.b.c")))
    assert len(scene.login.grants) == 1


# --- the company's identity provider ---

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def test_an_id_token_opens_the_door(scene: Scene) -> None:
    async with Site() as provider:
        provider.routes["/token"] = lambda request: Reply(
            document={"access_token": "jag", "token_type": "N_A", "issued_token_type": ID_JAG}
        )
        grant = EnterpriseManaged(
            "app",
            "hush",
            id_token="id.token",
            provider=provider.url,
            provider_token_endpoint=f"{provider.url}/token",
            provider_client_id="app-at-idp",
        )
        assert await scene.call(OAuth(grant=grant)) == 200
        (exchange,) = provider.requests
    assert exchange.form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert exchange.form["subject_token"] == "id.token"
    assert exchange.form["requested_token_type"] == ID_JAG
    assert exchange.form["audience"] == scene.login.url
    assert exchange.form["resource"] == scene.server.mcp
    assert exchange.form["client_id"] == "app-at-idp"
    (request,) = scene.login.asked("/token")
    assert request.form["assertion"] == "jag"
    assert basic(request) == ("app", "hush")


# --- tokens that are bound to a key ---


class BoundServer:
    """Makes the scene's servers issue and want bound tokens, with nonces if told to."""

    def __init__(self, scene: Scene, *, nonces: bool = False) -> None:
        self.scene = scene
        self.nonces = nonces
        self.proofs: list[dict[str, Any]] = []
        scene.login.document = {
            "dpop_signing_alg_values_supported": ["ES256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
        self._token = scene.login.routes["/token"]
        scene.login.routes["/token"] = self.token
        scene.server.routes["/mcp"] = self.call

    def read(self, request: Request, nonce: str) -> dict[str, Any] | None:
        header = json.loads(base64.urlsafe_b64decode(request.headers["dpop"].partition(".")[0] + "=="))
        assert header["typ"] == "dpop+jwt"
        assert "d" not in header["jwk"]
        key = import_key(header["jwk"])
        _, claims = read_jwt(request.headers["dpop"], key)
        assert claims["htm"] == request.method
        assert claims["htu"] == f"http://{request.headers['host']}{request.path}"
        if self.nonces and claims.get("nonce") != nonce:
            return None
        self.proofs.append({**claims, "jkt": key.thumbprint()})
        return claims

    def token(self, request: Request) -> Reply:
        if self.read(request, "login-1") is None:
            return Reply(400, {"error": "use_dpop_nonce"}, {"DPoP-Nonce": "login-1"})
        reply = self._token(request)
        if reply.status == 200:
            reply.document["token_type"] = "DPoP"
        return reply

    def call(self, request: Request) -> Reply:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if token not in self.scene.login.valid:
            return self.scene.server.refuse(401, {})
        assert scheme == "DPoP"
        claims = self.read(request, "server-1")
        if claims is None:
            refusal = self.scene.server.refuse(401, {"error": "use_dpop_nonce"})
            refusal.headers["www-authenticate"] = refusal.headers["www-authenticate"].replace("Bearer", "DPoP")
            refusal.headers["DPoP-Nonce"] = "server-1"
            return refusal
        assert claims["ath"] == base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
        return Reply(document="in")


@pytest.mark.parametrize("nonces", [False, True])
async def test_tokens_that_are_bound_to_a_key(scene: Scene, nonces: bool) -> None:
    bound = BoundServer(scene, nonces=nonces)
    auth = OAuth(login=scene.person, dpop=True)
    for _ in range(3):
        assert await scene.call(auth) == 200
    assert scene.visits == 1
    assert len({each["jti"] for each in bound.proofs}) == len(bound.proofs)
    assert len({each["jkt"] for each in bound.proofs}) == 1


async def test_the_key_survives_a_restart_with_its_token(scene: Scene) -> None:
    bound = BoundServer(scene)
    storage = MemoryStorage()
    assert await scene.call(OAuth(login=scene.person, dpop=True, storage=storage)) == 200
    scene.login.expire()
    assert await scene.call(OAuth(login=None, dpop=True, storage=storage)) == 200
    assert len({each["jkt"] for each in bound.proofs}) == 1


async def test_a_new_nonce_and_an_expired_token_at_once(scene: Scene) -> None:
    bound = BoundServer(scene, nonces=True)
    storage = MemoryStorage()
    assert await scene.call(OAuth(login=scene.person, dpop=True, storage=storage)) == 200

    def expired(request: Request) -> Reply:
        """The nonce is what the server complains about first."""
        refusal = bound.call(request)
        if refusal.status == 401 and "DPoP-Nonce" in refusal.headers:
            scene.login.expire()
            scene.server.routes["/mcp"] = bound.call
        return refusal

    scene.server.routes["/mcp"] = expired
    assert await scene.call(OAuth(login=None, dpop=True, storage=storage)) == 200
    assert scene.login.grants[-1]["grant_type"] == "refresh_token"


async def test_a_bearer_token_is_not_taken_instead(scene: Scene) -> None:
    with pytest.raises(SignInFailed, match="instead of dpop"):
        await scene.call(OAuth(login=scene.person, dpop=True))


def test_nonces_are_bounded() -> None:
    key = ProofKey()
    for number in range(100):
        key.learn(f"https://h{number}/token", f"n{number}")
    key.learn("https://h99/token", "x" * 5000)
    assert len(key._nonces) <= 16
    assert key._nonces.get("https://h99") == "n99"
