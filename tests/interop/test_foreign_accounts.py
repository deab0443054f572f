"""Two users with two accounts at npm's `oidc-provider`, which issues the tokens of the server behind a gateway."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from tests.http.httpclient import Answer, HttpClient
from tests.interop.protected import protected

from toolwire import Client, Gateway
from toolwire.auth import ApiKeys, ClientCredentials, Principal, ServerOAuth, UserOAuth
from toolwire.auth.vault.records import Owner
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.stores.sqlite import SqliteStores

PUBLIC = "http://127.0.0.1:8799"
KEYS = {user: f"the-key-of-{user}-0123456789" for user in ("alice", "bob")}
#: How long tokens live. It is short, so that they are renewed in the middle of calls.
SECONDS = 4
CALLS = 1000


class Person:
    """Somebody at a browser of their own, who is signed in at the provider under another name than here."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.name = f"{user}-at-the-provider"
        self.visits = 0
        self.app: Any = None
        self._cookies: dict[str, str] = {}
        self._browser = urllib.request.build_opener(_Stops(), urllib.request.HTTPCookieProcessor(CookieJar()))

    async def connect(self, link: str) -> Answer:
        self.visits += 1
        page = await self._here(link, None)
        found = re.search(r'name="page" value="([^"]*)"', page.body.decode())
        assert found is not None, page.body
        answer = await self._here(link, {"page": unescape(found[1]), "key": KEYS[self.user]})
        url = answer.headers["location"]
        back = await asyncio.to_thread(self._elsewhere, f"{url}&{urlencode({'login_hint': self.name})}")
        return await self._here(back, None)

    async def _here(self, url: str, form: dict[str, str] | None) -> Answer:
        parts = urlsplit(url)
        cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = {"host": "127.0.0.1:8799", **({"cookie": cookie} if cookie else {})}
        client = HttpClient(self.app, path=parts.path, headers=headers)
        body = b"" if form is None else urlencode(form).encode()
        answer = await client.start("GET" if form is None else "POST", body=body, query=parts.query).finished()
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer

    def _elsewhere(self, url: str) -> str:
        for _ in range(10):
            if url.startswith(PUBLIC):
                return url
            try:
                page = self._browser.open(url, timeout=30)
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code in (302, 303), error.read()
                    url = urljoin(url, error.headers["location"])
            else:
                raise AssertionError(page.read())
        raise AssertionError("too many redirects")


class _Stops(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


@pytest.fixture(scope="module")
def notes() -> Iterator[str]:
    with protected(seconds=SECONDS) as url:
        yield url


@asynccontextmanager
async def replica(notes: str, path: Path, dpop: bool) -> AsyncIterator[tuple[Gateway, Any]]:
    """Yield a process of the gateway, as far as it shares nothing but a file with the others."""
    stores = SqliteStores(path)
    gateway = Gateway(
        "front", auth=ApiKeys({KEYS[user]: user for user in KEYS}), secret="a secret for tests", stores=stores
    )
    grant = ClientCredentials("gateway", "only a test, but long enough")
    gateway.add(
        "notes",
        notes,
        prefix="",
        credentials=UserOAuth(scopes=["notes:read"], dpop=dpop),
        list_credentials=ServerOAuth(grant=grant, scopes=["notes:read"]),
    )
    app = gateway.http_app(public_url=PUBLIC)
    try:
        yield gateway, app
    finally:
        await app.stop()
        stores.close()


@asynccontextmanager
async def client_of(person: Person, app: Any, revision: str) -> AsyncIterator[Client]:
    async def opened(message: str, params: Any) -> bool:
        answer = await person.connect(params.url)
        assert b"is connected" in answer.body, answer.body
        return True

    pool = AsgiPool(app)
    target = HttpTarget(f"{PUBLIC}/mcp", auth=KEYS[person.user], pool=pool)
    async with Client(target, revision=revision, elicit=Elicitation(url=opened)) as client:
        yield client
    await pool.close()


async def who(client: Client) -> str:
    return str(await client.call_tool("whoami", returns=str))


@pytest.mark.parametrize("dpop", [False, True])
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_neither_user_ever_acts_as_the_other(notes: str, tmp_path: Path, revision: str, dpop: bool) -> None:
    path = tmp_path / "gateway.db"
    people = [Person(user) for user in KEYS]
    async with replica(notes, path, dpop) as (_, one), replica(notes, path, dpop) as (_, two):
        seen: dict[str, list[str]] = {person.user: [] for person in people}
        given_up = 0
        for person in people:
            person.app = one
            async with client_of(person, one, revision) as client:
                assert await who(client) == f"{person.name} may notes:read"

        async def calls(person: Person, app: Any, number: int) -> None:
            nonlocal given_up
            async with client_of(person, app, revision) as client:
                for index in range(number):
                    call = asyncio.ensure_future(who(client))
                    if index % 25 == 7:
                        await asyncio.sleep(0)
                        call.cancel()
                    try:
                        seen[person.user].append(await call)
                    except asyncio.CancelledError:
                        given_up += 1

        lanes = [(person, app) for person in people for app in (one, two)] * 2
        await asyncio.gather(*(calls(person, app, CALLS // len(lanes)) for person, app in lanes))
        for person in people:
            assert set(seen[person.user]) == {f"{person.name} may notes:read"}
            assert person.visits == 1
        assert sum(map(len, seen.values())) + given_up == CALLS

    # After a restart the accounts are there, and are renewed. One is revoked, and the other stays.
    async with replica(notes, path, dpop) as (gateway, app):
        for person in people:
            person.app = app
            async with client_of(person, app, revision) as client:
                assert await who(client) == f"{person.name} may notes:read"
        assert [person.visits for person in people] == [1, 1]
        entries = [each async for each in gateway.vault.entries("notes")]
        assert sorted(each.subject for each in entries) == ["alice", "bob"]
        assert await gateway.vault.revoke("notes", Owner.of(Principal("alice", entries[0].provider)))
        for person in people:
            async with client_of(person, app, revision) as client:
                assert await who(client) == f"{person.name} may notes:read"
        assert [person.visits for person in people] == [2, 1]
