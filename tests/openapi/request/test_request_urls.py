"""The URLs of requests: servers, path templates, and values that try to leave them."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.openapi.operations import calling, define, parameter
from tests.openapi.stub_api import stub_api

from toolwire.errors import ToolError
from toolwire.openapi.model import DescriptionError, ServerObject, ServerVariable
from toolwire.openapi.request.parameters import path_serializer
from toolwire.openapi.request.request_builder import RequestBuilder
from toolwire.openapi.request.request_urls import UrlBuilder, server_url

BASE = "https://api.example/v1"


def built(template: str, made: Any = None, query: str = "", base: str = BASE, **arguments: Any) -> str:
    serializers = {name: (name, path_serializer(made or parameter(name, "path"))) for name in arguments}
    return UrlBuilder(base, template, serializers, "op").build(arguments, query)


@cases(
    ("template", "arguments", "url"),
    [
        ("/pets", {}, f"{BASE}/pets"),
        ("/pets/", {}, f"{BASE}/pets/"),
        ("/pets/{id}", {"id": 7}, f"{BASE}/pets/7"),
        ("/pets/{id}.json", {"id": "a.b"}, f"{BASE}/pets/a.b.json"),
        ("/{a}-{b}/x", {"a": "1", "b": "2/3"}, f"{BASE}/1-2%2F3/x"),
        ("/ü ä/{id}", {"id": "..."}, f"{BASE}/%C3%BC%20%C3%A4/..."),
        ("/files/{path}", {"path": "docs/read me.md"}, f"{BASE}/files/docs%2Fread%20me.md"),
        ("/a%2Fb/{id}", {"id": "100%"}, f"{BASE}/a%2Fb/100%25"),
        # Not allowed by the specification, and common: a fixed query, and a fragment that tells operations apart.
        ("/x?list-type=2", {}, f"{BASE}/x?list-type=2"),
        ("/x?id={id}", {"id": "a&b=c"}, f"{BASE}/x?id=a%26b%3Dc"),
        ("/#Action=Describe", {}, f"{BASE}/"),
        ("pets", {}, f"{BASE}/pets"),
    ],
)
def test_paths(template: str, arguments: dict[str, Any], url: str) -> None:
    assert built(template, **arguments) == url


def test_a_query_follows() -> None:
    assert built("/x", query="a=1") == f"{BASE}/x?a=1"
    assert built("/x?v=2", query="a=1") == f"{BASE}/x?v=2&a=1"
    with pytest.raises(ToolError, match="are the most"):
        built("/x", query="a" * 20_000)


def test_an_expression_without_a_parameter_is_named() -> None:
    with pytest.raises(DescriptionError, match=r"op: .*\{id\}"):
        built("/pets/{id}")


TRAVERSAL = [
    "..", ".", "../admin", "../../etc/passwd", "a/../b", "..\\admin", "..%2fadmin", "%2e%2e", "%2E%2E/",
    "%2e%2e%2fadmin", "%252e%252e%252fadmin", "%25252e%25252e", "..;/admin", "..;a=b", ";/../x", "a/..", "a\\..\\b",
    "%5c..%5c", "..%5cx", "..%00", "\0", "a\0b", "%00", "a\r\nb", "%0d%0ax: y", "..?x", "..#x", "./", "a/./b", "",
    "%" + "25" * 9 + "2e",
]  # fmt: skip
HARMLESS = [
    "https://evil.example/x", "//evil.example", "/admin", "?admin=1", "#x", "a;b", "a:80@evil.example", "@evil.example",
    "{id}", "a&b=c", "\\\\evil.example", "...", "a..b", ".hidden", "v1.2", "%41", "100%", "ü", "\u2025", "\uff0e\uff0e",
]  # fmt: skip


@pytest.mark.covers("OA-11.3")
@cases("value", TRAVERSAL)
@cases("reserved", [False, True])
@cases("template", ["/users/{id}", "/users/{id}/pets"])
def test_traversal_is_refused(value: str, reserved: bool, template: str) -> None:
    with pytest.raises(ToolError):
        built(template, parameter("id", "path", allow_reserved=reserved), id=value)


@cases("style", ["simple", "label", "matrix"])
@cases("value", [["..", "a"], ["a", "../b"], {"..": "a"}, {"a": ".."}, ["%2e%2e"], {"a": "x/../y"}])
def test_traversal_inside_lists_and_objects_is_refused(style: str, value: Any) -> None:
    with pytest.raises(ToolError):
        built("/users/{id}", parameter("id", "path", style=style, explode=True), id=value)


@pytest.mark.covers("OA-11.3")
@cases("value", HARMLESS)
@cases("reserved", [False, True])
def test_other_values_stay_in_their_segment(value: str, reserved: bool) -> None:
    url = built("/users/{id}/pets", parameter("id", "path", allow_reserved=reserved), id=value)
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "api.example", "", "")
    *before, segment, last = parts.path.split("/")
    assert (before, last) == (["", "v1", "users"], "pets")
    assert unquote(segment) == (value if not reserved else unquote(value))


@pytest.mark.covers("OA-11.3")
async def test_no_request_leaves_the_template() -> None:
    one = define("GET", "/users/{id}/pets", parameter("id", "path"), parameter("q", "query"), name="pets")
    async with stub_api() as api, calling(api.url, one) as call:
        for value in TRAVERSAL:
            assert (await call("pets", id=value)).is_error
        assert api.arrived == []
        for value in HARMLESS:
            assert not (await call("pets", id=value, q=value)).is_error
            arrived = api.last
            assert arrived.path.count("/") == 3
            assert unquote(arrived.path.removeprefix("/users/").removesuffix("/pets")) == value
            assert unquote(arrived.query.removeprefix("q=")) == value


@given(st.text())
def test_any_value_is_refused_or_read_back(value: str) -> None:
    builder = RequestBuilder(define("GET", "/users/{id}/pets", parameter("id", "path")), BASE)
    try:
        url = builder.build({"id": value}).url
    except ToolError:
        return
    assert urlsplit(url).netloc == "api.example"
    assert unquote(url.removeprefix(f"{BASE}/users/").removesuffix("/pets")) == value


# -- Servers ----------------------------------------------------------------------------------------------------------

GIGANTIC = ServerObject(
    url="https://{username}.gigantic-server.com:{port}/{basePath}",
    document_uri="https://docs.example/api.yaml",
    name="prod",
    variables={
        "username": ServerVariable(default="demo"),
        "port": ServerVariable(default="8443", enum=("8443", "443")),
        "basePath": ServerVariable(default="v2"),
    },
)


def at(url: str, document_uri: str = "https://docs.example/apis/pets.yaml", **members: Any) -> ServerObject:
    return ServerObject(url=url, document_uri=document_uri, **members)


@pytest.mark.covers("OA-4.10")
@cases(
    ("servers", "options", "url"),
    [
        ((GIGANTIC,), {}, "https://demo.gigantic-server.com:8443/v2"),
        (
            (GIGANTIC,),
            {"variables": {"username": "me", "port": "443", "other": "x"}},
            "https://me.gigantic-server.com:443/v2",
        ),
        ((at("https://a.example/"), GIGANTIC), {"server": "prod"}, "https://demo.gigantic-server.com:8443/v2"),
        ((at("https://a.example/x"), at("https://b.example")), {"server": "https://b.example"}, "https://b.example"),
        ((at("https://a.example/v1/"),), {}, "https://a.example/v1"),
        ((at("/v2"),), {}, "https://docs.example/v2"),
        ((at("v2"),), {}, "https://docs.example/apis/v2"),
        ((at("."),), {}, "https://docs.example/apis"),
        ((at("./test", "https://device1.example.com"),), {}, "https://device1.example.com/test"),
        ((at("//other.example/x"),), {}, "https://other.example/x"),
        ((at("https://a.example"),), {"base_url": "http://localhost:8000/api/"}, "http://localhost:8000/api"),
        ((), {"base_url": "https://me:secret@a.example"}, "https://me:secret@a.example"),
    ],
)
def test_servers(servers: tuple[ServerObject, ...], options: dict[str, Any], url: str) -> None:
    assert server_url(servers, **options) == url


@pytest.mark.covers("OA-4.10")
@cases(
    ("servers", "options", "says"),
    [
        ((), {}, "no server"),
        ((GIGANTIC,), {"variables": {"port": "80"}}, "8443, 443, not '80'"),
        ((GIGANTIC,), {"variables": {"basePath": "../x"}}, "cannot be requested"),
        ((GIGANTIC,), {"server": "test"}, "no server 'test', but 'prod'"),
        ((at("https://{x}.example"),), {}, "server_variables="),
        ((at("/v2", "file:///tmp/pets.yaml"),), {}, "base_url="),
        ((at("wss://a.example"),), {}, "not a URL of http"),
        ((at("https://a.example?x=1"),), {}, "no query"),
        ((at("https://a:b@a.example"),), {}, "password"),
        ((at("https://a.example/../x"),), {}, "cannot be requested"),
        ((), {"base_url": "a.example"}, "not a URL of http"),
    ],
)
def test_servers_that_cannot_be_used(servers: tuple[ServerObject, ...], options: dict[str, Any], says: str) -> None:
    with pytest.raises(DescriptionError, match=says):
        server_url(servers, **options)


@cases("location", ["query", "cookie"])
@cases("member", ["admin", "Admin", "admin[]", "admin[x]", " admin"])
def test_no_member_of_an_object_is_sent_as_another_parameter(location: str, member: str) -> None:
    definition = define("GET", "/users", parameter("admin", location), parameter("more", location))
    builder = RequestBuilder(definition, BASE)
    sent = builder.build({"admin": "no", "more": {"other": "yes"}})
    assert "other=yes" in (sent.url if location == "query" else sent.headers["cookie"])
    with pytest.raises(ToolError, match="another parameter"):
        builder.build({"admin": "no", "more": {member: "yes"}})


def test_no_member_of_an_object_is_sent_in_place_of_the_query_in_a_path() -> None:
    builder = RequestBuilder(define("GET", "/users?action=read", parameter("more", "query")), BASE)
    with pytest.raises(ToolError, match="another parameter"):
        builder.build({"more": {"action": "delete"}})


def test_parameters_with_similar_names_are_sent() -> None:
    similar = [parameter(name, "query") for name in ("filter[a]", "filter[b]", "filter", "Filter")]
    builder = RequestBuilder(define("GET", "/users", *similar), BASE)
    assert builder.build({each.name: "x" for each in similar}).url.endswith("&Filter=x")


@pytest.mark.parametrize(
    ("path", "value", "allow_reserved"),
    [("/x?role=user&q={q}", "a&role=admin", True), ("/x?role=user&{q}", "role", False)],
)
def test_path_value_in_the_query_of_a_template_gives_no_second_field(
    path: str, value: str, allow_reserved: bool
) -> None:
    builder = RequestBuilder(define("GET", path, parameter("q", "path", allow_reserved=allow_reserved)), BASE)
    assert "role=user" in builder.build({"q": "a"}).url
    with pytest.raises(ToolError, match="another parameter"):
        builder.build({"q": value})


@pytest.mark.parametrize("location", ["query", "cookie"])
def test_two_objects_do_not_give_the_same_field(location: str) -> None:
    builder = RequestBuilder(define("GET", "/x", parameter("a", location), parameter("b", location)), BASE)
    builder.build({"a": {"role": "user"}, "b": {"rank": "1"}})
    for member in ("role", "ROLE", "role[]", "role[0]"):
        with pytest.raises(ToolError, match="'b' must not have a member with the name of another"):
            builder.build({"a": {"role": "user"}, "b": {member: "admin"}})


def test_object_in_the_path_gives_no_other_matrix_parameter() -> None:
    matrix = [parameter(name, "path", style="matrix", explode=True) for name in ("role", "more")]
    builder = RequestBuilder(define("GET", "/x{role}{more}", *matrix), BASE)
    assert builder.build({"role": "user", "more": {"a": "1"}}).url.endswith("/x;role=user;a=1")
    with pytest.raises(ToolError, match="another parameter"):
        builder.build({"role": "user", "more": {"Role": "admin"}})


def test_deep_object_gives_no_field_of_a_parameter_with_brackets() -> None:
    deep = parameter("x", "query", style="deepObject", explode=True)
    builder = RequestBuilder(define("GET", "/x", deep, parameter("x[admin]", "query")), BASE)
    assert builder.build({"x": {"a": {"admin": 1}}, "x[admin]": "0"}).url.endswith(
        "?x%5Ba%5D%5Badmin%5D=1&x%5Badmin%5D=0"
    )
    for members in ({"admin": "1"}, {"Admin": ["1"]}, {"admin": {"b": "1"}}, {"admin[": "1"}):
        with pytest.raises(ToolError, match="another parameter"):
            builder.build({"x": members})


def test_lone_percent_of_a_template_makes_no_segment_with_a_value() -> None:
    builder = RequestBuilder(define("GET", "/a/%2{x}%2{y}/b", *(parameter(name, "path") for name in ("x", "y"))), BASE)
    assert builder.build({"x": "1", "y": "f"}).url == f"{BASE}/a/%2521%252f/b"
    for value in ("e", "E"):
        with pytest.raises(ToolError, match="another path"):
            builder.build({"x": value, "y": value})


def test_encoded_dots_of_template_and_values_are_refused() -> None:
    builder = RequestBuilder(define("GET", "/a/%2e{x}/b", parameter("x", "path")), BASE)
    with pytest.raises(ToolError):
        builder.build({"x": "."})
