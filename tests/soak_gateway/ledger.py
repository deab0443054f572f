"""What the clients of `make soak-gateway` sent and saw, and what the servers behind the gateway did: the verdict.

A call may fail only while its server is in trouble, and for a while afterwards. No call is carried out twice. A result
repeats the token of its call, so that an answer for another caller is seen.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Seconds in which a call to a server that is well has its result.
BOUND = 10.0
#: Seconds after which a server that is well again must be reached again.
RECOVERY = 15.0
#: Seconds in which a server hears that a call was cancelled.
CANCEL_SECONDS = 10.0
#: How many problems of one kind are printed.
MOST_EXAMPLES = 5


def stretched(seconds: float) -> float:
    """Return a time for this machine: longer if more processes want to run than it has processors."""
    return seconds * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 4.0)


@dataclass
class Call:
    """A call as its client sees it."""

    number: int
    token: str
    back: str
    kind: str
    """What is called: the name of the tool."""
    client: str
    began: float
    strict: bool = False
    """Whether nothing excuses a failure: the file changed while the call was in flight."""
    left: bool = False
    """Whether the client gave up or went away on purpose, so that there is no answer."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number} of {self.client} at {self.back}"


@dataclass
class Trouble:
    """A time in which calls to a server may fail."""

    began: float
    ended: float = math.inf


@dataclass
class Cancelled:
    """A call that was cancelled while it ran."""

    call: Call
    at: float


@dataclass
class Ledger:
    """Everything that was seen. What is judged is forgotten, so that an hour takes no more memory than a minute."""

    calls: int = 0
    results: int = 0
    errors: int = 0
    left: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """How long the calls of the last round took, those to servers that are well."""
    slowest: float = 0.0
    _troubles: defaultdict[str, deque[Trouble]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=64)))
    _begun: bytearray = field(default_factory=bytearray)
    _ended: bytearray = field(default_factory=bytearray)
    _wanted: dict[int, Call] = field(default_factory=dict)
    """Calls with a result, whose notes are still to be read."""
    _cancelling: dict[int, Cancelled] = field(default_factory=dict)

    def problem(self, kind: str, example: str) -> None:
        self.problems[kind] += 1
        if self.problems[kind] <= MOST_EXAMPLES:
            print(f"soak-gateway: {kind}: {example}", flush=True)

    # --- troubles ---

    def begin_trouble(self, back: str) -> Trouble:
        trouble = Trouble(time.monotonic())
        self._troubles[back].append(trouble)
        return trouble

    def may_fail(self, back: str, began: float, ended: float) -> bool:
        """Return whether a call may fail that lasted from `began` to `ended`."""
        recovery = stretched(RECOVERY)
        return any(each.began <= ended and began <= each.ended + recovery for each in self._troubles[back])

    # --- calls ---

    def begin(self, token: str, back: str, kind: str, client: str) -> Call:
        self.calls += 1
        self.kinds[kind] += 1
        return Call(self.calls, token, back, kind, client, time.monotonic())

    def result(self, call: Call, text: str) -> None:
        ended = time.monotonic()
        self.results += 1
        if text != call.token:
            self.problem("wrong result", f"{call.name} has {text!r} instead of {call.token!r}")
        self._wanted[call.number] = call
        if self.may_fail(call.back, call.began, ended):
            return
        seconds = ended - call.began
        self.seconds.append(seconds)
        self.slowest = max(self.slowest, seconds)
        if seconds > stretched(BOUND):
            self.problem("slow", f"{call.name} took {seconds:.1f} s")

    def error(self, call: Call, text: str) -> None:
        self.errors += 1
        now = time.monotonic()
        if call.strict:
            self.problem("cut off", f"{call.name} after {now - call.began:.1f} s: {text}")
        elif not self.may_fail(call.back, call.began, now):
            self.problem("failed", f"{call.name} after {now - call.began:.1f} s: {text}")
        elif call.kind == "work" and "no such task" in text:
            pass  # The server that ran the task was killed.
        elif repr(call.back) not in text and "Unknown tool" not in text:
            self.problem("unclear error", f"{call.name}: {text}")

    def broken(self, call: Call, text: str) -> None:
        """Note that the gateway itself gave no answer, which nothing excuses."""
        self.errors += 1
        self.problem("no answer", f"{call.name} after {time.monotonic() - call.began:.1f} s: {text}")

    def leave(self, call: Call) -> None:
        """Note that the client went away in the middle."""
        call.left = True
        self.left += 1

    def cancel(self, call: Call) -> None:
        """Note that a call was cancelled which its server had begun."""
        self.leave(call)
        self._cancelling[call.number] = Cancelled(call, time.monotonic())

    # --- notes of the servers ---

    def read(self, notes: Iterable[str]) -> None:
        """Take in the notes that the servers have written since the last time, and judge by them."""
        for line in notes:
            what, text = line.split()
            number = int(text)
            if what == "cancelled":
                self._cancelling.pop(number, None)
                continue
            counts = self._begun if what == "begin" else self._ended
            if len(counts) <= number:
                counts.extend(bytes(number + 1000 - len(counts)))
            counts[number] = min(255, counts[number] + 1)
            if counts[number] == 2:
                self.problem("carried out twice", f"call {number}: {what}")
        for number, call in self._wanted.items():
            if number >= len(self._ended) or not self._ended[number]:
                self.problem("result of nothing", f"{call.name} has a result, but was not carried out")
        self._wanted.clear()
        now = time.monotonic()
        for number, cancelled in list(self._cancelling.items()):
            if self.may_fail(cancelled.call.back, cancelled.call.began, now):
                del self._cancelling[number]
            elif now > cancelled.at + stretched(CANCEL_SECONDS):
                del self._cancelling[number]
                self.problem("not cancelled", f"{cancelled.call.name} still runs {now - cancelled.at:.0f} s later")

    def round_of_seconds(self) -> tuple[float, float, float]:
        """Return the median, the 99th percentile and the longest time of the calls since the last time."""
        found, self.seconds = sorted(self.seconds) or [0.0], []
        return found[len(found) // 2], found[len(found) * 99 // 100], found[-1]
