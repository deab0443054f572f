"""Docstrings in the three common layouts (Google, NumPy, reST): the description, and that of each parameter."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from toolwire.lazy_patterns import lazy_pattern


class Docstring(Struct, frozen=True):
    """The text without its parameter section, and the text of each parameter."""

    description: str
    parameters: dict[str, str]


_GOOGLE_HEADER: Final = lazy_pattern(
    r"(?P<indent>[ ]*)(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters):[ ]*$"
)
_GOOGLE_ENTRY: Final = lazy_pattern(r"\*{0,2}(?P<name>\w+)[ ]*(?:\([^)]*\)|\[[^\]]*\])?[ ]*:(?:[ ]+|$)(?P<text>.*)$")
_NUMPY_HEADER: Final = lazy_pattern(r"(?:Parameters|Other Parameters)[ ]*$")
_NUMPY_ENTRY: Final = lazy_pattern(r"(?P<names>\*{0,2}\w+(?:[ ]*,[ ]*\*{0,2}\w+)*)[ ]*(?::.*)?$")
_UNDERLINE: Final = lazy_pattern(r"-{3,}[ ]*$")
_REST_FIELD: Final = lazy_pattern(
    r":(?P<kind>param|parameter|arg|argument|key|keyword|type)[ ]+"
    r"(?:[^:]*[ ])?\*{0,2}(?P<name>\w+)[ ]*:[ ]*(?P<text>.*)$"
)


def parse(text: str | None) -> Docstring:
    """Split a docstring; whatever is not recognised as a parameter section stays in the description."""
    if not text:
        return Docstring("", {})
    import inspect

    lines = inspect.cleandoc(text).splitlines()
    kept: list[str] = []
    parameters: dict[str, list[str]] = {}
    position = 0
    while position < len(lines):
        after = _section(lines, position, parameters)
        if after == position:
            kept.append(lines[position])
            after += 1
        position = after
    described = {name: " ".join(part for part in parts if part) for name, parts in parameters.items()}
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return Docstring(description, {name: said for name, said in described.items() if said})


def _section(lines: list[str], start: int, parameters: dict[str, list[str]]) -> int:
    """Return the line after the parameter section that starts here, or `start` when none does."""
    line = lines[start]
    if _GOOGLE_HEADER.match(line):
        return _google(lines, start, parameters)
    if _NUMPY_HEADER.match(line) and start + 1 < len(lines) and _UNDERLINE.match(lines[start + 1]):
        return _numpy(lines, start + 2, parameters)
    if field := _REST_FIELD.match(line.strip()):
        return _rest(lines, start, field, parameters)
    return start


def _google(lines: list[str], start: int, parameters: dict[str, list[str]]) -> int:
    outer = _indent(lines[start])
    entry_indent: int | None = None
    current: list[str] = []
    found: dict[str, list[str]] = {}
    position = start + 1
    while position < len(lines):
        line = lines[position]
        if line.strip():
            indent = _indent(line)
            if indent <= outer:
                break
            entry_indent = indent if entry_indent is None else entry_indent
            entry = _GOOGLE_ENTRY.match(line.strip()) if indent <= entry_indent else None
            if entry:
                current = found.setdefault(entry["name"], [])
                current.append(entry["text"].strip())
            else:
                current.append(line.strip())
        position += 1
    if not found:  # a heading by that name over something else
        return start
    parameters.update(found)
    return position


def _numpy(lines: list[str], start: int, parameters: dict[str, list[str]]) -> int:
    current: list[list[str]] = []
    position = start
    while position < len(lines):
        line = lines[position]
        if position + 1 < len(lines) and line.strip() and _UNDERLINE.match(lines[position + 1]):
            break
        if line.strip() and _indent(line) == 0:
            entry = _NUMPY_ENTRY.match(line)
            if entry is None:
                break
            names = [name.strip().lstrip("*") for name in entry["names"].split(",")]
            current = [parameters.setdefault(name, []) for name in names]
        else:
            for parts in current:
                parts.append(line.strip())
        position += 1
    return position


def _rest(lines: list[str], start: int, field: re.Match[str], parameters: dict[str, list[str]]) -> int:
    outer = _indent(lines[start])
    position = start + 1
    parts = [field["text"].strip()]
    while position < len(lines) and lines[position].strip() and _indent(lines[position]) > outer:
        parts.append(lines[position].strip())
        position += 1
    if field["kind"] != "type":
        parameters.setdefault(field["name"], []).extend(parts)
    return position


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
