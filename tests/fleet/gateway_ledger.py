"""The books of the gateway scenes: every call as its client sees it, and the verdict.

The rules are those of docs/guides/gateway.md. A gateway that is killed may fail what is in flight on it, and a call
that it holds at a server whose events nobody keeps. One that is told to stop may fail only what outlasts its time to
drain.
Nothing runs twice. `judge` is pure, so that its own test can show that it notices each breach.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.fleet.ledger import MODERN, Counts, Ledger, Loss, Note
from tests.fleet.replicas import DRAIN

#: A request that ends so many seconds after the kill may have been in flight then.
SLACK = 1.0


@dataclass
class Asked:
    """A call as its client sees it."""

    number: int
    revision: str
    back: str
    tool: str
    began: float
    ended: float = 0.0
    requests: list[tuple[float, float]] = field(default_factory=list)
    """When each of its requests began and ended."""
    text: str = ""
    """The text of its result."""
    error: str = ""
    """The text of an error that the gateway answered with."""
    broken: str = ""
    """Why the client got no answer."""

    @property
    def name(self) -> str:
        return f"{self.tool} {self.number} of {self.revision} at {self.back}"

    @property
    def expected(self) -> str:
        return f"{self.number} 2 Anna" if self.tool == "book" else str(self.number)


def judge(calls: list[Asked], ledger: Ledger, notes: list[Note]) -> Counts:
    """Count what happened, and what must not have happened."""
    counts = Counts(calls=len(calls), tasks=sum(call.tool == "work" and bool(call.text) for call in calls))
    begins: dict[int, list[Note]] = defaultdict(list)
    ends: Counter[int] = Counter()
    for note in notes:
        if note.what == "begin":
            begins[note.number].append(note)
        else:
            ends[note.number] += 1
    for call in calls:
        begun = begins[call.number]
        # A modern server asks by running its handler again, up to the answer that is missing.
        asks_again = call.back == "modern" and call.tool == "book"
        runs = ends[call.number] if asks_again else max(ends[call.number], len(begun))
        if runs > 1:
            counts.breach("doubled", f"{call.name} ran {runs} times")
        _judge_call(call, begun, ledger, counts)
    asking = [call for call in calls if call.tool == "book"]
    resumed = sum(bool(call.text) and _lost_its_holder(call, begins[call.number], ledger) for call in asking)
    stops = sum(map(_is_stop, ledger.losses))
    ledger.remarks.append(
        f"{len(ledger.losses) - stops} gateways killed, {stops} stopped, {len(asking)} calls with questions, "
        f"{resumed} of them resumed by another gateway"
    )
    for listener in ledger.listeners:
        for change in ledger.missed(listener):
            counts.breach("lost_events", f"{listener.name} was not told of {change}")
    for replica in ledger.wedged:
        counts.breach("wedged", replica)
    return counts


def _judge_call(call: Asked, begun: list[Note], ledger: Ledger, counts: Counts) -> None:
    if call.text:
        if call.text != call.expected:
            counts.breach("wrong", f"{call.name} has the result {call.text!r}")
        return
    if not call.ended:
        counts.breach("unanswered", f"{call.name} has no end")
        return
    counts.failed += 1
    if call.broken and call.requests:
        began, ended = call.requests[-1]
        if not any(_excuses(loss, began, ended, SLACK) for loss in ledger.losses):
            counts.breach("unanswered", f"{call.name}: {call.broken}")
        return
    if not begun and any(_excuses(loss, call.began, call.ended) for loss in ledger.losses):
        return  # It was in flight on the gateway, and never reached the server.
    if not _lost_its_holder(call, begun, ledger):
        counts.breach("wrong", f"{call.name}, made by {begun[0].replica if begun else 'no gateway'}: {call.error}")
    elif call.revision == MODERN and call.back == "legacy":
        counts.breach("wrong", f"{call.name} was not resumed: {call.error}")
    elif call.revision == MODERN and not (repr(call.back) in call.error and "may have been carried out" in call.error):
        counts.breach("wrong", f"{call.name} has an error that says too little: {call.error}")


def _lost_its_holder(call: Asked, begun: list[Note], ledger: Ledger) -> bool:
    """Return whether the gateway that made a call at its server was lost meanwhile."""
    holders = {note.replica for note in begun}
    return any(loss.replica in holders and _excuses(loss, call.began, call.ended) for loss in ledger.losses)


def _excuses(loss: Loss, began: float, ended: float, slack: float = 0.0) -> bool:
    """Return whether the loss of a gateway excuses the failure of what ran from `began` to `ended`."""
    if _is_stop(loss) and ended - began <= DRAIN:
        return False
    return began <= loss.at + loss.grace and loss.at <= ended + slack


def _is_stop(loss: Loss) -> bool:
    """Return whether a gateway was told to stop, and had time to drain."""
    return loss.grace >= DRAIN
