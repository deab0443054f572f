"""Compares the coverage of each folder with tests/coverage.toml: `make coverage` runs the tests and calls this script.

    python scripts/coverage_table.py .coverage.json           fails where a folder has less than the table says
    python scripts/coverage_table.py .coverage.json --write   writes the table anew, on purpose

A line or branch that only a process of its own runs (a started server, a worker) is not counted, so the figures are
lower than what the tests reach. They are a guard against tests that are lost, not a grade.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "tests" / "coverage.toml"
PACKAGE: Final = "src/toolwire/"
#: Percentage points, and lines or branches, by which a folder may differ from one run to the next: what is reached
#: depends on timing, and one branch is more than a point of a small folder.
SPREAD: Final = 0.5
FEW: Final = 5

Figures = dict[str, dict[str, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the JSON report of coverage.py")
    parser.add_argument("--write", action="store_true", help="write the table anew")
    options = parser.parse_args()
    files = json.loads(options.report.read_text(encoding="utf-8"))["files"]
    measured = measure_folders(files)
    if options.write:
        TABLE.write_text(write_table(measured), encoding="utf-8")
        return 0
    lost = find_losses(tomllib.loads(TABLE.read_text(encoding="utf-8")), measured, count_folders(files))
    for line in lost:
        print(f"coverage: {line}", file=sys.stderr)
    if lost:
        print("coverage: add the test that is missing, or write the table anew with --write.", file=sys.stderr)
    else:
        print(f"coverage: {len(measured)} folders, none below tests/coverage.toml")
    return 1 if lost else 0


def count_folders(files: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return the counts of coverage.py, added by folder of the package."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, report in files.items():
        folder, _, _ = name.removeprefix(PACKAGE).rpartition("/")
        for member, number in report["summary"].items():
            if isinstance(number, int):
                counts[folder or "."][member] += number
    return counts


def measure_folders(files: Mapping[str, Any]) -> Figures:
    """Return the percentage of lines and branches that ran, by folder of the package."""
    return {
        folder: {
            "lines": _percent(count["covered_lines"], count["num_statements"]),
            "branches": _percent(count["covered_branches"], count["num_branches"]),
        }
        for folder, count in sorted(count_folders(files).items())
    }


def find_losses(expected: Figures, measured: Figures, counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each folder that has less than expected, and for each that is in one of the two alone."""
    lost = [f"{folder} is not in the table" for folder in measured.keys() - expected.keys()]
    for folder, figures in expected.items():
        if folder not in measured:
            lost.append(f"{folder} is in the table, and no file of it was measured")
            continue
        for kind, figure in figures.items():
            points = figure - measured[folder][kind]
            whole = counts[folder]["num_statements" if kind == "lines" else "num_branches"]
            if points > SPREAD and points / 100 * whole > FEW:
                lost.append(f"{folder}: {measured[folder][kind]:.1f} % of the {kind} ran, the table has {figure:.1f} %")
    return sorted(lost)


def write_table(measured: Figures) -> str:
    """Return the table as TOML."""
    lines = [
        "# Percent of the lines and branches that the tests run in their own processes, by folder of src/toolwire.",
        "# `make coverage` fails where a folder has less; `make coverage WRITE=1` writes the table anew.",
    ]
    for folder, figures in measured.items():
        lines += ["", f'["{folder}"]', *(f"{kind} = {figure:.1f}" for kind, figure in figures.items())]
    return "\n".join(lines) + "\n"


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


if __name__ == "__main__":
    sys.exit(main())
