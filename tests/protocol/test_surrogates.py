"""Text with halves of surrogate pairs, which UTF-8 cannot carry."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases

from toolwire.protocol.jsonrpc import encode_error, encode_notification, encode_response
from toolwire.protocol.surrogates import encode_readable, readable, readable_error

text = st.text(st.characters(exclude_categories=()))
values = st.recursive(st.none() | st.integers(-9, 9) | text, lambda each: st.lists(each) | st.dictionaries(text, each))


@given(values)
def test_whatever_text_is_made_of_is_encoded(value: Any) -> None:
    assert json.loads(encode_readable(value)) == readable(value)


@given(st.text())
def test_good_text_stays_as_it_is(good: str) -> None:
    assert readable([good, "\udc80"]) == [good, "\ufffd"]


def test_halves_that_belong_together_are_joined() -> None:
    assert readable("\ud83d\ude00") == "\N{GRINNING FACE}"


def test_what_is_json_already_stays() -> None:
    assert json.loads(encode_readable({"\udc80": Raw(b'{"a":[1,2.5]}')})) == {"\ufffd": {"a": [1, 2.5]}}


def test_what_is_no_json_value_is_refused_as_ever() -> None:
    with pytest.raises(TypeError):
        encode_readable(["\udc80", object()])


def test_messages_of_every_kind() -> None:
    bad, good = {"a": "x\udc80"}, {"a": "x\ufffd"}
    assert msgspec.json.decode(encode_response(1, bad)) == {"jsonrpc": "2.0", "id": 1, "result": good}
    assert msgspec.json.decode(encode_notification("n", bad))["params"] == good
    error = msgspec.json.decode(encode_error(1, -1, "no \udc80", bad))["error"]
    assert error == {"code": -1, "message": "no \ufffd", "data": good}


def test_error_is_encoded_without_data_that_is_not_json() -> None:
    for code, data in ((-32000, {"path": object()}), (10**30, {"\ud800": object()})):
        error = msgspec.json.decode(encode_error(1, code, "no \ud800", data))["error"]
        assert error["message"] == "no \ufffd" and "data" not in error


def test_values_of_a_hook_are_mended() -> None:
    assert readable({"a": 1j, "b": "\udc80"}, lambda value: [str(value), "\udc81"]) == {
        "a": ["1j", "\ufffd"],
        "b": "\ufffd",
    }


@cases(("code", "kept"), [(-32000, -32000), (2**53 - 1, 2**53 - 1), (2**53, -32603), (-(2**60), -32603), (0.5, -32603)])
def test_code_of_an_error_is_an_integer_that_json_carries(code: Any, kept: int) -> None:
    assert readable_error(code, "text", UNSET)[0] == kept
