"""The table of requirements and the tests that prove them, checked both ways.

`python scripts/requirements.py` writes the `tests` lists from the marks. That the named tests also ran and passed is
checked at the end of a full run, by conftest.py.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

# A run of only some tests first collects all the others, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

# True only while the first version is being built: rows may still be without a test. Everything else is checked.
INCOMPLETE = False

MOST_IDS_PER_TEST = 5

# Rows that hold over each transport in each dialect of tasks; their tests have these names among their parameters.
TASKS = [*(f"J{number}" for number in range(66, 88)), "S16", "E15", *(f"E{number}" for number in range(33, 38))]
WAYS = {f"{over}-{revision}" for over in ("stdio", "http") for revision in ("2025-11-25", "2026-07-28")}

Row = dict[str, Any]
Covers = dict[str, list[str]]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    table = Path(__file__).with_name("requirements.toml")
    found: list[Row] = tomllib.loads(table.read_text(encoding="utf-8"))["row"]
    return found


def function(node: str) -> str:
    """The node id without parameters: the form in which the table names a test."""
    return node.split("[", 1)[0]


def test_rows_are_well_formed(rows: list[Row]) -> None:
    repeated = [id for id, count in Counter(row["id"] for row in rows).items() if count > 1]
    assert repeated == []
    for row in rows:
        assert row["text"].strip(), row
        assert "\n" not in row["text"], row
        assert row["source"].strip(), row
        assert row.keys() <= {"id", "text", "source", "tests", "owner", "reason"}, row
        # Work that is left to a later part of the project says why.
        assert row.get("owner") in (None, "later"), row
        assert ("owner" in row) == bool(row.get("reason", "").strip()), row


def test_every_row_names_a_test(rows: list[Row]) -> None:
    missing = [row["id"] for row in rows if not row["tests"] and row.get("owner") != "later"]
    assert INCOMPLETE or missing == []


def test_every_named_test_exists_and_carries_the_id(rows: list[Row], covers_map: Covers) -> None:
    carried = {(id, function(node)) for node, ids in covers_map.items() for id in ids}
    named = {(row["id"], test) for row in rows for test in row["tests"]}
    assert named - carried == set(), "run scripts/requirements.py: the table names tests that do not carry the id"


def test_every_mark_is_in_the_table(rows: list[Row], covers_map: Covers) -> None:
    carried = {(id, function(node)) for node, ids in covers_map.items() for id in ids}
    known = {row["id"] for row in rows}
    assert {id for id, _ in carried} - known == set(), "marks that name no requirement"
    named = {(row["id"], test) for row in rows for test in row["tests"]}
    assert carried - named == set(), "run scripts/requirements.py: the table lacks tests that carry the id"


@pytest.mark.parametrize("id", TASKS)
def test_rows_about_tasks_are_proven_over_each_transport_in_each_dialect(id: str, covers_map: Covers) -> None:
    parameters = [node.partition("[")[2] for node, ids in covers_map.items() if id in ids]
    assert {way for way in WAYS if any(way in each for each in parameters)} == WAYS


def test_no_test_claims_too_much(covers_map: Covers) -> None:
    greedy = {node: ids for node, ids in covers_map.items() if len(ids) > MOST_IDS_PER_TEST}
    assert greedy == {}
