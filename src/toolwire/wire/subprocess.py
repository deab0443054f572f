"""The client's side of stdio: a server as a child process, from its start to the end of its whole process tree.

2024-11-05 to 2025-11-25 basic/lifecycle, 2026-07-28 basic/transports/stdio: to shut down, the client closes the child's
standard input, waits, asks it to terminate, waits, and kills it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Literal, Self, TypeAlias

from toolwire import platforms
from toolwire.protocol.errors import Unreachable
from toolwire.protocol.framing import EVENT_LIMIT, LineDecoder, Oversized
from toolwire.wire.byte_channel import ByteChannel
from toolwire.wire.byte_streams import ByteSink, ByteSource, ReadySink, ReadySource, blocking_sink, blocking_source
from toolwire.wire.child_processes import add_child, remove_child
from toolwire.wire.deadlines import in_time
from toolwire.wire.environment import child_environment
from toolwire.wire.exit_reason import reason
from toolwire.wire.server_files import CLIENT_VARIABLE

GRACE_SECONDS: Final = 2.0
# How long the last output of a dead child may take to arrive through a thread.
LAST_WORDS_SECONDS: Final = 1.0
STDERR_LINE: Final = 8 * 1024
STDERR_LINES: Final = 50

StderrLine: TypeAlias = Callable[[str], object]


class ProcessChannel(ByteChannel):
    """A channel to a server that this process starts and ends.

    The child's standard error is always read, so that a server that writes much cannot block. Its last lines are in
    `stderr_tail`. When the child dies, its output is delivered first and then the end.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], on_stderr: StderrLine | None, limit: int, grace: float
    ) -> None:
        super().__init__(limit=limit)
        self._process = process
        self._tree = platforms.ProcessTree(process)
        add_child(self)
        self._grace = grace
        self._on_stderr = on_stderr
        self._stderr: ByteSource | None = None
        self._stderr_decoder = LineDecoder(STDERR_LINE)
        self._stderr_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._status: int | None = None
        self._exited = asyncio.Event()
        # Set when no process in the tree holds the child's output any more.
        self._silent = asyncio.Event()
        self._stop_watch: Callable[[], None] = platforms.watch_exit(
            asyncio.get_running_loop(), process.pid, self._child_exited
        )

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        inherit_env: bool = False,
        on_stderr: StderrLine | Literal["inherit"] | None = None,
        limit: int = EVENT_LIMIT,
        grace: float = GRACE_SECONDS,
    ) -> Self:
        """Start a command. Its environment is that of `child_environment`, with `env` on top.

        `on_stderr` gets each line that the child writes to standard error. With "inherit" the child uses that of this
        process. Raise `Unreachable`, with the command and the reason, when it cannot be started.
        """
        # 2025-03-26 basic/authorization: on stdio, credentials come from the environment; here only those in `env`.
        environment = {**child_environment(env, inherit_all=inherit_env), CLIENT_VARIABLE: str(os.getpid())}
        process = _start(command, environment, None if cwd is None else os.fspath(cwd), on_stderr != "inherit")
        channel = cls(process, None if on_stderr == "inherit" else on_stderr, limit, grace)
        channel._start()
        return channel

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Return the status of the child as in `subprocess`: negative for a signal; None while it runs."""
        return self._process.returncode if self._status is None else self._status

    @property
    def stderr_tail(self) -> str:
        """Return the last lines that the child wrote to standard error."""
        return "\n".join(self._stderr_lines)

    @property
    def last_said(self) -> str:
        """Return the line on standard error that most likely tells why the child died."""
        return reason(self._stderr_lines)

    def listening_ports(self) -> list[int]:
        """Return the TCP ports that the child's processes listen on, if the system tells."""
        return [] if self._exited.is_set() else self._tree.listening_ports()

    def memory(self) -> int | None:
        """Return how many bytes of memory the child's processes use, if the system tells."""
        return None if self._exited.is_set() else self._tree.memory()

    def kill(self) -> None:
        """End the whole tree now; `close()` still has to be awaited to clean up."""
        self._tree.find_members()
        self._tree.kill()

    def _open(self) -> tuple[ByteSource | None, ByteSink | None]:
        process = self._process
        assert process.stdin is not None and process.stdout is not None and self._loop is not None
        if process.stderr is not None:
            self._stderr = _source(process.stderr)
            self._stderr.start(self._loop, self._stderr_received, self._stderr_ended)
            self._stderr.resume()
        return _source(process.stdout), _sink(process.stdin)

    # --- the end of the child

    def _child_exited(self) -> None:
        self._status = platforms.peek_status(self._process)
        self._exited.set()
        if self._closer is None:
            assert self._loop is not None
            self._take_last_words()
            self._closer = self._loop.create_task(self._shut())

    def _take_last_words(self) -> None:
        """Deliver what the child wrote, then the end. A process that it started may keep its output open for ever."""
        if isinstance(self._stderr, ReadySource):
            self._stderr.take_arrived()
        if isinstance(self._source, ReadySource):
            self._source.take_arrived()
        if self._source is None or isinstance(self._source, ReadySource):
            self._inbox.end()
        else:
            self._end_soon()

    def _end_soon(self) -> None:
        assert self._loop is not None
        self._loop.call_later(LAST_WORDS_SECONDS, self._inbox.end)

    def _input_ended(self, error: BaseException | None) -> None:
        self._notice_silence()
        if self._exited.is_set():
            self._inbox.end(error)
        else:
            # Most likely the child is about to exit. Then the status is known when the end is reported.
            self._end_soon()

    async def close(self) -> None:
        # The owner asked for the end, so it is not reported to the owner.
        self._inbox.silence()
        self.resume()
        await super().close()

    async def _shut(self) -> None:
        try:
            await self._ask_to_end()
        finally:
            # Before the child is reaped, because afterwards the id of its group may belong to another group.
            self._tree.kill()
            self._stop_writing()
            try:
                await in_time(LAST_WORDS_SECONDS, self._exited.wait())
            finally:
                self._let_go()

    async def _ask_to_end(self) -> None:
        if not self._exited.is_set():
            # Now, because the processes that a child started cannot be found any more when it has ended.
            self._tree.find_members()
            await in_time(self._grace, self._end_input())
        self._stop_writing()
        if not (self._exited.is_set() and self._silent.is_set()):
            # The child may have started more processes since, perhaps in order to clean up.
            self._tree.find_members()
            if self._tree.terminate():
                await in_time(self._grace, self._gone())

    async def _end_input(self) -> None:
        await self._send_rest()
        self._stop_writing()
        await self._gone()

    async def _gone(self) -> None:
        """Wait until the child has ended, and every process that shares its output."""
        await self._exited.wait()
        await self._silent.wait()

    def _let_go(self) -> None:
        self._stop_watch()
        remove_child(self)
        self._tree.let_go()
        # None only for a process that is stuck in the kernel, where a kill does not reach it.
        self._status = self._process.poll()
        self._stop_reading()
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None
        self._inbox.end()

    def _notice_silence(self) -> None:
        if self._source is None and self._stderr is None:
            self._silent.set()

    # --- standard error

    def _stderr_received(self, chunk: bytes) -> None:
        for line in self._stderr_decoder.feed(chunk):
            self._stderr_line(line)

    def _stderr_ended(self, error: BaseException | None) -> None:
        for line in self._stderr_decoder.finish():
            self._stderr_line(line)
        self._stderr = None
        self._notice_silence()

    def _stderr_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        if isinstance(line, Oversized):
            text = f"[a line of more than {STDERR_LINE} bytes]"
        self._stderr_lines.append(text)
        if self._on_stderr is not None:
            self._on_stderr(text)


