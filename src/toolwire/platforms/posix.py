"""The common part of POSIX systems: descriptors with readiness, process groups, waiting for a process.

The functions that `platforms/__init__.py` lists have the same names in every platform module.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from toolwire.wire.threads import call_after

# The type checker looks at every module. This tells it the system of this one.
assert sys.platform != "win32"

CHUNK: Final = 64 * 1024
POLL_SECONDS: Final = 1.0


class PipeEnd:
    """A non-blocking descriptor whose description belongs to this object alone.

    It holds a file object, so that the descriptor is closed even when `close` is not called.
    """

    __slots__ = ("_fd", "_file")

    def __init__(self, file: IO[bytes] | io.FileIO) -> None:
        self._file = file
        self._fd = file.fileno()

    def read(self) -> bytes:
        return os.read(self._fd, CHUNK)

    def write(self, data: bytes | memoryview) -> int:
        return os.write(self._fd, data)

    def unread(self) -> int | None:
        """Return the number of written bytes that are unread; None if unknown."""
        return None

    def watch_input(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object]) -> None:
        loop.add_reader(self._fd, ready)

    def unwatch_input(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._fd)

    def watch_output(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object]) -> None:
        loop.add_writer(self._fd, ready)

    def unwatch_output(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_writer(self._fd)

    def close(self) -> None:
        self._file.close()


def shared_end(fd: int, writing: bool) -> PipeEnd | None:
    """Return an end for a shared descriptor; None where a thread has to block.

    A non-blocking mode would hold for everybody who shares the description. So only a system that can give a private
    description returns an end.
    """
    return None


def own_end(file: IO[bytes]) -> PipeEnd | None:
    """Return an end for a pipe that this process made for itself."""
    os.set_blocking(file.fileno(), False)
    return PipeEnd(file)


def wait_ready(fd: int, writing: bool) -> None:
    """Block until a descriptor that another process made non-blocking is ready."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT if writing else select.POLLIN)
    poll.poll()


def binary(fd: int) -> None:
    """Do nothing: bytes pass unchanged on POSIX."""


def parent() -> int | None:
    """Return the id of the parent process; None if it has ended or is init."""
    pid = os.getppid()
    return pid if pid > 1 else None


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    """Call back on the loop when a process has ended, without reaping it.

    Returns a function that stops the watch.
    """
    if pid == os.getppid():
        return poll_parent(loop, pid, exited)
    return _wait_child(loop, pid, exited)


def poll_parent(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    """Poll the id of the parent, which works everywhere: an orphan gets another parent."""
    timer: asyncio.TimerHandle

    def check_parent() -> None:
        nonlocal timer
        if os.getppid() != pid:
            exited()
        else:
            timer = loop.call_later(POLL_SECONDS, check_parent)

    timer = loop.call_later(POLL_SECONDS, check_parent)
    return lambda: timer.cancel()


def _wait_child(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    def wait() -> None:
        if sys.platform != "darwin":
            try:
                # The child stays a zombie until its group has ended, so that no other process can get its id.
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                pass

    return call_after("exit watch", wait, loop, exited)


def peek_status(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit status of an ended child, without reaping it if possible."""
    if sys.platform == "darwin":
        return process.poll()
    try:
        result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return process.poll()
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def spawn_options() -> dict[str, Any]:
    """Return the arguments of `Popen` that give the child a process group of its own."""
    return {"start_new_session": True}


def resolve(command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Sequence[str] | str:
    """Return the arguments for `Popen`. The system finds and runs scripts by itself."""
    return command


class ProcessTree:
    """A child and every process that it started and that is still in its group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._group = process.pid

    def find_members(self) -> None:
        """Find members that left the group, while the child lives.

        Only some systems can find them.
        """

    def listening_ports(self) -> list[int]:
        """Return the TCP ports that processes of the tree listen on, if the system tells."""
        return []

    def memory(self) -> int | None:
        """Return the memory of the processes of the tree in bytes; None if unknown."""
        return None

    def let_go(self) -> None:
        """Release the descriptors of the members."""

    def terminate(self) -> bool:
        """Ask the group to end; return False where the system cannot ask."""
        self._signal(signal.SIGTERM)
        return True

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._group, number)
        except (ProcessLookupError, PermissionError):
            # No process is left, or only a zombie (which macOS reports as not permitted).
            pass


def try_lock(fd: int) -> bool:
    """Lock a file for this description alone; return False where another description has it locked.

    The system unlocks it when the last descriptor is closed, also when the process is killed.
    """
    import fcntl  # Some systems, such as Emscripten, have none.

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Unlock a file, also for a forked process that has inherited the descriptor."""
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_UN)
