"""The closing tables of the benchmark: what was measured, the ratio that counts, and whether the budget is met.

Every number is the median of the rounds, with the least and the most of them beside it. "ok" near a limit means little
when the spread reaches beyond the limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

Row = dict[str, float]  # who -> median
Samples = dict[str, dict[str, list[float]]]  # what -> who -> one number a round

CONTENDERS = ("toolwire", "toolwire 2026-07-28", "mcp", "fastmcp", "mcp-proxy", "bare echo")


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


def seconds(value: float) -> str:
    return f"{value:.3f} s"


def microseconds(value: float) -> str:
    return f"{value:.1f} µs"


def mebibytes(value: float) -> str:
    return f"{value:.1f} MiB"


def kibibytes(value: float) -> str:
    return f"{value:.2f} KiB"


def milliseconds(value: float) -> str:
    return f"{value:.1f} ms"


def number(value: float) -> str:
    return f"{value:.2f}"


def times(value: float) -> str:
    return f"{value:.2f}x"


def percent(value: float) -> str:
    return f"{value:.1%}"


def hundredths(value: float) -> str:
    return f"{value:.2%}"


@dataclass(frozen=True)
class Budget:
    """A line with a limit. Its score is the number that is held against the limit."""

    what: str
    show: Callable[[float], str]
    text: str
    compared_with: str | None  # None: the number stands for itself
    limit: float | None = None  # None: the line is for information
    more_is_better: bool = False
    aim: float | None = None  # where the line should get one day; a miss is no failure

    def scores(self, samples: Samples, who: str) -> list[float]:
        """Return the score of every round, each held against the reference's median of the same run."""
        row = samples.get(self.what, {})
        if self.compared_with is None:
            return list(row.get(who, []))
        reference = row.get(self.compared_with)
        if not reference:
            return []
        return [value / statistics.median(reference) for value in row.get(who, [])]

    def show_score(self, score: float) -> str:
        return times(score) if self.compared_with else self.show(score)

    def meets(self, score: float, limit: float) -> bool:
        return score >= limit if self.more_is_better else score <= limit

    def verdict(self, samples: Samples, who: str) -> str:
        scores = self.scores(samples, who)
        if not scores:
            return "not measured"
        score = statistics.median(scores)
        reference = f" {self.compared_with}" if self.compared_with else ""
        if self.compared_with and self.compared_with not in CONTENDERS:  # It has no column of its own.
            reference += f" ({self.show(statistics.median(samples[self.what][self.compared_with]))})"
        verdict = f"{self.show_score(score)}{reference}"
        if self.limit is not None:
            verdict += f": {'ok' if self.meets(score, self.limit) else 'MISSED'}"
        if self.aim is not None:
            verdict += f", aim {self.show_score(self.aim)} {'met' if self.meets(score, self.aim) else 'missed'}"
        return verdict

    def spread(self, samples: Samples, who: str) -> str:
        scores = self.scores(samples, who)
        return f"{self.show_score(min(scores))} to {self.show_score(max(scores))}" if scores else "-"


