"""Callers of an API over HTTP: their tokens, their accounts, their scopes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.auth.connecting import PUBLIC, SECRET, Accounts, Browser, World
from tests.auth.test_proxy import Google
from tests.http.modernclient import ModernClient
from tests.openapi.petstore import petstore
from tests.openapi.stub_api import Arrived, Reply, StubApi, json_reply, stub_api

from toolwire import Server, testing
from toolwire.auth import NoCredential, Principal, ResourceServer, TokenExchange, UserOAuth
from toolwire.openapi import ALL, Api, openapi
from toolwire.protocol.revisions import MODERN
from toolwire.types import REVISIONS

ERAS = (MODERN, "2025-11-25")


def described(login: Accounts, scopes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a description whose operations need a token of `login`."""
    endpoints = {"authorizationUrl": f"{login.url}/authorize", "tokenUrl": f"{login.url}/token"}
    scheme = {"type": "oauth2", "flows": {"authorizationCode": {**endpoints, "scopes": {}}}}
    made = petstore(security=[{"oauth": list(scopes)}])
    made["components"]["securitySchemes"] = {"oauth": scheme}
    return made


class Scene(World):
    """A server with an API that takes the tokens of `login`. Callers come with tokens of `entrance`."""

    def __init__(self, login: Accounts, entrance: Accounts, stub: StubApi) -> None:
        super().__init__("server", login, entrance, Google())
        self.stub = stub
        self.meeting: asyncio.Barrier | None = None
        self.scopes: dict[str, frozenset[str]] = {}
        stub.answers(self.answer)

    async def answer(self, arrived: Arrived) -> Reply:
        """Say whose token it is."""
        token = arrived.headers.get("authorization", "").partition(" ")[2]
        if token not in self.login.valid:
            return Reply(401, b"who are you?", "text/plain", {"www-authenticate": 'Bearer error="invalid_token"'})
        if self.meeting is not None:
            await self.meeting.wait()
        return json_reply(self.login.users[token])

    async def verify(self, token: str) -> Principal | None:
        found = await self.entrance.verify(token)
        return found and Principal(found.subject, found.provider, scopes=self.scopes.get(found.subject, frozenset()))

    @asynccontextmanager
    async def serving(self, api: Api, prefix: str | None = None) -> AsyncIterator[Server]:
        auth = ResourceServer(self.verify, authorization_servers=[self.entrance.url])
        server = Server("front", auth=auth, secret=SECRET).include(api, prefix=prefix)
        self.app = server.http_app(public_url=PUBLIC)
        try:
            yield server
        finally:
            await self.app.stop()

    def api(self, **options: Any) -> Api:
        kind = UserOAuth(client_id="us", client_secret="our-secret")
        return openapi(
            described(self.login),
            **{"keep": "listPets", "base_url": self.stub.url, "credentials": {"oauth": kind}, **options},
        )

    def sent_tokens(self) -> set[str]:
        return {each.headers.get("authorization", "").partition(" ")[2] for each in self.stub.arrived}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        login = await stack.enter_async_context(Accounts())
        entrance = await stack.enter_async_context(Accounts(10_001))
        yield Scene(login, entrance, await stack.enter_async_context(stub_api()))


def link_in(told: str) -> str:
    found = re.search(r"https://\S+", told)
    assert found is not None, told
    return found[0]


# --- nothing of the caller goes on ------------------------------------------------------------------------------------


@pytest.mark.covers("OA-6.5", "OA-6.6")
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", MODERN])
async def test_no_credential_of_a_caller_reaches_the_api_and_its_401_is_not_ours(scene: Scene, revision: str) -> None:
    api = scene.api(credentials={"oauth": NoCredential()}, forward_headers=["x-team"])
    async with scene.serving(api), scene.client("alice", revision) as client:
        result = await client.call_tool("listPets", {})
        # The client would sign in to us again, and again, if this were a 401 of ours.
        assert result.is_error
        assert "listPets answered 401" in result.text
        assert "This concerns the API, not the sign-in to this server." in result.text
    assert scene.stub.arrived
    for each in scene.stub.arrived:
        assert {"authorization", "cookie", "mcp-session-id", "mcp-protocol-version"}.isdisjoint(each.headers)
    assert scene.tokens["alice"] not in str(scene.stub.arrived)


@pytest.mark.covers("OA-6.5")
async def test_headers_and_cookies_of_a_request_stay_here(scene: Scene) -> None:
    api = scene.api(credentials={"oauth": NoCredential()}, forward_headers=["x-team"])
    async with scene.serving(api):
        sent = {
            "authorization": f"Bearer {await scene.token('alice')}",
            "cookie": "session=secret",
            "x-team": "blue",
            "x-other": "no",
            "host": "api.example.org",
        }
        answer = await ModernClient(scene.app).call("listPets", {}, headers=sent)
        assert answer.status == 200
    (arrived,) = scene.stub.arrived
    assert arrived.headers["x-team"] == "blue"
    assert {"authorization", "cookie", "x-other"}.isdisjoint(arrived.headers)


