"""What may happen to a task, and how it looks in each dialect, with no server around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from tests.cases import cases

from toolwire.protocol import tasks as rules
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError, ServerError
from toolwire.protocol.tasks import Question, Record, new_record, verdict

ABLE = {"extensions": {t.TASKS_EXTENSION: {}}}
OFFERED = {"tasks": {"requests": {"tools": {"call": {}}}}, **ABLE}
ACCEPTED = Raw(b'{"action":"accept","content":{"value":true}}')


def record(**details: Any) -> Record:
    return new_record("t1", 1_800_000_000.5, 60_000, 1000, **details)


def question(text: str = "?") -> Question:
    return Question("elicitation/create", text, Raw(msgspec.json.encode({"message": text})))


@pytest.mark.covers("S16", "J67", "TSK-1", "T-30")
@cases(
    ("support", "revision", "client", "wanted", "expected"),
    [
        ("optional", "2025-11-25", {}, True, "task"),
        ("optional", "2025-11-25", {}, False, "call"),
        ("required", "2025-11-25", {}, True, "task"),
        ("required", "2025-11-25", {}, False, -32601),
        ("forbidden", "2025-11-25", {}, True, -32601),
        ("forbidden", "2025-11-25", {}, False, "call"),
        ("required", "2025-06-18", ABLE, True, "call"),
        ("required", "2024-11-05", {}, False, "call"),
        ("required", "2026-07-28", ABLE, False, "task"),
        ("required", "2026-07-28", {}, False, -32021),
        ("optional", "2026-07-28", ABLE, False, "may"),
        ("optional", "2026-07-28", {}, True, "call"),
        ("forbidden", "2026-07-28", ABLE, True, "call"),
    ],
)
def test_who_gets_a_task(support: Any, revision: str, client: Any, wanted: bool, expected: Any) -> None:
    if isinstance(expected, str):
        assert verdict(support, revision, client, OFFERED, wanted) == expected
        return
    with pytest.raises(ProtocolError) as caught:
        verdict(support, revision, client, OFFERED, wanted)
    assert caught.value.code == expected


@pytest.mark.covers("TSK-2")
@cases("support", ["forbidden", "optional", "required"])
@cases("client", [ABLE, {}], ids=["declared", "not declared"])
def test_on_2026_07_28_the_client_has_no_say(support: Any, client: dict[str, Any]) -> None:
    def judged(wanted: bool) -> Any:
        try:
            return verdict(support, "2026-07-28", client, OFFERED, wanted)
        except ProtocolError as refusal:
            return refusal.code

    assert judged(True) == judged(False)


@pytest.mark.covers("T-30")
@cases("support", ["forbidden", "optional", "required"])
@cases("revision", ["2025-11-25", "2026-07-28"])
def test_a_server_that_offers_no_tasks_ignores_the_wish(support: Any, revision: str) -> None:
    assert verdict(support, revision, ABLE, {"tools": {}}, True) == "call"


@pytest.mark.covers("J84")
@cases(("wanted", "kept"), [(UNSET, 300_000), (1, 1), (59_999, 59_999), (10**18, 3_600_000)])
def test_how_long_a_task_is_kept(wanted: Any, kept: int) -> None:
    assert rules.lifetime(wanted, 300, 3600) == kept


@cases("wanted", [0, -1, -(10**18)])
def test_a_time_to_live_is_above_zero(wanted: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        rules.lifetime(wanted, 300, 3600)
    assert caught.value.code == -32602


STEPS: dict[str, Callable[[Record, int], bool]] = {
    "complete": lambda task, number: rules.complete(task, Raw(b"{}")),
    "error": lambda task, number: rules.complete(task, Raw(b"{}"), "no"),
    "fail": lambda task, number: rules.fail(task, ProtocolError(-32603, "broken")),
    "cancel": lambda task, number: rules.cancel(task),
    "say": lambda task, number: rules.say(task, f"step {number}"),
    "ask": lambda task, number: rules.ask(task, {f"q{number}": question()}),
    "answer": lambda task, number: rules.take_answers(task, dict.fromkeys(task.questions, ACCEPTED)),
    "begin": lambda task, number: rules.begin(task, "p"),
    "hand back": lambda task, number: rules.hand_back(task),
    "lose the lease": lambda task, number: rules.lose_lease(task, 3) != "over",
}


def stored(idempotent: bool = True) -> rules.StoredCall:
    return rules.StoredCall(params=Raw(b"{}"), revision="2026-07-28", kind="tool", idempotent=idempotent)


def test_a_task_is_run_again_so_often_and_is_dead_then() -> None:
    task = record(call=stored())
    for attempt in (1, 2, 3):
        assert rules.begin(task, f"p{attempt}")
        assert not rules.begin(task, "another"), "once in an attempt"
        assert (task.process, task.begun, task.attempt) == (f"p{attempt}", True, attempt)
        rules.ask(task, {f"q{attempt}": question()})
        assert rules.lose_lease(task, 3) == ("dead" if attempt == 3 else "run again")
        assert (task.process, task.begun, task.questions) == ("", False, {})
    assert (task.status, task.call) == ("failed", UNSET)
    assert task.message == "The server lost contact with 3 processes that ran this task; the task may have run"


# What becomes of a task whose process is gone, or stops: by its call, and by whether its handler had begun.
LEFT = [
    (stored(True), False, "put back", "working"),
    (stored(True), True, "run again", "working"),
    (stored(False), False, "put back", "working"),
    (stored(False), True, "failed", "failed"),
    (UNSET, False, "failed", "failed"),
    (UNSET, True, "failed", "failed"),
]


@cases(("call", "begun", "loss", "handed_back"), LEFT)
def test_what_becomes_of_a_task_that_its_process_leaves(call: Any, begun: bool, loss: str, handed_back: str) -> None:
    def held() -> Record:
        task = record(call=call, process="" if call is not UNSET and not begun else "p")
        if begun:
            task.process = ""
            assert rules.begin(task, "p")
        return task

    lost, left = held(), held()
    assert rules.lose_lease(lost, 3) == loss
    assert rules.hand_back(left)
    assert (left.status, left.attempt) == (handed_back, 1)
    assert lost.attempt == (2 if loss == "run again" else 1)
    assert (rules.lose_lease(lost, 3) == "over") == (lost.status == "failed")


@pytest.mark.covers("J77", "E34")
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12))
def test_the_end_of_a_task_is_final(steps: list[str]) -> None:
    task = record()
    ended: bytes | None = None
    for number, step in enumerate(steps):
        before = task.status
        changed = STEPS[step](task, number)
        task = rules.decode(rules.encode(task))
        if ended is not None:
            assert not changed
            assert rules.encode(task) == ended
        elif task.over:
            ended = rules.encode(task)
        assert (task.status == "input_required") == bool(task.questions)
        assert before not in rules.TERMINAL or task.status == before
        # What a full store has to take is never longer than what it replaces.
        assert ended is None or len(ended) <= len(rules.encode(record()))


@pytest.mark.covers("TSK-12", "TSK-11")
def test_answers_count_once_and_only_for_what_was_asked() -> None:
    task = record()
    rules.ask(task, {"a": question("a"), "b": question("b")})
    assert not rules.take_answers(task, {"c": ACCEPTED})
    assert rules.take_answers(task, {"a": ACCEPTED, "c": Raw(b"nonsense")})
    assert (task.status, list(task.questions)) == ("input_required", ["b"])
    assert not rules.take_answers(task, {"a": Raw(b'{"action":"decline"}')})
    assert task.answers["a"].result == ACCEPTED
    assert rules.take_answers(task, {"b": ACCEPTED})
    assert task.status == "working"


@cases("answer", [b"1", b"{}", b'{"action":"perhaps"}', b"[]"])
def test_an_answer_of_the_wrong_shape_is_refused(answer: bytes) -> None:
    task = record()
    rules.ask(task, {"a": question()})
    with pytest.raises(ProtocolError) as caught:
        rules.take_answers(task, {"a": Raw(answer)})
    assert caught.value.code == -32602
    assert list(task.questions) == ["a"]


@pytest.mark.covers("J84", "E37", "T-28")
def test_the_ttl_counts_from_the_creation_and_grows_while_the_task_runs() -> None:
    task = record()
    for now in (task.created, task.created + 0.25, task.created + 86_400):
        assert task.shown_ttl(now) == 60_000 + (now - task.created) * 1000
    assert task.shown_ttl(task.created - 5) == 60_000, "another machine's clock may be behind"
    rules.cancel(task)
    task.updated = task.created + 90
    assert task.shown_ttl(task.created + 86_400) == 150_000


def test_a_question_that_is_taken_back_is_no_longer_waited_for() -> None:
    task = record()
    rules.ask(task, {"a": question(), "b": question()})
    assert rules.withdraw(task, "a")
    assert (list(task.questions), task.status) == (["b"], "input_required")
    assert not rules.withdraw(task, "a")
    assert rules.withdraw(task, "b")
    assert (task.questions, task.status) == ({}, "working")
    rules.ask(task, {"c": question()})
    rules.cancel(task)
    assert not rules.withdraw(task, "c")


def test_a_task_cannot_ask_for_ever() -> None:
    task = record()
    rules.ask(task, {str(number): question() for number in range(rules.MAX_QUESTIONS)})
    with pytest.raises(ProtocolError):
        rules.ask(task, {"more": question()})


def test_questions_that_were_answered_count_as_asked() -> None:
    task = record()
    half = rules.MAX_QUESTIONS // 2
    rules.ask(task, {str(number): question() for number in range(half)})
    rules.take_answers(task, {str(number): ACCEPTED for number in range(half)})
    rest = {f"again {number}": question() for number in range(rules.MAX_QUESTIONS - half)}
    with pytest.raises(ProtocolError):
        rules.ask(task, {**rest, "one too many": question()})
    assert rules.ask(task, rest)


@cases(
    ("task", "expected"), [(UNSET, UNSET), (Raw(b"{}"), UNSET), (Raw(b'{"ttl":0}'), 0), (Raw(b'{"ttl":60000}'), 60000)]
)
def test_the_time_to_live_that_a_call_asks_for(task: Any, expected: Any) -> None:
    assert rules.wanted_ttl(task) == expected


@cases("task", [b"[]", b'{"ttl":"long"}', b'{"ttl":1.5}', b"true"])
def test_a_time_to_live_that_cannot_be_read(task: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"Invalid params for tools/call: .* in `task`") as caught:
        rules.wanted_ttl(Raw(task))
    assert caught.value.code == -32602


@pytest.mark.covers("J73", "E34", "T-27")
def test_the_core_dialect() -> None:
    task = record()
    rules.say(task, "half")
    shown = msgspec.json.decode(msgspec.json.encode(rules.core_task(task, t.GetTaskResult, task.created)))
    assert shown == {
        "taskId": "t1",
        "status": "working",
        "statusMessage": "half",
        "createdAt": "2027-01-15T08:00:00.500Z",
        "lastUpdatedAt": "2027-01-15T08:00:00.500Z",
        "ttl": 60_000,
        "pollInterval": 1000,
    }
    rules.complete(task, Raw(b'{"content":[],"isError":true}'), "it broke")
    failed = rules.core_task(task, t.Task, 0.0)
    assert (failed.status, failed.status_message) == ("failed", "it broke")


@pytest.mark.covers("T-28")
def test_a_time_to_live_without_end_is_written() -> None:
    forever = t.Task(task_id="t", status="working", created_at="", last_updated_at="", ttl=None)
    assert b'"ttl":null' in msgspec.json.encode(forever)
    assert msgspec.json.decode(msgspec.json.encode(forever), type=t.Task).ttl is None
    # Servers of the python package leave it out.
    written = msgspec.json.encode(forever).replace(b',"ttl":null', b"")
    assert msgspec.json.decode(written, type=t.Task).ttl is None


@pytest.mark.covers("TSK-16", "TSK-6")
def test_the_extension() -> None:
    task = record()
    created = msgspec.json.decode(msgspec.json.encode(rules.task_created(task)))
    assert (created["resultType"], created["ttlMs"], created["pollIntervalMs"]) == ("task", 60_000, 1000)
    rules.ask(task, {"a": question("why")})
    asking = msgspec.json.decode(msgspec.json.encode(rules.detailed_task(task, t.DetailedTaskResult, 0.0)))
    assert asking["inputRequests"] == {"a": {"method": "elicitation/create", "params": {"message": "why"}}}
    assert asking["resultType"] == "complete"
    broken = record()
    rules.complete(broken, Raw(b'{"content":[],"isError":true}'), "it broke")
    shown = msgspec.json.decode(msgspec.json.encode(rules.detailed_task(broken, t.DetailedTaskResult, 0.0)))
    assert (shown["status"], shown["result"]) == ("completed", {"content": [], "isError": True})
    failed = record()
    rules.fail(failed, ProtocolError(-32099, "broken", {"why": 1}))
    shown = msgspec.json.decode(msgspec.json.encode(rules.detailed_task(failed, t.DetailedTaskResult, 0.0)))
    assert shown["error"] == {"code": -32099, "message": "broken", "data": {"why": 1}}
    assert "result" not in shown


@pytest.mark.covers("T-31")
def test_what_tasks_result_answers() -> None:
    task = record()
    rules.complete(task, Raw(b'{"content":[],"_meta":{"own":1}}'))
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    assert msgspec.json.decode(msgspec.json.encode(rules.payload(task))) == {
        "content": [],
        "_meta": {"own": 1, **related},
    }
    failed = record()
    rules.fail(failed, ProtocolError(-32099, "broken", {"why": 1}))
    with pytest.raises(ProtocolError) as caught:
        rules.payload(failed)
    assert (caught.value.code, caught.value.data) == (-32099, {"why": 1})
    gone = record()
    rules.cancel(gone)
    with pytest.raises(ProtocolError, match="cancelled"):
        rules.payload(gone)


def test_a_record_that_cannot_be_read_is_an_error_of_its_own() -> None:
    with pytest.raises(ProtocolError) as caught:
        rules.decode(b"\x00 not a record")
    assert caught.value.code == -32603


def test_call_in_a_record_of_an_earlier_version_has_what_it_left_out() -> None:
    call = msgspec.json.decode(b'{"params":{},"revision":"2026-07-28"}', type=rules.StoredCall)
    assert (call.kind, call.is_local, call.idempotent, call.line, call.wait, call.attempts) == (
        "",
        False,
        False,
        "",
        0.0,
        0,
    )


def test_time_of_a_program_is_at_most_a_year() -> None:
    assert rules.checked_number("ttl", 366 * 86_400, is_time=True) == 366 * 86_400
    with pytest.raises(ServerError, match="ttl= is a number of seconds above zero, at most a year"):
        rules.checked_number("ttl", 366 * 86_400 + 1, is_time=True)
