"""A server whose tool uses the accounts of its callers, the callers, their browsers, and the two providers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from itertools import count
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.auth.issuing import Clock
from tests.auth.stand_in import AuthorizationServer, Reply, Request
from tests.auth.test_proxy import Google
from tests.auth.test_proxy import World as ProxyWorld
from tests.http.httpclient import Answer, HttpClient

from toolwire import Client, Depends, Server
from toolwire.auth import ApiKeys, OAuthProxy, Principal, ResourceServer, Upstream, UserOAuth, credential
from toolwire.client.handlers import Elicitation
from toolwire.client.http_target import HttpTarget
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.pool import HttpPool
from toolwire.stores import Stores

PUBLIC = "https://api.example.org"
SECRET = "a secret of at least sixteen bytes"
#: The ways in which callers, and their browsers, prove who they are.
FRONTS = ("keys", "server", "proxy")


class Accounts(AuthorizationServer):
    """A provider with several users. The browser says in a header who sits there."""

    def __init__(self, first: int = 1) -> None:
        """The first number in the names of tokens tells those of two providers apart."""
        super().__init__()
        self._number = count(first)
        self.users: dict[str, str] = {}
        """The user of each code, access token and refresh token."""
        self.denies = False

    def _authorize(self, request: Request) -> Reply:
        if self.denies:
            query = urlencode({"error": "access_denied", "state": request.query["state"]})
            return Reply(302, headers={"location": f"{request.query['redirect_uri']}?{query}"})
        reply = super()._authorize(request)
        self.users[list(self.codes)[-1]] = request.headers["x-user"]
        return reply

    def _token(self, request: Request) -> Reply:
        form = request.form
        user = self.users.get(form.get("code") or form.get("refresh_token") or "", "nobody")
        reply = super()._token(request)
        if reply.status == 200:
            for name in ("access_token", "refresh_token"):
                self.users[reply.document[name]] = user
        return reply

    def token_of(self, user: str) -> str:
        """Return an access token of a user, as a client of ours would get it."""
        token: str = self.issue("")["access_token"]
        self.users[token] = user
        return token

    async def verify(self, token: str) -> Principal | None:
        return Principal(self.users[token], self.url) if token in self.valid else None


class Browser:
    """A browser in front of which somebody sits."""

    def __init__(self, world: World, user: str) -> None:
        self.world = world
        self.user = user
        self.account = user
        """The user at the other service, where several people share a browser."""
        self.cookies: dict[str, str] = {}
        self.visited: list[str] = []

    async def open(self, url: str, form: Mapping[str, str] | None = None) -> Answer:
        """Open an address, and follow all redirects."""
        for _ in range(10):
            self.visited.append(url)
            if url.startswith("https://google.example"):
                url, form = self.world.google.sign_in(url, self.user), None
                continue
            if not url.startswith(PUBLIC):
                url, form = await self._elsewhere(url), None
                continue
            answer = await self._here(url, form)
            if "location" not in answer.headers:
                return answer
            url, form = answer.headers["location"], None
        raise AssertionError("it redirects for ever")

    async def _elsewhere(self, url: str) -> str:
        who = self.account if url.startswith(self.world.login.url) else self.user
        async with (
            HttpPool() as pool,
            await pool.request("GET", url, headers={"x-user": who}, redirects=0) as response,
        ):
            location = response.header("location")
        assert location is not None, url
        return location

    async def _here(self, url: str, form: Mapping[str, str] | None) -> Answer:
        parts = urlsplit(url)
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"host": "api.example.org", **({"cookie": cookie} if cookie else {})}
        client = HttpClient(self.world.app, path=parts.path, headers=headers)
        body = b"" if form is None else urlencode(form).encode()
        method = "GET" if form is None else "POST"
        answer = await client.start(method, body=body, query=parts.query, server=("10.0.0.1", 443)).finished()
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def submit(self, page: Answer, url: str, **entered: str) -> Answer:
        """Submit the form of a page."""
        found = re.search(r'name="page" value="([^"]*)"', page.body.decode())
        assert found is not None, page.body
        return await self.open(url, {"page": unescape(found[1]), **entered})

    async def connect(self, link: str, **entered: str) -> Answer:
        """Open a link, and do everything that the pages ask for."""
        page = await self.open(link)
        if page.status != 200:
            return page
        key = {"key": f"the-key-of-{self.user}-0123456789"} if self.world.front == "keys" else {}
        page = await self.submit(page, link, **key)
        return await self.submit(page, link, **entered) if entered and page.status == 200 else page


class World:
    """The scene."""

    def __init__(self, front: str, login: Accounts, entrance: Accounts, google: Google) -> None:
        self.front, self.login, self.entrance, self.google = front, login, entrance, google
        self.app: Any = None
        self.clock = Clock()
        self.links: list[str] = []
        """The addresses that users were asked to open."""
        self.tokens: dict[str, str] = {}

    def auth(self, **options: Any) -> Any:
        if self.front == "keys":
            return ApiKeys({f"the-key-of-{user}-0123456789": user for user in ("alice", "bob")})
        if self.front == "server":
            return ResourceServer(self.entrance.verify, authorization_servers=[self.entrance.url], **options)
        upstream = Upstream(
            authorize_url="https://google.example/authorize",
            token_url="https://google.example/token",
            client_id="our-client",
            client_secret="our-secret",
            fetch=self.google.fetch,
        )
        return OAuthProxy(self.google, upstream, scopes=["openid"], **options)

    def server(self, stores: Stores | None = None, **options: Any) -> Server:
        kinds = {"github": UserOAuth(self.login.url, client_id="us", client_secret="our-secret", scopes=["repo"])}
        server = Server("almanac", auth=self.auth(), secret=SECRET, stores=stores, **{"credentials": kinds, **options})

        @server.tool
        async def account(token: str = Depends(credential("github"))) -> str:
            return self.login.users.get(token, token)

        return server

    async def token(self, user: str) -> str:
        """Return the token, or the key, with which the client of a user comes."""
        if user not in self.tokens:
            if self.front == "keys":
                self.tokens[user] = f"the-key-of-{user}-0123456789"
            elif self.front == "server":
                self.tokens[user] = self.entrance.token_of(user)
            else:
                self.tokens[user] = await self._proxy_token(user)
        return self.tokens[user]

    async def _proxy_token(self, user: str) -> str:
        proxy = ProxyWorld(self.google, self.app, self.clock)
        sign_in = self.google.sign_in
        self.google.sign_in = lambda url, who=user: sign_in(url, who)  # type: ignore[method-assign]
        client = await proxy.register()
        answer = await proxy.token(client, await proxy.code(client))
        self.google.sign_in = sign_in  # type: ignore[method-assign]
        token: str = answer.json()["access_token"]
        return token

    @asynccontextmanager
    async def client(
        self, user: str, revision: str, browser: Browser | None = None, app: Any = None, form: str | None = None
    ) -> AsyncIterator[Client]:
        """Yield a client of a user. With a browser, it opens the addresses that it is asked to open.

        `form` is what it answers to a question for a text.
        """

        async def opened(message: str, params: Any) -> bool:
            self.links.append(params.url)
            if browser is not None:
                await browser.connect(params.url)
            return True

        pool = AsgiPool(app or self.app)
        target = HttpTarget(f"{PUBLIC}/mcp", auth=await self.token(user), pool=pool)
        elicit = None if browser is None else Elicitation(url=opened)
        if form is not None:
            elicit = Elicitation(form=lambda message, params: {"value": form})
        async with Client(target, revision=revision, elicit=elicit) as client:
            yield client
        await pool.close()


@asynccontextmanager
async def world(front: str = "keys", **options: Any) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        login = await stack.enter_async_context(Accounts())
        entrance = await stack.enter_async_context(Accounts(10_001))
        made = World(front, login, entrance, Google())
        made.app = made.server(**options).http_app(public_url=PUBLIC)
        stack.push_async_callback(made.app.stop)
        yield made
