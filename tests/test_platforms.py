"""What is special to a system stays in its module; those of other systems are run against imitations."""

from __future__ import annotations

import ast
import asyncio
import importlib
import pkgutil
import select
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

import toolwire
from toolwire import platforms
from toolwire.wire import threads

POSIX_ONLY = ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"]
PLATFORMS = ["darwin", "linux", "posix", "windows"]
PACKAGE = Path(toolwire.__file__).parent


@cases("missing", [*POSIX_ONLY, "all of them"])
def test_the_drivers_import_without(missing: str) -> None:
    blocked = POSIX_ONLY if missing == "all of them" else [missing]
    wire = ["byte_channel", "channel", "stdio", "byte_streams", "subprocess", "thread_workers", "process_workers"]
    mine = ["platforms", *(f"wire.{name}" for name in wire)]
    script = f"""
import sys
for name in {blocked!r}:
    sys.modules[name] = None
for name in {mine!r}:
    __import__("toolwire." + name)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_only_platform_modules_name_what_one_system_has() -> None:
    names = {"epoll", "kqueue", "kevent", "pidfd_open", "killpg", "waitid", "set_blocking", "WinDLL", "O_NONBLOCK"}
    modules = {*POSIX_ONLY, "msvcrt", "_winapi", "winreg"}
    for path in (PACKAGE / "wire").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in names, (path.name, node.attr)
            if isinstance(node, ast.Import):
                assert not modules & {alias.name for alias in node.names}, path.name
            if isinstance(node, ast.ImportFrom):
                assert node.module not in modules, path.name


def test_every_system_has_every_function() -> None:
    tree = ast.parse((PACKAGE / "platforms" / "windows.py").read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert set(platforms.__all__) <= defined
    assert all(hasattr(platforms, name) for name in platforms.__all__)


def test_every_platform_module_belongs_to_some_system() -> None:
    found = {module.name for module in pkgutil.iter_modules([str(PACKAGE / "platforms")])}
    assert found == set(PLATFORMS)


# --- the other systems, with their interfaces imitated


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a platform module as it would be on its system."""
    imported: list[str] = []

    def load(platform: str, name: str) -> types.ModuleType:
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setitem(sys.modules, "msvcrt", types.ModuleType("msvcrt"))
        full = f"toolwire.platforms.{name}"
        if full in sys.modules:
            return sys.modules[full]
        imported.append(full)
        return importlib.import_module(full)

    yield load
    for full in imported:
        del sys.modules[full]


class Queue:
    """As much of a kqueue as is used."""

    def __init__(self, failure: OSError | None) -> None:
        self.failure = failure
        self.exited = threading.Event()
        self.closed = False

    def control(self, changes: Any, count: int, timeout: float | None) -> list[Any]:
        if changes is not None and self.failure is not None:
            raise self.failure
        if changes is None:
            self.exited.wait()
        return []

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Queue:
    made = Queue(getattr(request, "param", None))
    monkeypatch.setattr(select, "kqueue", lambda: made, raising=False)
    monkeypatch.setattr(select, "kevent", lambda pid, **options: (pid, options), raising=False)
    for name in ("KQ_FILTER_PROC", "KQ_EV_ADD", "KQ_EV_ONESHOT", "KQ_NOTE_EXIT"):
        monkeypatch.setattr(select, name, 1, raising=False)
    return made


async def test_macos_waits_for_a_process_in_a_thread(pretend: Any, queue: Queue) -> None:
    darwin = pretend("darwin", "darwin")
    exited = asyncio.Event()
    darwin.watch_exit(asyncio.get_running_loop(), 4321, exited.set)
    assert not exited.is_set()
    queue.exited.set()
    await exited.wait()
    assert queue.closed


async def test_macos_stops_watching(pretend: Any, queue: Queue) -> None:
    darwin = pretend("darwin", "darwin")
    loop = asyncio.get_running_loop()
    calls: list[str] = []
    darwin.watch_exit(loop, 4321, lambda: calls.append("stopped"))()
    darwin.watch_exit(loop, 4321, lambda: calls.append("watched"))
    queue.exited.set()
    while not calls:
        await asyncio.sleep(0)
    assert calls == ["watched"]


@pytest.mark.parametrize("queue", [ProcessLookupError()], indirect=True)
async def test_macos_notices_a_process_that_is_already_gone(pretend: Any, queue: Queue) -> None:
    exited = asyncio.Event()
    pretend("darwin", "darwin").watch_exit(asyncio.get_running_loop(), 4321, exited.set)
    await exited.wait()
    assert queue.closed


