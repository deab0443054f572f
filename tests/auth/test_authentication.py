"""The gate of an HTTP application: tokens are shown, challenges answered, metadata found."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.auth.issuing import AUDIENCE, ISSUER, NOW, RSA, Clock, key_set, token
from tests.cases import cases
from tests.http.httpclient import Answer, HttpClient, SessionClient, initialize_request
from tests.http.modernclient import ModernClient, text_of

from toolwire import Context, Server, testing
from toolwire.auth import (
    JWT,
    Anonymous,
    ApiKeys,
    InvalidToken,
    Principal,
    ResourceServer,
    Unavailable,
    authenticate,
    bearer_token,
    github,
)
from toolwire.auth.authentication import Gate
from toolwire.auth.marks import Marks
from toolwire.http import serving as http_server
from toolwire.http.asgi import HttpApp
from toolwire.http.responses import HttpRefusal
from toolwire.protocol.errors import ServerError, Unauthorized
from toolwire.protocol.http import DUPLICATE
from toolwire.stores import MemoryKV
from toolwire.wire.shares import Shares, Taken

ALICE, BOB = "alices-key-123", "bobs-key-4567"
KEYS = ApiKeys({ALICE: Principal("alice", scopes=frozenset({"read"})), BOB: "bob"})
SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": []}
PROTECTED = ResourceServer(KEYS, authorization_servers=[ISSUER], scopes_supported=["read", "offline_access"])


def make_server(**options: Any) -> Server:
    server = Server("almanac", secret="a secret of at least sixteen bytes", **options)

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "nobody" if ctx.principal is None else ctx.principal.subject

    @server.tool
    async def headers(ctx: Context) -> str:
        return " ".join(sorted(ctx.headers))

    return server


@asynccontextmanager
async def application(auth: Any = KEYS, **options: Any) -> AsyncIterator[HttpApp]:
    app: HttpApp = make_server(auth=auth).http_app(**options)
    try:
        yield app
    finally:
        await app.stop()


async def call(app: HttpApp, authorization: str | None = None, tool: str = "whoami", **options: Any) -> Answer:
    headers = {} if authorization is None else {"authorization": authorization}
    return await ModernClient(app, headers=headers).call(tool, **options)


def challenge(answer: Answer) -> dict[str, str]:
    """The parameters of a challenge."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest))
    # Nothing else stands in it.
    assert ", ".join(f'{name}="{value}"' for name, value in found.items()) == rest
    return {"scheme": scheme, **found}


# --- who is let in ---


@pytest.mark.covers("J95", "E43", "R15", "6.1.12", "STL-7")
async def test_a_key_opens_and_the_handler_knows_whose_it_was() -> None:
    async with application() as app:
        assert text_of((await call(app, f"Bearer {ALICE}")).json()) == "alice"
        assert text_of((await call(app, f"Bearer {BOB}")).json()) == "bob"
        assert text_of((await call(app, f"bearer {ALICE}")).json()) == "alice"
        assert text_of((await call(app, f"BEARER   {ALICE}")).json()) == "alice"


@pytest.mark.covers("E43", "R15")
@cases("revision", ["2026-07-28", "2025-11-25", "2025-03-26"])
async def test_handler_sees_everything_that_the_token_says_about_its_caller(revision: str) -> None:
    seen: list[Principal | None] = []
    server = Server("notes", auth=JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock()))

    @server.tool
    def whoami(ctx: Context) -> str:
        seen.append(ctx.principal)
        return "seen"

    said = token(sub="ann", scope="read write", preferred_username="Ann", department="7")
    async with testing.connect(server, revision=revision, over="http", auth=said) as (client, _):
        await client.call_tool("whoami")
    (principal,) = seen
    assert principal is not None
    assert (principal.subject, principal.provider, principal.username) == ("ann", ISSUER, "Ann")
    assert principal.scopes == {"read", "write"}
    assert (principal.claims["department"], principal.claims["iss"]) == ("7", ISSUER)


@pytest.mark.covers("E43")
@cases("revision", ["2026-07-28", "2025-11-25", "2025-03-26"])
async def test_handler_sees_everything_that_was_written_down_for_a_key(revision: str) -> None:
    seen: list[Principal | None] = []
    owner = Principal("bob", provider="own", username="Bob", scopes=frozenset({"read"}), claims={"department": "7"})
    server = Server("notes", auth=ApiKeys({ALICE: "alice", BOB: owner}))

    @server.tool
    def whoami(ctx: Context) -> str:
        seen.append(ctx.principal)
        return "seen"

    async with testing.connect(server, revision=revision, over="http", auth=BOB) as (client, _):
        await client.call_tool("whoami")
    (principal,) = seen
    assert principal is not None
    assert (principal.subject, principal.provider, principal.username) == ("bob", "own", "Bob")
    assert principal.scopes == {"read"}
    assert principal.claims == {"department": "7"}


