"""Two users with two accounts at npm's `oidc-provider`, which issues the tokens of the server behind a gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop.people import AUTH, KEYS, PUBLIC, Person, client_of, owner_of
from tests.interop.protected import protected

from toolwire import Client, Gateway
from toolwire.auth import ClientCredentials, ServerOAuth, UserOAuth
from toolwire.stores.sqlite import SqliteStores

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
#: How long tokens live. It is short, so that they are renewed in the middle of calls.
SECONDS = 4
CALLS = 1000


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


async def who(client: Client) -> str:
    return str(await client.call_tool("whoami", returns=str))


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
