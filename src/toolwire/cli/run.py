"""`toolwire run FILE[:OBJECT]`: serve the server that a Python file defines."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

from toolwire.cli.errors import UsageError
from toolwire.protocol.errors import ServerError
from toolwire.wire.stdio import claim

_USUAL_NAMES: Final = ("server", "mcp", "app")


def main(spec: str, transport: str, options: Mapping[str, Any]) -> int:
    path, name = _parse(spec)
    if transport == "stdio":
        if options:
            raise UsageError(f"--{next(iter(options)).replace('_', '-')} is for --transport http")
        # Before the user's file runs: whatever it prints while it is imported must not reach the client (STD-2).
        claim()
    try:
        module = _load(path)
    except UsageError:
        raise
    except Exception as error:
        _show(error, path)
        return 1
    server = _find(module, name, path)
    try:
        if transport == "stdio":
            server.run(transport)
        else:
            server.run(transport, **options, log_level="warning", on_ready=_announce)
    except ServerError as error:
        sys.stderr.write(f"toolwire: {error}\n")
        return 1
    return 0


def _announce(url: str) -> None:
    sys.stderr.write(f"toolwire: serving at {url} (Ctrl+C ends it)\n")
    sys.stderr.flush()


def _parse(spec: str) -> tuple[Path, str | None]:
    whole = Path(spec)
    if whole.is_file():
        return whole, None
    # From the right, since a Windows path has a colon of its own.
    file, separator, name = spec.rpartition(":")
    if separator and Path(file).is_file():
        if not name:
            raise UsageError(f"{spec!r} ends with a colon: name the server object after it, or leave it out")
        return Path(file), name
    raise UsageError(f"there is no file {(file if separator and file.endswith('.py') else spec)!r}")


def _load(path: Path) -> ModuleType:
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
        raise UsageError(f"{path.name!r} defines no Server")
    if len(found) > 1:
        names = ", ".join(sorted(found.values()))
        raise UsageError(f"{path.name!r} defines several servers ({names}): say which, as {path.name}:NAME")
    return members[next(iter(found.values()))]


def _show(error: Exception, path: Path) -> None:
    """The user's traceback, from their file on: how it was loaded is of no interest."""
    # Imported here because only a failure needs it.
    import traceback

    own = str(path.resolve())
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != own:
        trace = trace.tb_next
    sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
