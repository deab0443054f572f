"""The ledger: what really happened, noted by handlers, clients and the store, and the rules that it must keep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from tests.simulation.store_model import Job
from tests.simulation.world import Process, World

from toolwire.stores import Place, Ready

#: How long an attempt that has lost its task may go on.
STOP_SECONDS: Final = 20.0
#: How far the replica of a store is behind that takes its place.
LONGEST_LAG: Final = 2.0

Message: TypeAlias = dict[str, Any]
#: Reads a value in the store.
Peek: TypeAlias = Callable[[str], bytes | None]

#: The rules, by the names that a report uses.
RULES: Final = {
    "no answer": "every call that was accepted gets an answer or an error",
    "no end": "every task that was accepted comes to an end, and its client is told",
    "end": "a task is cancelled only by its client",
    "end changed": "the end of a task stays what it is",
    "begun twice": "a task that is not idempotent is begun once, and again only after it waited for an answer",
    "healthy": "a task of a replica that lives is neither failed nor run again by others",
    "finished": "a task whose handler ended in a replica that lives does not fail, whatever the store has lost",
    "two attempts": "an attempt that lost its task is stopped soon",
    "lost lease": "a process that lost its lease takes another name",
    "lost attempt": "an attempt that lost its task writes nothing to its record",
    "event lost": "no event of a resumable stream is left out",
    "event doubled": "no event of a resumable stream comes twice",
    "update lost": "a client that subscribed learns of every new version, or is told to look again",
    "list lost": "a client that listens learns of another list of tools",
    "lacking tool": "a task waits for a process that has its tool",
    "wrong caller": "an answer, a question and a message reach the client that they are for",
    "ended session": "a session that was ended stays ended",
    "owner": "one stream is the owner of a session",
    "memory": "what a replica holds for clients is bounded",
    "uncaught": "no error is left to the event loop",
    "crash": "a simulation comes to its end",
}


class Beginning:
    """One run of a task's handler."""

    def __init__(self, at: float, process: Process) -> None:
        self.at = at
        self.process = process
        self.ended: float | None = None
        self.has_outcome = False
        """Whether the handler came to its own end, and was not cancelled."""
        self.asks = False
        """Whether the handler waits for an answer, or did when it was cancelled."""

    @property
    def was_put_back(self) -> bool:
        """Return whether its process could put the task back: the handler only waited, and was cancelled in order."""
        return self.asks and self.ended is not None


class Work:
    """One call that a client has made, from the request to the end."""

    def __init__(self, nonce: str, kind: str, client: str, at: float) -> None:
        self.nonce = nonce
        self.kind = kind
        self.client = client
        self.at = at
        self.outcome = ""
        """How it ended for the client; empty while it has not."""
        self.task = ""
        """The id of the task that it became."""
        self.begun: list[Beginning] = []
        self.cancelled = False
        self.steps = 0
        """How many numbered messages it sends before its answer."""


