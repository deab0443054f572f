"""The judge of `make soak-gateway` notices everything that must not happen."""

from __future__ import annotations

import pytest
from tests.soak_gateway import ledger as judged
from tests.soak_gateway.ledger import BOUND, CANCEL_SECONDS, RECOVERY, Call, Ledger
from tests.soak_gateway.traffic import answer_to


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(judged, "time", clock)
    monkeypatch.setattr(judged, "stretched", lambda seconds: seconds)
    return clock


def begun(ledger: Ledger, kind: str = "echo") -> Call:
    return ledger.begin("token", "back", kind, "a client")


DONE = ["begin 1", "end 1"]


@pytest.mark.parametrize(
    ("text", "seconds", "notes", "problem"),
    [
        ("token", 1.0, DONE, None),
        ("another", 1.0, DONE, "wrong result"),
        ("token", BOUND + 1, DONE, "slow"),
        ("token", 1.0, [], "result of nothing"),
        ("token", 1.0, ["begin 1"], "result of nothing"),
        ("token", 1.0, [*DONE, "begin 1"], "carried out twice"),
    ],
)
def test_a_result_is_judged(clock: Clock, text: str, seconds: float, notes: list[str], problem: str | None) -> None:
    ledger = Ledger()
    call = begun(ledger)
    clock.now += seconds
    ledger.result(call, text)
    ledger.read(notes)
    assert dict(ledger.problems) == ({} if problem is None else {problem: 1})


@pytest.mark.parametrize(
    ("at", "may_fail"),
    [
        pytest.param(-5.0, False, id="before"),
        pytest.param(1.0, True, id="in the middle"),
        pytest.param(3.0 + RECOVERY - 1, True, id="while it recovers"),
        pytest.param(3.0 + RECOVERY + 1, False, id="afterwards"),
    ],
)
def test_a_call_may_fail_while_its_server_is_in_trouble(clock: Clock, at: float, may_fail: bool) -> None:
    ledger = Ledger()
    trouble = ledger.begin_trouble("back")
    trouble.ended = clock.now + 3.0
    clock.now += at
    ledger.error(begun(ledger), "The server 'back' behind this one failed")
    assert dict(ledger.problems) == ({} if may_fail else {"failed": 1})


def test_nothing_excuses_a_call_that_a_change_of_the_file_cut_off(clock: Clock) -> None:
    ledger = Ledger()
    ledger.begin_trouble("back")
    call = begun(ledger)
    call.strict = True
    ledger.error(call, "The server 'back' behind this one failed")
    assert ledger.problems == {"cut off": 1}


def test_an_error_names_the_server(clock: Clock) -> None:
    ledger = Ledger()
    ledger.begin_trouble("back")
    ledger.error(begun(ledger), "it failed")
    ledger.error(begun(ledger), "Unknown tool: back_echo")
    assert ledger.problems == {"unclear error": 1}


def test_a_gateway_that_gives_no_answer_is_never_excused(clock: Clock) -> None:
    ledger = Ledger()
    ledger.begin_trouble("back")
    ledger.broken(begun(ledger), "the connection broke")
    assert ledger.problems == {"no answer": 1}


@pytest.mark.parametrize(("notes", "problem"), [(["begin 1", "cancelled 1"], None), (["begin 1"], "not cancelled")])
def test_a_cancellation_arrives(clock: Clock, notes: list[str], problem: str | None) -> None:
    ledger = Ledger()
    ledger.cancel(begun(ledger, "hold"))
    ledger.read(notes)
    assert not ledger.problems
    clock.now += CANCEL_SECONDS + 1
    ledger.read([])
    assert dict(ledger.problems) == ({} if problem is None else {problem: 1})


def test_a_question_for_another_client_is_noticed(clock: Clock) -> None:
    ledger = Ledger()
    call = begun(ledger, "ask")
    halves = [answer_to(f"The {which} half of 1?", {1: call}, ledger, "a client") for which in ("first", "second")]
    assert "".join(halves) == "token"
    assert not ledger.problems
    answer_to("The first half of 2?", {1: call}, ledger, "a client")
    assert ledger.problems == {"wrong question": 1}
