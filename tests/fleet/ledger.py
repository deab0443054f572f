"""The books of one scene: every call, task and event that clients know of, what the handlers noted, and the verdict.

The rule is: nothing lost, nothing doubled. `judge` counts the breaches. It is pure, so that its own test can show that
it notices each of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

#: An idempotent task is begun so often at most. After that it may fail, if replicas were lost under it each time.
MOST_ATTEMPTS = 3
#: Seconds before a failover with lost writes in which a write may be one of the lost ones.
LOST_WRITES = 3.0
#: Examples of each breach that are printed.
MOST_EXAMPLES = 4
LEGACY = "2025-11-25"
MODERN = "2026-07-28"


@dataclass
class Task:
    """A task as its client sees it."""

    number: int
    kind: str
    seconds: float
    asked: float
    """When the client asked for it, in seconds of the monotonic clock; so are all times."""
    id: str = ""
    """Empty until it is accepted."""
    refused: str = ""
    """The answer of a server that did not accept it."""
    is_unanswered: bool = False
    """Whether the client never heard whether it is accepted."""
    status: str = ""
    """How it ended; empty while it has no end."""
    ended: float = 0.0
    text: str = ""
    """The text of its result or of its error."""
    kept: float = 300.0
    """Seconds that it is kept after its end."""
    later: str = ""
    """Its status at the last look."""
    tokens: list[str] = field(default_factory=list)
    """The runs that wrote its status message, in the order in which they were seen."""

    @property
    def is_idempotent(self) -> bool:
        return self.kind in ("again", "hold_again", "added")

    def saw(self, message: str | None) -> None:
        if message and (not self.tokens or self.tokens[-1] != message):
            self.tokens.append(message)


@dataclass
class Call:
    """A call whose answer is a stream, or a request that waits for the result of a task."""

    number: int
    revision: str
    count: int
    """The number of reports of progress that belong to it."""
    seen: Counter[int] = field(default_factory=Counter)
    """How often each of them came."""
    outcome: str = ""
    """`result`, `error` (an answer of the server, or a refusal) or `broken` (the client gave the stream up)."""
    text: str = ""


@dataclass
class Listener:
    """A client that listens for changes."""

    name: str
    heard: dict[str, float] = field(default_factory=dict)
    """When it last heard of each item."""
    tools: frozenset[str] = frozenset()
    """The tools that it listed after the last announcement."""


@dataclass(frozen=True)
class Loss:
    """A replica that was lost to its fleet: killed, frozen, or told to stop."""

    replica: str
    at: float
    grace: float = 0.0
    """Tasks shorter than that many seconds were to end first."""


@dataclass(frozen=True)
class Note:
    """A line that a handler wrote."""

    what: str
    number: int
    replica: str
    token: str
    at: float


@dataclass
class Ledger:
    """Everything that is known of one scene."""

    tasks: list[Task] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    touched: dict[str, float] = field(default_factory=dict)
    """When each item was last changed, if the client heard that it was."""
    new_tools: frozenset[str] = frozenset()
    """Tools that every listener must have found at the end."""
    losses: list[Loss] = field(default_factory=list)
    lost_writes: list[float] = field(default_factory=list)
    """The moments of failovers that lose the last writes, as the documentation says."""
    refuses: bool = True
    """Whether the scene has a reason to refuse a task."""
    wedged: list[str] = field(default_factory=list)
    """Replicas that ran no task at the end, or whose `/readyz` did not tell the truth; sessions that were lost."""
    remarks: list[str] = field(default_factory=list)
    """Figures beside the counts."""

    def missed(self, listener: Listener) -> list[str]:
        """Return the changes that a listener has not heard of."""
        items = [f"a change of {item}" for item, at in self.touched.items() if listener.heard.get(item, 0.0) < at]
        return [*items, *(f"the tool {tool}" for tool in sorted(self.new_tools - listener.tools))]


@dataclass
class Counts:
    """The counts of one scene. Those after `excused` are breaches."""

    calls: int = 0
    tasks: int = 0
    failed: int = 0
    excused: int = 0
    unanswered: int = 0
    endless: int = 0
    doubled: int = 0
    stale: int = 0
    wrong: int = 0
    refused: int = 0
    begun_refused: int = 0
    lost_events: int = 0
    doubled_events: int = 0
    wedged: int = 0
    examples: list[str] = field(default_factory=list)

    def breach(self, name: str, example: str) -> None:
        setattr(self, name, getattr(self, name) + 1)
        if getattr(self, name) <= MOST_EXAMPLES:
            self.examples.append(f"{COLUMNS[name]}: {example}")

    @property
    def breaches(self) -> int:
        return sum(getattr(self, name) for name in BREACHES)


COLUMNS = {
    "calls": "calls",
    "tasks": "tasks accepted",
    "failed": "failed with cause",
    "excused": "excused by lost writes",
    "unanswered": "no answer",
    "endless": "no end",
    "doubled": "begun twice",
    "stale": "lost attempt wrote",
    "wrong": "wrong end",
    "refused": "refused wrongly",
    "begun_refused": "refused after begun",
    "lost_events": "events lost",
    "doubled_events": "events doubled",
    "wedged": "wedged replicas or sessions",
}
BREACHES = tuple(COLUMNS)[4:]
assert set(COLUMNS) == {each.name for each in fields(Counts)} - {"examples"}


def read_notes(lines: Iterable[str]) -> list[Note]:
    return [
        Note(what, int(number), replica, token, float(at))
        for what, number, replica, token, at in (line.split() for line in lines)
    ]


def judge(ledger: Ledger, notes: Iterable[Note]) -> Counts:
    """Count what happened, and what must not have happened."""
    counts = Counts(calls=len(ledger.calls))
    begins: dict[int, list[Note]] = defaultdict(list)
    for note in notes:
        if note.what == "begin":
            begins[note.number].append(note)
    unbegun = 0
    for task in ledger.tasks:
        unbegun += _judge_task(task, sorted(begins[task.number], key=lambda note: note.at), ledger, counts)
    # A replica may be killed between the moment when a task is begun and the first line of its handler.
    for _ in range(max(0, unbegun - len(ledger.losses))):
        counts.breach("wrong", "a task failed that was never begun")
    for call in ledger.calls:
        _judge_call(call, counts)
    for listener in ledger.listeners:
        for change in ledger.missed(listener):
            counts.breach("lost_events", f"{listener.name} was not told of {change}")
    for replica in ledger.wedged:
        counts.breach("wedged", replica)
    return counts


def _judge_task(task: Task, begins: list[Note], ledger: Ledger, counts: Counts) -> bool:
    """Judge one task; return whether it failed without having begun."""
    name = f"{task.kind} {task.number}"
    if len(begins) > 1 and not task.is_idempotent:
        told = ", ".join(f"{note.replica} at {note.at:.1f}" for note in begins)
        if any(_in_lost_writes(ledger, note.at) for note in begins):
            counts.excused += 1
        else:
            counts.breach("doubled", f"{name} was begun by {told}")
    if task.is_unanswered:
        counts.breach("unanswered", f"the client never heard whether {name} was accepted: {task.text}")
    if task.refused and begins:
        counts.breach("begun_refused", f"{name}: {task.refused}")
    elif task.refused and not ledger.refuses:
        counts.breach("refused", f"{name} was refused: {task.refused}")
    if not task.id:
        return False
    counts.tasks += 1
    if task.status in ("", "gone"):
        if _in_lost_writes(ledger, task.asked):
            counts.excused += 1
        else:
            counts.breach("endless", f"{name} ({task.id}) is {task.status or task.later or 'never seen'}")
        return False
    if _went_back(task.tokens, [note.token for note in begins]):
        counts.breach("stale", f"{name} showed {task.tokens}, the runs were {[note.token for note in begins]}")
    if task.later and task.later != task.status and not _in_lost_writes(ledger, task.ended):
        counts.breach("wrong", f"{name} ended as {task.status} and is {task.later} now")
    if task.status == "completed":
        _judge_result(task, name, begins, counts)
        return False
    return _judge_failure(task, name, begins, ledger, counts)


def _judge_result(task: Task, name: str, begins: list[Note], counts: Counts) -> None:
    number, _, token = task.text.partition(" ")
    if number != str(task.number) or token not in [note.token for note in begins]:
        counts.breach("wrong", f"{name} has the result {task.text!r}")
    elif token != begins[-1].token:
        counts.breach("stale", f"{name} has the result of the run {token}, after which {begins[-1].token} began")


def _judge_failure(task: Task, name: str, begins: list[Note], ledger: Ledger, counts: Counts) -> bool:
    """Judge a task that ended without its result; return whether it never began."""
    counts.failed += 1
    if not begins:
        return True
    last = begins[-1]
    with_cause = any(
        loss.replica == last.replica
        and last.at <= loss.at + loss.grace
        and loss.at <= task.ended
        and loss.grace <= task.seconds
        for loss in ledger.losses
    )
    if task.is_idempotent and len(begins) < MOST_ATTEMPTS:
        with_cause = False
    if not with_cause:
        counts.breach("wrong", f"{name} is {task.status} ({task.text}); {last.replica} began it and was there")
    return False


def _in_lost_writes(ledger: Ledger, moment: float) -> bool:
    return any(lost - LOST_WRITES <= moment <= lost for lost in ledger.lost_writes)


def _went_back(seen: list[str], runs: list[str]) -> bool:
    """Return whether an earlier run showed itself after a later one."""
    order = [runs.index(token) for token in seen if token in runs]
    return order != sorted(order)


def _judge_call(call: Call, counts: Counts) -> None:
    name = f"call {call.number} of {call.revision}"
    if call.outcome in ("", "broken"):
        counts.breach("unanswered", f"{name}: {call.text or 'nothing came'}")
    if call.outcome == "result" and call.text != str(call.number):
        counts.breach("wrong", f"{name} has the result {call.text!r}")
    if call.outcome == "result":
        for step in set(range(1, call.count + 1)) - set(call.seen):
            counts.breach("lost_events", f"{name} lost its report {step} of {call.count}")
    for step, times in call.seen.items():
        if times > 1:
            counts.breach("doubled_events", f"{name} got its report {step} {times} times")
