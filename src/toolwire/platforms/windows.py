"""The Windows versions: pipes without readiness, process handles, job objects."""

from __future__ import annotations

import asyncio
import errno
import msvcrt
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from toolwire.wire.threads import call_after

# The type checker looks at every module. This tells it the system of this one.
assert sys.platform == "win32"

SYNCHRONIZE: Final = 0x00100000
QUERY_LIMITED_INFORMATION: Final = 0x1000
INFINITE: Final = 0xFFFFFFFF
CREATE_SUSPENDED: Final = 0x00000004
EXTENDED_LIMIT_INFORMATION: Final = 9
KILL_ON_JOB_CLOSE: Final = 0x00002000
# The command interpreter expands these characters, or ends at them, even inside quotes.
NOT_FOR_BATCH_FILES: Final = '"%!\r\n\0'


def shared_end(fd: int, writing: bool) -> Any:
    """Return None: a thread has to block, since Windows has no readiness for pipes."""
    return None


def own_end(file: IO[bytes]) -> Any:
    """Return None: a thread blocks on each pipe, as in `shared_end`."""
    return None


def wait_ready(fd: int, writing: bool) -> None:
    """Do nothing: no descriptor is non-blocking here."""


def binary(fd: int) -> None:
    """Make the C library pass line ends unchanged."""
    msvcrt.setmode(fd, os.O_BINARY)


def parent() -> int | None:
    """Return the id of the parent process; None when it has ended.

    Another process may have its id then.
    """
    pid = os.getppid()
    handle = _open(pid)
    if handle is None:
        return None
    try:
        # -1 is the handle of this process.
        return pid if 0 < _started(handle) <= _started(-1) else None
    finally:
        _kernel().CloseHandle(handle)


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    """Call back on the loop when a process has ended.

    Returns a function that stops the watch.
    """
    handle = _open(pid)
    if handle is None:
        return loop.call_soon(exited).cancel

    def wait() -> None:
        kernel = _kernel()
        kernel.WaitForSingleObject(handle, INFINITE)
        kernel.CloseHandle(handle)

    return call_after("exit watch", wait, loop, exited)


def peek_status(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit status of an ended child. On Windows, asking does not reap it."""
    return process.poll()


def spawn_options() -> dict[str, Any]:
    """Return the arguments of `Popen`.

    The child starts suspended, so that it is in its job before it runs.
    """
    return {"creationflags": CREATE_SUSPENDED | subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}


def resolve(command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Sequence[str] | str:
    """Return the arguments for `Popen`.

    `npx` is `npx.cmd` here, which only a full command line can start.
    """
    path = next((value for name, value in env.items() if name.upper() == "PATH"), None)
    found = shutil.which(command[0], path=path) or command[0]
    if found.lower().endswith((".cmd", ".bat")):
        return batch_command_line([found, *command[1:]])
    return [found, *command[1:]]


def batch_command_line(command: Sequence[str]) -> str:
    """Return the command line of a batch file, by the rules of the command interpreter."""
    for part in command:
        if any(character in part for character in NOT_FOR_BATCH_FILES):
            raise ValueError(f'{part!r} cannot be passed to a batch file: it contains one of " % ! or a line break')
    # Inside quotes the interpreter leaves & | < > ^ alone. A backslash before the last quote would hide the quote.
    return " ".join(f'"{part}{_trailing_backslashes(part)}"' for part in command)


def _trailing_backslashes(part: str) -> str:
    return "\\" * (len(part) - len(part.rstrip("\\")))


class ProcessTree:
    """A child and every process that it started: the members of one job."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._job = _new_job()
        handle = int(getattr(process, "_handle"))  # noqa: B009 - the type stubs do not know it
        _kernel().AssignProcessToJobObject(self._job, handle)
        _resume(handle)

    def find_members(self) -> None:
        """Do nothing: no process leaves a job."""

    def listening_ports(self) -> list[int]:
        """Return nothing: the system does not tell without another program."""
        return []

    def memory(self) -> int | None:
        """Return None: the system does not tell without another program."""
        return None

    def let_go(self) -> None:
        """Do nothing: killing the job has released it."""

    def terminate(self) -> bool:
        """Return False: a process without a window cannot be asked to end."""
        return False

    def kill(self) -> None:
        """End every member; closing the job would do the same."""
        if self._job:
            kernel = _kernel()
            kernel.TerminateJobObject(self._job, 1)
            kernel.CloseHandle(self._job)
            self._job = 0


def _kernel() -> Any:
    import ctypes
    from ctypes import wintypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    handle, number = wintypes.HANDLE, wintypes.DWORD
    for name, result, arguments in (
        ("OpenProcess", handle, (number, wintypes.BOOL, number)),
        ("CloseHandle", wintypes.BOOL, (handle,)),
        ("WaitForSingleObject", number, (handle, number)),
        ("GetProcessTimes", wintypes.BOOL, (handle, *(ctypes.c_void_p,) * 4)),
        ("CreateJobObjectW", handle, (ctypes.c_void_p, wintypes.LPCWSTR)),
        ("SetInformationJobObject", wintypes.BOOL, (handle, ctypes.c_int, ctypes.c_void_p, number)),
        ("AssignProcessToJobObject", wintypes.BOOL, (handle, handle)),
        ("TerminateJobObject", wintypes.BOOL, (handle, wintypes.UINT)),
    ):
        function = getattr(kernel, name)
        function.restype, function.argtypes = result, list(arguments)
    return kernel


def _open(pid: int) -> int | None:
    handle = _kernel().OpenProcess(SYNCHRONIZE | QUERY_LIMITED_INFORMATION, False, pid)
    return int(handle) if handle else None


def _started(handle: int) -> int:
    """Return the creation time of a process in the system's units; 0 if unknown."""
    import ctypes

    times = [ctypes.c_uint64() for _ in range(4)]
    if not _kernel().GetProcessTimes(handle, *(ctypes.byref(time) for time in times)):
        return 0
    return times[0].value


def _resume(handle: int) -> None:
    import ctypes
    from ctypes import wintypes

    # Popen keeps the process but not its first thread, which the documented function needs.
    resume = ctypes.WinDLL("ntdll").NtResumeProcess
    resume.argtypes = [wintypes.HANDLE]
    resume(handle)


def _new_job() -> int:
    """Make a job that ends its members when its last handle is closed.

    That happens also when this process is killed.
    """
    import ctypes

    class BasicLimits(ctypes.Structure):
        _fields_ = [
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", ctypes.c_uint32),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", ctypes.c_uint32),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", ctypes.c_uint32),
            ("SchedulingClass", ctypes.c_uint32),
        ]

    class ExtendedLimits(ctypes.Structure):
        _fields_ = [
            ("BasicLimitInformation", BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        ]

    kernel = _kernel()
    job = kernel.CreateJobObjectW(None, None)
    limits = ExtendedLimits()
    limits.BasicLimitInformation.LimitFlags = KILL_ON_JOB_CLOSE
    kernel.SetInformationJobObject(job, EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits))
    return int(job or 0)


def try_lock(fd: int) -> bool:
    """Lock the first byte of a file; return False if another handle has it locked.

    The system unlocks it when the handle is closed, also when the process is killed.
    """
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def unlock(fd: int) -> None:
    """Unlock the first byte of a file."""
    os.lseek(fd, 0, os.SEEK_SET)
    msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
