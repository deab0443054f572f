"""JSON Pointers lead to the parts of a value, and hostile ones to nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.schemas.walking import at_reference
from toolwire.util.json_pointer import MISSING, at_pointer, escape_token, unescape_token


@given(st.dictionaries(st.text(), st.integers(), min_size=1))
def test_pointer_leads_to_member_of_any_name(value: dict[str, int]) -> None:
    for name, member in value.items():
        assert at_pointer({"list": [value]}, f"/list/0/{escape_token(name)}") == member
        assert unescape_token(escape_token(name)) == name


@cases("pointer", ["/x", "/list/9", "/list/-1", "/list/a", "/list/0/a/0", f"/list/{'0' * 5000}"])
def test_pointer_without_value_is_missing(pointer: str) -> None:
    assert at_pointer({"list": [{"a": 1}]}, pointer) is MISSING


@pytest.mark.parametrize("value", [None, False, [], {}])
def test_empty_value_is_not_missing(value: Any) -> None:
    assert at_pointer({"a": value}, "/a") == value


def test_reference_with_an_endless_index_leads_to_nothing() -> None:
    assert at_reference({"prefixItems": [{}]}, f"#/prefixItems/{'9' * 5000}") is None
