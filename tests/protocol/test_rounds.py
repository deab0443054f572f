"""Questions that end a request and answers that come with the next one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases

from toolwire.protocol import types as t
from toolwire.protocol.errors import InvalidResponse, ProtocolError
from toolwire.protocol.rounds import (
    LIFETIME,
    MAX_ROUNDS,
    Kind,
    Rounds,
    digest,
    dump_state,
    invalid_state,
    read_round,
    repeat_pause,
    request_digest,
    retry_params,
)

NAME = t.ElicitRequestParams(message="Your name?", requested_schema={"type": "object", "properties": {}})
AGE = t.ElicitRequestParams(message="Your age?", requested_schema={"type": "object", "properties": {}})
ACCEPTED = Raw(b'{"action":"accept","content":{"name":"Ada"}}')
ROOTS = Raw(b'{"roots":[{"uri":"file:///a"}]}')
QUESTIONS: dict[Kind, t.Wire | None] = {
    "elicitation/create": NAME,
    "roots/list": None,
    "sampling/createMessage": t.CreateMessageRequestParams(messages=[], max_tokens=5),
}
SAMPLED = Raw(b'{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}')


def first(request: str = "req", principal: str = "me", **options: Any) -> Rounds:
    return Rounds(request, principal, **options)


def following(before: Rounds, responses: dict[str, Raw], now: float = 100.0, **changes: Any) -> Rounds:
    """The round after `before`, with answers."""
    payload = dump_state(before.next_state("id", now))
    rounds = Rounds(changes.get("request", before.request), changes.get("principal", before.principal))
    rounds.resume(payload, responses, changes.get("later", now))
    return rounds


def refusal(error: pytest.ExceptionInfo[ProtocolError]) -> tuple[int, str]:
    return error.value.code, error.value.message


INVALID = (-32602, "The requestState is not valid for this request; start again without it")


# --- asking ---


@pytest.mark.covers("MRTR-2", "MRTR-3")
@cases(
    ("kind", "params", "method"),
    [
        ("elicitation/create", NAME, "elicitation/create"),
        ("roots/list", None, "roots/list"),
        (
            "sampling/createMessage",
            t.CreateMessageRequestParams(messages=[], max_tokens=5),
            "sampling/createMessage",
        ),
    ],
)
def test_an_unanswered_question_becomes_an_input_request(kind: Kind, params: t.Wire | None, method: str) -> None:
    rounds = first()
    assert rounds.ask(kind, params, "k") is None
    wire = json.loads(msgspec.json.encode(rounds.result("sealed")))
    assert wire["resultType"] == "input_required"
    assert wire["requestState"] == "sealed"
    assert list(wire["inputRequests"]) == ["k"]
    assert wire["inputRequests"]["k"]["method"] == method
    if params is not None:
        assert wire["inputRequests"]["k"]["params"] == json.loads(msgspec.json.encode(params))


@pytest.mark.covers("MRTR-2")
@cases(
    ("kind", "params", "answer"),
    [
        ("elicitation/create", NAME, ACCEPTED),
        ("elicitation/create", NAME, Raw(b'{"action":"decline"}')),
        ("roots/list", None, ROOTS),
        ("sampling/createMessage", t.CreateMessageRequestParams(messages=[], max_tokens=5), SAMPLED),
    ],
)
def test_an_answer_is_found_by_the_same_question_in_the_next_round(
    kind: Kind, params: t.Wire | None, answer: Raw
) -> None:
    rounds = first()
    assert rounds.ask(kind, params) is None
    (key,) = rounds.pending
    after = following(rounds, {key: answer})
    found = after.ask(kind, params)
    assert found is not None
    assert bytes(found) == bytes(answer)
    assert after.pending == {}
    assert after.round == 1


@pytest.mark.covers("MRTR-3")
def test_keys_name_the_question_whatever_the_order() -> None:
    one, two = first(), first()
    for rounds, order in ((one, (NAME, AGE)), (two, (AGE, NAME))):
        for params in order:
            rounds.ask("elicitation/create", params)
    assert set(one.pending) == set(two.pending)
    assert len(one.pending) == 2
    assert all(key.startswith("elicitation-") and len(key) == len("elicitation-") + 16 for key in one.pending)


@pytest.mark.covers("MRTR-3")
def test_the_same_question_twice_has_two_keys_and_two_answers() -> None:
    rounds = first()
    for _ in range(3):
        assert rounds.ask("elicitation/create", NAME) is None
    base, *rest = rounds.pending
    assert rest == [f"{base}-1", f"{base}-2"]
    no = Raw(b'{"action":"decline"}')
    after = following(rounds, {base: ACCEPTED, f"{base}-1": no, f"{base}-2": ACCEPTED})
    answers = [after.ask("elicitation/create", NAME) for _ in range(3)]
    assert [bytes(answer or b"") for answer in answers] == [bytes(ACCEPTED), bytes(no), bytes(ACCEPTED)]


def test_a_key_of_ones_own_is_used_once() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "who")
    with pytest.raises(ValueError, match="'who' names two questions"):
        rounds.ask("elicitation/create", AGE, "who")
    assert list(rounds.pending) == ["who"]


def test_a_question_that_changed_is_asked_again() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "who")
    after = following(rounds, {"who": ACCEPTED})
    assert after.ask("elicitation/create", AGE, "who") is None
    assert list(after.pending) == ["who"]
    other = following(rounds, {"who": ACCEPTED})
    assert other.ask("roots/list", None, "who") is None


def test_an_answer_that_was_offered_beforehand_is_taken_for_a_named_question_alone() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME)
    (unnamed,) = rounds.pending
    fresh = first()
    fresh.offer({"who": ACCEPTED, unnamed: ACCEPTED})
    found = fresh.ask("elicitation/create", NAME, "who")
    assert found is not None
    assert bytes(found) == bytes(ACCEPTED)
    assert fresh.ask("elicitation/create", NAME) is None
    assert fresh.ask("elicitation/create", AGE, "age") is None
    assert list(fresh.next_state("id", 0.0).answers) == ["who"]
    with pytest.raises(ProtocolError, match="The answer to 'who' is not a roots/list result"):
        again = first()
        again.offer({"who": ACCEPTED})
        again.ask("roots/list", None, "who")


# --- the state between rounds ---


@pytest.mark.covers("MRTR-9")
def test_a_missing_answer_is_asked_again_and_an_unknown_one_ignored() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "name")
    rounds.ask("elicitation/create", AGE, "age")
    after = following(rounds, {"age": ACCEPTED, "other": Raw(b'{"action":"steal"}')})
    assert {key: request for key, (_, request) in after.pending.items()} == {"name": t.ElicitRequest(NAME)}
    assert after.unfinished is not None
    whole = following(after, {"name": ACCEPTED})
    assert whole.unfinished is None
    assert whole.pending == {}
    assert whole.ask("elicitation/create", NAME, "name") is not None
    assert whole.ask("elicitation/create", AGE, "age") is not None
    assert whole.ask("roots/list", None, "other") is None


@pytest.mark.covers("MRTR-7")
def test_what_is_asked_again_has_the_id_the_deadline_and_the_round_of_before() -> None:
    rounds = first()
    for kind, params in QUESTIONS.items():
        rounds.ask(kind, params, kind)
    rounds.steps["paid"] = Raw(b"7")
    before = rounds.next_state("one", 100.0, 60.0)
    answers = {"elicitation/create": ACCEPTED, "roots/list": ROOTS, "sampling/createMessage": SAMPLED}
    given: dict[str, Raw] = {}
    payload = dump_state(before)
    for key in (None, *answers):
        partly = first()
        state = partly.resume(payload, {} if key is None else {key: answers[key]}, 150.0)
        given |= {} if key is None else {key: answers[key]}
        assert (state.id, partly.unfinished is None) == ("one", given == answers)
        if partly.unfinished is not None:
            after = partly.next_state("another", 150.0, 60.0)
            assert (after.id, after.expires, after.round) == ("one", 160.0, 1)
            assert set(after.asked) == set(answers) - set(given)
            assert {key: bytes(each.result) for key, each in after.answers.items()} == {
                key: bytes(each) for key, each in given.items()
            }
            assert bytes(after.steps["paid"]) == b"7"
            payload = dump_state(after)
    assert partly.next_state("another", 150.0).id == "another"


@pytest.mark.covers("MRTR-9")
def test_long_questions_are_answered_together() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "short")
    rounds.ask("elicitation/create", t.ElicitRequestParams(message="?" * 20_000), "long")
    state = dump_state(rounds.next_state("id", 0.0))
    assert len(state) < 20_000
    again = first()
    with pytest.raises(ProtocolError) as caught:
        again.resume(state, {"short": ACCEPTED}, 0.0)
    assert refusal(caught) == (
        -32602,
        "The answer to 'long' is missing; send the answers to all questions together",
    )
    assert first().resume(state, {"short": ACCEPTED, "long": ACCEPTED}, 0.0).id == "id"
    partly = first()
    partly.resume(state, {"long": ACCEPTED}, 0.0)
    assert list(partly.pending) == ["short"]


@pytest.mark.covers("MRTR-9")
@cases(
    ("kind", "answer"),
    [
        ("elicitation/create", b"[]"),
        ("elicitation/create", b'{"action":"maybe"}'),
        ("roots/list", b'{"roots":5}'),
        ("sampling/createMessage", b'{"role":"assistant"}'),
    ],
)
def test_a_malformed_answer_is_an_error_that_says_which(kind: Kind, answer: bytes) -> None:
    rounds = first()
    rounds.ask(kind, QUESTIONS[kind], "k")
    with pytest.raises(ProtocolError) as caught:
        following(rounds, {"k": Raw(answer)})
    code, message = refusal(caught)
    assert code == -32602
    assert message.startswith(f"The answer to 'k' is not a {kind} result: ")
    assert "toolwire" not in message


def test_an_answer_that_is_no_json_says_only_that() -> None:
    rounds = first()
    rounds.ask("roots/list", None, "k" * 300)
    with pytest.raises(ProtocolError) as caught:
        following(rounds, {"k" * 300: Raw(b'{"roots":')})
    assert caught.value.message == f"The answer to {'k' * 100!r} is not a roots/list result: it cannot be read"


def test_answers_are_carried_on_as_long_as_they_are_used() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "name")
    second = following(rounds, {"name": ACCEPTED})
    assert second.ask("elicitation/create", NAME, "name") is not None
    second.ask("elicitation/create", AGE, "age")
    third = following(second, {"age": ACCEPTED})
    assert third.round == 2
    assert third.ask("elicitation/create", NAME, "name") is not None
    assert third.ask("elicitation/create", AGE, "age") is not None


def test_an_answer_that_was_not_used_does_not_travel_on() -> None:
    rounds = first()
    rounds.ask("elicitation/create", NAME, "name")
    second = following(rounds, {"name": ACCEPTED})
    second.ask("elicitation/create", AGE, "age")
    state = second.next_state("id", 100.0)
    assert state.answers == {}
    assert list(state.asked) == ["age"]


def test_steps_travel() -> None:
    rounds = first()
    rounds.steps["paid"] = Raw(b'{"id":7}')
    rounds.ask("roots/list", None, "r")
    after = following(rounds, {"r": ROOTS})
    assert {name: bytes(value) for name, value in after.steps.items()} == {"paid": b'{"id":7}'}
    after.steps["other"] = Raw(b"1")
    assert list(rounds.steps) == ["paid"]


@pytest.mark.covers("MRTR-6")
@pytest.mark.parametrize("change", [{"request": "another"}, {"principal": "somebody"}])
def test_a_state_belongs_to_one_request_and_one_principal(change: dict[str, str]) -> None:
    rounds = first()
    rounds.ask("roots/list", None, "r")
    with pytest.raises(ProtocolError) as caught:
        following(rounds, {"r": ROOTS}, **change)
    assert refusal(caught) == INVALID


@pytest.mark.covers("MRTR-6")
def test_a_state_has_a_short_life() -> None:
    rounds = first()
    rounds.ask("roots/list", None, "r")
    assert LIFETIME == 600
    assert rounds.next_state("id", 100.0).expires == 700.0
    assert rounds.next_state("id", 100.0, 5.0).expires == 105.0
    following(rounds, {"r": ROOTS}, now=100.0, later=700.0)
    with pytest.raises(ProtocolError) as caught:
        following(rounds, {"r": ROOTS}, now=100.0, later=700.1)
    assert refusal(caught) == INVALID


@pytest.mark.covers("MRTR-5")
@cases("payload", [b"", b"{}", b"nonsense", b'{"request":1}', b"[]"])
def test_a_state_that_cannot_be_read_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        first().resume(payload, {}, 0.0)
    assert refusal(caught) == INVALID == (invalid_state().code, invalid_state().message)


def test_a_state_of_an_unknown_kind_of_question_is_refused() -> None:
    rounds = first()
    rounds.ask("roots/list", None, "r")
    payload = dump_state(rounds.next_state("id", 0.0)).replace(b"roots/list", b"roots/lost")
    for responses in ({"r": ROOTS}, {}):
        with pytest.raises(ProtocolError) as caught:
            first().resume(payload, responses, 0.0)
        assert refusal(caught) == INVALID


def test_the_number_of_rounds_is_bounded() -> None:
    assert MAX_ROUNDS == 10
    rounds = Rounds("req", "me", max_rounds=2)
    for expected in (1, 2):
        rounds.ask("roots/list", None, f"r{expected}")
        state = rounds.next_state("id", 0.0)
        assert state.round == expected
        rounds = Rounds("req", "me", max_rounds=2)
        rounds.resume(dump_state(state), {f"r{expected}": ROOTS}, 0.0)
    rounds.ask("roots/list", None, "r3")
    with pytest.raises(ProtocolError) as caught:
        rounds.next_state("id", 0.0)
    assert refusal(caught) == (-32602, "The call asked more than 2 rounds of questions")


# --- digests ---


def test_a_digest_does_not_depend_on_order_or_spacing() -> None:
    assert digest("m", Raw(b'{"a":1,"b":[1,2]}')) == digest("m", Raw(b' { "b" : [1,2], "a":1 } '))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest("a", "b") != digest("ab", "")
    assert digest(1) != digest("1")
    assert len(digest("x")) == 32


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def tagged(value: Any) -> Any:
    """Python calls 1 and True equal; JSON does not."""
    if isinstance(value, list):
        return [tagged(each) for each in value]
    if isinstance(value, dict):
        return {key: tagged(each) for key, each in value.items()}
    return type(value).__name__, value


@given(JSON, JSON)
def test_digests_are_equal_when_the_values_are(one: Any, other: Any) -> None:
    assert (digest(one) == digest(other)) is (tagged(one) == tagged(other))
    assert digest(Raw(json.dumps(one).encode())) == digest(one)


def call(name: str = "t", arguments: bytes | None = b'{"a":1}', **more: Any) -> t.CallToolRequestParams:
    return t.CallToolRequestParams(name=name, arguments=UNSET if arguments is None else Raw(arguments), **more)


@pytest.mark.covers("MRTR-6")
def test_the_digest_of_a_request_covers_everything_that_is_the_callers_own() -> None:
    base = request_digest("tools/call", call())
    assert base == request_digest("tools/call", call(arguments=b'{ "a" : 1 }'))
    retried = call(request_state="s", input_responses={"k": ACCEPTED}, meta=t.RequestMeta(progress_token=1))
    assert base == request_digest("tools/call", retried)
    others = [
        request_digest("tools/call", call(arguments=b'{"a":2}')),
        request_digest("tools/call", call(arguments=None)),
        request_digest("tools/call", call(name="u")),
        request_digest("prompts/get", call()),
    ]
    assert base not in others
    assert len(set(others)) == 4


# --- the client's half ---


@pytest.mark.covers("MRTR-13", "MRTR-14")
def test_a_retry_is_the_same_request_with_answers_and_the_state_unchanged() -> None:
    params = call()
    state = "opaque \u2603 state"
    result = t.InputRequiredResult(input_requests={"k": t.ListRootsRequest()}, request_state=state)
    retried = retry_params(params, result, {"k": {"roots": []}})
    assert (retried.name, bytes(retried.arguments)) == ("t", b'{"a":1}')
    assert retried.request_state == state
    assert retried.input_responses == {"k": {"roots": []}}
    assert params.request_state is UNSET
    again = retry_params(retried, t.InputRequiredResult(input_requests={"k": t.ListRootsRequest()}), {})
    assert again.request_state is UNSET
    assert again.input_responses is UNSET


def test_a_state_is_bound_to_members_that_no_type_knows() -> None:
    """MRTR-6: the request of an extension's method is its method and all its members."""
    one, same, other = (
        t.decode(t.RoundRequestParams, text)
        for text in ('{"text":"x"}', '{"text":"x","requestState":"s","inputResponses":{}}', '{"text":"y"}')
    )
    assert request_digest("notes/ask", one) == request_digest("notes/ask", same)
    assert request_digest("notes/ask", one) != request_digest("notes/ask", other)


