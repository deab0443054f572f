"""Connecting an account: in both eras, with every kind of front authorization, and with links in the wrong hands."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from tests.auth.connecting import FRONTS, PUBLIC, SECRET, Accounts, Browser, world
from tests.auth.stand_in import Reply
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient

from toolwire import Client, Context, Depends, Server, SyncContext
from toolwire.auth import (
    Anonymous,
    ApiKeys,
    Principal,
    ResourceServer,
    ServerOAuth,
    StaticSecret,
    TokenExchange,
    UserOAuth,
    UserSecret,
    credential,
)
from toolwire.auth.vault.links import MAX_TRIES
from toolwire.auth.vault.records import Owner
from toolwire.auth.verify.provider_limits import IN_VAIN, InVain
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import HttpPool
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.stores import Stores

REVISIONS = (MODERN, "2025-11-25", "2025-06-18")


def text(result: object) -> str:
    return str(result.content[0].text)  # type: ignore[attr-defined]


def link_in(told: str) -> str:
    found = re.search(r"https://\S+", told)
    assert found is not None, told
    return found[0]


@pytest.mark.covers("GW-5.5")
@cases("revision", REVISIONS)
@cases("front", FRONTS)
async def test_users_connect_their_own_accounts(front: str, revision: str) -> None:
    async with world(front) as scene:
        for user in ("alice", "bob"):
            browser = Browser(scene, user)
            async with scene.client(user, revision, browser) as client:
                result = await client.call_tool("account")
                if result.is_error:
                    # 2025-06-18 has no URL elicitation: the model is told the address.
                    assert revision == "2025-06-18"
                    done = await browser.connect(link_in(text(result)))
                    assert b"is connected" in done.body
                    result = await client.call_tool("account")
                assert text(result) == user
        # The link stands in no address of the provider, and the secret of the client in none at all.
        assert not [each for each in scene.login.asked("/authorize") if "our-secret" in str(each)]
        assert len(scene.login.asked("/authorize")) == 2


@pytest.mark.covers("GW-5.5")
@cases("revision", REVISIONS)
async def test_a_client_that_cannot_be_asked_gets_the_address(revision: str) -> None:
    async with world() as scene, scene.client("alice", revision) as client:
        result = await client.call_tool("account")
        assert result.is_error
        assert "Connect your account for 'github' first" in text(result)
        link = link_in(text(result))
        assert link.startswith(f"{PUBLIC}/connect/")
        again = await client.call_tool("account")
        assert link_in(text(again)) == link, "one open link for one purpose"
        await Browser(scene, "alice").connect(link)
        assert text(await client.call_tool("account")) == "alice"


@pytest.mark.covers("GW-5.20")
@cases("front", FRONTS)
async def test_a_link_that_is_sent_to_somebody_else_connects_nothing(front: str) -> None:
    async with world(front) as scene, scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
        link = link_in(text(await alice.call_tool("account")))
        refused = await Browser(scene, "bob").connect(link)
        assert refused.status == 400 and b"not the user who asked" in refused.body
        assert scene.login.asked("/authorize") == [], "nobody was sent to the provider"
        for client in (alice, bob):
            assert (await client.call_tool("account")).is_error
        # The link is still good for the user it was made for.
        assert b"is connected" in (await Browser(scene, "alice").connect(link)).body
        assert text(await alice.call_tool("account")) == "alice"
        assert (await bob.call_tool("account")).is_error


async def test_a_call_waits_for_a_user_who_has_opened_the_page() -> None:
    async with world() as scene:
        browser = Browser(scene, "alice")
        signing_in: list[asyncio.Future[Answer]] = []

        async def opened(message: str, params: Any) -> bool:
            signing_in.append(asyncio.ensure_future(browser.connect(params.url)))
            return True  # The user agreed, and is not done yet.

        pool = AsgiPool(scene.app)
        target = HttpTarget(f"{PUBLIC}/mcp", auth=await scene.token("alice"), pool=pool)
        async with Client(target, revision=MODERN, elicit=Elicitation(url=opened)) as client:
            assert text(await client.call_tool("account")) == "alice"
        assert len(await asyncio.gather(*signing_in)) == 1
        await pool.close()


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_a_user_who_does_not_finish_gets_the_address(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.server.credentials.FINISH_SECONDS", 0.0)
    async with world() as scene:
        pool = AsgiPool(scene.app)
        target = HttpTarget(f"{PUBLIC}/mcp", auth=await scene.token("alice"), pool=pool)
        elicit = Elicitation(url=lambda message, params: answer == "accept")
        async with Client(target, revision=MODERN, elicit=elicit) as client:
            result = await client.call_tool("account")
            assert result.is_error and link_in(text(result)).startswith(f"{PUBLIC}/connect/")
        await pool.close()


async def test_users_prove_who_they_are_where_their_tokens_come_from() -> None:
    async with world("server") as scene, Accounts(20_001) as second:
        client = UserOAuth(second.url, client_id="known", client_secret="secret-of-known")

        async def verify(token: str) -> Principal | None:
            return await scene.entrance.verify(token) or await second.verify(token)

        servers = [scene.entrance.url, second.url]
        auth = ResourceServer(verify, authorization_servers=servers, sign_in=client)
        scene.app = scene.server().http_app(public_url=PUBLIC, auth=auth)
        scene.tokens["bob"] = second.token_of("bob")
        for user, entrance in (("alice", scene.entrance), ("bob", second)):
            async with scene.client(user, MODERN, Browser(scene, user)) as caller:
                assert text(await caller.call_tool("account")) == user
            assert len(entrance.logins) == 1
        assert [len(each.clients) for each in (scene.entrance, second)] == [1, 0], "the given client is used"
        assert second.logins[0]["client_id"] == "known"
        await scene.app.stop()


async def test_two_users_in_one_browser_do_not_disturb_each_other() -> None:
    async with world("server") as scene, scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
        browser = Browser(scene, "alice")
        links = [link_in(text(await each.call_tool("account"))) for each in (alice, bob)]
        pages = [await browser.open(link) for link in links]
        browser.user = browser.account = "bob"
        assert b"is connected" in (await browser.submit(pages[1], links[1])).body
        browser.user = browser.account = "alice"
        assert b"is connected" in (await browser.submit(pages[0], links[0])).body
        assert [text(await each.call_tool("account")) for each in (alice, bob)] == ["alice", "bob"]
        # The form of one page does not fit the link of another.
        fresh = await browser.open(links[0])
        assert fresh.status == 400


async def test_a_link_is_used_once_and_ends() -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        browser = Browser(scene, "alice")
        await browser.connect(link)
        back = next(each for each in browser.visited if "/connect/callback/github?" in each)
        again = await browser.open(back)
        assert again.status == 400 and b"is finished" in again.body
        assert (await browser.connect(link)).status == 400
        assert (await Browser(scene, "alice").open(f"{PUBLIC}/connect/{'x' * 43}")).status == 400


async def test_an_old_link_connects_nothing() -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        server = scene.app.runtime().host.kernel.server
        server.vault.links._clock = lambda: server.vault.clock() + 601
        answer = await Browser(scene, "alice").connect(link)
        assert answer.status == 400 and b"too old" in answer.body


async def test_an_answer_counts_in_the_browser_that_asked_for_it() -> None:
    """An attacker who proved to be themselves cannot have a victim finish the connection with the victim's account."""
    async with world() as scene, scene.client("bob", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        attacker, victim = Browser(scene, "bob"), Browser(scene, "alice")
        page = await attacker.open(link)
        found = re.search(r'name="page" value="([^"]*)"', page.body.decode())
        assert found is not None
        sent = await attacker._here(link, {"page": found[1], "key": "the-key-of-bob-0123456789"})
        assert sent.status == 303
        stolen = await victim.open(sent.headers["location"])
        assert stolen.status == 400 and b"another browser" in stolen.body
        assert (await client.call_tool("account")).is_error


async def test_a_service_cannot_have_the_code_of_another_one_sent_to_itself() -> None:
    """A mix-up: the evil service sends the browser on to the honest one, with its own state."""
    async with world() as scene, Accounts(20_001) as evil:
        kinds = {
            name: UserOAuth(at.url, client_id="us", client_secret=f"secret-{name}")
            for name, at in (("github", scene.login), ("evil", evil))
        }
        server = scene.server(credentials=kinds)
        evil.routes["/authorize"] = lambda request: Reply(
            302,
            headers={
                "location": f"{scene.login.url}/authorize?"
                + urlencode({**request.query, "redirect_uri": f"{PUBLIC}/connect/callback/github"})
            },
        )

        @server.tool
        async def harm(token: str = Depends(credential("evil"))) -> str:
            return token

        scene.app = server.http_app(public_url=PUBLIC)
        async with scene.client("alice", MODERN) as client:
            link = link_in(text(await client.call_tool("harm")))
            answer = await Browser(scene, "alice").connect(link)
            assert answer.status == 400 and b"for another service" in answer.body
        assert evil.grants == []
        await scene.app.stop()


async def test_forms_belong_to_their_browser_and_their_link() -> None:
    async with world() as scene, scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
        links = [link_in(text(await each.call_tool("account"))) for each in (alice, bob)]
        browser = Browser(scene, "alice")
        page = await browser.open(links[0])
        key = {"key": "the-key-of-alice-0123456789"}
        for wrong in (
            await browser.submit(page, links[1], **key),
            await Browser(scene, "alice").submit(page, links[0], **key),
        ):
            assert wrong.status == 400 and b"no longer valid" in wrong.body
        assert (await browser.open(links[0], {"page": "forged", **key})).status == 400
        assert (await browser.open(links[0], {})).status == 400
        assert b"The key is not valid" in (await browser.submit(page, links[0], key="wrong-key-0123456789")).body
        assert b"The key is not valid" in (await browser.submit(page, links[0], key="")).body
        assert b"is connected" in (await browser.submit(page, links[0], **key)).body


async def test_a_link_is_not_for_guessing_keys() -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        browser = Browser(scene, "alice")
        page = await browser.open(link)
        for _ in range(MAX_TRIES):
            await browser.submit(page, link, key="wrong-key-0123456789")
        answer = await browser.submit(page, link, key="the-key-of-alice-0123456789")
        assert b"too often" in answer.body


async def test_pages_cannot_be_framed_kept_or_scripted() -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        page = await Browser(scene, "alice").open(link)
        assert page.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "same-origin"
        cookie = page.headers["set-cookie"]
        assert cookie.startswith("__Host-") and "HttpOnly" in cookie and "Secure" in cookie and "SameSite=Lax" in cookie
        assert b"alice" not in page.body, "the page does not say who asked"
        for method in ("PUT", "DELETE"):
            from tests.http.httpclient import HttpClient

            refused = HttpClient(scene.app, path=link.removeprefix(PUBLIC), headers={"host": "api.example.org"})
            answer = await refused.start(method, body=b"", server=("10.0.0.1", 443)).finished()
            assert answer.status == 405


async def test_pages_check_host_and_origin() -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        for path in (link.removeprefix(PUBLIC), "/connect/"):
            rebound = HttpClient(scene.app, path=path, headers={"host": "evil.example"})
            assert (await rebound.start("GET", body=b"", server=("10.0.0.1", 443)).finished()).status == 421
            for origin, status in (("https://evil.example", 403), ("null", 403), (PUBLIC, 400)):
                posted = HttpClient(scene.app, path=path, headers={"host": "api.example.org", "origin": origin})
                answer = await posted.start("POST", body=b"page=x", server=("10.0.0.1", 443)).finished()
                assert answer.status == status


# --- providers that are down, refuse, or grant less ---


@cases("trouble", ["down", "denied", "refused", "fewer", "other"])
async def test_what_the_provider_does_not_give_is_not_connected(trouble: str) -> None:
    async with world() as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        issue = scene.login.issue
        if trouble == "down":
            scene.login.routes["/token"] = lambda request: Reply(503, raw=b"internal: db=10.0.0.7")
        elif trouble == "denied":
            scene.login.denies = True
        elif trouble == "refused":
            scene.login.refuses["authorization_code"] = "invalid_client"
        else:
            granted = {"fewer": "gist", "other": "admin"}[trouble]
            scene.login.issue = lambda scope: {**issue(scope), "scope": granted}  # type: ignore[method-assign]
        answer = await Browser(scene, "alice").connect(link)
        assert answer.status == 400 and b"othing was connected" in answer.body
        assert b"10.0.0.7" not in answer.body
        assert (await client.call_tool("account")).is_error
        # When the provider is well again, the user gets on.
        scene.login.routes["/token"] = scene.login._token
        scene.login.denies = False
        scene.login.refuses.clear()
        scene.login.issue = issue  # type: ignore[method-assign]
        link = link_in(text(await client.call_tool("account")))
        assert b"is connected" in (await Browser(scene, "alice").connect(link)).body
        assert text(await client.call_tool("account")) == "alice"


async def test_an_entrance_that_is_down_connects_nothing() -> None:
    async with world("server") as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        scene.entrance.routes.pop("/.well-known/oauth-authorization-server")
        answer = await Browser(scene, "alice").connect(link)
        assert answer.status == 400 and b"Try again later" in answer.body
        assert scene.login.requests == []


# --- other kinds, other processes ---


async def test_a_user_enters_a_secret() -> None:
    kinds = {"github": UserSecret(hint="It is on the page <settings>.")}
    async with world(credentials=kinds) as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        refused = await Browser(scene, "bob").connect(link, secret="of-bob")
        assert refused.status == 400
        bad = await Browser(scene, "alice").connect(link, secret="two\r\nlines")
        assert bad.status == 400
        done = await Browser(scene, "alice").connect(link, secret="of-alice")
        assert b"is connected" in done.body and b"of-alice" not in done.body
        assert text(await client.call_tool("account")) == "of-alice"


@pytest.mark.covers("GW-5.4")
async def test_an_operator_connects_the_account_of_the_server() -> None:
    async with world() as scene:
        kind = ServerOAuth(scene.login.url, client_id="us", client_secret="our-secret", operators=["alice"])
        scene.app = scene.server(credentials={"github": kind}).http_app(public_url=PUBLIC)
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            told = text(await bob.call_tool("account"))
            assert told == "An operator of this server has to connect 'github' first"
            link = link_in(text(await alice.call_tool("account")))
            browser = Browser(scene, "alice")
            browser.account = "the company"
            assert b"is connected" in (await browser.connect(link)).body
            assert [text(await each.call_tool("account")) for each in (alice, bob)] == ["the company"] * 2
        await scene.app.stop()


async def test_links_and_accounts_are_those_of_all_processes() -> None:
    stores = Stores.memory()
    async with world("proxy", stores=stores) as scene:
        other = scene.server(stores=stores).http_app(public_url=PUBLIC)
        async with scene.client("alice", MODERN) as here, scene.client("alice", MODERN, app=other) as there:
            link = link_in(text(await here.call_tool("account")))
            first, scene.app = scene.app, other
            assert b"is connected" in (await Browser(scene, "alice").connect(link)).body
            scene.app = first
            assert text(await here.call_tool("account")) == text(await there.call_tool("account")) == "alice"
        await other.stop()


async def test_callers_who_are_nobody_have_no_account() -> None:
    async with world() as scene:
        for auth in (None, Anonymous(), [Anonymous(Principal("guest"))]):
            app = scene.server().http_app(public_url=PUBLIC, auth=auth)
            async with Client(HttpTarget(f"{PUBLIC}/mcp", pool=AsgiPool(app)), revision=MODERN) as client:
                told = text(await client.call_tool("account"))
                assert "this caller is anonymous" in told
            await app.stop()


async def test_without_an_address_nobody_is_sent_anywhere() -> None:
    async with world() as scene:
        for kinds, options in (({"github": UserSecret()}, {}), (None, {"auth": scene.auth()})):
            given = {} if kinds is None else {"credentials": kinds}
            app = scene.server(**given).http_app(**options)
            async with scene.client("alice", MODERN, app=app) as client:
                told = text(await client.call_tool("account"))
                assert "this server has no page to connect one" in told
            await app.stop()


@cases("revision", REVISIONS)
async def test_a_local_user_connects_in_the_browser_of_the_machine(revision: str) -> None:
    async with world() as scene:
        server = scene.server()
        connections = server.vault.local_connections()
        opened: list[str] = []

        async def person(url: str) -> None:
            async with HttpPool() as pool:
                headers = {"x-user": "alice"}
                async with await pool.request("GET", url, headers=headers, redirects=0) as response:
                    location = response.header("location")
                assert location is not None and location.startswith("http://127.0.0.1:")
                async with await pool.request("GET", location, redirects=0) as response:
                    assert response.status == 200
            await connections.settled()

        async def asked(message: str, params: Any) -> bool:
            opened.append(params.url)
            await person(params.url)
            return True

        async with Client(server, revision=revision, elicit=Elicitation(url=asked)) as client:
            result = await client.call_tool("account")
            if revision == "2025-06-18":
                found = re.search(r"http://\S+", text(result))
                assert found is not None
                # While one sign-in is open, every call gets the same address.
                assert found[0] in text(await client.call_tool("account"))
                await person(found[0])
                result = await client.call_tool("account")
            assert text(result) == "alice"
        # Another caller over HTTP has no account by that.
        assert [each.owner async for each in server.vault.entries()] == ["local"]


async def test_a_local_sign_in_that_fails_is_over() -> None:
    async with world() as scene, Client(scene.server()) as client:
        scene.login.denies = True
        told = text(await client.call_tool("account"))
        found = re.search(r"http://\S+", told)
        assert found is not None
        async with HttpPool() as pool:
            async with await pool.request("GET", found[0], headers={"x-user": "alice"}, redirects=0) as response:
                location = response.header("location")
            assert location is not None
            async with await pool.request("GET", location, redirects=0) as response:
                assert response.status == 200
        assert (await client.call_tool("account")).is_error


async def test_the_client_that_asked_is_told_when_the_account_is_connected() -> None:
    """2025-11-25 client/elicitation: the client that got the question is told, and no other one."""
    async with world() as scene:
        finished: dict[str, asyncio.Queue[str]] = {"first": asyncio.Queue(), "second": asyncio.Queue()}
        asked: list[str] = []

        async def opened(message: str, params: Any) -> bool:
            asked.append(params.url)
            return True

        def target() -> HttpTarget:
            return HttpTarget(f"{PUBLIC}/mcp", auth="the-key-of-alice-0123456789", pool=AsgiPool(scene.app))

        first = Elicitation(url=opened, completed=finished["first"].put_nowait)
        second = Elicitation(url=opened, completed=finished["second"].put_nowait)
        async with (
            Client(target(), revision="2025-11-25", elicit=first) as one,
            Client(target(), revision="2025-11-25", elicit=second) as two,
        ):
            assert await two.list_tools()
            with pytest.raises(ProtocolError):
                await one.call_tool("account")
            await Browser(scene, "alice").connect(asked[0])
            assert await asyncio.wait_for(finished["first"].get(), 60)
            assert text(await one.call_tool("account")) == text(await two.call_tool("account")) == "alice"
            assert finished["second"].empty()


async def test_a_local_client_is_told_when_the_account_is_connected() -> None:
    async with world() as scene:
        server, finished, asked = scene.server(), asyncio.Queue[str](), asyncio.Queue[str]()

        async def opened(message: str, params: Any) -> bool:
            asked.put_nowait(params.url)
            return True

        elicit = Elicitation(url=opened, completed=finished.put_nowait)
        async with Client(server, revision="2025-11-25", elicit=elicit) as client:
            with pytest.raises(ProtocolError):
                await client.call_tool("account")
            async with HttpPool() as pool:
                headers = {"x-user": "alice"}
                async with await pool.request("GET", await asked.get(), headers=headers, redirects=0) as response:
                    location = response.header("location")
                assert location is not None
                async with await pool.request("GET", location, redirects=0) as response:
                    assert response.status == 200
            assert await asyncio.wait_for(finished.get(), 60)
            assert text(await client.call_tool("account")) == "alice"


@cases("revision", REVISIONS)
async def test_a_local_user_enters_a_secret_in_the_browser_of_the_machine(revision: str) -> None:
    server = Server("almanac", secret=SECRET, credentials={"github": UserSecret(hint="It begins with gh.")})

    @server.tool
    async def account(token: str = Depends(credential("github"))) -> str:
        return token

    async def fetched(method: str, url: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        async with HttpPool() as pool, await pool.request(method, url, body=body, headers=headers) as response:
            return response.status, await response.read(65_536)

    async def person(url: str) -> None:
        status, shown = await fetched("GET", url)
        assert status == 200 and b"It begins with gh." in shown and b'type="password"' in shown
        assert (await fetched("GET", f"{url}x"))[0] == 404, "another page cannot guess the address"
        assert (await fetched("GET", url, host="evil.example"))[0] == 404, "nor lead a name of its own here"
        assert (await fetched("POST", url, b"secret=+a"))[0] == 400
        assert (await fetched("POST", url, b"secret=x&secret=y"))[0] == 400
        assert b"is connected" in (await fetched("POST", url, b"secret=gh-1"))[1]
        await server.vault.local_connections().settled()

    async def asked(message: str, params: Any) -> bool:
        await person(params.url)
        return True

    async with Client(server, revision=revision, elicit=Elicitation(url=asked)) as client:
        result = await client.call_tool("account")
        if revision == "2025-06-18":
            found = re.search(r"http://\S+", text(result))
            assert found is not None
            # While one page is open, every call gets the same address.
            assert found[0] in text(await client.call_tool("account"))
            await person(found[0])
            result = await client.call_tool("account")
        assert text(result) == "gh-1"
    assert [each.owner async for each in server.vault.entries()] == ["local"]


def test_a_server_with_accounts_of_callers_is_not_mounted() -> None:
    inner = Server("inner", secret="a secret of sixteen bytes", credentials={"notes": UserSecret()})
    with pytest.raises(ServerError, match="credentials= of callers"):
        Server("outer").mount(inner)


async def test_a_mounted_server_has_credentials_of_its_own_or_those_of_its_host() -> None:
    kinds = {"api": StaticSecret("of the host"), "other": StaticSecret("of the host, too")}
    host = Server("host", secret="a secret of sixteen bytes", credentials=kinds)
    inner = Server("inner", secret="a secret of sixteen bytes", credentials={"api": StaticSecret("of inner")})

    @inner.tool
    async def tokens(
        api: str = Depends(credential("api")),
        other: str = Depends(credential("other")),
        again: str = Depends(credential("api")),
    ) -> str:
        return f"{api}, {other}, {again}"

    @inner.tool
    def blocking(ctx: SyncContext) -> str:
        return str(ctx.credential("api").headers("GET", "https://api.example"))

    @inner.tool
    async def unknown(api: str = Depends(credential("missing"))) -> str:
        return api

    host.mount(inner)
    async with Client(host) as client:
        assert text(await client.call_tool("tokens")) == "of inner, of the host, too, of inner"
        assert text(await client.call_tool("blocking")) == "{'authorization': 'Bearer of inner'}"
        assert (await client.call_tool("unknown")).is_error


async def test_a_hundred_calls_of_two_users_at_once_never_mix() -> None:
    async with world("server") as scene, scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
        for client, user in ((alice, "alice"), (bob, "bob")):
            link = link_in(text(await client.call_tool("account")))
            await Browser(scene, user).connect(link)
        server = scene.app.runtime().host.kernel.server
        later = server.vault.clock
        server.vault.clock = lambda: later() + 3599
        calls = [each.call_tool("account") for _ in range(50) for each in (alice, bob)]
        assert [text(each) for each in await asyncio.gather(*calls)] == ["alice", "bob"] * 50
        assert await server.vault.revoke("github", Owner.from_principal(Principal("alice", scene.entrance.url)))
        assert (await alice.call_tool("account")).is_error
        assert text(await bob.call_tool("account")) == "bob"


# --- the page of accounts ---


def button(page: Answer, name: str, says: str) -> str:
    """Return what a button carries: in the part of the page about an account, the one with this text."""
    part = page.body.decode().partition(f"<dt>{name}</dt>")[2].partition("<dt>")[0]
    found = re.search(rf'name="account"\s+value="([^"]*)">\s*<button>{says}</button>', part)
    assert found is not None, part
    return unescape(found[1])


async def accounts(browser: Browser) -> Answer:
    """Sign in to the page of accounts."""
    return await browser.connect(f"{PUBLIC}/connect/")


@cases("front", FRONTS)
async def test_users_connect_and_forget_accounts_before_they_are_asked(front: str) -> None:
    async with world(front) as scene, scene.client("alice", MODERN) as client, scene.client("bob", MODERN) as other:
        browser = Browser(scene, "alice")
        page = await accounts(browser)
        assert b"not connected" in page.body
        done = await browser.open(f"{PUBLIC}/connect/", {"account": button(page, "github", "Connect")})
        assert b"is connected" in done.body
        assert text(await client.call_tool("account")) == "alice"
        assert (await other.call_tool("account")).is_error
        page = await accounts(browser)
        forget = button(page, "github", "Disconnect")
        # The buttons are those of this browser.
        stolen = await Browser(scene, "bob").open(f"{PUBLIC}/connect/", {"account": forget})
        assert stolen.status == 400
        for forged in ("", "forged", "a.b.c"):
            assert (await browser.open(f"{PUBLIC}/connect/", {"account": forged})).status == 400
        assert text(await client.call_tool("account")) == "alice"
        page = await browser.open(f"{PUBLIC}/connect/", {"account": forget})
        assert b"not connected" in page.body
        assert (await client.call_tool("account")).is_error


@pytest.mark.parametrize("front", ["server", "proxy"])
async def test_users_who_are_not_allowed_have_no_page_of_accounts(front: str) -> None:
    async with world(front) as scene:
        scene.app = scene.server().http_app(public_url=PUBLIC, auth=scene.auth(allow=["alice"]))
        assert (await accounts(Browser(scene, "alice"))).status == 200
        assert (await accounts(Browser(scene, "bob"))).status == 400
        await scene.app.stop()


async def test_operators_alone_see_the_account_of_the_server() -> None:
    async with world() as scene:
        kind = ServerOAuth(scene.login.url, client_id="us", client_secret="our-secret", operators=["alice"])
        scene.app = scene.server(credentials={"github": kind}).http_app(public_url=PUBLIC)
        assert b"no account that you could connect" in (await accounts(Browser(scene, "bob"))).body
        browser = Browser(scene, "alice")
        page = await accounts(browser)
        assert (
            b"is connected"
            in (await browser.open(f"{PUBLIC}/connect/", {"account": button(page, "github", "Connect")})).body
        )
        async with scene.client("bob", MODERN) as client:
            assert text(await client.call_tool("account")) == "alice"
        await scene.app.stop()


async def test_the_page_of_accounts_is_for_users_who_sign_in() -> None:
    async with world() as scene:
        browser = Browser(scene, "alice")
        page = await browser.open(f"{PUBLIC}/connect/")
        assert page.status == 200 and b"github" not in page.body
        assert (
            b"The key is not valid" in (await browser.submit(page, f"{PUBLIC}/connect/", key="wrong-0123456789")).body
        )
        app = scene.server().http_app(public_url=PUBLIC, auth=[scene.auth(), Anonymous()])
        scene.app = app
        page = await browser.open(f"{PUBLIC}/connect/")
        nobody = await browser.submit(page, f"{PUBLIC}/connect/", key="wrong-0123456789")
        assert b"does not know who you are" in nobody.body
        await app.stop()


async def test_a_user_whose_token_is_too_long_for_a_form_is_told_so() -> None:
    async with world("proxy") as scene, scene.client("alice", MODERN) as client:
        link = link_in(text(await client.call_tool("account")))
        scene.google.token_length = 60_000
        page = await Browser(scene, "alice").connect(link)
        assert page.status == 400 and b"too long" in page.body
        assert (await client.call_tool("account")).is_error


async def test_strangers_cannot_fill_the_store_with_sign_ins() -> None:
    async with world("server") as scene:
        browser = Browser(scene, "alice")
        page = await browser.open(f"{PUBLIC}/connect/")
        found = re.search(r'name="page" value="([^"]*)"', page.body.decode())
        assert found is not None
        answers = [await browser._here(f"{PUBLIC}/connect/", {"page": unescape(found[1])}) for _ in range(IN_VAIN + 5)]
        statuses = [each.status for each in answers]
        assert statuses == [303] * IN_VAIN + [429] * 5
        assert int(answers[-1].headers["retry-after"]) >= 1


@pytest.mark.parametrize("header", [None, "X-API-Key"])
async def test_wrong_keys_on_the_page_are_refused_with_429_after_a_while(header: str | None) -> None:
    async with world() as scene:
        keys = ApiKeys({f"the-key-of-{user}-0123456789": user for user in ("alice", "bob")}, header=header)
        scene.app = app = scene.server().http_app(public_url=PUBLIC, auth=keys)
        app.settings.gate._in_vain = InVain(lambda: 0.0)
        browser = Browser(scene, "alice")
        page = await browser.open(f"{PUBLIC}/connect/")

        async def enter(key: str) -> Answer:
            return await browser.submit(page, f"{PUBLIC}/connect/", key=key)

        assert (await enter("the-key-of-bob-0123456789")).status == 200
        statuses = [(await enter(f"made-up-{number}-0123456789")).status for number in range(IN_VAIN + 5)]
        assert statuses == [400] * IN_VAIN + [429] * 5
        # A right guess does not show itself. A key that was accepted before passes.
        assert (await enter("the-key-of-alice-0123456789")).status == 429
        assert (await enter("the-key-of-bob-0123456789")).status == 200
        # The endpoint counts together with the page.
        sent = {"authorization": "Bearer made-up-0123456789", "host": "api.example.org"}
        assert (await HttpClient(app, headers=sent).start("POST", body=b"{}").finished()).status == 429
        await app.stop()


# --- the token of the caller ---


@pytest.mark.covers("GW-5.15")
@cases("revision", REVISIONS)
@cases("front", FRONTS)
async def test_the_token_of_the_caller_is_exchanged_and_shown_to_nobody(front: str, revision: str) -> None:
    async with world(front) as scene:
        kind = TokenExchange(scene.login.url, client_id="us", client_secret="our-secret")
        server = scene.server(credentials={"github": kind})
        seen: list[str] = []

        @server.tool
        async def look(ctx: Context) -> str:
            seen.append(f"{ctx.principal!r} {msgspec.json.encode(ctx.principal)!r} {dict(ctx.headers)}")
            return "looked"

        scene.app = server.http_app(public_url=PUBLIC)
        async with scene.client("alice", revision) as client:
            result = await client.call_tool("account")
            await client.call_tool("look")
            token = await scene.token("alice")
            assert token not in seen[0]
            if front == "keys":
                # A key of this server is nobody else's business.
                assert result.is_error and scene.login.requests == []
            else:
                [form] = scene.login.grants
                # The proxy hands out tokens of its own: what is exchanged is that of its provider.
                assert (form["subject_token"] == token) is (front == "server")
                assert form["subject_token"] in (token, *scene.google.tokens)
        await scene.app.stop()
