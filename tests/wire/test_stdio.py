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
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from toolwire import platforms
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import Oversized
from toolwire.wire import byte_channel, byte_streams, stdio
from toolwire.wire.stdio import StdioChannel, parent_watch, signals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors are passed the POSIX way here")

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
LOOPS = ["asyncio", "uvloop"]

MAIN = """
import asyncio, os, sys
def run(main):
    if sys.argv[1] == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())
"""
ECHO = (
    MAIN
    + """
from toolwire.wire.stdio import StdioChannel, claim
claim()
async def main():
    channel = StdioChannel()
    while (message := await channel.read()) is not None:
        channel.write(b"echo " + message)
    await channel.close()
run(main)
"""
)


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return str(request.param)


@pytest.fixture
def run(loop_name: str) -> Iterator[Run[Any]]:
    factory = None
    if loop_name == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner.run


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            pass


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


# --- every kind of standard input and output


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


# --- descriptions that others share


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


# --- claiming


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


# --- reading


def test_lines_that_have_arrived_are_read_without_suspending(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1])
        os.write(pipe[1], b"1\r\n\n2\n3\n")
        assert await channel.read() == b"1"
        for expected in (b"2", b"3"):
            step = channel.read()
            with pytest.raises(StopIteration) as finished:
                step.send(None)
            assert finished.value.value == expected
        await channel.close()

    run(main())


def test_attached_messages_are_pushed_and_the_end_comes_once(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        channel = StdioChannel(pipe[0], os.dup(pipe[1]))
        messages: list[bytes] = []
        over = asyncio.get_running_loop().create_future()
        assert channel.attach(messages.append, over.set_result)
        channel.pause()
        os.write(pipe[1], b"1\n2\nunfinished")
        await asyncio.sleep(0)
        assert messages == []
        channel.resume()
        os.close(pipe[1])
        os.close(channel._output)
        channel._stop_writing()
        assert await over is None
        assert messages == [b"1", b"2", b"unfinished"]
        await channel.close()

    run(main())


def test_an_oversized_line_is_told_and_service_goes_on(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1], limit=100)
        os.write(pipe[1], b"x" * 5000 + b"\nnext\n")
        assert isinstance(await channel.read(), Oversized)
        assert await channel.read() == b"next"
        await channel.close()

    run(main())


def test_reading_ahead_is_bounded(run: Run[Any], pipe: tuple[int, int]) -> None:
    lines = 300_000

    def write() -> None:
        data = memoryview(b"ab\n" * lines)
        while data:
            data = data[os.write(pipe[1], data) :]

    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1])
        writer = asyncio.ensure_future(asyncio.to_thread(write))
        count = 0
        longest = 0
        while count < lines:
            assert await channel.read() == b"ab"
            count += 1
            longest = max(longest, len(channel._inbox))
            if count % 1000 == 0:
                await asyncio.sleep(0)
        await writer
        assert longest <= byte_channel.READ_AHEAD_MESSAGES + byte_streams.CHUNK // 3 + 1
        await channel.close()

    run(main())


@pytest.mark.covers("J7")
def test_waiting_for_input_does_not_poll(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        channel = StdioChannel(pipe[0], pipe[1])
        calls = []
        channel._start()
        source = channel._source
        assert isinstance(source, byte_streams.ReadySource)
        original = source._end.read

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(end, name)

            def read(self) -> bytes:
                calls.append(1)
                return original()

        end, source._end = source._end, Counting()
        reading = asyncio.ensure_future(channel.read())
        idle = loop.create_future()
        loop.call_later(0.05, idle.set_result, None)
        await idle
        assert calls == []
        os.write(pipe[1], b"x\n")
        assert await reading == b"x"
        assert calls == [1]
        await channel.close()

    if sys.platform != "linux":
        pytest.skip("counts reads of a watched descriptor")
    run(main())


# --- writing


@pytest.mark.covers("J89")
def test_what_is_written_in_one_turn_leaves_in_one_call_and_never_interleaves(
    run: Run[Any], pipe: tuple[int, int]
) -> None:
    async def main() -> None:
        other = os.pipe()
        channel = StdioChannel(other[0], pipe[1])
        await channel.connect()

        async def talk(number: int) -> None:
            channel.write(b"%d-first" % number)
            channel.write(b"%d-second" % number)

        await asyncio.gather(*(talk(number) for number in range(50)))
        await channel.flush()
        lines = os.read(pipe[0], 65536).split(b"\n")
        assert lines == [b"%d-%s" % (number, word) for number in range(50) for word in (b"first", b"second")] + [b""]
        await channel.close()
        for fd in other:
            os.close(fd)

    run(main())


@pytest.mark.covers("STD-1")
def test_a_newline_inside_a_message_can_not_split_it(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1])
        channel.write(b'{\n"a": 1\n}')
        assert await channel.read() == b'{ "a": 1 }'
        await channel.close()

    run(main())


