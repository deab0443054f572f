"""No class of the gateway has more fields than a reader can keep in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from toolwire import gateway

MOST = 20
FILES = sorted(Path(gateway.__file__).parent.rglob("*.py"))


def fields_of(body: ast.ClassDef) -> set[str]:
    """Return the attributes that a class declares, or assigns to `self`."""
    declared = {ast.unparse(each.target) for each in body.body if isinstance(each, ast.AnnAssign)}
    return declared | {
        each.attr
        for each in ast.walk(body)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }


def classes() -> Iterator[ast.ClassDef]:
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef))


def test_no_class_has_more_than_20_fields() -> None:
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for each in classes():
        own[each.name] = fields_of(each)
        bases[each.name] = [ast.unparse(base).partition("[")[0] for base in each.bases]

    def inherited(name: str) -> set[str]:
        return own.get(name, set()).union(*(inherited(base) for base in bases.get(name, ())))

    def is_table(name: str) -> bool:
        """Return whether the fields are keys of a file, or options: there is one for each."""
        return name in ("Struct", "Table") or any(map(is_table, bases.get(name, ())))

    many = {name: len(inherited(name)) for name in own if not is_table(name) and len(inherited(name)) > MOST}
    assert many == {}


def test_lines_about_one_upstream_pass_its_log() -> None:
    """`UpstreamLog` masks the credentials in use for an upstream. A line of a logger with its name would not."""
    levels = ("debug", "info", "warning", "error", "exception")
    found = [
        f"{path.name}:{call.lineno}"
        for path in FILES
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {f"log.{level}" for level in levels}
        if isinstance(text := call.args[0], ast.Constant) and str(text.value).startswith("%s: ")
    ]
    # The lines of a process were masked where they were read.
    assert [each.partition(":")[0] for each in found] == ["gateway.py"]