class History:
    """A record since it was made."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.losers: set[Process] = set()
        """The processes that held the task and do not hold it any more."""


class Ledger:
    """Everything that the rules are about."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.work: dict[str, Work] = {}
        self.outcomes: Counter[str] = Counter()
        self.states: dict[str, dict[Any, Process | None]] = {}
        """Each state of the fleet, and what is in it now: a call, a stream, a task, a replica; with its process."""
        self.on_state: list[Any] = []
        self.store_is_away: Callable[[], bool] = lambda: False
        self.failovers: list[float] = []
        """When the store lost what was written last."""
        self.troubles: list[tuple[Process, float, float]] = []
        """Processes that others may take for dead, each with the beginning and the end of this time."""
        self.by_task: dict[str, Work] = {}
        self.holders: dict[str, Process] = {}
        """The process behind each name under which tasks are held."""
        self._histories: dict[str, History] = {}
        self._buried: dict[str, float] = {}
        """When which process lost its lease."""
        self.versions: dict[str, int] = {}
        """The newest version of each resource."""
        self._touched = 0
        self.told: dict[str, list[tuple[float, int, Process]]] = {}
        """When which process said that a resource has a new version."""

    def next_uri(self, uris: Sequence[str]) -> str:
        """Return the resource that is to change next: each in its turn."""
        self._touched += 1
        return uris[self._touched % len(uris)]

    # --- states ---

    def enter(self, state: str, key: Any, process: Process | None = None) -> None:
        self.states.setdefault(state, {})[key] = process
        for listener in tuple(self.on_state):
            listener(state, process)

    def leave(self, state: str, key: Any) -> None:
        self.states.get(state, {}).pop(key, None)

    # --- calls and tasks ---

    def broken(self, rule: str, text: str) -> None:
        """Note that a rule was broken."""
        self.world.violation(rule, text)

    def call(self, nonce: str, kind: str, client: str) -> Work:
        work = self.work[nonce] = Work(nonce, kind, client, self.world.now)
        return work

    def end(self, work: Work, outcome: str) -> None:
        """Note how a call ended for its client."""
        if not work.outcome:
            work.outcome = outcome
            self.world.note(f"{work.nonce} {work.kind} ended: {outcome}")
            self.outcomes[f"{work.kind} {outcome.partition(':')[0]}"] += 1

    def begin(self, nonce: str, process: Process, *, once: bool) -> Beginning:
        """Note the first line of a handler."""
        work = self.work[nonce]
        beginning = Beginning(self.world.now, process)
        self.world.note(f"{nonce} begins")
        if work.begun:
            last = work.begun[-1]
            if once and not last.was_put_back and not self.lost_since(work.at):
                self.broken("begun twice", f"{nonce}: a task that is not idempotent ran a second time")
            elif last.ended is None and self.is_healthy(last.process, last.at) and not self.lost_since(work.at):
                self.broken("healthy", f"{nonce} runs again, and {last.process.name} that ran it is healthy")
            self._expect_end(nonce, last)
        work.begun.append(beginning)
        return beginning

    def _expect_end(self, nonce: str, beginning: Beginning) -> None:
        """Check after a while that a handler has ended whose task was begun again."""

        def look() -> None:
            if beginning.ended is None and not beginning.process.dead:
                # A process that is held, or cannot reach the store, does not know.
                if self.store_is_away() or beginning.process.held_until > self.world.now - STOP_SECONDS:
                    self.world.after(STOP_SECONDS, look)
                else:
                    self.broken("two attempts", f"{nonce} still runs on {beginning.process.name}, which lost it")

        self.world.after(STOP_SECONDS, look)

    def told_end(self, work: Work, status: str, message: str) -> None:
        """Check the end of a task, as its client is told."""
        last = work.begun[-1] if work.begun else None
        excused = self.lost_since(work.at) or "full" in message or "no room" in message
        if status == "cancelled" and not work.cancelled:
            self.broken("end", f"{work.nonce} is cancelled, and nobody cancelled it")
        elif "Unknown tool" in message or (work.kind == "added" and "that has the tool" in message):
            self.broken("lacking tool", f"{work.nonce} {work.kind} failed: {message}")
        elif status == "failed" and last is not None and self.is_healthy(last.process, last.at) and not excused:
            text = f"{work.nonce} failed ({message}), and {last.process.name} that ran it is healthy"
            self.broken("healthy", text)
        elif status == "failed" and "the task may have run" in message and self._was_finished(work):
            self.broken("finished", f"{work.nonce} failed ({message}), and its handler had ended")

    def _was_finished(self, work: Work) -> bool:
        """Return whether a replica that lives all the time since then has run a task to its end."""
        return any(each.has_outcome and self.is_healthy(each.process, each.at) for each in work.begun)

    def vanished(self, work: Work) -> None:
        """Check that a task may be gone: only one of a tool that the fleet lost is hidden until it expires."""
        if work.kind != "retired" and not self.lost_since(work.at):
            self.broken("no end", f"{work.nonce} is gone before its client was told its end")

    def lost_since(self, moment: float) -> bool:
        """Return whether the store lost writes that were made after a moment."""
        return any(lost >= moment - 5 for lost in self.failovers)

    def lost_between(self, began: float, ended: float) -> bool:
        """Return whether the store may have lost a write that was made between two moments."""
        return any(began <= lost <= ended + LONGEST_LAG for lost in self.failovers)

    def is_healthy(self, process: Process, since: float, until: float = math.inf) -> bool:
        """Return whether a process ran all this time, so that nobody may take it for dead."""
        until = min(until, self.world.now)
        troubled = any(each is process and begin <= until and end >= since for each, begin, end in self.troubles)
        return process.died > until and not troubled

    # --- the store ---

    def observe(self, process: Process, job: Job, peek: Peek) -> Callable[[], None] | None:
        """Look at an operation of the store before it is applied; return what looks at it afterwards."""
        name = job.args[0] if job.args and isinstance(job.args[0], str) else ""
        match job.method:
            case "renew":
                self.holders[name] = process
            case "bury" | "release":
                return lambda: self._buried_at(name, job)
            case "take":
                return lambda: self._taken(name, process, job)
            case "put" if "task-process:" in name:
                self.holders[name.rpartition(":")[2]] = process
            case "put" | "change" if name.startswith("toolwire:task"):
                before = _record(peek(name))
                return lambda: self._written(process, name, job, before, _record(peek(name)))
        return None

    def _buried_at(self, name: str, job: Job) -> None:
        if job.error is None and job.result is not False:
            self._buried.setdefault(name, self.world.now)

    def _taken(self, name: str, process: Process, job: Job) -> None:
        self._check_lease(name, bool(job.result))
        for task in job.result or ():
            self.leave("queued", task.key)
            self.leave("retried", task.key)
            self.enter("taken", task.key, process)

    def failed_over(self) -> None:
        """Take note that the store lost what was written last: where a task is may be another place again."""
        self.failovers.append(self.world.now)
        for state in ("queued", "taken", "retried"):
            self.states.pop(state, None)

    def _check_lease(self, name: str, holds: bool) -> None:
        """Check that a process whose lease was taken away holds nothing more under that name."""
        if holds and name in self._buried and not self.lost_since(self._buried[name]):
            self.broken("lost lease", f"{name} lost its lease, and holds a task again")

    def _written(self, process: Process, name: str, job: Job, before: Message | None, now: Message | None) -> None:
        """Note what became of a record."""
        if job.method == "change" and job.error is None and job.result is None:
            self._placed(name, job.options["place"], before)
        if now is None or now == before:
            return
        place = job.options.get("place")
        self._check_lease(getattr(place, "process", ""), holds=True)
        identifier, status = now["id"], now.get("status", "working")
        old = "new" if before is None else before.get("status", "working")
        self.world.note(f"record {identifier[:13]} {old} -> {status} by {process.name}")
        if identifier in self.by_task:
            self._follow(self.by_task[identifier], status)
        history = self._histories.setdefault(identifier, History(self.world.now))
        if before is not None:
            if old in _OVER:
                self.broken("end changed", f"{identifier}: {old} became {status}")
            self._check_attempt(process, history, before, now, is_adopted=bool(job.options.get("orphan_of")))

    def _placed(self, name: str, place: Place | None, before: Message | None) -> None:
        """Keep the states of a task that depend on its place in the queue."""
        for state in ("queued", "taken", "retried"):
            self.leave(state, name)
        if isinstance(place, Ready):
            # One that had begun before waits to be run again.
            self.enter("retried" if before is not None and before.get("begun") else "queued", name)

    def _check_attempt(
        self, process: Process, history: History, before: Message, now: Message, is_adopted: bool
    ) -> None:
        """Check that an attempt that lost its task does not change it any more."""
        held_before, holder = (self.holders.get(each.get("process", "")) for each in (before, now))
        # A client may send its answer, or its cancellation, to any process.
        is_told = now.get("status") == "cancelled" or now.get("answers") != before.get("answers")
        writes = [name for name in ("progress", "result", "questions") if now.get(name) != before.get(name)]
        is_lost = process in history.losers and process not in (held_before, holder)
        if is_lost and writes and not is_told and not is_adopted and not self.lost_since(history.begun):
            text = f"{now['id']}: {process.name} lost the task, and wrote {', '.join(writes)}"
            self.broken("lost attempt", text)
        if held_before is not None and holder is not held_before:
            history.losers.add(held_before)
        if holder is not None:
            history.losers.discard(holder)

    def _follow(self, work: Work, status: str) -> None:
        """Keep the states of a task."""
        if status == "input_required":
            self.enter("asking", work.nonce, work.begun[-1].process if work.begun else None)
        else:
            self.leave("asking", work.nonce)
        if status in _OVER:
            self.leave("ending", work.nonce)
            self.leave("orphaned", work.nonce)

    # --- at the end ---

    def close(self, records: dict[str, bytes | None]) -> None:
        """Check everything that must be over by now."""
        for work in self.work.values():
            if not work.outcome and not (work.task and work.kind == "retired"):
                what = f"{work.nonce} {work.kind} of {work.client}, called at {work.at:.3f}"
                self.broken("no answer" if not work.task else "no end", what)
        for key, data in records.items():
            record = _record(data)
            if record is not None and record.get("status", "working") not in _OVER:
                self.broken("no end", f"{key.rpartition(':')[2]} is {record.get('status', 'working')}")


_OVER: Final = ("completed", "failed", "cancelled")


def _record(data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) and "id" in found else None
