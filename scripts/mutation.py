"""Breaks the protocol core in small ways and sees whether the tests notice.

Each mutant is one change in one file of src/toolwire/protocol: a comparison turned, a condition negated, a constant
moved, an operator swapped, a result dropped, a statement removed. The sample is drawn with a fixed seed, so two runs of
the same source try the same mutants. Every mutant is tried in a copy of the package; the working tree is never touched.

    python scripts/mutation.py [--mutants 200] [--seed 7] [--workers 2] [--timeout 60]
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TARGET = SOURCE / "toolwire" / "protocol"
WORK = ROOT / ".mutation"
TESTS = [
    "tests/protocol",
    "tests/wire/test_session.py",
    "tests/wire/test_http_sessions.py",
    "tests/server/test_replay.py",
]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    path: Path  # relative to SOURCE
    line: int
    what: str
    text: str  # the whole mutated module


def type_annotations(tree: ast.Module) -> set[int]:
    """The nodes of type annotations: `int | None` is no operation there."""
    found: set[int] = set()
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if isinstance(part, ast.AST):
                found.update(id(inner) for inner in ast.walk(part))
    return found


def docstrings(tree: ast.Module) -> set[int]:
    bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    owners = (node for node in ast.walk(tree) if isinstance(node, bodies))
    return {id(owner.body[0]) for owner in owners if owner.body and ast.get_docstring(owner) is not None}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What can be done to one node: a description and its replacement."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            new.ops = [COMPARISONS[type(operator)]()]
            yield "comparison turned", new
        case ast.BoolOp():
            new.op = ast.And() if isinstance(new.op, ast.Or) else ast.Or()
            yield "and / or swapped", new
        case ast.UnaryOp(op=ast.Not()):
            yield "not removed", new.operand
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            new.op = ARITHMETIC[type(operator)]()
            yield "operator swapped", new
        case ast.Constant(value=bool(value)):
            yield "truth value turned", ast.Constant(not value)
        case ast.Constant(value=int(number)):
            yield "number moved", ast.Constant(number + 1)
        case ast.If() | ast.While() | ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield "condition negated", new
        case ast.Return(value=ast.expr()) if not (isinstance(new.value, ast.Constant) and new.value.value is None):
            new.value = ast.Constant(None)
            yield "None returned", new
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            yield "statement removed", ast.Pass()


class Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().generic_visit(node)


def mutants_of(path: Path) -> list[tuple[ast.Module, ast.AST, str, ast.AST]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ignored = type_annotations(tree) | docstrings(tree)
    nodes = [node for node in ast.walk(tree) if id(node) not in ignored]
    return [(tree, node, what, new) for node in nodes for what, new in changes(node)]


def sample(count: int, seed: int) -> list[Mutant]:
    possible = [(path, *found) for path in sorted(TARGET.rglob("*.py")) for found in mutants_of(path)]
    chosen = random.Random(seed).sample(possible, min(count, len(possible)))
    print(f"{len(possible)} mutants are possible, {len(chosen)} are tried (seed {seed})")
    made = []
    for path, tree, node, what, new in chosen:
        # NodeTransformer edits in place, so the node is found again in a copy by its position in the walk.
        position = next(n for n, other in enumerate(ast.walk(tree)) if other is node)
        fresh = copy.deepcopy(tree)
        old = next(other for n, other in enumerate(ast.walk(fresh)) if n == position)
        mutated = ast.fix_missing_locations(Replace(old, new).visit(fresh))
        made.append(Mutant(path.relative_to(SOURCE), getattr(node, "lineno", 0), what, ast.unparse(mutated)))
    return made


class Workshop:
    """Copies of the package and its tests, one a worker; a mutant is written into a free one, tried and undone."""

    def __init__(self, workers: int) -> None:
        self.timeout: float | None = None
        self.free: SimpleQueue[Path] = SimpleQueue()
        shutil.rmtree(WORK, ignore_errors=True)
        for number in range(workers):
            home = WORK / f"worker{number}"
            # The tests are copied too, so that work on them meanwhile does not count as a mutant noticed.
            for folder in ("src", "tests", "examples"):
                shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
            for file in ("pyproject.toml", "README.md"):
                shutil.copy(ROOT / file, home / file)
            self.free.put(home)

    def passes(self, home: Path) -> bool:
        """Whether the tests pass with this copy in front of the installed package; hanging is not passing."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
        environment = os.environ | {
            "PYTHONPATH": str(home / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TOOLWIRE_SPEC": os.environ.get("TOOLWIRE_SPEC", str(ROOT.parent / "shared/reference/schema")),
            # Hypothesis keeps failing examples; each mutant starts without those of the others.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(home / ".hypothesis"),
        }
        quiet = subprocess.DEVNULL
        # A session of its own, so that what a hanging test has spawned ends with it.
        running = subprocess.Popen(
            command, cwd=home, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        try:
            return running.wait(self.timeout) == 0
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return False

    def survives(self, mutant: Mutant) -> bool:
        home = self.free.get()
        target = home / "src" / mutant.path
        original = target.read_bytes()
        try:
            target.write_text(mutant.text, encoding="utf-8")
            shutil.rmtree(home / ".hypothesis", ignore_errors=True)
            return self.passes(home)
        finally:
            target.write_bytes(original)
            self.free.put(home)

    def check(self) -> None:
        """The copy, not the installed package, is what the tests load, and the tests pass with nothing broken.

        How long that takes decides how long the tests of a mutant may take: one that only slows them is not noticed.
        """
        home = self.free.get()
        probe = [sys.executable, "-c", "import toolwire; print(toolwire.__file__)"]
        environment = os.environ | {"PYTHONPATH": str(home / "src")}
        loaded = subprocess.run(probe, cwd=home, env=environment, capture_output=True, text=True, check=True).stdout
        if not Path(loaded.strip()).is_relative_to(home):
            sys.exit(f"the tests would load {loaded.strip()}, not the copy")
        started = time.monotonic()
        if not self.passes(home):
            sys.exit(f"the tests do not pass without a mutation: pytest {' '.join(TESTS)}")
        self.timeout = 30 + 4 * (time.monotonic() - started)
        self.free.put(home)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation test of the protocol core.")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    started = time.monotonic()
    workshop = Workshop(options.workers)
    workshop.check()
    mutants = sample(options.mutants, options.seed)
    with ThreadPoolExecutor(options.workers) as pool:
        survived = [
            mutant for mutant, alive in zip(mutants, pool.map(workshop.survives, mutants), strict=True) if alive
        ]
    workshop.check()  # Nothing but the mutants may have made tests fail.
    shutil.rmtree(WORK, ignore_errors=True)

    killed = len(mutants) - len(survived)
    minutes = (time.monotonic() - started) / 60
    print(f"{killed} of {len(mutants)} mutants were noticed ({killed / len(mutants):.1%}), in {minutes:.1f} minutes")
    for mutant in sorted(survived, key=lambda each: (each.path, each.line)):
        print(f"  survived: src/{mutant.path}:{mutant.line}: {mutant.what}")


if __name__ == "__main__":
    main()
