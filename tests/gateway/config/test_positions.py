"""Lines of keys."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from tests.cases import cases

from toolwire.gateway.config.positions import KeyPath, lines_of

TOML = '''a = 1 # [not.a.table]
"x.y" = """
[z]
b = 2 \\"""
"""
[b.c]
d.e = [ 1,
 {f = 2, g.h = [3]},
 "]", """
=""", # ]
 1.5 ]
[[t]]
n = 1.5
'q"' = '#'
[t.u]
v = 1979-05-27 07:32:00
[[t]]
n = -inf
[ t . "u" ]
w = {}
'''
JSON = '{"a": {\n"b":[1,\n{"c":"x\\"{\\n"}]},\n "d\\u00e9":\nnull, "e": {}, "f": []}'


def ways(value: Any, way: KeyPath = ()) -> set[KeyPath]:
    """Return the ways to all values inside a value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {way, *(each for step, inner in members for each in ways(inner, (*way, step)))}


@pytest.mark.parametrize("is_toml", [True, False])
def test_every_key_has_a_line(is_toml: bool) -> None:
    lines = lines_of(TOML if is_toml else JSON, is_toml=is_toml)
    values = tomllib.loads(TOML) if is_toml else json.loads(JSON)
    assert lines.keys() == ways(values) - {()}


@cases(
    ("is_toml", "key", "line"),
    [
        (True, ("x.y",), 2),
        (True, ("b", "c"), 6),
        (True, ("b", "c", "d", "e"), 7),
        (True, ("b", "c", "d", "e", 1, "g", "h"), 8),
        (True, ("b", "c", "d", "e", 4), 11),
        (True, ("t", 0, 'q"'), 14),
        (True, ("t", 0, "u", "v"), 16),
        (True, ("t", 1), 17),
        (True, ("t", 1, "u", "w"), 20),
        (False, ("a", "b"), 2),
        (False, ("a", "b", 1, "c"), 3),
        (False, ("dé",), 4),
        (False, ("e",), 5),
    ],
)
def test_the_line_of_a_key(is_toml: bool, key: KeyPath, line: int) -> None:
    assert lines_of(TOML if is_toml else JSON, is_toml=is_toml)[key] == line


def test_no_line_rather_than_a_wrong_one() -> None:
    assert lines_of("[" * 5_000 + "]" * 5_000, is_toml=False) == {}
