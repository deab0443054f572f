"""Show which tests prove the rows of tests/requirements.toml.

    python scripts/requirements.py --missing   print the rows that no test proves
    python scripts/requirements.py --show ID   print a row and its tests

Both collect the marks of all tests. tests/test_requirements.py fails when a row has no test, or a mark no row.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.requirements import TABLE, collect_covers, find_missing, find_unknown, group_by_id, read_rows  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description="Requirements and the tests that prove them.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--missing", action="store_true", help="print the rows that no test proves")
    choice.add_argument("--show", metavar="ID", help="print a row and its tests")
    options = parser.parse_args()

    rows = {row["id"]: row for row in read_rows()}
    if options.show is not None and options.show not in rows:
        sys.exit(f"{TABLE.relative_to(ROOT)} has no row {options.show}")
    covers = collect_covers()
    if options.show is not None:
        row = rows[options.show]
        print(row["text"], *(f"  {test}" for test in group_by_id(covers).get(options.show, ())), sep="\n")
        return
    for id, tests in find_unknown(list(rows.values()), covers).items():
        print(f"{id:10} is no row, and a mark of {', '.join(tests)}")
    missing = find_missing(list(rows.values()), covers)
    for row in missing:
        print(f"{row['id']:10} {row['text']}")
    needed = sum("later" not in row for row in rows.values())
    print(f"{needed - len(missing)} of {needed} rows proven, {len(rows) - needed} for later", file=sys.stderr)


if __name__ == "__main__":
    main()
