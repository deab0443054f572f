"""JSONPath: the examples that RFC 9535 prints, texts that are no query, and bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.openapi.description.json_path import MAX_NESTING, MAX_QUERY, JsonPath, JsonPathError
from toolwire.protocol.steps import Steps, TooManySteps

# The document of figure 1, and those of the examples in section 2.3.
STORE: dict[str, Any] = {
    "store": {
        "book": [
            {"category": "reference", "author": "Nigel Rees", "title": "Sayings of the Century", "price": 8.95},
            {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword of Honour", "price": 12.99},
            {"category": "fiction", "author": "Herman Melville", "title": "Moby Dick",
             "isbn": "0-553-21311-3", "price": 8.99},
            {"category": "fiction", "author": "J. R. R. Tolkien", "title": "The Lord of the Rings",
             "isbn": "0-395-19395-8", "price": 22.99},
        ],
        "bicycle": {"color": "red", "price": 399},
    }
}  # fmt: skip
BOOKS = STORE["store"]["book"]
LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
NAMES: dict[str, Any] = {"o": {"j j": {"k.k": 3}}, "'": {"@": 2}, "x-logo": {"url": 1}}
FILTERED: dict[str, Any] = {
    "a": [3, 5, 1, 2, 4, 6, {"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}],
    "o": {"p": 1, "q": 2, "r": 3, "s": 5, "t": {"u": 6}},
    "e": "f",
}
NESTED: dict[str, Any] = {"o": {"j": 1, "k": 2}, "a": [5, 3, [{"j": 4}, {"k": 6}]]}
NULLS: dict[str, Any] = {"a": None, "b": [None], "c": [{}], "null": 1}


def selected(query: str, document: Any, steps: int = 100_000) -> list[Any]:
    return [found.value for found in JsonPath(query).select(document, Steps(steps))]


@cases(
    ("document", "query", "values"),
    [
        (STORE, "$.store.book[*].author", [each["author"] for each in BOOKS]),
        (STORE, "$..author", [each["author"] for each in BOOKS]),
        (STORE, "$.store.*", [BOOKS, STORE["store"]["bicycle"]]),
        (STORE, "$.store..price", [8.95, 12.99, 8.99, 22.99, 399]),
        (STORE, "$..book[2]", [BOOKS[2]]),
        (STORE, "$..book[2].publisher", []),
        (STORE, "$..book[-1]", [BOOKS[3]]),
        (STORE, "$..book[0,1]", BOOKS[:2]),
        (STORE, "$..book[:2]", BOOKS[:2]),
        (STORE, "$..book[?@.isbn]", BOOKS[2:]),
        (STORE, "$..book[?@.price<10]", [BOOKS[0], BOOKS[2]]),
        (STORE, "$..book[?(@.price < 10 && @.category == 'fiction')]", [BOOKS[2]]),
        (STORE, "$..book[?@.price > $.store.bicycle.price]", []),
        (STORE, "$..book[?match(@.author, '.*Tolkien')].title", ["The Lord of the Rings"]),
        (STORE, "$..book[?length(@.title) == 9]", [BOOKS[2]]),
        (STORE, "$[?count(@.book[*]) >= 4].bicycle.color", ["red"]),
        (STORE, "$..book[?value(@..isbn) == '0-395-19395-8'].price", [22.99]),
        (NAMES, "$.o['j j']['k.k']", [3]),
        (NAMES, '$["\'"]["@"]', [2]),
        (NAMES, "$['\\'']['\\u0040']", [2]),
        (NAMES, "$ [ 'o' ] .['j j']"[:9], [NAMES["o"]]),
        (NAMES, "$.x-logo.url", [1]),
        (LETTERS, "$[1:3]", ["b", "c"]),
        (LETTERS, "$[5:]", ["f", "g"]),
        (LETTERS, "$[1:5:2]", ["b", "d"]),
        (LETTERS, "$[5:1:-2]", ["f", "d"]),
        (LETTERS, "$[::-1]", LETTERS[::-1]),
        (LETTERS, "$[::0]", []),
        (LETTERS, "$[-1]", ["g"]),
        (LETTERS, "$[7]", []),
        (LETTERS, "$[0, 0]", ["a"]),  # For an overlay each value is there once.
        (FILTERED, "$.a[?@.b == 'kilo']", [{"b": "kilo"}]),
        (FILTERED, "$.a[?@>3.5]", [5, 4, 6]),
        (FILTERED, "$.a[?@.b]", [{"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}]),
        (FILTERED, "$[?@.*]", [FILTERED["a"], FILTERED["o"]]),
        (FILTERED, "$[?@[?@.b]]", [FILTERED["a"]]),
        (FILTERED, "$.o[?@<3, ?@<3]", [1, 2]),
        (FILTERED, '$.a[?@<2 || @.b == "k"]', [1, {"b": "k"}]),
        (FILTERED, '$.a[?match(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}]),
        (FILTERED, '$.a[?search(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}, {"b": "kilo"}]),
        (FILTERED, "$.o[?@>1 && @<4]", [2, 3]),
        (FILTERED, "$.o[?@.u || @.x]", [{"u": 6}]),
        (FILTERED, "$.a[?!@.b]", [3, 5, 1, 2, 4, 6]),
        (FILTERED, "$.a[?@.b == $.x]", [3, 5, 1, 2, 4, 6]),
        (FILTERED, "$.a[?!(@ == 3)][?@ == 'j']", ["j"]),
        (NESTED, "$..j", [1, 4]),
        (NESTED, "$..[0]", [5, {"j": 4}]),
        (NESTED, "$.o..[*, *]", [1, 2]),
        (NULLS, "$.a", [None]),
        (NULLS, "$.a.d", []),
        (NULLS, "$.b[?@==null]", [None]),
        (NULLS, "$.c[?@.d==null]", []),
        (NULLS, "$.null", [1]),
        ([True, 1, 1.0, "1"], "$[?@ == 1]", [1, 1.0]),
        ([True, 1], "$[?@ == true]", [True]),
        ([[1], [1.0], {"a": [None]}], "$[?@ == $[0]]", [[1], [1.0]]),
        ([{"a": 1}, {"a": True}, {"b": 1}], "$[?@ == $[0]]", [{"a": 1}]),
        (["a\r", "ab", "a.", "a"], "$[?match(@, 'a.')]", ["ab", "a."]),
        (["a.", "ab"], "$[?match(@, 'a[.]')]", ["a."]),
        (["x"], "$[?match(@, '(')]", []),  # An expression that is none.
        (7, "$", [7]),
        (7, "$.a[0][*]..b[?@]", []),
    ],
)
def test_queries(document: Any, query: str, values: list[Any]) -> None:
    found = selected(query, document)
    assert sorted(map(repr, found)) == sorted(map(repr, values))


def test_a_value_knows_its_place() -> None:
    (found,) = JsonPath("$.paths['/a~b'].get.tags[-1]").select(
        {"paths": {"/a~b": {"get": {"tags": ["x", "y"]}}}}, Steps(100)
    )
    assert (found.value, found.pointer) == ("y", "/paths/~1a~0b/get/tags/1")


@cases(
    ("query", "column"),
    [
        ("", 1), ("paths", 1), ("$.", 3), ("$..", 4), ("$...a", 4), ("$[", 3), ("$[]", 3), ("$['a'", 6), ("$['a]", 6),
        ("$['\\x']", 6), ("$['\\ud800']", 10), ("$['\\u00']", 6), ("$[01]", 3), ("$[-0]", 3),
        ("$[9007199254740992]", 3),
        ("$[99999999999999999999]", 3), ("$.a b", 4), ("$ ", 2), ("$[?]", 4), ("$[?1]", 5), ("$[?'a']", 7),
        ("$[?@.a==]", 9), ("$[?@.*==1]", 10), ("$[?@.a==@..b]", 13), ("$[?(@.a]", 8), ("$[?!1==1]", 6),
        ("$[?foo(@)]", 7), ("$[?length(@)]", 13), ("$[?length(@.*)>1]", 10), ("$[?count(1)>1]", 9),
        ("$[?match(@.a)]", 9), ("$[?match(@,'a')==true]", 22), ("$[1:2:3:4]", 8), ("$[1 2]", 5), ("$./pets", 3),
        ("$['\n']", 4), ("$[?length(@ @)>1]", 13),
    ],
)  # fmt: skip
def test_a_text_that_is_no_query_is_refused_at_its_column(query: str, column: int) -> None:
    with pytest.raises(JsonPathError) as caught:
        JsonPath(query)
    assert caught.value.column == column, str(caught.value)
    assert f"at column {column}" in str(caught.value)


def test_queries_are_bounded() -> None:
    with pytest.raises(JsonPathError, match="too long"):
        JsonPath("$" + ".a" * MAX_QUERY)
    for open_, close in (("[?@", "]"), ("[?(@", ")]"), ("[?!(@", ")]")):
        with pytest.raises(JsonPathError, match="deep at most"):
            JsonPath(f"${open_ * (MAX_NESTING + 1)}@{close * (MAX_NESTING + 1)}")
    wide = [[[0] * 20] * 20] * 20
    with pytest.raises(TooManySteps):
        selected("$..[?@..[?@..[?@ == 1]]]", wide, steps=50_000)
    with pytest.raises(TooManySteps):
        selected("$[?@ == $[0]]", [list(range(1000))] * 1000, steps=50_000)
    # A hostile expression takes linear time, or is none.
    assert selected("$[?match(@, '(a*)*b')]", ["a" * 50_000], steps=50_000) == []


@given(st.text(alphabet="$.[]*?@'\"\\:,()!<>=&|ab01-_ ulength", max_size=40))
def test_any_text_is_a_query_or_refused(text: str) -> None:
    try:
        query = JsonPath("$" + text)
    except JsonPathError as error:
        assert 1 <= error.column <= len(text) + 2
        return
    query.select(STORE, Steps(1_000_000))
