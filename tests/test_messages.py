"""Messages without a connection: read into typed values, and written back as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.cases import cases
from tests.golden import transcript

from toolwire import ProtocolError, types
from toolwire.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from toolwire.messages import ErrorResponse, Notification, Request, Response, parse, serialize
from toolwire.types import REVISIONS

TRANSCRIPTS = sorted(transcript.FOLDER.glob("*.txt"))


@pytest.mark.covers("J57")
@cases("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_recorded_message_is_typed_and_written_back(path: Any) -> None:
    recorded = transcript.read(path)
    asked: dict[Any, str] = {}
    for _, message in recorded.lines:
        method = message.get("method")
        if method is not None and "id" in message:
            asked[message["id"]] = method
        answers = asked.get(message.get("id")) if method is None else None
        parsed = parse(json.dumps(message), revision=recorded.revision, answers=answers)
        assert json.loads(serialize(parsed)) == message
        if isinstance(parsed, Request | Notification):
            assert parsed.params is UNSET or isinstance(parsed.params, types.Wire)
        elif isinstance(parsed, Response):
            assert isinstance(parsed.result, types.Wire)


@pytest.mark.covers("J57", "J63")
@cases("revision", REVISIONS)
def test_each_kind_of_message_has_a_type_of_its_own(revision: str) -> None:
    request = parse('{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","new":1}}', revision=revision)
    assert isinstance(request, Request)
    assert isinstance(request.params, types.CallToolRequestParams)
    assert (request.id, request.params.name, request.params.extra) == ("a", "x", {"new": 1})
    notice = parse(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}')
    assert isinstance(notice, Notification)
    assert notice.params.progress == 2
    unknown = parse('{"jsonrpc":"2.0","method":"vendor/thing","params":{"a":[1]}}', revision=revision)
    assert unknown == Notification("vendor/thing", {"a": [1]})
    plain = parse('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}', revision=revision)
    assert plain == Response(1, {"content": []})
    typed = parse('{"jsonrpc":"2.0","id":1,"result":{"content":[]}}', revision=revision, answers="tools/call")
    assert isinstance(typed, Response)
    assert isinstance(typed.result, types.CallToolResult)


@pytest.mark.covers("J57", "J63")
@cases("identifier", [None, 1, "a"])
@cases("data", [UNSET, None, {"why": 1}], ids=str)
def test_an_error_has_a_code_a_message_and_optional_data(identifier: Any, data: Any) -> None:
    error = {"code": METHOD_NOT_FOUND, "message": "no"} | ({} if data is UNSET else {"data": data})
    parsed = parse(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}))
    assert isinstance(parsed, ErrorResponse)
    assert parsed.id == identifier
    raised = parsed.to_exception()
    assert (raised.code, raised.message, raised.data) == (METHOD_NOT_FOUND, "no", data)
    expected = {"jsonrpc": "2.0", "error": error} | ({} if identifier is None else {"id": identifier})
    assert json.loads(serialize(parsed)) == expected


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"resultType": "input_required", "requestState": "x"}, types.InputRequiredResult),
        ({"resultType": "complete", "content": []}, types.CallToolResult),
    ],
)
def test_a_result_says_what_it_is(answer: Any, kind: Any) -> None:
    parsed = parse(json.dumps({"jsonrpc": "2.0", "id": 1, "result": answer}), answers="tools/call")
    assert isinstance(parsed, Response)
    assert isinstance(parsed.result, kind)


@pytest.mark.covers("J63")
@cases(
    ("text", "code"),
    [
        ("{", PARSE_ERROR),
        ("[]", INVALID_REQUEST),
        ('[{"jsonrpc":"2.0","method":"ping","id":1}]', INVALID_REQUEST),
        ('{"id":1}', INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID_REQUEST),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', INVALID_PARAMS),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', INVALID_PARAMS),
    ],
)
def test_what_cannot_be_read_has_the_code_that_its_sender_is_owed(text: str, code: int) -> None:
    with pytest.raises(ProtocolError) as raised:
        parse(text)
    assert raised.value.code == code


def test_a_batch_is_a_list_where_the_revision_has_batches() -> None:
    text = '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]'
    parsed = parse(text, revision="2025-03-26")
    assert isinstance(parsed, list)
    assert [type(each) for each in parsed] == [Request, Notification]
    assert json.loads(serialize(parsed)) == json.loads(text)
    with pytest.raises(ValueError, match="not a revision"):
        parse(text, revision="2020-01-01")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_result_of_anything_survives(value: Any) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": value})
    assert json.loads(serialize(parse(text))) == json.loads(text)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_garbage_is_a_protocol_error(data: Any) -> None:
    try:
        parse(data)
    except ProtocolError:
        return
    assert json.loads(data)["jsonrpc"] == "2.0"
