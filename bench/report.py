"""The closing table of the benchmark: what was measured, the ratio that counts, and whether the budget is met."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

Row = dict[str, float]  # who -> median
Samples = dict[str, dict[str, list[float]]]  # what -> who -> one number a round

CONTENDERS = ("toolwire", "toolwire 2026-07-28", "mcp", "fastmcp", "bare echo")


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


def times(value: float) -> str:
    return f"{value:.2f}x"


@dataclass(frozen=True)
class Budget:
    """One line: `score` turns the row into the number that is held against the budget."""

    what: str
    show: Callable[[float], str]
    text: str
    compared_with: str | None  # None: the number stands for itself
    limit: float
    more_is_better: bool = False

    def score(self, row: Row, who: str) -> float | None:
        if who not in row or (self.compared_with and self.compared_with not in row):
            return None
        return row[who] / row[self.compared_with] if self.compared_with else row[who]

    def verdict(self, row: Row, who: str) -> str:
        score = self.score(row, who)
        if score is None:
            return "not measured"
        met = score >= self.limit if self.more_is_better else score <= self.limit
        shown = f"{score:.2f}x {self.compared_with}" if self.compared_with else self.show(score)
        return f"{shown}: {'ok' if met else 'MISSED'}"


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
    Budget("import", seconds, "0.15 s", None, 0.15),
    Budget("spawn to first answer", seconds, "0.25 s", None, 0.25),
    Budget("call cost, 1,000 tools against 2", times, "within 10 %", None, 1.10),
    Budget("resident memory", mebibytes, "35 MiB", None, 35),
    Budget("HTTP, async tool", rate, "7x mcp", "mcp", 7, more_is_better=True),
    Budget("HTTP, async tool", rate, "60 % of the echo", "bare echo", 0.6, more_is_better=True),
    Budget("HTTP, def tool", rate, "5x mcp", "mcp", 5, more_is_better=True),
    Budget("client over HTTP, one call at a time", rate, "4x mcp's client", "mcp", 4, more_is_better=True),
    Budget("client over HTTP, 16 calls at a time", rate, "4x mcp's client", "mcp", 4, more_is_better=True),
    Budget("client over HTTP, resident memory", mebibytes, "less than mcp's client", "mcp", 1),
    Budget("HTTP call cost, 10 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP call cost, 100 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP call cost, 1,000 tools against 2", times, "within 10 %", None, 1.10),
    Budget("HTTP session, called once", kibibytes, "2 KiB", None, 2),
    Budget("all these sessions", mebibytes, "20 MiB", None, 20),
    Budget("HTTP session, with its stream", kibibytes, "1.4x the bare stream", "bare echo", 1.4),
)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def medians_of(samples: Samples) -> dict[str, Row]:
    return {what: {who: statistics.median(values) for who, values in row.items()} for what, row in samples.items()}


def closing_table(samples: Samples, failures: dict[str, str], facts: dict[str, str]) -> str:
    medians = medians_of(samples)
    measured: dict[str, list[str]] = {}  # by what is measured, since a line may have two budgets
    judged = []
    for budget in BUDGETS:
        row = medians.get(budget.what, {})
        measured[budget.what] = [budget.what, *(budget.show(row[who]) if who in row else "-" for who in CONTENDERS)]
        # Over stdio Toolwire is measured on two revisions; each is held against the budget.
        ours = [who for who in CONTENDERS[:2] if who in row] or ["toolwire"]
        for who in ours:
            rounds = samples.get(budget.what, {}).get(who, [])
            spread = f"{budget.show(min(rounds))} to {budget.show(max(rounds))}" if rounds else "-"
            judged.append([budget.what, who, budget.text, budget.verdict(row, who), spread])
    parts = [
        "# Toolwire benchmark",
        "; ".join(f"{name} {value}" for name, value in facts.items()),
        "`toolwire`, `mcp` and `fastmcp` speak 2025-11-25 to the same driver; medians over interleaved rounds. `import`"
        " is from the start of the interpreter until imported. The bare echo is the limit of the primitives: it has no"
        " protocol and no tools.",
        "Over HTTP, `wrk` calls on 16 connections, all in 2026-07-28, and the servers run on one worker of uvicorn with"
        " httptools and uvloop. Sessions speak 2025-11-25; what they add to the resident memory is shown for each, and"
        " the bare echo has a stream and no session.",
        "The clients over HTTP take turns at one server, Toolwire's, each in a process of its own, in the revision that"
        " both sides agree on.",
        markdown(["what", *CONTENDERS], list(measured.values())),
        markdown(["what", "who", "budget", "result", "least to most of the rounds"], judged),
    ]
    if failures:
        parts.append("Not measured:\n\n" + "\n".join(f"- {what}: {reason}" for what, reason in failures.items()))
    return "\n\n".join(parts) + "\n"
