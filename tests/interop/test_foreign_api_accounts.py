"""Two users of a generated server, whose accounts at the API are at npm's `oidc-provider`."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.people import AUTH, KEYS, PUBLIC, Person, client_of
from tests.interop.protected import provider
from tests.openapi.stub_api import Arrived, Reply, json_reply, stub_api

from toolwire import Client, Server, ToolResult
from toolwire.auth import UserOAuth
from toolwire.openapi import ALL, openapi
from toolwire.stores.sqlite import SqliteStores

pytestmark = pytest.mark.timeout(300)

RESOURCE = "http://127.0.0.1/api"
#: How long tokens live. It is short, so that they are renewed in the middle of calls.
SECONDS = 4
CALLS = 400
REDIRECT = f"{PUBLIC}/connect/callback/login"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with provider(RESOURCE, seconds=SECONDS) as found:
        yield found


class Accounts:
    """An API that says whose token it was called with. Tokens may be refused, although they are valid."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        """The last token of each user."""
        self.refused: set[str] = set()
        self.refusals = 0
        self.refuses_all_of = ""

    def answer(self, arrived: Arrived) -> Reply:
        assert "cookie" not in arrived.headers
        kind, _, token = arrived.headers["authorization"].partition(" ")
        assert kind == "Bearer" and token not in KEYS.values()
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["aud"] == RESOURCE
        user = claims["sub"]
        self.tokens[user] = token
        if claims["exp"] <= time.time() or token in self.refused or user == self.refuses_all_of:
            self.refusals += 1
            return Reply(401, headers={"www-authenticate": 'Bearer error="invalid_token"'})
        return json_reply({"sub": user, "scope": claims["scope"]})


def description(scheme: dict[str, Any], url: str) -> dict[str, Any]:
    answer = {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}
    whoami = {"operationId": "whoami", "security": [{"login": ["notes:read"]}], "responses": {"200": answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "notes", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/me": {"get": whoami}},
        "components": {"securitySchemes": {"login": scheme}},
    }


def registered(issuer: str) -> dict[str, Any]:
    """Register a client at the provider, as an operator does for an API whose description has endpoints only."""
    metadata = {
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "client_secret_basic",
        "application_type": "native",
    }
    body = json.dumps(metadata).encode()
    request = urllib.request.Request(f"{issuer}/reg", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        made = json.load(answer)
    return {name: made[name] for name in ("client_id", "client_secret")}


def scheme_of(kind: str, issuer: str) -> tuple[dict[str, Any], UserOAuth]:
    """Return a security scheme, and the accounts that serve it."""
    if kind == "openIdConnect":
        url = f"{issuer}/.well-known/openid-configuration"
        return {"type": kind, "openIdConnectUrl": url}, UserOAuth(scopes=["notes:read"])
    flow = {"authorizationUrl": f"{issuer}/auth", "tokenUrl": f"{issuer}/token", "scopes": {"notes:read": ""}}
    account = UserOAuth(
        scopes=["notes:read", "offline_access"],
        accepts_fewer_scopes=True,
        parameters={"prompt": "consent"},
        **registered(issuer),
    )
    return {"type": kind, "flows": {"authorizationCode": flow}}, account


class Replica:
    """A process of the server, as far as it shares nothing but a file with the others."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.statuses: set[int] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def seen(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"] == "/mcp":
                self.statuses.add(message["status"])
            await send(message)

        await self.app(scope, receive, seen)


@asynccontextmanager
async def replica(path: Path, scheme: dict[str, Any], account: UserOAuth, url: str) -> AsyncIterator[Replica]:
    stores = SqliteStores(path)
    server = Server("front", auth=AUTH, secret="a secret for tests", stores=stores)
    server.include(openapi(description(scheme, url), keep=ALL, credentials={"login": account}))
    app: Any = server.http_app(public_url=PUBLIC)
    try:
        yield Replica(app)
    finally:
        await app.stop()
        stores.close()


async def who(client: Client) -> ToolResult:
    return await client.call_tool("whoami")


async def calls_of(person: Person, replica: Replica, revision: str, number: int) -> tuple[list[Any], int]:
    """Call in a row, and cancel some in the middle. Return the answers, and how many calls were cancelled."""
    answers, given_up = [], 0
    async with client_of(person, replica, revision) as client:
        for index in range(number):
            call = asyncio.ensure_future(who(client))
            if index % 20 == 7:
                # In the middle: some before the request is sent, some while the API works.
                await asyncio.sleep(0.002 * (index % 3))
                call.cancel()
            try:
                answers.append((await call).structured["sub"])
            except asyncio.CancelledError:
                given_up += 1
    return answers, given_up


@pytest.mark.parametrize("kind", ["openIdConnect", "oauth2"])
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_neither_user_ever_calls_the_api_as_the_other(
    issuer: str, tmp_path: Path, revision: str, kind: str
) -> None:
    people = [Person(user) for user in KEYS]
    path = tmp_path / "server.db"
    scheme, account = scheme_of(kind, issuer)
    async with (
        stub_api() as stub,
        replica(path, scheme, account, stub.url) as one,
        replica(path, scheme, account, stub.url) as two,
    ):
        accounts = Accounts()
        stub.answers(accounts.answer)
        # The first call leads to the sign-in at the provider, by URL elicitation.
        for person in people:
            person.app = one
            async with client_of(person, one, revision) as client:
                assert (await who(client)).structured["sub"] == person.name
            assert person.visits == 1

        lanes = [(person, each) for person in people for each in (one, two)] * 2
        done = await asyncio.gather(*(calls_of(person, each, revision, CALLS // len(lanes)) for person, each in lanes))
        seen: dict[str, int] = dict.fromkeys(KEYS, 0)
        for (person, _), (answers, _) in zip(lanes, done, strict=True):
            assert set(answers) == {person.name}
            seen[person.user] += len(answers)
        given_up = sum(number for _, number in done)
        assert sum(seen.values()) + given_up == CALLS and given_up > 0
        assert [person.visits for person in people] == [1, 1]

        await refusals(accounts, people, one, revision, issuer)
        assert not {401, 403} & (one.statuses | two.statuses), "no refusal of the API is one of ours"
        print(f"{kind}, {revision}: {seen} answers, {given_up} cancelled, {accounts.refusals} refused by the API")


async def refusals(accounts: Accounts, people: list[Person], server: Replica, revision: str, issuer: str) -> None:
    """Let the API refuse the tokens of the first user, in three ways. The second user never notices."""
    first, second = people
    async with client_of(first, server, revision) as client, client_of(second, server, revision) as other:
        # One token: it is renewed.
        await who(client)
        accounts.refused.add(accounts.tokens[first.name])
        assert (await who(client)).structured["sub"] == first.name
        assert (first.visits, accounts.refusals) == (1, 1)
        # One token, and the provider does not renew it: the user signs in again.
        accounts.refused.add(accounts.tokens[first.name])
        with urllib.request.urlopen(f"{issuer}/forget/{first.name}", data=b"", timeout=30) as answer:
            assert answer.read() == b"forgotten"
        assert (await who(client)).structured["sub"] == first.name
        assert first.visits == 2
        # All tokens: the model is told whose sign-in it is about.
        accounts.refuses_all_of = first.name
        result = await who(client)
        assert result.is_error and "The API refuses your account for 'login'" in result.text
        assert (await who(other)).structured["sub"] == second.name
        accounts.refuses_all_of = ""
        assert (await who(client)).structured["sub"] == first.name
        assert (first.visits, second.visits) == (2, 1)
