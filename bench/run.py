"""Measures Toolwire beside `mcp`, `fastmcp` and a bare echo, all in one run, and prints ratios against our budgets.

The contenders take turns in rounds (A B C A B C ...), so that a slow moment of the machine hits all of them; the
numbers are medians over the rounds. It is a benchmark, not a test: a missed budget is printed, and the exit status
stays 0.

    python bench/run.py                     the full run, a few minutes
    python bench/run.py stdio http-calls    some parts of it; docs/numbers.md says which part has which line
    BENCH_QUICK=1 python ...                a short look, too noisy to quote

A full run writes .bench/results.json and results.md, a run of some parts results-PART-PART.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import fleet_lines
import gateway_lines
import http_lines
import openapi_lines
from driver import LEGACY, MODERN, ServerFailed, StdioServer, release
from notes import Notes, say
from report import closing_table, medians_of
from spawned import resident_kib

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / ".bench"

QUICK = os.environ.get("BENCH_QUICK") == "1"
ROUNDS = 1 if QUICK else 3
SECONDS = 0.3 if QUICK else 1.5
TURNS = 1 if QUICK else 3
SLICES = 2 if QUICK else 7
MANY_TOOLS = 1000
TASKS = 10_000

# Who takes part: a name in the tables, the server file, and the revision the driver speaks to it.
STDIO = [
    ("toolwire", "toolwire", LEGACY),
    ("toolwire 2026-07-28", "toolwire", MODERN),
    ("mcp", "mcp", LEGACY),
    ("fastmcp", "fastmcp", LEGACY),
    ("bare echo", "echo", LEGACY),
]
IMPORTS = {
    "toolwire": "from toolwire import Server",
    "mcp": "from mcp.server import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
    "bare echo": "import asyncio, msgspec",
}
MEMORY = {"toolwire": "toolwire", "mcp": "mcp", "fastmcp": "fastmcp", "bare echo": "echo"}


class Bench(Notes):
    """The parts of the benchmark that need no HTTP."""

    def stdio(self) -> None:
        for who, server, revision in STDIO:
            try:
                running = spawn(server, revision)
            except (ServerFailed, OSError) as error:
                self.failed("stdio", who, error)
                continue
            try:
                self.placement = running.placement
                running.pipelined("add", count=200)
                rss = resident_kib(running.process.pid) / 1024
                one = running.one_at_a_time("add", SECONDS)
                piped = running.pipelined("add", SECONDS)
                piped_def = running.pipelined("add_sync", SECONDS)
            except ServerFailed as error:
                self.failed("stdio", who, error)
                continue
            finally:
                running.close()
            self.note("spawn to first answer", who, running.first_answer)
            self.note("resident memory", who, rss)
            self.note("stdio one at a time, async tool", who, one)
            self.note("stdio pipelined, async tool", who, piped)
            if who != "bare echo":  # it has no tools, so no `def` tool either
                self.note("stdio pipelined, def tool", who, piped_def)
            say(f"    {who}: {one:,.0f}/s, pipelined {piped:,.0f}/s, def {piped_def:,.0f}/s")

    def many_tools(self) -> None:
        """Call two servers in turns: the ratio of each turn is free of the machine's slow moments."""
        for who, server, revision in STDIO:
            if who == "bare echo" or revision == MODERN:
                continue
            running: list[StdioServer] = []
            try:
                running = [spawn(server, revision)]
                running.append(spawn(server, revision, MANY_TOOLS - 2))
                for one in running:
                    one.pipelined("add", count=100)
                for _ in range(SLICES):
                    few, many = (one.pipelined("add", SECONDS / 4) for one in running)
                    self.note("call cost, 1,000 tools against 2", who, few / many)
            except (ServerFailed, OSError) as error:
                self.failed("many tools", who, error)
            finally:
                for one in running:
                    one.close()

    def memory(self) -> None:
        """Measure in several turns a round, since two processes of one library differ by some percent."""
        release()
        for who, contender in list(MEMORY.items()) * TURNS:
            command = [sys.executable, str(HERE / "memory.py"), contender, str(SECONDS)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                self.note("in memory call", who, float(done.stdout))
            else:
                self.failed("in memory", who, ServerFailed(last_line(done.stderr)))

    def added_cost(self) -> None:
        """Measure what limits and records add to a call of ours; the others have nothing of the kind."""
        for feature, cost in self.ours("added_cost.py", SECONDS).items():
            self.note(f"in memory call, added by {feature}", "toolwire", cost)

    def tasks(self) -> None:
        """Measure the cost of many tasks; the others have one dialect of them, or none."""
        for what, value in self.ours("tasks.py", TASKS).items():
            self.note(f"task, {what}" if what != "memory" else "10,000 tasks at once", "toolwire", value)

    def token_cost(self) -> None:
        """Measure the cost of a signed token, seen before and seen for the first time."""
        found = self.ours("token_cost.py", SECONDS)
        if found:
            self.note("HTTP call, added by a JWT seen before", "toolwire", found["seen before"])
            self.note("JWT seen for the first time", "toolwire", found["first time"])
            self.note("JWT seen for the first time", "joserfc", found["joserfc"])

    def skills(self) -> None:
        """Measure 1,000 skills with 20 files each."""
        found = self.ours("skills.py", SECONDS)
        if found:
            self.note("1,000 skills with 20 files, loaded", "toolwire", found["loaded"])
            self.note("1,000 skills with 20 files, memory against the files", "toolwire", found["memory"])
            self.note("skills/list, a page of 1,000 skills", "toolwire", found["page"])

    def tool_search(self) -> None:
        """Measure a search among 1,000 tools, and the making of its index."""
        found = self.ours("tool_search.py", SECONDS)
        if found:
            self.note("search among 1,000 tools", "toolwire", found["query"])
            self.note("search among 1,000 tools, the index", "toolwire", found["built"])

    def agents(self) -> None:
        """Measure what a toolset adds to a call, and lists of 1,000 tools."""
        found = self.ours("agents.py", SECONDS)
        if found:
            self.note("agents, definitions of 1,000 tools, again", "toolwire", found["definitions"])
            self.note("agents, answer of one model call, added to the call", "toolwire", found["answer"])
            self.note("agents, answer of one model call against the call", "toolwire", found["ratio"])

    def hostile_text(self) -> None:
        """Measure what the rules for hostile text find in published attacks and in honest descriptions."""
        found = self.ours("hostile_texts.py", 1)
        if found:
            self.note("hostile text, found of six published forms of attack", "toolwire", found["attacks"])
            self.note("hostile text, found of poisoned tool descriptions", "toolwire", found["poisoned"])
            self.note("hostile text, false alarms in honest descriptions", "toolwire", found["false alarms"])

    def ours(self, script: str, argument: float) -> dict[str, float]:
        """Return the numbers of a script that measures only us; nothing if it failed, which is noted."""
        release()
        done = subprocess.run([sys.executable, str(HERE / script), str(argument)], capture_output=True, text=True)
        if done.returncode != 0:
            self.failed(script, "toolwire", ServerFailed(last_line(done.stderr)))
            return {}
        numbers: dict[str, float] = json.loads(done.stdout)
        return numbers

    def imports(self) -> None:
        """Measure the time until each library is imported, from the start of the interpreter."""
        for _ in range(1 if QUICK else 3):
            self.import_all()

    def import_all(self) -> None:
        release()
        for who, statement in IMPORTS.items():
            # Until imported: tearing the interpreter down again takes mcp another 0.2 s, which nobody waits for.
            command = [sys.executable, "-c", f"{statement}; import os; os._exit(0)"]
            started = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                self.note("import", who, time.perf_counter() - started)
            else:
                self.failed("import", who, ServerFailed(last_line(done.stderr)))


def spawn(server: str, revision: str, more_tools: int = 0) -> StdioServer:
    return StdioServer([sys.executable, str(HERE / "servers" / f"{server}_server.py"), str(more_tools)], revision)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1]


