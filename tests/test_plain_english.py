"""Docstrings name their subject: a verb for a function, a noun for a class or a module."""

from __future__ import annotations

import ast
import re

from tests.test_layers import SOURCES

# Sentences that begin like this make a reader look for their subject.
RIDDLES = re.compile(r"(What|Whatever|Who|Whoever|Whom|Whose|Where|Whether|That|How|Of|Which)\b")
# A file without such a beginning need not be parsed.
BEGINNING = re.compile(rf"[\"']\s*{RIDDLES.pattern}")


def test_no_docstring_begins_like_a_riddle() -> None:
    found = [
        f"{name}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for name, path in SOURCES.items()
        if BEGINNING.search(source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and RIDDLES.match(text)
    ]
    assert found == []