@pytest.mark.covers("E43")
async def test_without_auth_nobody_is_anybody() -> None:
    async with application(None) as app:
        assert text_of((await call(app)).json()) == "nobody"
        assert text_of((await call(app, f"Bearer {ALICE}")).json()) == "nobody"


@pytest.mark.covers("J108")
async def test_an_application_says_whether_it_asks_for_tokens() -> None:
    async with application() as asking, application(None) as open_to_all:
        assert asking.authenticates
        assert not open_to_all.authenticates
        assert not make_server(auth=KEYS).http_app(auth=None).authenticates
        assert make_server().http_app(auth=KEYS).authenticates
        for lets_everybody_in in (Anonymous(), [KEYS, Anonymous()]):
            assert not make_server().http_app(auth=lets_everybody_in).authenticates


@pytest.mark.covers("J95")
async def test_auth_that_is_switched_off() -> None:
    async with application(ResourceServer(KEYS, enabled=False)) as app:
        assert not app.authenticates
        assert text_of((await call(app)).json()) == "nobody"


@pytest.mark.covers("J104")
def test_there_is_no_default_verifier() -> None:
    with pytest.raises(TypeError):
        ResourceServer()  # type: ignore[call-arg]


@pytest.mark.covers("J95", "J110")
@cases("allow", [["alice"], {"alice", "carol"}, lambda principal: principal.subject == "alice"])
async def test_the_allowlist_goes_by_subject(allow: Any) -> None:
    keys = ApiKeys({ALICE: Principal("alice"), BOB: Principal("17", username="alice"), "carols-key-8": Principal("x")})
    async with application(ResourceServer(keys, allow=allow)) as app:
        assert (await call(app, f"Bearer {ALICE}")).status == 200
        for key in (BOB, "carols-key-8"):
            refused = await call(app, f"Bearer {key}")
            assert refused.status == 403
            assert refused.json()["error"] == "access_denied"


async def _always(principal: Principal) -> bool:
    return True


def _yields(principal: Principal) -> Any:
    yield True


async def _yields_later(principal: Principal) -> Any:
    yield True


class _Asks:
    async def __call__(self, principal: Principal) -> bool:
        return True


@pytest.mark.covers("J110")
@cases("allow", [_always, _yields, _yields_later, _Asks(), functools.partial(_always)])
def test_function_that_gives_no_verdict_cannot_decide_who_is_allowed(allow: Any) -> None:
    with pytest.raises(ServerError, match="allow= takes a plain function"):
        ResourceServer(KEYS, allow=allow)


def _raises(principal: Principal) -> bool:
    raise LookupError("the directory is unreachable")


