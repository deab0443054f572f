"""Who may talk to a server: the Host and the Origin of a request."""

from __future__ import annotations

import pytest
from tests.cases import cases
from tests.http.httpclient import HttpClient, initialize_request
from tests.http.modernclient import ModernClient

from toolwire import Server
from toolwire.http.asgi import HttpApp
from toolwire.http.origin_check import Guard, is_loopback, without_port

LOCAL = "127.0.0.1"
PUBLIC = "192.0.2.10"
ELSEWHERE = [PUBLIC, "2001:db8::1", None, "/run/app.sock"]


def status(guard: Guard, host: str | None, origin: str | None, *, scheme: str = "http", at: str | None = LOCAL) -> int:
    refusal = guard.check(host, origin, scheme, at)
    return 200 if refusal is None else refusal.status


@cases("host", ["localhost", "localhost:8000", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8000"])
@cases("at", [LOCAL, "127.9.9.9", "::1", "localhost"])
def test_loopback_names_are_served_on_loopback(host: str, at: str) -> None:
    assert status(Guard(), host, None, at=at) == 200


@pytest.mark.covers("3.4.10.1")
@cases(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8000:localhost",
        "[::1].evil.example",
        "::1",
        "localhost@evil.example",
        "[127.0.0.1]",
        "0x7f.1",
    ],
)
def test_other_names_on_loopback_are_421(host: str | None) -> None:
    refusal = Guard().check(host, None, "http", LOCAL)
    assert refusal is not None
    assert refusal.status == 421
    assert "allowed_hosts" in refusal.body.decode()


@cases("at", [LOCAL, *ELSEWHERE])
@cases("host", ["127.0.0.2:8000", "192.0.2.10", "[2001:db8::1]:8000"])
def test_addresses_are_served_everywhere(host: str, at: str | None) -> None:
    assert status(Guard(public_url="https://mcp.example"), host, f"http://{host}", at=at) == 200


@cases("at", ELSEWHERE)
def test_elsewhere_any_name_is_served_until_one_is_told(at: str | None) -> None:
    assert status(Guard(), "mcp.example", None, at=at) == 200
    for told in (Guard(allowed_hosts=["mcp.example"]), Guard(public_url="https://mcp.example:8443/mcp")):
        for host in ("mcp.example", "MCP.example:8443", "localhost:8000"):
            assert status(told, host, None, at=at) == 200
        for host in ("evil.example:8000", "mcp.example.evil.example", "", None):
            assert status(told, host, None, at=at) == 421


@cases("at", ELSEWHERE)
def test_the_page_of_a_name_that_was_rebound_is_refused(at: str | None) -> None:
    assert status(Guard(), "evil.example:8000", "http://evil.example:8000", at=at) == 403
    named = Guard(allowed_hosts=["mcp.example"])
    assert status(named, "evil.example:8000", "http://evil.example:8000", at=at) == 421
    assert status(named, "mcp.example:8000", "http://mcp.example:8000", at=at) == 200


def test_hosts_can_be_allowed() -> None:
    guard = Guard(allowed_hosts=["MCP.example", "other.example:8443"])
    assert status(guard, "mcp.example", None) == 200
    assert status(guard, "mcp.example:9000", None) == 200
    assert status(guard, "other.example:8443", None) == 200
    assert status(guard, "other.example:1", None) == 421
    assert status(guard, "localhost", None) == 200
    assert status(Guard(allowed_hosts=["*"]), "anything.example", None) == 200


@pytest.mark.covers("HTTP-2", "2.1.16")
@cases("at", [LOCAL, PUBLIC, None])
@cases(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost:8000.evil.example",
        "http://localhost:8001",
        "https://localhost:8000",
        "localhost:8000",
        "http://localhost:8000/",
        "http://user@localhost:8000",
        "http://localhost:8000\nhttp://localhost:8000",
    ],
)
def test_a_foreign_origin_is_403_on_every_address(origin: str, at: str | None) -> None:
    refusal = Guard().check("localhost:8000", origin, "http", at)
    assert refusal is not None
    assert refusal.status == 403
    assert "allowed_origins" in refusal.body.decode()


@cases(
    ("origin", "host", "at", "expected"),
    [
        ("http://localhost:3000", "localhost:8000", LOCAL, 200),
        ("http://localhost", "127.0.0.1:8000", LOCAL, 200),
        ("https://localhost:6274", "127.0.0.1:8000", LOCAL, 200),
        ("http://127.0.0.1:3000", "localhost:8000", LOCAL, 200),
        ("http://127.8.9.1:3000", "localhost", LOCAL, 200),
        ("http://[::1]:3000", "[::1]:8000", "::1", 200),
        # Pages of other machines, and what only looks like this one.
        ("http://localhost.evil.example:3000", "localhost:8000", LOCAL, 403),
        ("http://localhost:3000.evil.example", "localhost:8000", LOCAL, 403),
        ("http://evil.example:3000", "localhost:8000", LOCAL, 403),
        ("http://user@localhost:3000", "localhost:8000", LOCAL, 403),
        ("http://localhost:3000/", "localhost:8000", LOCAL, 403),
        ("file://localhost", "localhost:8000", LOCAL, 403),
        ("null", "localhost:8000", LOCAL, 403),
        # A server that others can reach, and a proxy on this machine that passes on what came for another name.
        ("http://localhost:3000", "localhost:8000", PUBLIC, 403),
        ("http://localhost:3000", "localhost:8000", None, 403),
        ("http://localhost:3000", "192.0.2.1:8000", LOCAL, 403),
        ("http://localhost:3000", "evil.example", LOCAL, 421),
    ],
)
def test_the_pages_of_this_machine_may_call_a_server_on_it(
    origin: str, host: str, at: str | None, expected: int
) -> None:
    assert status(Guard(local_pages=True), host, origin, at=at) == expected
    assert status(Guard(), host, origin, at=at) == (expected if expected == 421 else 403)


