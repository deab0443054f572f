"""`Client(URL, auth=...)`: what its user sees of all this."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from tests.auth.stand_in import Handler, Reply, Request, Scene, Stage
from tests.client.scripted_http import DISCOVERED, text

from toolwire.auth import ClientCredentials, NeedsLogin, OAuth, SignInFailed
from toolwire.auth.client.sign_in import SignIn
from toolwire.client import Client
from toolwire.protocol.errors import Timeout, Unauthorized, Unreachable
from toolwire.testing import elapse


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        made.server.serve = speak  # type: ignore[method-assign]
        yield made


def speak(request: Request) -> Reply:
    """As little of a server of 2026-07-28 as a client needs."""
    message = json.loads(request.body)
    result = DISCOVERED if message["method"] == "server/discover" else {"content": text("done")}
    return Reply(document={"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}})


@pytest.mark.covers("6.2.22", "6.2.26", "4.1.C5")
async def test_a_client_signs_in_and_goes_on(scene: Scene) -> None:
    async with Client(scene.server.mcp, auth=OAuth(login=scene.person)) as client:
        assert (await client.call_tool("anything")).text == "done"
        assert (await client.call_tool("anything")).text == "done"
    assert scene.visits == 1
    refused, *others = scene.server.asked("/mcp")
    assert "authorization" not in refused.headers
    assert all(each.headers["authorization"].startswith("Bearer token-") for each in others)


async def test_a_token_that_expires_between_calls_is_not_noticed(scene: Scene) -> None:
    async with Client(scene.server.mcp, auth=OAuth(login=scene.person)) as client:
        for _ in range(3):
            assert (await client.call_tool("anything")).text == "done"
            scene.login.expire()
    assert scene.visits == 1


async def test_calls_at_once_share_a_refresh(scene: Scene) -> None:
    async with Client(scene.server.mcp, auth=OAuth(login=scene.person)) as client:
        scene.login.expire()
        results = await asyncio.gather(*(client.call_tool("anything") for _ in range(8)))
    assert [each.text for each in results] == ["done"] * 8
    assert [each["grant_type"] for each in scene.login.grants] == ["authorization_code", "refresh_token"]


async def test_closing_opens_no_browser_where_the_token_has_expired(scene: Scene) -> None:
    def speak_with_session(request: Request) -> Reply:
        message = json.loads(request.body or b"{}")
        if message.get("method") != "initialize":
            return Reply(405 if request.method == "GET" else 202)
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        document = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return Reply(document=document, headers={"mcp-session-id": "s-1"})

    scene.server.serve = speak_with_session  # type: ignore[method-assign]
    async with Client(scene.server.mcp, auth=OAuth(login=scene.person), revision="2025-11-25"):
        scene.login.expire()
        scene.login.refresh_tokens.clear()
    assert scene.visits == 1
    assert scene.server.asked("/mcp")[-1].method == "DELETE"


async def test_needs_login_reaches_the_caller(scene: Scene) -> None:
    client = Client(scene.server.mcp, auth=OAuth(login=None))
    with pytest.raises(NeedsLogin) as caught:
        await client.connect()
    await caught.value.finish(await scene.person(caught.value.url))
    async with client:
        assert (await client.call_tool("anything")).text == "done"


async def test_a_failed_sign_in_reaches_the_caller(scene: Scene) -> None:
    scene.login.iss = "https://evil.example"
    with pytest.raises(SignInFailed, match="another authorization server"):
        await Client(scene.server.mcp, auth=OAuth(login=scene.person)).connect()


async def test_a_fixed_token(scene: Scene) -> None:
    token = scene.login.issue("")["access_token"]
    async with Client(scene.server.mcp, auth=token) as client:
        assert (await client.call_tool("anything")).text == "done"
    with pytest.raises(Unauthorized, match="401"):
        await Client(scene.server.mcp, auth="wrong").connect()
    assert scene.visits == 0


# --- time ------------------------------------------------------------------------------------------------------------

METADATA = "/.well-known/oauth-authorization-server"


async def give_up(scene: Scene, auth: OAuth, path: str, **options: float) -> None:
    """Call a tool while the authorization server is silent at a path."""
    async with Client(scene.server.mcp, auth=auth, **options) as client:  # type: ignore[arg-type]
        scene.login.expire()
        scene.login.silent.add(path)
        scene.login.noticed.clear()
        calling = asyncio.ensure_future(client.call_tool("anything"))
        await scene.login.noticed.wait()
        await elapse(4.5)
        assert not calling.done()
        await elapse(1)
        with pytest.raises(Timeout, match="tools/call was not answered within 5 seconds"):
            await calling


@pytest.mark.parametrize("path", [METADATA, "/token"], ids=["discovery", "refresh"])
async def test_call_times_out_when_the_authorization_server_is_silent(path: str, scene: Scene) -> None:
    await give_up(scene, OAuth(login=scene.person), path, timeout=5.0)


@pytest.mark.parametrize("path", [METADATA, "/token"], ids=["discovery", "token"])
async def test_call_times_out_when_a_grant_is_not_answered(path: str, scene: Scene) -> None:
    grant = ClientCredentials("client", "secret", issuer=scene.login.url)
    scene.login.document["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    await give_up(scene, OAuth(grant=grant), path, timeout=5.0)


@pytest.mark.parametrize("path", [METADATA, "/register", "/token"], ids=["discovery", "registration", "exchange"])
async def test_connecting_times_out_when_the_authorization_server_is_silent(path: str, scene: Scene) -> None:
    scene.login.silent.add(path)
    client = Client(scene.server.mcp, auth=OAuth(login=scene.person), timeout=5.0)
    connecting = asyncio.ensure_future(client.connect())
    await scene.login.noticed.wait()
    await elapse(6)
    with pytest.raises(Timeout):
        await connecting
    await client.close()


async def test_time_of_a_person_does_not_count(scene: Scene) -> None:
    is_there, goes_on = asyncio.Event(), asyncio.Event()

    async def slow_person(url: str) -> str:
        is_there.set()
        await goes_on.wait()
        return await scene.person(url)

    client = Client(scene.server.mcp, auth=OAuth(login=slow_person), timeout=5.0)
    for work in (client.connect, lambda: client.call_tool("anything")):
        scene.login.expire()
        scene.login.refuses["refresh_token"] = "invalid_grant"
        is_there.clear()
        goes_on.clear()
        working = asyncio.ensure_future(work())
        await is_there.wait()
        await elapse(60)
        goes_on.set()
        await working
    await client.close()


async def test_call_after_a_sign_in_was_given_up_begins_one_of_its_own() -> None:
    begun, may_end = [], asyncio.Event()

    async def recover(challenge: object, *, refreshing: bool) -> bool:
        begun.append(refreshing)
        if len(begun) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()  # A lease is released, for example.
        return True

    source: Any = SimpleNamespace(
        person_time=None,
        server_url="https://mcp.example/mcp",
        recover=recover,
        current=AsyncMock(return_value=None),
        learn_nonce=lambda headers: False,
    )
    sign_in = SignIn(source)
    first, second = (
        asyncio.create_task(sign_in.challenged("POST", "https://mcp.example/mcp", 401, {})) for _ in range(2)
    )
    await asyncio.sleep(0.0)
    second.cancel()
    while not begun:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first, second})
    next_call = asyncio.create_task(sign_in.challenged("POST", "https://mcp.example/mcp", 401, {}))
    for _ in range(5):
        await asyncio.sleep(0)
    may_end.set()
    assert await next_call
    assert len(begun) == 2


def claims_of(request: Request) -> dict[str, Any]:
    part = request.headers["dpop"].split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(f"{part}=="))
    return claims


def bind_tokens(scene: Scene) -> None:
    """Let the authorization server bind tokens to keys."""
    issue = scene.login.issue
    scene.login.issue = lambda scope: {**issue(scope), "token_type": "DPoP"}  # type: ignore[method-assign]


def redirect_to_slash(request: Request) -> Reply:
    return Reply(307, headers={"location": f"{request.path}/"})


@pytest.mark.parametrize("is_open", [True, False])
async def test_each_redirected_request_has_a_proof_of_its_own(scene: Scene, is_open: bool) -> None:
    bind_tokens(scene)
    routes, used = scene.server.routes, set[str]()
    guarded = routes["/mcp"]

    def checked(request: Request, then: Handler) -> Reply:
        if "dpop" in request.headers:
            claims = claims_of(request)
            url = f"{scene.server.url}{request.path}"
            if (claims["htm"], claims["htu"]) != (request.method, url) or claims["jti"] in used:
                return scene.server.refuse(401, {"error": "invalid_dpop_proof"})
            used.add(claims["jti"])
        return then(request)

    def moved(request: Request) -> Reply:
        is_refused = not is_open and "dpop" not in request.headers
        return guarded(request) if is_refused else checked(request, redirect_to_slash)

    routes["/mcp"], routes["/mcp/"] = moved, lambda request: checked(request, guarded)
    async with Client(scene.server.mcp, auth=OAuth(login=scene.person, dpop=True)) as client:
        assert (await client.call_tool("anything")).text == "done"
    assert scene.visits == 1
    assert len(used) == (2 if is_open else 3)
    *_, told = scene.server.asked("/mcp/")
    assert json.loads(told.body)["method"] == "tools/call"


async def test_redirects_and_refusals_without_end_ask_the_person_a_few_times(scene: Scene) -> None:
    def refused(request: Request) -> Reply:
        return scene.server.refuse(401, {})

    def redirected_once_signed(request: Request) -> Reply:
        return redirect_to_slash(request) if "authorization" in request.headers else refused(request)

    for path in ("/mcp", "/mcp/", "/mcp//", "/mcp///"):
        scene.server.routes[path] = redirected_once_signed
    scene.server.routes["/mcp////"] = refused
    with pytest.raises(Unreachable, match="a redirect to"):
        await Client(scene.server.mcp, auth=OAuth(login=scene.person)).connect()
    assert scene.visits == 1
    assert len(scene.server.requests) <= 8
    scene.server.routes["/mcp/"] = refused
    with pytest.raises(Unauthorized):
        await Client(scene.server.mcp, auth=OAuth(login=scene.person)).connect()
    assert scene.visits <= 4