@pytest.mark.covers("J110")
@pytest.mark.parametrize(
    ("allow", "logged"),
    [
        (lambda principal: _always(principal), "coroutine"),
        (lambda principal: _yields(principal), "generator"),
        (lambda principal: "no", "str"),
        (lambda principal: 1, "int"),
        (lambda principal: None, ""),
        (_raises, "allow= failed"),
    ],
)
async def test_only_true_of_the_allowing_function_lets_a_caller_in(
    allow: Any, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with application(ResourceServer(KEYS, allow=allow)) as app:
        refused = await call(app, f"Bearer {ALICE}")
        assert (refused.status, refused.json()["error"]) == (403, "access_denied")
    assert logged in caplog.text


@pytest.mark.covers("J110")
@cases("empty", [{"allow": []}, {"allow": set()}, {"allow_usernames": []}])
async def test_empty_allowlist_refuses_every_caller(empty: dict[str, Any]) -> None:
    async with application(ResourceServer(KEYS, **empty)) as app:
        assert (await call(app, f"Bearer {ALICE}")).status == 403


@pytest.mark.covers("J110")
@cases(
    ("options", "expected"),
    [
        ({"allow_usernames": ["ALICE", "dave"]}, [200, 403, 403]),
        ({"allow": ["17"], "allow_usernames": ["aLiCe"]}, [200, 200, 403]),
        ({"allow": lambda principal: principal.username in {"Alice"}}, [200, 403, 403]),
    ],
)
async def test_the_allowlist_goes_by_username_where_names_are_unique(options: Any, expected: list[int]) -> None:
    owners = {ALICE: Principal("9", username="Alice"), BOB: Principal("17", username="bob"), "carols-key-8": "carol"}
    async with application(ResourceServer(ApiKeys(owners), **options)) as app:
        assert [(await call(app, f"Bearer {key}")).status for key in owners] == expected


def test_allow_usernames_is_refused_where_users_choose_their_names() -> None:
    signed = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    for verifier in (signed, [KEYS, signed], lambda token: None):
        with pytest.raises(ServerError, match="allow_usernames= is for GitHub"):
            ResourceServer(verifier, allow_usernames=["alice"])

    class OwnDirectory:
        unique_usernames = True

        async def verify(self, token: str) -> Principal | None:
            return None

    ResourceServer(OwnDirectory(), allow_usernames=["alice"])


async def test_usernames_of_another_alphabet_are_not_folded() -> None:
    """The sign for kelvin becomes a `k` in small letters."""
    server = ResourceServer(KEYS, allow_usernames=["kim"])
    assert server.allows(Principal("1", username="KIM"))
    assert not server.allows(Principal("2", username="\N{KELVIN SIGN}im"))


@cases("claim", ["preferred_username", "username", "upn", "email", "name"])
async def test_the_allowlist_does_not_trust_names_that_users_choose(claim: str) -> None:
    verifier = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    async with application(ResourceServer(verifier, allow=["alice-id"])) as app:
        assert (await call(app, f"Bearer {token(sub='alice-id')}")).status == 200
        assert (await call(app, f"Bearer {token(sub='mallory', **{claim: 'alice-id'})}")).status == 403


@cases(
    "wrong",
    [
        {"scopes": "read"},
        {"allow": "alice"},
        {"allow": {"alice": False}},
        {"allow_usernames": "alice"},
        {"allow_usernames": {"alice": False}},
        {"scopes_supported": "read"},
    ],
)
def test_texts_and_mappings_are_refused_as_lists(wrong: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="lists"):
        ResourceServer(KEYS, **wrong)


@pytest.mark.covers("6.1.4")
async def test_the_token_goes_nowhere_else() -> None:
    async with application() as app:
        shown = text_of((await call(app, f"Bearer {ALICE}", tool="headers")).json())
        assert "authorization" not in shown
        assert "host" in shown


@pytest.mark.covers("J106")
async def test_anonymous_lets_everybody_in_as_one_principal() -> None:
    async with application(Anonymous()) as app:
        assert not app.authenticates
        for authorization in (None, "Bearer whatever", "Basic whatever"):
            assert text_of((await call(app, authorization)).json()) == "anonymous"
    async with application(
        ResourceServer(Anonymous(Principal("dev", scopes=frozenset({"read"}))), scopes=["read"])
    ) as app:
        assert text_of((await call(app)).json()) == "dev"
    async with application(ResourceServer(Anonymous(), scopes=["read"])) as app:
        assert (await call(app)).status == 403
    async with application([KEYS, Anonymous()]) as app:
        assert text_of((await call(app)).json()) == "anonymous"
        assert text_of((await call(app, f"Bearer {ALICE}")).json()) == "alice"


def test_a_public_address_is_not_opened_to_anonymous_callers() -> None:
    server = make_server(auth=Anonymous())
    with pytest.raises(ServerError, match="lets everybody in"):
        server.run("http", host="0.0.0.0", port=0)


# --- keys in a header of their own ---

IN_HEADER = ApiKeys({ALICE: "alice", BOB: "bob"}, header="X-API-Key")


async def test_a_key_may_come_in_a_header_of_its_own() -> None:
    async with application(IN_HEADER) as app:
        assert text_of((await call(app, headers={"x-api-key": ALICE})).json()) == "alice"
        assert text_of((await call(app, f"Bearer {BOB}")).json()) == "bob"
        assert "x-api-key" not in text_of((await call(app, tool="headers", headers={"x-api-key": ALICE})).json())
        missing = await call(app)
        assert missing.status == 401
        assert "x-api-key" in missing.json()["error_description"]
        assert (await call(app, headers={"x-api-key": "somebodys-key-1"})).status == 401
        session = SessionClient(app, headers={"x-api-key": ALICE})
        await session.initialize()
        assert text_of(await session.call("whoami")) == "alice"


@cases(
    ("authorization", "headers"),
    [
        (f"Bearer {ALICE}", {"x-api-key": ALICE}),
        (f"Bearer {BOB}", {"x-api-key": ALICE}),
        ("Basic whatever", {"x-api-key": ALICE}),
        (None, {"x-api-key": f"{ALICE}{DUPLICATE}{BOB}"}),
        (None, {"x-api-key": ""}),
        (None, {"x-api-key": f"Bearer {ALICE}"}),
    ],
)
async def test_two_keys_or_none_are_one_too_many(authorization: str | None, headers: dict[str, str]) -> None:
    async with application(IN_HEADER) as app:
        refused = await call(app, authorization, headers=headers)
        assert refused.status == 400
        assert refused.json()["error"] == "invalid_request"


async def test_a_key_in_a_header_is_shown_to_its_verifier_alone() -> None:
    seen: list[str] = []

    async def other(token: str) -> Principal | None:
        seen.append(token)
        return None

    async with application([other, IN_HEADER]) as app:
        assert text_of((await call(app, headers={"x-api-key": ALICE})).json()) == "alice"
        assert (await call(app, headers={"x-api-key": "somebodys-key-1"})).status == 401
        assert seen == []
        assert (await call(app, "Bearer somebodys-key-1")).status == 401
        assert seen == ["somebodys-key-1"]


@cases("header", ["", "X API Key", "Authorization", "cookie", "X-Key\r\n", "é"])
def test_names_that_no_header_for_keys_has(header: str) -> None:
    with pytest.raises(ServerError, match="X-API-Key"):
        ApiKeys({ALICE: "alice"}, header=header)


# --- who is not ---


@pytest.mark.covers("6.1.2", "6.1.5", "6.1.6", "3.4.10.2")
async def test_no_token() -> None:
    async with application(ResourceServer(KEYS, authorization_servers=[ISSUER], scopes=["write", "read"])) as app:
        answer = await call(app)
        assert answer.status == 401
        assert challenge(answer) == {
            "scheme": "Bearer",
            "scope": "read write",
            "resource_metadata": "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp",
        }


@pytest.mark.covers("6.1.3", "6.1.5")
async def test_an_unknown_token() -> None:
    async with application() as app:
        answer = await call(app, "Bearer nobodys-key-0")
        assert answer.status == 401
        assert challenge(answer)["error"] == "invalid_token"
        assert answer.json()["error"] == "invalid_token"


@pytest.mark.covers("J107")
@cases(
    ("authorization", "status"),
    [
        ("", 401),
        ("Basic YWxpY2U6c2VjcmV0", 401),
        (ALICE, 401),
        ("Token " + ALICE, 401),
        ("Bearer", 400),
        ("Bearer ", 400),
        ("Bearer\t" + ALICE, 400),
        ("Bearer " + ALICE + " ", 400),
        ("Bearer " + ALICE + " extra", 400),
        ("Bearer " + ALICE + "," + BOB, 400),
        (" Bearer " + ALICE, 400),
        ("Bearer " + ALICE + "\x00", 400),
        ("Bearer " + ALICE + "\xa0", 400),
        ("Bearer\xa0" + ALICE, 401),
        ('Bearer "' + ALICE + '"', 400),
        ("Bearer token=" + ALICE, 400),
        ("Bearer " + ALICE.upper(), 401),
    ],
)
async def test_tricks_with_case_and_space(authorization: str, status: int) -> None:
    async with application() as app:
        answer = await call(app, authorization)
        assert answer.status == status
        assert "www-authenticate" in answer.headers


@pytest.mark.covers("J107")
@cases(
    ("headers", "found"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"authorization": "bearer   abc=="}, "abc=="),
        ({"Authorization": "Bearer abc"}, "abc"),
        ({"AUTHORIZATION": "Bearer abc"}, "abc"),
        ({"Authorization": "Bearer abc", "authorization": "Bearer abc"}, None),
        ({}, None),
        ({"authorization": "Bearer"}, None),
        ({"authorization": "Basic abc"}, None),
        ({"authorization": "DPoP abc"}, None),
        ({"authorization": f"Bearer abc{DUPLICATE}Bearer abc"}, None),
    ],
)
def test_bearer_extraction(headers: Mapping[str, str], found: str | None) -> None:
    assert bearer_token(headers) == found


