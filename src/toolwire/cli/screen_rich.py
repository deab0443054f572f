"""The screen with `rich`; the only module that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from toolwire.cli.screen import SHOWN_ON_TERMINAL, Screen, as_json
from toolwire.printable import printable


class RichScreen(Screen):
    """Tables that wrap and a little colour. Cells are `Text`, so that no markup in them is read."""

    def __init__(self, stream: TextIO, *, forced: bool = False) -> None:
        super().__init__(stream)
        self._console = Console(
            file=stream, force_terminal=forced or None, highlight=False, markup=False, emoji=False, soft_wrap=False
        )

    def heading(self, text: str) -> None:
        self._console.print(Text(printable(text), style="bold"))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        for position, header in enumerate(headers):
            table.add_column(Text(printable(header)), overflow="fold", style="cyan" if position == 0 else None)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._console.print(table)

    def json(self, value: Any) -> None:
        text = as_json(value)
        if len(text) > SHOWN_ON_TERMINAL:
            super().json(value)
        else:
            # Only coloured: reading and writing it again would undo the escapes.
            self._console.print(JSONHighlighter()(Text(text)))
