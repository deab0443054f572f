"""The vault: every kind of credential, in every store, with a provider on a real port that is tame, slow or wild."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.auth.issuing import Clock
from tests.auth.stand_in import AuthorizationServer, Reply, Request, basic
from tests.cases import cases
from tests.redis_server import RedisServer, running

from toolwire import Server
from toolwire.auth import ClientCredentials, Principal
from toolwire.auth.errors import NotConnected, Refused, SignInFailed
from toolwire.auth.flow.authorization import query_parameters
from toolwire.auth.flow.scopes import Scopes
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
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker, Vault
from toolwire.auth.verify.verifier import Unavailable
from toolwire.http1.pool import HttpPool
from toolwire.protocol.errors import ServerError, Unauthorized
from toolwire.stores import KV, MemoryKV
from toolwire.stores.redis import RedisStores
from toolwire.stores.sqlite import SqliteStores

SECRET = "a secret of at least sixteen bytes"
NEWER = "another secret of sixteen bytes"
CALLBACK = "http://127.0.0.1:9/connect/callback"
ALICE = Principal("alice", "https://login.example")
BOB = Principal("bob", "https://login.example")


def asker(principal: Principal | None, token: str | None = None) -> Asker:
    return Asker(Owner.from_principal(principal), principal, token)


@pytest.mark.parametrize(
    ("kind", "warned"),
    [
        (StaticSecret("a secret of the server"), False),
        (ServerOAuth("https://login.example", grant=ClientCredentials("us", "our-secret")), False),
        (TokenExchange("https://login.example", client_id="us", client_secret="our-secret"), False),
        (UserSecret(), True),
        (UserOAuth("https://login.example"), True),
        (ServerOAuth("https://login.example", operators=["alice"]), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_missing_secret_is_said_where_people_connect_accounts(
    kind: Kind, warned: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLWIRE_SECRET", raising=False)
    server = Server("s", credentials={"one": kind, "two": UserSecret()} if warned else {"one": kind})
    assert "one" in server.vault
    said = [each.getMessage() for each in caplog.records if "no secret" in each.getMessage()]
    assert len(said) == warned
    assert all("connect their accounts again" in each and "TOOLWIRE_SECRET" in each for each in said)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kv(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KV]:
    if request.param == "memory":
        yield MemoryKV()
        return
    if request.param == "sqlite":
        stores: Any = SqliteStores(tmp_path / "vault.db")
    else:
        stores = RedisStores(request.getfixturevalue("redis").url, prefix=request.node.name)
    yield stores.kv
    stores.close()


@pytest.fixture
async def login() -> AsyncIterator[AuthorizationServer]:
    async with AuthorizationServer() as server:
        yield server


class Replicas:
    """Processes of one server, each with a vault of its own, on one store."""

    def __init__(self, kv: KV, kinds: dict[str, Kind]) -> None:
        self.kv, self.kinds = kv, kinds
        self.clock = Clock()

    def vault(self, *secrets: str) -> Vault:
        return Vault(self.kv, list(secrets or (SECRET,)), self.kinds, clock=self.clock)


async def signed_in(url: str) -> dict[str, str]:
    """Return the answer that the browser of a person brings back."""
    async with HttpPool() as pool, await pool.request("GET", url, redirects=0) as response:
        location = response.header("location")
    assert location is not None
    return query_parameters(location)


async def connect(vault: Vault, principal: Principal, name: str = "github") -> None:
    attempt = await vault.begin(name, CALLBACK, identity=vault.identity(name))
    await vault.finish(
        name, Owner.from_principal(principal), attempt, await signed_in(attempt.url), identity=vault.identity(name)
    )


def of_user(login: AuthorizationServer, **options: Any) -> UserOAuth:
    return UserOAuth(login.url, client_id="our-client", client_secret="our-secret", **options)


# --- every kind, in every store ---


@pytest.mark.covers("GW-5.2")
async def test_kinds_that_ask_nobody(kv: KV) -> None:
    vault = Replicas(
        kv,
        {
            "none": NoCredential(),
            "static": StaticSecret("key-1", header="X-Key", scheme=""),
            "supplied": StaticSecret(lambda: "key-2"),
        },
    ).vault()
    nobody = Asker(None)
    assert (await vault.obtain("none", nobody)).headers("GET", "https://api.example") == {}
    assert (await vault.obtain("static", nobody)).headers("GET", "https://api.example") == {"x-key": "key-1"}
    assert (await vault.obtain("supplied", nobody)).headers("GET", "/") == {"authorization": "Bearer key-2"}


@pytest.mark.covers("GW-5.3")
async def test_a_secret_of_a_user_is_that_of_nobody_else(kv: KV) -> None:
    replicas = Replicas(kv, {"notes": UserSecret()})
    vault = replicas.vault()
    with pytest.raises(NotConnected):
        await vault.obtain("notes", asker(ALICE))
    await vault.store("notes", Owner.from_principal(ALICE), "of-alice", identity=vault.identity("notes"))
    other = replicas.vault()
    assert (await other.obtain("notes", asker(ALICE))).token == "of-alice"
    with pytest.raises(NotConnected):
        await other.obtain("notes", asker(BOB))
    # The same subject of another provider is somebody else.
    with pytest.raises(NotConnected):
        await other.obtain("notes", asker(Principal("alice", "https://other.example")))
    with pytest.raises(Unauthorized, match="anonymous"):
        await other.obtain("notes", Asker(None))


async def test_the_account_of_a_user_is_connected_renewed_once_and_revoked(kv: KV, login: AuthorizationServer) -> None:
    login.document["revocation_endpoint"] = f"{login.url}/revoke"
    login.routes["/revoke"] = lambda request: Reply()
    replicas = Replicas(kv, {"github": of_user(login, scopes=["repo"])})
    first, second = replicas.vault(), replicas.vault()
    await connect(first, ALICE)
    token = (await second.obtain("github", asker(ALICE))).token
    assert token in login.valid
    assert basic(login.asked("/token")[0]) == ("our-client", "our-secret")

    replicas.clock.now += 3599
    before = len(login.grants)
    calls = [vault.obtain("github", asker(ALICE)) for vault in (first, second) for _ in range(10)]
    renewed = {each.token for each in await asyncio.gather(*calls)}
    assert len(renewed) == 1 and token not in renewed
    assert [each["grant_type"] for each in login.grants[before:]] == ["refresh_token"]

    assert [each.subject async for each in first.entries()] == ["alice"]
    assert await second.revoke("github", Owner.from_principal(ALICE))
    assert login.asked("/revoke")[0].form["token"].startswith("refresh-")
    with pytest.raises(NotConnected):
        await first.obtain("github", asker(ALICE))
    assert not await second.revoke("github", Owner.from_principal(ALICE))


@pytest.mark.covers("GW-5.4")
async def test_the_account_of_the_server_is_obtained_once_for_all(kv: KV, login: AuthorizationServer) -> None:
    grant = ClientCredentials("machine", "machine-secret", token_endpoint_auth_method="client_secret_post")
    kind = ServerOAuth(login.url, grant=grant, scopes=["read"])
    replicas = Replicas(kv, {"api": kind})
    vaults = [replicas.vault() for _ in range(3)]
    people = [asker(ALICE), asker(BOB), Asker(None)]
    found = await asyncio.gather(*(vault.obtain("api", who) for vault in vaults for who in people))
    assert len({each.token for each in found}) == 1
    assert len(login.grants) == 1 and login.grants[0]["scope"] == "read"
    replicas.clock.now += 3600
    assert (await vaults[0].obtain("api", Asker(None))).token != found[0].token


@pytest.mark.covers("GW-5.11")
async def test_a_token_is_exchanged_once_for_each_subject_token_and_scopes(kv: KV, login: AuthorizationServer) -> None:
    kind = TokenExchange(
        login.url,
        client_id="gateway",
        client_secret="secret",
        audience="api",
        scopes=["read"],
        accepts_fewer_scopes=True,
    )
    replicas = Replicas(kv, {"api": kind})
    first, second = replicas.vault(), replicas.vault()
    alice, bob = asker(ALICE, "token of alice"), asker(BOB, "token of bob")
    found = await asyncio.gather(*(vault.obtain("api", alice) for vault in (first, second) for _ in range(5)))
    assert len({each.token for each in found}) == 1
    assert (await first.obtain("api", bob)).token != found[0].token
    more = await first.obtain("api", alice, scopes=("write",))
    assert more.token != found[0].token
    forms = login.grants
    assert [each["subject_token"] for each in forms] == ["token of alice", "token of bob", "token of alice"]
    assert forms[0]["grant_type"].endswith("token-exchange") and forms[0]["audience"] == "api"
    assert [each["scope"] for each in forms] == ["read", "read", "read write"]
    # The next token of the same caller is exchanged anew, and what the caller had is not found with it.
    await first.obtain("api", asker(ALICE, "next token of alice"))
    assert len(login.grants) == 4
    with pytest.raises(Unauthorized, match="without one"):
        await first.obtain("api", asker(ALICE))
    # The token of one caller with the name of another is nobody's cache.
    await first.obtain("api", asker(BOB, "token of alice"))
    assert len(login.grants) == 5
    assert await first.revoke("api", Owner.from_principal(ALICE))
    await second.obtain("api", alice)
    assert len(login.grants) == 6


async def test_tokens_of_other_issuers_are_shown_to_no_exchange(login: AuthorizationServer) -> None:
    kind = TokenExchange(login.url, client_id="gateway", client_secret="s", subject_issuers=["https://login.example"])
    vault = Replicas(MemoryKV(), {"api": kind}).vault()
    with pytest.raises(Unauthorized, match="is not for callers of https://github"):
        await vault.obtain("api", asker(Principal("alice", "https://github.example"), "token of github"))
    assert login.requests == []
    assert (await vault.obtain("api", asker(ALICE, "token of alice"))).token in login.valid


@pytest.mark.covers("GW-5.8")
async def test_an_identity_provider_vouches_for_the_caller(kv: KV, login: AuthorizationServer) -> None:
    def exchange(request: Request) -> Reply:
        asked = request.form
        assert asked["subject_token"] == "id of alice"
        kind = "urn:ietf:params:oauth:token-type:id-jag"
        return Reply(document={"access_token": "assertion", "issued_token_type": kind, "token_type": "N_A"})

    login.routes["/idp/token"] = exchange
    kind = IdentityAssertion(
        login.url,
        provider="https://idp.example",
        provider_token_endpoint=f"{login.url}/idp/token",
        provider_client_id="gateway-at-idp",
        client_id="gateway",
        client_secret="secret",
    )
    vault = Replicas(kv, {"api": kind}).vault()
    found = await vault.obtain("api", asker(ALICE, "id of alice"))
    assert found.token in login.valid
    assert login.grants[-1]["assertion"] == "assertion"


@pytest.mark.covers("GW-5.10")
async def test_the_token_of_the_caller_is_handed_on_for_the_same_audience_only(
    kv: KV, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolwire.auth"):
        vault = Replicas(kv, {"api": Passthrough("https://api.example")}).vault()
    assert "the tokens of callers are handed on to 'api'" in caplog.text
    for audience, good in (
        ("https://api.example", True),
        (["x", "https://api.example"], True),
        ("https://api.example/", False),
        (None, False),
    ):
        who = Principal("alice", "https://login.example", claims={} if audience is None else {"aud": audience})
        if good:
            assert (await vault.obtain("api", asker(who, "own-token"))).token == "own-token"
        else:
            with pytest.raises(Unauthorized, match="not for"):
                await vault.obtain("api", asker(who, "own-token"))


# --- sealed at rest ---


@asynccontextmanager
async def connected(login: AuthorizationServer, **options: Any) -> AsyncIterator[tuple[Replicas, Vault]]:
    replicas = Replicas(MemoryKV(), {"github": of_user(login, **options)})
    vault = replicas.vault()
    await connect(vault, ALICE)
    yield replicas, vault


@pytest.mark.covers("GW-5.6")
async def test_the_store_holds_no_token_in_clear(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        token = (await vault.obtain("github", asker(ALICE))).token
        keys = await replicas.kv.keys("")
        stored = [key.encode() + (await replicas.kv.get(key) or b"") for key in keys]
        assert stored and not [each for each in stored if token.encode() in each or b"refresh-" in each]


@pytest.mark.covers("GW-5.6")
async def test_a_record_opens_for_its_owner_its_credential_and_its_settings_only(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        [key] = await replicas.kv.keys("toolwire:vault:record:")
        sealed = await replicas.kv.get(key)
        assert sealed is not None
        moved = key.replace(Owner.from_principal(ALICE).id, Owner.from_principal(BOB).id)
        await replicas.kv.put(moved, sealed)
        with pytest.raises(NotConnected):
            await vault.obtain("github", asker(BOB))
        await replicas.kv.put(moved.replace("github", "other"), sealed)
        other = Vault(replicas.kv, [SECRET], {"github": of_user(login, resource=None, dpop=True)})
        with pytest.raises(NotConnected):
            await other.obtain("github", asker(ALICE))
        assert [each.is_readable async for each in other.entries()] == [False, False]


async def test_old_secrets_open_and_the_newest_seals(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        token = (await vault.obtain("github", asker(ALICE))).token
        [key] = await replicas.kv.keys("toolwire:vault:record:")
        before = await replicas.kv.get(key)
        rotated = replicas.vault(NEWER, SECRET)
        assert (await rotated.obtain("github", asker(ALICE))).token == token
        assert await replicas.kv.get(key) != before, "it is sealed anew when it is used"
        assert (await replicas.vault(NEWER).obtain("github", asker(ALICE))).token == token
        with pytest.raises(NotConnected):
            await replicas.vault(SECRET).obtain("github", asker(ALICE))


async def test_all_records_can_be_sealed_anew_before_an_old_secret_goes(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        await connect(vault, BOB)
        assert await replicas.vault(NEWER, SECRET).reseal() == 2
        assert await replicas.vault(NEWER, SECRET).reseal() == 0
        assert len([each async for each in replicas.vault(NEWER).entries() if each.is_readable]) == 2


async def test_a_lost_secret_means_connecting_again(
    login: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(login) as (replicas, _):
        vault = replicas.vault(NEWER)
        with pytest.raises(NotConnected):
            await vault.obtain("github", asker(ALICE))
        assert "cannot be opened" in caplog.text
        await connect(vault, ALICE)
        assert (await vault.obtain("github", asker(ALICE))).token in login.valid


async def test_damaged_records_are_none(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        [key] = await replicas.kv.keys("toolwire:vault:record:")
        for damaged in (b"", b"\xff\xfe", b"1.a.b", b"{}", b"x" * 100_000):
            await replicas.kv.put(key, damaged)
            with pytest.raises(NotConnected):
                await vault.obtain("github", asker(ALICE))


def test_without_encryption_there_is_no_vault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.sealing_aes.find_spec", lambda name: None)
    with pytest.raises(ServerError, match="cryptography"):
        Vault(MemoryKV(), [SECRET])


@pytest.mark.covers("GW-5.14")
async def test_nothing_shows_a_token(login: AuthorizationServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with connected(login, dpop=False) as (replicas, vault):
            replicas.clock.now += 3599
            found = await vault.obtain("github", asker(ALICE, "the caller's own"))
            [(record, *_)] = [
                each
                for key in await replicas.kv.keys("toolwire:vault:record:")
                if (each := vault.records._opened.get(key)[::-1])  # type: ignore[index]
            ]
            shown = repr([found, record, asker(ALICE, "the caller's own"), of_user(login), StaticSecret("kept")])
            for secret in (found.token, record.refresh_token, "the caller's own", "our-secret", "kept"):
                assert secret is not None and secret not in shown and secret not in caplog.text


# --- providers that are down, slow, forgetful, or give something else ---


async def test_a_token_is_used_to_its_end_while_the_provider_is_down(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        token = (await vault.obtain("github", asker(ALICE))).token
        login.routes["/token"] = lambda request: Reply(503)
        replicas.clock.now += 3580
        assert (await vault.obtain("github", asker(ALICE))).token == token
        replicas.clock.now += 30
        with pytest.raises(Unavailable):
            await vault.obtain("github", asker(ALICE))
        # The account is there when the provider is.
        login.routes["/token"] = login._token
        await vault._flight.forget(vault._key("github", vault.kind("github"), Owner.from_principal(ALICE)).text)
        assert (await vault.obtain("github", asker(ALICE))).token in login.valid


async def test_a_provider_that_fails_is_left_alone_for_a_while(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        login.routes["/token"] = lambda request: Reply(503)
        before = len(login.grants)
        for each in (vault, vault, replicas.vault()):
            with pytest.raises(Unavailable):
                await each.obtain("github", asker(ALICE))
        assert len(login.grants) == before + 1


@pytest.mark.parametrize("error", ["invalid_client", "temporarily_unavailable", "server_error"])
async def test_a_refusal_that_is_not_about_the_user_costs_no_account(login: AuthorizationServer, error: str) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        login.refuses["refresh_token"] = error
        with pytest.raises(Unavailable):
            await vault.obtain("github", asker(ALICE))
        login.refuses.clear()
        await vault._flight.forget(vault._key("github", vault.kind("github"), Owner.from_principal(ALICE)).text)
        assert (await vault.obtain("github", asker(ALICE))).token in login.valid


async def test_an_account_that_was_revoked_at_the_provider_is_connected_again(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        login.refresh_tokens.clear()
        for _ in range(2):
            with pytest.raises(NotConnected):
                await vault.obtain("github", asker(ALICE))
        assert [each["grant_type"] for each in login.grants].count("refresh_token") == 1
        await connect(vault, ALICE)
        assert (await vault.obtain("github", asker(ALICE))).token in login.valid


async def test_a_service_that_refuses_a_token_causes_one_refresh(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        token = (await vault.obtain("github", asker(ALICE))).token
        vaults = [vault, replicas.vault()]
        found = await asyncio.gather(*(each.obtain("github", asker(ALICE), refused=token) for each in vaults * 3))
        assert len({each.token for each in found}) == 1 and found[0].token != token
        assert [each["grant_type"] for each in login.grants].count("refresh_token") == 1


async def test_a_revocation_wins_over_a_refresh_that_is_under_way(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        revoking: list[asyncio.Future[bool]] = []

        def token(request: Request) -> Reply:
            # The store is in memory: the revocation has ended before the answer is read.
            revoking.append(asyncio.ensure_future(replicas.vault().revoke("github", Owner.from_principal(ALICE))))
            return login._token(request)

        login.routes["/token"] = token
        with pytest.raises(NotConnected):
            await vault.obtain("github", asker(ALICE))
        await asyncio.gather(*revoking)
        assert await replicas.kv.keys("toolwire:vault:record:") == []


@cases("revokes_first", [True, False])
async def test_tokens_of_a_refresh_during_a_revocation_are_revoked_at_the_provider(
    login: AuthorizationServer, revokes_first: bool
) -> None:
    login.document["revocation_endpoint"] = f"{login.url}/revoke"
    login.routes["/revoke"] = lambda request: Reply()
    async with connected(login) as (replicas, vault):
        other = replicas.vault()
        replicas.clock.now += 4000
        before = set(login.refresh_tokens)
        revoking: list[asyncio.Future[bool]] = []
        deleting, kept = asyncio.Event(), other.records.delete

        async def delete(key: str) -> bool:
            # The refresh ends between what the revocation reads and what it deletes.
            await deleting.wait()
            return await kept(key)

        if not revokes_first:
            other.records.delete = delete  # type: ignore[method-assign]

        def token(request: Request) -> Reply:
            revoking.append(asyncio.ensure_future(other.revoke("github", Owner.from_principal(ALICE))))
            return login._token(request)

        login.routes["/token"] = token
        with pytest.raises(NotConnected):
            await vault.obtain("github", asker(ALICE))
        deleting.set()
        assert await asyncio.gather(*revoking) == [True]
        told = {each.form["token"] for each in login.asked("/revoke")}
        assert set(login.refresh_tokens) - before <= told, "the new tokens live on at the provider"
        assert await replicas.kv.keys("toolwire:vault:record:") == []


async def test_a_record_that_is_sealed_anew_during_a_refresh_is_renewed(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        key = vault._key("github", vault.kind("github"), Owner.from_principal(ALICE))

        def token(request: Request) -> Reply:
            async def seal_anew() -> bool:
                found = await vault.records.get(key)
                assert found is not None
                return await vault.records.put(key, found[0], expect=found[1])

            sealing.append(asyncio.ensure_future(seal_anew()))
            return login._token(request)

        sealing: list[asyncio.Future[bool]] = []
        login.routes["/token"] = token
        for _ in range(2):
            assert (await vault.obtain("github", asker(ALICE))).token in login.valid
            replicas.clock.now += 4000
        assert await asyncio.gather(*sealing) == [True] * 2


async def test_fewer_scopes_than_needed_connect_nothing(login: AuthorizationServer) -> None:
    replicas = Replicas(MemoryKV(), {"github": of_user(login, scopes=["repo", "gist"])})
    vault = replicas.vault()
    issue = login.issue
    login.issue = lambda scope: {**issue(scope), "scope": "repo,user"}  # type: ignore[method-assign]
    with pytest.raises(SignInFailed, match="gist is missing"):
        await connect(vault, ALICE)
    assert await replicas.kv.keys("toolwire:vault:record:") == []
    lenient = Replicas(MemoryKV(), {"github": of_user(login, scopes=["repo", "gist"], accepts_fewer_scopes=True)})
    await connect(lenient.vault(), ALICE)
    assert (await lenient.vault().obtain("github", asker(ALICE))).token in login.valid
    with pytest.raises(NotConnected) as missing:
        await lenient.vault().obtain("github", asker(ALICE), scopes=("gist",))
    assert missing.value.scopes == ("repo", "user", "gist"), "with what it has already"


async def test_scopes_of_an_account_grow(login: AuthorizationServer) -> None:
    """An account that is connected for one more thing is still good for the others."""
    async with connected(login, scopes=["repo"]) as (_, vault):
        for scope in ("gist", "user"):
            with pytest.raises(NotConnected) as missing:
                await vault.obtain("github", asker(ALICE), scopes=(scope, "openid"))
            attempt = await vault.begin("github", CALLBACK, missing.value.scopes, identity=vault.identity("github"))
            await vault.finish(
                "github",
                Owner.from_principal(ALICE),
                attempt,
                await signed_in(attempt.url),
                identity=vault.identity("github"),
            )
        for scope in ("repo", "gist", "user", "openid"):
            await vault.obtain("github", asker(ALICE), scopes=(scope,))
        # The account is over. It is connected again with everything that it was good for.
        login.refresh_tokens.clear()
        token = (await vault.obtain("github", asker(ALICE))).token
        with pytest.raises(NotConnected) as missing:
            await vault.obtain("github", asker(ALICE), refused=token)
        assert {"repo", "gist", "user"} <= {*missing.value.scopes}


async def test_tokens_of_the_server_are_kept_by_their_scopes(login: AuthorizationServer) -> None:
    grant = ClientCredentials("machine", "machine-secret")
    vault = Replicas(MemoryKV(), {"api": ServerOAuth(login.url, grant=grant, scopes=["read"])}).vault()
    asked: list[Scopes] = [(), ("write",), (), ("write",), ("write", "read"), ("admin",)]
    tokens = [(await vault.obtain("api", Asker(None), scopes=scopes)).token for scopes in asked]
    assert [login.valid[token] for token in tokens] == [
        "read",
        "read write",
        "read",
        "read write",
        "read write",
        "read admin",
    ]
    assert len({*tokens}) == 3


@pytest.mark.covers("GW-5.13")
async def test_exchanges_that_are_refused_are_not_tried_again_at_once(login: AuthorizationServer) -> None:
    kind = TokenExchange(login.url, client_id="gateway", client_secret="secret")
    vault = Replicas(MemoryKV(), {"api": kind}).vault()
    login.refuses["urn:ietf:params:oauth:grant-type:token-exchange"] = "invalid_grant"
    for _ in range(3):
        with pytest.raises(Refused):
            await vault.obtain("api", asker(ALICE, "bad"))
    assert len(login.grants) == 1
    with pytest.raises(Refused):
        await vault.obtain("api", asker(BOB, "other"))
    assert len(login.grants) == 2


async def test_a_caller_that_gives_up_does_not_lose_the_refresh_token(login: AuthorizationServer) -> None:
    async with connected(login) as (replicas, vault):
        replicas.clock.now += 4000
        asked = asyncio.Event()

        def token(request: Request) -> Reply:
            asked.set()
            return login._token(request)

        login.routes["/token"] = token
        call = asyncio.ensure_future(vault.obtain("github", asker(ALICE)))
        await asked.wait()
        call.cancel()
        await asyncio.wait({call})
        assert (await vault.obtain("github", asker(ALICE))).token in login.valid
        assert [each["grant_type"] for each in login.grants].count("refresh_token") == 1


@pytest.mark.covers("GW-5.9")
async def test_tokens_are_bound_to_a_key_of_their_owner(login: AuthorizationServer) -> None:
    issue = login.issue
    login.issue = lambda scope: {**issue(scope), "token_type": "DPoP"}  # type: ignore[method-assign]
    async with connected(login, dpop=True) as (replicas, vault):
        await connect(vault, BOB)
        found = await vault.obtain("github", asker(ALICE))
        assert found.is_bound
        headers = found.headers("GET", "https://api.example/x?y")
        assert headers["authorization"].startswith("DPoP ")
        assert _key_of(headers["dpop"]) != _key_of(
            (await vault.obtain("github", asker(BOB))).headers("GET", "https://a")["dpop"]
        )
        replicas.clock.now += 4000
        renewed = await replicas.vault().obtain("github", asker(ALICE))
        assert _key_of(renewed.headers("GET", "https://api.example/x")["dpop"]) == _key_of(headers["dpop"])
        assert _key_of(login.asked("/token")[-1].headers["dpop"]) == _key_of(headers["dpop"])
        assert renewed.learn_nonce("https://api.example/x", "nonce-1")


@pytest.mark.covers("GW-5.9")
async def test_tokens_that_need_no_person_are_bound_to_a_key_too(login: AuthorizationServer) -> None:
    issue = login.issue
    login.issue = lambda scope: {**issue(scope), "token_type": "DPoP"}  # type: ignore[method-assign]
    grant = ClientCredentials("machine", "machine-secret", token_endpoint_auth_method="client_secret_post")
    exchange = TokenExchange(
        login.url,
        client_id="us",
        client_secret="our-secret",
        token_endpoint_auth_method="client_secret_post",
        dpop=True,
    )
    kinds = {"own": ServerOAuth(login.url, grant=grant, dpop=True), "exchanged": exchange}
    replicas = Replicas(MemoryKV(), kinds)
    for name in kinds:
        found = await replicas.vault().obtain(name, asker(ALICE, "token-of-alice"))
        proof = found.headers("GET", "https://api.example/x")["dpop"]
        assert found.is_bound and _key_of(login.asked("/token")[-1].headers["dpop"]) == _key_of(proof)
        # Another process opens the key from the store.
        again = await replicas.vault().obtain(name, asker(ALICE, "token-of-alice"))
        assert _key_of(again.headers("GET", "https://api.example/x")["dpop"]) == _key_of(proof)


@pytest.mark.covers("GW-5.9")
async def test_a_bearer_token_is_no_bound_token(login: AuthorizationServer) -> None:
    replicas = Replicas(MemoryKV(), {"github": of_user(login, dpop=True)})
    with pytest.raises(SignInFailed, match="instead of dpop"):
        await connect(replicas.vault(), ALICE)


def _key_of(proof: str) -> Any:
    import base64

    header = proof.partition(".")[0]
    return json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["jwk"]["x"]


async def test_a_server_without_a_client_registers_once(login: AuthorizationServer) -> None:
    replicas = Replicas(MemoryKV(), {"github": UserOAuth(login.url, scopes=["repo"])})
    await asyncio.gather(connect(replicas.vault(), ALICE), connect(replicas.vault(), BOB))
    assert len(login.clients) == 1
    replicas.clock.now += 4000
    assert (await replicas.vault().obtain("github", asker(BOB))).token in login.valid
    assert len(login.clients) == 1


async def test_a_provider_without_metadata_is_named_by_its_endpoints(login: AuthorizationServer) -> None:
    kind = UserOAuth(
        token_endpoint=f"{login.url}/token",
        authorization_endpoint=f"{login.url}/authorize",
        client_id="our-client",
        client_secret="our-secret",
    )
    vault = Replicas(MemoryKV(), {"github": kind}).vault()
    await connect(vault, ALICE)
    assert login.asked("/.well-known/oauth-authorization-server") == []
    assert login.grants[0]["client_secret"] == "our-secret" and "resource" not in login.grants[0]


async def test_account_is_connected_at_an_issuer_that_the_operator_accepts(
    login: AuthorizationServer, caplog: pytest.LogCaptureFixture
) -> None:
    named = "https://tenant.login.example"
    login.document = {"issuer": named}
    refused = Replicas(MemoryKV(), {"github": of_user(login)}).vault()
    with pytest.raises(SignInFailed, match=r"say so with accept_issuer=\{"):
        await connect(refused, ALICE)
    replicas = Replicas(MemoryKV(), {"github": of_user(login, accept_issuer={login.url: named})})
    vault = replicas.vault()
    await connect(vault, ALICE)
    first = (await vault.obtain("github", asker(ALICE))).token
    assert f"the metadata of {login.url} is that of {named}, which accept_issuer= allows" in caplog.text
    # A refresh in another process finds the same authorization server.
    replicas.clock.now += 3600
    assert (await replicas.vault().obtain("github", asker(ALICE))).token not in ("", first)
    # Another name than the accepted one is refused.
    login.document = {"issuer": "https://evil.example"}
    other = Replicas(MemoryKV(), {"github": of_user(login, accept_issuer={login.url: named})}).vault()
    with pytest.raises(SignInFailed, match="evil"):
        await connect(other, ALICE)


# --- settings ---


WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("needs issuer=", lambda: Vault(MemoryKV(), [SECRET], {"a": UserOAuth()})),
    ("authorization_endpoint=", lambda: Vault(MemoryKV(), [SECRET], {"a": UserOAuth(token_endpoint="https://a/t")})),
    ("https address", lambda: UserOAuth("http://login.example")),
    ("needs client_id=", lambda: Vault(MemoryKV(), [SECRET], {"a": TokenExchange("https://login.example")})),
    ("names issuers by their URLs", lambda: UserOAuth("https://login.example", accept_issuer={"login": "x"})),
    ("need client_id=", lambda: UserOAuth("https://login.example", client_secret="x")),
    ("is a list", lambda: UserOAuth("https://login.example", scopes="read")),
    ("grant=, or the operators=", lambda: ServerOAuth("https://login.example")),
    ("visible ASCII", lambda: StaticSecret("two\r\nlines")),
    ("not a header for a secret", lambda: StaticSecret("x", header="Host")),
    ("not a header for a secret", lambda: UserSecret(header="a b")),
    ("printable characters", lambda: Vault(MemoryKV(), [SECRET], {"": NoCredential()})),
    ("is one of", lambda: Vault(MemoryKV(), [SECRET], {"a": "a text"})),  # type: ignore[dict-item]
    ("audience", lambda: Passthrough("")),
    ("no credential 'b'", lambda: Vault(MemoryKV(), [SECRET], {"a": NoCredential()}).kind("b")),
]


@cases(("text", "make"), WRONG, ids=[text for text, _ in WRONG])
def test_wrong_settings_are_refused_at_start(text: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ServerError, match=text):
        make()


async def test_what_is_stored_is_bounded(login: AuthorizationServer) -> None:
    login.issue = lambda scope: {  # type: ignore[method-assign]
        "access_token": "a" * 30_000,
        "refresh_token": "b" * 30_000,
        "token_type": "Bearer",
    }
    vault = Replicas(MemoryKV(), {"github": of_user(login)}).vault()
    with pytest.raises(SignInFailed, match="too long"):
        await connect(vault, ALICE)
    with pytest.raises(ServerError):
        vault = Replicas(MemoryKV(), {"x": UserSecret()}).vault()
        await vault.store("x", Owner.from_principal(ALICE), "a" * 10_000, identity=vault.identity("x"))
