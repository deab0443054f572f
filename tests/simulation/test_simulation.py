"""Simulations: a seed replays exactly, seeds keep the rules, and rules that are broken on purpose are noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.mistakes import MISTAKES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it forks")

ROOT = Path(__file__).resolve().parents[2]


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def report(seed: int, **environment: str) -> dict[str, Any]:
    done = simulate("--seed", str(seed), **environment)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("seed", [3, 10])
def test_a_seed_replays_exactly_in_another_process(seed: int) -> None:
    one, other = report(seed, PYTHONHASHSEED="1"), report(seed, PYTHONHASHSEED="2")
    assert one == other
    assert one["steps"] > 1000


def test_seeds_keep_the_rules() -> None:
    done = simulate("--seeds", "8", "--first", "1001", "--jobs", "2", "--keep-going")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 seeds" in done.stdout


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    """Within so many seeds; each breaks off at the first violation."""
    done = simulate("--seeds", "60", "--jobs", "2", "--mistake", name)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {line.strip().partition(":")[0] for line in done.stdout.splitlines() if line.startswith("    ")}
    assert found & set(MISTAKES[name].rules), done.stdout
