"""Breaks the protocol core and the policies in small ways and sees whether the tests notice.

Cosmic Ray makes the mutants: a comparison replaced, a condition negated, a number moved, an operator swapped, a loop
left out, an exception renamed, a decorator removed. The sample is drawn with a fixed seed, so two runs of the same
source try the same mutants. Every mutant is tried in a copy of the package; the working tree is never touched.
Each part is tried with tests of its own. docs/numbers.md has the score and the survivors of a run.

    python scripts/mutation.py [--parts protocol policy] [--mutants 200] [--seed 7] [--workers 2]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.commands import init
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkItem, WorkResult

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutation"


class Part(NamedTuple):
    """A folder to break, and the tests that have to notice."""

    folder: Path  # relative: a path of the working tree and of each copy
    tests: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """Return the command that runs the tests until one fails."""
        return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *self.tests]


PARTS = {
    "protocol": Part(
        Path("src/toolwire/protocol"),
        (
            "tests/protocol",
            "tests/wire/test_session.py",
            "tests/wire/test_session_requests.py",
            "tests/http/legacy",
            "tests/server/test_replay_state.py",
        ),
    ),
    "policy": Part(Path("src/toolwire/server/policy"), ("tests/server/policy", "tests/test_redaction.py")),
}
# Mutants that are the same program: `|` joins types in annotations, which nothing evaluates, and what is compared by
# identity here (None, UNSET, types) is equal to itself alone.
EXCLUDED = re.compile(r"core/Replace(BinaryOperator_BitOr_|ComparisonOperator_(Is_Eq|IsNot_NotEq)$)")


def sample(part: Part, count: int, seed: int) -> list[WorkItem]:
    """Choose the mutants to try, in an order of their own: Cosmic Ray gives them new ids each time."""
    with use_db(WORK / "all.sqlite") as everything:
        init(sorted(part.folder.rglob("*.py")), everything, {})
        items = everything.work_items
    possible = [item for item in items if not EXCLUDED.match(item.mutations[0].operator_name)]
    possible.sort(key=place)
    print(
        f"{part.folder}: {len(possible)} mutants are possible, {min(count, len(possible))} are tried (seed {seed})",
        flush=True,
    )
    return random.Random(seed).sample(possible, min(count, len(possible)))


def place(item: WorkItem) -> tuple[Path, tuple[int, int], str, int]:
    change = item.mutations[0]
    return change.module_path, change.start_pos, change.operator_name, change.occurrence


class Workshop:
    """A copy of the package and its tests, with a Cosmic Ray session that breaks it in one place after the other."""

    def __init__(self, part: Part, number: int) -> None:
        self.command = part.command
        self.home = WORK / f"worker{number}"
        # The tests are copied too, so that work on them meanwhile does not count as a mutant noticed.
        for folder in ("src", "tests", "examples"):
            shutil.copytree(ROOT / folder, self.home / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / file, self.home / file)
        self.environment = os.environ | {
            "PYTHONPATH": str(self.home / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Hypothesis then tries the same examples each time, and keeps none that failed for other mutants.
            "CI": "true",
            "TOOLWIRE_SPEC": os.environ.get("TOOLWIRE_SPEC", str(ROOT.parent / "shared/reference/schema")),
        }

    def check(self) -> float:
        """Return how long the tests take with nothing broken; they pass, and the copy is what they load."""
        probe = [sys.executable, "-c", "import toolwire; print(toolwire.__file__)"]
        loaded = subprocess.run(
            probe, cwd=self.home, env=self.environment, capture_output=True, text=True, check=True
        ).stdout
        if not Path(loaded.strip()).is_relative_to(self.home):
            sys.exit(f"the tests would load {loaded.strip()}, not the copy")
        started = time.monotonic()
        tests = subprocess.run(
            self.command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if tests.returncode:
            sys.exit(f"{tests.stdout}\nthe tests do not pass without a mutation: {' '.join(self.command)}")
        return time.monotonic() - started

    def start(self, mutants: list[WorkItem], timeout: float) -> subprocess.Popen[bytes]:
        with use_db(self.home / "session.sqlite") as session:
            session.add_work_items(mutants)
        (self.home / "session.toml").write_text(
            "[cosmic-ray]\n"
            f"timeout = {timeout:.1f}\n"
            f'test-command = "{" ".join(self.command)}"\n'
            "[cosmic-ray.distributor]\n"
            'name = "local"\n',
            encoding="utf-8",
        )
        command = [str(Path(sys.executable).with_name("cosmic-ray")), "exec", "session.toml", "session.sqlite"]
        return subprocess.Popen(command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL)

    def results(self) -> list[tuple[WorkItem, WorkResult]]:
        with use_db(self.home / "session.sqlite", WorkDB.Mode.open) as session:
            return list(session.completed_work_items)


def try_part(name: str, mutants_wanted: int, seed: int, workers: int) -> None:
    """Break a part in many ways, one at a time, and print the score and the survivors."""
    part = PARTS[name]
    shutil.rmtree(WORK, ignore_errors=True)
    started = time.monotonic()
    workshops = [Workshop(part, number) for number in range(workers)]
    # A mutant that only slows the tests is not noticed; one that makes them hang is.
    timeout = 30 + 4 * workshops[0].check()
    mutants = sample(part, mutants_wanted, seed)
    running = [shop.start(mutants[n::workers], timeout) for n, shop in enumerate(workshops)]
    if any(each.wait() for each in running):
        sys.exit("Cosmic Ray itself failed")
    workshops[0].check()  # Nothing but the mutants may have made tests fail.

    results = [result for shop in workshops for result in shop.results()]
    killed = sum(result.test_outcome is TestOutcome.KILLED for _, result in results)
    minutes = (time.monotonic() - started) / 60
    score = f"{killed} of {len(mutants)} mutants were noticed ({killed / len(mutants):.1%})"
    print(f"{name}: {score}, in {minutes:.1f} minutes", flush=True)
    for item, result in sorted(results, key=lambda each: place(each[0])):
        if result.test_outcome is not TestOutcome.KILLED:
            path, (line, _), operator, _ = place(item)
            outcome = result.test_outcome or result.worker_outcome
            print(f"  {outcome.value}: {path}:{line}: {operator.removeprefix('core/')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation test of the protocol core and the policies.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--mutants", type=int, default=200, help="of each part")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    os.chdir(ROOT)
    for name in options.parts:
        try_part(name, options.mutants, options.seed, options.workers)


if __name__ == "__main__":
    main()
