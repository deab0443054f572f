"""The output of a started server in the inspector: bounded, and sent to the pages in batches."""

from __future__ import annotations

from pathlib import Path

from tests.inspector.page_client import Page

from toolwire import Server
from toolwire.inspector import Inspector, InspectorApp
from toolwire.inspector.events import Events
from toolwire.inspector.server_output import MAX_LINE, MAX_LINES, ServerOutput

FILE = "import sys\nfrom toolwire import Server\nserver = Server('s')\nsys.stderr.write('loaded\\n')\n"


async def test_output_keeps_the_last_lines_and_cuts_long_ones() -> None:
    shown: list[str] = []
    output = ServerOutput(Events(), shown.append)
    for number in range(MAX_LINES + 5):
        output.add(f"{number} {'x' * 2 * MAX_LINE}")
    lines = output.list_lines()
    assert len(lines) == MAX_LINES
    assert (lines[0]["number"], lines[-1]["number"]) == (6, MAX_LINES + 5)
    assert {len(line["text"]) for line in lines} == {MAX_LINE}
    assert len(shown) == MAX_LINES + 5


async def test_pages_get_the_output_of_a_server_that_was_started(tmp_path: Path) -> None:
    file = tmp_path / "s.py"
    file.write_text(FILE, encoding="utf-8")
    lines: list[str] = []
    inspector = Inspector(str(file), label="s.py", command=["python", "s.py"], on_stderr=lines.append)
    app = InspectorApp(inspector)
    page = Page(app)
    await inspector.connect()
    try:
        event = await page.event("output")
        assert [line["text"] for line in event["lines"]] == lines == ["loaded"]
        assert inspector.snapshot()["output"] == event["lines"]
    finally:
        await inspector.close()
        app.inspector.events.end()


def test_server_that_was_not_started_has_no_output_panel() -> None:
    assert Inspector(Server("s"), label="s").snapshot()["output"] is None