def machine() -> dict[str, str]:
    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "not installed"

    packages = {
        name: version(name) for name in ("toolwire", "mcp", "fastmcp", "msgspec", "uvicorn", "httptools", "uvloop")
    }
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": str(os.cpu_count()),
        **packages,
    }


# The parts of a run, in their order. The first ones are measured once a round; the others have rounds of their own.
IN_ROUNDS: dict[str, Callable[[Bench], None]] = {
    "stdio": Bench.stdio,
    "memory": Bench.memory,
    "added-cost": Bench.added_cost,
    "tasks": Bench.tasks,
    "token-cost": Bench.token_cost,
    "skills": Bench.skills,
    "tool-search": Bench.tool_search,
    "agents": Bench.agents,
    "imports": Bench.imports,
}
AT_THE_END: dict[str, Callable[[Bench], None]] = {
    "many-tools": Bench.many_tools,
    "http-calls": http_lines.calls,
    "http-workers": http_lines.workers,
    "http-clients": http_lines.clients,
    "http-many-tools": http_lines.many_tools,
    "http-sessions": http_lines.sessions,
    "gateway-hop": gateway_lines.one_hop,
    "gateway-requests": gateway_lines.extra_requests,
    "gateway-servers": gateway_lines.many_servers,
    "gateway-broken": gateway_lines.broken_servers,
    "gateway-sessions": gateway_lines.shared_servers,
    "openapi-call": openapi_lines.calls,
    "openapi-reading": openapi_lines.reading,
    "redis": fleet_lines.on_redis,
    "hostile-text": Bench.hostile_text,
}


def measure(bench: Bench, parts: list[str]) -> None:
    """Run the parts, with a line for each on standard error."""
    in_rounds = [part for part in IN_ROUNDS if part in parts]
    if in_rounds:
        say("importing everything once, so that nothing is compiled while the clock runs")
        Bench().import_all()
    for round in range(1, ROUNDS + 1):
        for part in in_rounds:
            say(f"round {round} of {ROUNDS}: {part}")
            IN_ROUNDS[part](bench)
    for part, work in AT_THE_END.items():
        if part in parts:
            say(part)
            work(bench)


def write(bench: Bench, parts: list[str], seconds: float) -> str:
    """Write the results of a run to .bench and return its tables."""
    whole = not parts
    facts = machine() | {
        "placement": bench.placement,
        "memory": bench.counts,
        "rounds": str(ROUNDS),
        "quick": str(QUICK).lower(),
        "seconds": f"{seconds:.0f}",
    }
    tables = closing_table(bench.samples, bench.failures, facts, whole=whole)
    results = {
        "facts": facts,
        "medians": medians_of(bench.samples),
        "samples": bench.samples,
        "failures": bench.failures,
    }
    RESULTS.mkdir(exist_ok=True)
    name = "-".join(["results", *parts])
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(tables, encoding="utf-8")
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*IN_ROUNDS, *AT_THE_END]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(every)}; all if none is named")
    parts: list[str] = parser.parse_args().parts
    unknown = set(parts) - set(every)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(every)}")
    # Where this is set, a package that is installed for editing is compiled anew at every start, and only ours is.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    bench = Bench()
    measure(bench, parts or every)
    print(write(bench, parts, time.perf_counter() - started))


if __name__ == "__main__":
    main()
