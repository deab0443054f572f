"""The OAuth proxy, from registration to refresh, as a client, its user's browser and an attacker see it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from tests.auth.issuing import Clock
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient
from tests.http.modernclient import ModernClient, text_of

from toolwire import Context, Server
from toolwire.auth import OAuthProxy, Principal, Upstream, github
from toolwire.auth.browser import digest
from toolwire.auth.verify.fetch import ProviderAnswer as Fetched
from toolwire.auth.verify.provider_limits import IN_VAIN
from toolwire.auth.verify.verifier import Unavailable
from toolwire.protocol.errors import ServerError
from toolwire.sealing_aes import AesSealer
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores
from toolwire.wire.shares import StorageBudget

PUBLIC = "https://api.example.org"
REDIRECT = "http://127.0.0.1:7777/callback"
VERIFIER = "a-code-verifier-of-at-least-forty-three-characters"
SECRET = "a secret of at least sixteen bytes"


class Google:
    """A provider: hands out codes for tokens, once each."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, Principal] = {}
        self.asked: list[dict[str, str]] = []
        self.down = False
        self.verifies = True
        self.lifetime: Any = 3600
        self.refreshes = True
        self.refreshed_user = ""
        self.token_length = 0

    def sign_in(self, url: str, user: str = "alice") -> str:
        """The user signs in; the address that the browser is sent back to."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"google-code-{len(self.codes)}"
        self.codes[code] = {"user": user, **asked}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    async def fetch(self, method: str, url: str, *, form: dict[str, str], **_: Any) -> Fetched:
        self.asked.append(form)
        if self.down:
            raise Unavailable("down")
        assert (form["client_id"], form["client_secret"]) == ("our-client", "our-secret")
        if form["grant_type"] == "authorization_code":
            found = self.codes.pop(form["code"], None)
            if found is None or found["code_challenge"] != digest(form["code_verifier"]):
                return Fetched(200, {}, b'{"error": "bad_verification_code"}')
            user, scopes = found["user"], found["scope"].split()
        else:
            _, user, *scopes = form["refresh_token"].split("|")
            user = self.refreshed_user or user
        token = f"google-access-{len(self.tokens)}".ljust(self.token_length, "x")
        # More than was asked for: what the same user granted to our client before.
        self.tokens[token] = Principal(user, "https://google", scopes=frozenset({*scopes, "granted-before"}))
        answer: dict[str, Any] = {"access_token": token, "expires_in": self.lifetime}
        if self.refreshes:
            answer["refresh_token"] = "|".join(["google-refresh", user, *scopes])
        return Fetched(200, {}, json.dumps(answer).encode())

    async def verify(self, token: str) -> Principal | None:
        if not self.verifies:
            raise Unavailable("down")
        return self.tokens.get(token)


class World:
    """A server behind its proxy, a provider, a client and a browser."""

    def __init__(self, google: Google, app: Any, clock: Clock) -> None:
        self.google, self.app, self.clock = google, app, clock
        self.cookies: dict[str, str] = {}
        self.address = "127.0.0.1"

    async def fetch(self, method: str, path: str, form: Mapping[str, str] | bytes = b"", **headers: str) -> Answer:
        path, _, query = path.removeprefix(PUBLIC).partition("?")
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        client = HttpClient(self.app, path=path, headers={"host": "api.example.org", **headers})
        sent = client.start(method, body=body, query=query, server=("10.0.0.1", 443), client=(self.address, 50000))
        return await sent.finished()

    async def browse(self, method: str, path: str, form: Mapping[str, str] | None = None) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self.fetch(method, path, form or b"", **({"cookie": cookie} if cookie else {}))
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def register(self, **metadata: Any) -> str:
        given = {"redirect_uris": [REDIRECT], "client_name": "Editor", **metadata}
        answer = await self.fetch("POST", "/oauth/register", json.dumps(given).encode())
        assert answer.status == 201, answer.body
        client_id: str = answer.json()["client_id"]
        return client_id

    def request(self, client_id: str, **changes: str | None) -> str:
        asked = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": REDIRECT,
            "state": "the client's state",
            "code_challenge": digest(VERIFIER),
            "code_challenge_method": "S256",
            "scope": "read",
            "resource": f"{PUBLIC}/mcp",
            **changes,
        }
        return "/oauth/authorize?" + urlencode({name: value for name, value in asked.items() if value is not None})

    async def consent(self, client_id: str, decision: str = "allow", **changes: str | None) -> Answer:
        page = await self.browse("GET", self.request(client_id, **changes))
        assert page.status == 200, page.body
        return await self.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": decision})

    async def code(self, client_id: str, **changes: str | None) -> str:
        """Everything up to the code that the client is sent."""
        sent = await self.consent(client_id, **changes)
        assert sent.status == 303, sent.body
        back = await self.browse("GET", self.google.sign_in(sent.headers["location"]))
        answer = arrived(back)
        assert answer["state"] == "the client's state"
        assert answer["iss"] == PUBLIC
        return answer["code"]

    async def token(self, client_id: str, code: str, /, **changes: str) -> Answer:
        form = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
            "resource": f"{PUBLIC}/mcp",
            **changes,
        }
        return await self.fetch("POST", "/oauth/token", form)

    async def refresh(self, client_id: str, token: str) -> Answer:
        form = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": token}
        return await self.fetch("POST", "/oauth/token", form)

    async def call(self, token: str) -> Answer:
        headers = {"host": "api.example.org", "authorization": f"Bearer {token}"}
        return await ModernClient(self.app, headers=headers).call("whoami", server=("10.0.0.1", 443))


def hidden(page: Answer) -> str:
    found = re.search(r'name="request" value="([^"]*)"', page.body.decode())
    assert found is not None
    return unescape(found[1])


def arrived(answer: Answer) -> dict[str, str]:
    """What the client is sent through the browser."""
    assert answer.status == 302, answer.body
    location = answer.headers["location"]
    assert location.startswith(REDIRECT + "?")
    return dict(parse_qsl(urlsplit(location).query))


def make_app(
    google: Google,
    clock: Callable[[], float],
    *,
    secret: str = SECRET,
    stores: Stores | None = None,
    path: str = "/mcp",
    upstream: Mapping[str, str] | None = None,
    public_url: str = PUBLIC,
    **options: Any,
) -> Any:
    given: dict[str, Any] = {
        "authorize_url": "https://google.example/authorize",
        "token_url": "https://google.example/token",
        "client_id": "our-client",
        **(upstream or {}),
    }
    provider = Upstream(client_secret="our-secret", parameters={"access_type": "offline"}, fetch=google.fetch, **given)
    proxy = OAuthProxy(google, provider, scopes=["openid"], clock=clock, **options)
    server = Server("almanac", auth=proxy, secret=secret, stores=stores)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return f"{ctx.principal.subject} {' '.join(sorted(ctx.principal.scopes))}"

    return server.http_app(path=path, public_url=public_url)


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    google, clock = Google(), Clock()
    app = make_app(google, clock, **options)
    try:
        yield World(google, app, clock)
    finally:
        await app.stop()


# --- the way it should go ---


async def test_from_the_challenge_to_the_call_and_the_refresh() -> None:
    async with world() as w:
        refused = await w.call("nothing")
        assert refused.status == 401
        metadata_url = re.search(r'resource_metadata="([^"]*)"', refused.headers["www-authenticate"])
        assert metadata_url is not None
        resource = (await w.fetch("GET", metadata_url[1])).json()
        assert resource["resource"] == f"{PUBLIC}/mcp"
        assert resource["authorization_servers"] == [PUBLIC]
        for path in ("oauth-authorization-server", "openid-configuration"):
            metadata = (await w.fetch("GET", f"/.well-known/{path}")).json()
            assert metadata["issuer"] == PUBLIC
            assert metadata["code_challenge_methods_supported"] == ["S256"]
            assert metadata["authorization_response_iss_parameter_supported"] is True
        client = await w.register()
        first = (await w.token(client, await w.code(client))).json()
        assert (first["token_type"], first["expires_in"]) == ("Bearer", 3600)
        assert first["scope"] == "openid read"
        # Not what the user had granted to our client at other times.
        assert text_of((await w.call(first["access_token"])).json()) == "alice openid read"
        second = (await w.refresh(client, first["refresh_token"])).json()
        assert text_of((await w.call(second["access_token"])).json()) == "alice openid read"
        assert second["refresh_token"] != first["refresh_token"]


async def test_nothing_is_stored_and_any_replica_serves() -> None:
    """Each step at another process, none of which shares anything with the others but the secret."""
    async with world() as w:
        apps = [make_app(w.google, w.clock) for _ in range(4)]
        try:
            steps = iter(apps)
            client = await w.register()
            w.app = next(steps)
            page = await w.browse("GET", w.request(client))
            w.app = next(steps)
            sent = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
            w.app = next(steps)
            code = arrived(await w.browse("GET", w.google.sign_in(sent.headers["location"])))["code"]
            w.app = next(steps)
            token = (await w.token(client, code)).json()["access_token"]
            for app in apps:
                w.app = app
                assert (await w.call(token)).status == 200
        finally:
            for app in apps:
                await app.stop()


async def test_after_the_secret_changed_nothing_opens() -> None:
    async with world() as w:
        client = await w.register()
        token = (await w.token(client, await w.code(client))).json()["access_token"]
        w.app = other = make_app(w.google, w.clock, secret="another secret of some length")
        try:
            assert (await w.call(token)).status == 401
            assert (await w.browse("GET", w.request(client))).status == 400
        finally:
            await other.stop()


@pytest.mark.parametrize(
    "changed",
    [
        {"token_url": "https://other.example/token"},
        {"authorize_url": "https://other.example/authorize"},
        {"client_id": "other-client"},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_nothing_of_the_old_provider_is_sent_to_a_new_one(changed: dict[str, str]) -> None:
    async with world() as w:
        client = await w.register()
        tokens = (await w.token(client, await w.code(client))).json()
        code = await w.code(client)
        page = await w.browse("GET", w.request(client))
        state = (await w.consent(client)).headers["location"]
        w.google.asked.clear()
        w.app = other = make_app(w.google, w.clock, upstream=changed)
        try:
            assert (await w.call(tokens["access_token"])).status == 401
            for answer in (await w.token(client, code), await w.refresh(client, tokens["refresh_token"])):
                assert (answer.status, answer.json()["error"]) == (400, "invalid_grant")
            consented = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
            assert (await w.browse("GET", w.google.sign_in(state))).status == consented.status == 400
            assert w.google.asked == []
            assert (await w.consent(client)).status == 303, "the registration stays, and users sign in again"
        finally:
            await other.stop()


async def test_token_for_one_endpoint_opens_no_other_endpoint_of_the_same_origin() -> None:
    async with world() as w:
        own = w.app
        client = await w.register()
        code = await w.code(client)
        tokens = (await w.token(client, await w.code(client))).json()
        w.app = other = make_app(w.google, w.clock, path="/admin")
        try:
            headers = {"host": "api.example.org", "authorization": f"Bearer {tokens['access_token']}"}
            beside = ModernClient(other, path="/admin", headers=headers)
            assert (await beside.call("whoami", server=("10.0.0.1", 443))).status == 401
            refused = [
                await w.refresh(client, tokens["refresh_token"]),
                await w.token(client, code, resource=f"{PUBLIC}/admin"),
            ]
            assert [(each.status, each.json()["error"]) for each in refused] == [(400, "invalid_grant")] * 2
            page = await w.browse("GET", w.request(client, resource=f"{PUBLIC}/admin"))
            assert page.status == 200  # A client registers once at an origin.
            w.app = own
            assert (await w.call(tokens["access_token"])).status == 200
            assert (await w.refresh(client, tokens["refresh_token"])).status == 200
            assert (await w.token(client, code)).status == 200
        finally:
            await other.stop()


async def test_what_is_handed_out_is_encrypted() -> None:
    async with world() as w:
        client = await w.register(client_name="Readable")
        page = await w.browse("GET", w.request(client))
        sent = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
        state = dict(parse_qsl(urlsplit(sent.headers["location"]).query))["state"]
        code = arrived(await w.browse("GET", w.google.sign_in(sent.headers["location"])))["code"]
        tokens = (await w.token(client, code)).json()
        for value in (client, state, code, tokens["access_token"], tokens["refresh_token"]):
            data = base64.urlsafe_b64decode(value.rpartition(".")[2] + "==")
            for secret in (b"google", b"Readable", b"127.0.0.1", b"alice", b"the client"):
                assert secret not in data


async def test_without_encryption_there_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolwire import sealing_aes

    monkeypatch.setattr(sealing_aes, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match="toolwire\\[auth\\]"):
        make_app(Google(), Clock())
    assert AesSealer.confidential


def test_it_needs_a_public_address() -> None:
    upstream = Upstream(authorize_url="https://a/x", token_url="https://a/y", client_id="c", client_secret="s")
    server = Server("s", auth=OAuthProxy(Google(), upstream), secret=SECRET)
    with pytest.raises(ServerError, match="public_url"):
        server.http_app()
    with pytest.raises(ServerError, match="https"):
        server.http_app(public_url="http://api.example.org")


@pytest.mark.parametrize(("secret", "warned"), [(SECRET, False), (None, True)])
def test_it_says_when_nothing_will_outlive_the_process(
    secret: str | None, warned: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLWIRE_SECRET", raising=False)
    upstream = Upstream(authorize_url="https://a/x", token_url="https://a/y", client_id="c", client_secret="s")
    Server("s", auth=OAuthProxy(Google(), upstream), secret=secret).http_app(public_url=PUBLIC)
    assert ("every user has to sign in again: this server has no secret" in caplog.text) == warned


# --- the consent page ---


async def test_the_page_says_who_asks_and_where_the_answer_goes() -> None:
    async with world() as w:
        client = await w.register(client_name="<script>alert(1)</script>")
        page = await w.browse("GET", w.request(client, scope='read "><b>'))
        text = page.body.decode()
        assert "<script>" not in text and "<b>" not in text
        assert "&lt;script&gt;" in text
        assert "127.0.0.1:7777" in text
        assert "your own computer" in text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-frame-options"] == "DENY"
        cookie = page.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert all(part in cookie for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"))
        remote = await w.register(redirect_uris=["https://editor.example/cb"])
        page = await w.browse("GET", w.request(remote, redirect_uri="https://editor.example/cb"))
        assert b"your own computer" not in page.body
        assert b"editor.example" in page.body


async def test_the_user_may_say_no() -> None:
    async with world() as w:
        client = await w.register()
        for decision in ("deny", "", "ALLOW"):
            assert arrived(await w.consent(client, decision))["error"] == "access_denied"


@cases("cookies", [{}, {"__Host-toolwire-sign-in": "another-" * 5 + "one"}, {"toolwire-sign-in": "same"}])
async def test_a_page_of_another_browser(cookies: dict[str, str]) -> None:
    async with world() as w:
        client = await w.register()
        page = await w.browse("GET", w.request(client))
        own = dict(w.cookies)
        w.cookies = {
            name: own["__Host-toolwire-sign-in"] if value == "same" else value for name, value in cookies.items()
        }
        forged = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
        assert forged.status == 400
        # Nor can a sign-in that was begun here be finished there.
        w.cookies = own
        sent = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
        w.cookies = {}
        assert (await w.browse("GET", w.google.sign_in(sent.headers["location"]))).status == 400


async def test_a_browser_may_sign_in_twice_at_once() -> None:
    async with world() as w:
        editor, chat = await w.register(), await w.register(client_name="Chat")
        pages = [await w.browse("GET", w.request(client)) for client in (editor, chat)]
        sent = [
            await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"}) for page in pages
        ]
        await w.browse("GET", w.request(chat))
        for client, each in zip((editor, chat), sent, strict=True):
            back = await w.browse("GET", w.google.sign_in(each.headers["location"]))
            assert (await w.token(client, arrived(back)["code"])).status == 200


@cases("value", ["", "short", "x" * 44, "x" * 42 + "\x00", "x" * 42 + ","])
async def test_a_cookie_that_is_none_of_ours_is_not_kept(value: str) -> None:
    async with world() as w:
        client = await w.register()
        w.cookies = {"__Host-toolwire-sign-in": value}
        await w.browse("GET", w.request(client))
        assert len(w.cookies["__Host-toolwire-sign-in"]) == 43
        assert value not in w.cookies.values()


@pytest.mark.covers("GW-5.20")
async def test_consent_cannot_be_skipped() -> None:
    async with world() as w:
        client = await w.register()
        page = await w.browse("GET", w.request(client))
        # The request that the page holds is not yet the state that the provider is sent.
        answer = await w.browse("GET", f"/oauth/callback?{urlencode({'code': 'x', 'state': hidden(page)})}")
        assert answer.status == 400
        sent = await w.browse("POST", "/oauth/authorize", {"request": hidden(page), "decision": "allow"})
        state = dict(parse_qsl(urlsplit(sent.headers["location"]).query))["state"]
        again = await w.browse("POST", "/oauth/authorize", {"request": state, "decision": "allow"})
        assert again.status == 400


async def test_consent_page_checks_host_and_origin() -> None:
    async with world() as w:
        client = await w.register()
        page = await w.browse("GET", w.request(client))
        cookie = "; ".join(f"{name}={value}" for name, value in w.cookies.items())
        form = {"request": hidden(page), "decision": "allow"}
        for origin in ("https://evil.example", "null"):
            refused = await w.fetch("POST", "/oauth/authorize", form, cookie=cookie, origin=origin)
            assert (refused.status, "location" in refused.headers) == (403, False)
        rebound = await w.fetch("GET", w.request(client), host="evil.example")
        assert (rebound.status, "set-cookie" in rebound.headers) == (421, False)
        agreed = await w.fetch("POST", "/oauth/authorize", form, cookie=cookie, origin=PUBLIC)
        assert agreed.status == 303
        # Programs in pages of any origin register and get tokens.
        metadata = json.dumps({"redirect_uris": [REDIRECT]}).encode()
        assert (await w.fetch("POST", "/oauth/register", metadata, origin="https://other.example")).status == 201


async def test_a_state_is_good_once_and_for_ten_minutes() -> None:
    async with world() as w:
        client = await w.register()
        sent = (await w.consent(client)).headers["location"]
        first, second = [arrived(await w.browse("GET", w.google.sign_in(sent)))["code"] for _ in range(2)]
        assert (await w.token(client, first)).status == 200
        assert (await w.token(client, second)).json()["error"] == "invalid_grant"
        late = w.google.sign_in((await w.consent(client)).headers["location"])
        w.clock.now += 601
        assert (await w.browse("GET", late)).status == 400


@cases(
    ("answer", "error"),
    [({"error": "access_denied"}, "access_denied"), ({"error": "x"}, "server_error"), ({}, "server_error")],
)
async def test_the_provider_says_no(answer: dict[str, str], error: str) -> None:
    async with world() as w:
        client = await w.register()
        asked = dict(parse_qsl(urlsplit((await w.consent(client)).headers["location"]).query))
        back = await w.browse("GET", f"/oauth/callback?{urlencode({**answer, 'state': asked['state']})}")
        assert arrived(back)["error"] == error


async def test_pkce_towards_the_provider() -> None:
    async with world() as w:
        client = await w.register()
        asked = dict(parse_qsl(urlsplit((await w.consent(client)).headers["location"]).query))
        assert asked["code_challenge_method"] == "S256"
        assert asked["code_challenge"] != digest(VERIFIER)
        assert asked["redirect_uri"] == f"{PUBLIC}/oauth/callback"
        assert asked["access_type"] == "offline"
        assert "resource" not in asked


# --- clients ---


@cases(
    "uris",
    [
        [],
        "http://127.0.0.1/cb",
        ["http://evil.example/cb"],
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["cursor://cb"],
        ["https://user@host/cb"],
        ["https://h/cb#fragment"],
        ["https://h/cb#"],
        ["https://h/c b"],
        ["https://h/cb\r\nX-Evil: 1"],
        ["https:///cb"],
        ["https://h:99999/cb"],
        [5],
        ["https://h/" + "x" * 2000],
        ["https://h/cb"] * 11,
    ],
)
async def test_redirects_that_nobody_may_register(uris: Any) -> None:
    async with world() as w:
        answer = await w.fetch("POST", "/oauth/register", json.dumps({"redirect_uris": uris}).encode())
        assert answer.status == 400
        assert answer.json()["error"] in ("invalid_redirect_uri", "invalid_client_metadata")


@cases("body", [b"", b"[]", b"{", b"[" * 10_000, b"\xff"])
async def test_a_registration_that_is_no_object(body: bytes) -> None:
    async with world() as w:
        assert (await w.fetch("POST", "/oauth/register", body)).status == 400


async def test_private_schemes_are_said_aloud() -> None:
    async with world(redirect_schemes=["cursor"]) as w:
        await w.register(redirect_uris=["cursor://anysphere/cb"])
    with pytest.raises(ServerError, match="private"):
        make_app(Google(), Clock(), redirect_schemes=["javascript"])


@cases(
    "redirect",
    [
        "http://127.0.0.1:7777/other",
        "http://127.0.0.1:7777/callback/",
        "http://127.0.0.1:7777/callback?x=1",
        "http://127.0.0.1@evil.example/callback",
        "http://localhost:7777/callback",
        "http://user@127.0.0.1:7777/callback",
        "http://127.0.0.1:7777/callback#",
        "http://127.0.0.1:77\r\n77/callback",
        " http://127.0.0.1:7777/callback",
        "https://127.0.0.1:7777/callback",
        "http://evil.example/callback",
        "",
    ],
)
async def test_the_answer_goes_only_where_it_was_registered(redirect: str) -> None:
    async with world() as w:
        client = await w.register()
        answer = await w.browse("GET", w.request(client, redirect_uri=redirect))
        assert answer.status == 400
        assert "location" not in answer.headers


@cases(
    "redirect",
    ["http://user@127.0.0.1:7777/callback", "http://127.0.0.1:7777/callback#fragment", "http://localhost/callback"],
)
async def test_the_machine_of_the_user_is_not_for_clients_elsewhere(redirect: str) -> None:
    async with world() as w:
        client = await w.register(redirect_uris=["https://editor.example/cb"])
        assert (await w.browse("GET", w.request(client, redirect_uri=redirect))).status == 400


async def test_a_native_client_takes_any_port() -> None:
    async with world() as w:
        client = await w.register()
        assert (await w.browse("GET", w.request(client, redirect_uri="http://127.0.0.1:9/callback"))).status == 200


@cases(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"scope": " ".join(map(str, range(51)))}, "invalid_scope"),
    ],
)
async def test_a_bad_request_sends_nobody_to_a_client_that_registered_itself(
    changes: dict[str, str | None], error: str
) -> None:
    async with world() as w:
        client = await w.register(redirect_uris=["https://evil.example/cb"])
        answer = await w.browse("GET", w.request(client, redirect_uri="https://evil.example/cb", **changes))
        assert answer.status == 400
        assert "location" not in answer.headers
        assert error in answer.body.decode()
        assert "evil.example" not in answer.body.decode()


@cases("path", ["", "?client_id=x&client_id=y", "?client_id=x"])
async def test_requests_of_nobody(path: str) -> None:
    async with world() as w:
        assert (await w.browse("GET", f"/oauth/authorize{path}")).status == 400


async def test_a_client_may_be_known_by_its_metadata_document() -> None:
    url = "https://editor.example/client.json"
    documents: dict[str, Any] = {url: {"client_id": url, "client_name": "Editor", "redirect_uris": [REDIRECT]}}
    fetched: list[str] = []

    async def fetch(address: str) -> Fetched:
        fetched.append(address)
        return Fetched(200, {}, json.dumps(documents[address]).encode())

    async with world(fetch_metadata=fetch) as w:
        assert (await w.token(url, await w.code(url))).status == 200
        assert fetched == [url]
        documents["https://evil.example/client.json"] = documents[url]
        for wrong in ("https://evil.example/client.json", "https://editor.example/", "https://editor.example/a#b"):
            assert (await w.browse("GET", w.request(wrong))).status == 400


async def test_metadata_documents_are_not_fetched_from_inside() -> None:
    async with world() as w:
        for url in ("https://127.0.0.1/client.json", "https://169.254.169.254/latest/meta-data", "https://[::1]/c"):
            assert (await w.browse("GET", w.request(url))).status == 400


# --- codes and tokens ---


@cases(
    "changes",
    [
        {"code_verifier": "another-verifier-of-at-least-forty-three-chars"},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:7777/other"},
        {"client_id": "another"},
        {"code": "made-up"},
        {"grant_type": "password"},
        {"resource": "https://other.example/mcp"},
    ],
)
async def test_a_code_in_the_wrong_hands(changes: dict[str, str]) -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        answer = await w.token(client, code, **changes)
        assert answer.status == 400
        assert answer.json()["error"] in ("invalid_grant", "unsupported_grant_type", "invalid_target")
        assert w.google.asked == []


async def test_a_code_of_another_client() -> None:
    async with world() as w:
        one, two = await w.register(), await w.register(client_name="Other")
        assert (await w.token(two, await w.code(one))).status == 400


async def test_a_code_is_good_once_and_for_two_minutes() -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        assert (await w.token(client, code)).status == 200
        assert (await w.token(client, code)).json()["error"] == "invalid_grant"
        late = await w.code(client)
        w.clock.now += 121
        assert (await w.token(client, late)).json()["error"] == "invalid_grant"


async def test_a_code_that_the_provider_does_not_take() -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        w.google.codes.clear()
        assert (await w.token(client, code)).json()["error"] == "invalid_grant"


async def test_what_is_too_long_to_be_handed_out_is_an_error_of_oauth() -> None:
    async with world() as w:
        client = await w.register()
        page = await w.browse("GET", w.request(client, scope="x" * 45_000))
        assert page.status == 400 and b"too long" in page.body
        sent = (await w.consent(client)).headers["location"]
        state = dict(parse_qsl(urlsplit(sent).query))["state"]
        back = await w.browse("GET", f"/oauth/callback?{urlencode({'code': 'x' * 45_000, 'state': state})}")
        assert back.status == 400 and b"too long" in back.body
        code = await w.code(client)
        w.google.token_length = 45_000
        answer = await w.token(client, code)
        assert (answer.status, answer.json()["error"]) == (400, "invalid_grant")
        assert "too long" in answer.json()["error_description"]


async def test_while_the_provider_is_down_nothing_is_used_up() -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        w.google.down = True
        assert (await w.token(client, code)).status == 503
        w.google.down = False
        tokens = await w.token(client, code)
        assert tokens.status == 200
        refresh = tokens.json()["refresh_token"]
        w.google.down = True
        assert (await w.refresh(client, refresh)).status == 503
        w.google.down = False
        assert (await w.refresh(client, refresh)).status == 200
        assert (await w.refresh(client, refresh)).status == 400


async def test_what_the_provider_has_taken_is_used_up() -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        w.google.verifies = False
        assert (await w.token(client, code)).status == 503
        w.google.verifies = True
        assert (await w.token(client, code)).json()["error"] == "invalid_grant"
        held = (await w.token(client, await w.code(client))).json()["refresh_token"]
        w.google.verifies = False
        assert (await w.refresh(client, held)).status == 503
        w.google.verifies = True
        assert (await w.refresh(client, held)).json()["error"] == "invalid_grant"
        assert len(w.google.asked) == 3, "nothing was shown to the provider twice"


async def test_a_refresh_token_is_good_once_and_for_its_client() -> None:
    async with world() as w:
        client, other = await w.register(), await w.register(client_name="Other")
        first = (await w.token(client, await w.code(client))).json()["refresh_token"]
        assert (await w.refresh(other, first)).json()["error"] == "invalid_grant"
        assert (await w.refresh(client, first)).status == 200
        assert (await w.refresh(client, first)).json()["error"] == "invalid_grant"


async def test_tokens_end() -> None:
    async with world() as w:
        client = await w.register()
        w.google.lifetime = 100
        tokens = (await w.token(client, await w.code(client))).json()
        assert tokens["expires_in"] == 100
        w.clock.now += 101
        assert (await w.call(tokens["access_token"])).status == 401
        w.clock.now += 31 * 24 * 3600
        assert (await w.refresh(client, tokens["refresh_token"])).status == 400


async def test_a_provider_whose_tokens_do_not_end() -> None:
    async with world() as w:
        client = await w.register()
        w.google.lifetime, w.google.refreshes = None, False
        first = (await w.token(client, await w.code(client))).json()
        assert first["expires_in"] == 3600
        again = (await w.refresh(client, first["refresh_token"])).json()
        assert text_of((await w.call(again["access_token"])).json()) == "alice openid read"
        # One whose tokens end and that gives no other has none for us to give.
        w.google.lifetime = "600"
        short = (await w.token(client, await w.code(client))).json()
        assert short["expires_in"] == 600
        assert "refresh_token" not in short


async def test_refresh_is_refused_when_provider_answers_with_another_user() -> None:
    async with world() as w:
        client = await w.register()
        first = (await w.token(client, await w.code(client))).json()
        second = (await w.refresh(client, first["refresh_token"])).json()
        w.google.refreshed_user = "bob"
        refused = await w.refresh(client, second["refresh_token"])
        assert (refused.status, refused.json()["error"]) == (400, "invalid_grant")
        assert "access_token" not in refused.json()


async def test_values_of_one_kind_do_not_pass_for_another() -> None:
    async with world() as w:
        client = await w.register()
        code = await w.code(client)
        tokens = (await w.token(client, code)).json()
        for value in (client, code, tokens["refresh_token"]):
            assert (await w.call(value)).status == 401
        for value in (client, tokens["access_token"], code):
            assert (await w.refresh(client, value)).status == 400
        for value in (client, tokens["access_token"], tokens["refresh_token"]):
            assert (await w.token(client, value)).status == 400


async def test_the_provider_s_own_token_is_no_token_here() -> None:
    async with world() as w:
        client = await w.register()
        await w.token(client, await w.code(client))
        (inner,) = w.google.tokens
        assert (await w.call(inner)).status == 401


async def test_a_token_that_the_provider_took_back() -> None:
    async with world() as w:
        client = await w.register()
        token = (await w.token(client, await w.code(client))).json()["access_token"]
        assert (await w.call(token)).status == 200
        w.google.tokens.clear()
        w.clock.now += 61
        assert (await w.call(token)).status == 401


async def test_a_store_that_is_full_is_a_503() -> None:
    async with world(stores=Stores(MemoryKV(max_items=0), MemoryLog(), MemoryBus())) as w:
        client = await w.register()
        answer = await w.token(client, await w.code(client))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


# --- many sign-ins ---


async def test_a_sign_in_that_is_not_finished_leaves_nothing_in_the_store() -> None:
    stores = Stores.memory()
    async with world(stores=stores) as w:
        client = await w.register()
        asked = dict(parse_qsl(urlsplit((await w.consent(client)).headers["location"]).query))
        for answer in ({"error": "access_denied"}, {"error": "x"}, {}, {"code": "made-up"}):
            await w.browse("GET", f"/oauth/callback?{urlencode({**answer, 'state': asked['state']})}")
        assert await stores.kv.keys("toolwire:oauth") == []


async def test_sign_ins_of_one_address_are_limited() -> None:
    async with world() as w:
        client = await w.register()
        page = await w.browse("GET", w.request(client))
        form = {"request": hidden(page), "decision": "allow"}
        answers = [await w.browse("POST", "/oauth/authorize", form) for _ in range(IN_VAIN + 5)]
        assert [each.status for each in answers] == [303] * IN_VAIN + [429] * 5
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert answers[-1].headers["content-type"].startswith("text/html")
        w.address = "203.0.113.9"
        assert (await w.browse("POST", "/oauth/authorize", form)).status == 303


async def test_made_up_codes_of_many_addresses_fill_a_share_of_the_store_alone() -> None:
    async with world(stores=Stores(MemoryKV(max_items=40), MemoryLog(), MemoryBus())) as w:
        client = await w.register()
        held = (await w.token(client, await w.code(client))).json()["refresh_token"]
        answers = []
        for number in range(12):
            w.address = f"203.0.113.{number}"
            sent = (await w.consent(client)).headers["location"]
            w.google.sign_in(sent)
            w.google.codes.clear()
            state = dict(parse_qsl(urlsplit(sent).query))["state"]
            back = await w.browse("GET", f"/oauth/callback?{urlencode({'code': 'made-up', 'state': state})}")
            answers.append(await w.token(client, arrived(back)["code"]))
        assert [each.status for each in answers] == [400] * 9 + [429] * 3
        assert answers[-1].json()["error"] == "temporarily_unavailable"
        assert (await w.refresh(client, held)).status == 200


async def test_refresh_tokens_of_a_sign_in_leave_one_value_in_the_store() -> None:
    stores = Stores.memory()
    async with world(stores=stores) as w:
        client = await w.register()
        held = [(await w.token(client, await w.code(client))).json()["refresh_token"]]
        before = await stores.kv.keys("toolwire:oauth")
        for _ in range(20):
            held.append((await w.refresh(client, held[-1])).json()["refresh_token"])
        kept = await stores.kv.keys("toolwire:oauth")
        assert len([key for key in kept if not key.endswith(":latest")]) == len(before) + 1
        assert len(kept) == len(before) + 2, "the last one is remembered for half a minute"
        # What was not used because the provider was down is good still.
        w.google.down = True
        assert (await w.refresh(client, held[-1])).status == 503
        w.google.down = False
        answers = await asyncio.gather(*(w.refresh(client, held[-1]) for _ in range(5)))
        assert sorted(each.status for each in answers) == [200, 400, 400, 400, 400]
        newest = next(each for each in answers if each.status == 200).json()["refresh_token"]
        assert (await w.refresh(client, newest)).status == 200, "programs that share a sign-in may come at once"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
async def test_reuse_of_a_refresh_token_ends_its_sign_in_and_no_other(length: int, late: bool) -> None:
    """RFC 9700 section 4.14.2. `late`: the token that was used last comes again, after a while."""
    stores = Stores.memory()
    async with world(stores=stores) as w:
        client = await w.register()
        other = (await w.token(client, await w.code(client))).json()["refresh_token"]
        held = [(await w.token(client, await w.code(client))).json()["refresh_token"]]
        for _ in range(length):
            held.append((await w.refresh(client, held[-1])).json()["refresh_token"])
        assert (await w.refresh(client, held[-2])).status == 400, "it may come twice at the same time"
        if late:
            (latest,) = [key for key in await stores.kv.keys("toolwire:oauth") if key.endswith(":latest")]
            await stores.kv.delete(latest)
            assert (await w.refresh(client, held[-2])).json()["error"] == "invalid_grant"
        elif length > 1:
            assert (await w.refresh(client, held[-3])).json()["error"] == "invalid_grant"
        newest = await w.refresh(client, held[-1])
        if late or length > 1:
            assert newest.json()["error"] == "invalid_grant"
        else:
            assert newest.status == 200
        assert (await w.refresh(client, other)).status == 200


async def test_retries_while_the_provider_is_down_take_no_room() -> None:
    async with world() as w:
        marks = w.app.settings.gate._pages[-1]._desk._marks
        marks._budget = StorageBudget(4, 0.5, of=4)
        client = await w.register()
        code = await w.code(client)
        w.google.down = True
        assert {(await w.token(client, code)).status for _ in range(20)} == {503}
        w.google.down = False
        refresh = (await w.token(client, code)).json()["refresh_token"]
        w.google.down = True
        assert {(await w.refresh(client, refresh)).status for _ in range(20)} == {503}
        w.google.down = False
        assert (await w.refresh(client, refresh)).status == 200
        # The marks that stayed count: that of the code, and that of the refresh token.
        assert marks._budget.total == 2


async def test_refresh_tokens_of_one_user_fill_a_share_of_the_store_alone() -> None:
    async with world(stores=Stores(MemoryKV(max_items=40), MemoryLog(), MemoryBus())) as w:
        client, users = await w.register(), ["alice"] * 8 + ["bob"]
        held = []
        for user in users:
            sent = (await w.consent(client)).headers["location"]
            back = arrived(await w.browse("GET", w.google.sign_in(sent, user)))
            held.append((await w.token(client, back["code"])).json()["refresh_token"])
        w.app.settings.gate._pages[-1]._desk._marks._budget = StorageBudget(20, 0.25, of=20)
        statuses = [(await w.refresh(client, each)).status for each in held]
        assert statuses == [200] * 5 + [429] * 3 + [200]


# --- the edges of HTTP ---


async def test_methods_and_pages_of_other_sites() -> None:
    async with world() as w:
        assert (await w.fetch("GET", "/oauth/token")).status == 405
        assert (await w.fetch("DELETE", "/oauth/register")).status == 405
        assert (await w.fetch("POST", "/oauth/callback")).status == 405
        preflight = await w.fetch("OPTIONS", "/oauth/token", origin="https://app.example")
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "MCP-Protocol-Version" in preflight.headers["access-control-allow-headers"]
        assert (await w.fetch("OPTIONS", "/oauth/authorize", origin="https://app.example")).status == 403
        page = await w.browse("GET", w.request(await w.register()))
        assert "access-control-allow-origin" not in page.headers
        assert (await w.fetch("POST", "/oauth/token", b"x" * 70_000)).status == 413
        assert (await w.fetch("POST", "/oauth/token", b"a=1&" * 100)).status == 400


def test_the_presets_make_proxies() -> None:
    proxy = github("id", "secret", proxy=True)
    assert isinstance(proxy, OAuthProxy)
    app = Server("s", auth=proxy, secret=SECRET).http_app(public_url=PUBLIC)
    assert app.authenticates
