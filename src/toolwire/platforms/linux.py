"""The Linux versions: private descriptions of pipes, nested epoll, process descriptors."""

from __future__ import annotations

import asyncio
import io
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Literal, NamedTuple

from toolwire.platforms import posix

assert sys.platform == "linux"

# Opening this device makes a new terminal instead of a second description of the same one.
TERMINAL_MULTIPLEXER = (5, 2)
# The number of processes that are searched for members of a tree, and of members that are held.
MAX_PROCESSES = 10_000
MAX_STRAYS = 1_000
MAX_FILES = 1_000


class PipeEnd(posix.PipeEnd):
    """The end of a pipe that can tell how much is in the pipe."""

    __slots__ = ()

    def unread(self) -> int | None:
        return _amount(self._fd, "FIONREAD")


class SocketEnd:
    """A socket that other processes may hold, too.

    It is never made non-blocking; each call says that it must not wait.

    Readiness comes from an epoll instance of our own. A loop built on libuv makes every descriptor it watches
    non-blocking. This way it watches only the epoll descriptor.
    """

    __slots__ = ("_epoll", "_socket")

    def __init__(self, shared: socket.socket, writing: bool) -> None:
        self._socket = shared
        self._epoll = select.epoll()
        self._epoll.register(shared.fileno(), select.EPOLLOUT if writing else select.EPOLLIN)

    def read(self) -> bytes:
        return self._socket.recv(posix.CHUNK, socket.MSG_DONTWAIT)

    def write(self, data: bytes | memoryview) -> int:
        return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def unread(self) -> int | None:
        # unix(7) SIOCOUTQ, which has the same number: bytes that are not read count as not sent.
        return _amount(self._socket.fileno(), "TIOCOUTQ")

    def watch_input(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], object]) -> None:
        loop.add_reader(self._epoll.fileno(), ready)

    def unwatch_input(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._epoll.fileno())

    # An epoll descriptor is readable when its event has come, also when that event is room to write.
    watch_output = watch_input
    unwatch_output = unwatch_input

    def close(self) -> None:
        self._epoll.close()
        self._socket.close()


def shared_end(fd: int, writing: bool) -> posix.PipeEnd | SocketEnd | None:
    """Return an end for a shared descriptor; None where a thread has to block."""
    status = os.fstat(fd)
    if stat.S_ISSOCK(status.st_mode):
        return _socket_end(fd, writing)
    if stat.S_ISFIFO(status.st_mode) or _is_terminal(fd, status):
        access = os.O_WRONLY if writing else os.O_RDONLY
        try:
            private = os.open(f"/proc/self/fd/{fd}", access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            # It is another user's pipe, or there is no /proc.
            return None
        # A terminal would report the number of typed bytes.
        end = PipeEnd if stat.S_ISFIFO(status.st_mode) else posix.PipeEnd
        return end(io.FileIO(private, "wb" if writing else "rb"))
    # Files and the null device are always ready and cannot be watched. libuv aborts the process on such a request.
    return None


def own_end(file: IO[bytes]) -> PipeEnd:
    """Return an end for a pipe that this process made for itself."""
    os.set_blocking(file.fileno(), False)
    return PipeEnd(file)


def _amount(descriptor: int, question: Literal["FIONREAD", "TIOCOUTQ"]) -> int | None:
    """Ask the kernel for a number of bytes."""
    # Imported here because only servers on stdio that report progress need it.
    import fcntl
    import termios

    answer = bytearray(4)
    try:
        fcntl.ioctl(descriptor, getattr(termios, question), answer)
    except OSError:
        return None
    return int.from_bytes(answer, sys.byteorder)


def _is_terminal(fd: int, status: os.stat_result) -> bool:
    if not stat.S_ISCHR(status.st_mode) or not os.isatty(fd):
        return False
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) != TERMINAL_MULTIPLEXER


