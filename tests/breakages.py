"""Breaks the package in one place on purpose, to see that the tests of a requirement notice.

tests/breakages.toml has a breakage for each acceptance row. A breakage names a function and not a line, and its text is
compared token by token, so it survives moves, comments and formatting. scripts/mutation_rows.py applies the breakages
and runs the tests; tests/test_breakages.py checks that each of them still applies.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.requirements import collect_covers, group_by_id, read_rows

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "breakages.toml"

ACCEPTANCE_ROW = re.compile(r"[JSER]\d+|FLT-\d+|GW-[\d.]+|OA-[\d.]+|APP-[\w.]+")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Breakage(NamedTuple):
    """One entry of tests/breakages.toml, or of a row that cannot be broken: its reason."""

    row: str
    where: str = ""
    replace: str = ""
    by: str = ""
    reason: str = ""


class Definition(NamedTuple):
    """The lines of a file, from 1, that define a function, a class, a constant or the whole module."""

    file: Path
    first: int
    last: int


class DoesNotApply(Exception):
    """A breakage that no longer fits the source, with what to edit."""


def breakages() -> list[Breakage]:
    """Return every breakage of the table, in its order."""
    return [Breakage(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["breakage"]]


def proofs_of_rows() -> dict[str, list[str]]:
    """Return the tests of each acceptance row, by their marks."""
    found = group_by_id(collect_covers())
    return {id: found.get(id, []) for id in acceptance_rows()}


def acceptance_rows() -> list[str]:
    """Return the ids of the acceptance rows of tests/requirements.toml."""
    return [row["id"] for row in read_rows() if ACCEPTANCE_ROW.fullmatch(row["id"])]


def broken(breakage: Breakage, source: Path = ROOT / "src") -> tuple[Path, str]:
    """Return the file that a breakage changes and the text of that file with the change."""
    file, first, last = _only_place(breakage, source)
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    begin = sum(map(len, lines[: first[0] - 1])) + first[1]
    end = sum(map(len, lines[: last[0] - 1])) + last[1]
    opening = lines[first[0] - 1]
    margin = opening[: len(opening) - len(opening.lstrip())]
    replacement = textwrap.indent(textwrap.dedent(breakage.by).strip("\n"), margin).removeprefix(margin)
    return file, text[:begin] + replacement + text[end:]


Position = tuple[int, int]


def _only_place(breakage: Breakage, source: Path) -> tuple[Path, Position, Position]:
    """Return where the text to replace begins and ends; it stands exactly once in what `where` names."""
    definitions = _definitions(source)
    alike = _names_by_last_word(source).get(breakage.where.rpartition(".")[2], ())
    names = [name for name in alike if f".{name}".endswith(f".{breakage.where}")]
    if len(names) != 1:
        found = " and ".join(sorted(names)) if names else "nothing: was it renamed?"
        raise DoesNotApply(_edit(breakage, "where", f"{breakage.where!r} has to end one dotted name, it ends {found}"))
    try:
        wanted = [token.string for token in _tokens(textwrap.dedent(breakage.replace))]
    except tokenize.TokenError:
        raise DoesNotApply(_edit(breakage, "replace", "what it opens it has to close, and the reverse")) from None
    places = {
        (file, begin, end)
        for file, first, last in definitions[names[0]]
        for begin, end in _places(wanted, file, first, last)
    }
    if len(places) != 1:
        found = f"{breakage.replace!r} stands {len(places)} times in {names[0]}, and has to stand there once"
        raise DoesNotApply(_edit(breakage, "replace", found))
    return places.pop()


def _edit(breakage: Breakage, key: str, why: str) -> str:
    return f"edit `{key}` of the row {breakage.row} in tests/breakages.toml: {why}"


def _places(wanted: list[str], file: Path, first: int, last: int) -> Iterator[tuple[Position, Position]]:
    """Find a run of tokens in some lines of a file."""
    tokens, above = _tokens_of_lines(file, first, last), first - 2
    texts = [token.string for token in tokens]
    for start in range(len(tokens) - len(wanted) + 1 if wanted else 0):
        if texts[start : start + len(wanted)] == wanted:
            begin, end = tokens[start].start, tokens[start + len(wanted) - 1].end
            yield (begin[0] + above, begin[1]), (end[0] + above, end[1])


@cache
def _tokens_of_lines(file: Path, first: int, last: int) -> list[tokenize.TokenInfo]:
    """Return the tokens of some lines of a file; their first line has the number 2."""
    # Under a line of its own, which makes the indentation of a method right without changing it.
    text = "".join(["if True:\n", *_lines(file)[first - 1 : last]])
    return [token for token in _tokens(text) if token.start[0] > 1]


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Read Python, whole or in part, without its layout."""
    return (token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in LAYOUT)


@cache
def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines(keepends=True)


@cache
def _definitions(source: Path) -> dict[str, list[Definition]]:
    """Index modules, classes, functions and constants by their dotted names; an overloaded function has several."""
    found: dict[str, list[Definition]] = {}
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[module] = [Definition(file, 1, len(_lines(file)))]
        for name, node in _named(ast.parse("".join(_lines(file))), module):
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            found.setdefault(name, []).append(Definition(file, first, node.end_lineno or first))
    return found


@cache
def _names_by_last_word(source: Path) -> dict[str, list[str]]:
    """Index the dotted names by what follows their last dot."""
    found: dict[str, list[str]] = {}
    for name in _definitions(source):
        found.setdefault(name.rpartition(".")[2], []).append(name)
    return found


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Find the named statements in a node, at any depth; constants are those of the module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}.{child.name}", child
            yield from _named(child, f"{prefix}.{child.name}")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            if isinstance(node, ast.Module):
                yield from ((f"{prefix}.{target.id}", child) for target in targets if isinstance(target, ast.Name))
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _named(child, prefix)
