"""Literals and docstrings in written code.

No text of a description can end the one that it stands in.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Final

WIDTH: Final = 110
_LONGEST: Final = 4_000
# Lines that a reader of docstrings takes for the beginning of a section or a field, or for a line below a heading.
_SECTION: Final = re.compile(
    r"\s*(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters)\s*:?\s*"
)
_FIELD: Final = re.compile(r"^\s*:+")
_RULER: Final = re.compile(r"\s*[-=~_*]{3,}\s*")


def quoted(text: str) -> str:
    """Return a text as a literal on one line."""
    written = text.replace("\\", "\\\\") if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    if '"' in written and "'" not in written:
        return f"'{written}'"
    return '"' + written.replace('"', '\\"') + '"'


def one_line(text: str) -> str:
    """Return a text on one line, without characters that cannot be seen."""
    return "".join(each for each in " ".join(text[:_LONGEST].split()) if each.isprintable())


def docstring(text: str, arguments: Iterable[tuple[str, str]], indent: str) -> list[str]:
    """Return the lines of a docstring with the descriptions of arguments."""
    paragraphs = [one_line(_harmless(each)) for each in re.split(r"\n\s*\n", text[:_LONGEST])]
    lines: list[str] = []
    for paragraph in filter(None, paragraphs):
        lines += ["", *_wrapped(paragraph, indent)] if lines else _wrapped(paragraph, indent)
    entries = [line for name, said in arguments for line in _entry(name, one_line(said), indent)]
    if entries:
        lines += ["", f"{indent}Args:", *entries]
    lines = [_escaped(line) for line in lines] or [f"{indent}Call the API."]
    first = lines[0].lstrip()
    if len(lines) == 1:
        return [f'{indent}"""{_closed(first)}"""']
    return [f'{indent}"""{_opened(first)}', *lines[1:], f'{indent}"""']


def _harmless(paragraph: str) -> str:
    """Return a paragraph without lines that a reader of docstrings would take for a section."""
    kept = [
        _FIELD.sub("", line)
        for line in paragraph.splitlines()
        if not _SECTION.fullmatch(line) and not _RULER.fullmatch(line)
    ]
    return "\n".join(kept)


def _wrapped(text: str, indent: str, further: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _entry(name: str, text: str, indent: str) -> list[str]:
    inner = f"{indent}    "
    return _wrapped(f"{name}: {text}", inner, "    ") if text else []


def _escaped(line: str) -> str:
    """Escape a line, so that no quote in it ends the docstring."""
    return line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _opened(text: str) -> str:
    """Escape a quote at the beginning of a docstring."""
    return f"\\{text}" if text.startswith('"') else text


def _closed(text: str) -> str:
    """Return the only line of a docstring, which must not end with a quote.

    All backslashes are doubled, so an odd number of them before a quote means that it is escaped.
    """
    text = _opened(text)
    before = text[:-1]
    backslashes = len(before) - len(before.rstrip("\\"))
    return f'{before}\\"' if text.endswith('"') and backslashes % 2 == 0 else text