@pytest.mark.parametrize("at", [LOCAL, PUBLIC])
def test_the_servers_own_origin_passes(at: str) -> None:
    assert status(Guard(), "localhost:8000", "http://localhost:8000", at=at) == 200
    assert status(Guard(), "localhost:8000", "HTTP://LocalHost:8000", at=at) == 200
    assert status(Guard(), "localhost", "https://localhost", scheme="https", at=at) == 200


@pytest.mark.covers("T-39", "HTTP-2")
def test_an_origin_may_be_absent() -> None:
    assert status(Guard(), "localhost:8000", None) == 200
    assert status(Guard(allowed_origins=["https://app.example"]), "localhost:8000", None) == 200


def test_origins_can_be_allowed() -> None:
    guard = Guard(allowed_origins=["https://App.example/"])
    assert status(guard, "localhost", "https://app.example") == 200
    assert status(guard, "localhost", "https://APP.example") == 200
    assert status(guard, "localhost", "http://app.example") == 403
    assert status(Guard(allowed_origins=["*"]), "localhost", "null") == 200
    # One setting does not stand in for the other.
    assert status(guard, "app.example", "https://app.example") == 421
    assert status(Guard(allowed_hosts=["*"]), "app.example", "https://evil.example") == 403


def test_the_public_address_is_a_host_and_an_origin() -> None:
    guard = Guard(public_url="https://mcp.example/tools")
    assert status(guard, "mcp.example", "https://mcp.example") == 200
    assert status(guard, "mcp.example", "http://mcp.example.evil") == 403


@cases("url", ["mcp.example", "ftp://mcp.example", "https://", "/mcp"])
def test_a_public_address_that_is_none_is_said(url: str) -> None:
    with pytest.raises(ValueError, match="public_url"):
        Guard(public_url=url)


def test_what_is_refused_is_repeated_in_part_only() -> None:
    for refusal in (
        Guard().check("x" * 100_000, None, "http", LOCAL),
        Guard().check("localhost", "x" * 100_000, "http", LOCAL),
    ):
        assert refusal is not None
        assert len(refusal.body.decode()) < 500


def test_small_parts() -> None:
    assert [without_port(each) for each in ("a", "a:1", "[::1]", "[::1]:1")] == ["a", "a", "[::1]", "[::1]"]
    assert [without_port(each) for each in ("a:b", "[::1]x", "[::1]:x")] == ["a:b", "[::1]x", "[::1]:x"]
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")


# --- through the application ---


@pytest.fixture
def app() -> HttpApp:
    server = Server("guarded")

    @server.tool
    async def echo(text: str) -> str:
        return text

    app: HttpApp = server.http_app(sse=True)
    return app


@pytest.mark.covers("3.4.10.1", "HTTP-2", "2.1.16")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
async def test_a_page_of_somebody_else_reaches_nothing(app: HttpApp, method: str) -> None:
    client = HttpClient(app)
    for headers, expected in (
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"host": "evil.example"}, 421),
        ({"host": None}, 421),
    ):
        for path in ("/mcp", "/mcp/", "/sse", "/messages"):
            answer = await client.start(method, headers=headers, path=path).finished()
            assert answer.status == expected
            assert "access-control-allow-origin" not in answer.headers
    assert app.sessions is None, "what is refused does not even start the server"


async def test_a_refusal_comes_before_anything_else_is_looked_at(app: HttpApp) -> None:
    foreign = {"origin": "https://evil.example"}
    answer = await HttpClient(app).start("POST", headers=foreign, body=None).finished()
    assert answer.status == 403, "nobody waits for the body"


async def test_two_hosts_are_400(app: HttpApp) -> None:
    twice = [(b"host", b"localhost")]
    answer = await HttpClient(app).post(initialize_request(), raw_headers=twice)
    assert answer.status == 400
    assert app.sessions is None


async def test_two_origins_are_403(app: HttpApp) -> None:
    twice = [(b"origin", b"http://127.0.0.1:8000")] * 2
    assert (await HttpClient(app).post(initialize_request(), raw_headers=twice)).status == 403


async def test_loopback_and_listed_callers_are_served(app: HttpApp) -> None:
    client = ModernClient(app)
    for headers in ({}, {"host": "localhost:8000"}, {"host": "[::1]:8000"}, {"origin": "http://127.0.0.1:8000"}):
        assert (await client.call("echo", {"text": "x"}, headers=headers)).status == 200
    assert (
        await client.call("echo", {"text": "x"}, headers={"host": "mcp.example"}, server=(PUBLIC, 80))
    ).status == 200
    await app.stop()


async def test_public_url_lets_a_proxy_speak_for_the_server() -> None:
    app = Server("proxied").http_app(public_url="https://mcp.example/mcp")
    headers = {"host": "mcp.example", "origin": "https://mcp.example"}
    assert (await HttpClient(app).post(initialize_request(), headers)).status == 200
    await app.stop()