def _socket_end(fd: int, writing: bool) -> SocketEnd | None:
    default = socket.getdefaulttimeout()
    # With a default timeout the constructor would make the shared description non-blocking.
    socket.setdefaulttimeout(None)
    try:
        shared = socket.socket(fileno=os.dup(fd))
    finally:
        socket.setdefaulttimeout(default)
    if shared.type != socket.SOCK_STREAM:
        shared.close()
        return None
    return SocketEnd(shared, writing)


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    """Call back on the loop when a process has ended, without reaping it.

    Returns a function that stops the watch.
    """
    # Not PR_SET_PDEATHSIG, which reports the end of the thread that started us, not of the process.
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(exited).cancel
    except OSError:
        return posix.watch_exit(loop, pid, exited)

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            descriptor = -1

    def ended() -> None:
        stop()
        exited()

    loop.add_reader(descriptor, ended)
    return stop


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int
    # The start time and the id together identify one process for ever.
    started: int


class ProcessTree(posix.ProcessTree):
    """A child and every process that it started, also those in other sessions (`setsid`).

    Such a process is found by its parents, so only while they live. A daemon, whose parent has left it on purpose,
    belongs to no tree.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self._strays: dict[_Process, int] = {}

    def find_members(self) -> None:
        """Find members that left the group, while the child lives."""
        children: dict[int, list[_Process]] = {}
        for process in _processes():
            children.setdefault(process.parent, []).append(process)
        parents = [self._group]
        while parents:
            for process in children.pop(parents.pop(), ()):
                parents.append(process.pid)
                if process.group != self._group and process not in self._strays and len(self._strays) < MAX_STRAYS:
                    self._hold(process)

    def listening_ports(self) -> list[int]:
        """Return the TCP ports that processes of the tree listen on."""
        sockets = {name for pid in self._find_members() for name in _sockets(pid)}
        return sorted({port for port, inode in _listening() if f"socket:[{inode}]" in sockets})

    def memory(self) -> int | None:
        sizes = [size for pid in self._find_members() if (size := _memory(pid)) is not None]
        return sum(sizes) if sizes else None

    def _find_members(self) -> list[int]:
        self.find_members()
        pids = [process.pid for process in _processes() if process.group == self._group]
        return [*pids, *(each.pid for each in self._strays)]

    def _hold(self, process: _Process) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return
        found = _process(process.pid)
        if found is not None and found.started == process.started:
            self._strays[process] = descriptor
        else:
            # It ended meanwhile, and another process may have its id.
            os.close(descriptor)

    def _signal(self, number: signal.Signals) -> None:
        super()._signal(number)
        for descriptor in self._strays.values():
            try:
                signal.pidfd_send_signal(descriptor, number)
            except (ProcessLookupError, PermissionError):
                pass

    def let_go(self) -> None:
        """Release the descriptors of the members."""
        strays, self._strays = self._strays, {}
        for descriptor in strays.values():
            os.close(descriptor)


def _memory(pid: int) -> int | None:
    """Return the resident memory of a process in bytes; None for one that has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported for it
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def _sockets(pid: int) -> Iterator[str]:
    """Yield the names of a process's open files; none for another user's process."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)[:MAX_FILES]  # noqa: PTH208 - the names are all that is needed
    except OSError:
        return
    for name in names:
        try:
            found = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - no file that could be opened
        except OSError:
            continue  # It was closed meanwhile.
        yield found


def _listening() -> Iterator[tuple[int, str]]:
    """Return the ports of TCP sockets that listen, with the inodes of the sockets."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported for it
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            # proc_net(5): the local address, the remote one, the state (0A is LISTEN); the inode is the tenth field.
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A":
                yield int(fields[1].rpartition(":")[2], 16), fields[9]


def _processes() -> Iterator[_Process]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - the names are all that is needed
    except OSError:
        return
    for name in [name for name in names if name.isdigit()][:MAX_PROCESSES]:
        process = _process(int(name))
        if process is not None:
            yield process


def _process(pid: int) -> _Process | None:
    """Return the kernel's data about a process; None when there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # proc_pid_stat(5): the name in brackets may hold anything. The state, the parent and the group follow it.
    fields = status.rpartition(b")")[2].split()
    return _Process(pid, int(fields[1]), int(fields[2]), int(fields[19])) if len(fields) > 19 else None
