"""The layers of the package, read from the source: who may import whom, and what each layer must not contain.

Every import counts: at the top of a module, under TYPE_CHECKING, and inside a function.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from toolwire.lazy_parts import PARTS

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "toolwire"

# The first name after `toolwire.` (or the longest name that fits) -> its layer. A module may import its own layer and
# those below it. A new top-level name has to be put here before it can be used.
LAYERS = {
    "_version": 0,
    "base_errors": 0,
    "protocol": 0,
    "auth.errors": 0,
    "auth.flow": 0,
    "auth.principal": 0,
    "search": 1,
    "stores": 1,
    "adapters": 1,
    "content": 1,
    "schemas": 1,
    "sealing_aes": 1,
    "logs": 1,
    "loops": 1,
    "audit": 1,
    "extras": 1,
    "lazy_parts": 0,
    "lazy_patterns": 0,
    "http1": 1,
    "http1.public_addresses": 0,
    "http1.url": 0,
    "util": 1,
    "platforms": 2,
    "printable": 1,
    "redaction": 0,
    "secret_index": 0,
    "server_texts": 0,
    "tokens": 0,
    "hostile_text": 0,
    "wire": 2,
    "http": 2,
    "auth": 2,
    "server": 3,
    "client": 3,
    "agents": 4,
    "agents.argument_names": 1,
    "agents.conversion": 1,
    "agents.schema_conversion": 1,
    "agents.schema_objects": 1,
    "agents.schema_words": 1,
    "agents.strict_schemas": 1,
    "agents.vendors": 1,
    "gateway": 4,
    "inspector": 4,
    "skills": 4,
    "apps": 4,
    "openapi": 4,
    "testing": 5,
    "testing_plugin": 5,
    "cli": 5,
    "types": 5,
    "errors": 5,
    "messages": 5,
    "transports": 5,
    "shape": 5,
    "": 5,  # toolwire itself, and __main__
    "__main__": 5,
}

# Two parts of one layer that do not know each other.
STRANGERS = {("server", "client"), ("client", "server")}

# The one way upwards: parts of `Server` and `Client` that live in a package above them.
UPWARDS: dict[str, str] = {
    "client.gateway": "toolwire.gateway.client_gateway.ClientGateway",
    "server.app": "toolwire.apps.served.ServedApps",
    "server.from_asgi": "toolwire.openapi.included.server_of_application",
    "server.include": "toolwire.openapi.included.IncludedApis",
    "server.mount": "toolwire.gateway.upstream.remote",
    "server.skills": "toolwire.skills.served.ServedSkills",
    "verified_body": "toolwire.skills.verified_body.verified_body",
}

# protocol/ is pure: no tasks, no sockets, no clock, no randomness.
IMPURE = {"asyncio", "random", "secrets", "select", "selectors", "socket", "ssl", "subprocess", "time", "uuid"}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# The templates of new projects lie in folders that are not packages.
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if (path.parent / "__init__.py").is_file()]
SOURCES = {module_name(path): path for path in MODULES}


@dataclass
class Facts:
    """What the tests ask about a module. Its syntax tree is not kept: those of all modules are a million objects."""

    imports: set[str] = field(default_factory=set)
    """What it imports, by absolute name; for our own package the submodule that is really meant."""
    coroutines: list[str] = field(default_factory=list)
    context_variables: int = 0
    prints: bool = False
    parts: set[str] = field(default_factory=set)
    """The names with which it calls `load_part`."""


@cache
def facts(name: str) -> Facts:
    """Return what a module has in it; read when a test asks, not in every process that collects the tests."""
    path = SOURCES[name]
    found = Facts()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.update(_imported(name, node))
        elif isinstance(node, ast.AsyncFunctionDef):
            found.coroutines.append(node.name)
        elif isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            last = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            found.context_variables += last == "ContextVar"
            if isinstance(called, ast.Name):
                found.prints |= last == "print"
                if last == "load_part":
                    found.parts.add(str(ast.literal_eval(node.args[0])))
    return found


def imports(name: str) -> set[str]:
    return facts(name).imports


def _imported(name: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    package = name if SOURCES[name].name == "__init__.py" else name.rpartition(".")[0]
    base = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*above, *([base] if base else [])])
    for alias in node.names:
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in SOURCES else base


@cache
def part(name: str) -> str:
    """Return the entry of LAYERS that a module of the package falls under."""
    inner = name.removeprefix("toolwire").lstrip(".")
    while inner and inner not in LAYERS:
        inner = inner.rpartition(".")[0]
    return inner


def is_ours(name: str) -> bool:
    return name == "toolwire" or name.startswith("toolwire.")


def third_party(name: str) -> set[str]:
    roots = {target.partition(".")[0] for target in imports(name)}
    return roots - {"toolwire", "__future__"} - set(sys.stdlib_module_names)


def test_every_module_has_a_layer() -> None:
    homeless = [name for name in SOURCES if name != "toolwire" and part(name) == ""]
    assert homeless == []


@pytest.mark.slow
def test_imports_point_downwards() -> None:
    wrong = []
    for name in SOURCES:
        own = part(name)
        for target in filter(is_ours, imports(name)):
            other = part(target)
            if LAYERS[other] > LAYERS[own] or (own, other) in STRANGERS:
                wrong.append(f"{name} (layer {LAYERS[own]}) imports {target} (layer {LAYERS[other]})")
    assert wrong == []


def test_the_lazy_parts_are_the_ones_listed_here() -> None:
    assert {name: ".".join(home) for name, home in PARTS.items()} == UPWARDS
    for name, home in UPWARDS.items():
        asked = [module for module in SOURCES if name in facts(module).parts]
        assert LAYERS[part(home.rpartition(".")[0])] == 4, home
        assert asked, name
        assert {LAYERS[part(module)] for module in asked} == {3}, name


def test_http1_knows_nothing_of_mcp() -> None:
    own = {"http1", "http1.public_addresses", "http1.url"}
    neutral = own | {"base_errors", "extras", "loops", "redaction", "_version"}
    for name in [name for name in SOURCES if part(name) in own]:
        assert {part(target) for target in filter(is_ours, imports(name))} <= neutral, name


def test_no_import_cycles() -> None:
    graph = {name: {target for target in imports(name) if target in SOURCES} for name in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_core_is_pure() -> None:
    for name in [name for name in SOURCES if LAYERS[part(name)] == 0]:
        assert facts(name).coroutines == [], name
        assert {target.partition(".")[0] for target in imports(name)} & IMPURE == set(), name
        assert third_party(name) <= {"msgspec"}, name


def test_one_context_variable() -> None:
    # The contract of a bus looks at the context of a callback.
    made = {name: facts(name).context_variables for name in SOURCES if part(name) != "testing"}
    assert sum(made.values()) == 1, {name: count for name, count in made.items() if count}


@pytest.mark.parametrize(
    ("library", "home"),
    [("pydantic", "toolwire.adapters.pydantic_models"), ("jsonschema_rs", "toolwire.schemas.engine")],
)
def test_a_heavy_library_has_one_importer(library: str, home: str) -> None:
    assert {name for name in SOURCES if library in third_party(name)} <= {home}


def test_the_library_never_prints() -> None:
    # 2026-07-28 basic/transports/stdio: stdout carries nothing but messages.
    assert [name for name in SOURCES if LAYERS[part(name)] < 5 and facts(name).prints] == []
