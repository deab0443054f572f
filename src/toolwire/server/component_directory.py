"""Components that the files in `tools/`, `resources/` and `prompts/` of a directory define."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from msgspec import Struct, field

from toolwire.printable import printable
from toolwire.protocol.errors import ServerError
from toolwire.schemas import Profile
from toolwire.server.components import Component, Prompt, Resource, ResourceTemplate, Tool

log: logging.Logger = logging.getLogger("toolwire.server")

# A command shows the last line of an error, up to 8 KiB of it.
_MOST_NAMED: Final = 10
_MOST_SAID: Final = 300
_NO_FOLDER: Final = "it is no folder"
FOLDERS: Final = ("tools", "resources", "prompts")
# A component directory is a package of this name and a number, so that its files can import one another by a dot.
PACKAGE: Final = "toolwire_components_"


class Components(Struct):
    """Components that a scan found, by kind. `server.add(components)` adds all of them."""

    tools: list[Tool] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: list[ResourceTemplate] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)

    def all(self) -> list[Component]:
        """List the components of all kinds."""
        return [*self.tools, *self.resources, *self.templates, *self.prompts]

    def __iter__(self) -> Iterator[Component]:
        return iter(self.all())

    def __len__(self) -> int:
        return len(self.all())


def scan(directory: str | os.PathLike[str], *, schema_profile: Profile = "portable") -> Components:
    """Import every Python file below `tools/`, `resources/` and `prompts/`, and gather the components they define.

    Nothing is registered. A component is a `Tool`, `Resource`, `ResourceTemplate` or `Prompt` at module level, alone or
    in a list. In `tools/` and `prompts/` a file without any offers its public functions instead. Files and folders
    whose names start with `_` or `.` are left out, but other files can import them.

    A relative path starts at the folder of the file that calls this, and otherwise at the working directory.
    `ServerError` names every file that cannot be imported, and the first failure is its cause. `schema_profile` goes to
    the tools that are made of functions.
    """
    root = find_folder(directory, "component directory")
    package = _package(root)
    found = Components()
    failed: dict[str, BaseException] = {}
    seen: set[int] = set()
    for folder in FOLDERS:
        if os.path.lexists(root / folder) and not (root / folder).is_dir():
            failed[folder] = ServerError(_NO_FOLDER)
        for file in _files(root / folder, set()):
            name = file.relative_to(root)
            try:
                _check_file(file)
                module = _import(package, name)
                components = list(_defined(module, folder, schema_profile))
            except (Exception, SystemExit) as error:
                failed[name.as_posix()] = error.with_traceback(_from(error.__traceback__, file))
                continue
            if not components:
                log.warning("the component file %s defines no component", name.as_posix())
            for component in components:
                # A file may import a component of another, which is one component all the same.
                if id(component) not in seen:
                    seen.add(id(component))
                    getattr(found, component.kind).append(component)
    if failed:
        raise _failure(failed)
    return found


def component_directory(module: str) -> str | None:
    """Name the directory that a module of this name stands for; None for any other module."""
    if not module.startswith(PACKAGE) or "." in module:
        return None
    return next(iter(sys.modules[module].__path__), None)


def component_files(directory: Path) -> tuple[Path, ...]:
    """List the files that a scan of a directory imports."""
    files = (file for folder in FOLDERS for file in _files(directory / folder, set()))
    return tuple(file for file in files if file.is_file())


# --- where ---


def find_folder(directory: str | os.PathLike[str], noun: str) -> Path:
    """Find a folder: a relative path starts at the file that calls this library, or at the working directory."""
    return _find(directory, noun, Path.is_dir)


class NotThere(ServerError):
    """A file or a folder that a program names is not there. `places` are those where it was looked for."""

    def __init__(self, problem: str, places: Sequence[Path]) -> None:
        super().__init__(problem)
        self.places: Sequence[Path] = places


def find_file(file: str | os.PathLike[str], noun: str) -> Path:
    """Find a file. A relative path starts where that of a folder does."""
    return _find(file, noun, Path.is_file)


def _find(path: str | os.PathLike[str], noun: str, is_there: Callable[[Path], bool]) -> Path:
    given = Path(path)
    places = [given] if given.is_absolute() else [folder / given for folder in _starting_points()]
    for place in places:
        if is_there(place):
            return place.resolve()
    where = " or ".join(str(place) for place in dict.fromkeys(places))
    raise NotThere(f"There is no {noun} {os.fspath(path)!r}: it would be {where}", places)


def _starting_points() -> Iterator[Path]:
    """Name the folders that a relative path may start at.

    The file that makes the server comes first: clients start servers from a folder of their own. A prompt, a notebook
    or `python -c` has no file.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "toolwire":
        frame = frame.f_back
    file = frame.f_globals.get("__file__")
    if isinstance(file, str):
        yield Path(file).resolve().parent
    yield Path.cwd()


