"""The tables of the benchmark: scores, verdicts, spreads, and the page that says which part has which line."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"


@pytest.fixture(scope="module")
def report() -> Iterator[Any]:
    """The module of the tables; those of the benchmark import each other by plain names, which others have, too."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("report")
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(BENCH):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("options", "rounds", "verdict", "spread"),
    [
        ({}, [4.0, 2.0, 3.0], "3.0 µs: ok", "2.0 µs to 4.0 µs"),
        ({"limit": 2.5}, [4.0, 2.0, 3.0], "3.0 µs: MISSED", "2.0 µs to 4.0 µs"),
        ({"more_is_better": True}, [3.0], "3.0 µs: ok", "3.0 µs to 3.0 µs"),
        ({"limit": 4.0, "more_is_better": True}, [3.0], "3.0 µs: MISSED", "3.0 µs to 3.0 µs"),
        ({"aim": 3.0}, [3.0], "3.0 µs: ok, aim 3.0 µs met", "3.0 µs to 3.0 µs"),
        ({"aim": 2.0}, [3.0], "3.0 µs: ok, aim 2.0 µs missed", "3.0 µs to 3.0 µs"),
        ({"limit": 0.3, "compared_with": "mcp"}, [1.0, 2.0, 4.0], "0.20x mcp: ok", "0.10x to 0.40x"),
        ({"limit": 0.3, "compared_with": "other"}, [5.0], "0.25x other (20.0 µs): ok", "0.25x to 0.25x"),
        ({"limit": None}, [3.0], "3.0 µs", "3.0 µs to 3.0 µs"),
        ({"compared_with": "absent"}, [5.0], "not measured", "-"),
        ({}, [], "not measured", "-"),
    ],
)
def test_a_budget_is_held_against_the_median(
    report: Any, options: dict[str, Any], rounds: list[float], verdict: str, spread: str
) -> None:
    made = {"show": report.microseconds, "text": "3", "compared_with": None, "limit": 3.0} | options
    budget = report.Budget("a line", **made)
    samples = {"a line": {"toolwire": rounds, "mcp": [9.0, 10.0, 30.0], "other": [20.0]}}
    assert budget.verdict(samples, "toolwire") == verdict
    assert budget.spread(samples, "toolwire") == spread


def test_every_median_has_its_spread_beside_it(report: Any) -> None:
    samples = {"import": {"toolwire": [0.2, 0.1, 0.3], "mcp": [0.5]}}
    tables = report.closing_table(samples, {"HTTP, mcp": "no wrk"}, {"cores": "2", "placement": ""}, whole=False)
    assert "cores 2\n" in tables
    measured, judged = re.findall(r"^\| import .*$", tables, re.MULTILINE)
    assert [cell.strip() for cell in measured.split("|")[2:5]] == ["0.200 s (0.100 s to 0.300 s)", "-", "0.500 s"]
    assert [cell.strip() for cell in judged.split("|")[3:6]] == [
        "0.11 s",
        "0.200 s: MISSED, aim 0.100 s missed",
        "0.100 s to 0.300 s",
    ]
    assert tables.endswith("- HTTP, mcp: no wrk\n")


def test_a_whole_run_shows_the_lines_that_nobody_measured(report: Any) -> None:
    assert report.closing_table({}, {}, {}).count("not measured") == len(report.BUDGETS)
    assert "not measured" not in report.closing_table({}, {}, {}, whole=False)


@pytest.mark.parametrize(
    ("after", "status", "says"),
    [([0.12, 0.10, 0.11], 0, "ok    import, toolwire"), ([0.22, 0.20, 0.21], 1, "WORSE import, toolwire")],
)
def test_two_runs_are_compared(tmp_path: Path, after: list[float], status: int, says: str) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, rounds in zip(files, ([0.10, 0.11, 0.12], after), strict=True):
        file.write_text(json.dumps({"samples": {"import": {"toolwire": rounds}}}))
    command = [sys.executable, str(BENCH / "compare.py"), "--before", str(files[0]), "--after", str(files[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (status, "")
    assert says in done.stdout


def test_the_page_says_which_part_has_which_line(report: Any) -> None:
    run = importlib.import_module("run")
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").partition("## Which command")[2]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]*) \|$", page, re.MULTILINE))
    assert list(rows) == [*run.IN_ROUNDS, *run.AT_THE_END]
    assert {line for lines in rows.values() for line in lines.split("; ")} == {each.what for each in report.BUDGETS}
