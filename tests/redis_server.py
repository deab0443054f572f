"""A real Redis for tests: on a socket in a folder of its own, with nothing written to disk."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARY = os.environ.get("TOOLWIRE_REDIS") or shutil.which("redis-server")


def require_redis() -> str:
    """The program; without it the test is skipped, or fails where it has to be there."""
    if BINARY is not None:
        return BINARY
    text = "there is no redis-server (install Debian's redis-server, or set TOOLWIRE_REDIS to the program)"
    if os.environ.get("TOOLWIRE_REQUIRE_REDIS") == "1":
        pytest.fail(text)
    pytest.skip(text)


class RedisServer:
    """The process. It can be killed, paused and started again at the same address."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        self._program = require_redis()
        self._folder = folder
        self._options = options
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self._program, "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no"]
        log = self._folder / "redis.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--dir", str(self._folder), *self._options], stdout=output, stderr=output
            )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            self.command("PING")
        except OSError:
            return False
        return True

    def command(self, *words: str | bytes) -> bytes:
        """Send one command by hand, and give the beginning of the reply."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        packed = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.socket))
            connection.sendall(packed)
            return connection.recv(65536)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def running(*options: str) -> Iterator[RedisServer]:
    """A Redis until the end of the block. The folder is a short one: the path of a socket has at most 107 bytes."""
    require_redis()
    with tempfile.TemporaryDirectory(prefix="tw-redis-") as folder:
        server = RedisServer(Path(folder), options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
