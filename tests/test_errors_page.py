"""docs/errors.md has every error and log line of the source, and nothing else."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def errors_page() -> ModuleType:
    found = importlib.util.spec_from_file_location("errors_page", ROOT / "scripts" / "errors_page.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_error_and_log_line_is_explained(errors_page: ModuleType) -> None:
    problems = errors_page.problems(errors_page.PAGE.read_text(encoding="utf-8"))
    assert not problems, (
        "docs/errors.md and the texts of the source differ:\n  "
        + "\n  ".join(problems[:50])
        + "\nRun `python scripts/errors_page.py`: it writes new texts into the page and keeps the explanations of "
        "reworded ones. Then replace each `?` in the page."
    )


def texts(errors_page: ModuleType, **sources: str) -> list[tuple[str, str]]:
    trees = {name.replace("__", "."): ast.parse(source) for name, source in sources.items()}
    exceptions = errors_page.Exceptions(trees)
    modules = [errors_page.Module(name, tree, exceptions) for name, tree in trees.items()]
    return [(each.kind, each.text) for module in modules for each in module.messages()]


ERRORS = """
class ToolwireError(Exception): ...
class ProtocolError(ToolwireError):
    def __init__(self, code, message): ...
class Missing(ToolwireError):
    def __init__(self, what): super().__init__(f"{what} is missing")
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise ToolwireError('a text')", [("ToolwireError", "a text")]),
        (
            "raise ToolwireError(f'{name!r} and {thing.part} and {f(x)}')",
            [("ToolwireError", "{name} and {part} and {}")],
        ),
        ("def f(): return ProtocolError(1, 'no ' + word)", [("ProtocolError", "no {word}")]),
        ("raise ProtocolError(1, 'one' if x else 'two')", [("ProtocolError", "one"), ("ProtocolError", "two")]),
        ("def f():\n    text = f'from {here}'\n    raise ToolwireError(text)", [("ToolwireError", "from {here}")]),
        ("def g(): return 'told by g'\nraise ToolwireError(g())", [("ToolwireError", "told by g")]),
        ("raise ToolwireError(str(error))", []),
        ("raise ValueError('not ours')", []),
        ("raise Missing('x')", []),
        ("log.warning('%s took %.1f s', name, taken)", [("log warning", "{name} took {taken} s")]),
        ("_logger.exception('failed')", [("log error", "failed")]),
        ("warnings.warn('old', DeprecationWarning)", [("DeprecationWarning", "old")]),
    ],
)
def test_texts_are_found_in_the_source(errors_page: ModuleType, source: str, found: list[tuple[str, str]]) -> None:
    used = f"from toolwire.errors import Missing, ProtocolError, ToolwireError\n{source}"
    seen = texts(errors_page, toolwire__errors=ERRORS, toolwire__use=used)
    assert seen == [("Missing", "{what} is missing"), *found]


def test_a_reworded_text_keeps_its_explanation_and_a_new_one_has_none(errors_page: ModuleType) -> None:
    def message(text: str) -> object:
        return errors_page.Message("Servers", "ServerError", text)

    before = [message("a port is 0 to {last}, not {port}"), message("the | `code` is bad")]
    known = {each.key: errors_page.Explanation(f"when {at}", "do") for at, each in enumerate(before)}  # type: ignore[attr-defined]
    page = errors_page.write_page(before, known)
    assert errors_page.read_page(page) == known
    after = [message("a port is from 0 to {most}, not {number}"), before[1], message("something else entirely")]
    carried = errors_page.carried_over(after, errors_page.read_page(page))
    rows = [
        line.split(" | ")[-2:] for line in errors_page.write_page(after, carried).splitlines() if "ServerError" in line
    ]
    assert rows == [["when 0", "do |"], ["when 1", "do |"], ["?", "? |"]]
