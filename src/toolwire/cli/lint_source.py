"""The source of a Python server for rules of `toolwire lint`.

Nothing of it is run.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from toolwire.cli.server_source import ServerSource
from toolwire.wire.regular_files import read_regular

#: How many files of a server are read, and how many bytes of each.
MAX_FILES: Final = 100
MAX_BYTES: Final = 1024 * 1024
#: The classes of the context.
CONTEXTS: Final = frozenset({"Context", "SyncContext"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules(source: ServerSource) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the server's file and the local modules it imports, each with its tree."""
    waiting, seen = [source.path], {source.path}
    while waiting and len(seen) <= MAX_FILES:
        path = waiting.pop()
        tree = _parsed(path)
        if tree is None:
            continue
        yield path, tree
        for imported in _imported(tree, path, source.root):
            if imported not in seen:
                seen.add(imported)
                waiting.append(imported)


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(read_regular(path, MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, path: Path, root: Path) -> Iterator[Path]:
    """Yield the files below the folder of the server that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else root
            words = node.module.split(".") if node.module else []
            yield from _files(folder, words)
            for alias in node.names:
                yield from _files(folder, [*words, alias.name])


def _files(folder: Path, words: Sequence[str]) -> Iterator[Path]:
    if words:
        path = folder.joinpath(*words)
        yield from (each for each in (path.with_name(f"{path.name}.py"), path / "__init__.py") if each.is_file())


def contexts_of(function: Function, classes: Collection[str] = CONTEXTS) -> frozenset[str]:
    """Return the names of the parameters that are the context."""
    taken = function.args
    return frozenset(
        each.arg
        for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)
        if each.annotation is not None and _is_context(each.annotation, classes)
    )


def _is_context(annotation: ast.expr, classes: Collection[str]) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in classes
        case ast.Constant(value=str(text)):
            return text.rpartition(".")[2] in classes
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_context(left, classes) or _is_context(right, classes)
    return False


def dotted_name(function: ast.expr) -> str:
    """Return the dotted name of what is called; empty for anything else."""
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{dotted_name(value) or '…'}.{attribute}"
    return ""