def test_a_slow_reader_is_felt_and_the_loop_keeps_turning(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        requests = os.pipe()
        channel = StdioChannel(requests[0], pipe[1])
        await channel.connect()
        assert not channel.congested
        message = b"x" * 100_000
        count = 0
        while not channel.congested:
            channel.write(message)
            count += 1
            await asyncio.sleep(0)
        draining = asyncio.ensure_future(channel.drain())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not draining.done()
        received = bytearray()
        while len(received) < count * (len(message) + 1):
            received += await asyncio.to_thread(os.read, pipe[0], 65536)
        await draining
        assert not channel.congested
        assert bytes(received) == (message + b"\n") * count
        await channel.close()
        for fd in requests:
            os.close(fd)

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what was not read")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_was_sent_is_taken_once_the_client_has_read_it(
    run: Run[Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "TAKEN_SECONDS", 600)
    reading, writing = [end.detach() for end in socket.socketpair()] if kind == "socket" else os.pipe()

    async def main() -> None:
        requests = os.pipe()
        channel = StdioChannel(requests[0], writing)
        await channel.taken()
        channel.write(b"one")
        channel.write(b"two")
        taking = asyncio.ensure_future(channel.taken())
        await channel.flush()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
        assert os.read(reading, 4) == b"one\n"
        for _ in range(10):
            await asyncio.sleep(0)
        assert not taking.done()
        assert os.read(reading, 100) == b"two\n"
        await taking
        await channel.close()
        for fd in requests:
            os.close(fd)

    run(main())
    for fd in (reading, writing):
        os.close(fd)


@pytest.mark.parametrize("told", [True, False], ids=["the system tells", "nobody tells"])
def test_a_client_that_does_not_read_holds_nothing_up(
    run: Run[Any], pipe: tuple[int, int], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "TAKEN_SECONDS", 0.02 if told else 600)
    if not told:
        monkeypatch.setattr(byte_streams.ReadySink, "unread", lambda self: None)

    async def main() -> None:
        requests = os.pipe()
        channel = StdioChannel(requests[0], pipe[1])
        channel.write(b"unread")
        await channel.taken()
        await channel.close()
        await channel.taken()
        for fd in requests:
            os.close(fd)

    run(main())


def test_a_client_that_never_reads_is_not_read_for_ever(
    run: Run[Any], pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "STOP_READING_AT", 200_000)

    async def main() -> None:
        requests = os.pipe()
        os.set_blocking(requests[1], False)
        channel = StdioChannel(requests[0], pipe[1])
        answered = 0

        def answer(message: bytes) -> None:
            nonlocal answered
            answered += 1
            channel.write(message * 100)

        channel.attach(answer, lambda error: None)
        line = b"y" * 999 + b"\n"
        refused = 0
        while refused < 3:
            try:
                os.write(requests[1], line)
            except BlockingIOError:
                refused += 1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        queued = channel._queued + channel._in_sink
        # The bound, and what one chunk that was already read can add.
        assert queued < 200_000 + 100 * byte_streams.CHUNK + 200_000
        before = answered
        while answered == before:
            await asyncio.to_thread(os.read, pipe[0], 1 << 20)
        await asyncio.wait([asyncio.ensure_future(channel.close())], timeout=0)
        os.close(pipe[0])
        await channel.close()
        for fd in requests:
            os.close(fd)

    run(main())


def test_a_broken_pipe_ends_the_channel_quietly(
    run: Run[Any], pipe: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        requests = os.pipe()
        channel = StdioChannel(requests[0], pipe[1])
        ended = asyncio.get_running_loop().create_future()
        channel.attach(lambda message: None, ended.set_result)
        os.close(pipe[0])
        channel.write(b"to nobody")
        assert await ended is None
        assert not channel.is_connected
        with pytest.raises(Unreachable):
            channel.write(b"again")
        await channel.drain()
        await channel.flush()
        await channel.close()
        for fd in requests:
            os.close(fd)

    run(main())
    assert capfd.readouterr() == ("", "")


def test_closing_sends_what_is_queued_first(run: Run[Any], pipe: tuple[int, int]) -> None:
    async def main() -> None:
        requests = os.pipe()
        channel = StdioChannel(requests[0], pipe[1])
        channel.write(b"x" * 1_000_000)
        closing = [asyncio.ensure_future(channel.close()) for _ in range(2)]
        size = 0
        while size < 1_000_001:
            size += len(await asyncio.to_thread(os.read, pipe[0], 65536))
        await asyncio.gather(*closing)
        with pytest.raises(Unreachable):
            channel.write(b"late")
        assert await channel.read() is None
        for fd in requests:
            os.close(fd)

    run(main())


def test_closing_does_not_wait_for_ever_for_a_reader(
    run: Run[Any], pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_channel, "CLOSE_SECONDS", 0.05)

    async def main() -> None:
        channel = StdioChannel(pipe[0], pipe[1])
        channel.pause()
        channel.write(b"x" * 1_000_000)
        await channel.close()

    run(main())


def test_a_hundred_thousand_messages_through_a_child(loop_name: str) -> None:
    lines = b"".join(b'{"id":%d}\n' % number for number in range(100_000))
    done = subprocess.run([sys.executable, "-c", ECHO, loop_name], input=lines, capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 100_000
    assert done.stdout.endswith(b'echo {"id":99999}\n')


# --- when to stop


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