async def test_two_authorization_headers() -> None:
    async with application() as app:
        client = ModernClient(app, headers={"authorization": f"Bearer {ALICE}"})
        smuggled = await client.call("whoami", raw_headers=[(b"authorization", f"Bearer {BOB}".encode())])
        assert smuggled.status == 400
        assert challenge(smuggled)["error"] == "invalid_request"
        # Also when both are the same, and in another case.
        again = await client.call("whoami", raw_headers=[(b"Authorization", f"Bearer {ALICE}".encode())])
        assert again.status == 400


async def test_other_headers_are_no_credentials() -> None:
    async with application() as app:
        for name in ("x-authorization", "proxy-authorization", "x-forwarded-authorization", "x-api-key", "cookie"):
            client = ModernClient(app, headers={name: f"Bearer {ALICE}"})
            assert (await client.call("whoami")).status == 401
        answer = await ModernClient(app, headers={"authorization": f"Bearer {ALICE}", "x-user": "bob"}).call("whoami")
        assert text_of(answer.json()) == "alice"


@pytest.mark.covers("6.1.11")
@cases("query", ["access_token=%s", "a=b&access_token=%s", "ACCESS_TOKEN=%s", "authorization=%s"])
async def test_a_token_in_the_query(query: str) -> None:
    async with application() as app:
        for authorization in (None, f"Bearer {ALICE}"):
            answer = await call(app, authorization, query=query % ALICE)
            assert answer.status == 400
            assert ALICE not in answer.body.decode() + str(answer.headers)


