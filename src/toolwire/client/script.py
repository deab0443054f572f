"""A Python file as a server: the words that start it, whether it starts its server by itself or only defines one."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path


def python_command(path: str, cwd: str | os.PathLike[str] | None = None) -> list[str]:
    """`python FILE`; `toolwire run FILE` for one of ours that Python alone would not serve."""
    if _needs_us(Path(cwd or ".", path)):
        return [sys.executable, "-m", "toolwire", "run", path]
    return [sys.executable, path]


def _needs_us(file: Path) -> bool:
    """Whether a file imports this library, and either starts nothing or imports from its package by a dot.

    A file starts something if it calls a `run` or asks whether it is the main program.
    """
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False  # Starting it tells what is wrong.
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for each in statements if not isinstance(each, definitions) for node in ast.walk(each)]
    if not any(_imports_us(node) for node in nodes):
        return False
    return any(_is_relative(node) for node in nodes) or not any(_starts(node) for node in nodes)


def _imports_us(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "toolwire"
    return isinstance(node, ast.Import) and any(each.name.partition(".")[0] == "toolwire" for each in node.names)


def _is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def _starts(node: ast.AST) -> bool:
    is_main = isinstance(node, ast.Name) and node.id == "__name__"
    return is_main or (isinstance(node, ast.Attribute) and node.attr in ("run", "start"))
