"""Whose account calls an API: users with accounts of their own, and what callers prove themselves with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.auth.connecting import PUBLIC, SECRET, Browser, World, world
from tests.cases import cases
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Arrived, Reply, StubApi, json_reply, stub_api

from toolwire import Client, Limits, Server
from toolwire.auth import Principal, UserOAuth, UserSecret
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Vault
from toolwire.client.http_target import HttpTarget
from toolwire.errors import ServerError
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.openapi import ALL, Api, openapi
from toolwire.openapi.answer import long_running
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.types import REVISIONS

ERAS = ("2026-07-28", "2025-11-25")
USERS = ("alice", "bob")
REFUSAL = Reply(401, b'{"title": "Sign in"}', "application/problem+json", {"www-authenticate": "Bearer"})


class Scene:
    """A server with an API that takes the tokens of a provider, and says whose they are."""

    def __init__(self, scene: World, stub: StubApi, app: Any) -> None:
        self.world, self.stub = scene, stub
        self._app = app
        self.statuses: set[int] = set()
        """The statuses of our own answers."""
        self.refused: set[str] = set()
        """Tokens that the API refuses, although they are valid."""
        self.held: dict[str, asyncio.Event] = {}
        """The requests of these users are answered when the event says so."""
        self.arrived = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def seen(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"] == "/mcp":
                self.statuses.add(message["status"])
            await send(message)

        await self._app(scope, receive, seen)

    async def stop(self) -> None:
        await self._app.stop()

    async def answer(self, arrived: Arrived) -> Reply:
        kind, _, token = arrived.headers["authorization"].partition(" ")
        assert kind == "Bearer"
        if token not in self.world.login.valid or token in self.refused:
            return REFUSAL
        user = self.world.login.users[token]
        self.arrived.set()
        if user in self.held:
            await self.held[user].wait()
        return json_reply([{"id": 1, "name": user}])


@asynccontextmanager
async def scene_of(**options: Any) -> AsyncIterator[Scene]:
    async with world() as made, stub_api() as stub:
        flow = {"authorizationUrl": f"{made.login.url}/authorize", "tokenUrl": f"{made.login.url}/token"}
        scheme = {"type": "oauth2", "flows": {"authorizationCode": {**flow, "scopes": {"repo": "all"}}}}
        described = petstore(security=[{"login": ["repo"]}])
        described["components"]["securitySchemes"] = {"login": scheme}
        described["paths"]["/jobs"] = {"post": {"operationId": "start", "responses": {"202": {"description": ""}}}}
        account = UserOAuth(client_id="us", client_secret="our-secret")
        server = Server("shop", auth=made.auth(), secret=SECRET, limits=Limits(task_poll=0.05))
        keep = ["listPets", "start"]
        server.include(openapi(described, keep=keep, base_url=stub.url, credentials={"login": account}, **options))
        app: Any = server.http_app(public_url=PUBLIC)
        scene = made.app = Scene(made, stub, app)
        stub.answers(scene.answer)
        yield scene
        await app.stop()


async def whose(client: Client) -> str:
    result = await client.call_tool("listPets")
    assert not result.is_error, result.text
    structured = result.structured
    pets = structured if isinstance(structured, list) else structured["result"]
    return str(pets[0]["name"])


@pytest.mark.covers("OA-11.8")
@pytest.mark.parametrize("revision", ERAS)
async def test_no_user_ever_calls_with_the_account_of_another(revision: str) -> None:
    async with scene_of() as scene:
        made = scene.world
        browsers = {user: Browser(made, user) for user in USERS}
        async with (
            made.client("alice", revision, browsers["alice"]) as alice,
            made.client("bob", revision, browsers["bob"]) as bob,
        ):
            assert await asyncio.gather(whose(alice), whose(bob)) == list(USERS)
            assert len(made.links) == 2
            for _ in range(10):
                # The API works on a call of one user, who gives up, while the other one calls.
                scene.held["alice"] = asyncio.Event()
                scene.arrived.clear()
                given_up = asyncio.ensure_future(whose(alice))
                await scene.arrived.wait()
                other = asyncio.ensure_future(whose(bob))
                given_up.cancel()
                await asyncio.wait([given_up])
                assert given_up.cancelled()
                scene.held.pop("alice").set()
                assert await other == "bob"
                assert await asyncio.gather(*(whose(each) for each in (alice, bob, alice, bob))) == [*USERS, *USERS]
            assert len(made.links) == 2


@pytest.mark.covers("OA-11.4", "OA-11.8")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_token_that_the_api_refuses_is_renewed_or_its_user_signs_in_again(revision: str) -> None:
    async with scene_of() as scene:
        made = scene.world
        async with made.client("alice", revision, Browser(made, "alice")) as client:
            assert await whose(client) == "alice"
            # The provider renews it.
            scene.refused.update(made.login.valid)
            assert await whose(client) == "alice"
            assert (made.login.grants[-1]["grant_type"], len(made.links)) == ("refresh_token", 1)
            # The provider does not: the user connects the account again.
            scene.refused.update(made.login.valid)
            made.login.refresh_tokens.clear()
            assert await whose(client) == "alice"
            assert len(made.links) == 2
        assert 401 not in scene.statuses


async def test_account_of_one_origin_is_not_sent_to_another() -> None:
    """The base URL of the API changes in the settings, and its name does not."""
    async with world() as made, stub_api() as old, stub_api() as new:
        shared = Stores(MemoryKV(), MemoryLog(), MemoryBus())
        flow = {"authorizationUrl": f"{made.login.url}/authorize", "tokenUrl": f"{made.login.url}/token"}
        described = petstore(security=[{"login": []}])
        scheme = {"type": "oauth2", "flows": {"authorizationCode": {**flow, "scopes": {}}}}
        described["components"]["securitySchemes"] = {"login": scheme}
        for stub, path, connected in ((old, "", 1), (old, "/v2", 1), (new, "", 2), (old, "", 3)):
            account = UserOAuth(client_id="us", client_secret="our-secret")
            server = Server("shop", auth=made.auth(), secret=SECRET, stores=shared)
            server.include(
                openapi(described, keep="listPets", base_url=stub.url + path, credentials={"login": account})
            )
            scene = made.app = Scene(made, stub, server.http_app(public_url=PUBLIC))
            stub.answers(scene.answer)
            async with made.client("alice", ERAS[0], Browser(made, "alice")) as client:
                assert await whose(client) == "alice"
            assert len(made.links) == connected
            await scene.stop()
        tokens = [{each.headers["authorization"] for each in stub.arrived} for stub in (old, new)]
        assert tokens[0].isdisjoint(tokens[1])


async def test_secret_of_a_user_for_one_origin_is_not_sent_to_another() -> None:
    shared, owner = Stores(MemoryKV(), MemoryLog(), MemoryBus()), Owner.from_principal(Principal("alice", "tests"))
    described = petstore(security=[{"key": []}])
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}

    def vault(url: str) -> Vault:
        server = Server("shop", secret=SECRET, stores=shared)
        api = openapi(described, keep="listPets", base_url=url, credentials={"key": UserSecret()})
        return server.include(api).vault

    first = vault("https://old.example/v1")
    await first.store("key", owner, "the secret", identity=first.identity("key"))
    for url, is_connected in (("https://old.example/v2", True), ("https://new.example/v1", False)):
        assert await vault(url).accounts(owner) == [("key", is_connected)]


def test_apis_at_one_origin_share_an_account_and_others_are_refused() -> None:
    account, server = UserSecret(), Server("shop", secret=SECRET)
    described = petstore(security=[{"key": []}])
    described["components"]["securitySchemes"] = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}

    def api(url: str) -> Api:
        return openapi(described, keep="listPets", base_url=url, credentials={"key": account})

    server.include(api("https://one.example/a"), prefix="a").include(api("https://one.example/b"), prefix="b")
    with pytest.raises(ServerError, match="another credential 'key', which is not for this API"):
        server.include(api("https://two.example"), prefix="c")


@pytest.mark.covers("OA-11.4")
@cases("revision", [each for each in REVISIONS if each >= "2025-03-26"])
async def test_what_callers_prove_themselves_with_never_reaches_the_api(revision: str) -> None:
    async with world() as made, stub_api() as stub:
        server = Server("shop", auth=made.auth(), secret=SECRET)
        described = openapi(petstore(), keep=ALL, drop=["headPet"], base_url=stub.url, forward_headers=["X-Tenant"])
        server.include(described)
        app: Any = server.http_app(public_url=PUBLIC)
        scene = Scene(made, stub, app)
        key = await made.token("alice")
        headers = {"cookie": "session=of-this-server", "x-api-key": "of-this-server", "x-tenant": "blue"}
        pool = AsgiPool(scene)
        target = HttpTarget(f"{PUBLIC}/mcp", auth=key, headers=headers, pool=pool)
        async with Client(target, revision=revision) as client:
            stub.answers(json_reply([]), REFUSAL, REFUSAL._replace(status=403))
            await client.call_tool("listPets")
            # A refusal of the API is the error of a tool, and no reason to sign in here.
            for status in (401, 403):
                result = await client.call_tool("showPet", {"petId": "1"})
                assert result.is_error and f"answered {status}" in result.text
        await pool.close()
        await app.stop()
        assert not {401, 403} & scene.statuses
        assert len(stub.arrived) == 3
        for arrived in stub.arrived:
            assert not {"authorization", "cookie", "x-api-key"} & arrived.headers.keys()
            assert arrived.headers["x-tenant"] == "blue"
            assert key not in str(arrived) and "of-this-server" not in str(arrived)


@pytest.mark.covers("OA-5.19", "OA-6.4")
@cases("shape", ["tools", "bridge"])
@cases("revision", ERAS)
async def test_an_account_is_asked_for_before_a_call_becomes_a_task(
    monkeypatch: pytest.MonkeyPatch, revision: str, shape: str
) -> None:
    for name in ("FIRST_SECONDS", "LEAST_SECONDS"):
        monkeypatch.setattr(long_running, name, 0.01)
    async with scene_of(shape=shape) as scene:
        states = [json_reply({"status": "running"}), json_reply({"status": "succeeded"})]

        async def answer(arrived: Arrived) -> Reply:
            assert (await scene.answer(arrived)).status == 200
            accepted = json_reply({}, 202, location="/jobs/1", retry_after="0")
            return accepted if arrived.method == "POST" else states.pop(0)

        scene.stub.answers(answer)
        async with scene.world.client("alice", revision, Browser(scene.world, "alice")) as client:
            name, arguments = ("start", {}) if shape == "tools" else ("call_operation", {"operation": "start"})
            result = await client.call_tool(name, arguments)
            assert not result.is_error and result.structured == {"status": "succeeded"}, result.text
            assert len(scene.world.links) == 1
