"""The connection state machine: a server's peer and a client's, back to back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec import UNSET
from tests.cases import cases
from tests.protocol.pair import CLIENT_CAPABILITIES, Pair, meta, modern, opened

from toolwire.protocol.classifier import Cancel, Garbage, Notice, Send
from toolwire.protocol.errors import InvalidResponse, OutcomeUnknown, ProtocolError
from toolwire.protocol.lifecycle import Incoming
from toolwire.protocol.peer import Answer
from toolwire.protocol.revisions import LEGACY, MODERN, REVISIONS

UNBATCHED = tuple(revision for revision in REVISIONS if revision != "2025-03-26")


def call(pair: Pair, id: int | str | None = None, name: str = "x", **params: Any) -> Incoming:
    """A `tools/call` that reaches a handler, as the revision of the pair wants it."""
    base = modern(name=name) if pair.client_terms.revision == MODERN else {"name": name}
    return pair.served("tools/call", base | params, id=id)


def request(id: Any, method: str = "tools/call", params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {"name": "x"}}


# --- requests and their answers ---


@pytest.mark.covers("1.1.2", "1.1.1")
@cases("revision", REVISIONS)
def test_an_answer_finds_the_request_it_belongs_to(revision: str) -> None:
    pair = opened(revision)
    for identifier in (1, "1", "two", -3):
        call(pair, identifier)
    assert pair.server.incoming == {1, "1", "two", -3}
    for identifier in ("1", -3, 1, "two"):
        frame = pair.server.respond(identifier, {"content": [], "n": str(identifier)})
        assert frame is not None
        (event,) = pair.to_client(frame)
        assert isinstance(event, Answer)
        assert event.waiter == f"waiter {identifier}"
        assert event.error is None
        assert msgspec.json.decode(event.result) == {"content": [], "n": str(identifier)}
    assert not pair.server.incoming
    assert not pair.client.outgoing


def test_ids_of_ours_are_never_repeated() -> None:
    pair = opened(MODERN)
    assert [pair.client.next_id() for _ in range(3)] == [1, 2, 3]


@pytest.mark.covers("ERR-4")
def test_an_error_reaches_the_waiter_as_an_exception() -> None:
    pair = opened(MODERN)
    call(pair, "q")
    frame = pair.server.refuse("q", ProtocolError(-32000, "busy", {"retry": True}))
    assert frame is not None
    assert json.loads(frame) == {
        "jsonrpc": "2.0",
        "id": "q",
        "error": {"code": -32000, "message": "busy", "data": {"retry": True}},
    }
    (event,) = pair.to_client(frame)
    assert isinstance(event, Answer)
    assert (event.waiter, event.result) == ("waiter q", None)
    assert event.error is not None
    assert (event.error.code, event.error.message, event.error.data) == (-32000, "busy", {"retry": True})


def test_a_request_is_answered_once() -> None:
    pair = opened(MODERN)
    call(pair, 1)
    assert pair.server.respond(1, {}) is not None
    assert pair.server.respond(1, {}) is None
    assert pair.server.refuse(1, ProtocolError(1, "x")) is None
    assert pair.server.drop(1) is None


def test_a_result_that_is_no_json_leaves_the_request_open_for_a_refusal() -> None:
    pair = opened(MODERN)
    call(pair, 1)
    with pytest.raises(TypeError):
        pair.server.respond(1, {"a": object()})
    assert pair.server.refuse(1, ProtocolError(-32603, "Internal error")) is not None


@pytest.mark.parametrize(
    ("data", "is_unknown"), [({"mayHaveRun": True}, True), ({"mayHaveRun": "yes"}, False), ([], False), (None, False)]
)
def test_error_of_a_server_that_stopped_has_an_unknown_outcome(data: Any, is_unknown: bool) -> None:
    pair = opened(MODERN)
    call(pair, "q")
    frame = pair.server.refuse("q", ProtocolError(-32603, "stopped", data))
    assert frame is not None
    (answer,) = pair.to_client(frame)
    assert isinstance(answer, Answer)
    # Such a request is repeated by the rules for lost connections.
    assert type(answer.error) is (OutcomeUnknown if is_unknown else ProtocolError)


def test_a_result_over_the_limit_is_an_error_instead() -> None:
    pair = opened(MODERN)
    size = len(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    call(pair, 1)
    assert pair.server.respond(1, {}, size) == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    call(pair, 1)
    frame = pair.server.respond(1, {}, size - 1)
    assert frame is not None
    error = {"code": -32603, "message": f"The result is over the limit of {size - 1} bytes"}
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": 1, "error": error}
    assert not pair.server.incoming


@pytest.mark.covers("RPC-2", "1.1.2")
@cases("revision", REVISIONS)
def test_an_id_that_is_in_flight_is_refused_and_the_first_request_lives_on(revision: str) -> None:
    pair = opened(revision)
    first = call(pair, 5)
    assert pair.to_server(request(5, params=modern(name="y"))) != [first]
    assert pair.sent[-1] == {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32600, "message": "A request with this id is still in flight"},
    }
    assert pair.server.respond(5, {}) is not None
    assert call(pair, 5).id == 5  # The id is free again.


def test_a_refused_request_holds_no_id() -> None:
    pair = opened(MODERN)
    pair.refused("no/such", modern(), id=5)
    assert not pair.server.incoming
    call(pair, 5)


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
def test_what_came_back_for_a_request_answers_that_request_alone(answer: dict[str, Any]) -> None:
    """As over HTTP, where each request has an exchange of its own."""
    pair = opened(MODERN)
    call(pair, 5)
    call(pair, 6)

    def came_back(id: Any) -> list[Any]:
        return list(pair.client.receive(json.dumps({"jsonrpc": "2.0", "id": id, **answer}).encode(), about=5))

    (event,) = came_back(6)
    assert isinstance(event, Garbage)
    (event,) = came_back(5)
    assert isinstance(event, Answer)
    assert event.waiter == "waiter 5"
    assert list(pair.client.outgoing) == [6]


@cases("id", ["server-error", "", None, "6"])
def test_an_error_under_a_name_that_is_nobodys_answers_what_it_came_back_for(id: str | None) -> None:
    pair = opened(MODERN)
    call(pair, 5)
    call(pair, 6)
    frame = {"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "no session"}}
    (event,) = pair.client.receive(json.dumps(frame).encode(), about=5)
    assert isinstance(event, Answer)
    assert (event.waiter, str(event.error)) == ("waiter 5", "no session (code -32600)")
    # A result under another name is nobody's.
    (other,) = pair.client.receive(json.dumps({"jsonrpc": "2.0", "id": "6", "result": {}}).encode(), about=6)
    assert isinstance(other, Garbage)


def test_an_error_that_cannot_name_its_request_is_the_answer_where_it_came_back() -> None:
    pair = opened(MODERN)
    call(pair, 5)
    call(pair, 6)
    nameless = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}}).encode()
    (event,) = pair.client.receive(nameless, about=5)
    assert isinstance(event, Answer)
    assert event.waiter == "waiter 5"
    assert list(pair.client.outgoing) == [6]


@pytest.mark.covers("CAN-3", "1.5.5")
@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
def test_an_answer_that_nobody_waits_for_is_dropped(answer: dict[str, Any]) -> None:
    pair = opened(MODERN)
    assert pair.to_client({"jsonrpc": "2.0", "id": 77, **answer}) == []
    call(pair, 1)
    assert pair.client.forget(1) is True
    assert pair.client.forget(1) is False
    frame = pair.server.respond(1, {})
    assert frame is not None
    assert pair.to_client(frame) == []
    assert pair.sent == []


@pytest.mark.covers("T-8", "1.1.6")
def test_an_error_without_an_id_is_for_the_only_request_there_is() -> None:
    pair = opened(MODERN)
    call(pair, 1)
    (event,) = pair.to_client({"jsonrpc": "2.0", "error": {"code": -32700, "message": "no"}})
    assert isinstance(event, Answer)
    assert event.waiter == "waiter 1"
    assert event.error is not None
    assert event.error.code == -32700
    assert not pair.client.outgoing


@pytest.mark.covers("T-8")
@pytest.mark.parametrize("outstanding", [0, 2])
def test_an_error_without_an_id_that_could_be_anyones_is_logged(outstanding: int) -> None:
    pair = opened(MODERN)
    for number in range(outstanding):
        call(pair, number)
    events = pair.to_client({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}})
    assert events == [Garbage("the other side reports no (code -32700)")]
    assert len(pair.client.outgoing) == outstanding


# --- what cannot be read ---


@pytest.mark.covers("ERR-4", "RPC-1")
def test_a_server_says_what_it_could_not_read() -> None:
    pair = opened(MODERN)
    pair.to_server(b"{")
    assert pair.sent == [{"jsonrpc": "2.0", "error": {"code": -32700, "message": "The message is not valid JSON"}}]
    pair.to_server({"jsonrpc": "1.0", "id": 3, "method": "ping"})
    assert pair.sent[1]["id"] == 3
    assert pair.sent[1]["error"]["code"] == -32600


@pytest.mark.covers("RPC-6", "STD-6", "1.1.5")
@cases("frame", [b"{", b'{"jsonrpc":"1.0","id":3,"method":"ping"}', b'{"jsonrpc":"2.0","id":9}', b"[]"])
def test_a_client_answers_nothing_it_cannot_read(frame: bytes) -> None:
    pair = opened(MODERN)
    (event,) = pair.to_client(frame)
    assert isinstance(event, Garbage)
    assert event.reason
    assert pair.sent == []


@cases(
    ("line", "shown"),
    [
        (b"Server running on stdio", "'Server running on stdio'"),
        (b'{"level": "info"}', """'{"level": "info"}'"""),
        ("\x1b[2J grün".encode(), r"'\x1b[2J gr\xfcn'"),
        (b"x" * 1000, f"'{'x' * 100}'…"),
    ],
)
def test_a_client_tells_which_line_was_no_message(line: bytes, shown: str) -> None:
    (event,) = opened(MODERN).client.receive(line)
    assert isinstance(event, Garbage)
    assert event.describe().endswith(f": {shown}")


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_broken_answer_to_nobody_is_logged_not_answered(side: str) -> None:
    pair = opened("2025-11-25")
    frame = {"jsonrpc": "2.0", "id": 9, "result": {}, "error": {"code": 1, "message": "x"}}
    (event,) = pair.to_client(frame) if side == "client" else pair.to_server(frame)
    assert event == Garbage("A response has a result or an error, not both")
    assert pair.sent == []


def test_a_broken_answer_still_wakes_who_waits() -> None:
    pair = opened(MODERN)
    call(pair, 9)
    (event,) = pair.to_client({"jsonrpc": "2.0", "id": 9, "error": "no"})
    assert isinstance(event, Answer)
    assert event.waiter == "waiter 9"
    assert isinstance(event.error, InvalidResponse)
    assert str(event.error) == "The error of a response is not an error object"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (b'"\xff"', "The message is not valid UTF-8"),
        (b"[" * 200 + b"]" * 200, "The message is nested more than 128 levels deep"),
    ],
)
def test_an_answer_that_cannot_be_taken_wakes_who_waits(result: bytes, text: str) -> None:
    pair = opened(MODERN)
    call(pair, 9)
    (event,) = pair.client.receive(b'{"jsonrpc":"2.0","id":9,"result":{"a":' + result + b"}}")
    assert isinstance(event, Answer)
    assert event.waiter == "waiter 9"
    assert isinstance(event.error, InvalidResponse)
    assert str(event.error) == text


def test_a_refused_message_with_the_id_of_a_request_of_ours_is_no_answer_to_it() -> None:
    pair = opened("2025-11-25")
    pair.server.request(9, "roots/list", UNSET, "mine")
    pair.to_server({"jsonrpc": "1.0", "id": 9, "method": "ping"})
    assert pair.sent[-1]["error"]["code"] == -32600
    assert pair.server.outgoing == {9: "mine"}


@pytest.mark.covers("1.1.5", "RPC-3")
@cases("revision", REVISIONS)
@cases(
    ("method", "params"),
    [
        ("tools/call", {"name": "x"}),
        ("notifications/unknown", {}),
        ("notifications/cancelled", {"requestId": []}),
        ("notifications/cancelled", [1]),
        ("notifications/progress", {"progress": "high"}),
        ("initialize", {}),
    ],
)
def test_a_notification_is_never_answered(revision: str, method: str, params: Any) -> None:
    pair = opened(revision)
    assert pair.notify_server(method, params) == []
    assert pair.sent == []


def test_a_notification_that_is_known_arrives_with_typed_params() -> None:
    pair = opened("2025-11-25")
    (event,) = pair.notify_server("notifications/progress", {"progressToken": "t", "progress": 0.5})
    assert isinstance(event, Notice)
    assert (event.method, event.row.name) == ("notifications/progress", "notifications/progress")
    assert (event.params.progress_token, event.params.progress) == ("t", 0.5)
    assert msgspec.json.decode(event.raw) == {"progressToken": "t", "progress": 0.5}
    (event,) = pair.notify_client("notifications/tools/list_changed")
    assert isinstance(event, Notice)
    assert event.raw is UNSET


# --- cancellation ---


@pytest.mark.covers("1.5.1", "CAN-2")
@cases("revision", REVISIONS)
def test_a_cancellation_names_a_request_of_its_sender(revision: str) -> None:
    pair = opened(revision)
    call(pair, 1)
    call(pair, "b")
    assert pair.notify_server("notifications/cancelled", {"requestId": 1, "reason": "bored"}) == [Cancel(1, "bored")]
    assert pair.notify_server("notifications/cancelled", {"requestId": "b"}) == [Cancel("b", None)]


@pytest.mark.covers("1.5.2", "1.5.4", "CAN-2")
@cases("params", [{}, {"requestId": 99}, {"requestId": "1"}, {"requestId": True}, UNSET])
def test_an_unknown_or_malformed_cancellation_is_passed_over(params: Any) -> None:
    pair = opened("2025-11-25")
    call(pair, 1)
    assert pair.notify_server("notifications/cancelled", params) == []
    assert pair.sent == []
    assert pair.server.incoming == {1}


@pytest.mark.covers("1.5.4", "1.5.5", "STD-10", "CAN-2")
@cases("revision", REVISIONS)
def test_nothing_is_sent_for_a_request_that_was_dropped(revision: str) -> None:
    pair = opened(revision)
    call(pair, 1)
    assert pair.server.drop(1) is None
    assert pair.server.respond(1, {}) is None
    assert pair.server.refuse(1, ProtocolError(1, "x")) is None
    assert pair.notify_server("notifications/cancelled", {"requestId": 1}) == []
    call(pair, 1)  # The id is free again.


@pytest.mark.covers("1.5.1")
def test_a_client_cannot_cancel_what_the_server_asked() -> None:
    pair = opened("2025-11-25")
    pair.server.request(1, "roots/list", UNSET, "mine")
    assert pair.notify_server("notifications/cancelled", {"requestId": 1}) == []
    assert pair.server.outgoing == {1: "mine"}


@pytest.mark.covers("1.5.1")
def test_a_server_cancels_what_it_asked() -> None:
    pair = opened("2025-11-25")
    (event,) = pair.to_client(pair.server.request(1, "roots/list", UNSET, "mine"))
    assert isinstance(event, Incoming)
    assert pair.notify_client("notifications/cancelled", {"requestId": 1}) == [Cancel(1, None)]


@pytest.mark.covers("CAN-5")
def test_a_server_ends_a_subscription_by_a_cancellation() -> None:
    pair = opened(MODERN)
    pair.served("subscriptions/listen", modern(notifications={"toolsListChanged": True}), id=4)
    assert pair.notify_client("notifications/cancelled", {"requestId": 4}) == [Answer("waiter 4", None)]
    assert not pair.client.outgoing
    assert pair.notify_client("notifications/cancelled", {"requestId": 4}) == []


# --- requests of the server ---


@pytest.mark.covers("1.1.2")
@cases("revision", LEGACY)
def test_the_ids_of_the_two_sides_are_apart(revision: str) -> None:
    pair = opened(revision)
    call(pair, 1)
    (event,) = pair.to_client(pair.server.request(1, "roots/list", UNSET, "mine"))
    assert isinstance(event, Incoming)
    answer = pair.client.respond(1, {"roots": []})
    assert answer is not None
    (event,) = pair.to_server(answer)
    assert isinstance(event, Answer)
    assert event.waiter == "mine"
    assert pair.server.incoming == {1}
    assert pair.client.outgoing == {1: "waiter 1"}


@pytest.mark.covers("RPC-5", "RPC-6", "STD-6", "STD-7")
def test_a_modern_client_ignores_requests() -> None:
    pair = opened(MODERN)
    for method in ("ping", "roots/list", "x" * 1000):
        (event,) = pair.to_client({"jsonrpc": "2.0", "id": 1, "method": method})
        expected = f"the server sent the request {method[:200]!r}, which this revision forbids"
        assert event == Garbage(expected)
    assert pair.sent == []
    assert not pair.client.incoming


# --- batches ---


@pytest.mark.covers("1.1.1.1", "1.1.1.6", "T-6", "2.1.1")
def test_a_batch_is_answered_with_an_array_once_all_are_done() -> None:
    pair = opened("2025-03-26")
    for identifier in (1, 2):
        pair.client.request(identifier, "tools/call", UNSET, f"waiter {identifier}")
    events = pair.to_server([request(1), {"jsonrpc": "2.0", "method": "notifications/x"}, request(2)])
    assert [event.id for event in events if isinstance(event, Incoming)] == [1, 2]
    assert pair.server.respond(2, {"n": 2}) is None
    frame = pair.server.refuse(1, ProtocolError(-1, "no"))
    assert frame is not None
    assert json.loads(frame) == [
        {"jsonrpc": "2.0", "id": 2, "result": {"n": 2}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}},
    ]
    answers = pair.to_client(frame)
    assert [answer.waiter for answer in answers if isinstance(answer, Answer)] == ["waiter 2", "waiter 1"]
    assert not pair.server.incoming


@pytest.mark.covers("T-7", "1.1.1.6")
def test_a_client_takes_the_answers_to_a_batch_one_by_one_too() -> None:
    pair = opened("2025-03-26")
    pair.client.request(1, "tools/list", UNSET, "one")
    pair.client.request(2, "tools/list", UNSET, "two")
    (event,) = pair.to_client({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert isinstance(event, Answer)
    assert event.waiter == "two"
    (event,) = pair.to_client([{"jsonrpc": "2.0", "id": 1, "result": {}}])
    assert isinstance(event, Answer)
    assert event.waiter == "one"


def test_what_a_batch_is_refused_at_once_waits_for_the_rest() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1), request(1), 5, request(3, "no/such"), request(4, "ping", {})])
    assert pair.sent == []
    frame = pair.server.respond(1, {})
    assert frame is not None
    answers = json.loads(frame)
    codes = [(answer.get("id"), answer.get("error", {}).get("code")) for answer in answers]
    assert codes == [(1, -32600), (None, -32600), (3, -32601), (4, None), (1, None)]
    assert answers[-1]["result"] == {}


def test_a_batch_that_needs_no_handler_is_answered_at_once() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1, "ping", {}), request(2, "ping", {})])
    assert pair.sent == [[{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}}]]


@pytest.mark.covers("1.1.1.7")
def test_an_empty_batch_is_refused_and_notifications_alone_have_no_reply() -> None:
    pair = opened("2025-03-26")
    pair.to_server([])
    error = {"code": -32600, "message": "A batch has at least one message"}
    assert pair.sent == [{"jsonrpc": "2.0", "error": error}]
    pair.sent.clear()
    events = pair.to_server([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}] * 2)
    assert len(events) == 2
    assert pair.sent == []


@pytest.mark.covers("1.1.1.2", "1.3.1.6")
def test_initialize_does_not_sit_in_a_batch() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(7, "initialize", {})])
    error = {"code": -32600, "message": "initialize is not allowed in a batch"}
    assert pair.sent == [[{"jsonrpc": "2.0", "id": 7, "error": error}]]
    fresh = Pair()
    fresh.to_server([request(7, "initialize", {})])
    assert fresh.sent[0]["error"]["code"] == -32600
    assert fresh.terms.era == "open"


@pytest.mark.covers("1.1.1.8", "T-6", "2.1.1", "RPC-1")
@cases("revision", UNBATCHED)
def test_an_array_on_any_other_revision_is_refused(revision: str) -> None:
    pair = opened(revision)
    assert pair.to_server([request(1)]) in ([], [Garbage(reason_for(pair))])
    message = "This revision has no JSON-RPC batches: send one message at a time"
    assert pair.sent == [{"jsonrpc": "2.0", "error": {"code": -32600, "message": message}}]
    assert not pair.server.incoming
    (event,) = pair.to_client([{"jsonrpc": "2.0", "id": 1, "result": {}}])
    assert event == Garbage(message)


def reason_for(pair: Pair) -> str:
    error = pair.sent[-1]["error"]
    return f"the other side reports {error['message']} (code {error['code']})"


def test_the_size_of_a_batch_is_bounded() -> None:
    pair = opened("2025-03-26", max_batch=2)
    assert len(pair.to_server([request(1), request(2)])) == 2
    pair.to_server([request(3), request(4), request(5)])
    assert pair.sent == [{"jsonrpc": "2.0", "error": {"code": -32600, "message": "A batch has at most 2 messages"}}]
    assert pair.server.incoming == {1, 2}


def test_the_depth_of_a_message_is_bounded() -> None:
    pair = opened(MODERN, max_depth=6)
    pair.served("tools/call", modern(name="x", arguments={"a": {"b": [[1]]}}), id=1)
    error = pair.refused("tools/call", modern(name="x", arguments={"a": {"b": [[[1]]]}}), id=2)
    assert (error.code, error.message) == (-32600, "The message is nested more than 6 levels deep")


@pytest.mark.covers("1.5.4")
def test_a_cancelled_member_of_a_batch_is_left_out_of_its_answer() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1), request(2)])
    assert pair.server.respond(1, {}) is None
    frame = pair.server.drop(2)
    assert frame is not None
    assert json.loads(frame) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


def test_a_batch_that_is_cancelled_as_a_whole_has_no_answer() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1), request(2)])
    assert pair.server.drop(1) is None
    assert pair.server.drop(2) is None
    assert pair.server._groups == {}


def test_a_result_over_the_limit_spoils_only_its_own_part_of_a_batch() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1), request(2)])
    assert pair.server.respond(1, {"big": "x" * 200}, 100) is None
    frame = pair.server.respond(2, {}, 100)
    assert frame is not None
    first, second = json.loads(frame)
    assert (first["id"], first["error"]["code"]) == (1, -32603)
    assert second == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_a_single_request_beside_a_batch_is_answered_by_itself() -> None:
    pair = opened("2025-03-26")
    pair.to_server([request(1)])
    call(pair, 2)
    frame = pair.server.respond(2, {})
    assert frame is not None
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": 2, "result": {}}


# --- properties ---


@given(st.lists(st.binary(max_size=60), max_size=5), st.sampled_from(REVISIONS))
def test_no_bytes_upset_either_side(frames: list[bytes], revision: str) -> None:
    pair = opened(revision)
    for frame in frames:
        pair.to_server(frame)
        pair.to_client(frame)
    assert call(pair, "probe").id == "probe"


class Traffic(RuleBasedStateMachine):
    """Requests of both sides, answered, refused, cancelled and forgotten in any order."""

    open = Bundle("open")

    def __init__(self) -> None:
        super().__init__()
        self.pair = opened("2025-11-25")
        self.waiting: set[int | str] = set()
        self.count = 0

    @rule(target=open, textual=st.booleans())
    def send(self, textual: bool) -> int | str:
        self.count += 1
        identifier: int | str = str(self.count) if textual else self.count
        call(self.pair, identifier)
        self.waiting.add(identifier)
        return identifier

    @rule(identifier=consumes(open), well=st.booleans())
    def settle(self, identifier: int | str, well: bool) -> None:
        server = self.pair.server
        frame = server.respond(identifier, {}) if well else server.refuse(identifier, ProtocolError(1, "x"))
        waited = identifier in self.waiting
        assert (frame is not None) is waited or identifier not in self.pair.client.outgoing
        if frame is not None:
            events = self.pair.to_client(frame)
            assert [type(event) for event in events] == ([Answer] if waited else [])
        self.waiting.discard(identifier)

    @rule(identifier=open)
    def cancel(self, identifier: int | str) -> None:
        known = identifier in self.pair.server.incoming
        self.pair.client.forget(identifier)
        self.waiting.discard(identifier)
        events = self.pair.notify_server("notifications/cancelled", {"requestId": identifier})
        assert events == ([Cancel(identifier, None)] if known else [])
        self.pair.server.drop(identifier)

    @invariant()
    def both_sides_agree(self) -> None:
        assert set(self.pair.client.outgoing) == self.waiting == self.pair.server.incoming


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(stateful_step_count=20)


def test_capabilities_and_metadata_travel_with_each_request() -> None:
    pair = opened(MODERN)
    event = pair.served("tools/call", {"_meta": meta(token=3, log_level="debug"), "name": "x"}, id=1)
    assert event.capabilities == CLIENT_CAPABILITIES
    assert (event.progress_token, event.log_level, event.modern) == (3, "debug", True)
    assert event.client.name == "someone"  # type: ignore[union-attr]
    (sent,) = pair.server.receive(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
    assert isinstance(sent, Send)


def test_a_server_refuses_what_is_too_long_to_read() -> None:
    pair = opened(MODERN)
    (event,) = pair.server.oversized()
    assert isinstance(event, Send)
    error = {"code": -32600, "message": "The message is over the size limit"}
    assert json.loads(event.data) == {"jsonrpc": "2.0", "error": error}


@cases("outstanding", [0, 1, 2])
def test_a_client_fails_the_one_request_that_an_answer_too_long_can_belong_to(outstanding: int) -> None:
    pair = opened(MODERN)
    for number in range(outstanding):
        call(pair, number)
    (event,) = pair.client.oversized()
    if outstanding == 1:
        assert isinstance(event, Answer)
        assert event.waiter == "waiter 0"
        assert isinstance(event.error, InvalidResponse)
        assert str(event.error) == "The message is over the size limit"
        assert not pair.client.outgoing
    else:
        assert event == Garbage("The message is over the size limit")
        assert len(pair.client.outgoing) == outstanding
