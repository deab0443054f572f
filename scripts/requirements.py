"""Keeps tests/requirements.toml in step with the `covers` marks of the tests.

    python scripts/requirements.py             rewrite the `tests` list of every row
    python scripts/requirements.py --missing   print the rows that no test proves, change nothing

The texts, sources and owners are written by hand; only the `tests` lists are generated. tests/test_requirements.py
fails when the two have drifted apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "requirements.toml"

Row = dict[str, Any]


def collect() -> dict[str, list[str]]:
    """Node id of each test that carries a mark -> the ids it carries."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "covers.json"
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--covers-map={target}", "tests"]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if found.returncode != 0:
            sys.exit(f"pytest could not collect the tests:\n{found.stdout}{found.stderr}")
        covers: dict[str, list[str]] = json.loads(target.read_text(encoding="utf-8"))
        return covers


def tests_by_id(covers: dict[str, list[str]]) -> dict[str, list[str]]:
    """Requirement id -> its tests, each named once whatever its parameters, in a stable order."""
    found: dict[str, set[str]] = {}
    for node, ids in covers.items():
        for id in ids:
            found.setdefault(id, set()).add(node.split("[", 1)[0])
    return {id: sorted(tests) for id, tests in found.items()}


def render(row: Row) -> str:
    lines = ["[[row]]"]
    lines += [f"{key} = {json.dumps(row[key], ensure_ascii=False)}" for key in ("id", "text", "source")]
    lines += [f"{key} = {json.dumps(row[key], ensure_ascii=False)}" for key in ("owner", "reason") if key in row]
    if row["tests"]:
        lines += ["tests = [", *(f"    {json.dumps(test)}," for test in row["tests"]), "]"]
    else:
        lines.append("tests = []")
    return "\n".join(lines) + "\n"


def rewrite(text: str, found: dict[str, list[str]]) -> str:
    """The table with fresh `tests` lists; the comment at its head stays as it is."""
    head = text[: text.index("[[row]]")]
    rows = tomllib.loads(text)["row"]
    return head + "\n".join(render(row | {"tests": found.get(row["id"], [])}) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Requirements and the tests that prove them.")
    parser.add_argument("--missing", action="store_true", help="print the ids without a test and change nothing")
    options = parser.parse_args()

    text = TABLE.read_text(encoding="utf-8")
    rows = tomllib.loads(text)["row"]
    found = tests_by_id(collect())

    unknown = sorted(found.keys() - {row["id"] for row in rows})
    if unknown:
        where = "\n".join(f"  {id}: {', '.join(found[id])}" for id in unknown)
        sys.exit(f"marks that name no row of {TABLE.relative_to(ROOT)}:\n{where}")

    needed = [row for row in rows if row.get("owner") != "later"]
    missing = [row for row in needed if row["id"] not in found]
    if options.missing:
        for row in missing:
            print(f"{row['id']:10} {row['text']}")
    else:
        TABLE.write_text(rewrite(text, found), encoding="utf-8")
    print(
        f"{len(needed) - len(missing)} of {len(needed)} rows proven, {len(rows) - len(needed)} owned by later work",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