@pytest.mark.covers("HTTP-4")
@cases("method", ["POST", "GET", "DELETE", "PUT", "PATCH", "HEAD"])
async def test_every_method_shows_its_token(method: str) -> None:
    async with application() as app:
        answer = await HttpClient(app).start(method).finished()
        assert answer.status == 401


async def test_nothing_of_a_refused_request_is_read() -> None:
    async with application() as app:
        # The body never comes.
        answer = await ModernClient(app).start("POST", body=None, headers={"content-length": "100"}).finished()
        assert answer.status == 401


async def test_health_and_preflight_need_no_token() -> None:
    async with application(cors=["https://app.example"]) as app:
        assert (await HttpClient(app, path="/livez").start("GET").finished()).status == 200
        preflight = await HttpClient(app, headers={"origin": "https://app.example"}).start("OPTIONS").finished()
        assert preflight.status == 204
        refused = await ModernClient(app, headers={"origin": "https://app.example"}).call("whoami")
        assert refused.status == 401
        # A page can read why.
        assert refused.headers["access-control-allow-origin"] == "https://app.example"
        assert "WWW-Authenticate" in refused.headers["access-control-expose-headers"]


async def test_a_page_may_ask_for_the_metadata_with_headers_of_the_protocol() -> None:
    async with application(PROTECTED) as app:
        asking = {"origin": "https://app.example", "access-control-request-headers": "mcp-protocol-version"}
        client = HttpClient(app, path="/.well-known/oauth-protected-resource/mcp", headers=asking)
        preflight = await client.start("OPTIONS").finished()
        assert (preflight.status, preflight.body) == (204, b"")
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "MCP-Protocol-Version" in preflight.headers["access-control-allow-headers"]
        assert "GET" in preflight.headers["access-control-allow-methods"]


async def test_a_foreign_page_is_refused_before_its_token_counts() -> None:
    async with application() as app:
        answer = await call(app, f"Bearer {ALICE}", headers={"origin": "https://evil.example"})
        assert answer.status == 403
        assert "www-authenticate" not in answer.headers


async def test_an_outage_is_not_the_fault_of_the_token() -> None:
    def down(token: str) -> Principal | None:
        raise Unavailable("the key server at 10.0.0.7 is down", retry_after=7)

    async with application(down) as app:
        answer = await call(app, "Bearer something")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "7"
        assert b"10.0.0.7" not in answer.body


async def test_a_verifier_that_breaks_lets_nobody_in() -> None:
    def broken(token: str) -> Principal | None:
        raise ValueError("a secret of the server")

    async with application(broken) as app:
        answer = await call(app, "Bearer something-secret")
        assert answer.status == 500
        assert b"secret" not in answer.body


async def test_a_reason_with_odd_characters_cannot_break_the_challenge() -> None:
    def odd(token: str) -> Principal | None:
        raise InvalidToken('it says "no"\r\nX-Evil: 1, scope="admin" \\')

    async with application(odd) as app:
        answer = await call(app, "Bearer something")
        assert answer.status == 401
        assert "x-evil" not in answer.headers
        assert "\r" not in answer.headers["www-authenticate"]
        assert "scope" not in challenge(answer)


# --- scopes of the whole server ---


@pytest.mark.covers("J96", "6.1.7", "6.1.8")
async def test_scopes_that_every_request_needs() -> None:
    auth = ResourceServer(KEYS, authorization_servers=[ISSUER], scopes=["read", "write"])
    async with application(auth) as app:
        answer = await call(app, f"Bearer {ALICE}")
        assert answer.status == 403
        found = challenge(answer)
        assert (found["error"], found["scope"]) == ("insufficient_scope", "read write")
        assert found["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")


# --- metadata ---


