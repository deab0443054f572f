"""The table of requirements and the tests that prove them, checked both ways.

A test proves a row by its mark. That the marked tests also ran and passed is checked at the end of a full run, by
conftest.py.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.requirements import Covers, Row, find_missing, find_unknown, find_unproven, group_by_id, read_rows

# A run of only some tests first collects all the others, on a machine that may be busy.
pytestmark = pytest.mark.timeout(300)

MOST_IDS_PER_TEST = 5

# Rows that hold over each transport in each dialect of tasks; their tests have these names among their parameters.
TASKS = [*(f"J{number}" for number in range(66, 88)), "S16", "E15", *(f"E{number}" for number in range(33, 38))]
WAYS = {f"{over}-{revision}" for over in ("stdio", "http") for revision in ("2025-11-25", "2026-07-28")}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read_rows()


def test_rows_are_well_formed(rows: list[Row]) -> None:
    repeated = [id for id, count in Counter(row["id"] for row in rows).items() if count > 1]
    assert repeated == []
    for row in rows:
        assert row["text"].strip(), row
        assert "\n" not in row["text"], row
        assert row["source"].strip(), row
        assert row.keys() <= {"id", "text", "source", "later"}, row
        # Work that is left to a later part of the project says why.
        assert row.get("later", "why").strip(), row


def test_every_row_has_a_test(rows: list[Row], covers_map: Covers) -> None:
    assert [row["id"] for row in find_missing(rows, covers_map)] == []


def test_every_mark_names_a_row(rows: list[Row], covers_map: Covers) -> None:
    assert find_unknown(rows, covers_map) == {}


def test_row_that_loses_its_only_test_is_missing(rows: list[Row], covers_map: Covers) -> None:
    tests = group_by_id(covers_map)
    row = next(row for row in rows if len(tests.get(row["id"], ())) == 1)
    rest = {node: ids for node, ids in covers_map.items() if node.split("[", 1)[0] != tests[row["id"]][0]}
    assert row in find_missing(rows, rest)


def test_row_for_later_needs_no_test_and_a_mark_without_a_row_is_unknown() -> None:
    rows: list[Row] = [{"id": "A-1", "later": "not built yet"}, {"id": "A-2"}]
    covers = {"tests/test_a.py::test_it[1]": ["A-2", "A-3"]}
    assert find_missing(rows, covers) == []
    assert find_unknown(rows, covers) == {"A-3": ["tests/test_a.py::test_it"]}


@pytest.mark.parametrize(
    ("seen", "strict", "complaint"),
    [
        ({"passed"}, True, None),
        ({"passed", "skipped"}, True, None),
        ({"passed", "failed"}, False, "A-1: test_it failed"),
        ({"skipped"}, True, "A-1: test_it was skipped"),
        ({"skipped"}, False, None),
        (set(), False, "A-1: test_it did not run"),
    ],
)
def test_full_run_names_each_row_without_proof(seen: set[str], strict: bool, complaint: str | None) -> None:
    rows: list[Row] = [{"id": "A-1"}, {"id": "A-2", "later": "not built yet"}]
    found = list(find_unproven(rows, {"test_it[1]": ["A-1"]}, {"test_it": seen}, strict=strict))
    assert found == ([] if complaint is None else [complaint])


def test_full_run_names_a_row_without_a_marked_test() -> None:
    assert list(find_unproven([{"id": "A-1"}], {}, {}, strict=False)) == ["A-1: no test has the mark"]


@pytest.mark.parametrize("id", TASKS)
def test_rows_about_tasks_are_proven_over_each_transport_in_each_dialect(id: str, covers_map: Covers) -> None:
    parameters = [node.partition("[")[2] for node, ids in covers_map.items() if id in ids]
    assert {way for way in WAYS if any(way in each for each in parameters)} == WAYS


def test_no_test_claims_too_much(covers_map: Covers) -> None:
    greedy = {node: ids for node, ids in covers_map.items() if len(ids) > MOST_IDS_PER_TEST}
    assert greedy == {}
