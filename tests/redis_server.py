"""A real Redis for tests: on a socket in a folder of its own, and on a port where it has to be one of several."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.ports import free_port

from toolwire.stores import StoreFailed

T = TypeVar("T")

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

    def __init__(self, folder: Path, options: tuple[str, ...] = (), port: int = 0) -> None:
        self._program = require_redis()
        self._folder = folder
        self._options = options
        self.port = port
        self.socket = folder / "redis.sock"
        self.url = f"redis://127.0.0.1:{port}/0" if port else f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self._program, "--port", str(self.port), "--unixsocket", str(self.socket)]
        command += ["--save", "", "--appendonly", "no"]
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
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.socket))
            connection.sendall(packed(*words))
            return connection.recv(65536)

    def until(self, expected: bytes, *words: str | bytes) -> None:
        """Send a command again and again until its reply has this in it.

        A replica that becomes the primary closes the connections that it has, also one that waits for a reply.
        """
        deadline = time.monotonic() + 60
        while True:
            try:
                reply: object = self.command(*words)
            except OSError as error:
                reply = error
            if isinstance(reply, bytes) and expected in reply:
                return
            assert time.monotonic() < deadline, reply
            time.sleep(0.02)

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


def packed(*words: str | bytes) -> bytes:
    """A command as it is sent."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


@contextmanager
def running(*options: str, port: int = 0) -> Iterator[RedisServer]:
    """A Redis until the end of the block. The folder is a short one: the path of a socket has at most 107 bytes."""
    require_redis()
    with tempfile.TemporaryDirectory(prefix="tw-redis-") as folder:
        server = RedisServer(Path(folder), options, port)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def replica_of(primary: RedisServer) -> Iterator[RedisServer]:
    """A replica that has everything that its primary has."""
    with running("--replicaof", "127.0.0.1", str(primary.port), port=free_port()) as replica:
        replica.until(b"master_link_status:up", "INFO", "replication")
        yield replica


@contextmanager
def sentinel_of(primary: RedisServer, name: str, *settings: str) -> Iterator[int]:
    """A Sentinel that alone decides on a failover; its port. It notices a dead primary after half a second."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tw-sentinel-") as folder:
        lines = (
            f"port {port}",
            f"dir {folder}",
            f"sentinel monitor {name} 127.0.0.1 {primary.port} 1",
            f"sentinel down-after-milliseconds {name} 500",
            f"sentinel failover-timeout {name} 3000",
            *settings,
        )
        # It writes into its own configuration.
        configuration = Path(folder) / "sentinel.conf"
        configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
        log = Path(folder) / "sentinel.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [require_redis(), str(configuration), "--sentinel"], stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + 30
            # It asks its Redis servers every second, soon corrects an old primary, and a busy machine that holds it up
            # does not make it stop for 30 seconds. With shorter periods it finds what it knows of a replica too old.
            settled = ("INFO-PERIOD", "1000", "PUBLISH-PERIOD", "100", "TILT-TRIGGER", "60000")
            while not ask(port, "SENTINEL", "DEBUG", *settled):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            # Without a replica that it knows it could not replace the primary.
            while b"slaves=1" not in ask(port, "INFO", "sentinel"):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            yield port
        finally:
            process.kill()
            process.wait()


async def until_answered(ask: Callable[[], Awaitable[T]], though: str = "") -> T:
    """Ask a store until it answers, though it fails for some reasons before.

    A busy machine may take longer for one answer than a store waits for it.
    """
    while True:
        try:
            return await ask()
        except StoreFailed as error:
            assert though in str(error), error
            await asyncio.sleep(0.02)


async def until_refused(ask: Callable[[], Awaitable[object]], says: str) -> StoreFailed:
    """Ask a store until it fails for this reason: a busy machine may be too slow to hear the reason in time."""
    while True:
        with pytest.raises(StoreFailed) as raised:
            await ask()
        if re.search(says, str(raised.value)):
            return raised.value
        assert "did not answer within" in str(raised.value), raised.value


def ask(port: int, *words: str) -> bytes:
    """Send one command to a port, and give the beginning of the reply; nothing where nobody answers yet."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(packed(*words))
            return connection.recv(65536)
    except (ConnectionRefusedError, ConnectionResetError):
        return b""
