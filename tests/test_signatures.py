"""Every class in a public signature can be imported: from a stable module, or as documented."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, is_typeddict

from tests.blocks import python_blocks
from tests.test_reference import directives, names_of

from public_surface import MODULES

#: Classes that only the library makes and takes: parts of public classes, behind methods that other modules call.
INTERNAL = {
    "toolwire.auth.client.sign_in.SignIn",
    "toolwire.auth.client.signing.ProofKey",
    "toolwire.auth.flow.authorization.Attempt",
    "toolwire.auth.flow.clients.Registration",
    "toolwire.auth.marks.Marks",
    "toolwire.auth.proxy.endpoints.Endpoints",
    "toolwire.auth.vault.links.Link",
    "toolwire.auth.vault.local_connections.LocalConnections",
    "toolwire.auth.vault.providers.ProviderClient",
    "toolwire.auth.vault.vault.Asker",
    "toolwire.client.budget.Spending",
    "toolwire.client.reconnect.Connector",
    "toolwire.gateway.gateway.Coming",
    "toolwire.gateway.gateway.ComingApi",
    "toolwire.gateway.upstream.Upstream",
    "toolwire.http.asgi.HttpApp",  # Any ASGI server takes it as it is.
    "toolwire.openapi.api_options.ApiOptions",
    "toolwire.openapi.api_server.ApiTools",
    "toolwire.openapi.calling.GeneratedTool",
    "toolwire.openapi.definition.chosen_operations.ApiOperations",
    "toolwire.openapi.description.references.Description",
    "toolwire.openapi.lock_file.lock.Lock",
    "toolwire.openapi.lock_file.locked_operations.LockedTools",
    "toolwire.openapi.model.ToolDefinition",
    "toolwire.redaction.Redaction",
    "toolwire.server.binding.binding.Binding",
    "toolwire.server.kernel.Kernel",
    "toolwire.server.settings.Settings",
    "toolwire.server.call.Call",
    "toolwire.server.catalog.Catalog",
    "toolwire.server.catalog.Mount",
    "toolwire.server.components.base.Component",
    "toolwire.server.components.restriction.Audience",
    "toolwire.server.described_api.DescribedApi",  # Users have its subclass `Api`.
    "toolwire.server.policy.enforcement.Enforcer",
    "toolwire.server.shaping.pins.PinBook",
    "toolwire.wire.channel.Sender",
}


def importable() -> set[int]:
    """Return the identities of what stable modules have, the reference shows, and examples import."""
    found = {id(getattr(import_module(module), name)) for module in MODULES for name in names_of(import_module(module))}
    for path, options in directives():
        shown, members = pkgutil.resolve_name(path), re.search(r"^ +members: \[(.*)\]", options, re.MULTILINE)
        if not isinstance(shown, ModuleType):
            found.add(id(shown))
        elif members is not None:
            found |= {id(getattr(shown, name)) for name in members[1].split(", ")}
        elif "members: false" not in options:
            found |= {id(each) for each in vars(shown).values() if getattr(each, "__module__", None) == path}
    for block in python_blocks().values():
        # docs/stability.md: a name that an example imports is stable.
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolwire"):
                found |= {id(pkgutil.resolve_name(f"{node.module}:{alias.name}")) for alias in node.names}
    return found


def annotated() -> Iterator[tuple[str, ModuleType, Any]]:
    """Yield the annotations of public functions, methods and attributes, each with its place and module."""
    for module in map(import_module, MODULES):
        for name in sorted(names_of(module)):
            value = getattr(module, name)
            if not getattr(value, "__module__", "").startswith("toolwire"):
                continue
            if inspect.isclass(value):
                yield from of_class(value)
            elif inspect.isfunction(value):
                yield from of_function(name, value)


def of_class(shown: type) -> Iterator[tuple[str, ModuleType, Any]]:
    for base in shown.__mro__:
        if not base.__module__.startswith("toolwire"):
            continue
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                yield f"{shown.__name__}.{name}", sys.modules[base.__module__], annotation
        for name, member in vars(base).items():
            if name.startswith("_") and name != "__init__":
                continue
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function):
                yield from of_function(f"{shown.__name__}.{name}", function)


def of_function(place: str, function: Any) -> Iterator[tuple[str, ModuleType, Any]]:
    function = inspect.unwrap(function)
    for annotation in inspect.get_annotations(function).values():
        yield place, sys.modules[function.__module__], annotation


def classes_in(module: ModuleType, annotation: Any) -> Iterator[type]:
    """Yield the classes that an annotation names. They may be imported for type checkers alone."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    for name in names_in(ast.parse(text or "None", mode="eval").body):
        first, _, rest = name.partition(".")
        value = getattr(module, first) if hasattr(module, first) else typing_imports(module).get(first)
        for part in filter(None, rest.split(".")):
            value = getattr(value, part)
        if inspect.isclass(value):
            yield value


def names_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name() | ast.Attribute():
            yield ast.unparse(node)
        case ast.Subscript(value=ast.Name(id="Literal")):
            return
        case ast.Constant(value=str(text)):
            yield from names_in(ast.parse(text, mode="eval").body)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from names_in(child)


@cache
def typing_imports(module: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolwire"):
            for alias in node.names:
                found[alias.asname or alias.name] = pkgutil.resolve_name(f"{node.module}:{alias.name}")
    return found


def has_to_be_imported(named: type) -> bool:
    """Return whether users need a class by its name. Any object fits a protocol, and any dict a `TypedDict`."""
    is_ours = named.__module__.startswith("toolwire") and not named.__name__.startswith("_")
    return is_ours and not getattr(named, "_is_protocol", False) and not is_typeddict(named)


def test_every_class_in_a_public_signature_can_be_imported() -> None:
    known = importable()
    missing: dict[str, set[str]] = {}
    for place, module, annotation in annotated():
        for named in classes_in(module, annotation):
            if has_to_be_imported(named) and id(named) not in known:
                missing.setdefault(f"{named.__module__}.{named.__qualname__}", set()).add(place)
    assert {name: sorted(places) for name, places in missing.items() if name not in INTERNAL} == {}
    assert INTERNAL - missing.keys() == set(), "these are public now, or stand in no signature: take them from the list"
