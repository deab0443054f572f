"""The verdict of `make fleet` notices each breach, and nothing else. No process is started here."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.cases import cases
from tests.fleet.ledger import BREACHES, LEGACY, Call, Counts, Ledger, Listener, Loss, Note, Task, judge, read_notes


def task(kind: str = "once", seconds: float = 10.0, **details: Any) -> Task:
    """Return a task that was accepted and came to its end."""
    given: dict[str, Any] = {"id": "t1", "status": "completed", "later": "completed", "ended": 20.0, "text": "1 a"}
    return Task(1, kind, seconds, 5.0, **given | details)


def begin(token: str = "a", replica: str = "r1", at: float = 10.0) -> Note:
    return Note("begin", 1, replica, token, at)


def failed(kind: str = "once", **details: Any) -> Task:
    return task(kind, **{"status": "failed", "later": "failed", "text": "why"} | details)


KILLED = [Loss("r1", 15.0)]
STOPPED = [Loss("r1", 12.0, 5.0)]

TASKS: dict[str, tuple[Task, list[Note], dict[str, Any], dict[str, int]]] = {
    "completed": (task(), [begin()], {}, {"tasks": 1}),
    "not accepted, never begun": (task(id="", status="", refused="full"), [], {}, {}),
    "refused where nothing may be refused": (
        task(id="", status="", refused="full"),
        [],
        {"refuses": False},
        {"refused": 1},
    ),
    "refused after it had begun": (task(id="", status="", refused="full"), [begin()], {}, {"begun_refused": 1}),
    "never heard whether it is accepted": (task(id="", status="", is_unanswered=True), [], {}, {"unanswered": 1}),
    "without an end": (task(status="", later="working"), [begin()], {}, {"tasks": 1, "endless": 1}),
    "forgotten": (task(status="gone"), [begin()], {}, {"tasks": 1, "endless": 1}),
    "forgotten, with the last writes": (
        task(status="gone"),
        [begin()],
        {"lost_writes": [6.0]},
        {"tasks": 1, "excused": 1},
    ),
    "forgotten, long before the lost writes": (
        task(status="gone"),
        [begin()],
        {"lost_writes": [60.0]},
        {"tasks": 1, "endless": 1},
    ),
    "begun twice": (task(text="1 b"), [begin(), begin("b", "r2", 12.0)], {}, {"tasks": 1, "doubled": 1}),
    "begun twice, with the last writes": (
        task(text="1 b"),
        [begin(), begin("b", "r2", 12.0)],
        {"lost_writes": [11.0]},
        {"tasks": 1, "excused": 1},
    ),
    "begun twice though never accepted": (
        task(id="", status=""),
        [begin(), begin("b", "r2", 12.0)],
        {},
        {"doubled": 1},
    ),
    "idempotent and begun twice": (task("again", text="1 b"), [begin(), begin("b", "r2", 12.0)], {}, {"tasks": 1}),
    "the result of a run that was lost": (
        task("again"),
        [begin(), begin("b", "r2", 12.0)],
        {},
        {"tasks": 1, "stale": 1},
    ),
    "a message of a run that was lost": (
        task("again", text="1 b", tokens=["a", "b", "a"]),
        [begin(), begin("b", "r2", 12.0)],
        {},
        {"tasks": 1, "stale": 1},
    ),
    "the result of another task": (task(text="2 a"), [begin()], {}, {"tasks": 1, "wrong": 1}),
    "another end later on": (task(later="failed"), [begin()], {}, {"tasks": 1, "wrong": 1}),
    "no end any more": (task(later="gone"), [begin()], {}, {"tasks": 1, "wrong": 1}),
    "failed though its replica lived": (failed(), [begin()], {}, {"tasks": 1, "failed": 1, "wrong": 1}),
    "failed with its replica": (failed(), [begin()], {"losses": KILLED}, {"tasks": 1, "failed": 1}),
    "failed with another replica": (
        failed(),
        [begin(replica="r2")],
        {"losses": KILLED},
        {"tasks": 1, "failed": 1, "wrong": 1},
    ),
    "begun after its replica was back": (
        failed(),
        [begin(at=16.0)],
        {"losses": KILLED},
        {"tasks": 1, "failed": 1, "wrong": 1},
    ),
    "failed before its replica was killed": (
        failed(ended=14.0),
        [begin()],
        {"losses": KILLED},
        {"tasks": 1, "failed": 1, "wrong": 1},
    ),
    "longer than the drain": (failed(), [begin()], {"losses": STOPPED}, {"tasks": 1, "failed": 1}),
    "shorter than the drain": (
        failed(seconds=2.0),
        [begin()],
        {"losses": STOPPED},
        {"tasks": 1, "failed": 1, "wrong": 1},
    ),
    "idempotent and failed with its replica": (
        failed("again"),
        [begin()],
        {"losses": KILLED},
        {"tasks": 1, "failed": 1, "wrong": 1},
    ),
    "idempotent and failed after three attempts": (
        failed("again"),
        [begin(at=1.0), begin("b", at=2.0), begin("c", at=3.0)],
        {"losses": KILLED},
        {"tasks": 1, "failed": 1},
    ),
    "failed without having begun": (failed(), [], {}, {"tasks": 1, "failed": 1, "wrong": 1}),
    "killed in the moment of its beginning": (failed(), [], {"losses": KILLED}, {"tasks": 1, "failed": 1}),
}


def counted(counts: Counts) -> dict[str, int]:
    return {name: value for name, value in vars(counts).items() if isinstance(value, int) and value}


@cases("case", TASKS)
def test_tasks(case: str) -> None:
    entry, notes, details, expected = TASKS[case]
    counts = judge(Ledger(tasks=[entry], **details), notes)
    assert counted(counts) == expected
    assert counts.breaches == sum(expected.get(name, 0) for name in BREACHES) == len(counts.examples)


CALLS: dict[str, tuple[Call, dict[str, int]]] = {
    "answered": (Call(1, LEGACY, 2, Counter([1, 2]), "result", "1"), {}),
    "refused": (Call(1, LEGACY, 2, Counter([1]), "error", "no"), {}),
    "never answered": (Call(1, LEGACY, 2, Counter([1])), {"unanswered": 1}),
    "given up": (Call(1, LEGACY, 2, Counter([1]), "broken"), {"unanswered": 1}),
    "the answer of another call": (Call(1, LEGACY, 0, Counter(), "result", "2"), {"wrong": 1}),
    "a report is lost": (Call(1, LEGACY, 2, Counter([2]), "result", "1"), {"lost_events": 1}),
    "a report came twice": (Call(1, LEGACY, 2, Counter([1, 2, 2]), "result", "1"), {"doubled_events": 1}),
}


@cases("case", CALLS)
def test_calls(case: str) -> None:
    call, expected = CALLS[case]
    assert counted(judge(Ledger(calls=[call]), [])) == {"calls": 1} | expected


LISTENERS: dict[str, tuple[Listener, int]] = {
    "told of everything": (Listener("l", {"x": 3.0}, frozenset({"added"})), 0),
    "told before the change": (Listener("l", {"x": 1.0}, frozenset({"added"})), 1),
    "never told": (Listener("l", {}, frozenset({"added"})), 1),
    "not told of a tool": (Listener("l", {"x": 3.0}), 1),
}


@cases("case", LISTENERS)
def test_listeners(case: str) -> None:
    listener, expected = LISTENERS[case]
    ledger = Ledger(listeners=[listener], touched={"x": 2.0}, new_tools=frozenset({"added"}))
    assert judge(ledger, []).lost_events == expected


def test_replicas_that_do_not_work_count() -> None:
    assert judge(Ledger(wedged=["r1"]), []).wedged == 1


def test_notes_are_read() -> None:
    assert read_notes(["begin 1 r1 a 10.000"]) == [begin()]
