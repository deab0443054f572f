"""The part of .ci/run that runs tests on other versions of Python, and its script for a root of Debian."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PYTHONS = "3.11 /a\n3.12 /b\n3.13 /c\n3.14 -\n3.15 -\n"

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not all(map(shutil.which, ("bash", "awk", "timeout"))), reason="needs bash and coreutils"
)


def quick_half() -> list[str]:
    found = re.search(r'^quick_half="(.*)"$', CI, re.MULTILINE)
    assert found is not None
    return found[1].split()


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def run_other_pythons(folder: Path, sample: int, debian: str = "exit 0") -> tuple[int, list[str]]:
    """Run the last part of .ci/run with programs that only say how they were called."""
    write_program(
        folder / ".venv" / "bin" / "python", f"[ $1 = -c ] && echo 3.11 || cat <<'END'\n{PYTHONS.strip()}\nEND"
    )
    write_program(folder / "scripts" / "debian_pythons.sh", f'echo "debian $2 $(($3 > 350)) $4"; {debian}')
    part = CI[CI.index("# --- The tests, on each other supported Python") :]
    prelude = f"""set -euo pipefail
    timings=() sample={sample}
    step() {{ echo "make $1 $2 $3"; }}
    left_out() {{ echo "left out: $1, $2"; }}
    """
    done = subprocess.run(["bash", "-c", prelude + part], cwd=folder, capture_output=True, text=True, timeout=60)
    said = ("make ", "left out", "debian ")
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(said)]


def test_quick_half_has_what_depended_on_the_version_of_python() -> None:
    parts = quick_half()
    for part in parts:
        assert (ROOT / part).exists(), part
    for test in (
        "tests/acceptance/test_principals.py",  # test_nobody_gets_anything_by_any_method
        "tests/gateway/config/test_reading.py",  # test_a_file_that_cannot_be_read
        "tests/scripts/test_pythons.py",  # test_the_running_python_is_declared
        "tests/simulation/test_store_model.py",
        "tests/skills/test_both_halves.py",
    ):
        assert any(test == part or test.startswith(f"{part}/") for part in parts), test


@pytest.mark.parametrize(("sample", "chosen", "order"), [(0, "3.12", ["3.14", "3.15"]), (7, "3.13", ["3.15", "3.14"])])
def test_each_commit_begins_with_another_version(tmp_path: Path, sample: int, chosen: str, order: list[str]) -> None:
    status, lines = run_other_pythons(tmp_path, sample)
    assert status == 0
    (other,) = {"3.12", "3.13"} - {chosen}
    assert sorted(lines[:2]) == [
        f"left out: tests on Python {other}, other commits try it (TOOLWIRE_SAMPLE)",
        f"make test PYTHON=/{'b' if chosen == '3.12' else 'c'} VENV=.venv{chosen.replace('.', '')}",
    ]
    assert lines[2:] == [f"debian {version} 1 {quick_half()[0]}" for version in order]


def test_end_of_the_time_for_debian_is_said_and_is_no_failure(tmp_path: Path) -> None:
    status, lines = run_other_pythons(tmp_path, 0, "exit 75")
    assert (status, lines[2:]) == (
        0,
        [
            f"debian 3.14 1 {quick_half()[0]}",
            "left out: some tests on Python 3.14, 360 seconds are over (TOOLWIRE_CI_DEBIAN)",
            "left out: tests on Python 3.15, 360 seconds are over (TOOLWIRE_CI_DEBIAN); other commits begin with it",
        ],
    )


def test_failure_in_debian_ends_the_run(tmp_path: Path) -> None:
    status, lines = run_other_pythons(tmp_path, 0, "exit 2")
    assert (status, lines[2:]) == (2, [f"debian 3.14 1 {quick_half()[0]}"])


@pytest.mark.parametrize(
    ("unshare", "status", "last"),
    [
        ("exec sleep 30", 75, "debian_pythons: Python 3.14: stopped after 1 seconds, and no test failed until then"),
        ('[[ "$command" == *" setup "* ]] || exit 2', 2, ""),
        ("exit 1", 77, "debian_pythons: left out, the environment of Python 3.14 cannot be made: "),
        ("exit 0", 0, ""),
    ],
)
def test_tests_in_debian_end_with_the_time(tmp_path: Path, unshare: str, status: int, last: str) -> None:
    script = tmp_path / "scripts" / "debian_pythons.sh"
    script.parent.mkdir()
    shutil.copy(ROOT / "scripts" / script.name, script)
    (tmp_path / ".pythons" / "root").mkdir(parents=True)
    (tmp_path / ".pythons" / "root" / ".ready").touch()
    write_program(tmp_path / "bin" / "unshare", unshare)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    seconds = "1" if status == 75 else "60"
    command = [str(script), "test", "3.14", seconds, "tests/protocol"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout.rstrip("\n")) == (status, last), done.stderr
