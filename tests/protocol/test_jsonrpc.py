"""The envelope: what is read from a frame, which error its sender is owed, and what is written."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases

from toolwire.protocol import errors
from toolwire.protocol.jsonrpc import (
    EXPECT_REQUESTS,
    EXPECT_RESPONSES,
    Batch,
    ErrorObject,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    encode_batch,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    too_deep,
)

NOT_JSON = "The message is not valid JSON"
NOT_A_REQUEST = "The message is not a JSON-RPC 2.0 request"

# No surrogates: they have no UTF-8 form. Integers as wide as the wire carries exactly.
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
IDS = st.integers(-(2**200), 2**200) | TEXT


def plain(message: Any) -> Any:
    """A message with its raw parts read, to compare by value."""
    if isinstance(message, Batch):
        return [plain(item) for item in message.items]
    raw = {name: getattr(message, name) for name in message.__struct_fields__}
    return type(message), {
        name: json.loads(bytes(part)) if isinstance(part, Raw) else part for name, part in raw.items()
    }


# --- the kinds of message ---


@pytest.mark.covers("1.1.1")
def test_a_method_with_an_id_is_a_request() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}')
    assert plain(message) == (Request, {"id": 7, "method": "tools/call", "params": {"name": "x"}})


@pytest.mark.covers("1.1.1", "RPC-3")
def test_a_method_without_an_id_is_a_notification() -> None:
    message = decode(b'{"jsonrpc":"2.0","method":"notifications/x"}')
    assert plain(message) == (Notification, {"method": "notifications/x", "params": UNSET})


@pytest.mark.covers("1.1.1")
def test_a_result_is_a_response() -> None:
    assert plain(decode(b'{"jsonrpc":"2.0","id":"a","result":{}}')) == (Response, {"id": "a", "result": {}})


@pytest.mark.covers("1.1.4")
def test_an_error_has_a_code_a_message_and_any_data() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no","data":[1,null]}}')
    assert message == ErrorResponse(3, ErrorObject(-32602, "no", [1, None]))
    error = message.error.to_exception()  # type: ignore[union-attr]
    assert (error.code, error.message, error.data) == (-32602, "no", [1, None])


@pytest.mark.covers("1.1.4")
def test_an_error_without_data_has_none() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"no"}}')
    assert isinstance(message, ErrorResponse)
    assert message.error.to_exception().data is UNSET


@pytest.mark.covers("1.1.6", "2.1.18", "T-8")
@pytest.mark.parametrize("identifier", [b"", b'"id":null,'])
def test_an_absent_and_a_null_id_of_an_error_read_alike(identifier: bytes) -> None:
    message = decode(b'{"jsonrpc":"2.0",' + identifier + b'"error":{"code":-32700,"message":"no"}}')
    assert message == ErrorResponse(None, ErrorObject(-32700, "no"))


@pytest.mark.covers("1.1.7")
def test_unknown_members_of_the_envelope_are_ignored() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","trace":{"deep":[1]},"x":null}')
    assert plain(message) == (Request, {"id": 1, "method": "m", "params": UNSET})


# --- ids ---


@pytest.mark.covers("1.1.2", "RPC-2")
@cases("text", ["null", "true", "false", "1.0", "1.5", "1e3", "[1]", "{}", "9" * 6000, "9" * 10**6])
def test_an_id_is_a_string_or_an_integer(text: str) -> None:
    message = decode(b'{"jsonrpc":"2.0","id":' + text.encode() + b',"method":"m"}')
    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (-32600, None)


@pytest.mark.covers("1.1.2", "RPC-2")
def test_a_null_id_is_told_apart_from_none() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":null,"method":"m"}')
    assert message == Malformed(-32600, "A request id is a string or an integer, never null")


@pytest.mark.covers("1.1.2")
@cases("identifier", [0, -1, 2**63, -(2**63), 2**64, -(10**30), 10**4000, "", "1", "ü", "x" * 5000])
def test_ids_keep_their_type_and_value(identifier: int | str) -> None:
    request = decode(encode_request(identifier, "m"))
    assert isinstance(request, Request)
    assert (type(request.id), request.id) == (type(identifier), identifier)
    response = decode(encode_response(identifier, {}))
    assert isinstance(response, Response)
    assert (type(response.id), response.id) == (type(identifier), identifier)


# --- what is malformed ---


@pytest.mark.covers("RPC-1", "ERR-4")
@cases(
    "frame",
    [
        b"",
        b"{",
        b"}",
        b"nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} {}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":01}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\x"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\x01"}}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"1.0","id":1,"method"',
        b'{"jsonrpc":"2.0","id":true,',
        b'[{"jsonrpc":"2.0"',
        b"[1,]",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_a_parse_error_without_an_id(frame: bytes) -> None:
    assert decode(frame) == Malformed(-32700, NOT_JSON)


@pytest.mark.covers("RPC-1", "2.1.4")
@cases(
    "frame",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xc3\x28"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xed\xa0\x80"}}',
        '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"),
    ],
)
def test_text_that_is_not_utf8_is_a_parse_error_even_where_nobody_looks(frame: bytes) -> None:
    assert decode(frame) == Malformed(-32700, "The message is not valid UTF-8")


@pytest.mark.parametrize("member", [b'"result":{"a":"\xff"}', b'"error":{"code":1,"message":"\xff"}'])
def test_an_answer_that_is_not_utf8_says_to_what(member: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":1,' + member + b"}"
    assert decode(frame) == Malformed(0, "The message is not valid UTF-8", 1)


@cases(
    ("written", "read"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\uDE00", "\ufffd"),
        (r"\ud83d cut", "\ufffd cut"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ud83d\ude00\ude00", "\U0001f600\ufffd"),
        (r"\\\ud83d", "\\\ufffd"),
        (r"\ud83d \\ud83d", "\ufffd \\ud83d"),
        (r"\ud83d ü", "\ufffd ü"),
    ],
)
def test_half_a_character_is_replaced_and_the_rest_is_read(written: str, read: str) -> None:
    frame = f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":"{written}"}}}}'.encode()
    message = decode(frame)
    assert isinstance(message, Request)
    assert isinstance(message.params, Raw)
    assert json.loads(bytes(message.params)) == {"a": read}
    batch = decode(b"[" + frame + b"]")
    assert isinstance(batch, Batch)
    assert batch.items == [message]


@cases("name", ["ü", "日本", "\U0001f600"])
def test_text_beyond_ascii_is_read(name: str) -> None:
    frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": name}, ensure_ascii=False).encode()
    assert plain(decode(frame))[1]["method"] == name


@pytest.mark.covers("1.1.1", "ERR-4")
@cases(
    "frame",
    [
        b'{"id":9,"method":"m"}',
        b'{"jsonrpc":"1.0","id":9,"method":"m"}',
        b'{"jsonrpc":2.0,"id":9,"method":"m"}',
        b'{"jsonrpc":"2.0","id":9,"method":7}',
        b'{"jsonrpc":"2.0","id":9,"method":null}',
    ],
)
def test_json_that_is_no_request_is_refused_with_its_id(frame: bytes) -> None:
    assert decode(frame) == Malformed(-32600, NOT_A_REQUEST, 9)


@cases("frame", [b"1", b'"text"', b"null", b"true", b"{}"])
def test_json_that_is_no_message_at_all_is_refused(frame: bytes) -> None:
    assert decode(frame) == Malformed(-32600, NOT_A_REQUEST)


@pytest.mark.covers("1.1.1", "ERR-4")
def test_neither_method_nor_answer_is_refused() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":4}') == Malformed(-32600, "The message has no method", 4)
    assert decode(b'{"jsonrpc":"2.0"}') == Malformed(-32600, "The message has no method")


@pytest.mark.covers("1.1.1")
@pytest.mark.parametrize("member", [b'"result":{}', b'"error":{"code":1,"message":"x"}'])
def test_method_and_answer_together_are_refused(member: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":4,"method":"m",' + member + b"}"
    assert decode(frame) == Malformed(-32600, "A message has a method or a result, not both", 4)


@pytest.mark.covers("1.1.1", "1.1.5")
def test_a_broken_answer_is_owed_nothing() -> None:
    both = decode(b'{"jsonrpc":"2.0","id":4,"result":{},"error":{"code":1,"message":"x"}}')
    assert both == Malformed(0, "A response has a result or an error, not both", 4)
    stray = Malformed(0, "A result without an id belongs to no request")
    assert decode(b'{"jsonrpc":"2.0","result":{}}') == stray
    assert decode(b'{"jsonrpc":"2.0","id":null,"result":{}}') == stray


@pytest.mark.covers("1.1.4")
@cases(
    "error",
    [
        b"5",
        b"{}",
        b'{"code":"1","message":"x"}',
        b'{"code":1}',
        b'{"code":1.5,"message":"x"}',
        b'{"code":' + b"9" * 6000 + b',"message":"x"}',
        b'{"code":1,"message":"x","data":1e400}',
    ],
)
def test_an_error_that_is_no_error_object_is_owed_nothing(error: bytes) -> None:
    message = decode(b'{"jsonrpc":"2.0","id":4,"error":' + error + b"}")
    assert message == Malformed(0, "The error of a response is not an error object", 4)


# --- batches ---


@pytest.mark.covers("1.1.1.1", "1.1.1")
def test_an_array_is_a_batch_of_messages_in_order() -> None:
    frame = (
        b' [{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":2,"result":{}}]'
    )
    assert plain(decode(frame)) == [
        (Request, {"id": 1, "method": "a", "params": UNSET}),
        (Notification, {"method": "b", "params": UNSET}),
        (Response, {"id": 2, "result": {}}),
    ]


def test_a_bad_member_of_a_batch_spoils_only_itself() -> None:
    batch = decode(b'[1,{"jsonrpc":"1.0","id":5,"method":"a"},[],{"jsonrpc":"2.0","id":6,"method":"b"}]')
    assert isinstance(batch, Batch)
    assert batch.items[:3] == [
        Malformed(-32600, NOT_A_REQUEST),
        Malformed(-32600, NOT_A_REQUEST, 5),
        Malformed(-32600, NOT_A_REQUEST),
    ]
    assert plain(batch.items[3])[0] is Request


def test_an_empty_batch_is_a_batch() -> None:
    assert decode(b"[]") == Batch([])


def test_a_batch_has_at_most_so_many_members() -> None:
    member = encode_notification("m")
    fits, over = (decode(encode_batch([member] * count), max_batch=3) for count in (3, 4))
    assert isinstance(fits, Batch)
    assert (len(fits.items), fits.oversized) == (3, False)
    assert over == Batch([], oversized=True)
    assert len(decode(encode_batch([member] * 100)).items) == 100  # type: ignore[union-attr]
    assert decode(encode_batch([member] * 101)) == Batch([], oversized=True)


# --- depth ---


def nested(levels: int) -> bytes:
    """A request that is `levels` deep as a whole."""
    return b'{"jsonrpc":"2.0","id":8,"method":"m","params":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.covers("ERR-4")
def test_depth_is_bounded_and_the_id_still_named() -> None:
    assert isinstance(decode(nested(128)), Request)
    assert decode(nested(129)) == Malformed(-32600, "The message is nested more than 128 levels deep", 8)
    assert isinstance(decode(nested(5), max_depth=5), Request)
    assert decode(nested(6), max_depth=5) == Malformed(-32600, "The message is nested more than 5 levels deep", 8)


@pytest.mark.parametrize("levels", [10_000, 1_000_000])
def test_absurd_depth_is_refused_without_harm(levels: int) -> None:
    message = decode(nested(levels))
    assert isinstance(message, Malformed)
    assert message.code == -32600
    assert message.id in (8, None)  # Found or not by how deep the parser of this Python can go.
    assert decode(b"[" * levels) == Malformed(-32600, "The message is nested more than 128 levels deep")


def test_many_brackets_that_are_not_deep_are_fine() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":[' + b"[],{}," * 500 + b"0]}"
    assert isinstance(decode(frame), Request)


def depth_of(data: bytes) -> int:
    """The deepest nesting, byte by byte."""
    deepest = level = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == ord("\\"):
                escaped = True
            elif byte == ord('"'):
                in_string = False
        elif byte == ord('"'):
            in_string = True
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    return deepest


@given(st.text(alphabet='[]{}"\\ab\n', max_size=60).map(str.encode), st.integers(0, 6))
@example(b'"[[[[[[[', 1)
@example(b'"\\"[[[["[[', 1)
@example(b"]]]][[[", 2)
@example(b'\\"[[[', 1)
def test_too_deep_agrees_with_counting(data: bytes, limit: int) -> None:
    assert too_deep(data, limit) == (depth_of(data) > limit)


@given(VALUES, st.integers(0, 8))
def test_too_deep_agrees_with_counting_on_json(value: Any, limit: int) -> None:
    data = json.dumps(value).encode()
    assert too_deep(data, limit) == (depth_of(data) > limit)


def test_brackets_in_texts_are_no_depth() -> None:
    assert not too_deep(b'["' + b"[" * 1000 + b'"]', 1)
    assert not too_deep(b"[" * 128 + b"]" * 128)
    assert too_deep(b"[" * 129)


# --- round trips ---


@given(IDS, TEXT, OBJECTS | st.lists(VALUES, max_size=3))
def test_requests_round_trip(identifier: int | str, method: str, params: Any) -> None:
    frame = encode_request(identifier, method, params)
    assert plain(decode(frame)) == (Request, {"id": identifier, "method": method, "params": params})
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


@given(TEXT, OBJECTS)
def test_notifications_round_trip(method: str, params: Any) -> None:
    frame = encode_notification(method, params)
    assert plain(decode(frame)) == (Notification, {"method": method, "params": params})
    assert json.loads(frame) == {"jsonrpc": "2.0", "method": method, "params": params}


@given(IDS, OBJECTS)
def test_responses_round_trip(identifier: int | str, result: Any) -> None:
    frame = encode_response(identifier, result)
    assert plain(decode(frame)) == (Response, {"id": identifier, "result": result})
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": identifier, "result": result}


@given(IDS, st.integers(-(2**31), 2**31), TEXT, VALUES)
def test_errors_round_trip(identifier: int | str, code: int, message: str, data: Any) -> None:
    frame = encode_error(identifier, code, message, data)
    assert decode(frame) == ErrorResponse(identifier, ErrorObject(code, message, data))
    error = {"code": code, "message": message, "data": data}
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": identifier, "error": error}


@pytest.mark.covers("1.1.6", "ERR-4")
def test_an_unknown_id_is_left_out_and_never_null() -> None:
    assert json.loads(encode_error(None, -32700, "x")) == {"jsonrpc": "2.0", "error": {"code": -32700, "message": "x"}}


def test_what_is_absent_is_not_written() -> None:
    assert encode_request(1, "m") == b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert encode_notification("m") == b'{"jsonrpc":"2.0","method":"m"}'


@given(st.lists(IDS, max_size=4))
def test_batches_round_trip(identifiers: list[int | str]) -> None:
    batch = decode(encode_batch([encode_response(each, {}) for each in identifiers]))
    assert plain(batch) == [(Response, {"id": each, "result": {}}) for each in identifiers]


@pytest.mark.covers("STD-1")
@given(IDS, TEXT, OBJECTS)
def test_no_message_has_a_newline_inside(identifier: int | str, text: str, value: Any) -> None:
    frames = encode_request(identifier, text, value), encode_error(identifier, 1, text, value)
    assert b"\n" not in b"".join(frames)


def test_what_is_no_json_value_is_a_type_error_that_names_its_type() -> None:
    with pytest.raises(TypeError, match="object is not a JSON value"):
        encode_response(1, {"a": object()})


# --- whatever arrives ---

MEMBERS = st.dictionaries(
    st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "other"]),
    st.just("2.0") | VALUES | st.fixed_dictionaries({"code": VALUES, "message": VALUES}),
)


@given(st.binary(max_size=80) | MEMBERS.map(lambda value: json.dumps(value).encode()))
@example(b'{"jsonrpc":"2.0","id":' + b"1" * 5000 + b"}")
@example(b'{"jsonrpc":"2.0","id":1e999,"result":1e999}')
def test_reading_never_raises_and_blames_only_what_is_wrong(data: bytes) -> None:
    message = decode(data)
    if isinstance(message, Malformed):
        assert message.code in (-32700, -32600, 0)
        if message.code == -32700:
            assert not is_strict_json(data)
    else:
        assert is_strict_json(data)


@given(
    st.binary(max_size=80)
    | (MEMBERS | MEMBERS.map(lambda value: {"jsonrpc": "2.0", "id": 1, **value})).map(
        lambda value: json.dumps(value).encode()
    ),
    st.sampled_from([EXPECT_REQUESTS, EXPECT_RESPONSES]),
)
@example(b'{"jsonrpc":"2.0","id":1,"method":"a","result":1}', EXPECT_REQUESTS)
@example(b'{"jsonrpc":"2.0","id":true,"method":"a"}', EXPECT_REQUESTS)
@example(b'{"id":1,"method":"a"}', EXPECT_REQUESTS)
@example(b'{"jsonrpc":"2.0","id":null,"result":1}', EXPECT_RESPONSES)
@example(b'{"jsonrpc":"2.0","id":1,"result":1,"error":null}', EXPECT_RESPONSES)
def test_what_is_expected_makes_no_difference_to_what_is_read(data: bytes, expected: Any) -> None:
    message, read = decode(data), decode(data, expected=expected)
    assert isinstance(read, type(message))
    for name in message.__struct_fields__:
        assert getattr(read, name) == getattr(message, name)


@given(MEMBERS | st.lists(MEMBERS, max_size=3))
def test_json_is_never_called_anything_else(value: Any) -> None:
    message = decode(json.dumps(value).encode())
    assert not (isinstance(message, Malformed) and message.code == -32700)


def is_strict_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=Raw)
        data.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


@pytest.mark.covers("ERR-1", "ERR-2")
def test_the_codes_are_those_of_the_specification_and_private_ones_lie_outside_its_range() -> None:
    assert (errors.PARSE_ERROR, errors.INVALID_REQUEST, errors.METHOD_NOT_FOUND) == (-32700, -32600, -32601)
    assert (errors.INVALID_PARAMS, errors.INTERNAL_ERROR) == (-32602, -32603)
    assert (errors.HEADER_MISMATCH, errors.MISSING_CLIENT_CAPABILITY) == (-32020, -32021)
    assert errors.UNSUPPORTED_PROTOCOL_VERSION == -32022
    assert (errors.RESOURCE_NOT_FOUND, errors.URL_ELICITATION_REQUIRED) == (-32002, -32042)
    assert errors.USER_REJECTED == -1
