"""Whose account acts at a server behind a gateway: every kind of credential, in both eras on both sides."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.auth.connecting import PUBLIC, SECRET, Accounts, Browser, World
from tests.auth.stand_in import Reply, Request
from tests.auth.test_proxy import Google

from toolwire import Client, Context, Gateway, Server
from toolwire.auth import (
    ClientCredentials,
    NoCredential,
    Passthrough,
    Principal,
    ResourceServer,
    ServerOAuth,
    StaticSecret,
    TokenExchange,
    UserOAuth,
    UserSecret,
)
from toolwire.auth.errors import NotConnected
from toolwire.auth.vault.kinds import Kind
from toolwire.auth.vault.records import Owner
from toolwire.auth.vault.vault import Asker
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import MODERN

pytestmark = pytest.mark.warm_start

ERAS = (MODERN, "2025-11-25")


def text(result: Any) -> str:
    return str(result.content[0].text)


def link_in(told: str) -> str:
    found = re.search(r"https://\S+", told)
    assert found is not None, told
    return found[0]


class Scene(World):
    """A gateway before a server that takes the tokens of `login`. Callers come with tokens of `entrance`."""

    def __init__(self, login: Accounts, entrance: Accounts) -> None:
        super().__init__("server", login, entrance, Google())
        self.sent: list[dict[str, str]] = []
        """The headers of all requests that reached the server."""
        self.meeting = asyncio.Barrier(2)
        self.refusing = 0
        """How many requests are refused, whatever their token."""
        self.refusal = 401
        """The status of a refusal."""
        self.refusal_text = ""
        self.broken_for: str | None = None
        """The user whose requests are answered with 503."""

    def behind(self) -> Server:
        server = Server("back", auth=ResourceServer(self.login.verify))

        @server.tool
        async def whoami(ctx: Context) -> str:
            assert ctx.principal is not None
            return ctx.principal.subject

        @server.tool
        async def count(ctx: Context) -> str:
            """Count the calls of one conversation, as servers with sessions do."""
            assert ctx.principal is not None
            key = ctx.session_id or ""
            self.counts.setdefault(key, []).append(ctx.principal.subject)
            return " ".join(sorted(set(self.counts[key])))

        @server.tool
        async def meet(ctx: Context) -> str:
            assert ctx.principal is not None
            await self.meeting.wait()
            return ctx.principal.subject

        @server.tool
        async def ask(ctx: Context) -> str:
            assert ctx.principal is not None
            answer = await ctx.elicit("Who are you?", str)
            return f"{ctx.principal.subject} says {answer.data}"

        @server.tool(task="optional")
        async def later(ctx: Context) -> str:
            assert ctx.principal is not None
            return f"{ctx.principal.subject}, later"

        return server

    counts: dict[str, list[str]]

    @asynccontextmanager
    async def gateway(
        self, kind: Kind | None, back: str, *, of_gateway: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[Gateway]:
        self.counts = {}
        app = self.behind().http_app()

        async def door(scope: Any, receive: Any, send: Any) -> None:
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.sent.append(headers)
            if self.login.users.get(headers.get("authorization", "").partition(" ")[2], "") == self.broken_for:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            if self.refusing > 0 and b"tools/call" in headers.get("mcp-method", "tools/call").encode():
                self.refusing -= 1
                challenge = [
                    (b"www-authenticate", b'Bearer error="invalid_token"'),
                    (b"content-type", b"text/plain"),
                    (b"location", f"http://elsewhere.example/?{self.refusal_text}".encode()),
                ]
                await send({"type": "http.response.start", "status": self.refusal, "headers": challenge})
                await send({"type": "http.response.body", "body": self.refusal_text.encode()})
                return
            await app(scope, receive, send)

        auth = ResourceServer(self.entrance_verify, authorization_servers=[self.entrance.url])
        pool = AsgiPool(door)
        gateway = Gateway("front", auth=auth, secret=SECRET, **(of_gateway or {}))
        gateway.add(
            "b", HttpTarget("http://localhost/mcp", pool=pool), revision=back, credentials=kind, prefix="", **options
        )
        self.app = gateway.http_app(public_url=PUBLIC)
        try:
            yield gateway
        finally:
            await self.app.stop()
            app.drain()
            await pool.close()
            await app.stop()

    async def entrance_verify(self, token: str) -> Principal | None:
        found = await self.entrance.verify(token)
        # A token of somebody for both servers, as with one audience for a whole company.
        return found and Principal(found.subject, found.provider, claims={"aud": ["all servers"]})

    def per_user(self) -> UserOAuth:
        return UserOAuth(
            token_endpoint=f"{self.login.url}/token",
            authorization_endpoint=f"{self.login.url}/authorize",
            client_id="us",
            client_secret="our-secret",
        )

    def lister(self) -> StaticSecret:
        return StaticSecret(self.login.token_of("the lister"))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        login = await stack.enter_async_context(Accounts())
        entrance = await stack.enter_async_context(Accounts(10_001))
        yield Scene(login, entrance)


# --- the account of the gateway itself ---


OWN: dict[str, Callable[[Scene], Kind]] = {
    "static": lambda scene: StaticSecret(scene.login.token_of("the gateway")),
    "supplied": lambda scene: StaticSecret(lambda: scene.login.token_of("the gateway")),
    "client credentials": lambda scene: ServerOAuth(
        token_endpoint=f"{scene.login.url}/token", grant=ClientCredentials("machine", "machine-secret")
    ),
}


@pytest.mark.covers("GW-5.2")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("kind", OWN)
async def test_the_gateway_acts_with_its_own_account(scene: Scene, kind: str, back: str) -> None:
    expected = "nobody" if kind == "client credentials" else "the gateway"
    async with scene.gateway(OWN[kind](scene), back):
        for user in ("alice", "bob"):
            async with scene.client(user, MODERN) as client:
                assert text(await client.call_tool("whoami")) == expected
    assert not {*scene.tokens.values()} & {each["authorization"].split(" ")[1] for each in scene.sent}


@pytest.mark.covers("GW-5.1")
@pytest.mark.parametrize("kind", [None, NoCredential()])
async def test_without_a_credential_nothing_of_the_caller_is_sent(scene: Scene, kind: Kind | None) -> None:
    scene.login.verify = _everybody  # type: ignore[method-assign]
    async with scene.gateway(kind, MODERN) as gateway, scene.client("alice", MODERN) as client:
        told = await client.list_tools()
        assert told == [] and gateway.backs["b"].state == "away"
    assert scene.sent and not [each for each in scene.sent if "authorization" in each or "cookie" in each]


async def _everybody(token: str) -> Principal | None:
    return Principal(token)


# --- the accounts of callers ---


@pytest.mark.covers("GW-5.1", "GW-5.5")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_each_caller_acts_with_the_own_account(scene: Scene, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back, list_credentials=scene.lister()) as gateway:
        for user in ("alice", "bob"):
            browser = Browser(scene, user)
            browser.account = f"{user}@github"
            # The client is asked to open the page, and the call goes on by itself.
            async with scene.client(user, front, browser) as client:
                assert [tool.name for tool in await client.list_tools()] == ["ask", "count", "later", "meet", "whoami"]
                assert text(await client.call_tool("whoami")) == f"{user}@github"
        async with scene.client("alice", front) as alice, scene.client("bob", front) as bob:
            calls = [each.call_tool(tool) for _ in range(10) for each in (alice, bob) for tool in ("whoami", "count")]
            found = [text(each) for each in await asyncio.gather(*calls)]
            if back != MODERN:
                # A legacy server keeps state for a session: no session saw two people.
                assert {tuple(set(each)) for each in scene.counts.values()} == {("alice@github",), ("bob@github",)}
            assert found[0::2] == ["alice@github", "bob@github"] * 10
        assert len(scene.links) == 2
        entries = sorted([each.subject async for each in gateway.vault.entries("b")])
        assert entries == ["alice", "bob"]
    sent = {each.get("authorization", "").partition(" ")[2] for each in scene.sent}
    assert not sent & {*scene.tokens.values()}, "no token of a caller reached the server"


@pytest.mark.covers("GW-5.17")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_a_refusal_of_the_server_is_none_of_the_gateway(scene: Scene, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back, list_credentials=scene.lister()) as gateway:
        async with scene.client("alice", front, Browser(scene, "alice")) as client:
            assert text(await client.call_tool("whoami")) == "alice"
        async with scene.client("alice", front) as client:
            # An access token that the provider revoked: it is renewed, and nobody notices.
            scene.login.expire()
            scene.login.valid.update({token: "" for token, who in scene.login.users.items() if who == "the lister"})
            assert text(await client.call_tool("whoami")) == "alice"
            # The account is gone: the caller connects it again. The client is not told to sign in to the gateway.
            scene.login.expire()
            scene.login.refresh_tokens.clear()
            scene.login.valid.update({token: "" for token, who in scene.login.users.items() if who == "the lister"})
            result = await client.call_tool("whoami")
            assert result.is_error
            await Browser(scene, "alice").connect(link_in(text(result)))
            assert text(await client.call_tool("whoami")) == "alice"
        assert await gateway.vault.revoke("b", Owner.from_principal(Principal("alice", scene.entrance.url)))
        async with scene.client("alice", front) as client:
            assert "Connect your account for 'b' first" in text(await client.call_tool("whoami"))


async def test_the_connections_of_one_account_are_not_those_of_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.gateway.back_connections.MAX_CONVERSATIONS_OF_ONE", 1)
    async with scene.gateway(scene.per_user(), MODERN, list_credentials=scene.lister()):
        for user in ("alice", "bob"):
            async with scene.client(user, MODERN, Browser(scene, user)) as client:
                assert text(await client.call_tool("whoami")) == user
        async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
            calls = [asyncio.ensure_future(each.call_tool("meet")) for each in (alice, bob)]
            done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert not any(each.result().is_error for each in done), "neither is turned away while the other waits"
            met = await asyncio.gather(*calls)
            assert [text(each) for each in met] == ["alice", "bob"]


@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_questions_are_asked_of_the_caller_whose_account_it_is(scene: Scene, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back, list_credentials=scene.lister()):
        for user in ("alice", "bob"):
            async with scene.client(user, front, Browser(scene, user)) as client:
                assert text(await client.call_tool("whoami")) == user
        async with scene.client("alice", front, form="alice") as alice, scene.client("bob", front, form="bob") as bob:
            calls = [each.call_tool("ask") for _ in range(3) for each in (alice, bob)]
            assert [text(each) for each in await asyncio.gather(*calls)] == ["alice says alice", "bob says bob"] * 3


@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_tasks_run_with_the_account_of_their_caller(scene: Scene, front: str, back: str) -> None:
    async with scene.gateway(scene.per_user(), back, list_credentials=scene.lister()):
        for user in ("alice", "bob"):
            async with scene.client(user, front, Browser(scene, user)) as client:
                assert text(await client.call_tool("whoami")) == user
        async with scene.client("alice", front) as alice, scene.client("bob", front) as bob:
            handles = [await each.call_tool_as_task("later") for each in (alice, bob, alice, bob)]
            assert [text(await each.wait()) for each in handles] == ["alice, later", "bob, later"] * 2


@pytest.mark.covers("GW-5.17")
@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_every_token_is_not_asked_for_ever(scene: Scene, status: int) -> None:
    scene.refusal = status
    async with scene.gateway(scene.per_user(), MODERN, list_credentials=scene.lister()):
        async with scene.client("alice", MODERN, Browser(scene, "alice")) as client:
            assert text(await client.call_tool("whoami")) == "alice"
        async with scene.client("alice", MODERN) as client:
            scene.refusing, before = 100, len(scene.sent)
            result = await client.call_tool("whoami")
            assert result.is_error and "The server 'b' behind this one failed" in text(result)
            assert len(scene.sent) - before <= 4


@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("status", [401, 403, 302, 500])
async def test_credentials_of_other_callers_in_a_refusal_stay_out_of_the_log(
    scene: Scene, back: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene.refusal = status
    async with scene.gateway(scene.per_user(), back, list_credentials=scene.lister()):
        for user in ("alice", "bob"):
            async with scene.client(user, MODERN, Browser(scene, user)) as client:
                assert text(await client.call_tool("whoami")) == user
        of_bob = next(token for token, user in scene.login.users.items() if user == "bob")
        scene.refusing, scene.refusal_text = 100, f"not-{of_bob}"
        caplog.set_level("INFO")
        async with scene.client("alice", MODERN) as client:
            told = text(await client.call_tool("whoami"))
    assert "The server 'b' behind this one failed" in told and of_bob not in told
    assert str(status) in caplog.text and of_bob not in caplog.text


@pytest.mark.covers("GW-5.7")
@pytest.mark.parametrize("back", ERAS)
async def test_tokens_of_callers_are_exchanged(scene: Scene, back: str) -> None:
    def token(request: Request) -> Reply:
        subject = request.form["subject_token"]
        document = scene.login.issue("")
        scene.login.users[document["access_token"]] = f"{scene.entrance.users[subject]}, exchanged"
        return Reply(document=document)

    scene.login.routes["/token"] = token
    kind = TokenExchange(token_endpoint=f"{scene.login.url}/token", client_id="us", client_secret="our-secret")
    async with scene.gateway(kind, back, list_credentials=scene.lister()):
        for user in ("alice", "bob", "alice"):
            async with scene.client(user, MODERN) as client:
                assert text(await client.call_tool("whoami")) == f"{user}, exchanged"
    assert len(scene.login.grants) == 2


@pytest.mark.covers("GW-5.12")
@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("back", ERAS)
async def test_two_tokens_of_one_user_are_two_credentials(scene: Scene, back: str, lists: bool) -> None:
    """A token may allow less than another one of the same user. So what is made of them is never mixed up."""

    def token(request: Request) -> Reply:
        document = scene.login.issue("")
        scene.login.users[document["access_token"]] = f"with {request.form['subject_token']}"
        return Reply(document=document)

    scene.login.routes["/token"] = token
    kind = TokenExchange(token_endpoint=f"{scene.login.url}/token", client_id="us", client_secret="our-secret")
    options = {"list_credentials": scene.lister()} if lists else {}
    async with scene.gateway(kind, back, **options), AsyncExitStack() as stack:
        clients, expected = [], []
        for _ in range(2):
            scene.tokens["alice"] = scene.entrance.token_of("alice")
            clients.append(await stack.enter_async_context(scene.client("alice", MODERN)))
            expected.append(f"with {scene.tokens['alice']}")
        found = await asyncio.gather(*(each.call_tool("whoami") for _ in range(10) for each in clients))
        assert [text(each) for each in found] == expected * 10
        # So are their tasks.
        handle = await clients[0].call_tool_as_task("later")
        assert text(await handle.wait()) == f"{expected[0]}, later"
    assert len(scene.login.grants) == 2


@pytest.mark.covers("GW-5.10")
async def test_a_token_is_handed_on_where_that_is_configured(scene: Scene) -> None:
    both = scene.entrance.token_of("alice")
    scene.tokens["alice"] = both
    scene.login.valid[both], scene.login.users[both] = "", "alice, by the same token"
    for audience, expected in (
        ("all servers", "alice, by the same token"),
        ("another audience", "The token of the caller is not for another audience"),
    ):
        kind = Passthrough(audience)
        async with (
            scene.gateway(kind, MODERN, list_credentials=scene.lister()),
            scene.client("alice", MODERN) as client,
        ):
            assert text(await client.call_tool("whoami")) == expected
    sent = [each for each in scene.sent if both in each.get("authorization", "")]
    assert {each.get("mcp-method") for each in sent} <= {"tools/call", "server/discover"}


@pytest.mark.covers("GW-5.4")
async def test_an_operator_connects_the_account_of_the_gateway(scene: Scene) -> None:
    kind = ServerOAuth(
        token_endpoint=f"{scene.login.url}/token",
        authorization_endpoint=f"{scene.login.url}/authorize",
        client_id="us",
        client_secret="our-secret",
        operators=["alice"],
    )
    async with scene.gateway(kind, MODERN) as gateway:
        appeared = asyncio.Event()
        async with scene.client("bob", MODERN) as client:
            assert await client.list_tools() == []
            assert gateway.backs["b"].state == "away"
            gateway.watchers.append(lambda: appeared.set() if gateway.backs["b"].state == "ready" else None)
            browser = Browser(scene, "alice")
            browser.account = "the company"
            page = await browser.connect(f"{PUBLIC}/connect/")
            found = re.search(r'name="account"\s+value="([^"]*)"', page.body.decode())
            assert found is not None
            assert b"is connected" in (await browser.open(f"{PUBLIC}/connect/", {"account": unescape(found[1])})).body
            await asyncio.wait_for(appeared.wait(), 60)
            assert text(await client.call_tool("whoami")) == "the company"


def exchange(scene: Scene) -> TokenExchange:
    """Return a kind whose provider gives each token the name of its user."""

    def token(request: Request) -> Reply:
        document = scene.login.issue("")
        scene.login.users[document["access_token"]] = scene.entrance.users[request.form["subject_token"]]
        return Reply(document=document)

    scene.login.routes["/token"] = token
    return TokenExchange(token_endpoint=f"{scene.login.url}/token", client_id="us", client_secret="our-secret")


def passthrough(scene: Scene) -> Passthrough:
    """Return a kind for a server that takes the tokens of callers, too."""
    token = scene.tokens["alice"]
    scene.login.valid[token], scene.login.users[token] = "", "alice"
    return Passthrough("all servers")


LATE: dict[str, Callable[[Scene], Kind]] = {
    "per user": Scene.per_user,
    "exchange": exchange,
    "passthrough": passthrough,
    "static": lambda scene: StaticSecret(scene.login.token_of("alice")),
}


@pytest.mark.parametrize("kind", LATE)
async def test_a_server_that_is_added_while_the_gateway_runs_has_credentials_too(scene: Scene, kind: str) -> None:
    async with scene.gateway(None, MODERN) as gateway, scene.client("alice", MODERN, Browser(scene, "alice")) as client:
        assert await client.list_tools() == []
        appeared = asyncio.Event()
        gateway.watchers.append(lambda: appeared.set() if gateway.backs["c"].state == "ready" else None)
        place = gateway.fronts.front.upstreams["b"].back_connections.target
        lists = {} if kind == "static" else {"list_credentials": scene.lister()}
        gateway.add("c", place, credentials=LATE[kind](scene), **lists)  # type: ignore[arg-type]
        await asyncio.wait_for(appeared.wait(), 60)
        assert text(await client.call_tool("c_whoami")) == "alice"


# --- headers of callers ---


@pytest.mark.covers("GW-5.16")
@pytest.mark.parametrize("back", ERAS)
@pytest.mark.parametrize("front", ERAS)
async def test_headers_of_callers_stay_here_unless_they_are_allowed(scene: Scene, front: str, back: str) -> None:
    given = {
        "x-tenant": "acme",
        "x-secret": "of the caller",
        "cookie": "session=1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }
    for names, expected in (([], set()), (["X-Tenant"], {"x-tenant"})):
        kind = StaticSecret(scene.login.token_of("the gateway"))
        async with scene.gateway(kind, back, forward_headers=names):
            pool = AsgiPool(scene.app)
            target = HttpTarget(f"{PUBLIC}/mcp", auth=await scene.token("alice"), headers=given, pool=pool)
            async with Client(target, revision=front) as client:
                scene.sent.clear()
                assert text(await client.call_tool("whoami")) == "the gateway"
            await pool.close()
        sent = [each for each in scene.sent if "traceparent" in each]
        assert len(sent) == 1 and {name: sent[0][name] for name in ("traceparent", "tracestate")} == {
            name: given[name] for name in ("traceparent", "tracestate")
        }
        assert {name for each in scene.sent for name in each if name.startswith("x-") or name == "cookie"} == expected
        assert {each["authorization"] for each in scene.sent} == {f"Bearer {kind.secret}"}


@pytest.mark.covers("GW-5.16")
def test_some_headers_are_never_forwarded() -> None:
    gateway = Gateway("front", secret=SECRET)
    for name in (
        "Authorization",
        "cookie",
        "Proxy-Authorization",
        "DPoP",
        "Mcp-Session-Id",
        "host",
        "x-api-key",
        "x_api_key",
    ):
        with pytest.raises(ServerError, match="it is for this server alone"):
            gateway.add("a", "https://back.example/mcp", forward_headers=[name])
    for wrong in ("a b", "", "x:y", 7):
        with pytest.raises(ServerError, match="names of headers"):
            gateway.add("a", "https://back.example/mcp", forward_headers=[wrong])  # type: ignore[list-item]


# --- commands ---


COMMAND = """
import os
from toolwire import Server

