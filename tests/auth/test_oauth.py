"""Signing in end to end, against a stand-in of a server and its authorization server on real ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.auth.stand_in import AuthorizationServer, Reply, Request, Scene, Stage, basic
from tests.cases import cases

from toolwire.auth import Auth, FileStorage, MemoryStorage, NeedsLogin, OAuth, SignInFailed
from toolwire.auth.client.sign_in import MAX_CHALLENGES, MAX_KINDS, MAX_STEP_UPS
from toolwire.auth.contract import as_auth
from toolwire.http1.pool import HttpPool
from toolwire.protocol.errors import Unauthorized


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Stage() as made:
        yield made


def oauth(scene: Scene, **options: Any) -> OAuth:
    return OAuth(**{"login": scene.person, **options})


# --- the first time ---


@pytest.mark.covers("6.2.1", "6.2.14", "4.2.C1", "4.1.C3", "4.1.C4")
async def test_a_challenge_leads_to_a_token(scene: Scene) -> None:
    auth = oauth(scene)
    assert isinstance(auth, Auth)
    assert await scene.call(auth) == 200
    assert len(scene.login.clients) == 1
    (login,) = scene.login.logins
    assert login["resource"] == scene.server.mcp
    assert login["code_challenge_method"] == "S256"
    (grant,) = scene.login.grants
    assert grant["resource"] == scene.server.mcp


@pytest.mark.covers("6.2.22", "6.2.26", "4.1.C5")
async def test_the_token_is_in_the_header_of_every_request(scene: Scene) -> None:
    auth = oauth(scene)
    for _ in range(3):
        assert await scene.call(auth) == 200
    first, *others = scene.server.asked("/mcp")
    assert "authorization" not in first.headers
    assert len(others) == 3
    assert all(each.headers["authorization"].startswith("Bearer token-") for each in others)
    assert all(each.query == {} for each in others)
    assert scene.visits == 1


@pytest.mark.covers("6.2.22", "4.2.C7")
async def test_no_other_server_gets_the_token(scene: Scene) -> None:
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await auth.headers("POST", f"{scene.server.mcp}/write") != {}
    for foreign in (
        "https://evil.example/mcp",
        f"http://127.0.0.1:{scene.login.port}/mcp",
        f"http://localhost:{scene.server.port}/mcp",
    ):
        assert await auth.headers("POST", foreign) == {}
        assert await auth.challenged("POST", foreign, 401, {}) is False


async def test_servers_of_one_origin_have_tokens_of_their_own(scene: Scene) -> None:
    auth = oauth(scene)
    assert await scene.call(auth) == 200
    assert await auth.headers("POST", f"{scene.server.url}/other") == {}
    bound = as_auth(auth, scene.server.mcp)
    assert bound is not None
    assert await bound.headers("POST", f"{scene.server.url}/messages?session=1") != {}


async def test_ten_calls_at_once_open_one_browser(scene: Scene) -> None:
    auth = oauth(scene)
    assert await asyncio.gather(*(scene.call(auth) for _ in range(10))) == [200] * 10
    assert scene.visits == 1
    assert len(scene.login.clients) == 1


@pytest.mark.parametrize("agrees", [True, False])
async def test_calls_of_two_loops_open_one_browser(scene: Scene, agrees: bool) -> None:
    visits: list[str] = []

    async def person(url: str) -> str:
        visits.append(url)
        # Both calls were refused, and the second one has had time to open a browser, too.
        async with asyncio.timeout(20):
            while len(scene.server.asked("/mcp")) < 2:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        if not agrees:
            raise SignInFailed("The person said no")
        async with HttpPool() as pool:
            return await Scene(scene.server, scene.login, pool).person(url)

    async def call() -> int:
        async with HttpPool() as pool:
            return await Scene(scene.server, scene.login, pool).call(auth)

    auth = OAuth(login=person)
    loops = (asyncio.to_thread(asyncio.run, call()) for _ in range(2))
    answers = await asyncio.gather(*loops, return_exceptions=True)
    assert len(visits) == 1
    assert [answer if agrees else str(answer) for answer in answers] == [200 if agrees else "The person said no"] * 2


async def test_a_failure_is_shared_too(scene: Scene) -> None:
    visits = 0

    async def leave(url: str) -> str:
        nonlocal visits
        visits += 1
        await asyncio.sleep(0)
        raise SignInFailed("no")

    auth = oauth(scene, login=leave)
    results = await asyncio.gather(*(scene.call(auth) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, SignInFailed) for each in results)
    assert visits < 5


async def test_a_sign_in_that_nobody_waits_for_is_given_up(scene: Scene) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def wait(url: str) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    auth = oauth(scene, login=wait)
    calls = [asyncio.ensure_future(scene.call(auth)) for _ in range(2)]
    await asked.wait()
    calls[0].cancel()
    await asyncio.wait({calls[0]})
    assert not left.is_set()
    calls[1].cancel()
    await left.wait()
    await asyncio.wait(calls)


# --- who the client is ---


@pytest.mark.covers("6.2.8", "4.3.C3")
async def test_a_client_that_was_registered_by_hand(scene: Scene) -> None:
    scene.login.document = {
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        "client_id_metadata_document_supported": True,
    }
    auth = oauth(
        scene,
        client_id="mine",
        client_secret="s:1",
        issuer=scene.login.url,
        client_metadata_url="https://client.example/me.json",
    )
    assert await scene.call(auth) == 200
    assert scene.login.clients == {}
    assert scene.login.logins[0]["client_id"] == "mine"
    assert basic(scene.login.asked("/token")[0]) == ("mine", "s:1")


@pytest.mark.covers("6.2.7", "4.3.C3")
async def test_a_client_with_a_metadata_document(scene: Scene) -> None:
    scene.login.document = {"client_id_metadata_document_supported": True}
    auth = oauth(scene, client_metadata_url="https://client.example/me.json")
    assert await scene.call(auth) == 200
    assert scene.login.clients == {}
    assert scene.login.logins[0]["client_id"] == "https://client.example/me.json"
    assert scene.login.grants[0]["client_id"] == "https://client.example/me.json"


async def test_a_registration_is_used_again(scene: Scene) -> None:
    storage = MemoryStorage()
    assert await scene.call(oauth(scene, storage=storage)) == 200
    await OAuth(storage=storage).forget(scene.server.mcp)
    assert await scene.call(oauth(scene, storage=storage)) == 200
    assert len(scene.login.logins) == 2
    assert len(scene.login.clients) == 1


async def test_a_registration_that_the_server_forgot_is_made_again(scene: Scene) -> None:
    storage = MemoryStorage()
    auth = oauth(scene, storage=storage)
    assert await scene.call(auth) == 200
    await auth.forget(scene.server.mcp)
    scene.login.refuses["authorization_code"] = "invalid_client"
    with pytest.raises(SignInFailed, match="invalid_client"):
        await scene.call(auth)
    scene.login.refuses.clear()
    assert await scene.call(auth) == 200
    assert len(scene.login.clients) == 2


async def test_a_registration_that_is_too_narrow_for_a_step_up(scene: Scene) -> None:
    """Some servers hold a client to the scopes that it was registered with."""
    scene.server.challenge = {"scope": "read"}
    scene.server.needs = {"/mcp/write": "write"}
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await scene.call(auth, "/mcp/write") == 200
    assert [client["scope"] for client in scene.login.clients.values()] == ["read", "read write"]


# --- another authorization server ---


@pytest.mark.covers("6.2.10", "6.2.11")
async def test_a_server_that_moves_to_another_authorization_server(scene: Scene) -> None:
    auth = oauth(scene)
    async with AuthorizationServer() as new:
        assert await scene.call(auth) == 200
        old, scene.server.login = scene.login, new
        assert await scene.call(auth) == 200
        assert len(new.clients) == 1
        # Neither the old id nor the old refresh token is ever shown to the new server.
        assert [each["grant_type"] for each in new.grants] == ["authorization_code"]
        assert set(new.clients) == {new.logins[0]["client_id"]}
        # Coming back, the old registration still serves.
        scene.server.login = old
        old.expire()
        assert await scene.call(auth) == 200
        assert len(old.clients) == 1


@pytest.mark.covers("6.2.11")
@pytest.mark.parametrize("named", [True, False])
async def test_credentials_do_not_move_to_another_authorization_server(scene: Scene, named: bool) -> None:
    auth = oauth(scene, client_id="mine", client_secret="s", issuer=scene.login.url if named else None)
    assert await scene.call(auth) == 200
    async with AuthorizationServer() as new:
        scene.server.login = new
        with pytest.raises(SignInFailed, match="credentials of this client are for"):
            await scene.call(auth)
        assert new.logins == []
        assert new.grants == []


# --- refreshing ---


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_is_renewed_before_it_expires(scene: Scene) -> None:
    clock = Clock()
    auth = oauth(scene, clock=clock)
    assert await scene.call(auth) == 200
    clock.now += 3590
    assert await scene.call(auth) == 200
    assert [each["grant_type"] for each in scene.login.grants] == ["authorization_code", "refresh_token"]
    # Nobody was refused meanwhile.
    assert len(scene.server.asked("/mcp")) == 3


@pytest.mark.covers("6.2.10", "6.2.23")
async def test_refreshing_survives_a_restart(scene: Scene, tmp_path: Any) -> None:
    folder = tmp_path / "tokens"
    assert await scene.call(oauth(scene, storage=FileStorage(folder))) == 200
    scene.login.expire()
    seen = len(scene.login.requests)
    assert await scene.call(OAuth(login=None, storage=FileStorage(folder))) == 200
    assert scene.visits == 1
    assert scene.login.requests[seen:][-1].form["grant_type"] == "refresh_token"
    assert len(scene.login.clients) == 1


async def test_an_expired_token_is_refreshed_after_a_restart_without_a_challenge(scene: Scene) -> None:
    storage, clock = MemoryStorage(), Clock()
    assert await scene.call(oauth(scene, storage=storage, clock=clock)) == 200
    scene.login.expire()
    clock.now += 7200
    seen = len(scene.server.requests)
    assert await scene.call(OAuth(login=None, storage=storage, clock=clock)) == 200
    # What was discovered is remembered: the refresh went straight to the token endpoint.
    assert [each.path for each in scene.server.requests[seen:]] == ["/mcp"]


async def test_a_refused_refresh_leads_to_a_sign_in(scene: Scene) -> None:
    auth = oauth(scene)
    assert await scene.call(auth) == 200
    scene.login.expire()
    scene.login.refresh_tokens.clear()
    assert await scene.call(auth) == 200
    assert scene.visits == 2


async def test_a_token_endpoint_in_trouble_does_not_cost_the_refresh_token(scene: Scene) -> None:
    auth = oauth(scene)
    assert await scene.call(auth) == 200
    scene.login.expire()
    works = scene.login.routes["/token"]
    scene.login.routes["/token"] = lambda request: Reply(503)
    with pytest.raises(SignInFailed, match="503"):
        await scene.call(auth)
    scene.login.refuses["refresh_token"] = "temporarily_unavailable"
    scene.login.routes["/token"] = works
    with pytest.raises(SignInFailed, match="temporarily_unavailable"):
        await scene.call(auth)
    scene.login.refuses.clear()
    assert await scene.call(auth) == 200
    assert scene.visits == 1


async def test_another_process_that_refreshed_first(scene: Scene) -> None:
    storage = MemoryStorage()
    one, two = oauth(scene, storage=storage), oauth(scene, storage=storage)
    assert await scene.call(one) == 200
    assert await scene.call(two) == 200
    scene.login.expire()
    assert await scene.call(one) == 200
    assert await scene.call(two) == 200
    assert scene.visits == 1
    assert [each["grant_type"] for each in scene.login.grants].count("refresh_token") == 1


async def test_a_server_that_refuses_every_token(scene: Scene) -> None:
    auth = oauth(scene)
    scene.server.routes["/mcp"] = lambda request: Reply(401, headers={"www-authenticate": "Bearer"})
    assert await scene.call(auth) == 401
    assert scene.visits == 1
    # Another call may try again, but no more often.
    assert await scene.call(auth) == 401
    assert scene.visits == 2


async def test_sign_in_at_an_issuer_that_the_operator_accepts(scene: Scene) -> None:
    named = "https://tenant.login.example"
    scene.login.document = {"issuer": named}
    with pytest.raises(SignInFailed, match="accept_issuer="):
        await scene.call(oauth(scene))
    storage = MemoryStorage()
    assert await scene.call(oauth(scene, storage=storage, accept_issuer={scene.login.url: named})) == 200
    # A refresh after a restart asks the same authorization server, and no person.
    scene.login.expire()
    assert await scene.call(oauth(scene, storage=storage, accept_issuer={scene.login.url: named})) == 200
    assert scene.visits == 1


@cases("wrong", ["https://login.example", ["https://a.example"], {"https://a.example": "tenant"}])
def test_accepted_issuers_are_a_mapping_of_urls(wrong: Any) -> None:
    with pytest.raises(ValueError, match="accept_issuer="):
        OAuth(accept_issuer=wrong)


# --- step-up ---


@pytest.mark.covers("6.2.24", "6.2.25", "4.3.C8")
async def test_a_step_up_asks_for_what_there_was_and_more(scene: Scene) -> None:
    scene.server.challenge = {"scope": "read"}
    scene.server.needs = {"/mcp/write": "write"}
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await scene.call(auth, "/mcp/write") == 200
    assert [each["scope"] for each in scene.login.logins] == ["read", "read write"]


async def test_ten_step_ups_at_once_are_one(scene: Scene) -> None:
    scene.server.needs = {"/mcp/write": "write"}
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await asyncio.gather(*(scene.call(auth, "/mcp/write") for _ in range(10))) == [200] * 10
    assert scene.visits == 2


@pytest.mark.covers("6.2.25", "4.3.C8")
async def test_a_step_up_that_does_not_help_is_permanent_soon(scene: Scene) -> None:
    refuse = scene.server.refuse
    scene.server.routes["/mcp/write"] = lambda request: refuse(403, {"error": "insufficient_scope", "scope": "write"})
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    for _ in range(5):
        assert await scene.call(auth, "/mcp/write") == 403
    assert scene.visits == 1 + MAX_STEP_UPS


@pytest.mark.covers("6.2.25")
async def test_an_endless_step_up_ends(scene: Scene) -> None:
    refuse = scene.server.refuse

    def more(request: Request) -> Reply:
        return refuse(403, {"error": "insufficient_scope", "scope": f"scope-{len(scene.server.requests)}"})

    scene.server.routes["/mcp/write"] = more
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth, "/mcp/write") == 403
    assert scene.visits == MAX_CHALLENGES
    for _ in range(MAX_KINDS):
        assert await scene.call(auth, "/mcp/write") == 403
    assert scene.visits <= MAX_KINDS


async def test_an_insufficient_scope_that_names_none(scene: Scene) -> None:
    scene.server.routes["/mcp/write"] = lambda request: scene.server.refuse(403, {"error": "insufficient_scope"})
    auth = oauth(scene).at(scene.server.mcp)
    assert await scene.call(auth) == 200
    assert await scene.call(auth, "/mcp/write") == 403
    assert scene.visits == 1


async def test_a_plain_403_is_no_challenge(scene: Scene) -> None:
    auth = oauth(scene)
    assert await scene.call(auth) == 200
    scene.server.routes["/mcp"] = lambda request: Reply(403)
    assert await scene.call(auth) == 403
    assert scene.visits == 1


@pytest.mark.covers("6.2.15", "6.2.12")
async def test_scopes_of_the_resource_and_offline_access(scene: Scene) -> None:
    scene.server.resource = {"scopes_supported": ["a", "b"]}
    scene.login.document = {"scopes_supported": ["a", "b", "offline_access"]}
    assert await scene.call(oauth(scene)) == 200
    assert scene.login.logins[0]["scope"] == "a b offline_access"


# --- without a person ---


async def test_headless_says_what_to_open_and_can_be_finished(scene: Scene) -> None:
    auth = OAuth(login=None)
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(auth)
    assert isinstance(caught.value, Unauthorized)
    assert caught.value.url in str(caught.value)
    await caught.value.finish(await scene.person(caught.value.url))
    assert await scene.call(auth) == 200
    with pytest.raises(SignInFailed, match="not under way"):
        await caught.value.finish("code-1")


async def test_signing_out_ends_a_sign_in_that_is_under_way(scene: Scene) -> None:
    auth = OAuth(login=None)
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(auth)
    await auth.forget(scene.server.mcp)
    answer = await scene.person(caught.value.url)
    for finish in (caught.value.finish, auth.finish):
        with pytest.raises(SignInFailed, match="under way"):
            await finish(answer)
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(auth)
    await auth.finish(await scene.person(caught.value.url))
    assert await scene.call(auth) == 200


async def test_a_sign_in_that_another_process_finishes(scene: Scene, tmp_path: Any) -> None:
    storage = FileStorage(tmp_path)
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(OAuth(login=None, storage=storage, redirect_uri="https://app.example/callback"))
    answer = await scene.person(caught.value.url)
    assert answer.startswith("https://app.example/callback?")
    other = OAuth(login=None, storage=storage)
    await other.finish(answer)
    assert await scene.call(other) == 200
    with pytest.raises(SignInFailed, match="no sign-in"):
        await other.finish(answer)


async def test_a_bare_code(scene: Scene) -> None:
    auth = OAuth(login=None)
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(auth)
    answer = await scene.person(caught.value.url)
    await caught.value.finish(answer.partition("code=")[2].partition("&")[0])
    assert await scene.call(auth) == 200


async def test_many_calls_want_one_sign_in(scene: Scene, tmp_path: Any) -> None:
    auth = OAuth(login=None, storage=FileStorage(tmp_path))
    urls = set()
    for _ in range(4):
        with pytest.raises(NeedsLogin) as caught:
            await scene.call(auth)
        urls.add(caught.value.url)
    assert len(urls) == 1
    assert len(list(tmp_path.glob("*.json"))) == 3  # The registration, the attempt, and which one is open.


async def test_the_secret_of_the_user_is_stored_nowhere(scene: Scene, tmp_path: Any) -> None:
    scene.login.document = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    auth = OAuth(login=None, storage=FileStorage(tmp_path), client_id="mine", client_secret="hush")
    with pytest.raises(NeedsLogin) as caught:
        await scene.call(auth)
    await auth.finish(await scene.person(caught.value.url))
    assert await scene.call(auth) == 200
    assert scene.login.grants[0]["client_secret"] == "hush"
    assert not any("hush" in each.read_text() for each in tmp_path.iterdir())


# --- what the answer says ---


@pytest.mark.covers("6.2.19", "6.2.17")
async def test_a_mix_up_ends_before_the_token_endpoint(scene: Scene) -> None:
    scene.login.iss = "https://evil.example"
    with pytest.raises(SignInFailed, match="another authorization server"):
        await scene.call(oauth(scene))
    assert scene.login.grants == []


async def test_the_right_issuer_in_the_answer(scene: Scene) -> None:
    scene.login.document = {"authorization_response_iss_parameter_supported": True}
    scene.login.iss = scene.login.url
    assert await scene.call(oauth(scene)) == 200


@pytest.mark.covers("6.2.13")
async def test_no_pkce_no_login(scene: Scene) -> None:
    scene.login.document = {"code_challenge_methods_supported": None}
    with pytest.raises(SignInFailed, match="PKCE"):
        await scene.call(oauth(scene))
    assert scene.visits == 0


# --- where a server sends its client ---


@pytest.mark.covers("6.2.6")
@pytest.mark.parametrize(
    "issuer", ["https://10.0.0.1", "http://169.254.169.254", "https://[fd00::1]", "http://example.org", "file:///etc"]
)
async def test_an_authorization_server_that_must_not_be_visited(scene: Scene, issuer: str) -> None:
    scene.server.resource = {"authorization_servers": [issuer]}
    with pytest.raises(SignInFailed):
        await scene.call(oauth(scene))
    assert scene.visits == 0


@pytest.mark.covers("6.2.6")
@pytest.mark.parametrize("endpoint", ["token_endpoint", "registration_endpoint", "authorization_endpoint"])
async def test_an_endpoint_that_must_not_be_visited(scene: Scene, endpoint: str) -> None:
    scene.login.document = {
        endpoint: "https://192.168.0.1/steal" if endpoint != "authorization_endpoint" else "file:///x"
    }
    with pytest.raises(SignInFailed):
        await scene.call(oauth(scene))


async def test_metadata_of_the_challenge_at_a_private_address(scene: Scene) -> None:
    scene.server.refuse = lambda status, more: Reply(  # type: ignore[method-assign]
        status, headers={"www-authenticate": 'Bearer resource_metadata="https://10.1.2.3/metadata"'}
    )
    with pytest.raises(SignInFailed, match="not one that may be reached"):
        await scene.call(oauth(scene))


async def test_a_server_that_publishes_nothing_is_not_signed_in_to(scene: Scene) -> None:
    scene.server.routes = {"/mcp": lambda request: Reply(401)}
    with pytest.raises(SignInFailed, match="publishes neither"):
        await scene.call(oauth(scene))
    assert {each.method for each in scene.server.requests if each.path != "/mcp"} == {"GET"}


async def test_a_token_that_is_refused_after_a_step_up(scene: Scene) -> None:
    """One more sign-in would not help, and nobody is asked for one."""
    scene.server.needs = {"/mcp/write": "write"}
    auth = oauth(scene).at(scene.server.mcp)
    call = scene.server.routes["/mcp/write"]

    def refuse_after(request: Request) -> Reply:
        return call(request) if scene.visits < 2 else scene.server.refuse(401, {})

    scene.server.routes["/mcp/write"] = refuse_after
    assert await scene.call(auth) == 200
    assert await scene.call(auth, "/mcp/write") == 401
    assert scene.visits == 2


# --- settings that cannot work ---


@cases(
    "options",
    [
        {"scopes": "a b"},
        {"client_secret": "s"},
        {"redirect_uri": "http://app.example/"},
        {"redirect_uri": "https://app.example/"},
        {"client_metadata_url": "https://app.example"},
        {"client_key": object()},
        {"client_key": object(), "client_id": "x", "client_secret": "s"},
    ],
)
def test_settings_that_cannot_work(options: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        OAuth(**options)
