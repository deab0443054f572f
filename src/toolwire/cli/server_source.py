"""`FILE[:OBJECT]` or `PACKAGE.MODULE[:OBJECT]`: find a server's code and import name."""

from __future__ import annotations

import importlib.util
import re
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final, NamedTuple

from toolwire.cli.errors import UsageError
from toolwire.schemas.wording import nearest

METAVAR: Final = "FILE[:OBJECT]"
HELP: Final = (
    "the file, or its module (package.module), and the name of the Server in it, or of a function that makes it, "
    "if it is not obvious; or the lock file of an API (toolwire openapi add)"
)
_MODULE: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::([A-Za-z_]\w*))?")


class ServerSource(NamedTuple):
    """The place of a server's code."""

    path: Path
    """The absolute path of the file."""
    name: str | None
    """The object in the file that the user named."""
    module: str | None
    """The name of the module; None for a file that is not part of a package."""
    root: Path
    """The folder that the module is imported from."""

    @property
    def label(self) -> str:
        return self.module if self.module is not None and self.path.stem == "__init__" else self.path.name

    def __str__(self) -> str:
        """Write the source so that it is found from any folder."""
        return str(self.path) if self.name is None else f"{self.path}:{self.name}"


def parse(spec: str) -> ServerSource:
    """Find the file or module that `spec` names; raise `UsageError` if there is none."""
    if Path(spec).is_file():
        return _describe_file(Path(spec), None)
    # Split at the last colon, because a Windows path has a colon of its own.
    file, separator, name = spec.rpartition(":")
    if separator and Path(file).is_file():
        if not name:
            raise UsageError(f"{spec!r} ends with a colon: name the server object after it, or leave it out")
        return _describe_file(Path(file), name)
    found = find_module(spec)
    if found is None:
        raise UsageError(_missing(file if separator and file.endswith(".py") else spec))
    return found


def find_module(spec: str) -> ServerSource | None:
    """Find the module that `PACKAGE.MODULE[:OBJECT]` names, local or installed."""
    words = _MODULE.fullmatch(spec)
    if words is None:
        return None
    module, name = words.groups()
    path = _file_of(module)
    if path is None:
        return None
    depth = module.count(".") + (path.stem == "__init__")
    return ServerSource(path, name, module, path.parents[depth])


def _file_of(module: str) -> Path | None:
    """Find the file of a module without running the packages that contain it."""
    first, *others = module.split(".")
    # This folder comes first, as with `python -m`.
    found: ModuleSpec | None = PathFinder.find_spec(first, [str(Path.cwd())]) or importlib.util.find_spec(first)
    for at in range(len(others)):
        if found is None or found.submodule_search_locations is None:
            return None
        found = PathFinder.find_spec(".".join([first, *others[: at + 1]]), found.submodule_search_locations)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return None
    return Path(found.origin).resolve()


def _describe_file(file: Path, name: str | None) -> ServerSource:
    """Describe a file.

    A file in a package becomes a module of it, so that its relative imports work.
    """
    path = file.resolve()
    root = path.parent
    words = [] if path.stem == "__init__" else [path.stem]
    while (root / "__init__.py").is_file():
        words.insert(0, root.name)
        root = root.parent
    in_package = root != path.parent and all(word.isidentifier() for word in words)
    return (
        ServerSource(path, name, ".".join(words), root) if in_package else ServerSource(path, name, None, path.parent)
    )


def _missing(file: str) -> str:
    """Return the error for a missing file, with a similar name if there is one."""
    path = Path(file)
    if path.is_dir():
        return f"{file!r} is a folder: name the Python file in it that defines the server"
    if path.exists():
        return f"{file!r} is a pipe or a device: name the Python file that defines the server"
    # The names are compared without .py, which would make any two of them alike.
    beside = {each.stem: each for each in path.parent.glob("*.py")} if path.parent.is_dir() else {}
    meant = nearest(path.name.removesuffix(".py"), beside)
    what = "file and no module" if _MODULE.fullmatch(file) and not file.endswith((".py", ".js", ".mjs")) else "file"
    return f"there is no {what} {file!r}" + (f"; did you mean {str(beside[meant])!r}?" if meant else "")