def _start(command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: bool) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            platforms.resolve(command, env, cwd),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr else None,
            bufsize=0,
            env=env,
            cwd=cwd,
            **platforms.spawn_options(),
        )
    except (OSError, ValueError, IndexError) as error:
        raise Unreachable(_why_not(command, cwd, error)) from error


def _source(file: IO[bytes]) -> ByteSource:
    end = platforms.own_end(file)
    return ReadySource(end) if end is not None else blocking_source(file.fileno(), file.close)


def _sink(file: IO[bytes]) -> ByteSink:
    end = platforms.own_end(file)
    return ReadySink(end) if end is not None else blocking_sink(file.fileno(), file.close)


def _why_not(command: Sequence[str], directory: str | None, error: Exception) -> str:
    # Only the program is named: arguments may hold credentials.
    name = command[0] if command else "an empty command"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    words = name.split() if isinstance(error, FileNotFoundError) and len(command) == 1 else []
    # A path may have blanks in it.
    if len(words) > 1 and Path(words[0]).name == words[0]:
        name = words[0]
        reason = "its arguments stand in the same text: write them one by one, in a configuration into args"
    if directory is not None and not Path(directory).is_dir():
        reason = f"the working directory {directory} does not exist"
    return f"cannot start {name!r}: {reason}"
