"""The lines of keys in a JSON or TOML file, whose parsers tell no positions.

The text is valid already, so that a few kinds of tokens are enough to follow it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

#: The way to a value: names of members, and indexes of items.
KeyPath: TypeAlias = tuple[str | int, ...]

_JSON: Final = re.compile(r'(?P<string>"(?:\\.|[^"\\])*")|(?P<mark>[\[\]{},:])|(?P<word>[^\s\[\]{},:"]+)')
_TOML: Final = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<mark>[\[\]{}=,.\n])
    |(?P<word>[^\s\[\]{}=,.\#"']+)""",
    re.DOTALL | re.VERBOSE,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def lines_of(text: str, *, is_toml: bool) -> dict[KeyPath, int]:
    """Return the line of each key and of each item. Return nothing for a text that is nested too deeply."""
    tokens = list(_tokens(text, _TOML if is_toml else _JSON))
    try:
        return _TomlLines(tokens).found if is_toml else _JsonLines(tokens).found
    except RecursionError:
        return {}


def _tokens(text: str, pattern: re.Pattern[str]) -> Iterator[_Token]:
    line, before = 1, 0
    for found in pattern.finditer(text):
        line += text.count("\n", before, found.start())
        before = found.start()
        if found.lastgroup != "comment":
            yield _Token(found.lastgroup or "", found[0], line)


class _Lines:
    """Follows tokens, and notes where each key stands."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self.found: dict[KeyPath, int] = {}

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _sees(self, *texts: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next].text in texts

    def _note(self, path: KeyPath) -> None:
        self.found.setdefault(path, self._tokens[self._next].line)

    def _items(self, path: KeyPath, value: Callable[[KeyPath], None], between: tuple[str, ...]) -> None:
        """Follow an array behind its bracket."""
        index = 0
        while not self._sees("]"):
            if self._sees(*between):
                self._take()
                continue
            self._note((*path, index))
            value((*path, index))
            index += 1
        self._take()


class _JsonLines(_Lines):
    def __init__(self, tokens: list[_Token]) -> None:
        super().__init__(tokens)
        self._value(())

    def _value(self, path: KeyPath) -> None:
        first = self._take()
        if first.text == "[":
            self._items(path, self._value, (",",))
        elif first.text == "{":
            while not self._sees("}"):
                if self._sees(","):
                    self._take()
                    continue
                member = (*path, json.loads(self._tokens[self._next].text))
                self._note(member)
                self._next += 2  # The name and the colon.
                self._value(member)
            self._take()


class _TomlLines(_Lines):
    def __init__(self, tokens: list[_Token]) -> None:
        super().__init__(tokens)
        # How many tables an array of tables has so far.
        self._tables: dict[KeyPath, int] = {}
        table: KeyPath = ()
        while self._next < len(tokens):
            if self._sees("\n"):
                self._take()
            elif self._sees("["):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        line = self._take().line
        is_array = self._sees("[")
        if is_array:
            self._take()
        table = self._key((), line)
        if is_array:
            count = self._tables[table] = self._tables.get(table, 0) + 1
            table = (*table, count - 1)
            self.found.setdefault(table, line)
            self._take()
        self._take()
        return table

    def _pair(self, table: KeyPath) -> None:
        key = self._key(table, self._tokens[self._next].line)
        self._take()
        self._value(key)

    def _key(self, table: KeyPath, line: int) -> KeyPath:
        path = table
        while True:
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
            name = self._take()
            path = (*path, tomllib.loads(f"x = {name.text}")["x"] if name.kind == "string" else name.text)
            self.found.setdefault(path, line)
            if not self._sees("."):
                return path
            self._take()

    def _value(self, path: KeyPath) -> None:
        if self._sees("["):
            self._take()
            self._items(path, self._value, (",", "\n"))
        elif self._sees("{"):
            self._take()
            while not self._sees("}"):
                if self._sees(",", "\n"):
                    self._take()
                    continue
                self._pair(path)
            self._take()
        else:
            while self._next < len(self._tokens) and not self._sees("\n", ",", "]", "}"):
                self._take()
