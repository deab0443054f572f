"""Tables as Markdown: every row, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser.servers.views import HOSTILE
from tests.cases import cases

from toolwire.apps import views
from toolwire.apps.views.tables import MAX_TEXT, markdown_table, rows_of, table
from toolwire.types import CallToolResult, TextContent


def text_of(view: views.TableView, data: Any) -> str:
    result = view.present(CallToolResult(content=[TextContent("json")], structured_content=data))
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@cases(
    ("data", "member", "rows"),
    [
        ([1], None, [1]),
        ([], None, []),
        ({"a": 1, "b": [2], "c": [3]}, None, [2]),
        ({"a": 1, "b": [2], "c": [3]}, "c", [3]),
        ({"a": 1}, None, None),
        ({"a": [1]}, "b", None),
        ("x", None, None),
        (None, None, None),
    ],
)
def test_the_rows_of_a_result(data: Any, member: str | None, rows: Any) -> None:
    assert rows_of(data, member) == rows


@pytest.mark.covers("APP-8A.9")
def test_columns_say_what_is_shown() -> None:
    rows = [{"a": 1, "b": "x", "c": None}, {"b": "y", "d": True}]
    assert text_of(views.table(), rows).splitlines()[0] == "| a | b | c | d |"
    columns = ["b", views.Column("a", "A number", format="number")]
    assert text_of(views.table(columns), rows) == "| b | A number |\n| --- | --- |\n| x | 1 |\n| y |  |"
    assert text_of(views.table(empty="Nothing."), []) == "Nothing."
    assert text_of(views.table(), "no rows at all") == "json"


@cases("text", HOSTILE)
def test_a_text_stays_in_its_cell(text: str) -> None:
    lines = markdown_table(["a", text], [[1, text], [text, {"b": [text]}]]).split("\n")
    assert len(lines) == 4
    for line in lines:
        # Bars of cells are those without a backslash before them.
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3


def test_table_text_is_bounded_and_counts_omitted_rows() -> None:
    rows = [{"n": number} for number in range(10_000)]
    text = text_of(views.table(), rows)
    assert len(text) < 20_500
    shown = sum(line.startswith("| ") for line in text.splitlines()) - 2
    assert 1_000 < shown < 10_000
    assert text.splitlines()[-1] == (
        f"[{10_000 - shown:,} of 10,000 rows are left out of this text. "
        "The structured content of the result has all of them.]"
    )
    # One row is always there, with cells of a bounded length.
    large = text_of(views.table(), [{"n": "x" * 1_000_000, "m": "y" * 30_000}] * 2)
    assert 4_000 < len(large) < 10_000 and large.count("…") == 4
    assert "left out" not in text_of(views.table(), rows[:500])


def test_control_characters_in_a_cell_are_escaped() -> None:
    text = text_of(views.table(), [{"a": "\x1b[2J", "\x1b]0;x": "\u202eb"}])
    assert "\\x1b[2J" in text and "\\u202eb" in text
    assert all(each.isprintable() or each == "\n" for each in text)


@cases(
    "rows",
    [
        [{f"c{at}": at for at in range(20_000)}],
        [{"k" * 60_000: 1}],
        [{f"row{at}": 1} for at in range(3_000)],
        [{f"c{at}": "\\" * 3_000 for at in range(50)}],
        [{"\x00" * 200 + str(at): "\x00" * 2_000 for at in range(50)}],
    ],
    ids=["wide", "long", "ragged", "escapes", "controls"],
)
def test_names_of_columns_count_against_the_bound_of_the_text(rows: list[Any]) -> None:
    text = table()._text(rows)
    assert len(text) <= MAX_TEXT + 300
    assert len(rows[0]) == 1 or "columns are left out of this text" in text or "…" in text
