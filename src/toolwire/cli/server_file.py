"""`FILE[:OBJECT]`: from what the user typed to the `Server` object that a Python file defines."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from toolwire.cli.errors import UsageError
from toolwire.extras import MissingExtra
from toolwire.protocol.errors import ServerError
from toolwire.schemas.wording import nearest

#: Where this library is.
OURS: Final = str(Path(__file__).resolve().parents[1])
_USUAL_NAMES: Final = ("server", "mcp", "app")


class FileFailed(Exception):
    """The user's file raised while it was imported; the text is their traceback, or the line that says what to do."""


def load(spec: str, *, anew: bool = True) -> Any:
    """The server that `FILE[:OBJECT]` means; `UsageError` when there is none, `FileFailed` when the file is broken.

    Unless it is to be loaded `anew`, a module that was imported from the file before is taken as it is.
    """
    path, name = parse(spec)
    try:
        module = (None if anew else _imported(path)) or _import(path)
    except UsageError:
        raise
    except MissingExtra as error:
        # Nothing is wrong with the file, so where in it this came up does not matter.
        raise FileFailed(f"toolwire: {path.name}: {error}\n") from error
    except Exception as error:
        raise FileFailed(_told(error, path)) from error
    return _find(module, name, path)


def parse(spec: str) -> tuple[Path, str | None]:
    """The file and, where one is named, the object in it."""
    whole = Path(spec)
    if whole.is_file():
        return whole, None
    # From the right, since a Windows path has a colon of its own.
    file, separator, name = spec.rpartition(":")
    if separator and Path(file).is_file():
        if not name:
            raise UsageError(f"{spec!r} ends with a colon: name the server object after it, or leave it out")
        return Path(file), name
    raise UsageError(_missing(file if separator and file.endswith(".py") else spec))


def _missing(file: str) -> str:
    """What to say of a file that is not there, with the one beside it that may be meant."""
    path = Path(file)
    if path.is_dir():
        return f"{file!r} is a folder: name the Python file in it that defines the server"
    beside = {each.name: each for each in path.parent.glob("*.py")} if path.parent.is_dir() else {}
    meant = nearest(path.name, beside)
    return f"there is no file {file!r}" + (f"; did you mean {str(beside[meant])!r}?" if meant else "")


def _imported(path: Path) -> ModuleType | None:
    file = str(path.resolve())
    return next((module for module in tuple(sys.modules.values()) if getattr(module, "__file__", None) == file), None)


def _import(path: Path) -> ModuleType:
    path = path.resolve()
    # As `python FILE` does, so that the file finds its neighbours.
    sys.path.insert(0, str(path.parent))
    # Under its own name where that is free, so that what it defines can be pickled for worker processes.
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"toolwire_server_{id(path)}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"{path.name!r} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _is_server(value: Any) -> bool:
    kind = type(value)
    return callable(getattr(kind, "serve", None)) and callable(getattr(kind, "run", None))


def _find(module: ModuleType, name: str | None, path: Path) -> Any:
    members = vars(module)
    if name is not None:
        if name not in members:
            raise UsageError(f"{path.name!r} has no {name!r}")
        if not _is_server(members[name]):
            raise UsageError(f"{name!r} in {path.name!r} is a {type(members[name]).__name__}, not a Server")
        return members[name]
    for usual in _USUAL_NAMES:
        if _is_server(members.get(usual)):
            return members[usual]
    found = {id(value): key for key, value in members.items() if _is_server(value)}
    if not found:
        raise UsageError(f'{path.name!r} defines no Server: write server = Server("name") at its top level')
    if len(found) > 1:
        names = ", ".join(sorted(found.values()))
        raise UsageError(f"{path.name!r} defines several servers ({names}): say which, as {path.name}:NAME")
    return members[next(iter(found.values()))]


def _told(error: Exception, path: Path) -> str:
    """The user's traceback, from their file on: how it was loaded is of no interest."""
    # Imported here because only a failure needs it.
    import traceback

    own = str(path.resolve())
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != own:
        trace = trace.tb_next
    told = traceback.TracebackException(type(error), error, trace)
    if isinstance(error, ServerError | TypeError):
        # What they wrote cannot be registered: the line is theirs, and who noticed is of no interest either.
        while len(told.stack) > 1 and told.stack[-1].filename.startswith(OURS):
            told.stack.pop()
    return "".join(told.format())