@pytest.mark.covers("J109", "6.1.1", "6.1.2", "6.1.10")
@cases("path", ["", "/", "/mcp", "/mcp/"])
async def test_the_metadata_is_where_clients_look(path: str) -> None:
    async with application(PROTECTED) as app:
        answer = await HttpClient(app, path=f"/.well-known/oauth-protected-resource{path}").start("GET").finished()
        assert answer.status == 200
        assert answer.json() == {
            "resource": "http://127.0.0.1:8000/mcp",
            "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read"],
        }
        assert answer.headers["access-control-allow-origin"] == "*"


@cases("path", ["/other", "/mcp/more", "x", "/mcpx"])
async def test_there_is_no_metadata_of_other_resources(path: str) -> None:
    async with application(PROTECTED) as app:
        answer = await HttpClient(app, path=f"/.well-known/oauth-protected-resource{path}").start("GET").finished()
        assert answer.status == 404


async def test_without_an_authorization_server_there_is_no_metadata() -> None:
    async with application() as app:
        client = HttpClient(app, path="/.well-known/oauth-protected-resource")
        assert (await client.start("GET").finished()).status == 404
        assert "resource_metadata" not in challenge(await call(app))


@pytest.mark.parametrize("written", ["https://api.example.org/v1", "https://api.example.org/v1/tools/"])
async def test_the_public_address_counts_where_it_is_known(written: str) -> None:
    public = "https://api.example.org/v1"
    async with application(PROTECTED, public_url=written, path="/tools") as app:
        client = ModernClient(app, path="/tools", headers={"host": "api.example.org"})
        answer = await client.call("whoami")
        assert challenge(answer)["resource_metadata"] == f"{public}/.well-known/oauth-protected-resource/tools"
        found = await HttpClient(app, path="/.well-known/oauth-protected-resource/tools").start("GET").finished()
        assert found.json()["resource"] == f"{public}/tools"


async def test_a_mounted_application_names_an_address_that_it_serves() -> None:
    async with application(PROTECTED) as app:
        client = ModernClient(app, path="/inner/mcp")
        found = challenge(await client.call("whoami", root_path="/inner"))
        assert found["resource_metadata"] == "http://127.0.0.1:8000/inner/.well-known/oauth-protected-resource/mcp"
        at = HttpClient(app, path="/inner/.well-known/oauth-protected-resource/mcp")
        answer = await at.start("GET", root_path="/inner").finished()
        assert answer.json()["resource"] == "http://127.0.0.1:8000/inner/mcp"


@cases("host", ['127.0.0.1:8000", scope="admin', "a b", "evil\\", "ex ample:80", "127.0.0.1:999999"])
async def test_an_odd_host_is_not_repeated(host: str) -> None:
    async with application(PROTECTED, allowed_hosts=["*"]) as app:
        answer = await call(app, headers={"host": host})
        assert answer.status == 401
        assert "resource_metadata" not in challenge(answer)


# --- signed tokens, over both eras ---


async def test_signed_tokens_through_the_whole_stack() -> None:
    verifier = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    async with application(verifier) as app:
        assert text_of((await call(app, f"Bearer {token()}")).json()) == "alice"
        expired = await call(app, f"Bearer {token(exp=NOW - 100)}")
        assert challenge(expired)["error_description"] == "The token has expired"


@pytest.mark.covers("6.1.12")
async def test_a_session_belongs_to_whoever_opened_it() -> None:
    async with application() as app:
        alice = SessionClient(app, headers={"authorization": f"Bearer {ALICE}"})
        await alice.initialize()
        assert (await alice.call("whoami"))["result"]["content"][0]["text"] == "alice"
        session = alice.headers["mcp-session-id"]
        for credentials, status in ((f"Bearer {BOB}", 404), (None, 401), ("Bearer wrong-key-000", 401)):
            other = HttpClient(app, headers={"mcp-session-id": session})
            sent: dict[str, str | None] = {"authorization": credentials}
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert (await other.post(ping, sent)).status == status
            assert (await other.start_get(sent).finished()).status == status
            assert (await other.delete(sent)).status == status
        assert (await alice.call("whoami"))["result"]["content"][0]["text"] == "alice"


async def test_the_transport_of_2024_asks_for_tokens_too() -> None:
    async with application(sse=True) as app:
        assert (await HttpClient(app, path="/sse").start_get().finished()).status == 401
        alice = HttpClient(app, headers={"authorization": f"Bearer {ALICE}"})
        stream = await alice.start_get(path="/sse").started()
        first = await stream.until(lambda: stream.events)
        path, _, query = first[0].data.partition("?")
        message = initialize_request("2024-11-05")
        nobody, bob = HttpClient(app), HttpClient(app, headers={"authorization": f"Bearer {BOB}"})
        assert (await nobody.post(message, path=path, query=query)).status == 401
        assert (await bob.post(message, path=path, query=query)).status == 404
        assert (await alice.post(message, path=path, query=query)).status == 202
        await stream.until(lambda: len(stream.events) == 2)
        await stream.disconnect()


