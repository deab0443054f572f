"""The server's stdio over real pipes, sockets, files, terminals, the null device and closed descriptors."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.wire.loops import ECHO, MAIN, Run

from toolwire import platforms
from toolwire.wire.stdio import StdioChannel, parent_watch, signals

pytestmark = [
    pytest.mark.warm_start,
    pytest.mark.skipif(sys.platform == "win32", reason="descriptors are passed the POSIX way here"),
]


def null() -> int:
    return os.open(os.devnull, os.O_RDWR)


def start(script: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *args], **options)


def read_all(fd: int) -> bytes:
    chunks = []
    while chunk := _read(fd):
        chunks.append(chunk)
    os.close(fd)
    return b"".join(chunks)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # how a terminal says that the other side is gone
        return b""


def input_of_kind(kind: str, directory: Path) -> tuple[int, Callable[[], object]]:
    """A descriptor to read from, and a call that sends two lines to it and ends it."""
    if kind == "pipe":
        given, other = os.pipe()
        return given, lambda: (os.write(other, b"a\nb\n"), os.close(other))
    if kind == "socket":
        left, right = socket.socketpair()
        return left.detach(), lambda: (right.sendall(b"a\nb\n"), right.close())
    if kind == "file":
        (directory / "in").write_bytes(b"a\nb\n")
        return os.open(directory / "in", os.O_RDONLY), lambda: None
    if kind == "terminal":
        other, given = os.openpty()
        return given, lambda: os.write(other, b"a\nb\n\x04")
    return null(), lambda: None


def output_of_kind(kind: str, directory: Path) -> tuple[int, Callable[[], bytes]]:
    """A descriptor to write to, and a call that gives what was written."""
    if kind == "pipe":
        other, given = os.pipe()
        return given, lambda: read_all(other)
    if kind == "socket":
        left, right = socket.socketpair()
        return left.detach(), lambda: read_all(right.detach())
    if kind == "file":
        return os.open(directory / "out", os.O_WRONLY | os.O_CREAT), (directory / "out").read_bytes
    if kind == "terminal":
        other, given = os.openpty()
        return given, lambda: read_all(other).replace(b"\r\n", b"\n")
    return null(), lambda: b""


# --- every kind of standard input and output ---


@pytest.mark.covers("STD-1", "J89", "3.1.1")
@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "null", "terminal", "closed"])
def test_standard_input_may_be(kind: str, loop_name: str, tmp_path: Path) -> None:
    given, feed = input_of_kind(kind, tmp_path)
    script = ["sh", "-c", 'exec "$@" <&-', "sh"] if kind == "closed" else []
    command = [*script, sys.executable, "-c", ECHO, loop_name]
    with subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        os.close(given)
        feed()
        output, errors = child.communicate()
    assert errors == b""
    assert child.returncode == 0
    assert output == (b"" if kind in ("null", "closed") else b"echo a\necho b\n")


@pytest.mark.covers("STD-1", "J89")
@pytest.mark.parametrize("kind", ["pipe", "socket", "file", "null", "terminal", "closed"])
def test_standard_output_may_be(kind: str, loop_name: str, tmp_path: Path) -> None:
    given, collect = output_of_kind(kind, tmp_path)
    script = ["sh", "-c", 'exec "$@" >&-', "sh"] if kind == "closed" else []
    command = [*script, sys.executable, "-c", ECHO, loop_name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=given, stderr=subprocess.PIPE) as child:
        os.close(given)
        _, errors = child.communicate(b"a\nb\n")
    assert errors == b""
    assert child.returncode == 0
    assert collect() == (b"" if kind in ("null", "closed") else b"echo a\necho b\n")


@pytest.mark.parametrize("closed", ["<&- >&-", "2>&-", "<&- >&- 2>&-", "<&- 2>&-"])
def test_closed_descriptors_do_no_harm(closed: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", ECHO, "asyncio"]
    done = subprocess.run(command, input=b"a\n", capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stdout == (b"echo a\n" if closed == "2>&-" else b"")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems use threads")
def test_pipes_sockets_and_terminals_need_no_thread_on_linux(run: Run[Any]) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        master, terminal = os.openpty()
        pipes = os.pipe()
        before = threading.active_count()
        for source, sink in ((pipes[0], pipes[1]), (left.fileno(), right.fileno()), (terminal, terminal)):
            channel = StdioChannel(source, sink)
            await channel.connect()
            assert threading.active_count() == before
            await channel.close()
        for fd in (*pipes, master, terminal):
            os.close(fd)
        left.close()
        right.close()

    run(main())


def test_the_master_of_a_terminal_is_not_opened_anew(run: Run[Any]) -> None:
    # Opening it again would make another terminal, and the messages would never come.
    import tty

    async def main() -> None:
        master, terminal = os.openpty()
        tty.setraw(terminal)
        channel = StdioChannel(master, master)
        os.write(terminal, b"hello\n")
        assert await channel.read() == b"hello"
        channel.write(b"back")
        await channel.flush()
        assert os.read(terminal, 100) == b"back\n"
        os.close(terminal)
        assert await channel.read() is None
        await channel.close()
        os.close(master)

    run(main())


def test_threads_serve_what_can_not_be_watched_and_are_daemons(
    run: Run[Any], monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(platforms, "shared_end", lambda fd, writing: None)

    async def main() -> None:
        reading, writing = os.pipe()
        channel = StdioChannel(pipe[0], writing)
        os.write(pipe[1], b"one\ntwo\n")
        assert [await channel.read(), await channel.read()] == [b"one", b"two"]
        mine = [thread for thread in threading.enumerate() if thread.name.startswith("toolwire")]
        assert mine
        assert all(thread.daemon for thread in mine)
        channel.write(b"x" * 3_000_000)
        size = 0
        while size < 3_000_001:
            size += len(await asyncio.to_thread(os.read, reading, 1 << 20))
        await channel.flush()
        os.close(pipe[1])
        assert await channel.read() is None
        await channel.close()
        os.close(reading)
        os.close(writing)

    run(main())


def test_a_thread_copes_with_a_descriptor_that_somebody_made_non_blocking(
    run: Run[Any], monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(platforms, "shared_end", lambda fd, writing: None)
    for fd in pipe:
        os.set_blocking(fd, False)

    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1])
        reading = asyncio.ensure_future(channel.read())
        channel.write(b"x" * 1_000_000)
        assert await reading == b"x" * 1_000_000
        await channel.close()

    run(main())


@pytest.mark.covers("J89")
async def test_streams_in_memory_can_be_injected() -> None:
    output = io.BytesIO()
    channel = StdioChannel(io.BytesIO(b"one\n\n\ntwo"), output)
    messages = []
    while (message := await channel.read()) is not None:
        messages.append(message)
        channel.write(message.upper())
    await channel.close()
    assert messages == [b"one", b"two"]
    assert output.getvalue() == b"ONE\nTWO\n"


@pytest.mark.covers("J89")
async def test_streams_in_memory_stay_open_when_the_threads_of_a_channel_end() -> None:
    before = set(threading.enumerate())
    source, output = io.BytesIO(b""), io.BytesIO()
    channel = StdioChannel(source, output)
    channel.write(b"one")
    await channel.flush()
    started = set(threading.enumerate()) - before
    assert started
    await channel.close()
    for thread in started:
        await asyncio.to_thread(thread.join)
    assert not source.closed
    assert not output.closed


@pytest.mark.covers("J89")
async def test_buffered_output_is_flushed_with_each_message() -> None:
    class Buffered(io.BytesIO):
        flushed = b""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    output = Buffered()
    channel = StdioChannel(io.BytesIO(b""), output)  # type: ignore[arg-type]
    channel.write(b"one")
    await channel.flush()
    assert output.flushed == b"one\n"
    await channel.close()


@pytest.mark.covers("J89")
def test_what_was_given_is_not_closed(run: Run[Any], pipe: tuple[int, int], tmp_path: Path) -> None:
    async def main() -> None:
        with open(tmp_path / "file", "w+b") as file:
            for source, sink in ((pipe[0], pipe[1]), (file.fileno(), file.fileno())):
                channel = StdioChannel(source, sink)
                await channel.connect()
                await channel.close()
                os.fstat(source)
                os.fstat(sink)
            assert not file.closed

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="counts the entries of /proc/self/fd")
def test_no_descriptor_is_left_behind(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(3):
            for source, sink in ((pipe[0], pipe[1]), (left.fileno(), left.fileno())):
                channel = StdioChannel(source, sink)
                await channel.connect()
                await channel.close()
        # Threads of earlier tests may close theirs meanwhile, so only new ones count.
        assert set(os.listdir("/proc/self/fd")) - before == set()
        left.close()
        right.close()

    run(main())


# --- descriptions that others share ---


def test_shared_descriptions_stay_blocking(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        other = os.pipe()
        left, right = socket.socketpair()
        socket.setdefaulttimeout(5)
        try:
            channels = [StdioChannel(pipe[0], other[1]), StdioChannel(left.fileno(), left.fileno())]
            os.write(pipe[1], b"a\n")
            right.sendall(b"a\n")
            for channel in channels:
                assert await channel.read() == b"a"
                # Long enough to have to wait for room.
                channel.write(b"x" * 500_000)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            for fd in (pipe[0], pipe[1], other[0], other[1], left.fileno(), right.fileno()):
                assert os.get_blocking(fd), fd
            for channel, fd in zip(channels, (other[0], right.fileno()), strict=True):
                closing = asyncio.ensure_future(channel.close())
                size = 0
                while size < 500_001:
                    size += len(await asyncio.to_thread(os.read, fd, 65536))
                await closing
            for fd in (pipe[0], other[1], left.fileno()):
                assert os.get_blocking(fd), fd
        finally:
            socket.setdefaulttimeout(None)
            for fd in other:
                os.close(fd)
            left.close()
            right.close()

    run(main())


def test_a_parent_that_keeps_its_copies_sees_them_unchanged(loop_name: str, pipe: tuple[int, int]) -> None:
    out_read, out_write = os.pipe()
    child = start(ECHO, loop_name, stdin=pipe[0], stdout=out_write)
    os.write(pipe[1], b"a\n")
    assert os.read(out_read, 100) == b"echo a\n"
    assert os.get_blocking(pipe[0])
    assert os.get_blocking(out_write)
    os.close(pipe[1])
    assert child.wait() == 0
    os.close(out_read)
    os.close(out_write)


# --- claiming ---


@pytest.mark.covers("STD-2", "3.1.2")
def test_nothing_but_the_channel_reaches_the_client() -> None:
    script = """
