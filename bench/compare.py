"""Compares two runs of the benchmark, line by line, and says what of ours has become worse.

    python bench/compare.py --before a.json b.json --after c.json d.json

Each file is the `.bench/results.json` of one run. A line is worse when its median after the change is worse than its
median before the change by more than the spread of the rounds, before or after, whichever is larger. Lines that have a
reference in the same run (`mcp`, the bare echo) are compared as ratios, so that a slow moment of the machine does not
count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from report import BUDGETS, CONTENDERS, Samples


def load(path: str) -> Samples:
    samples: Samples = json.loads(Path(path).read_text(encoding="utf-8"))["samples"]
    return samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--after", nargs="+", required=True, metavar="FILE")
    options = parser.parse_args()
    before, after = [load(path) for path in options.before], [load(path) for path in options.after]
    worse = 0
    for budget in BUDGETS:
        for who in CONTENDERS[:2]:
            old, new = ([score for run in runs for score in budget.scores(run, who)] for runs in (before, after))
            if not old or not new:
                continue
            spread = max(max(old) - min(old), max(new) - min(new))
            was, now = statistics.median(old), statistics.median(new)
            lost = (was - now) if budget.more_is_better else (now - was)
            is_worse = lost > spread
            worse += is_worse
            unit = f" of {budget.compared_with}" if budget.compared_with else ""
            print(
                f"{'WORSE' if is_worse else 'ok':5} {budget.what}, {who}: {was:.4g} -> {now:.4g}{unit} "
                f"(rounds before {min(old):.4g} to {max(old):.4g}, after {min(new):.4g} to {max(new):.4g})"
            )
    print(f"{worse} lines are worse by more than their spread")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
