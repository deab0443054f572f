"""docs/architecture.md is true: its folders, their layers, its files and the functions that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from tests.test_layers import LAYERS, PACKAGE, part

PAGE = PACKAGE.parent.parent / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")]
FILES = sorted(set(re.findall(r"`([\w/]+\.py)`", TEXT)))
FOLDERS = sorted({name for row in ROWS for name in re.findall(r"`([\w/]+)/`", row.split("|")[1])})


@cache
def names_of(file: str) -> set[str]:
    """Return the functions, classes and methods of a file, methods with the name of their class in front."""
    found: set[str] = set()

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + child.name)
                look(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                found.update(prefix + target.id for target in targets if isinstance(target, ast.Name))
            else:
                look(child, prefix)

    look(ast.parse((PACKAGE / file).read_text(encoding="utf-8")), "")
    return found


def test_every_file_exists() -> None:
    files = [file for file in FILES if not file.startswith("tests/")]
    assert [file for file in files if not (PACKAGE / file).is_file()] == []


def named() -> list[tuple[str, str]]:
    """Return the pairs of a file and a name in it, from the rows of tables that have both in neighbouring cells."""
    pairs = []
    for row in ROWS:
        cells = row.split("|")
        for here, after in pairwise(cells):
            file = re.fullmatch(r"\s*`([\w/]+\.py)`\s*", here)
            if file:
                pairs += [(file[1], name) for name in re.findall(r"`([\w.]+)`", after)]
    return pairs


def test_every_name_is_in_its_file() -> None:
    assert [(file, name) for file, name in named() if name not in names_of(file)] == []


def test_every_folder_is_on_the_map() -> None:
    packages = {
        path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE
    }
    # A folder inside a folder of the map needs no row of its own.
    missing = {name for name in packages if not any(name == each or name.startswith(f"{each}/") for each in FOLDERS)}
    assert missing == set()
    assert [name for name in FOLDERS if not (PACKAGE / name).is_dir()] == []


def test_every_folder_is_in_the_layer_that_the_map_says() -> None:
    for row in (row for row in ROWS if re.match(r"\| `[\w/]+/`", row)):
        _, folders, layer, *_ = row.split("|")
        for folder in re.findall(r"`([\w/]+)/`", folders):
            assert LAYERS[part(f"toolwire.{folder.replace('/', '.')}")] == int(layer), folder


def test_the_map_is_where_contributors_look() -> None:
    contributing = (Path(PAGE.parent.parent) / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "docs/architecture.md" in contributing
