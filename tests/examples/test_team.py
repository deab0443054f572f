"""The team's list: who is let in, what each may do, and that nobody sees another's."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

import toolwire.auth
from toolwire import Client, Server
from toolwire.auth import hashed
from toolwire.client.http_target import HttpTarget
from toolwire.protocol.errors import Unauthorized
from toolwire.wire.asgi_pool import AsgiPool

ISSUER, AUDIENCE = "https://login.example.com", "https://todo.example.com/mcp"
KEY = ECKey.generate_key("P-256", {"kid": "one", "use": "sig", "alg": "ES256"})


@pytest.fixture
def server(example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Server:
    keys = {"keys": [KEY.as_dict(private=False)]}
    monkeypatch.setattr(toolwire.auth, "JWT", functools.partial(toolwire.auth.JWT, keys=keys))
    monkeypatch.setenv("TEAM_ISSUER", ISSUER)
    monkeypatch.setenv("TEAM_AUDIENCE", AUDIENCE)
    monkeypatch.setenv("TEAM_KEYS", f"robot={hashed('robots-key')}")
    server: Server = example("team").server
    return server


def token(subject: str, scope: str, audience: str = AUDIENCE) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": audience, "sub": subject, "scope": scope, "iat": now, "exp": now + 60}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY)


@asynccontextmanager
async def signed_in(server: Server, auth: Any) -> AsyncIterator[Client]:
    app = server.http_app(public_url="https://todo.example.com")
    pool = AsgiPool(app)
    try:
        async with Client(HttpTarget(AUDIENCE, pool=pool, auth=auth)) as client:
            yield client
    finally:
        app.drain()
        await pool.close()
        await app.stop()


async def test_everybody_has_a_list_of_their_own(server: Server) -> None:
    for who in (token("ada", "todo:read todo:write"), "robots-key"):
        async with signed_in(server, who) as client:
            assert await client.call_tool("add_todo", {"text": "tea"}, returns=int) == 1
            assert await client.call_tool("list_todos", returns=list[str]) == ["tea"]
    async with signed_in(server, token("ada", "todo:read todo:write")) as client:
        assert (await client.call_tool("finish_todo", {"text": "tea"})).text == "Done: tea"
        assert (await client.call_tool("finish_todo", {"text": "tea"})).is_error


async def test_who_may_only_read(server: Server) -> None:
    async with signed_in(server, token("bob", "todo:read")) as client:
        assert await client.call_tool("list_todos", returns=list[str]) == []
        with pytest.raises(Unauthorized):
            await client.call_tool("add_todo", {"text": "tea"})


@pytest.mark.parametrize(
    "auth",
    [None, "wrong-key", token("ada", "other"), token("ada", "todo:read", "https://elsewhere.example/mcp")],
    ids=["no token", "an unknown key", "another scope", "for another server"],
)
async def test_who_is_not_let_in(server: Server, auth: str | None) -> None:
    with pytest.raises(Unauthorized):
        async with signed_in(server, auth):
            pass


async def test_over_stdio_nobody_is_signed_in(server: Server) -> None:
    async with Client(server) as client:
        assert "Nobody is signed in" in (await client.call_tool("list_todos")).text
