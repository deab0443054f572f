"""Origins and policies: what a server may name, and that no text of a server adds or widens a directive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.apps import Csp, host_policy
from toolwire.apps.content_security_policy import MAX_ORIGINS, allow_attribute, parse_origin, permissions_to_wire
from toolwire.protocol.errors import ServerError

LISTS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")

GOOD = {
    "https://api.shop.example": "https://api.shop.example",
    "https://API.Shop.Example": "https://api.shop.example",
    "https://*.shop.example": "https://*.shop.example",
    "https://shop.example:8443": "https://shop.example:8443",
    "wss://live.shop.example": "wss://live.shop.example",
    "http://localhost:3000": "http://localhost:3000",
    "http://127.0.0.1:3000": "http://127.0.0.1:3000",
    "https://203.0.113.7": "https://203.0.113.7",
    "https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
}

_BASES = ("https://shop.example", "https://*.shop.example", "wss://shop.example:8443")
# Texts that mean something in a policy, in a header, in an address, or to one of the parsers on the way.
_HOSTILE = (
    "; script-src *",
    ";script-src 'unsafe-eval'",
    " *",
    " 'unsafe-eval'",
    " 'unsafe-inline'",
    " data:",
    "\r\nX-Injected: 1",
    "\nSet-Cookie: a=b",
    "\x00",
    "\t*",
    "\x0b*",
    "\x0c*",
    "\x85*",
    "\xa0*",
    "\u2028*",
    "\u3000*",
    ", default-src *",
    '"',
    "'",
    "`",
    "\\",
    "/",
    "/path",
    "/../..",
    "?query",
    "#fragment",
    "@evil.example",
    ":",
    ":0",
    ":65536",
    ":99999",
    ":*",
    ":80 evil.example",
    ":８０",
    ".",
    "..example",
    "%00",
    "%3B%20script-src%20*",
    "{}",
    "<script>",
    "|evil",
    "^",
    "$",
    "*",
    ".*",
    "\u00ad",
    "\u200b",
    "\u202e",
    "\ufeff",
    "\ud800",
    "ß",
    "。com",
    "\uff0eexample",
    "+",
    "=",
    "&",
    "~",
    "!",
    "_",
    "-",
)
HOSTILE: tuple[object, ...] = (
    *(base + ending for base in _BASES for ending in _HOSTILE),
    # Not origins at all.
    "*",
    "https://*",
    "https://*.",
    "https://*.com",
    "https://**.shop.example",
    "https://a.*.shop.example",
    "https://shop.*",
    "*.shop.example",
    "shop.example",
    "//shop.example",
    "https:",
    "https:/shop.example",
    "https:///shop.example",
    "https://",
    "http://shop.example",
    "http://*.localhost",
    "http://localhost.evil.example",
    "ws://shop.example",
    "ftp://shop.example",
    "file:///etc/passwd",
    "data:",
    "data:text/html,x",
    "blob:",
    "blob:https://shop.example/1",
    "javascript:alert(1)",
    "javascript://shop.example",
    "filesystem:",
    "mediastream:",
    "about:blank",
    "chrome://settings",
    "'self'",
    "'none'",
    "'unsafe-eval'",
    "'unsafe-inline'",
    "'strict-dynamic'",
    "'nonce-abc'",
    "'sha256-abc='",
    "'report-sample'",
    "'wasm-unsafe-eval'",
    "https://user@shop.example",
    "https://user:password@shop.example",
    "https://-shop.example",
    "https://shop-.example",
    "https://shop..example",
    "https://.shop.example",
    "https://bücher.example",
    "https://ѕhop.example",
    "https://\u0130.example",
    "https://[::1]",
    "https://[::1]:443",
    "https://2130706433",
    "https://0x7f000001",
    "https://0x7f.1",
    "https://127.1",
    "https://0177.0.0.1",
    "https://1.2.3.256",
    "https://*.1.2.3.4",
    "https://1.2.3.4.5",
    f"https://{'a' * 64}.example",
    f"https://{'a.' * 130}example",
    "https://shop.example" + "x" * 100_000,
    "",
    " ",
    None,
    7,
    True,
    ["https://shop.example"],
    {"https://shop.example": 1},
    b"https://shop.example",
)
DEFAULT = host_policy(None).header


def directives(header: str) -> dict[str, list[str]]:
    parts = [each.split(" ") for each in header.split("; ")]
    found = {name: sources for name, *sources in parts}
    assert len(found) == len(parts), "a directive stands there twice"
    return found


def test_there_are_at_least_200_hostile_origins() -> None:
    assert len(set(map(repr, HOSTILE))) >= 200


@cases(("text", "origin"), GOOD.items())
def test_an_origin_is_parsed(text: str, origin: str) -> None:
    assert str(parse_origin(text)) == origin


@pytest.mark.covers("APP-9.3")
def test_no_hostile_origin_adds_or_widens_a_directive() -> None:
    for each in HOSTILE:
        with pytest.raises(ValueError, match=r"\w"):
            parse_origin(each)
        for name in LISTS:
            policy = host_policy({name: [each]})
            assert policy.header == DEFAULT, (name, each)
            assert policy.connections == host_policy(None).connections
            assert len(policy.refused) == 1
            assert policy.granted == {}
        with pytest.raises(ServerError, match="connect= of Csp"):
            Csp(connect=[each])  # type: ignore[list-item]


@given(st.text(max_size=60), st.sampled_from(LISTS))
def test_no_text_adds_a_directive(text: str, name: str) -> None:
    for origin in (text, f"https://{text}", f"https://shop.example{text}"):
        found = directives(host_policy({name: [origin]}).header)
        plain = directives(DEFAULT)
        assert found.keys() == plain.keys()
        added = {source for key, sources in found.items() for source in sources if source not in plain[key]}
        assert all(str(parse_origin(each)) == each for each in added)


def test_each_list_widens_its_own_directives() -> None:
    csp = Csp(
        connect=["https://c.example"],
        resource=["https://r.example"],
        frame=["https://f.example"],
        base_uri=["https://b.example"],
        link=["https://l.example"],
    )
    plain, found = directives(DEFAULT), directives(host_policy(csp.to_wire()).header)
    widened = {name: sources[-1] for name, sources in found.items() if sources != plain[name]}
    assert widened == {
        "connect-src": "https://c.example",
        "script-src": "https://r.example",
        "style-src": "https://r.example",
        "img-src": "https://r.example",
        "media-src": "https://r.example",
        "font-src": "https://r.example",
        "frame-src": "https://f.example",
        "base-uri": "https://b.example",
    }
    assert plain["default-src"] == plain["object-src"] == plain["connect-src"] == plain["frame-src"] == ["'none'"]


def test_a_policy_is_made_of_anything() -> None:
    for csp in (None, {}, [], 7, "x", {"connectDomains": "https://a.example"}, {"connectDomains": {"a": 1}}, {"x": []}):
        assert host_policy(csp).header == DEFAULT
    many = [f"https://a{number}.example" for number in range(MAX_ORIGINS + 5)]
    policy = host_policy({"connectDomains": many})
    assert len(policy.granted["connectDomains"]) == MAX_ORIGINS
    assert policy.refused == [("connectDomains", f"it has more than {MAX_ORIGINS} origins")]


@cases(
    ("csp", "said"),
    [
        ({"connectDomain": []}, "did you mean 'connectDomains'"),
        ({"script": []}, "there are connectDomains"),
        ("https://a.example", "csp= is a Csp, not str"),
        ({"connectDomains": "https://a.example"}, "is a list of origins, not str"),
        ({"connectDomains": ["https://a.example"] * (MAX_ORIGINS + 1)}, "more than 100 origins"),
        ({"connectDomains": ["https://a.example/"]}, "leave out the slash"),
        ({"connectDomains": ["a.example"]}, "write https:// before the host"),
        ({"connectDomains": ["http://a.example"]}, "http is for localhost alone"),
        ({"connectDomains": ["https://u@a.example"]}, "no user name"),
        ({"connectDomains": ["https://a.example;"]}, "another meaning"),
        ({"connectDomains": ["https://bücher.example"]}, "xn--"),
    ],
)
def test_a_wrong_csp_says_what_to_do(csp: object, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        Csp.of(csp)  # type: ignore[arg-type]


def test_origins_are_kept_once_and_in_order() -> None:
    csp = Csp(connect=["https://b.example", "https://a.example", "https://B.example"])
    assert csp.to_wire() == {"connectDomains": ["https://b.example", "https://a.example"]}
    assert Csp.of({"connectDomains": ["https://b.example", "https://a.example"]}) == csp


def test_permissions() -> None:
    assert permissions_to_wire(["camera", "clipboard-write"]) == {"camera": {}, "clipboardWrite": {}}
    assert permissions_to_wire({"clipboardWrite": {}}) == permissions_to_wire("clipboard_write")
    with pytest.raises(ServerError, match="there are camera, microphone"):
        permissions_to_wire(["usb"])
    assert allow_attribute({"camera": {}, "clipboardWrite": {}, "usb; fullscreen *": {}}) == "camera; clipboard-write"
    assert allow_attribute({"camera": 1}) == allow_attribute(None) == allow_attribute(["camera"]) == ""


@pytest.mark.covers("APP-4.2")
def test_connections_name_the_declared_origins_once() -> None:
    csp = Csp(
        connect=["https://api.example", "wss://live.example:8443", "http://localhost:3000"],
        resource=["https://*.cdn.example", "https://api.example"],
        frame=["https://frames.example"],
        base_uri=["https://base.example"],
        link=["https://link.example"],
    )
    listed = (
        'response-origin "https://api.example" "https://live.example:8443" "http://localhost:3000"'
        ' "https://*.cdn.example" "https://frames.example"'
    )
    assert host_policy(csp.to_wire()).connections == f"({listed}); redirects=allow"
    assert host_policy(None).connections == "(response-origin); redirects=allow"
