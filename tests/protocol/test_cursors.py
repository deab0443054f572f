from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.protocol.cursors import MAX_CURSOR_LENGTH, _checksum, decode_cursor, encode_cursor, page
from toolwire.protocol.sealing import encode_base64url

KEYS = st.text(max_size=20)


@given(st.text(max_size=100), KEYS)
def test_round_trip(kind: str, key: str) -> None:
    cursor = encode_cursor(kind, key)
    assert cursor
    assert decode_cursor(cursor, kind) == key


@pytest.mark.covers("PAG-2")
@given(st.text())
def test_whatever_we_did_not_make_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Unknown cursor"):
        decode_cursor(text, "tools")


@pytest.mark.covers("PAG-1")
def test_the_empty_cursor_is_a_cursor_and_not_one_of_ours() -> None:
    with pytest.raises(ValueError, match="Unknown cursor"):
        decode_cursor("", "tools")
    assert encode_cursor("tools", "") != ""


@pytest.mark.covers("PAG-2")
def test_a_changed_or_foreign_cursor_is_refused() -> None:
    cursor = encode_cursor("tools", "forecast")
    for index in range(len(cursor)):
        for other in "A", "z", "=", " ", "":
            if cursor[index] != other:
                with pytest.raises(ValueError):
                    decode_cursor(cursor[:index] + other + cursor[index + 1 :], "tools")
    with pytest.raises(ValueError):
        decode_cursor(cursor, "prompts")
    with pytest.raises(ValueError):
        decode_cursor(cursor + "=", "tools")


def test_a_forged_cursor_with_a_key_that_is_no_text_is_refused_like_any_other() -> None:
    forged = encode_base64url(_checksum("tools", b"\xff") + b"\xff")
    with pytest.raises(ValueError, match="Unknown cursor"):
        decode_cursor(forged, "tools")


def test_the_length_of_a_cursor_is_bounded() -> None:
    assert decode_cursor(encode_cursor("resources", "𝄞" * 8192), "resources") == "𝄞" * 8192
    with pytest.raises(ValueError, match="too long"):
        encode_cursor("resources", "x" * MAX_CURSOR_LENGTH)
    with pytest.raises(ValueError, match="Unknown cursor"):
        decode_cursor("A" * (MAX_CURSOR_LENGTH + 1), "resources")
    with pytest.raises(ValueError):
        encode_cursor("resources", "\ud800")


@pytest.mark.covers("J60")
@cases(
    ("after", "size", "keys", "next_after"),
    [
        (None, 2, ["a", "b"], "b"),
        (None, 3, ["a", "b", "c"], None),
        (None, 9, ["a", "b", "c"], None),
        ("a", 1, ["b"], "b"),
        ("a", 2, ["b", "c"], None),
        ("aa", 1, ["b"], "b"),
        ("c", 2, [], None),
        ("", 1, ["a"], "a"),
    ],
)
def test_a_page(after: str | None, size: int, keys: list[str], next_after: str | None) -> None:
    assert page(["a", "b", "c"], after, size) == (keys, next_after)


def test_a_page_of_nothing() -> None:
    assert page([], None, 5) == ([], None)
    assert page([], "x", 5) == ([], None)
    with pytest.raises(ValueError):
        page(["a"], None, 0)


@pytest.mark.covers("PAG-2")
@given(
    start=st.sets(KEYS),
    changes=st.lists(st.tuples(st.sets(KEYS), st.sets(KEYS)), max_size=30),
    size=st.integers(1, 4),
)
def test_pages_are_stable_while_items_come_and_go(
    start: set[str], changes: list[tuple[set[str], set[str]]], size: int
) -> None:
    now, always, seen = set(start), set(start), list[str]()
    after: str | None = None
    for added, removed in [*changes, *[(set[str](), set[str]())] * 200]:
        keys, after = page(sorted(now), after, size)
        seen += keys
        if after is None:
            break
        after = decode_cursor(encode_cursor("tools", after), "tools")
        now = (now | added) - removed
        always -= removed
    assert len(seen) == len(set(seen)), "no item is told twice"
    assert always <= set(seen), "no item that was there all along is skipped"
