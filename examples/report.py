"""A report over a folder of CSV files, as a task: a client that wants to does something else until it is done.

Run it with `REPORT_FOLDER=~/sales toolwire run examples/report.py`. The call says how far it has come, can be
cancelled, and asks before it leaves out files that cannot be read.
"""

import asyncio
import csv
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from toolwire import Context, Server, ToolError

server = Server(
    "report", version="1.0.0", instructions="Sums up CSV files. Large folders take a while: call it as a task."
)

MOST_FILES = 10_000
MOST_ROWS = 1_000_000


@dataclass
class Line:
    """One line of the report: a value of the column, and what its rows come to."""

    value: str
    rows: int
    total: float


@dataclass
class Report:
    files: int
    left_out: list[str]
    lines: list[Line]


def folder() -> Path:
    return Path(os.environ.get("REPORT_FOLDER", ".")).resolve()


def read(path: Path, group_by: str, column: str) -> list[tuple[str, float]]:
    """The two columns of one file; ValueError for a file that does not have them, or not as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if not {group_by, column} <= set(rows.fieldnames or ()):
            raise ValueError(f"{path.name} has no columns {group_by!r} and {column!r}")
        found = []
        for number, row in enumerate(rows):
            if number >= MOST_ROWS:
                raise ValueError(f"{path.name} has more than {MOST_ROWS:,} rows")
            found.append((row[group_by] or "", float(row[column])))
        return found


@server.tool(task="optional", annotations={"readOnlyHint": True})
async def build_report(group_by: str, column: str, ctx: Context) -> Report:
    """Sum up a column of every CSV file in the folder. Returns a line for each value of the other column.

    Args:
        group_by: The column that the report has a line for each value of, such as "country".
        column: The column with the numbers, such as "price".
    """
    files = sorted(folder().glob("*.csv"))[:MOST_FILES]
    if not files:
        raise ToolError("There are no CSV files in the folder.")
    rows: defaultdict[str, int] = defaultdict(int)
    totals: defaultdict[str, float] = defaultdict(float)
    left_out: list[str] = []
    for number, path in enumerate(files):
        await ctx.progress(number, total=len(files), message=path.name)
        try:
            # In a thread, so that the server answers others and sees a cancellation between two files.
            found = await asyncio.to_thread(read, path, group_by, column)
        except (ValueError, TypeError, OSError):
            left_out.append(path.name)
            continue
        for value, amount in found:
            rows[value] += 1
            totals[value] += amount
    if left_out and ctx.supports("elicitation"):
        answer = await ctx.elicit(f"{len(left_out)} of {len(files)} files cannot be read. Go on without them?", bool)
        if not (answer.accepted and answer.data):
            raise ToolError(f"The report was given up. Not readable: {', '.join(left_out[:10])}.")
    lines = [Line(value, rows[value], round(totals[value], 2)) for value in sorted(totals)]
    return Report(len(files) - len(left_out), left_out, lines)


if __name__ == "__main__":
    server.run()
