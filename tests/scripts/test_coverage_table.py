"""The table of coverage notices a test that is lost."""

from __future__ import annotations

import tomllib
from typing import Any

import coverage_table


def report(lines: int, branches: int) -> dict[str, Any]:
    return {
        "summary": {
            "covered_lines": lines,
            "num_statements": 200,
            "covered_branches": branches,
            "num_branches": 100,
            "percent_covered": 50.0,
        }
    }


def files(**figures: tuple[int, int]) -> dict[str, Any]:
    return {f"src/toolwire/{name.replace('__', '/')}.py": report(*each) for name, each in figures.items()}


def measure(**figures: tuple[int, int]) -> coverage_table.Figures:
    return coverage_table.measure_folders(files(**figures))


def losses(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    expected, measured = coverage_table.measure_folders(before), coverage_table.measure_folders(after)
    return coverage_table.find_losses(expected, measured, coverage_table.count_folders(after))


def test_files_of_one_folder_are_added() -> None:
    measured = measure(server__kernel=(200, 100), server__call=(100, 50), logs=(50, 0))
    assert measured == {
        ".": {"lines": 25.0, "branches": 0.0},
        "server": {"lines": 75.0, "branches": 75.0},
    }


def test_folder_that_lost_a_test_is_reported() -> None:
    before, after = files(server__kernel=(200, 100)), files(server__kernel=(200, 90))
    assert losses(before, before) == []
    assert losses(before, after) == ["server: 90.0 % of the branches ran, the table has 100.0 %"]


def test_few_lines_and_branches_are_no_loss() -> None:
    before = files(server__kernel=(200, 100))
    assert losses(before, files(server__kernel=(195, 95))) == []
    assert len(losses(before, files(server__kernel=(194, 94)))) == 2


def test_new_and_removed_folders_are_reported() -> None:
    assert losses(files(old__a=(1, 1)), files(new__a=(1, 1))) == [
        "new is not in the table",
        "old is in the table, and no file of it was measured",
    ]


def test_written_table_is_read_again() -> None:
    measured = measure(server__kernel=(150, 50), http__legacy__sessions=(200, 100))
    assert tomllib.loads(coverage_table.write_table(measured)) == measured
