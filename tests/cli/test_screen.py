"""What is shown, plainly and with rich, and that nothing of it steers the terminal."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.cli.screen import RichScreen, Screen, as_json
from toolwire.printable import printable, printable_lines

STEERING = "\x1b[2J\x07\x9b31m\u202e\u2066\x08\r"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Screen, RichScreen])
def test_whatever_a_server_wrote_is_harmless(kind: type[Screen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    screen = kind(out)
    screen.line(f"line {STEERING}")
    screen.heading(f"heading {STEERING}")
    screen.text(f"text {STEERING}\nsecond [bold]line[/bold] :smile:")
    screen.table([f"a{STEERING}", "b"], [[f"cell {STEERING}", "[red]x[/red]"], ["long " * 100, "y"]])
    screen.json({"value": STEERING, f"key{STEERING}": 1})
    said = out.getvalue()
    assert not set("\x07\x9b\u202e\u2066\x08\r") & set(said)
    assert "\x1b[2J" not in said
    assert "[bold]line[/bold] :smile:" in said
    assert "[red]x[/red]" in said


@given(st.text())
def test_text_becomes_printable_and_keeps_its_lines(text: str) -> None:
    assert printable(text).replace("\t", "").isprintable()
    lines = printable_lines(text)
    assert all(line.replace("\t", "").isprintable() for line in lines.split("\n"))
    assert lines.count("\n") == text.count("\n")


@cases("invisible", ["\u00ad", "\u034f", "\u115f", "\u17b4", "\u3164", "\ufe0f", "\uffa0", "\U000e0100"])
def test_characters_without_a_glyph_become_escapes(invisible: str) -> None:
    escape = invisible.encode("unicode_escape").decode()
    assert printable(f"https://a{invisible}.example") == f"https://a{escape}.example"
    assert invisible not in printable_lines(f"a\n{invisible}")
    text = as_json({"url": f"a{invisible}"})
    assert invisible not in text
    assert json.loads(text) == {"url": f"a{invisible}"}


@example({"\x7f": "\x7f\x9b"})
@given(
    st.recursive(
        st.none() | st.text() | st.integers(-5, 5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_is_what_it_was_and_harmless(value: object) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))


def test_a_terminal_that_knows_few_characters() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    Screen(out).line("é → \ud800")
    assert out.buffer.getvalue() == b"\\xe9 \\u2192 \\ud800\n"  # type: ignore[attr-defined]


def test_a_table_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    Screen(out).table(["name", "description"], [["short", "word " * 30], ["n" * 60, "d"]])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[1].endswith("…")
