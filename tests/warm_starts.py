"""Starts `python -m toolwire` as a copy of a process that has imported it: the import takes most of a start.

The copy is a child of this process like any other, with its own memory, descriptors, environment and folder; only its
modules are there already. Tests start some six hundred of them. Any other program of Python starts so in tests that are
marked `warm_start`. What is about the start itself is marked `cold_start`, and `--all-cells` makes every start a real
one. Linux alone can make such copies.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import io
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Hashable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from itertools import takewhile
from types import CodeType
from typing import Any, Final, NoReturn

#: The system call `clone` by machine, and its flag that makes the copy a child of the parent.
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT: Final = 0x8000
#: The options of Python that a start may have.
_OPTIONS: Final = {"-P"}
#: The variables that Python reads when it starts.
_READ_EARLY: Final = ("PYTHON", "LANG", "LC_", "TZ")
#: The parameters of the method of `Popen` that starts a process.
_PARAMETERS: Final = [
    *("self", "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo"),
    *("creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"),
    *("restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group"),
]

# --- The side of the tests ---


class WarmStarts:
    """Makes `subprocess.Popen` start copies where that makes no difference to the started program."""

    def __init__(self) -> None:
        self.is_on = True
        #: Whether any program of Python starts so, and not `toolwire` alone.
        self.is_for_all = False
        self._originals: dict[Hashable, Original] = {}
        self._lock = threading.Lock()
        self._start_cold: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def install(self) -> None:
        """Use copies from now on, where this system and this Python can."""
        known = list(inspect.signature(self._start_cold).parameters) == _PARAMETERS
        if known and sys.platform == "linux" and platform.machine() in _CLONE:
            starts = self
            subprocess.Popen._execute_child = lambda *given: starts.start(*given)  # type: ignore[attr-defined]

    def start(self, *given: Any) -> None:
        """Start the program of a `Popen`, which is the first argument."""
        asked = dict(zip(_PARAMETERS, given, strict=True))
        options = find_options(asked, is_for_all=self.is_for_all) if self.is_on else None
        if options is None:
            self._start_cold(*given)
            return
        popen, variables = asked["self"], os.environ if asked["env"] is None else asked["env"]
        streams = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        kept = sorted(map(int, asked["pass_fds"]))
        order = {
            "words": [os.fspath(word) for word in asked["args"]],
            "folder": os.fspath(asked["cwd"] or os.getcwd()),
            "variables": dict(variables),
            "umask": read_umask(),
            "session": asked["start_new_session"],
            "kept": kept,
        }
        descriptors = [number if stream == -1 else stream for number, stream in enumerate(streams)]
        with self._lock:
            popen.pid = self._find_original(options, order).copy(order, [*descriptors, *kept])
        popen._child_created = True
        popen._close_pipe_fds(*(asked[name] for name in _PARAMETERS[11:17]))

    def _find_original(self, options: Sequence[str], order: Mapping[str, Any]) -> Original:
        words, variables = order["words"][len(options) + 1 :], order["variables"]
        # Most servers run over stdio: what ends with them has not to be more than they need.
        is_stdio = words[0] != "-m" or ("run" in words and "--transport" not in words)
        early = {name: value for name, value in variables.items() if name.startswith(_READ_EARLY)}
        key = (is_stdio, *options, *sorted(early.items()))
        if key not in self._originals:
            self._originals[key] = Original(options, early, is_stdio)
        return self._originals[key]

    def close(self) -> None:
        for each in self._originals.values():
            each.close()


def find_options(asked: Mapping[str, Any], *, is_for_all: bool) -> list[str] | None:
    """Return the options of Python with which a copy has to start; None for a program that starts as ever."""
    args, env = asked["args"], asked["env"]
    if not isinstance(args, list | tuple) or not all(isinstance(word, str | os.PathLike) for word in args):
        return None
    first, *words = [os.fspath(word) for word in args] or [""]
    options = list(takewhile(_OPTIONS.__contains__, words))
    kind, name = [*words[len(options) :], "", ""][:2]
    is_file = os.path.isfile(os.path.join(asked["cwd"] or "", kind))
    is_ours = (kind, name) == ("-m", "toolwire") or (is_for_all and (kind in ("-m", "-c") or is_file))
    is_plain = (
        first == sys.executable
        and asked["close_fds"]
        and asked["restore_signals"]
        and not asked["shell"]
        and asked["executable"] is None
        and asked["preexec_fn"] is None
        and asked["gid"] is asked["gids"] is asked["uid"] is None
        and asked["umask"] == asked["process_group"] == -1
        and (asked["cwd"] is None or os.path.isdir(asked["cwd"]))
    )
    variables = os.environ if env is None else env
    # Only those of the tests themselves: each combination needs an original.
    is_usual = all(
        isinstance(name, str)
        and isinstance(value, str)
        and (os.environ.get(name) == value or not name.startswith(_READ_EARLY))
        for name, value in variables.items()
    )
    return options if is_ours and is_plain and is_usual else None


def read_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


class Original:
    """The process that is copied."""

    def __init__(self, options: Sequence[str], variables: Mapping[str, str], is_stdio: bool) -> None:
        ours, theirs = socket.socketpair()
        code = f"import runpy; runpy.run_path({__file__!r})['serve']({theirs.fileno()}, {is_stdio})"
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, *options, "-c", code],
            executable=sys.executable,  # No copy starts so.
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), **variables},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def copy(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        """Return the process id of a copy that does what was ordered, with these descriptors as its first ones."""
        text = json.dumps(order).encode()
        socket.send_fds(self._socket, [len(text).to_bytes(8, "big")], list(descriptors))
        self._socket.sendall(text)
        answer = self._socket.recv(8, socket.MSG_WAITALL)
        assert len(answer) == 8, "the process that is copied has ended"
        return int.from_bytes(answer, "big")

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


# --- The side of the original ---


def serve(descriptor: int, is_stdio: bool) -> NoReturn:
    """Make copies of this process until the tests end. It has one thread."""
    import_everything(is_stdio)
    orders = socket.socket(fileno=descriptor)
    while True:
        size, descriptors, _, _ = socket.recv_fds(orders, 8, 64)
        if not size:
            os._exit(0)
        order = json.loads(orders.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        pid = fork_sibling()
        if pid == 0:
            orders.detach()
            become(order, descriptors)
        for each in descriptors:
            os.close(each)
        orders.sendall(pid.to_bytes(8, "big"))


def import_everything(is_stdio: bool) -> None:
    """Import what a server over stdio needs, or what all commands need."""
    from toolwire.cli import COMMANDS

    commands = ["run"] if is_stdio else [home for home, _ in COMMANDS.values()]
    for name in ("cli.parsing", "cli.hosted_file", *(f"cli.{each}" for each in commands), "server.server"):
        import_module(f"toolwire.{name}")
    for name in ("uvloop",) if is_stdio else ("uvloop", "uvicorn", "toolwire.http.asgi"):
        import_module(name)
    gc.collect()
    gc.freeze()


def fork_sibling() -> int:
    """Fork as `os.fork` does, but make the copy a child of this process's parent."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)
    system.syscall.argtypes, system.syscall.restype = [ctypes.c_long] * 6, ctypes.c_long
    python.PyOS_BeforeFork()
    pid: int = system.syscall(_CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def become(order: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Turn this copy into the program, and end."""
    import fcntl

    # First out of the way of the numbers that they are to have.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 1000) for each in descriptors]
    wanted = [0, 1, 2, *order["kept"]]
    for source, number in zip(high, wanted, strict=True):
        os.dup2(source, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in wanted:
            try:
                os.close(number)
            except OSError:
                pass  # That of the list itself.
    if order["session"]:
        os.setsid()
    os.umask(order["umask"])
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["variables"])
    open_streams()
    words = order["words"]
    sys.orig_argv = list(words)
    while words[1] in _OPTIONS:
        del words[1]
    run_program(*words[1:])
    sys.exit()


def run_program(kind: str, *words: str) -> None:
    """Run `-m MODULE`, `-c CODE` or a file as Python runs them."""
    import __main__

    is_module, is_code = kind == "-m", kind == "-c"
    sys.argv = [kind, *(words[1:] if is_module or is_code else words)]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd() if is_module else "" if is_code else os.path.dirname(os.path.realpath(kind))
    kept = {name: value for name, value in vars(__main__).items() if name.startswith("__")}
    vars(__main__).clear()
    vars(__main__).update(kept)
    if is_module:
        runpy._run_module_as_main(words[0])  # type: ignore[attr-defined]
    elif is_code:
        run_code(compile(words[0], "<string>", "exec", dont_inherit=True))
    else:
        path = os.path.abspath(kind)
        loader = SourceFileLoader("__main__", path)
        vars(__main__).update(__file__=path, __cached__=None, __loader__=loader)
        run_code(compile(loader.get_data(path), path, "exec", dont_inherit=True))


def run_code(code: CodeType) -> None:
    """Run the code of the program. The traceback of an error begins there."""
    try:
        exec(code, vars(sys.modules["__main__"]))
    except Exception as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def open_streams() -> None:
    """Open the standard streams as Python does when it starts."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__")
        file = io.FileIO(number, "w" if number else "r", closefd=False)
        buffer: Any = io.BufferedReader(file) if number == 0 else file if is_unbuffered else io.BufferedWriter(file)
        stream = io.TextIOWrapper(
            buffer,
            before.encoding,
            before.errors,
            newline="\n",
            line_buffering=not is_unbuffered and (number == 2 or file.isatty()),
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
