"""Reload a server file when it changes: `toolwire run --reload` and `toolwire dev`.

A change of the file counts, and a change of any module of the user's own that the file imports.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolwire.apps.bundle import PageError
from toolwire.cli import server_file, server_source
from toolwire.cli.errors import UsageError
from toolwire.cli.screen import Screen, note
from toolwire.protocol.errors import ServerError
from toolwire.server.call import Call
from toolwire.server.component_directory import NotThere, component_directory, component_files
from toolwire.server.hot_reload import Stage
from toolwire.server.server import Server
from toolwire.skills.folder import SkillsError, watched_files
from toolwire.util.file_watch import FileWatch, Stamp, stamp_of

# Addresses of resources are chosen by clients, so their number is bounded.
_MOST_NOTICES: Final = 1_000


class LoadFailed(Struct):
    """The reason why a file could not be loaded, with the line that raised."""

    message: str
    trace: str
    file: str | None = None
    line: int | None = None
    code: str | None = None


class StagedFile:
    """The server of a file; a changed file replaces it while clients stay connected.

    `stage` is run like any server. `report` is called after each load, with the failure if there was one.
    """

    def __init__(self, reloader: Reloader, report: Callable[[LoadFailed | None], None]) -> None:
        self._reloader = reloader
        self._report = report
        loaded = reloader.load()
        self.failed: LoadFailed | None = loaded if isinstance(loaded, LoadFailed) else None
        # A file that is broken from the start gets an empty server until it is mended.
        self.stage: Stage = Stage(_in_debug(loaded if self.failed is None else Server("broken")), beside=self._watch)
        self.stage.kernel.questions.on_replay = ReplayNotice()
        _tell(self.failed, "nothing is served until the file is mended")

    async def _watch(self) -> None:
        while True:
            await self._reloader.changed()
            failed = await self._reload()
            _tell(failed, "the last version that worked is still served")
            self._report(failed)

    async def _reload(self) -> LoadFailed | None:
        try:
            loaded = self._reloader.load()
        except KeyboardInterrupt:
            # The handler of the signal has asked the loop to stop, which it does as soon as it runs again.
            return LoadFailed("the load was interrupted", "the load was interrupted")
        if isinstance(loaded, LoadFailed):
            return loaded
        try:
            changed = await self.stage.replace(_in_debug(loaded))
        except BaseException as error:
            # Whatever the lifespan raises, only the end of this task comes from outside of it.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            told = f"the lifespan failed: {type(error).__name__}: {error}"
            return LoadFailed(told, told, *where(error))
        note(f"toolwire: loaded again, {' and '.join(changed) or 'no list'} changed")
        return None


class ReplayNotice:
    """Reports once for each component that it ran again from the top."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def __call__(self, call: Call, round: int) -> None:
        name = str(getattr(call.params, "name", "") or getattr(call.params, "uri", call.method))
        if name in self._reported or len(self._reported) >= _MOST_NOTICES:
            return
        self._reported.add(name)
        note(
            f"toolwire: {name[:200]} ran again, round {round}: the client of 2026-07-28 repeated the call "
            "with the answer. What the handler does before its question is done again; ctx.step does it once"
        )


def _in_debug(server: Any) -> Any:
    """Make errors say what happened: the caller of a server under development is its author."""
    server.apply_settings(replace(server.settings, debug=True))
    return server


def _tell(failed: LoadFailed | None, meanwhile: str) -> None:
    if failed is not None:
        Screen(sys.stderr).text(failed.trace if failed.trace.endswith("\n") else f"toolwire: {failed.trace}")
        note(f"toolwire: {meanwhile}")


