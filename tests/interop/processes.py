"""Processes of servers that we did not write, and their end."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

#: For how long a server may start on a busy machine.
START = 60.0


@contextmanager
def listening_on(command: Callable[[int], list[str]], cwd: Path | None) -> Iterator[int]:
    """Run a server, and yield its port when it listens."""
    port = free_port()
    quiet = subprocess.DEVNULL
    # The reference server takes its port from the environment.
    environment = os.environ | {"PORT": str(port)}
    options: dict[str, Any] = {"cwd": cwd, "env": environment, "stdin": quiet, "stdout": quiet, "stderr": quiet}
    with subprocess.Popen(command(port), **options) as process, stopped(process):
        end = time.monotonic() + START
        while not listens(port):
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() < end, "it did not start"
            time.sleep(0.05)
        yield port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def stopped(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process that was started for the body."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.communicate(timeout=15)
        finally:
            process.kill()
