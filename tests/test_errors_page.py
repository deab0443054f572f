"""Errors and log lines are found in the source, and docs/guides/errors.md has only texts that are there."""

from __future__ import annotations

import ast
import importlib.util
import re
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


def guide(errors_page: ModuleType) -> str:
    page: Path = ROOT / "docs" / errors_page.GUIDE
    return page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_guide_has_sixty_texts_that_are_in_the_source(errors_page: ModuleType) -> None:
    texts = errors_page.guide_texts(guide(errors_page))
    assert len(texts) >= 60
    untrue = errors_page.untrue(texts, errors_page.collect())
    assert untrue == [], "docs/guides/errors.md has texts that are not in the source: correct or replace them"


@pytest.mark.slow
def test_text_of_the_guide_that_is_gone_from_the_source_is_noticed(errors_page: ModuleType) -> None:
    rows = "## Call\n| `no module has {this}` | a | b |\n| `{what} did not finish within {seconds}` | a | b |"
    assert errors_page.untrue(errors_page.guide_texts(rows), errors_page.collect()) == ["no module has {this}"]


def test_each_row_of_the_guide_has_a_cause_and_a_remedy(errors_page: ModuleType) -> None:
    rows = [line for line in guide(errors_page).splitlines() if line.startswith("| `")]
    assert len(rows) == len(errors_page.guide_texts(guide(errors_page)))
    assert [row for row in rows if not re.fullmatch(r"\| `.+` \| [^|]{10,} \| [^|]{10,} \|", row)] == []


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


def test_page_has_each_text_once_and_links_to_the_guide(errors_page: ModuleType) -> None:
    def message(text: str) -> object:
        return errors_page.Message("Servers", "ServerError", text, "toolwire.server")

    explained = errors_page.guide_texts("## Call a tool\n| `a port is not {port}` | cause | remedy |")
    page = errors_page.write_page([message("a port is not {text}"), message("the | `code` is bad")], explained)
    assert [line for line in page.splitlines() if "ServerError" in line] == [
        "| `a port is not {text}` | `ServerError` | `toolwire.server`, "
        "[cause and remedy](guides/errors.md#call-a-tool) |",
        "| `` the \\| `code` is bad `` | `ServerError` | `toolwire.server` |",
    ]


@pytest.mark.slow
def test_page_of_the_source_has_every_text_and_links_to_each_part_of_the_guide(errors_page: ModuleType) -> None:
    page = errors_page.made_page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(errors_page.collect()) > 1000
    anchors = set(errors_page.guide_texts(guide(errors_page)).values())
    assert set(re.findall(r"guides/errors\.md#([\w-]+)", page)) == anchors