@pytest.mark.covers("STL-7")
async def test_on_the_transport_of_2024_each_message_has_the_scopes_of_its_own_token() -> None:
    before, after = "the-first-token", "the-second-token"
    keys = ApiKeys({before: Principal("alice"), after: Principal("alice", scopes=frozenset({"write"}))})
    server = make_server(auth=keys)
    server.tool(scopes=["write"])(change)
    app = server.http_app(sse=True)
    alice = HttpClient(app, headers={"authorization": f"Bearer {before}"})
    stream = await alice.start_get(path="/sse").started()
    (first, *_) = await stream.until(lambda: stream.events)
    path, _, query = first.data.partition("?")

    async def answer_to(message: dict[str, Any], count: int) -> dict[str, Any]:
        assert (await alice.post(message, path=path, query=query)).status == 202
        events = await stream.until(lambda: len(stream.events) > count and stream.events)
        return json.loads(events[count].data)  # type: ignore[no-any-return]

    await answer_to(initialize_request("2024-11-05"), 1)
    await alice.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path=path, query=query)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "change"}}
    assert (await answer_to(call, 2))["error"]["data"] == {"requiredScopes": ["write"]}
    alice.headers["authorization"] = f"Bearer {after}"
    assert (await answer_to({**call, "id": 2}, 3))["result"]["content"][0]["text"] == "changed"
    await stream.disconnect()
    await app.stop()


async def change() -> str:
    return "changed"


# --- what is logged ---


async def test_refusals_are_logged_without_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    secret = "a-secret-token-that-nobody-may-see"
    bad = token(exp=NOW - 1000)
    verifier = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    with caplog.at_level(logging.DEBUG):
        async with application([KEYS, verifier]) as app:
            for sent in (f"Bearer {secret}", f"Bearer {bad}", f"Bearer {secret} {secret}", f"Basic {secret}"):
                await call(app, sent)
            await call(app, query=f"access_token={secret}")
    refusals = [record.getMessage() for record in caplog.records if record.name == "toolwire.auth"]
    assert len(refusals) == 5
    assert any("expired" in each for each in refusals)
    text = caplog.text
    assert secret not in text
    assert bad not in text
    assert bad.rpartition(".")[2] not in text


# --- where it listens ---


@pytest.mark.covers("R15")
def test_a_public_address_needs_auth_or_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bool] = []

    def listen(host: str, port: int, *, public: bool) -> Any:
        heard.append(public)
        raise ServerError("enough")

    monkeypatch.setattr(http_server, "listen", listen)
    for options, run_options in (
        ({}, {}),
        ({"auth": KEYS}, {}),
        ({"auth": ResourceServer(KEYS, enabled=False)}, {}),
        ({}, {"allow_unauthenticated": True}),
    ):
        with pytest.raises(ServerError, match="enough"):
            make_server(**options).run("http", host="0.0.0.0", **run_options)
    assert heard == [False, True, False, True]


def test_what_cannot_be_auth_is_refused_when_the_application_is_made() -> None:
    with pytest.raises(ServerError, match="auth="):
        make_server(auth="a key").http_app()


# --- as a function ---


@cases(
    ("headers", "outcome"),
    [
        ({"Authorization": f"Bearer {ALICE}"}, "alice"),
        ({"authorization": f"bearer {ALICE}"}, "alice"),
        ({"X-API-Key": ALICE}, "alice"),
        ({}, 401),
        ({"authorization": "Bearer nobodys-key-1"}, 401),
        ({"authorization": "Bearer"}, 400),
        ({"authorization": f"Bearer {ALICE}", "Authorization": f"Bearer {ALICE}"}, 400),
        ({"authorization": f"Bearer {BOB}"}, 403),  # Not on the list.
        ({"authorization": "Bearer carols-key-8"}, 403),  # Without the scope.
    ],
)
async def test_headers_are_judged_by_the_whole_configuration(headers: dict[str, str], outcome: str | int) -> None:
    read = frozenset({"read"})
    owners = {ALICE: Principal("alice", scopes=read), BOB: Principal("bob", scopes=read), "carols-key-8": "carol"}
    auth = ResourceServer(ApiKeys(owners, header="X-API-Key"), allow=["alice", "carol"], scopes=["read"])
    if isinstance(outcome, str):
        principal = await authenticate(auth, headers)
        assert principal is not None and principal.subject == outcome
        return
    with pytest.raises(Unauthorized) as caught:
        await authenticate(auth, headers)
    assert caught.value.status == outcome


