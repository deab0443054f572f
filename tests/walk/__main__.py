"""Shows the walk of a call through the code, or compares what calls cost with the committed counts.

python -m tests.walk                 the names of the walks
python -m tests.walk NAME            calls and opcodes of each function of one walk
python -m tests.walk --check         compare the opcodes of every walk with counts.toml; exit status 1 above 2 %
python -m tests.walk --write         write counts.toml anew
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from tests.walk.walks import WALKS, Reading, run_walk

COUNTS = Path(__file__).with_name("counts.toml")
TOLERANCE = 0.02


def main(arguments: list[str]) -> int:
    match arguments:
        case []:
            print((__doc__ or "") + "\n" + "\n".join(WALKS))
        case ["--check"]:
            return check_counts()
        case ["--write"]:
            write_counts()
        case [name] if name in WALKS:
            show_walk(name, run_walk(name))
        case _:
            print(f"unknown walk; there are: {', '.join(WALKS)}", file=sys.stderr)
            return 2
    return 0


def show_walk(name: str, reading: Reading) -> None:
    files = {key.split(":")[0] for key in reading.calls}
    calls = sum(reading.calls.values())
    print(f"{name}: {len(files)} files, {len(reading.calls)} functions, {calls:g} calls, {reading.opcodes:g} opcodes")
    for key, count in reading.calls.items():
        file, function = key.split(":", 1)
        print(f"{count:6g} {reading.by_function.get(key, 0):6g}  {file:44} {function}")


def check_counts() -> int:
    """Compare each walk with its committed count. Return the exit status."""
    committed = tomllib.loads(COUNTS.read_text())
    version = "{}.{}".format(*sys.version_info)
    if version != committed["python"]:
        print(f"walk: left out, the counts are of Python {committed['python']} and this is {version}")
        return 0
    worse = 0
    for name in WALKS:
        limit, found = committed["opcodes"][name], run_walk(name).opcodes
        change = found / limit - 1
        verdict = "ok"
        if change > TOLERANCE:
            worse += 1
            verdict = "WORSE: make it cheaper, or say why in the commit and run python -m tests.walk --write"
        elif change < -TOLERANCE:
            verdict = "better: run python -m tests.walk --write, so that it stays so"
        print(f"walk: {name:24} {found:8g} opcodes, committed {limit:8g} ({change:+.1%}) {verdict}")
    return min(worse, 1)


def write_counts() -> None:
    lines = [
        "# Opcodes in frames of Toolwire for one call, by walk. Written by `python -m tests.walk --write`.",
        'python = "{}.{}"'.format(*sys.version_info),
        "",
        "[opcodes]",
        *(f"{name} = {run_walk(name).opcodes:g}" for name in WALKS),
    ]
    COUNTS.write_text("\n".join(lines) + "\n")
    print(COUNTS.read_text(), end="")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
