"""Tables: rows of results, sorted, filtered and in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.apps.views.ready import ReadyView, data_of, with_text
from toolwire.printable import printable
from toolwire.protocol.types import CallToolResult

#: Characters of a table in the text of a result, and of one cell there. The view has all of it.
MAX_TEXT: Final = 20_000
MAX_CELL: Final = 2_000
# The part of the text that names of columns may take, and the characters of one name.
_MAX_HEADER: Final = MAX_TEXT // 4
_MAX_TITLE: Final = 200
# `printable` writes one character with up to ten.
_WIDEST: Final = 12

Format: TypeAlias = Literal["text", "number", "currency", "percent", "date", "datetime", "link"]


class Column(Struct, frozen=True, omit_defaults=True):
    """A column of a table: `Column("total", "Total", format="currency", currency="EUR")`."""

    name: str
    """The member of a row that it shows."""
    title: str | None = None
    """The text of its header; by default made of the name."""
    format: Format | None = None
    """How values are written, in the language of the user; by default as the first 200 values suggest."""
    currency: str | None = None
    """The currency of `format="currency"`, such as "EUR"."""


class TableView(ReadyView):
    """A table. `table()` makes it."""

    kind: ClassVar[str] = "table"
    scripts: ClassVar[tuple[str, ...]] = ("table", "table_view")
    styles: ClassVar[tuple[str, ...]] = ("table",)
    reads_structured: ClassVar[bool] = True

    def __init__(self, columns: Sequence[Column], rows: str | None, title: str, description: str, empty: str) -> None:
        super().__init__(title, description, empty)
        self.columns: tuple[Column, ...] = tuple(columns)
        self.rows: str | None = rows

    def settings(self, tools: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        return {"columns": self.columns, "rows": self.rows}

    def present(self, result: CallToolResult) -> CallToolResult:
        rows = rows_of(data_of(result), self.rows)
        return result if rows is None else with_text(result, self._text(rows))

    def _text(self, rows: list[Any]) -> str:
        if not rows:
            return self.empty
        records = [row if isinstance(row, Mapping) else {"value": row} for row in rows]
        names = [each.name for each in self.columns] or list(dict.fromkeys(name for row in records for name in row))
        titles = {each.name: each.title for each in self.columns if each.title}
        heads = [titles.get(name, name) for name in names]
        shown = names[: _count_columns(heads)]
        return markdown_table(heads, [[row.get(name) for name in shown] for row in records])


def table(
    columns: Sequence[Column | str] = (),
    *,
    rows: str | None = None,
    title: str = "",
    description: str = "",
    empty: str = "There are no rows.",
) -> TableView:
    """Make a view of the rows that a tool returns.

    The tool returns a list of records, or a record that has one.

    `columns` says which members of a row are shown, in which order and form; without it, all of them are. `rows` names
    the member of the result that has the rows; by default the first one that is a list. The text of the result is the
    table in Markdown, with as many rows as 20,000 characters have room for; it says how many are left out.
    """
    made = [Column(each) if isinstance(each, str) else each for each in columns]
    return TableView(made, rows, title, description, empty)


def rows_of(data: Any, member: str | None) -> list[Any] | None:
    """Return the rows in the data of a result; None where there are none."""
    if isinstance(data, list):
        return data
    if not isinstance(data, Mapping):
        return None
    found = data.get(member) if member else next((each for each in data.values() if isinstance(each, list)), None)
    return found if isinstance(found, list) else None


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table of at most `MAX_TEXT` characters, and notes on omissions."""
    columns = _count_columns(titles)
    lines = [_line([_cell(each, _MAX_TITLE) for each in titles[:columns]]), _line(["---"] * columns)]
    room = MAX_TEXT - sum(len(line) + 1 for line in lines)
    shown = 0
    for row in rows:
        line = _line([_cell(value) for value in row[:columns]])
        if len(line) > room and not shown:
            line = _line([_cell(value, max((room // columns - 3) // _WIDEST, 1)) for value in row[:columns]])
        room -= len(line) + 1
        if room < 0 and shown:
            break
        lines.append(line)
        shown += 1
    if shown < len(rows):
        lines.append(
            f"\n[{len(rows) - shown:,} of {len(rows):,} rows are left out of this text. "
            "The structured content of the result has all of them.]"
        )
    if columns < len(titles):
        lines.append(
            f"\n[{len(titles) - columns:,} of {len(titles):,} columns are left out of this text. "
            "The structured content of the result has all of them.]"
        )
    return "\n".join(lines)


def _count_columns(titles: Sequence[str]) -> int:
    """Return how many columns have room in the header of a table."""
    used = 0
    for count, title in enumerate(titles):
        used += len(_one_line(_cell(title, _MAX_TITLE))) + len(" |  | ---")
        if used > _MAX_HEADER:
            return max(count, 1)
    return len(titles)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_one_line(each) for each in cells)} |"


def _cell(value: Any, limit: int = MAX_CELL) -> str:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _one_line(text: str) -> str:
    # A bar or a line break would move everything behind it into another cell.
    return printable(" ".join(text.replace("\\", "\\\\").replace("|", "\\|").split()))
