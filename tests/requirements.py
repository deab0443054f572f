"""Rows of tests/requirements.toml, and the tests that prove them by the mark `covers`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "requirements.toml"

Row = dict[str, Any]
#: Node id of each test that has a mark, with parameters, and the ids of its marks.
Covers = dict[str, list[str]]


def read_rows() -> list[Row]:
    """Return all rows of the table."""
    rows: list[Row] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]
    return rows


def collect_covers() -> Covers:
    """Collect the marks of all tests, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "covers.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            f"--covers-map={target}",
            str(ROOT / "tests"),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"pytest could not collect the tests:\n{done.stdout}{done.stderr}")
        covers: Covers = json.loads(target.read_text(encoding="utf-8"))
        return covers


def group_by_id(covers: Covers) -> dict[str, list[str]]:
    """Return the tests of each id in a stable order, without parameters."""
    found: dict[str, set[str]] = {}
    for node, ids in covers.items():
        for id in ids:
            found.setdefault(id, set()).add(node.split("[", 1)[0])
    return {id: sorted(tests) for id, tests in found.items()}


def find_missing(rows: Sequence[Row], covers: Covers) -> list[Row]:
    """Return the rows that need a test and have none."""
    found = group_by_id(covers)
    return [row for row in rows if row["id"] not in found and "later" not in row]


def find_unknown(rows: Sequence[Row], covers: Covers) -> dict[str, list[str]]:
    """Return the ids of marks that no row has, and their tests."""
    known = {row["id"] for row in rows}
    return {id: tests for id, tests in group_by_id(covers).items() if id not in known}


def find_unproven(
    rows: Sequence[Row], covers: Covers, outcomes: Mapping[str, set[str]], *, strict: bool
) -> Iterator[str]:
    """Yield a complaint for each row that a full run did not prove. `strict`: a skipped test is no proof."""
    found = group_by_id(covers)
    yield from (f"{row['id']}: no test has the mark" for row in find_missing(rows, covers))
    for row in rows:
        for test in found.get(row["id"], ()):
            seen = outcomes.get(test, set())
            if not seen:
                yield f"{row['id']}: {test} did not run"
            elif "failed" in seen or ("passed" not in seen and strict):
                yield f"{row['id']}: {test} {'failed' if 'failed' in seen else 'was skipped'}"
