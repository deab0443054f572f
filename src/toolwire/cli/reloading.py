"""Loading a server's file again when it, or a module of the user's that it imports, has changed."""

from __future__ import annotations

import asyncio
import importlib
import site
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from toolwire.cli import server_file, server_source
from toolwire.cli.errors import UsageError
from toolwire.protocol.errors import ServerError
from toolwire.server.component_directory import component_directory, component_files

LOOK_SECONDS: Final = 0.25
# After a change more may follow: an editor that saves several files, a checkout.
SETTLE_SECONDS: Final = 0.1


class LoadFailed(Struct):
    """Why a file could not be loaded, and where."""

    message: str
    trace: str
    file: str | None = None
    line: int | None = None
    code: str | None = None


class Reloader:
    """A server file, the modules of the user's that it brought along, and when one of them last changed."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        source = server_source.parse(spec)
        self.label: str = source.label
        self._path = source.path
        self._modules: set[str] = set()
        self._stamps: dict[Path, tuple[object, ...] | None] = {}
        # A compiled file counts as current when its source has the same size and second, so a quick change would be
        # missed.
        sys.dont_write_bytecode = True

    def load(self) -> Any:
        """The server, loaded anew; or `LoadFailed`, and then all modules are as they were."""
        before, search_path = dict(sys.modules), list(sys.path)
        for name in self._modules:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        try:
            loaded: Any = server_file.load(self._spec)
        except server_file.FileFailed as error:
            loaded = _explained(str(error), error.__cause__)
        except UsageError as error:
            loaded = LoadFailed(str(error), str(error), str(self._path))
        finally:
            # The neighbours of the file stay importable, but are not searched once more for every time it was loaded.
            sys.path[:] = dict.fromkeys(sys.path)
        brought = {name for name, module in sys.modules.items() if before.get(name) is not module}
        brought = {name for name in brought | self._modules if _is_local(sys.modules.get(name) or before.get(name))}
        self._watch(brought, before)
        if isinstance(loaded, LoadFailed):
            if loaded.file is not None:
                # A file that fails is no module, so it is watched for its own sake.
                self._stamps.setdefault(Path(loaded.file), _stamp(Path(loaded.file)))
            sys.path[:] = search_path
            sys.modules.clear()
            sys.modules.update(before)
        else:
            self._modules = brought
        return loaded

    def _watch(self, names: set[str], before: dict[str, ModuleType]) -> None:
        modules = [sys.modules.get(name) or before.get(name) for name in names]
        files = {Path(file) for module in modules if (file := getattr(module, "__file__", None))}
        folders = {Path(folder) for each in sys.modules if (folder := component_directory(each))}
        self._stamps = {file: _stamp(file) for file in {*files, *folders, *self._stamps, self._path}}

    async def changed(self) -> None:
        """Wait until one of the files changes."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._look():
                await asyncio.sleep(SETTLE_SECONDS)
                return

    def _look(self) -> bool:
        return any(_stamp(file) != stamp for file, stamp in self._stamps.items())


def _stamp(file: Path) -> tuple[object, ...] | None:
    """Say when a file last changed, and of a component directory which files there are."""
    try:
        if file.is_dir():
            return component_files(file)
        found = file.stat()
    except OSError:
        return None  # An editor that replaces a file removes it for a moment.
    return found.st_mtime_ns, found.st_size


def _installed() -> list[str]:
    return [
        *site.getsitepackages(),
        site.getusersitepackages(),
        sysconfig.get_paths()["stdlib"],
        server_file.OURS,
    ]


def _is_local(module: ModuleType | None) -> bool:
    """Return whether a module is the user's own, rather than installed, part of Python, or part of this library."""
    file = getattr(module, "__file__", None)
    if not file:
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


def _explained(trace: str, error: BaseException | None) -> LoadFailed:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return LoadFailed(f"{type(error).__name__}: {said}", trace, *where(error))


def where(error: BaseException | None) -> tuple[str | None, int | None, str | None]:
    """Find the last line of the user's own that an exception passed through: file, number and text.

    A `ServerError` with a cause tells of a component file that failed, so the line is the cause's.
    """
    while isinstance(error, ServerError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno, (error.text or "").strip() or None
    return last_own([] if error is None else traceback.extract_tb(error.__traceback__))


def last_own(frames: Sequence[traceback.FrameSummary]) -> tuple[str | None, int | None, str | None]:
    """The last of some frames that is the user's own: file, number and text of its line."""
    own = [frame for frame in frames if not frame.filename.startswith((*_installed(), "<"))]
    if not own:
        return None, None, None
    return own[-1].filename, own[-1].lineno, own[-1].line