class Reloader:
    """A server file, the user's modules that it imports, and their stamps."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        source = server_source.parse(spec)
        self.label: str = source.label
        self._path = source.path
        self._modules: set[str] = set()
        self._files = FileWatch(self._stamp)
        self._skill_folders: set[Path] = set()
        self._pages: set[Path] = set()
        # Python takes a compiled file for current when its source has the same size and second. A quick change would
        # go unnoticed.
        sys.dont_write_bytecode = True

    def load(self) -> Any:
        """Load the server anew. Return `LoadFailed`, with all local modules unchanged, if that fails.

        A signal to stop ends the import of the file, and becomes `KeyboardInterrupt`.
        """
        before, search_path = dict(sys.modules), list(sys.path)
        for name in self._modules:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        try:
            with _interruptible() as interrupted:
                loaded: Any = self._load(interrupted)
        except server_file.FileFailed as error:
            loaded = _explained(str(error), error.__cause__)
            if isinstance(error.__cause__, SkillsError):
                self._skill_folders.add(Path(error.__cause__.folder))
            self._pages |= _awaited(error.__cause__)
        except UsageError as error:
            loaded = LoadFailed(str(error), str(error), str(self._path))
        finally:
            # The neighbours of the file stay importable, but their folder is searched only once.
            sys.path[:] = dict.fromkeys(sys.path)
        brought = {name for name, module in sys.modules.items() if before.get(name) is not module}
        brought = {name for name in brought | self._modules if _is_local(sys.modules.get(name) or before.get(name))}
        if isinstance(loaded, Server):
            catalogs = (loaded.catalog, *loaded.catalog.family())
            self._skill_folders = {Path(folder) for each in catalogs for folder in each.skill_set.folders}
            views = (view for each in catalogs for view in each.resources.values())
            self._pages = {Path(file) for view in views for file in view.source_files}
        self._watch(brought, before)
        if isinstance(loaded, LoadFailed):
            if loaded.file is not None:
                # A file that fails to load is not among the modules, so it is watched by its path.
                self._files.look_again([Path(loaded.file)])
            sys.path[:] = search_path
            # An installed package stays, as in plain Python: some cannot be imported twice in one process.
            installed = {name: each for name, each in sys.modules.items() if name not in before and not _is_local(each)}
            sys.modules.clear()
            sys.modules.update(before | installed)
        else:
            self._modules = brought
        return loaded

    def _load(self, interrupted: list[int]) -> Any:
        try:
            return server_file.load(self._spec)
        except (server_file.FileFailed, UsageError):
            raise
        except BaseException as error:
            # `sys.exit()` in the file, or anything else that is not an `Exception`, ends its import and not ours.
            if interrupted:
                raise KeyboardInterrupt from None
            raise server_file.failure_of(error, server_source.parse(self._spec)) from error

    def _watch(self, names: set[str], before: dict[str, ModuleType]) -> None:
        modules = [sys.modules.get(name) or before.get(name) for name in names]
        files = {Path(file) for module in modules if (file := getattr(module, "__file__", None))}
        folders = {Path(folder) for each in sys.modules if (folder := component_directory(each))}
        self._files.look_again({*files, *folders, *self._skill_folders, *self._pages, self._path})

    async def changed(self) -> None:
        """Wait until one of the files changes."""
        await self._files.changed()

    def _stamp(self, file: Path) -> Stamp:
        """Return the stamp of a file.

        For a folder of components or skills, those of its files.
        """
        if not file.is_dir():
            return stamp_of(file)
        try:
            return tuple(watched_files(str(file))) if file in self._skill_folders else component_files(file)
        except OSError:
            return None  # An editor that replaces a folder removes it for a moment.


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """Let handled signals interrupt the code inside; yield the list of received ones.

    Handlers of the loop run when the loop runs again, which is never if a file is imported for ever.
    """
    received: list[int] = []
    before: dict[int, Callable[[int, Any], Any]] = {}

    def interrupt(number: int, frame: Any) -> None:
        is_first = not received
        received.append(number)
        # The handler of the program notes the first signal, and ends the process at the second.
        before[number](number, frame)
        if is_first:
            raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is not None and callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number, handler in before.items():
            # The file may have installed a handler of its own, which stays.
            if signal.getsignal(number) is interrupt:
                signal.signal(number, handler)


def _installed() -> list[str]:
    return [
        *site.getsitepackages(),
        site.getusersitepackages(),
        sysconfig.get_paths()["stdlib"],
        server_file.OURS,
    ]


def _is_local(module: ModuleType | None) -> bool:
    """Return whether a module is the user's own.

    It is neither installed nor a part of Python or of this library.
    """
    file = getattr(module, "__file__", None)
    if not file:
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


def _awaited(error: BaseException | None) -> set[Path]:
    """Return the files of a page whose change, or whose coming, may mend what failed."""
    if isinstance(error, NotThere):
        return set(error.places)
    if isinstance(error, PageError):
        return {Path(file) for file in (error.file, error.missing) if file is not None}
    return set()


def _explained(trace: str, error: BaseException | None) -> LoadFailed:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return LoadFailed(f"{type(error).__name__}: {said}", trace, *where(error))


def where(error: BaseException | None) -> tuple[str | None, int | None, str | None]:
    """Find the last line of the user's code that an exception passed through.

    Returns file, number and text.

    A `ServerError` with a cause reports a component file that failed. Its line is that of the cause. Skills that cannot
    be served name a line of a SKILL.md.
    """
    if isinstance(error, SkillsError):
        first = error.problems[0]
        return first.file, None if first.position is None else first.position.line, None
    while isinstance(error, ServerError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno, (error.text or "").strip() or None
    return last_own([] if error is None else traceback.extract_tb(error.__traceback__))


def last_own(frames: Sequence[traceback.FrameSummary]) -> tuple[str | None, int | None, str | None]:
    """Find the last frame in the user's own code.

    Returns file, number and text of its line.
    """
    own = [frame for frame in frames if not frame.filename.startswith((*_installed(), "<"))]
    if not own:
        return None, None, None
    return own[-1].filename, own[-1].lineno, own[-1].line
