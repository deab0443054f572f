"""Breaks the behaviour of one acceptance row after the other and sees whether the tests of that row notice.

tests/breakages.toml has a mistake for each row, or several. Each is made in a copy of the repository that has a virtual
environment of its own, so that the processes that tests start load the copy too. Only the tests that
that are marked with the row run, until the first of them fails. A mistake counts as noticed when a test
fails that passes with nothing broken, and not when the broken module cannot be imported or uses an unknown name.

    python scripts/mutation_rows.py [--rows J1,J2] [--workers 2]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.breakages import Breakage, breakages, broken, proofs_of_rows  # noqa: E402

# A test that hangs has noticed; a run that does not end at all has not.
TEST_SECONDS = 60
RUN_SECONDS = 300
# Tests in these folders start processes, open sockets or compare much: they run after the others.
LATER = ("interop", "acceptance", "testing_plugin", "cli", "wire", "tasks")
# Threads that a broken handler left behind do not keep the run from ending.
PYTEST = "import os, sys, pytest; status = pytest.main(); sys.stdout.flush(); os._exit(status)"
# What a careless breakage raises, whatever the test looks at.
CARELESS = re.compile(r"(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|NameError|UnboundLocalError)\b")


class Case(NamedTuple):
    """How one test ended: "passed", "skipped", "failed" or "error", and the first line of what it said."""

    test: str
    outcome: str
    message: str


class Verdict(NamedTuple):
    """What became of one breakage."""

    row: str
    noticed: bool
    text: str
    """The test that noticed it, or why it counts as unnoticed."""
    hung: bool = False
    """Whether the test noticed it by never ending."""
    seconds: float = 0.0


class Workshop:
    """A copy of the repository in which one breakage at a time is tried."""

    def __init__(self, home: Path) -> None:
        self.home = home
        ignored = shutil.ignore_patterns(".*", "__pycache__", "dist", "site", "build")
        shutil.copytree(ROOT, home, ignore=ignored, symlinks=True, dirs_exist_ok=True)
        self.python = self._make_environment()
        # Under CI Hypothesis tries the same examples each time, and keeps none.
        self.environment = {
            "TOOLWIRE_SPEC": str(ROOT.parent / "shared/reference/schema"),
            **os.environ,
            "CI": "true",
        }
        # Most of the time of a run with one test goes into compiling what never changes.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        loaded = self._run("-c", "import toolwire; print(toolwire.__file__)").stdout.strip()
        if not Path(loaded).is_relative_to(home):
            sys.exit(f"the tests would load {loaded}, not the copy")

    def _make_environment(self) -> str:
        """Make an environment that has the packages of this one, and the copy in place of the package."""
        folder = self.home / ".venv"
        venv.create(folder, symlinks=os.name != "nt")
        paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
        here = sysconfig.get_path("purelib")
        (Path(paths["purelib"]) / "breakage.pth").write_text(
            f"{self.home / 'src'}\nimport site; site.addsitedir({here!r})\n", encoding="utf-8"
        )
        return str(Path(paths["scripts"]) / "python")

    def _run(self, *arguments: str, seconds: float = RUN_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy, and end whatever it leaves behind."""
        with subprocess.Popen(
            [self.python, *arguments],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def test(self, tests: list[str], *options: str) -> list[Case]:
        """Run tests; return how those ended that ran."""
        report = self.home / "report.xml"
        report.unlink(missing_ok=True)
        quiet = ("-q", "-p", "no:cacheprovider", "--assert=plain", f"--junitxml={report}")
        done = self._run("-c", PYTEST, *quiet, *options, *tests)
        if not report.exists():
            return [Case("pytest", "error", done.stdout.strip()[-500:])]
        return [_case(element) for element in ElementTree.parse(report).iter("testcase")]

    def try_out(self, breakage: Breakage, tests: list[str]) -> Verdict:
        """Break the copy, run the tests of the row, and mend the copy again."""
        file, text = broken(breakage, self.home / "src")
        whole = file.read_text(encoding="utf-8")
        started = time.monotonic()
        try:
            self._write(file, text)
            problem = self._careless(file)
            limited = ("-x", "-n", "0", f"--timeout={TEST_SECONDS}")
            cases = [Case(file.name, "error", problem)] if problem else self.test(tests, *limited)
            verdict = _judged(breakage.row, cases)
        except subprocess.TimeoutExpired:
            verdict = Verdict(breakage.row, False, f"the tests did not end within {RUN_SECONDS} seconds")
        finally:
            self._write(file, whole)
        return verdict._replace(seconds=time.monotonic() - started)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        # Two versions of a file may have the same size and the same second, which is all that Python looks at.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def _careless(self, file: Path) -> str:
        """Say why a broken file is no program; the empty string for one that is."""
        ruff = str(Path(sys.executable).with_name("ruff"))
        names = subprocess.run(
            [ruff, "check", "--isolated", "--quiet", "--select=F821,F823", str(file)], capture_output=True, text=True
        )
        if names.returncode:
            return names.stdout.strip().splitlines()[0]
        module = ".".join(file.relative_to(self.home / "src").with_suffix("").parts).removesuffix(".__init__")
        imported = self._run("-c", f"import {module}")
        return imported.stdout.strip().splitlines()[-1] if imported.returncode else ""


def _case(element: ElementTree.Element) -> Case:
    test = f"{element.get('classname', '').replace('.', '/')}.py::{element.get('name', '')}"
    for child in element:
        if child.tag in ("failure", "error", "skipped"):
            message = (child.get("message") or "").strip().splitlines()
            outcome = {"failure": "failed"}.get(child.tag, child.tag)
            return Case(test, outcome, message[0] if message else "")
    return Case(test, "passed", "")


def _judged(row: str, cases: list[Case]) -> Verdict:
    """Say whether a breakage was noticed, and by what."""
    for case in cases:
        if case.outcome == "failed" and not CARELESS.match(case.message):
            return Verdict(row, True, case.test, case.message.startswith("Failed: Timeout"))
        if case.outcome in ("failed", "error"):
            return Verdict(row, False, f"careless: {case.test}: {case.message[:200]}")
    passed = sum(case.outcome == "passed" for case in cases)
    return Verdict(row, False, f"{passed} of {len(cases)} tests passed, none failed")


def _is_slow(test: str) -> int:
    """Order tests: the quick ones first, since a run ends with the first that fails."""
    return max((LATER[::-1].index(folder) + 1 for folder in LATER if f"/{folder}/" in test), default=0)


def _confirmed(workshop: Workshop, verdicts: list[Verdict], workers: int) -> list[Verdict]:
    """Run the tests that noticed something with nothing broken: one that fails then has noticed nothing."""
    tests = sorted({verdict.text for verdict in verdicts if verdict.noticed})
    cases = workshop.test(tests, "-n", str(workers)) if tests else []
    failed = {case.test: case.message for case in cases if case.outcome != "passed"}
    return [
        verdict._replace(noticed=False, text=f"{verdict.text} fails with nothing broken: {failed[verdict.text]}")
        if verdict.text in failed
        else verdict
        for verdict in verdicts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Break the behaviour of each acceptance row.")
    parser.add_argument("--rows", default="", help="only these rows, such as J1,J2")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    wanted = [row.strip() for row in options.rows.split(",") if row.strip()]
    proofs = proofs_of_rows()
    if unknown := [row for row in wanted if row not in proofs]:
        sys.exit(f"there is no acceptance row {', '.join(unknown)} in tests/requirements.toml")
    chosen = [breakage for breakage in breakages() if not wanted or breakage.row in wanted]
    for breakage in chosen:
        if breakage.reason:
            print(f"{breakage.row:5} cannot be broken: {breakage.reason}")
    chosen = [breakage for breakage in chosen if not breakage.reason]

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="toolwire-rows-") as folder:
        shops: SimpleQueue[Workshop] = SimpleQueue()
        for number in range(min(options.workers, len(chosen))):
            shops.put(Workshop(Path(folder).resolve() / str(number)))

        def try_out(breakage: Breakage) -> Verdict:
            shop = shops.get()
            try:
                verdict = shop.try_out(breakage, sorted(proofs[breakage.row], key=_is_slow))
            finally:
                shops.put(shop)
            word = "NOT NOTICED:" if not verdict.noticed else "hangs" if verdict.hung else "noticed by"
            print(f"{verdict.row:5} {verdict.seconds:6.1f} s  {breakage.where}: {word} {verdict.text}", flush=True)
            return verdict

        with ThreadPoolExecutor(options.workers) as pool:
            tried = list(pool.map(try_out, chosen))
        verdicts = _confirmed(shops.get(), tried, options.workers)
    for verdict in verdicts:
        if verdict not in tried:
            print(f"{verdict.row:5} NOT NOTICED: {verdict.text}")
    missed = [verdict.row for verdict in verdicts if not verdict.noticed]
    minutes = (time.monotonic() - started) / 60
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} breakages were noticed, in {minutes:.1f} minutes")
    if missed:
        sys.exit(f"not noticed: {','.join(dict.fromkeys(missed))}")


if __name__ == "__main__":
    main()
