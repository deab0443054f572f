"""Reading and writing of lines over the server's stdio."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from tests.wire.loops import ECHO, Run

from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import Oversized
from toolwire.wire import byte_channel, byte_streams, stdio
from toolwire.wire.stdio import StdioChannel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors are passed the POSIX way here")


# --- reading ---


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


# --- writing ---


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
        queued = channel._queue.size
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
