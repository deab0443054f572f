"""Functions for worker processes of tests: in a module of their own, which imports less than the tests do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ToolError
from toolwire.wire.process_workers import report


def add(left: int, right: int) -> int:
    return left + right


def where() -> tuple[int, bytes, int]:
    return os.getpid(), sys.stdin.buffer.read(), os.fstat(1).st_ino == os.fstat(2).st_ino


def reporting(count: int) -> str:
    print("this is not a message")
    for number in range(count):
        report(("progress", number))
    return "done"


def failing(kind: str) -> None:
    if kind == "value":
        raise ValueError("a secret reason")
    if kind == "tool":
        raise ToolError("for the model")
    if kind == "protocol":
        raise ProtocolError(INVALID_PARAMS, "wrong", {"field": "x"})
    if kind == "exit":
        sys.exit(4)
    if kind == "result":
        return lambda: None  # type: ignore[return-value]
    os._exit(9)


def hang(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    report(child.pid)
    Path(path).write_text("started")
    while True:
        time.sleep(600)


async def coroutine() -> None:
    pass
