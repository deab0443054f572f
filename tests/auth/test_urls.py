"""URLs that servers name."""

from __future__ import annotations

import pytest
from tests.cases import cases

from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.urls import (
    Reach,
    Zone,
    canonical_resource,
    covers,
    is_loopback_host,
    same_origin,
    split_url,
    well_known,
)

SERVER = "https://api.example.org/mcp"


@cases(
    "url",
    [
        "",
        "mcp",
        "ftp://h/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://",
        "https://h:0/",
        "https://h:99999/",
        "https://user:secret@h/",
        "https://h/a b",
        "https://h\\@evil/",
        "https://h/\r\nx",
        "https://ho\u0441t/",
        "https://h/" + "a" * 5000,
        "https://[::1",
        "https://[::1]evil/",
        "https://h../",
    ],
)
def test_what_is_no_usable_url(url: str) -> None:
    with pytest.raises(SignInFailed):
        split_url(url, "It")


@pytest.mark.covers("6.2.14")
@cases(
    ("url", "resource"),
    [
        ("HTTPS://API.Example.org/MCP", "https://api.example.org/MCP"),
        ("https://h/", "https://h"),
        ("https://h", "https://h"),
        ("https://h:8443/mcp#part", "https://h:8443/mcp"),
        ("https://h/mcp?tenant=1", "https://h/mcp?tenant=1"),
        ("https://h/mcp/", "https://h/mcp/"),
    ],
)
def test_the_canonical_uri_of_a_server(url: str, resource: str) -> None:
    assert canonical_resource(url) == resource


@cases(
    ("resource", "url", "expected"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h", "https://h/mcp", True),
        ("https://h/", "https://h/mcp", True),
        ("https://H:443/mcp/", "https://h/mcp", True),
        ("https://h/a", "https://h/a/b", True),
        ("https://h/a", "https://h/ab", False),
        ("https://h/a/b", "https://h/a", False),
        ("https://evil/mcp", "https://h/mcp", False),
        ("http://h/mcp", "https://h/mcp", False),
        ("https://h:444/mcp", "https://h/mcp", False),
        ("https://h/mcp?x=1", "https://h/mcp", False),
        ("https://h/mcp?x=1", "https://h/mcp?x=1", True),
        ("https://h/mcp", "https://h/mcp?x=1", True),
        ("https://h/mcp#x", "https://h/mcp", False),
    ],
)
def test_which_resource_speaks_for_a_server(resource: str, url: str, expected: bool) -> None:
    assert covers(resource, url) is expected


def test_well_known_urls() -> None:
    assert well_known("https://h:1/a/b/", "x") == "https://h:1/.well-known/x/a/b"
    assert well_known("https://h/a", "x", path=False) == "https://h/.well-known/x"
    assert well_known("https://h", "x") == "https://h/.well-known/x"


def test_origins() -> None:
    assert same_origin("https://H/a", "https://h:443/b")
    assert not same_origin("https://h./a", "https://h/b"), "with search domains these are two machines"
    assert same_origin("https://[2001:DB8:0::1]/a", "https://[2001:db8::1]/b")
    assert covers("https://[2001:DB8:0::1]/a", "https://[2001:db8::1]/a/b")
    assert not same_origin("https://h/a", "https://h:8443/a")


@cases(
    ("host", "expected"),
    [
        ("localhost", True),
        ("a.LOCALHOST.", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("h", False),
    ],
)
def test_loopback_by_name(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected


@pytest.mark.covers("6.2.6")
@cases(
    ("server", "url", "zone"),
    [
        (SERVER, "https://login.example.org/token", Zone.PUBLIC),
        (SERVER, "https://10.0.0.1/token", Zone.PUBLIC),  # Refused when it is connected to: not a public address.
        (SERVER, "https://api.example.org/.well-known/x", Zone.NAMED),
        (SERVER, "https://login.corp/token", Zone.NAMED),
        (SERVER, "http://login.example.org/token", None),
        (SERVER, "http://login.corp/token", None),
        (SERVER, "http://localhost/token", None),
        (SERVER, "https://localhost/token", None),
        (SERVER, "https://127.0.0.1:8080/token", None),
        ("http://localhost:1/mcp", "http://localhost:2/token", Zone.LOOPBACK),
        ("http://localhost:1/mcp", "http://127.0.0.1:2/token", Zone.LOOPBACK),
        ("http://localhost:1/mcp", "http://localhost:1/token", Zone.NAMED),
        ("http://localhost:1/mcp", "http://login.example.org/token", None),
        ("http://localhost:1/mcp", "https://login.example.org/token", Zone.PUBLIC),
    ],
)
def test_how_far_a_server_may_send_its_client(server: str, url: str, zone: Zone | None) -> None:
    reach = Reach(server, ["login.CORP"])
    if zone is None:
        with pytest.raises(SignInFailed):
            reach.zone(url, "It")
    else:
        assert reach.zone(url, "It") is zone
