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


def measure(**files: tuple[int, int]) -> coverage_table.Figures:
    names = {name.replace("__", "/"): figures for name, figures in files.items()}
    return coverage_table.measure_folders(
        {f"src/toolwire/{name}.py": report(*figures) for name, figures in names.items()}
    )


def test_files_of_one_folder_are_added() -> None:
    measured = measure(server__kernel=(200, 100), server__call=(100, 50), logs=(50, 0))
    assert measured == {
        ".": {"lines": 25.0, "branches": 0.0},
        "server": {"lines": 75.0, "branches": 75.0},
    }


def test_folder_that_lost_a_test_is_reported() -> None:
    before, after = measure(server__kernel=(200, 100)), measure(server__kernel=(200, 90))
    assert coverage_table.find_losses(before, before) == []
    assert coverage_table.find_losses(before, after) == [
        "server: 90.0 % of the branches ran, the table has 100.0 %",
    ]


def test_what_timing_decides_is_no_loss() -> None:
    assert coverage_table.find_losses(measure(server__kernel=(200, 100)), measure(server__kernel=(199, 100))) == []


def test_new_and_removed_folders_are_reported() -> None:
    assert coverage_table.find_losses(measure(old__a=(1, 1)), measure(new__a=(1, 1))) == [
        "new is not in the table",
        "old is in the table, and no file of it was measured",
    ]


def test_written_table_is_read_again() -> None:
    measured = measure(server__kernel=(150, 50), http__legacy__sessions=(200, 100))
    assert tomllib.loads(coverage_table.write_table(measured)) == measured