import asyncio, os, subprocess, sys
print("printed before")
from toolwire.wire.stdio import StdioChannel, claim
assert claim() == claim()
for fd in claim():
    assert not os.get_inheritable(fd)
async def main():
    channel = StdioChannel()
    print("printed")
    os.write(1, b"written\\n")
    os.system("echo from a shell")
    subprocess.run([sys.executable, "-c", "print('from a child')"])
    taken = subprocess.run(["cat"], stdout=subprocess.PIPE).stdout + sys.stdin.buffer.read()
    channel.write(b"taken %d" % len(taken))
    channel.write(await channel.read())
    await channel.close()
asyncio.run(main())
"""
    # Printed text waits in a buffer, as it does unless the user asked for something else.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, input=b"mine\n", capture_output=True, check=True, env=env)
    assert done.stdout == b"taken 0\nmine\n"
    lines = done.stderr.decode().splitlines()
    assert sorted(lines) == ["from a child", "from a shell", "printed", "printed before", "written"]


def test_a_file_that_took_the_number_of_a_closed_descriptor_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content\n")
    script = f"""
import os
fd = os.open({str(tmp_path / "file")!r}, os.O_RDONLY)
assert fd == 0
from toolwire.wire.stdio import claim
assert claim().input is None
assert os.read(0, 100) == b"content\\n"
"""
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", script]
    assert subprocess.run(command, check=False).returncode == 0


# --- when to stop ---


@pytest.mark.covers("STD-11")
def test_the_end_of_input_ends_a_waiting_read(loop_name: str) -> None:
    child = start(ECHO, loop_name, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = child.communicate(b"")
    assert (child.returncode, output) == (0, b"")


ORPHAN = (
    MAIN
    + """
