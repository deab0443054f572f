"""Simulations: a seed replays exactly, seeds keep the rules, and rules that are broken on purpose are noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.simulation.__main__ import Series
from tests.simulation.faults import FAULTS, STATES, cycle, schedule
from tests.simulation.ledger import RULES
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


@pytest.mark.slow
def test_a_seed_replays_exactly_in_another_process() -> None:
    one, other = report(3, PYTHONHASHSEED="1"), report(3, PYTHONHASHSEED="2")
    assert one == other
    assert one["steps"] > 1000


def test_seeds_keep_the_rules() -> None:
    """`make simulate` runs as many as it has time for."""
    done = simulate("--seeds", "2", "--first", "1001", "--jobs", "2", "--keep-going")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 seeds" in done.stdout


def test_a_mistake_is_noticed() -> None:
    """`make simulate-mistakes` makes all of them."""
    done = simulate("--seeds", "60", "--jobs", "2", "--mistake", "sessions do not end")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {line.strip().partition(":")[0] for line in done.stdout.splitlines() if line.startswith("    ")}
    assert "ended session" in found, done.stdout


def test_every_mistake_breaks_a_rule() -> None:
    assert {rule for mistake in MISTAKES.values() for rule in mistake.rules} <= set(RULES)
    assert {fault for mistake in MISTAKES.values() for fault in mistake.faults} <= set(FAULTS)


def test_every_mistake_finds_the_code_that_it_changes() -> None:
    """The mistakes change classes by name, in a process of their own."""
    make_all = "from tests.simulation.mistakes import MISTAKES\nfor mistake in MISTAKES.values():\n    mistake.make()"
    done = subprocess.run([sys.executable, "-c", make_all], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@cases("kinds", [FAULTS, ("kill",), ("kill", "pause", "stop")])
@cases("first", [0, 1000])
def test_the_seeds_of_a_cycle_aim_at_every_pair(first: int, kinds: tuple[str, ...]) -> None:
    aims = [aim for seed in range(first, first + cycle(kinds)) for aim in schedule(seed, kinds)]
    pairs = {(fault, state) for fault in kinds for state in STATES}
    assert {(aim.fault, aim.state) for aim in aims} == pairs
    exact = [(aim.fault, aim.state) for aim in aims if aim.exact]
    assert len(exact) == len(pairs) and set(exact) == pairs


@cases(
    ("seeds", "unmet", "passes"),
    [(cycle(), (), True), (cycle(), ("kill / taken",), False), (cycle() - 1, ("kill / taken", "pause / away"), True)],
)
def test_a_pair_that_never_met_is_a_failure_after_a_whole_cycle_only(
    seeds: int, unmet: tuple[str, ...], passes: bool
) -> None:
    series = Series(Namespace(first=-seeds, minutes=0.0, fault=None))
    series.next = 0
    series.met.update(pair for fault in FAULTS for state in STATES if (pair := f"{fault} / {state}") not in unmet)
    assert series.is_covered() is passes
