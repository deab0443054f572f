"""Components from a directory: what the files in `tools/`, `resources/` and `prompts/` define."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.errors import ServerError
from toolwire.server.components import Component, Prompt, Resource, ResourceTemplate, Tool

log: logging.Logger = logging.getLogger("toolwire.server")

FOLDERS = ("tools", "resources", "prompts")


class Components(Struct):
    """What a scan found, by kind."""

    tools: list[Tool] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: list[ResourceTemplate] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)

    def all(self) -> list[Component]:
        return [*self.tools, *self.resources, *self.templates, *self.prompts]


def scan(directory: str | os.PathLike[str]) -> Components:
    """Import every Python file of the three folders and gather the components they define, without registering them.

    A component is a `Tool`, `Resource`, `ResourceTemplate` or `Prompt` at module level. In `tools/` and `prompts/` a
    file without any offers its public functions instead. A file that fails is logged and does not stop the others.
    """
    root = _root(directory)
    found = Components()
    for folder in FOLDERS:
        for file in sorted((root / folder).glob("*.py")):
            if file.name.startswith("_"):
                continue
            try:
                module = _import(file)
                components = list(_defined(module, folder))
            except (Exception, SystemExit):
                log.exception("the component file %s was left out", file.name)
                continue
            if not components:
                log.warning("the component file %s defines no component", file.name)
            for component in components:
                getattr(found, component.kind).append(component)
    return found


def _root(directory: str | os.PathLike[str]) -> Path:
    """Relative paths start at the file that is being run, so that a server works from any folder."""
    path = Path(directory)
    if not path.is_absolute():
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        beside = Path(main).resolve().parent / path if main else path
        path = beside if beside.is_dir() else path
    path = path.resolve()
    if not path.is_dir():
        raise ServerError(f"There is no component directory {os.fspath(directory)!r}")
    return path


def _import(file: Path) -> ModuleType:
    # A name of its own, so that two files of the same name in different places do not share a module.
    name = f"toolwire_components.{file.parent.name}.{file.stem}_{abs(hash(str(file.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ServerError(f"{file.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _defined(module: ModuleType, folder: str) -> Iterator[Component]:
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    components = [value for value in values if isinstance(value, Component)]
    if components or folder == "resources":
        yield from components
        return
    make: Any = Tool if folder == "tools" else Prompt
    for value in values:
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield make(value)