from toolwire.wire.stdio import parent_watch
async def main():
    report = int(sys.argv[2])
    died = asyncio.Event()
    parent_watch(died.set)
    os.write(report, b"watching\\n")
    await died.wait()
    os.write(report, b"orphaned\\n")
run(main)
"""
)


# Starts the watcher in a thread that ends at once: only the death of the process may count.
MIDDLE = """
import subprocess, sys, threading
script, loop, report = sys.argv[1:]
thread = threading.Thread(target=subprocess.Popen, args=([sys.executable, "-c", script, loop, report],),
                          kwargs={"pass_fds": [int(report)]})
thread.start()
thread.join()
print("thread ended", flush=True)
sys.stdin.read()
"""


def test_the_death_of_the_parent_is_noticed_though_input_stays_open(loop_name: str, pipe: tuple[int, int]) -> None:
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": [pipe[1]]}
    middle = start(MIDDLE, ORPHAN, loop_name, str(pipe[1]), **options)
    os.close(pipe[1])
    with open(pipe[0], "rb", closefd=False) as report:
        assert middle.stdout is not None and middle.stdin is not None
        assert middle.stdout.readline() == b"thread ended\n"
        assert report.readline() == b"watching\n"
        middle.kill()
        assert report.readline() == b"orphaned\n"
        assert report.read() == b""
    middle.wait()
    middle.stdout.close()
    middle.stdin.close()


async def test_there_is_no_watch_without_a_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("watched")

    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(platforms, "watch_exit", refuse)
    parent_watch(lambda: None)()


async def test_a_parent_that_dies_during_set_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([os.getpid(), 1])
    monkeypatch.setattr(os, "getppid", lambda: next(answers))
    died = asyncio.Event()
    parent_watch(died.set)
    await died.wait()


async def test_polling_notices_a_new_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolwire.platforms import posix

    monkeypatch.setattr(posix, "POLL_SECONDS", 0.001)
    answers = iter([7, 7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(answers))
    died = asyncio.Event()
    posix.watch_exit(asyncio.get_running_loop(), 7, died.set)
    await died.wait()


SIGNALLED = (
    MAIN
    + """