def _files(folder: Path, above: set[Path]) -> Iterator[Path]:
    """Walk a folder in the order of names. Follow links, except those that lead back to a folder above.

    What looks like a component file, or like a link to one or to a folder, and is none is among them.
    """
    real = folder.resolve()
    if real in above or not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir() and entry.suffix != ".py":
            yield from _files(entry, above | {real})
        elif entry.suffix == ".py" or (not entry.suffix and entry.is_symlink() and not entry.exists()):
            yield entry


def _check_file(file: Path) -> None:
    """Raise `ServerError` for what is no file, so that nobody misses its components."""
    if file.is_dir():
        raise ServerError("it is a folder, whose name must not end in .py")
    if not file.exists():
        raise ServerError("it is a link that leads nowhere")
    if not file.is_file():
        raise ServerError("it is a device, a pipe or a socket")


# --- importing ---


def _package(root: Path) -> str:
    """Make the directory a package. It replaces the package of an earlier scan, so changed files are imported again."""
    name = PACKAGE + hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    for known in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[known]
    specification = ModuleSpec(name, None, is_package=True)
    specification.submodule_search_locations = [str(root)]
    sys.modules[name] = importlib.util.module_from_spec(specification)
    # Files can also import their neighbours without the dot. The folders come last, so that they hide no other module.
    for folder in (root, *(root / each for each in FOLDERS)):
        if str(folder) not in sys.path and folder.is_dir():
            sys.path.append(str(folder))
    importlib.invalidate_caches()
    return name


def _import(package: str, name: Path) -> ModuleType:
    steps = name.with_suffix("").parts
    if any("." in step for step in steps):
        raise ServerError("the name of a component file, and of the folders above it, has no dot but that of .py")
    return importlib.import_module(".".join((package, *steps)))


def _defined(module: ModuleType, folder: str, schema_profile: Profile) -> Iterator[Component]:
    values = [value for name, value in vars(module).items() if not name.startswith("_")]
    listed = (each for value in values if isinstance(value, list | tuple) for each in value)
    components = [value for value in (*values, *listed) if isinstance(value, Component)]
    if components or folder == "resources":
        yield from components
        return
    make: Any = partial(Tool, schema_profile=schema_profile) if folder == "tools" else Prompt
    for value in values:
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield make(value)


# --- what went wrong ---


def _from(trace: TracebackType | None, file: Path) -> TracebackType | None:
    """Cut a traceback so that it begins in a file, and leaves out how the file was imported."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename != str(file):
        inner = inner.tb_next
    return inner


def _failure(failed: dict[str, BaseException]) -> ServerError:
    named = list(failed.items())[:_MOST_NAMED]
    said = [f"{_brief(name)} ({type(error).__name__}: {_brief(str(error))})" for name, error in named]
    if len(failed) > _MOST_NAMED:
        said.append(f"and {len(failed) - _MOST_NAMED} more")
    what = "The component file" if len(failed) == 1 else "The component files"
    error = ServerError(f"{what} cannot be imported: {'; '.join(said)}")
    error.__cause__ = next(iter(failed.values()))
    return error


def _brief(text: str) -> str:
    """Return a text on one line that is short enough for a message about several files."""
    # Cut first: an exception may quote megabytes.
    line = printable(" ".join(text[: 2 * _MOST_SAID].split()))
    return line if len(line) <= _MOST_SAID else f"{line[:_MOST_SAID]}…"
