"""Every module imports on a platform without POSIX: what only POSIX has is looked up at use, not at import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import cases
from tests.test_layers import SOURCES

# Runs in an interpreter of its own. The standard library and the third-party packages are loaded whole first; then what
# Windows lacks is hidden from our own modules, and each of them is imported.
PROBE = r"""
import asyncio, builtins, gc, importlib, json, multiprocessing, os, select, signal, socket, subprocess, sys
import jsonschema_rs, msgspec, pytest

gc.disable()
MODULES = set(json.loads(sys.argv[2]))
ATTRIBUTES = {
    os: ["fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "killpg", "mkfifo", "openpty", "pidfd_open",
         "posix_spawn", "set_blocking", "setpgid", "setsid", "uname", "waitid", "WNOHANG", "fchmod", "O_NONBLOCK"],
    select: ["epoll", "kevent", "kqueue", "poll"],
    signal: ["SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGCHLD", "SIGPIPE", "pthread_sigmask"],
    socket: ["AF_UNIX", "SCM_RIGHTS"],
}
for owner, names in ATTRIBUTES.items():
    for name in names:
        if len(MODULES) > 1 and hasattr(owner, name):
            delattr(owner, name)

real_import = builtins.__import__

def guarded_import(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if level == 0 and importer.startswith("toolwire") and name.partition(".")[0] in MODULES:
        raise ImportError(f"{name} does not exist here")
    return real_import(name, globals, locals, fromlist, level)

builtins.__import__ = guarded_import
failed = {}
for module in json.loads(sys.argv[1]):
    try:
        importlib.import_module(module)
    except BaseException as error:
        failed[module] = repr(error)
print(json.dumps(failed), flush=True)
os._exit(0)
"""


POSIX = [
    "_posixsubprocess",
    "crypt",
    "curses",
    "fcntl",
    "grp",
    "nis",
    "ossaudiodev",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "spwd",
    "syslog",
    "termios",
    "tty",
    "uvloop",
]


def is_for_one_platform(module: str) -> bool:
    """What lies in `platforms` says so by its name, and may need what only that platform has."""
    return module.startswith("toolwire.platforms.")


def modules() -> dict[str, Path]:
    return {name: path for name, path in SOURCES.items() if not name.endswith("__main__")}


def imported() -> list[str]:
    """Return those of POSIX that a module of ours imports, also in a function; others may be missing anyway."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in modules().values())
    lines = re.findall(r"^[ ]*(?:from|import) (.*)", source, re.MULTILINE)
    named = {name for line in lines for name in re.findall(r"(?:^|, )(\w+)", line)}
    return [name for name in POSIX if name in named]


IMPORTED = imported()


@pytest.mark.slow
@cases("missing", [POSIX, *([name] for name in IMPORTED)], ids=["all", *IMPORTED])
def test_every_module_imports_without_posix(missing: list[str]) -> None:
    """All of it gone, as on Windows, or one module, as in a Python that was built without it."""
    portable = [name for name in modules() if not is_for_one_platform(name)]
    command = [sys.executable, "-W", "error", "-c", PROBE, json.dumps(portable), json.dumps(missing)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_one_module_chooses_the_platform() -> None:
    """Everything else asks `platforms`, so a platform's module is never loaded on another platform."""
    choosers = {
        name
        for name, path in modules().items()
        if not is_for_one_platform(name) and "platforms" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom) and "toolwire.platforms." in ast.unparse(node)
    }
    assert choosers <= {"toolwire.platforms"}
