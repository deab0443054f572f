"""The judgement on the reports of the official suite, and the list of checks that no gateway can pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

import conformance
from conformance import LEFT_OUT, LeftOut, check_left_out, judge, read_left_out

LEG = "req-2025-11-25"
EXPECTED: dict[str, Any] = {
    name: {LEG: {"first": {"SUCCESS": 1}, "second": {"SUCCESS": 1}}}
    for name in ("one", "two", "input/three", "server-four")
}


def reports(folder: Path, **statuses: str) -> Path:
    """Write what the suite writes: a folder for each scenario, with the same two checks."""
    for scenario in EXPECTED:
        place = folder / f"server-{scenario}-2026-11-16T13-00-00-000Z"
        place.mkdir(parents=True)
        checks = [
            {"id": check, "status": statuses.get(f"{scenario}_{check}", "SUCCESS"), "description": "why"}
            for check in ("first", "second")
        ]
        (place / "checks.json").write_text(json.dumps(checks))
    return folder


def test_reports_without_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reports(tmp_path / "server-leg")
    assert judge(folder, EXPECTED, LEG) == []
    assert capsys.readouterr().out == "conformance: server-leg: 4 scenarios passed; 8 SUCCESS\n"


@pytest.mark.parametrize("status", ["FAILURE", "WARNING"])
def test_failures_and_warnings_are_problems(tmp_path: Path, status: str) -> None:
    folder = reports(tmp_path / "server-leg", one_first=status)
    assert judge(folder, EXPECTED, LEG) == [
        f"server-leg: one: {status} first: why",
        "server-leg: one: 0 of 1 successes of first",
    ]


@pytest.mark.parametrize("status", ["SKIPPED", "INFO"])
def test_a_check_that_is_not_made_is_a_problem(tmp_path: Path, status: str) -> None:
    folder = reports(tmp_path / "server-leg", one_first=status)
    assert judge(folder, EXPECTED, LEG) == ["server-leg: one: 0 of 1 successes of first"]


def test_a_scenario_without_a_report_is_a_problem(tmp_path: Path) -> None:
    folder = reports(tmp_path / "server-leg")
    expected = {**EXPECTED, "five": {LEG: {"first": {"SUCCESS": 1}}}}
    for left_out in (None, {"five": ["first"]}):
        assert judge(folder, expected, LEG, left_out) == ["server-leg: five: no report"]


def test_a_check_that_is_left_out_may_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reports(tmp_path / "server-leg", one_first="FAILURE", two_second="SKIPPED")
    assert judge(folder, EXPECTED, LEG, {"one": ["first"], "two": ["second"]}) == []
    assert "2 scenarios passed, 2 in part; 1 FAILURE" in capsys.readouterr().out


def test_a_check_that_is_left_out_may_not_succeed(tmp_path: Path) -> None:
    folder = reports(tmp_path / "server-leg", one_first="FAILURE")
    assert judge(folder, EXPECTED, LEG, {"one": ["first", "second"]}) == [
        "server-leg: one: second is left out and succeeds"
    ]


def test_the_other_checks_of_a_scenario_are_not_left_out(tmp_path: Path) -> None:
    folder = reports(tmp_path / "server-leg", one_first="FAILURE", one_second="SKIPPED")
    assert judge(folder, EXPECTED, LEG, {"one": ["first"]}) == ["server-leg: one: 0 of 1 successes of second"]


def test_a_line_names_both_revisions_the_scenario_its_checks_and_the_reason() -> None:
    text = "# Words.\n\n2026-07-28 2025-11-25 one first second: it has: no key\n"
    assert read_left_out(text) == [LeftOut("2026-07-28", "2025-11-25", "one", ["first", "second"], "it has: no key")]


@cases("line", ["one", "a b one: no key", "a b one first", "a b one first: ", "a b one first:no key"])
def test_a_line_without_one_of_them_is_refused(line: str) -> None:
    with pytest.raises(SystemExit, match="FRONT BACK SCENARIO CHECKS: REASON"):
        read_left_out(line)


@cases(
    ("front", "back", "scenario", "check", "problem"),
    [
        ("2025-11-25", "2026-07-28", "six", "first", "six: no such scenario on 2025-11-25"),
        ("2026-07-28", "2025-11-25", "one", "first", "one: no such scenario on 2026-07-28"),
        ("2025-11-25", "2026-07-28", "one", "third", "one: no such check: third"),
        ("2025-06-18", "2025-11-25", "one", "first", "one: no gateway runs from 2025-06-18 to 2025-11-25"),
        ("2025-11-25", "2025-06-18", "one", "first", "one: no gateway runs from 2025-11-25 to 2025-06-18"),
    ],
)
def test_only_checks_that_are_made_can_be_left_out(
    front: str, back: str, scenario: str, check: str, problem: str
) -> None:
    assert check_left_out([LeftOut(front, back, scenario, [check], "why")], EXPECTED) == [problem]


def test_a_scenario_is_named_once() -> None:
    twice = [LeftOut("2025-11-25", "2026-07-28", "one", [check], "why") for check in ("first", "second")]
    assert check_left_out(twice, EXPECTED) == ["one: named twice"]


@cases(
    ("back", "leg", "is_left_out"),
    [
        ("2025-11-25", "req-2026-07-28", True),
        ("2025-11-25", "all-bare", True),
        ("2025-11-25", "req-2025-11-25", False),
        ("2026-07-28", "req-2026-07-28", False),
    ],
)
def test_a_check_is_left_out_of_one_pair_of_revisions(back: str, leg: str, is_left_out: bool) -> None:
    assert LeftOut("2026-07-28", "2025-11-25", "one", ["first"], "why").is_for(back, leg) is is_left_out


def test_the_checks_left_out_here_are_in_the_suite() -> None:
    expected = json.loads((conformance.ROOT / "tests/conformance/expected-checks.json").read_text())
    assert check_left_out(read_left_out(LEFT_OUT.read_text()), expected["server"]) == []