server = Server("child")

@server.tool
async def whoami() -> str:
    return f"{os.environ.get('ACCOUNT', 'nobody')} {os.getpid()}"

server.run()
"""


@pytest.mark.covers("GW-5.3", "GW-5.18")
async def test_a_command_has_a_process_for_each_account(scene: Scene, tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(COMMAND)
    auth = ResourceServer(scene.entrance_verify, authorization_servers=[scene.entrance.url])
    gateway = Gateway("front", auth=auth, secret=SECRET)
    gateway.add(
        "b",
        [sys.executable, str(script)],
        prefix="",
        revision="2025-11-25",  # A server that keeps state for its client.
        credentials=UserSecret(),
        credential_variable="ACCOUNT",
    )
    for user in ("alice", "bob"):
        await gateway.vault.store(
            "b",
            Owner.from_principal(Principal(user, scene.entrance.url)),
            f"{user}-secret",
            identity=gateway.vault.identity("b"),
        )
    scene.app = gateway.http_app(public_url=PUBLIC)
    seen: dict[str, set[str]] = {}
    async with scene.client("alice", MODERN) as alice, scene.client("bob", MODERN) as bob:
        calls = [each.call_tool("whoami") for _ in range(5) for each in (alice, bob)]
        found = [text(each).split(" ") for each in await asyncio.gather(*calls)]
        assert [each[0] for each in found] == ["alice-secret", "bob-secret"] * 5
        for secret, process in found:
            seen.setdefault(secret, set()).add(process)
        assert not seen["alice-secret"] & seen["bob-secret"], "no process has seen two accounts"
        # Another secret is another process.
        await gateway.vault.store(
            "b",
            Owner.from_principal(Principal("alice", scene.entrance.url)),
            "new-secret",
            identity=gateway.vault.identity("b"),
        )
        secret, process = text(await alice.call_tool("whoami")).split(" ")
        assert secret == "new-secret" and process not in seen["alice-secret"]
    await scene.app.stop()


@pytest.mark.covers("GW-5.6")
async def test_a_secret_for_one_server_is_not_sent_to_another_that_has_its_name() -> None:
    gateway = Gateway("front", secret=SECRET)
    owner = Owner.from_principal(Principal("alice", "https://entrance.example"))

    def use(url: str) -> None:
        if "b" in gateway.backs:
            gateway.remove("b")
        gateway.add("b", url, credentials=UserSecret())

    use("https://back.example/mcp")
    await gateway.vault.store("b", owner, "a-secret", identity=gateway.vault.identity("b"))
    use("https://back.example/another-path")
    assert (await gateway.vault.obtain("b", Asker(owner))).token == "a-secret"
    use("https://elsewhere.example/mcp")
    with pytest.raises(NotConnected):
        await gateway.vault.obtain("b", Asker(owner))


# --- settings ---


def test_settings_that_do_not_fit_are_refused() -> None:
    gateway = Gateway("front", secret=SECRET)
    url = "https://back.example/mcp"
    for target, variable in ((Server("a"), None), (Server("a"), "TOKEN"), (["command"], None), (url, "TOKEN")):
        with pytest.raises(ServerError, match="for a URL, or for a command"):
            gateway.add("a", target, credentials=UserSecret(), credential_variable=variable)
    with pytest.raises(ServerError, match="no name of an environment variable"):
        gateway.add("a", ["command"], credentials=UserSecret(), credential_variable="A=B")
    with pytest.raises(ServerError, match="auth= or credentials="):
        gateway.add("a", url, auth="token", credentials=UserSecret())
    with pytest.raises(ServerError, match="list_credentials="):
        gateway.add("a", url, credentials=StaticSecret("x"), list_credentials=StaticSecret("y"))
    with pytest.raises(ServerError, match="list_credentials="):
        gateway.add("a", url, credentials=UserSecret(), list_credentials=UserSecret())
    kind = UserOAuth("https://login.example")
    gateway.add("a", url, credentials=kind)
    assert kind.resource is None and gateway.vault.kind("a").resource == url  # type: ignore[union-attr]
    gateway.remove("a")
    gateway.add("a", url, credentials=UserOAuth())