async def test_headers_where_everybody_or_nobody_can_be_let_in() -> None:
    assert await authenticate(None, {}) is None
    assert await authenticate(ResourceServer(KEYS, enabled=False), {}) is None
    anonymous = await authenticate(Anonymous(), {})
    assert anonymous is not None and anonymous.subject == "anonymous"

    async def away(token: str) -> Principal | None:
        raise Unavailable("away")

    with pytest.raises(Unavailable):
        await authenticate(away, {"authorization": "Bearer x"})

    with pytest.raises(ServerError, match="OAuthProxy"):
        await authenticate(github("id", "secret", proxy=True), {"authorization": "Bearer x"})


class Revoking(JWT):
    """A verifier of somebody else, which looks up the tokens that were revoked."""

    revoked = False

    async def verify(self, token: str) -> Principal | None:
        return None if self.revoked else await super().verify(token)


async def test_a_verifier_that_overrides_another_is_asked_about_tokens_that_are_known() -> None:
    verifier = Revoking(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    gate = Gate(ResourceServer(verifier), path="/", public_url=None, marks=Marks(MemoryKV()))
    sent = f"Bearer {token()}"
    for _ in range(2):
        assert (await gate.admit(dict(SCOPE), {"authorization": sent})).subject
    verifier.revoked = True
    with pytest.raises(HttpRefusal) as caught:
        await gate.admit(dict(SCOPE), {"authorization": sent})
    assert caught.value.status == 401


async def test_a_token_that_is_known_needs_no_place_among_those_being_verified() -> None:
    clock, verifying = Clock(), Shares(1, 1.0, "tokens being verified")
    verifier = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=clock)
    gate = Gate(ResourceServer(verifier), path="/", public_url=None, marks=Marks(MemoryKV()), verifying=verifying)
    known, unknown = f"Bearer {token(exp=NOW + 3600)}", f"Bearer {token(exp=NOW + 3601)}"
    principal = await gate.admit(dict(SCOPE), {"authorization": known})
    verifying.take("somebody")
    headers = {"authorization": known}
    assert await gate.admit(dict(SCOPE), headers) == principal
    assert headers == {}
    with pytest.raises(Taken):
        await gate.admit(dict(SCOPE), {"authorization": unknown})
    # What is remembered is remembered for a minute, and then verified again.
    clock.now += 61
    with pytest.raises(Taken):
        await gate.admit(dict(SCOPE), {"authorization": known})


async def test_the_key_of_another_header_is_not_looked_up_among_known_tokens() -> None:
    verifier = JWT(ISSUER, audience=AUDIENCE, keys=key_set(RSA), clock=Clock())
    auth = [verifier, ApiKeys({ALICE: "alice"}, header="X-API-Key")]
    gate = Gate(ResourceServer(auth), path="/", public_url=None, marks=Marks(MemoryKV()))
    sent = token()
    assert await gate.admit(dict(SCOPE), {"authorization": f"Bearer {sent}"})
    with pytest.raises(HttpRefusal):
        await gate.admit(dict(SCOPE), {"x-api-key": sent})


async def test_a_gate_that_is_narrowed_lets_in_whom_both_gates_let_in() -> None:
    def gate(beside: Gate | None = None, **scopes: str) -> Gate:
        keys = {f"key-of-{name}": Principal(name, scopes=frozenset(given.split())) for name, given in scopes.items()}
        server = ResourceServer(ApiKeys(keys))
        return Gate(server, path="/mcp", public_url=None, marks=Marks(MemoryKV()), beside=beside)

    async def admitted(name: str) -> Principal:
        return await narrowed.admit(SCOPE, {"authorization": f"Bearer key-of-{name}"})

    before = gate(ann="read admin", ben="read", old="read")
    narrowed = gate(before, ann="read write", ben="read", new="read")
    assert (await admitted("ann")).scopes == {"read"}
    assert (await narrowed.identify("key-of-ben", {"path": "/connect/"})).subject == "ben"
    for name, status in (("new", 503), ("old", 401)):
        with pytest.raises(HttpRefusal) as caught:
            await admitted(name)
        assert caught.value.status == status
    # The key is somebody else's now.
    others = ResourceServer(ApiKeys({"key-of-ann": "zoe"}))
    narrowed = Gate(others, path="/mcp", public_url=None, marks=Marks(MemoryKV()), beside=before)
    with pytest.raises(HttpRefusal) as caught:
        await admitted("ann")
    assert caught.value.status == 503
