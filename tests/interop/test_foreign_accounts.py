"""Two users with two accounts at npm's `oidc-provider`, which issues the tokens of the server behind a gateway."""

from __future__ import annotations

import asyncio
import re
import sys
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
from toolwire.auth import ApiKeys, ClientCredentials, ServerOAuth, UserOAuth
from toolwire.auth.vault.records import Owner
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.stores.sqlite import SqliteStores

PUBLIC = "http://127.0.0.1:8799"
COMMAND = """
import os
from toolwire import Client, Server

server = Server("child")

@server.tool
async def whoami() -> str:
    async with Client(os.environ["NOTES"], auth=os.environ["TOKEN"]) as client:
        return f"{await client.call_tool('whoami', returns=str)}, says {os.getpid()}"

server.run()
"""
KEYS = {user: f"the-key-of-{user}-0123456789" for user in ("alice", "bob")}
#: How long tokens live. It is short, so that they are renewed in the middle of calls.
SECONDS = 4
CALLS = 1000
AUTH = ApiKeys({KEYS[user]: user for user in KEYS})


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


@pytest.fixture(scope="module")
def lasting_notes() -> Iterator[str]:
    """A process keeps the token that it was started with. So its token lives longer than the test."""
    with protected() as url:
        yield url


@asynccontextmanager
async def replica(path: Path, **added: Any) -> AsyncIterator[tuple[Gateway, Any]]:
    """Yield a process of the gateway, as far as it shares nothing but a file with the others."""
    stores = SqliteStores(path)
    gateway = Gateway("front", auth=AUTH, secret="a secret for tests", stores=stores)
    gateway.add("notes", prefix="", **added)
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


async def owner_of(person: Person) -> Owner:
    return Owner.of(await AUTH.verify(KEYS[person.user]))


async def connect(person: Person, gateway: Gateway, app: Any) -> None:
    """Connect an account on the page of the gateway: a user without an account sees no tool that could ask."""
    person.app = app
    link = await gateway.vault.connect_link("notes", await owner_of(person))
    assert link is not None
    assert b"is connected" in (await person.connect(link)).body


async def interleaved(
    people: list[Person], apps: list[Any], revision: str, number: int
) -> tuple[dict[str, list[str]], int]:
    """Make calls of all people at all replicas at once, some of which are cancelled in the middle.

    Return the answers of each person, and how many calls were cancelled.
    """
    seen: dict[str, list[str]] = {person.user: [] for person in people}
    given_up = 0

    async def calls(person: Person, app: Any, number: int) -> None:
        nonlocal given_up
        async with client_of(person, app, revision) as client:
            for index in range(number):
                call = asyncio.ensure_future(who(client))
                if index % 25 == 7:
                    # In the middle: some before the request is sent, some while the server works.
                    await asyncio.sleep(0.002 * (index % 3))
                    call.cancel()
                try:
                    seen[person.user].append(await call)
                except asyncio.CancelledError:
                    given_up += 1

    lanes = [(person, app) for person in people for app in apps] * 2
    await asyncio.gather(*(calls(person, app, number // len(lanes)) for person, app in lanes))
    return seen, given_up


@pytest.mark.parametrize(
    ("revision", "dpop", "own_lists"),
    [
        ("2026-07-28", False, False),
        ("2026-07-28", True, True),
        ("2025-11-25", False, True),
        ("2025-11-25", True, False),
    ],
)
async def test_neither_user_ever_acts_as_the_other(
    notes: str, tmp_path: Path, revision: str, dpop: bool, own_lists: bool
) -> None:
    path = tmp_path / "gateway.db"
    people = [Person(user) for user in KEYS]
    grant = ClientCredentials("gateway", "only a test, but long enough")
    added: dict[str, Any] = {"target": notes, "credentials": UserOAuth(scopes=["notes:read"], dpop=dpop)}
    if not own_lists:
        added["list_credentials"] = ServerOAuth(grant=grant, scopes=["notes:read"])
    expected = {person.user: f"{person.name} may notes:read" for person in people}
    async with replica(path, **added) as (first, one), replica(path, **added) as (_, two):
        for person in people:
            person.app = one
            if own_lists:
                await connect(person, first, one)
            async with client_of(person, one, revision) as client:
                assert await who(client) == expected[person.user]
        seen, given_up = await interleaved(people, [one, two], revision, CALLS)
        for person in people:
            assert set(seen[person.user]) == {expected[person.user]}
            assert person.visits == 1
        answered = {user: len(answers) for user, answers in seen.items()}
        assert sum(answered.values()) + given_up == CALLS and given_up > 0
        print(f"{revision}, DPoP {dpop}, lists of the callers {own_lists}: {answered} answers, {given_up} cancelled")

    # After a restart the accounts are there, and are renewed. One is revoked, and the other stays.
    async with replica(path, **added) as (gateway, app):
        for person in people:
            person.app = app
            async with client_of(person, app, revision) as client:
                assert await who(client) == expected[person.user]
        assert [person.visits for person in people] == [1, 1]
        entries = [each async for each in gateway.vault.entries("notes")]
        assert sorted(each.subject for each in entries) == ["alice", "bob"]
        assert await gateway.vault.revoke("notes", await owner_of(people[0]))
        if own_lists:
            async with client_of(people[0], app, revision) as client:
                assert await client.list_tools() == []
            await connect(people[0], gateway, app)
        for person in people:
            async with client_of(person, app, revision) as client:
                assert await who(client) == expected[person.user]
        assert [person.visits for person in people] == [2, 1]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_the_same_command_has_a_process_for_each_user(lasting_notes: str, tmp_path: Path, revision: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(COMMAND)
    path = tmp_path / "gateway.db"
    people = [Person(user) for user in KEYS]
    added: dict[str, Any] = {
        "target": [sys.executable, str(script)],
        "env": {"NOTES": lasting_notes},
        "revision": revision,
        "credentials": UserOAuth(resource=lasting_notes, scopes=["notes:read"]),
        "credential_variable": "TOKEN",
    }
    processes: dict[str, set[str]] = {person.user: set() for person in people}
    async with replica(path, **added) as (first, one), replica(path, **added) as (_, two):
        for person in people:
            await connect(person, first, one)
        seen, given_up = await interleaved(people, [one, two], revision, CALLS // 5)
        for person in people:
            for answer in seen[person.user]:
                told, _, process = answer.partition(", says ")
                assert told == f"{person.name} may notes:read"
                processes[person.user].add(process)
            assert person.visits == 1
    # After a restart, in other processes.
    async with replica(path, **added) as (_, app):
        for person in people:
            person.app = app
            async with client_of(person, app, revision) as client:
                told, _, process = (await who(client)).partition(", says ")
                assert told == f"{person.name} may notes:read" and process not in processes[person.user]
                processes[person.user].add(process)
    assert not processes["alice"] & processes["bob"], "no process has acted for both"
    counts = {user: (len(seen[user]), len(processes[user])) for user in processes}
    print(f"{revision}, one command: answers and processes {counts}, {given_up} cancelled")
