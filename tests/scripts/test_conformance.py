"""The judgement on the reports of the official suite, and the list of scenarios that no gateway can pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import conformance
from conformance import LEFT_OUT, LeftOut, check_left_out, judge, read_left_out

LEG = "req-2025-11-25"
EXPECTED: dict[str, Any] = {
    name: {LEG: {"checked": {"SUCCESS": 1}}} for name in ("one", "two", "input/three", "server-four")
}


def reports(folder: Path, **statuses: str) -> Path:
    """Write what the suite writes: a folder with one check for each scenario."""
    for scenario, status in {**dict.fromkeys(EXPECTED, "SUCCESS"), **statuses}.items():
        place = folder / f"server-{scenario}-2026-11-16T13-00-00-000Z"
        place.mkdir(parents=True)
        (place / "checks.json").write_text(json.dumps([{"id": "checked", "status": status, "description": "why"}]))
    return folder


def test_reports_without_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reports(tmp_path / "server-leg")
    assert judge(folder, EXPECTED, LEG) == []
    assert capsys.readouterr().out == "conformance: server-leg: 4 scenarios passed; 4 SUCCESS\n"


@pytest.mark.parametrize("status", ["FAILURE", "WARNING"])
def test_failures_and_warnings_are_problems(tmp_path: Path, status: str) -> None:
    folder = reports(tmp_path / "server-leg", one=status)
    assert judge(folder, EXPECTED, LEG) == [
        f"server-leg: one: {status} checked: why",
        "server-leg: one: 0 of 1 successes of checked",
    ]


@pytest.mark.parametrize("status", ["SKIPPED", "INFO"])
def test_a_check_that_is_not_made_is_a_problem(tmp_path: Path, status: str) -> None:
    folder = reports(tmp_path / "server-leg", one=status)
    assert judge(folder, EXPECTED, LEG) == ["server-leg: one: 0 of 1 successes of checked"]


def test_a_scenario_without_a_report_is_a_problem(tmp_path: Path) -> None:
    folder = reports(tmp_path / "server-leg")
    assert judge(folder, {**EXPECTED, "five": {LEG: {}}}, LEG) == ["server-leg: five: no report"]


def test_a_scenario_that_is_left_out_may_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reports(tmp_path / "server-leg", one="FAILURE", two="SKIPPED")
    assert judge(folder, EXPECTED, LEG, {"one", "two"}) == []
    assert "2 scenarios passed, 2 left out; 1 FAILURE" in capsys.readouterr().out


def test_a_scenario_that_is_left_out_may_not_pass(tmp_path: Path) -> None:
    folder = reports(tmp_path / "server-leg")
    assert judge(folder, EXPECTED, LEG, {"server-four"}) == ["server-leg: server-four: is left out and passes"]


def test_a_line_names_both_revisions_the_scenario_and_the_reason() -> None:
    text = "# Words.\n\n2026-07-28 2025-11-25 one: it has: no key\n"
    assert read_left_out(text) == [LeftOut("2026-07-28", "2025-11-25", "one", "it has: no key")]


@pytest.mark.parametrize(
    "line", ["one", "2026-07-28 one: no key", "2026-07-28 2025-11-25 one", "a b one: ", "a b one:x"]
)
def test_a_line_without_one_of_them_is_refused(line: str) -> None:
    with pytest.raises(SystemExit, match="FRONT BACK SCENARIO: REASON"):
        read_left_out(line)


@pytest.mark.parametrize(
    ("front", "back", "scenario", "problem"),
    [
        ("2025-11-25", "2026-07-28", "six", "six: no such scenario on 2025-11-25"),
        ("2026-07-28", "2025-11-25", "one", "one: no such scenario on 2026-07-28"),
        ("2025-06-18", "2025-11-25", "one", "one: no gateway runs from 2025-06-18 to 2025-11-25"),
        ("2025-11-25", "2025-06-18", "one", "one: no gateway runs from 2025-11-25 to 2025-06-18"),
    ],
)
def test_only_scenarios_that_run_can_be_left_out(front: str, back: str, scenario: str, problem: str) -> None:
    assert check_left_out([LeftOut(front, back, scenario, "why")], EXPECTED) == [problem]


def test_a_scenario_is_left_out_once() -> None:
    twice = [LeftOut("2025-11-25", "2026-07-28", "one", reason) for reason in ("why", "also")]
    assert check_left_out(twice, EXPECTED) == ["one: named twice"]


def test_the_scenarios_left_out_here_are_in_the_suite() -> None:
    expected = json.loads((conformance.ROOT / "tests/conformance/expected-checks.json").read_text())
    assert check_left_out(read_left_out(LEFT_OUT.read_text()), expected["server"]) == []
