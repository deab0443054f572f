"""Every breakage belongs to an acceptance row and still fits the source. `make mutation-rows` runs them."""

from __future__ import annotations

import ast

import pytest
from tests.breakages import Breakage, DoesNotApply, acceptance_rows, breakages, broken


def test_every_breakage_belongs_to_an_acceptance_row() -> None:
    rows = {breakage.row for breakage in breakages()}
    assert rows <= set(acceptance_rows()), "tests/breakages.toml has an entry for a row that the table does not have"


def test_every_breakage_still_applies() -> None:
    complaints = []
    for breakage in breakages():
        if breakage.reason:
            continue
        try:
            file, text = broken(breakage)
            if text == file.read_text(encoding="utf-8"):
                complaints.append(f"edit `by` of the row {breakage.row} in tests/breakages.toml: it changes nothing")
            ast.parse(text)
        except DoesNotApply as problem:
            complaints.append(str(problem))
        except SyntaxError as problem:
            complaints.append(f"edit `by` of the row {breakage.row} in tests/breakages.toml: {problem}")
    assert complaints == [], "\n".join(["the source moved on; bring tests/breakages.toml up to date:", *complaints])


@pytest.mark.parametrize(
    ("where", "replace", "says"),
    [
        ("no_such_function", "pass", "edit `where` of the row J1"),
        ("__init__", "pass", "edit `where` of the row J1"),  # many classes have one
        ("tests_are_not_here.broken", "pass", "edit `where` of the row J1"),
        ("toolwire._version", "no_such_text", "edit `replace` of the row J1"),
        ("toolwire._version", "", "edit `replace` of the row J1"),
    ],
)
def test_a_breakage_that_does_not_apply_says_what_to_edit(where: str, replace: str, says: str) -> None:
    with pytest.raises(DoesNotApply, match=says):
        broken(Breakage("J1", where, replace, "pass"))