@pytest.mark.parametrize("queue", [PermissionError()], indirect=True)
async def test_macos_polls_a_parent_it_may_not_watch(
    pretend: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    darwin = pretend("darwin", "darwin")
    monkeypatch.setattr(darwin.posix, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(darwin.posix.os, "getppid", lambda: 1)
    exited = asyncio.Event()
    darwin.watch_exit(asyncio.get_running_loop(), 4321, exited.set)
    await exited.wait()


def test_batch_files_get_a_command_line_that_their_interpreter_reads_as_meant(pretend: Any) -> None:
    windows = pretend("win32", "windows")
    line = windows.batch_command_line(["C:\\bin\\npx.cmd", "-y", "a b", "http://x/?a=1&b=2", "C:\\dir\\"])
    assert line == '"C:\\bin\\npx.cmd" "-y" "a b" "http://x/?a=1&b=2" "C:\\dir\\\\"'


@pytest.mark.parametrize("argument", ['"', "%PATH%", "!x!", "a\nb"])
def test_what_a_batch_file_could_run_is_refused(pretend: Any, argument: str) -> None:
    with pytest.raises(ValueError, match="cannot be passed to a batch file"):
        pretend("win32", "windows").batch_command_line(["npx.cmd", argument])


def test_names_are_found_with_their_extension_on_windows(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = pretend("win32", "windows")
    known = {"npx": "C:\\bin\\npx.CMD", "python": "C:\\bin\\python.exe"}
    paths: list[str | None] = []

    def which(name: str, path: str | None = None) -> str | None:
        paths.append(path)
        return known.get(name)

    monkeypatch.setattr(windows.shutil, "which", which)
    environment = {"Path": "C:\\bin"}
    assert windows.resolve(["npx", "-y"], environment, None) == '"C:\\bin\\npx.CMD" "-y"'
    assert windows.resolve(["python", "-V"], environment, None) == ["C:\\bin\\python.exe", "-V"]
    assert windows.resolve(["absent"], {}, None) == ["absent"]
    assert paths == ["C:\\bin", "C:\\bin", None]


class Kernel:
    """As much of kernel32 as is used."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.exited = threading.Event()
        self.alive = True

    def OpenProcess(self, access: int, inherit: bool, pid: int) -> int:
        return pid + 1000 if self.alive else 0

    def CloseHandle(self, handle: int) -> int:
        self.calls.append(("close", handle))
        return 1

    def WaitForSingleObject(self, handle: int, milliseconds: int) -> int:
        self.exited.wait()
        return 0

    def CreateJobObjectW(self, attributes: None, name: None) -> int:
        return 7

    def SetInformationJobObject(self, job: int, kind: int, data: Any, size: int) -> int:
        self.calls.append(("limits", (job, kind, data._obj.BasicLimitInformation.LimitFlags)))
        return 1

    def AssignProcessToJobObject(self, job: int, process: int) -> int:
        self.calls.append(("assign", (job, process)))
        return 1

    def TerminateJobObject(self, job: int, status: int) -> int:
        self.calls.append(("terminate", job))
        return 1


@pytest.fixture
def kernel(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    windows = pretend("win32", "windows")
    monkeypatch.setattr(windows, "_kernel", lambda: made)
    monkeypatch.setattr(windows, "_resume", lambda handle: made.calls.append(("resume", handle)))
    return made


def test_a_windows_child_joins_its_job_before_it_runs(pretend: Any, kernel: Kernel) -> None:
    windows = pretend("win32", "windows")
    tree = windows.ProcessTree(types.SimpleNamespace(_handle=55))
    assert kernel.calls == [("limits", (7, 9, 0x2000)), ("assign", (7, 55)), ("resume", 55)]
    assert tree.terminate() is False
    tree.kill()
    tree.kill()
    assert kernel.calls[3:] == [("terminate", 7), ("close", 7)]


async def test_windows_waits_for_a_process_by_its_handle(pretend: Any, kernel: Kernel) -> None:
    windows = pretend("win32", "windows")
    exited = asyncio.Event()
    windows.watch_exit(asyncio.get_running_loop(), 5, exited.set)
    kernel.exited.set()
    await exited.wait()
    assert kernel.calls == [("close", 1005)]
    kernel.alive = False
    gone = asyncio.Event()
    windows.watch_exit(asyncio.get_running_loop(), 5, gone.set)
    await gone.wait()


@pytest.mark.parametrize(("parent", "own", "watched"), [(10, 20, True), (30, 20, False), (0, 20, False)])
def test_a_windows_parent_must_be_older_than_its_child(
    pretend: Any, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, parent: int, own: int, watched: bool
) -> None:
    windows = pretend("win32", "windows")
    monkeypatch.setattr(windows.os, "getppid", lambda: 5)
    monkeypatch.setattr(windows, "_started", lambda handle: own if handle == -1 else parent)
    assert windows.parent() == (5 if watched else None)


def test_a_loop_that_has_gone_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert threads.hand_over(loop, print) is False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the ports of a process")
def test_file_that_is_closed_meanwhile_hides_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    linux: Any = importlib.import_module("toolwire.platforms.linux")
    closed = ["0"]

    def readlink(path: str) -> str:
        if path.rpartition("/")[2] in closed:
            raise FileNotFoundError(path)
        return f"socket:[{path.rpartition('/')[2]}]"

    monkeypatch.setattr(linux.os, "listdir", lambda folder: ["0", "1", "2"])
    monkeypatch.setattr(linux.os, "readlink", readlink)
    assert list(linux._sockets(1)) == ["socket:[1]", "socket:[2]"]