@cases(
    ("asked", "pause"),
    [(0, 0.0), (500, 0.5), (-0.5, None), (True, None), ("1", None), (float("inf"), None), (10**400, None)],
)
def test_pause_before_answers_are_sent_again_is_what_the_server_names(asked: Any, pause: float | None) -> None:
    assert repeat_pause(ProtocolError(-32603, "later", {"retryAfterMs": asked})) == pause


def test_error_names_the_beginning_of_a_long_key() -> None:
    rounds = first()
    rounds.ask("elicitation/create", t.ElicitRequestParams(message="?" * 20_000), "k" * 300)
    with pytest.raises(ProtocolError, match=f"^The answer to '{'k' * 100}' is missing"):
        first().resume(dump_state(rounds.next_state("id", 0.0)), {}, 0.0)


def test_client_answers_questions_or_pauses_before_the_next_round() -> None:
    asked = Raw(b'{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}')
    assert read_round("tools/call", asked, 0).questions.keys() == {"r"}
    waiting = Raw(b'{"resultType":"input_required","requestState":"s"}')
    steps = [read_round("tools/call", waiting, number) for number in range(MAX_ROUNDS)]
    assert [step.pause for step in steps[:6]] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert all(not step.questions and step.result.request_state == "s" for step in steps)
    with pytest.raises(InvalidResponse, match=f"tools/call asked more than {MAX_ROUNDS} rounds of questions"):
        read_round("tools/call", waiting, MAX_ROUNDS)


@cases(
    ("method", "text", "message"),
    [
        ("tools/call", '{"resultType":"other"}', "the result type 'other'"),
        ("tools/call", "[]", "the result type ''"),
        ("tools/list", '{"resultType":"input_required","requestState":"s"}', "the result type 'input_required'"),
        ("tools/call", '{"resultType":"input_required"}', "does not say what"),
        ("tools/call", '{"resultType":"input_required","inputRequests":{}}', "does not say what"),
        ("tools/call", '{"resultType":"input_required","inputRequests":[]}', "cannot be read"),
    ],
)
def test_round_that_makes_no_sense_is_refused(method: str, text: str, message: str) -> None:
    with pytest.raises(InvalidResponse, match=message):
        read_round(method, Raw(text.encode()), 0)
