"""The command that serves a Python file, whether the file starts its server or only defines one."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# How many files of a program are read to find its server. A larger program is started as it is.
_MOST_FILES: Final = 100


def python_command(path: str, cwd: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the command that serves a file: `python FILE`, or `toolwire run FILE` where Python alone would not serve
    it.

    `FILE:OBJECT` names a server in the file, which needs `toolwire run`.
    """
    if path.endswith(".py") and not _needs_us(Path(cwd or ".", path)):
        return [sys.executable, path]
    return [sys.executable, "-m", "toolwire", "run", path]


def _needs_us(file: Path) -> bool:
    """Say whether a file uses this library, and either starts nothing or imports from its package by a dot.

    A file uses the library if it imports it, or imports another of the program's own files that does. A file starts
    something if it calls a `run`, a `main` or the like, or asks whether it is the main program.
    """
    nodes = _nodes(file)
    if any(_is_relative(node) for node in nodes):
        return _uses_us(file)
    return not any(_starts(node) for node in nodes) and _uses_us(file)


def _nodes(file: Path) -> list[ast.AST]:
    """Return what a file does when it is imported; nothing for one that cannot be read, since starting it tells why."""
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for each in statements if not isinstance(each, definitions) for node in ast.walk(each)]


def _uses_us(file: Path) -> bool:
    main = file.resolve()
    seen = {main}
    waiting = [main]
    while waiting:
        one = waiting.pop()
        for module, level in _imports(_nodes(one)):
            if level == 0 and module.partition(".")[0] == "toolwire":
                return True
            # A relative import starts at the folder of the file, any other at that of the program.
            start = one.parents[level - 1] if 0 < level <= len(one.parents) else main.parent
            found = {each.resolve() for each in _files_of(start, module)} - seen
            seen |= found
            waiting += found
        if len(seen) > _MOST_FILES:
            return False
    return False


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Return the modules that are imported, each with the number of its dots."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((each.name, 0) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level
            # An imported name may be a module as well.
            yield from ((f"{module}.{each.name}".lstrip("."), node.level) for each in node.names)


def _files_of(folder: Path, module: str) -> Iterator[Path]:
    """Return the files of a module and of the packages above it, starting at a folder."""
    for step in module.split("."):
        if folder.joinpath(f"{step}.py").is_file():
            yield folder / f"{step}.py"
        folder = folder / step
        if folder.joinpath("__init__.py").is_file():
            yield folder / "__init__.py"


def _is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def _starts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("main", "run", "serve", "start")
    is_main = isinstance(node, ast.Name) and node.id == "__name__"
    return is_main or (isinstance(node, ast.Attribute) and node.attr in ("run", "start"))
