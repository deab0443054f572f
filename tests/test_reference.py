"""Pages of docs/reference are complete: every public name and every environment variable is there."""

from __future__ import annotations

import ast
import pkgutil
import re
from importlib import import_module
from types import ModuleType

from tests.blocks import ROOT
from tests.cases import cases

REFERENCE = ROOT / "docs" / "reference"
DIRECTIVE = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n?)*)", re.MULTILINE)
# docs/stability.md names these modules as stable.
SUBMODULES = (
    "agents",
    "apps",
    "apps.views",
    "audit",
    "auth",
    "client",
    "client.skills",
    "errors",
    "gateway",
    "logs",
    "messages",
    "openapi",
    "search",
    "stores",
    "testing",
    "transports",
    "types",
)
STABLE = ("toolwire", *(f"toolwire.{name}" for name in SUBMODULES))


def directives() -> list[tuple[str, str]]:
    """Return what the pages show: the path of an object, and the options under it."""
    return [found for page in sorted(REFERENCE.glob("*.md")) for found in DIRECTIVE.findall(page.read_text("utf-8"))]


def names_of(shown: object) -> set[str]:
    """Return the public names that a page shows for a module."""
    assert isinstance(shown, ModuleType)
    listed = getattr(shown, "__all__", None)
    return set(listed) if listed is not None else {name for name in vars(shown) if not name.startswith("_")}


def names_in_reference() -> set[str]:
    names: set[str] = set()
    for path, options in directives():
        shown, members = pkgutil.resolve_name(path), re.search(r"^ +members: (.*)", options, re.MULTILINE)
        if not isinstance(shown, ModuleType):
            names.add(path.rpartition(".")[2])
        elif members is None:
            names |= names_of(shown)
        elif members[1] != "false":
            names |= set(members[1].strip("[]").split(", "))
    # Names that a page explains in a sentence.
    for page in REFERENCE.glob("*.md"):
        names |= set(re.findall(r"`(\w+)`", page.read_text("utf-8")))
    return names


@cases("path", [path for path, _ in directives()])
def test_the_reference_shows_what_there_is(path: str) -> None:
    assert pkgutil.resolve_name(path) is not None


@cases("module", STABLE)
def test_every_stable_name_is_in_the_reference(module: str) -> None:
    names = names_of(import_module(module))
    assert names - names_in_reference() - {"errors", "testing", "types", "__version__"} == set()


def test_every_wire_type_is_on_the_page_of_types() -> None:
    """The page has a section for each module of types, so that a new module cannot be forgotten."""
    page = (REFERENCE / "types.md").read_text("utf-8")
    shown: set[str] = set()
    for path, options in DIRECTIVE.findall(page):
        members = re.search(r"members: \[(.*)\]", options)
        shown |= set(members[1].split(", ")) if members else names_of(import_module(path))
    shown |= {name for name in ("UNSET", "Raw", "UnsetType") if f"`{name}`" in page}
    assert set(import_module("toolwire.types").__all__) - shown == set()


READS = re.compile(r"os\.environ|getenv|environment\.get\(")
NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
CONSTANT = re.compile(r'^(\w+)(?:: [\w\[\]]+)? = "(\w+)"$', re.MULTILINE)


def variables_in_source() -> set[str]:
    """Return the names of environment variables that the library reads.

    These are the upper-case texts, and the constants that hold such texts, in functions that read the environment.
    """
    sources = [file.read_text("utf-8") for file in (ROOT / "src" / "toolwire").rglob("*.py")]
    constants = {name: text for source in sources for name, text in CONSTANT.findall(source)}
    found: set[str] = set()
    for source in filter(READS.search, sources):
        lines = source.splitlines()
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not READS.search("\n".join(lines[function.lineno - 1 : function.end_lineno])):
                continue
            for node in ast.walk(function):
                text = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
                if isinstance(text, str) and NAME.fullmatch(text):
                    found.add(text)
    return found


def test_every_variable_is_on_the_page_of_the_environment() -> None:
    page = (REFERENCE / "environment.md").read_text("utf-8")
    rows = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    found = variables_in_source()
    assert {"TOOLWIRE_SECRET", "TOOLWIRE_STORES", "TOOLWIRE_AUDIT_KEY", "TOOLWIRE_TOKEN", "DISPLAY"} <= found
    assert found - documented == set()
    assert {name for name in documented if name.startswith("TOOLWIRE_")} <= found
