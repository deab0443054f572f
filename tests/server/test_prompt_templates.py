from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.server.prompt_templates import PromptText, fill, placeholders


@pytest.mark.covers("J46")
def test_placeholders_are_replaced_by_the_arguments() -> None:
    assert fill("Weather in {city}, {days} days.", {"city": "Oslo", "days": 3}) == "Weather in Oslo, 3 days."
    assert fill("{city}{city}", {"city": "Oslo"}) == "OsloOslo"
    assert fill("{größe}", {"größe": "7"}) == "7"


def test_what_is_not_given_is_left_empty() -> None:
    assert fill("In {city}!", {}) == "In !"
    assert fill("In {city}!", {"city": None}) == "In !"
    assert fill("In {city}!", {"city": "", "other": "x"}) == "In !"


def test_names_in_order_of_first_appearance() -> None:
    assert placeholders("{b} {?c}{a}{/c} {b} {{d}} {1} { e } {f.g} {}") == ["b", "c", "a"]
    assert PromptText("none").placeholders == []


@cases(
    ("text", "expected"),
    [
        ("{{city}}", "{city}"),
        ("{{{city}}}", "{Oslo}"),
        ("{{?city}}", "{?city}"),
        ("{{ x }} and }}", "{ x } and }}"),
        ('{{"a": {{"b": 1}}}}', '{"a": {"b": 1}}'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": {"b": {"c": 1}}}', '{"a": {"b": {"c": 1}}}'),
        ('{"city": "{city}"}', '{"city": "Oslo"}'),
        ('{"a": {"city": {city}}}', '{"a": {"city": Oslo}}'),
        ("{ city } {city.name} {city!r} {city:>9} {0} {} { }", "{ city } {city.name} {city!r} {city:>9} {0} {} { }"),
        ("} { {", "} { {"),
        ("{?a,b} {/a/b}", "{?a,b} {/a/b}"),
    ],
)
def test_braces(text: str, expected: str) -> None:
    assert fill(text, {"city": "Oslo"}) == expected


SCALARS = st.none() | st.booleans() | st.integers() | st.text("a}?/ ")


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner)))
def test_json_survives(value: object) -> None:
    text = json.dumps(value, separators=(",", ":"))
    assert fill(text, {}) == text


@given(st.text(), st.text())
def test_values_are_inserted_as_they_are(value: str, other: str) -> None:
    assert fill("<{a}|{b}>", {"a": value, "b": other}) == f"<{value}|{other}>"


def test_values_are_never_searched_for_placeholders() -> None:
    assert fill("{a} {b}", {"a": "{b}", "b": "{{a}} {?a}"}) == "{b} {{a}} {?a}"


def test_a_block_appears_only_when_its_argument_is_given() -> None:
    text = PromptText("Weather{?city} in {city}{/city}{?days} for {days} days{/days}.")
    assert text.fill({}) == "Weather."
    assert text.fill({"city": "Oslo"}) == "Weather in Oslo."
    assert text.fill({"days": "3"}) == "Weather for 3 days."
    assert text.fill({"city": "Oslo", "days": "3"}) == "Weather in Oslo for 3 days."
    assert text.placeholders == ["city", "days"]


def test_blocks_nest() -> None:
    text = PromptText("{?a}A{?b}B{/b}a{/a}.{?a}{?a}!{/a}{/a}")
    assert text.fill({"a": "1", "b": "1"}) == "ABa.!"
    assert text.fill({"a": "1"}) == "Aa.!"
    assert text.fill({"b": "1"}) == "."


@cases(
    ("text", "position"),
    [("ab{/a}", 2), ("{?a}x", 0), ("{?a}{?b}{/a}{/b}", 8), ("{?a}{/a}{/a}", 8), ("{?a}{?b}{/b}", 0)],
)
def test_blocks_out_of_order_are_refused_with_their_position(text: str, position: int) -> None:
    with pytest.raises(ValueError, match=rf"position {position}\b"):
        PromptText(text)
