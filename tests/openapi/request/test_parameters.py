"""Parameters as text, against the examples that OpenAPI 3.0.4, 3.1.1 and 3.2.0 print."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.openapi.descriptions import api, tool_of
from tests.openapi.operations import define, parameter

from toolwire.errors import ToolError
from toolwire.openapi.model import EncodingObject
from toolwire.openapi.request.parameters import (
    cookie_serializer,
    header_serializer,
    path_serializer,
    query_serializer,
    query_string_serializer,
)
from toolwire.openapi.request.request_bodies import form_writer
from toolwire.openapi.request.request_builder import RequestBuilder

STRING = "blue"
ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}
WRITERS = {
    "path": path_serializer,
    "query": query_serializer,
    "header": header_serializer,
    "cookie": cookie_serializer,
}

# "Style Examples" of 3.2.0, which are those of 3.0.4 and 3.1.1 without the `?` before a query: location, style,
# explode, and the columns undefined, string, array, object. None stands for n/a.
STYLE_EXAMPLES: list[tuple[str, str, bool, str | None, str | None, str | None, str | None]] = [
    ("path", "matrix", False, ";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
    ("path", "matrix", True, ";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
    ("path", "label", False, ".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
    ("path", "label", True, ".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
    ("path", "simple", False, "", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("path", "simple", True, "", "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ("header", "simple", False, "", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("header", "simple", True, "", "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ("query", "form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("query", "form", True, "color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
    ("query", "spaceDelimited", False, None, None, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
    ("query", "pipeDelimited", False, None, None, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
    ("query", "deepObject", True, None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ("query", "deepObject", False, None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ("cookie", "form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("cookie", "cookie", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("cookie", "cookie", True, "color=", "color=blue", "color=blue; color=black; color=brown", "R=100; G=200; B=150"),
]


@pytest.mark.covers("OA-11.2")
@cases(
    ("location", "style", "explode", "value", "written"),
    [
        (location, style, explode, value, written)
        for location, style, explode, *columns in STYLE_EXAMPLES
        for value, written in zip((None, STRING, ARRAY, OBJECT), columns, strict=True)
        if written is not None
    ],
)
def test_the_style_examples_of_the_specification(
    location: str, style: str, explode: bool, value: Any, written: str
) -> None:
    assert WRITERS[location](parameter("color", location, style=style, explode=explode))(value) == written


@pytest.mark.covers("OA-11.2")
@cases(
    ("location", "style", "explode", "value", "written"),
    [
        (location, style, explode, value, written)
        for location, style, explode, *columns in STYLE_EXAMPLES
        for value, written in zip((STRING, ARRAY, OBJECT), columns[1:], strict=True)
        if written is not None
    ],
)
def test_the_style_examples_from_the_description_to_the_request(
    location: str, style: str, explode: bool, value: Any, written: str
) -> None:
    made = {"name": "color", "in": location, "required": True, "style": style, "explode": explode, "schema": {}}
    described = api({"parameters": [made]}, "3.2.0", at="get /x/{color}/y" if location == "path" else "get /x")
    request = RequestBuilder(tool_of(described), "https://api.test").build({"color": value})
    if location == "path":
        assert request.url == f"https://api.test/x/{written}/y"
    elif location == "query":
        assert request.url == f"https://api.test/x?{written}"
    else:
        assert request.headers[location if location == "cookie" else "color"] == written


# The examples of "Parameter Object Examples" and of the appendices B to E of 3.2.0.
PRINTED_EXAMPLES: list[tuple[Any, Any, str]] = [
    (parameter("X-Token", "header"), [12345678, 90099], "12345678,90099"),
    (
        parameter("cookie", "cookie", style="cookie"),
        {"greeting": "Hello%2C world!", "code": 42},
        "greeting=Hello%2C world!; code=42",
    ),
    (parameter("greeting", "cookie"), "Hello, world!", "greeting=Hello%2C%20world%21"),
    (parameter("username", "path"), "edijkstra", "edijkstra"),
    (parameter("username", "path"), "diṅnāga", "di%E1%B9%85n%C4%81ga"),
    (
        parameter("username", "path"),
        "الخوارزميّ",
        "%D8%A7%D9%84%D8%AE%D9%88%D8%A7%D8%B1%D8%B2%D9%85%D9%8A%D9%91",
    ),
    (parameter("thing", "query"), ["one thing", "another thing"], "thing=one%20thing&thing=another%20thing"),
    (parameter("freeForm", "query"), {"page": 4, "pageSize": 50}, "page=4&pageSize=50"),
    (
        parameter("coordinates", "query", content="application/json"),
        {"lat": 10, "long": 60},
        "coordinates=%7B%22lat%22%3A10%2C%22long%22%3A60%7D",
    ),
    (parameter("formulas", "query"), {"a": "x+y", "b": "x/y", "c": "x^y"}, "a=x%2By&b=x%2Fy&c=x%5Ey"),
    (
        # The value has no triplet: a caller of a tool does not encode `+` by hand, as the appendix does.
        parameter("formulas", "query", allow_reserved=True),
        {"a": "x+y", "b": "x/y", "c": "x^y"},
        "a=x%2By&b=x/y&c=x%5Ey",
    ),
    (parameter("formulas", "query", allow_reserved=True), {"a": "x%2By", "b": "x/y"}, "a=x%2By&b=x/y"),
    (parameter("words", "query", explode=False), ["math", "is", "fun"], "words=math,is,fun"),
    (
        parameter("words", "query", style="spaceDelimited", explode=False),
        ["math", "is", "fun"],
        "words=math%20is%20fun",
    ),
    (parameter("formulas", "query"), {}, ""),
    (parameter("❤️", "query"), "love!", "%E2%9D%A4%EF%B8%8F=love%21"),
]


@pytest.mark.covers("OA-11.2")
@cases(("made", "value", "written"), PRINTED_EXAMPLES)
def test_the_printed_examples(made: Any, value: Any, written: str) -> None:
    assert WRITERS[made.location](made)(value) == written


@cases(
    ("media_type", "value", "written"),
    [
        ("application/x-www-form-urlencoded", {"foo": "a + b", "bar": True}, "foo=a+%2B+b&bar=true"),
        (
            "application/json",
            {"numbers": [1, 2], "flag": None},
            "%7B%22numbers%22%3A%5B1%2C2%5D%2C%22flag%22%3Anull%7D",
        ),
        ("text/plain", "a=b&c=d e#f", "a=b&c=d%20e%23f"),
    ],
)
def test_a_parameter_that_is_the_whole_query(media_type: str, value: Any, written: str) -> None:
    made = parameter("q", "querystring", content=media_type)
    assert query_string_serializer(made, form_writer(made.encoding))(value) == written


def test_the_encoding_of_a_whole_query_is_that_of_a_form() -> None:
    encoding = {"color": EncodingObject(style="deepObject")}
    assert form_writer(encoding)({"color": {"R": 1}, "a b": ["x y", 2]}) == "color%5BR%5D=1&a+b=x+y&a+b=2"


@cases(
    ("made", "value", "written"),
    [
        # The specification leaves these open.
        (parameter("q", "query"), True, "q=true"),
        (parameter("q", "query"), 1.5, "q=1.5"),
        (parameter("q", "query"), [1, None, {"a": 1}], "q=1&q=%7B%22a%22%3A1%7D"),
        (parameter("q", "query"), {"a": None, "b": [1, 2]}, "b=%5B1%2C2%5D"),
        (parameter("q", "query", style="pipeDelimited", explode=True), ["a", "b"], "q=a&q=b"),
        (parameter("q", "query", style="deepObject"), "blue", "q=blue"),
        (
            parameter("q", "query", style="deepObject"),
            {"a": {"b": 1, "c": None}, "d": [1, 2], "e": [{"f": 3}]},
            "q%5Ba%5D%5Bb%5D=1&q%5Bd%5D%5B%5D=1&q%5Bd%5D%5B%5D=2&q%5Be%5D%5B0%5D%5Bf%5D=3",
        ),
        (parameter("q", "path", content="application/json"), {"a/b": 1}, "%7B%22a%2Fb%22%3A1%7D"),
        (parameter("q", "header", content="application/json"), {"a": "é"}, '{"a":"\\u00e9"}'),
        (parameter("q", "header", content="text/plain"), "x", "x"),
        (parameter("q", "cookie", explode=True), ["a b", "c"], "q=a%20b; q=c"),
        (parameter("q", "cookie", content="application/json"), {"a": 1}, "q=%7B%22a%22%3A1%7D"),
        (parameter("q", "path", allow_reserved=True), "a/b?c#d:e%2Ff%", "a%2Fb%3Fc%23d:e%2Ff%25"),
        # Empty values.
        (parameter("q", "query"), "", "q="),
        (parameter("q", "query"), [], ""),
        (parameter("q", "query", explode=False), [], ""),
        (parameter("q", "query", explode=False), {}, ""),
        (parameter("q", "query", allow_empty_value=True), [], "q="),
        (parameter("q", "query", allow_empty_value=True), "", "q="),
        (parameter("q", "query", allow_empty_value=True), "a", "q=a"),
    ],
)
def test_what_the_specification_leaves_open(made: Any, value: Any, written: str) -> None:
    assert WRITERS[made.location](made)(value) == written


@cases("location", ["query", "cookie"])
@cases("value", [[], {}, [None]])
def test_a_required_parameter_is_never_left_out(location: str, value: Any) -> None:
    builder = RequestBuilder(define("GET", "/things", parameter("q", location, required=True)), "https://api.test")
    with pytest.raises(ToolError, match="'q' is required, and a request cannot carry it without items"):
        builder.build({"q": value})
    builder.build({"q": [1]})
    optional = RequestBuilder(define("GET", "/things", parameter("q", location)), "https://api.test")
    assert optional.build({"q": value}).url == "https://api.test/things"
    if location == "query":
        empty = parameter("q", location, required=True, allow_empty_value=True)
        builder = RequestBuilder(define("GET", "/things", empty), "https://api.test")
        assert builder.build({"q": value}).url == "https://api.test/things?q="


@cases("value", ["a\r\nx-admin: 1", "a\nb", "a\0b", "\x7f", "é", {"a\nb": 1}, ["a", "b\r"]])
def test_control_characters_are_refused_in_headers(value: Any) -> None:
    with pytest.raises(ToolError, match="control characters"):
        header_serializer(parameter("X-Thing", "header"))(value)


@cases("value", ["a; admin=1", "a\r\nb", {"a=b": 1}, {"a;b": 1}, "é"])
def test_a_cookie_cannot_be_left(value: Any) -> None:
    with pytest.raises(ToolError, match="cookie"):
        cookie_serializer(parameter("c", "cookie", style="cookie"))(value)


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_in_a_path_stays_one_segment_and_is_read_back(text: str) -> None:
    for reserved in (False, True):
        written = path_serializer(parameter("id", "path", allow_reserved=reserved))(text)
        assert not set(written) & set("/?#\\ ;[]")
        assert reserved or unquote(written) == text


@given(st.text(st.characters(exclude_categories=("Cs",))), st.booleans())
def test_any_text_in_a_query_stays_one_value(text: str, reserved: bool) -> None:
    written = query_serializer(parameter("q", "query", allow_reserved=reserved))(text)
    assert written.startswith("q=")
    assert not set(written[2:]) & set("&=#+ []")


@cases(
    ("location", "style", "written"),
    [
        ("query", "tabDelimited", "color=blue%09black%09brown"),
        ("path", "spaceDelimited", "blue%20black%20brown"),
        ("path", "pipeDelimited", "blue%7Cblack%7Cbrown"),
        ("header", "spaceDelimited", "blue black brown"),
        ("header", "tabDelimited", "blue\tblack\tbrown"),
    ],
)
def test_separators_of_swagger_2(location: str, style: str, written: str) -> None:
    assert WRITERS[location](parameter("color", location, style=style, explode=False))(ARRAY) == written