from toolwire.wire.stdio import StdioChannel, signals
async def main():
    stopped = asyncio.Event()
    channel = StdioChannel()
    calls = []
    def stop():
        calls.append(1)
        channel.write(b"stopping %d" % len(calls))
        if sys.argv[2] == "polite":
            stopped.set()
    with signals(stop):
        channel.write(b"ready")
        await stopped.wait()
    await channel.close()
run(main)
"""
)


@pytest.mark.covers("J7")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_without_a_traceback(loop_name: str, number: int) -> None:
    with start(SIGNALLED, loop_name, "polite", stdin=subprocess.PIPE, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == b"stopping 1\n"
        assert child.wait() == 0
        assert child.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process(loop_name: str, number: int) -> None:
    with start(SIGNALLED, loop_name, "stubborn", stdin=subprocess.PIPE, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == b"stopping 1\n"
        child.send_signal(number)
        assert child.wait() == -number
        assert child.stderr.read() == b""


def test_handlers_are_restored_and_an_ignored_signal_stays_ignored(run: Run[Any]) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    async def main() -> None:
        inside = signal.getsignal(signal.SIGINT)
        with signals(lambda: None):
            assert signal.getsignal(signal.SIGINT) is not inside
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is inside

    try:
        run(main())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_outside_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def inside() -> None:
        with signals(lambda: None):
            assert signal.getsignal(signal.SIGINT) is before

    await asyncio.to_thread(lambda: asyncio.run(inside()))