BUDGETS = (
    Budget("stdio one at a time, async tool", rate, "5x mcp", "mcp", 5, more_is_better=True),
    Budget("stdio pipelined, async tool", rate, "25x mcp", "mcp", 25, more_is_better=True),
    Budget("stdio pipelined, def tool", rate, "12x mcp", "mcp", 12, more_is_better=True),
    Budget("in memory call", microseconds, "a tenth of mcp", "mcp", 0.1),
    Budget("in memory call, added by a rate limit", microseconds, "40 µs", None, 40),
    Budget("in memory call, added by an audit line", microseconds, "40 µs", None, 40),
    Budget("in memory call, added by metrics", microseconds, "40 µs", None, 40),
    Budget("in memory call, added by tasks being offered", microseconds, "nothing to speak of (1 µs)", None, 1),
    Budget("task, created", microseconds, "400 µs", None, 400),
    Budget("task, polled", microseconds, "100 µs", None, 100),
    Budget("task, finished", microseconds, "200 µs", None, 200),
    Budget("10,000 tasks at once", mebibytes, "100 MiB", None, 100),
    Budget("HTTP call, added by a JWT seen before", microseconds, "40 µs", None, 40),
    Budget("JWT seen for the first time", microseconds, "1.5x joserfc", "joserfc", 1.5),
    Budget("1,000 skills with 20 files, loaded", seconds, "2 s", None, 2),
    Budget("1,000 skills with 20 files, memory against the files", times, "twice their size", None, 2),
    Budget("skills/list, a page of 1,000 skills", microseconds, "1,000 µs", None, 1000, aim=300),
    Budget("search among 1,000 tools", microseconds, "2,000 µs", None, 2000, aim=500),
    Budget("search among 1,000 tools, the index", seconds, "0.5 s", None, 0.5),
    Budget("agents, definitions of 1,000 tools, again", microseconds, "1,000 µs", None, 1000, aim=500),
    Budget("agents, answer of one model call, added to the call", microseconds, "100 µs", None, 100, aim=50),
    Budget("agents, answer of one model call against the call", times, "for information", None),
    Budget("hostile text, found of six published forms of attack", percent, "80 %", None, 0.8, more_is_better=True),
    Budget("hostile text, found of poisoned tool descriptions", percent, "for information", None, None, True, aim=0.8),
    Budget("hostile text, false alarms in honest descriptions", hundredths, "0.3 %", None, 0.003),
    Budget("import", seconds, "0.11 s", None, 0.11, aim=0.10),
    Budget("spawn to first answer", seconds, "0.25 s", None, 0.25),
    Budget("call cost, 1,000 tools against 2", times, "within 10 %", None, 1.10),
    Budget("resident memory", mebibytes, "35 MiB", None, 35),
    Budget("HTTP, async tool", rate, "7x mcp", "mcp", 7, more_is_better=True),
    Budget("HTTP, async tool", rate, "60 % of the echo", "bare echo", 0.6, more_is_better=True),
    Budget("HTTP, async tool", rate, "30 % of bare httptools", "bare httptools", 0.3, more_is_better=True, aim=0.5),
    Budget("HTTP, def tool", rate, "5x mcp", "mcp", 5, more_is_better=True),
    Budget("HTTP, legacy calls in sessions", rate, "2.5x mcp", "mcp", 2.5, more_is_better=True),
    Budget("HTTP, two workers against one", times, "1.5x", None, 1.5, more_is_better=True, aim=1.8),
    Budget("client over HTTP, one call at a time", rate, "4x mcp's client", "mcp", 4, more_is_better=True),
    Budget("client over HTTP, 16 calls at a time", rate, "4x mcp's client", "mcp", 4, more_is_better=True),
    Budget("client over HTTP, resident memory", mebibytes, "less than mcp's client", "mcp", 1),
    Budget("HTTP call cost, 10 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP call cost, 100 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP call cost, 1,000 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP session, called once", kibibytes, "2 KiB", None, 2),
    Budget("all these sessions", mebibytes, "20 MiB", None, 20),
    Budget("HTTP session, with its stream", kibibytes, "1.4x the bare stream", "bare echo", 1.4),
    Budget("gateway hop, called by our client", times, "2x direct", None, 2, aim=1.6),
    Budget("gateway hop, called by wrk", times, "3.5x direct", None, 3.5, aim=2.5),
    Budget("gateway hop, modern client and legacy server", times, "5x direct", None, 5),
    Budget("gateway hop, legacy client and modern server", times, "4.2x direct", None, 4.2),
    Budget("gateway, calls against the server alone", percent, "35 %", None, 0.35, more_is_better=True, aim=0.5),
    Budget("gateway, extra requests to the server for each call", number, "none", None, 0),
    Budget("gateway, list of 10,000 tools of 1,000 servers", milliseconds, "50 ms", None, 50, aim=10),
    Budget("gateway, memory of an idle server with 10 tools", kibibytes, "for information", None),
    Budget("gateway of 30 servers, 10 of them broken, ready", seconds, "5 s", None, 5),
    Budget("gateway and its pool of two servers, 100 legacy sessions", mebibytes, "150 MiB", None, 150),
    Budget("OpenAPI call, added to the HTTP request", microseconds, "200 µs", None, 200, aim=100),
    Budget("OpenAPI, GitHub's description to a served list", seconds, "1.5 s", None, 1.5, aim=0.7),
    Budget("OpenAPI, GitHub's description, memory", mebibytes, "76 MiB (80 MB)", None, 76.3),
    Budget("task, Redis against memory", times, "0.3x", None, 0.3, more_is_better=True, aim=0.5),
    Budget("legacy call, Redis against memory", times, "0.46x", None, 0.46, more_is_better=True, aim=0.7),
    Budget("replica beside 49 more, share of a core", percent, "2 %", None, 0.02),
)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def medians_of(samples: Samples) -> dict[str, Row]:
    return {what: {who: statistics.median(values) for who, values in row.items()} for what, row in samples.items()}