# --- accounts of callers ----------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-6.4")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("shape", ["tools", "bridge"])
async def test_each_caller_acts_with_the_own_account(scene: Scene, revision: str, shape: str) -> None:
    called: tuple[str, dict[str, Any]] = ("listPets", {})
    if shape == "bridge":
        called = ("call_operation", {"operation": "listPets"})
    async with scene.serving(scene.api(shape=shape)) as server:
        for user in ("alice", "bob"):
            browser = Browser(scene, user)
            browser.account = f"{user}@pets"
            # The client is asked to open the page, and the call goes on by itself.
            async with scene.client(user, revision, browser) as client:
                assert (await client.call_tool(*called)).text == f'"{user}@pets"'
        assert len(scene.links) == 2
        async with scene.client("alice", revision) as alice, scene.client("bob", revision) as bob:
            calls = [each.call_tool(*called) for _ in range(10) for each in (alice, bob)]
            found = [each.text for each in await asyncio.gather(*calls)]
            assert found == ['"alice@pets"', '"bob@pets"'] * 10
        assert sorted([each.subject async for each in server.vault.entries("oauth")]) == ["alice", "bob"]
    assert not scene.sent_tokens() & {*scene.tokens.values()}


@pytest.mark.covers("OA-6.4")
async def test_a_caller_without_an_account_is_told_where_to_connect_one(scene: Scene) -> None:
    # This client cannot be asked to open a page.
    async with scene.serving(scene.api()), scene.client("alice", "2025-06-18") as client:
        result = await client.call_tool("listPets", {})
        assert result.is_error
        assert scene.stub.arrived == []
        await Browser(scene, "alice").connect(link_in(result.text))
        assert (await client.call_tool("listPets", {})).text == '"alice"'


@pytest.mark.covers("OA-6.4", "OA-6.6")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_token_that_the_api_refuses_is_renewed(scene: Scene, revision: str) -> None:
    async with scene.serving(scene.api()):
        async with scene.client("alice", revision, Browser(scene, "alice")) as client:
            assert (await client.call_tool("listPets", {})).text == '"alice"'
        async with scene.client("alice", revision) as client:
            scene.login.expire()
            assert (await client.call_tool("listPets", {})).text == '"alice"'
            # The account is gone: the caller connects it again, and stays signed in here.
            scene.login.expire()
            scene.login.refresh_tokens.clear()
            result = await client.call_tool("listPets", {})
            assert result.is_error
            await Browser(scene, "alice").connect(link_in(result.text))
            assert (await client.call_tool("listPets", {})).text == '"alice"'


@pytest.mark.covers("OA-6.4")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_that_is_cancelled_in_the_middle_leaves_no_token_for_others(scene: Scene, revision: str) -> None:
    async with scene.serving(scene.api()):
        for user in ("alice", "bob"):
            async with scene.client(user, revision, Browser(scene, user)) as client:
                await client.call_tool("listPets", {})
        async with scene.client("alice", revision) as alice, scene.client("bob", revision) as bob:
            # Both are at the API at once. Alice gives up there.
            scene.meeting = asyncio.Barrier(3)
            first = asyncio.ensure_future(alice.call_tool("listPets", {}))
            second = asyncio.ensure_future(bob.call_tool("listPets", {}))
            while scene.meeting.n_waiting < 2:
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await scene.meeting.wait()
            assert (await second).text == '"bob"'
            scene.meeting = None
            for _ in range(3):
                found = await asyncio.gather(bob.call_tool("listPets", {}), alice.call_tool("listPets", {}))
                assert [each.text for each in found] == ['"bob"', '"alice"']


async def test_accounts_come_and_go_with_their_api(scene: Scene) -> None:
    api = scene.api()
    async with scene.serving(api) as server:
        assert "oauth" in server.vault
        server.exclude(api)
        assert "oauth" not in server.vault
        server.include(api)
        assert "oauth" in server.vault


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("OA-6.10")
@pytest.mark.parametrize("is_asked", [None, True, False])
async def test_scopes_of_operations_filter_lists_and_are_challenged(scene: Scene, is_asked: bool | None) -> None:
    """Scopes of an operation are asked of callers whose own token is exchanged, or where the operator says so."""
    scene.scopes = {"alice": frozenset({"pets:read"})}
    exchange = TokenExchange(token_endpoint=f"{scene.login.url}/token", client_id="us", client_secret="our-secret")
    user = UserOAuth(client_id="us", client_secret="our-secret")
    api = openapi(
        described(scene.login, ("pets:read",)),
        keep=ALL,
        drop="headPet",
        base_url=scene.stub.url,
        credentials={"oauth": exchange if is_asked is None else user},
        require_scopes=is_asked,
    )
    async with scene.serving(api):
        seen = {}
        for who in ("alice", "bob"):
            headers = {"authorization": f"Bearer {await scene.token(who)}", "host": "api.example.org"}
            listed = await ModernClient(scene.app).request("tools/list", headers=headers)
            seen[who] = len(listed.json()["result"]["tools"])
            answer = await ModernClient(scene.app).call("listOrders", {}, headers=headers)
            if who == "bob" and is_asked is not False:
                assert answer.status == 403
                assert 'scope="pets:read"' in answer.headers["www-authenticate"]
            else:
                assert answer.status == 200
        assert seen == {"alice": 5, "bob": 5 if is_asked is False else 0}


@pytest.mark.covers("OA-6.10")
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_local_caller_needs_no_scopes(scene: Scene, revision: str) -> None:
    api = openapi(
        described(scene.login, ("pets:read",)),
        keep="listPets",
        base_url=scene.stub.url,
        credentials={"oauth": NoCredential()},
        require_scopes=True,
    )
    async with testing.connect(Server("front").include(api), revision=revision) as (client, _):
        assert len(await client.list_tools()) == 1
