"""Smaller forms of JSON values."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.openapi.answer.previews import closed_json, members_in_words, outline, smaller

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=40,
)


def is_part(part: Any, whole: Any) -> bool:
    """Return whether a value has the shape of another one, and nothing that the other has not."""
    if isinstance(whole, str):
        return isinstance(part, str) and (part == whole or whole.startswith(part.removesuffix("…")))
    if isinstance(whole, list):
        return isinstance(part, list) and all(is_part(*pair) for pair in zip(part, whole, strict=False))
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(name in whole and is_part(part[name], whole[name]) for name in part)
    return bool(part == whole)


@given(VALUES, st.integers(0, 400))
def test_a_smaller_value_has_the_same_shape(value: Any, room: int) -> None:
    made = smaller(value, room)
    assert is_part(made, value)
    # What has room stays whole.
    assert smaller(value, 100_000) == value


def test_a_smaller_value_is_about_as_large_as_its_room() -> None:
    rows = [{"id": number, "name": f"pet {number}", "tags": ["a", "b"], "notes": "x" * 80} for number in range(5_000)]
    value = {"items": rows, "total": 5_000, "next": None}
    for room in (200, 2_000, 20_000):
        made = smaller(value, room)
        assert room / 2 < len(msgspec.json.encode(made)) < room * 1.2
        assert (made["total"], made["items"][0]["id"]) == (5_000, 0)
    assert smaller(["x" * 1_000], 100)[0].endswith("…")


@given(VALUES, st.data())
def test_a_text_that_breaks_off_is_closed(value: Any, data: st.DataObject) -> None:
    text = msgspec.json.encode([value])
    cut = text[: data.draw(st.integers(1, len(text)))]
    made = closed_json(cut)
    assert is_part(made, [value])
    assert closed_json(text) == [value]


@cases("text", [b"", b'"abc', b"12", b'{"a":1]', b"]", b"<html>", b'{"a" 1, 2', b"\xff[\xff,"])
def test_other_texts_have_no_beginning(text: bytes) -> None:
    assert closed_json(text) is None


def test_a_deep_text_is_closed_in_time() -> None:
    made, depth = closed_json(b"[" * 100_000), 0
    while made:
        made, depth = made[0], depth + 1
    assert depth == 64
    assert closed_json(b'{"a":' * 60 + b'"x') is not None


def test_the_outline_names_counts_and_members() -> None:
    value = {"items": [{"id": 1, "na\nme": "x"}] * 50, "total": 50}
    said = outline(value, {"items": value["items"][:2], "total": 50})  # type: ignore[index]
    assert said == (
        "It is an object with the members items, total. `items` has 50 items; 2 are shown. "
        "The first item has the members id, na\\nme."
    )
    assert outline([1, 2, 3], [1], is_beginning=True) == "It is a list of more than 3 items; 1 are shown."
    assert members_in_words({str(number): 1 for number in range(30)}).endswith("19 and 10 more.")
    assert members_in_words("x") == "It is neither an object nor a list."