def cell(budget: Budget, rounds: list[float]) -> str:
    """Show the median, and the least and the most of the rounds when there are several."""
    if not rounds:
        return "-"
    median = budget.show(statistics.median(rounds))
    return f"{median} ({budget.show(min(rounds))} to {budget.show(max(rounds))})" if len(rounds) > 1 else median


def closing_table(samples: Samples, failures: dict[str, str], facts: dict[str, str], *, whole: bool = True) -> str:
    """Write the tables. Those of a run that is not whole leave out the lines that nobody asked for."""
    measured: dict[str, list[str]] = {}  # by what is measured, since a line may have two budgets
    judged = []
    for budget in BUDGETS:
        row = samples.get(budget.what, {})
        if not row and not whole:
            continue
        measured[budget.what] = [budget.what, *(cell(budget, row.get(who, [])) for who in CONTENDERS)]
        # Over stdio Toolwire is measured on two revisions; each is held against the budget.
        ours = [who for who in CONTENDERS[:2] if who in row] or ["toolwire"]
        for who in ours:
            result, spread = budget.verdict(samples, who), budget.spread(samples, who)
            judged.append([budget.what, who, budget.text, result, spread])
    parts = [
        "# Toolwire benchmark",
        "; ".join(f"{name} {value}" for name, value in facts.items() if value),
        "`toolwire`, `mcp` and `fastmcp` speak 2025-11-25 to the same driver; medians over interleaved rounds, with the"
        " least and the most of them in parentheses. `import` is from the start of the interpreter until imported. The"
        " bare echo is the limit of the primitives: it has no protocol and no tools.",
        "Over HTTP, `wrk` calls on 16 connections, in 2026-07-28 unless the line says legacy (2025-11-25, 16 sessions),"
        " and the servers run on one worker of uvicorn with httptools and uvloop. Bare httptools is a protocol on"
        " uvloop that parses requests and answers all alike. Two workers and one take turns on all cores, which they"
        " share with `wrk`. Sessions speak 2025-11-25; what they add to the resident memory is shown for each, and the"
        " bare echo has a stream and no session.",
        "On Redis, there are 16 callers, and a task counts from its creation until its result was polled. The ratio is"
        " that to the same server with its state in memory. The 49 other replicas create and finish 200 tasks a second"
        " between them.",
        "A gateway stands between its caller and a server of Toolwire's, both over HTTP in 2026-07-28 unless the line"
        " says otherwise; direct calls and calls through it take turns. It has a core without its caller. With 16"
        " connections, it has that core for itself, and so has the server that is called alone. npm's mcp-proxy"
        " reaches its server by stdio. In the column of the bare echo is a relay of bytes, which reads none of them."
        " A gateway is ready when a client that connects has the tools of all servers that work. The memory with 100"
        " sessions is that of the gateway and of both servers.",
        "The tool of an API is called by a client in the same process, and the API runs in another one. The bare"
        " request is sent by the contender's own HTTP client, in turns with the calls. Both are times of the processor."
        " GitHub's description is read in a new process, until all its operations were listed.",
        "The clients over HTTP take turns at one server, Toolwire's, each in a process of its own, in the revision that"
        " both sides agree on.",
        markdown(["what", *CONTENDERS], list(measured.values())),
        markdown(["what", "who", "budget", "result", "least to most of the rounds"], judged),
    ]
    if failures:
        parts.append("Not measured:\n\n" + "\n".join(f"- {what}: {reason}" for what, reason in failures.items()))
    return "\n\n".join(parts) + "\n"
