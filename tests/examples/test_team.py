"""The team's list: who is let in, what each may do, and that nobody sees another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any

import pytest

from toolwire import Client, Server, testing
from toolwire.auth import Principal, hashed
from toolwire.protocol.errors import Unauthorized

WRITER = Principal("ada", scopes=frozenset({"todo:read", "todo:write"}))


@pytest.fixture
def server(example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("TEAM_ISSUER", "https://login.example.com")
    monkeypatch.setenv("TEAM_AUDIENCE", "https://todo.example.com/mcp")
    monkeypatch.setenv("TEAM_KEYS", f"robot={hashed('robots-key')}")
    server: Server = example("team").server
    return server


@pytest.fixture
def issuer(server: Server) -> Iterator[testing.Issuer]:
    with testing.issuer(server) as issuer:
        yield issuer


def signed_in(server: Server, token: str | None) -> AbstractAsyncContextManager[tuple[Client, Any]]:
    return testing.connect(server, over="http", auth=token)


async def test_everybody_has_a_list_of_their_own(server: Server, issuer: testing.Issuer) -> None:
    ada = issuer.token("ada", scopes="todo:read todo:write")
    for who in (ada, "robots-key"):
        async with signed_in(server, who) as (client, _):
            assert await client.call_tool("add_todo", {"text": "tea"}, returns=int) == 1
            assert await client.call_tool("list_todos", returns=list[str]) == ["tea"]
    async with signed_in(server, ada) as (client, _):
        assert (await client.call_tool("finish_todo", {"text": "tea"})).text == "Done: tea"
        assert (await client.call_tool("finish_todo", {"text": "tea"})).is_error


def test_who_may_do_what(server: Server) -> None:
    reader = Principal("bob", scopes=frozenset({"todo:read"}))
    writes = {"add_todo": "refused", "finish_todo": "refused"}
    assert testing.permissions(server, reader).tools == {"list_todos": "usable", **writes}
    assert set(testing.permissions(server, WRITER).tools.values()) == {"usable"}
    assert set(testing.permissions(server, None).tools.values()) == {"hidden"}


async def test_who_may_only_read(server: Server, issuer: testing.Issuer) -> None:
    async with signed_in(server, issuer.token("bob", scopes="todo:read")) as (client, _):
        assert await client.call_tool("list_todos", returns=list[str]) == []
        with pytest.raises(Unauthorized):
            await client.call_tool("add_todo", {"text": "tea"})


async def test_who_is_not_let_in(server: Server, issuer: testing.Issuer) -> None:
    await issuer.check()
    for token in (None, "wrong-key", issuer.token("ada", scopes="other")):
        with pytest.raises(Unauthorized):
            async with signed_in(server, token):
                pass


async def test_hostile_callers(server: Server) -> None:
    assert await testing.attack(server, principal=WRITER, secrets=["robots-key"]) == []


async def test_over_stdio_nobody_is_signed_in(server: Server) -> None:
    async with Client(server) as client:
        assert "Nobody is signed in" in (await client.call_tool("list_todos")).text
