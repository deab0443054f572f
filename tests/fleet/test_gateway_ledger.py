"""The judge of the gateway scenes notices everything that must not happen."""

from __future__ import annotations

from tests.cases import cases
from tests.fleet.gateway_ledger import Asked, judge
from tests.fleet.ledger import LEGACY, MODERN, Ledger, Listener, Loss, Note

KILLED = Ledger(losses=[Loss("replica-1", 5.0, 0.1)])


def asked(back: str = "legacy", revision: str = MODERN, tool: str = "book", **outcome: str) -> Asked:
    return Asked(1, revision, back, tool, began=4.0, ended=6.0, requests=[(4.0, 4.5), (4.9, 6.0)], **outcome)


def begun(replica: str = "replica-1", times: int = 1) -> list[Note]:
    return [Note("begin", 1, replica, "token", 4.1)] * times


MAY_HAVE_RUN = "The server 'child' behind this one failed: it ended; the request may have been carried out"


@cases(
    ("call", "notes", "breach"),
    [
        (asked(text="1 2 Anna"), begun(), None),
        (asked(text="1 2 Ben"), begun(), "wrong"),
        (asked(text="1 2 Anna"), begun(times=2), "doubled"),
        (asked("modern", text="1 2 Anna"), begun(times=3), None),
        (asked(broken="502"), begun("replica-2"), None),
        (asked("child", error=MAY_HAVE_RUN), begun(), None),
        (asked("child", error=MAY_HAVE_RUN), begun("replica-2"), "wrong"),
        (asked("child", error="it failed"), begun(), "wrong"),
        (asked(error="'legacy' failed; it may have been carried out"), begun(), "wrong"),
        (asked(revision=LEGACY, error="it may have run"), begun(), None),
        (asked(revision=LEGACY, error="it may have run"), [], None),
        (asked(revision=LEGACY, error="it may have run"), begun("replica-2"), "wrong"),
    ],
)
def test_a_call_is_judged_by_the_gateway_that_made_it(call: Asked, notes: list[Note], breach: str | None) -> None:
    counts = judge([call], Ledger(losses=KILLED.losses), notes)
    assert counts.breaches == (0 if breach is None else 1)
    assert breach is None or getattr(counts, breach) == 1


def test_what_has_no_end_or_breaks_while_nobody_is_killed_counts() -> None:
    assert judge([asked(text="1 2 Anna"), asked(broken="502")], Ledger(), []).unanswered == 1
    endless = Asked(1, MODERN, "legacy", "book", began=4.0)
    assert judge([endless], Ledger(losses=KILLED.losses), []).unanswered == 1


def test_a_listener_that_missed_a_change_counts() -> None:
    ledger = Ledger(touched={"modern://one": 3.0}, listeners=[Listener("a listener", {"modern://one": 2.0})])
    assert judge([], ledger, []).lost_events == 1
