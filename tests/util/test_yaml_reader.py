"""YAML documents as JSON values: the core schema of YAML 1.2, aliases, merge keys, duplicate keys, limits, lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.openapi.description.places import first_duplicate, json_positions, line_of
from toolwire.util.yaml_reader import YamlError, read_yaml, yaml_positions


def read(text: str | bytes, *, max_depth: int = 20, max_values: int = 1000) -> Any:
    data = text.encode() if isinstance(text, str) else text
    return read_yaml(data, max_depth=max_depth, max_values=max_values)


def refused(text: str | bytes, **limits: int) -> YamlError:
    with pytest.raises(YamlError) as caught:
        read(text, **limits)
    return caught.value


@cases(
    ("text", "value"),
    [
        ("a: 2026-09-13", {"a": "2026-09-13"}),  # A date stays a text.
        ("a: yes", {"a": "yes"}),
        ("a: 12:30", {"a": "12:30"}),
        ("a: 9223372036854775807", {"a": 9223372036854775807}),
        ("a: '1'\nb: 1\nc: 1.5\nd: true\ne: ~\nf:", {"a": "1", "b": 1, "c": 1.5, "d": True, "e": None, "f": None}),
        ("200:\n  x: 1\ntrue: 2\n~: 3", {"200": {"x": 1}, "true": 2, "~": 3}),  # Keys are strings.
        ("- [1, {a: b}]\n- []\n- {}", [[1, {"a": "b"}], [], {}]),
        ("a: !!str 200\nb: !!int 7\nc: ! 8\nd: !!map {}", {"a": "200", "b": 7, "c": "8", "d": {}}),
        ("a: &x {b: 1}\nc: *x\nd: &y k\n*y : 2", {"a": {"b": 1}, "c": {"b": 1}, "d": "k", "k": 2}),
        # The merge key: members that are written out win, before or after it, and so do earlier mappings.
        ("x: &x {a: 1, b: 2}\ny: {b: 3, <<: *x, a: 4}", {"x": {"a": 1, "b": 2}, "y": {"b": 3, "a": 4}}),
        ("[&x {a: 1}, &y {a: 2, b: 3}, {<<: [*x, *y]}]", [{"a": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 3}]),
        ("", None),
        ("# nothing", None),
        ("\ufeffa: 1", {"a": 1}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
    ],
)  # fmt: skip
def test_a_text_has_the_meaning_of_yaml_1_2(text: str, value: Any) -> None:
    assert read(text) == value


@cases(
    ("text", "line", "column", "problem"),
    [
        ("a: 1\nb: 2\na: 3", 3, 1, "the key 'a' stands here twice"),
        ("a:\n  - {x: 1, x: 2}", 2, 12, "the key 'x' stands here twice"),
        ("x: &x {a: 1}\ny: {<<: *x, a: 1, a: 2}", 2, 19, "the key 'a' stands here twice"),
        ("a: *x", 1, 4, "*x has no anchor before it"),
        ("a: &x [*x]", 1, 8, "*x stands inside its own value"),
        ("a: !python/object:os.system x", 1, 4, "is a tag that JSON lacks"),
        ("a: !!timestamp 2026-01-01", 1, 4, "timestamp is a tag that JSON lacks"),
        ("a: !x {}", 1, 4, "is a tag that JSON lacks"),
        ("? [a]\n: 1", 1, 3, "a key is not a string"),
        ("a: &x []\n*x : 1", 2, 1, "a key is not a string"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document begins"),
        ("a: .nan", 1, 4, ".nan is not a number that JSON has"),
        ("a: 1e999", 1, 4, "1e999 is larger than"),
        ("a: {<<: [1]}", 1, 11, "a merge key takes mappings"),
        ("a: [1\nb: 2", 2, 2, "this is not YAML"),
        ("a: b: c", 1, 5, "this is not YAML"),
        ('a: "\\ud800"', 1, 7, "this is not YAML")
        if hasattr(yaml, "CSafeLoader")
        else ('a: "\\ud800"', 1, 4, "half of a character"),
        (b"a: 1\nb: \xff", 2, 1, "this is not text in YAML"),
        ("a: 1\nb: \x01", 2, 1, "this is not text in YAML"),
    ],
)
def test_text_without_one_meaning_is_refused_with_its_place(
    text: str | bytes, line: int, column: int, problem: str
) -> None:
    error = refused(text)
    assert problem in error.problem
    assert (error.line, error.column) == (line, column)
    assert error.remedy


def test_aliases_share_their_value_and_are_counted() -> None:
    value = read("a: &x [1, 2]\nb: *x\nc: *x")
    assert value["b"] is value["a"]
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join(['*' + above] * 9)}]\n"
        for above, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    error = refused(bomb, max_values=100_000)
    assert "more than 100,000 values, those that aliases repeat included" in error.problem
    assert error.line == 6
    # Just as many as are allowed: three in the list, the list itself and the mapping, and four for the alias.
    text = "a: &x [1, 2, 3]\nb: *x"
    assert read(text, max_values=9) == {"a": [1, 2, 3], "b": [1, 2, 3]}
    assert refused(text, max_values=8).line == 2


def test_depth_is_bounded_before_it_is_read() -> None:
    assert read("[" * 20 + "]" * 20) is not None
    assert "nested more than 20 deep" in refused("[" * 21 + "]" * 21).problem
    assert "nested more than 20 deep" in refused("[" * 100_000).problem
    assert "nested more than 20 deep" in refused("\n".join(" " * at + f"k{at}:" for at in range(30))).problem


# Characters that YAML takes as they are, without those that begin a new line in YAML 1.1.
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cn", "Co", "Cs", "Zl", "Zp"), exclude_characters="\ufeff"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT.filter("<<".__ne__), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_json_has_the_same_meaning_as_yaml(value: Any) -> None:
    assert read(msgspec.json.encode(value), max_depth=100, max_values=10_000) == value


@given(JSON)
def test_lines_are_those_of_the_text(value: Any) -> None:
    data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    lines = data.split(b"\n")
    for depth, key, line in json_positions(data):
        text = lines[line - 1]
        assert len(text) - len(text.lstrip(b" ")) == 2 * depth
        assert text.lstrip(b" ").startswith(msgspec.json.encode(key)) or key.isdecimal()
    assert first_duplicate(data) is None


def test_both_readers_of_positions_agree() -> None:
    text = b'{"a": [1, {"b": "x"}, []],\n "c": {"d/e": null,\n "f": [[2]]}, "g": "{"}'
    found = list(json_positions(text))
    assert found == list(yaml_positions(text))
    assert found[:3] == [(1, "a", 1), (2, "0", 1), (2, "1", 1)]
    assert [line_of(text, pointer) for pointer in ("", "/c", "/c/d~1e", "/c/f/0/0", "/c/none/x")] == [1, 2, 2, 3, 2]


def test_a_duplicate_key_is_found_where_it_stands() -> None:
    assert first_duplicate(b'{"a": {"x": 1},\n "b": {"x": 1, "y": [{"z": 1}, {"z": 2}]},\n "\\u0061": 2}') == ("a", 3)
    assert first_duplicate(b'[{"a": 1}, {"a": 1, "b": {"a": 1}}]') is None
