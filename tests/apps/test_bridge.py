"""The bridge between a view and its host: shapes, order, sizes, rates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.apps import bridge
from toolwire.apps.bridge import BridgeState, Refusal, ViewAnswer, ViewNotification, ViewRequest, read_message

INITIALIZE = {
    "protocolVersion": "2026-01-26",
    "appInfo": {"name": "v", "version": "1"},
    "appCapabilities": {"availableDisplayModes": ["inline"], "later": 1},
}


def request(method: str, params: Any = None, id: Any = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {} if params is None else params})


def notice(method: str, params: Any = None) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": {} if params is None else params})


def ready() -> BridgeState:
    state = BridgeState()
    assert isinstance(state.receive(request("ui/initialize", INITIALIZE), 0), ViewRequest)
    assert isinstance(state.receive(notice("ui/notifications/initialized"), 0), ViewNotification)
    return state


@cases(
    ("method", "params"),
    [
        ("ui/initialize", INITIALIZE),
        ("ui/open-link", {"url": "https://a.example"}),
        ("ui/download-file", {"contents": [{"type": "resource_link", "uri": "x"}]}),
        ("ui/message", {"role": "user", "content": [{"type": "text", "text": "x"}]}),
        ("ui/message", {"role": "user", "content": {"type": "text", "text": "x"}}),
        ("ui/request-display-mode", {"mode": "pip"}),
        ("ui/update-model-context", {}),
        ("tools/call", {"name": "x"}),
        ("resources/read", {"uri": "x"}),
        ("ping", {}),
    ],
)
def test_requests_of_a_view(method: str, params: dict[str, Any]) -> None:
    for message in (request(method, params), request(method, params).encode()):
        read = read_message(message)
        assert isinstance(read, ViewRequest)
        assert (read.id, read.method) == (1, method)
    if method == "ui/message":
        assert isinstance(read.params, bridge.ViewMessage)
        assert read.params.blocks() == [{"type": "text", "text": "x"}]


@cases(
    ("message", "code", "answered"),
    [
        ("", -32700, False),
        ("[]", -32700, False),
        ("7", -32700, False),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32700, False),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32700, False),
        ('{"jsonrpc":"2.0"}', -32600, False),
        ('{"jsonrpc":"2.0","id":1}', -32600, False),
        ('{"jsonrpc":"2.0","id":null,"result":{}}', -32600, False),
        (request("tools/delete"), -32601, True),
        (request("ui/notifications/initialized"), -32601, True),
        (notice("tools/call", {"name": "x"}), -32601, False),
        (notice("ui/notifications/sandbox-proxy-ready"), -32601, False),
        (request("tools/call", {}), -32602, True),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', -32602, True),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602, True),
        ('{"jsonrpc":"2.0","method":"ui/notifications/initialized","params":null}', -32602, False),
        (request("tools/call", {"name": "x", "arguments": []}), -32602, True),
        (request("ui/message", {"role": "assistant", "content": []}), -32602, True),
        (request("ui/request-display-mode", {"mode": "all"}), -32602, True),
        (notice("ui/notifications/size-changed", {"height": "x"}), -32602, False),
        ("[" * 100_000, -32700, False),
        ('"' + "x" * (4 * 1024 * 1024) + '"', -32600, False),
    ],
)
def test_a_message_that_is_none_is_refused(message: str, code: int, answered: bool) -> None:
    read = read_message(message)
    assert isinstance(read, Refusal)
    assert read.code == code
    answer = read.answer()
    assert (answer is not None) == answered
    if answer is not None:
        assert answer["error"]["code"] == code


@given(st.text() | st.binary())
def test_any_text_is_read(text: str | bytes) -> None:
    if not isinstance(read_message(text), Refusal):
        assert json.loads(text)["jsonrpc"] == "2.0"


def test_answers_of_a_view() -> None:
    assert read_message('{"jsonrpc":"2.0","id":3,"result":{"a":1}}') == ViewAnswer(3, {"a": 1}, None)
    failed = read_message('{"jsonrpc":"2.0","id":"b","error":{"code":1,"message":"x"}}')
    assert isinstance(failed, ViewAnswer)
    assert failed.error == {"code": 1, "message": "x"}


@pytest.mark.covers("APP-5.1")
def test_the_handshake_has_an_order() -> None:
    state = BridgeState()
    early = state.receive(request("tools/call", {"name": "x"}), 0)
    assert isinstance(early, Refusal)
    assert isinstance(state.receive(request("ping"), 0), ViewRequest)
    assert isinstance(state.receive(notice("ui/notifications/initialized"), 0), Refusal)
    for send in (lambda: state.input({}), lambda: state.context_changed({}), lambda: state.teardown(1)):
        with pytest.raises(ValueError, match="before ui/notifications/initialized"):
            send()
    assert isinstance(state.receive(request("ui/initialize", INITIALIZE), 0), ViewRequest)
    assert state.app is not None
    assert state.app.app_info.name == "v"
    assert isinstance(state.receive(request("ui/initialize", INITIALIZE), 0), Refusal)
    assert state.phase == "initializing"
    assert isinstance(state.receive(notice("ui/notifications/initialized"), 0), ViewNotification)
    assert isinstance(state.receive(notice("ui/notifications/initialized"), 0), Refusal)
    assert isinstance(state.receive(request("tools/call", {"name": "x"}), 0), ViewRequest)


@pytest.mark.covers("APP-5.1")
def test_input_comes_once_and_before_the_result() -> None:
    state = ready()
    with pytest.raises(ValueError, match="the input comes before"):
        state.result({})
    assert state.input_partial({"a": 1})["params"] == {"arguments": {"a": 1}}
    assert state.input({"a": 1})["method"] == "ui/notifications/tool-input"
    for send in (state.input, state.input_partial):
        with pytest.raises(ValueError, match="input"):
            send({})
    assert state.result({"content": []})["params"] == {"content": []}
    with pytest.raises(ValueError, match="one result"):
        state.cancelled("late")


def test_a_call_may_be_cancelled_and_a_view_closed() -> None:
    state = ready()
    state.input({})
    assert state.cancelled("by the user")["params"] == {"reason": "by the user"}
    assert state.context_changed({"theme": "dark"})["params"] == {"theme": "dark"}
    assert state.teardown(9)["id"] == 9
    with pytest.raises(ValueError, match="after teardown"):
        state.context_changed({})


def test_the_size_of_a_view_is_kept() -> None:
    state = ready()
    assert state.size is None
    state.receive(notice("ui/notifications/size-changed", {"width": 10.5, "height": 20}), 0)
    assert state.size == bridge.SizeChanged(10.5, 20)


@pytest.mark.covers("APP-9.5")
def test_a_view_that_floods_is_stopped() -> None:
    state = ready()
    read = [state.receive(request("ping"), 0.0001 * number) for number in range(10_000)]
    assert sum(isinstance(each, ViewRequest) for each in read) < bridge.MAX_BURST + bridge.MAX_MESSAGES_PER_SECOND
    assert state.stopped is not None
    assert "messages a second" in state.stopped
    assert isinstance(state.receive(request("ping"), 1000), Refusal)


def test_a_busy_view_is_not_stopped() -> None:
    state = ready()
    for number in range(5_000):
        assert isinstance(state.receive(notice("ui/notifications/size-changed"), number / 60), ViewNotification)
    assert state.stopped is None


@cases(
    ("url", "allowed"),
    [
        ("https://a.example/x?y#z", True),
        ("http://a.example", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("https://", False),
        ("https://user@a.example", False),
        ("https://a.example\\@b.example", False),
        (" https://a.example", False),
        ("https://a.example/\u202e", False),
        ("https://a.example/" + "x" * 9000, False),
        ("http://[", False),
    ],
)
def test_links_that_a_host_may_open(url: str, allowed: bool) -> None:
    assert bridge.is_allowed_link(url) == allowed


@cases(
    ("result", "expected"),
    [
        ({"content": [], "resultType": "complete", "_meta": {"a": 1}}, {"content": [], "_meta": {"a": 1}}),
        ({"structuredContent": {"n": 1}}, {"structuredContent": {"n": 1}}),
        ({"structuredContent": {}}, {"structuredContent": {}}),
        ({"structuredContent": [1]}, {"structuredContent": {"result": [1]}}),
        ({"structuredContent": None}, {"structuredContent": {"result": None}}),
        ({"structuredContent": "x", "isError": True}, {"structuredContent": {"result": "x"}, "isError": True}),
    ],
)
def test_views_get_results_of_2025_11_25(result: dict[str, Any], expected: dict[str, Any]) -> None:
    assert bridge.result_for_view(result) == expected
