"""Sinks of an audit log: a file, a logger, or a function that takes lines."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from toolwire.audit.following import ChainFollower, identify_file

Target: TypeAlias = str | os.PathLike[str] | logging.Logger | Callable[[str], Any]

_MAX_BATCH: Final = 512 * 1024
# Windows would write the end of a line in its own way.
_AS_IT_IS: Final[int] = getattr(os, "O_BINARY", 0)


class Sink(ABC):
    """Delivers lines in order, each once, and retries after a failure."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin as if nothing had been taken: what waited here is another process's to deliver."""
        self.waiting: deque[bytes] = deque()
        self.lock: threading.Lock = threading.Lock()

    @abstractmethod
    def flush(self) -> None:
        """Deliver the waiting lines.

        Raises when that fails, and keeps what was not delivered.
        """

    def follow(self, own: str) -> ChainFollower | None:
        """Follow what other chains than `own` write there, where that can be read."""
        return None

    def close(self) -> None:
        return


def sink_for(target: Target) -> Sink:
    if isinstance(target, str | os.PathLike):
        return FileSink(Path(target))
    if isinstance(target, logging.Logger):
        return _FunctionSink(lambda line: target.info("%s", line))
    if callable(target):
        return _FunctionSink(target)
    raise TypeError(f"An audit log goes to a path, a logger or a function, not to {type(target).__name__}")


class _FunctionSink(Sink):
    def __init__(self, function: Callable[[str], Any]) -> None:
        super().__init__()
        self._function = function

    def flush(self) -> None:
        while self.waiting:
            self._function(self.waiting[0].decode())
            self.waiting.popleft()


class FileSink(Sink):
    """Appends to a file that only its owner can read.

    After the file was moved away, a new one is begun under its name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None
        super().__init__()

    def reset(self) -> None:
        super().reset()
        # Of a line that a full disk cut in two, what is still to be written.
        self._rest = b""

    def flush(self) -> None:
        while self.waiting or self._rest:
            file = self._opened()
            if not self._rest:
                self._rest = self._batch()
            # In one call: what several processes append then never mixes within a line.
            written = os.write(file, self._rest)
            self._rest = self._rest[written:]

    def _batch(self) -> bytes:
        lines: list[bytes] = []
        size = 0
        while self.waiting and size < _MAX_BATCH:
            lines.append(self.waiting.popleft())
            size += len(lines[-1])
        return b"".join(line + b"\n" for line in lines)

    def follow(self, own: str) -> ChainFollower | None:
        return ChainFollower(self.path, own)

    def _opened(self) -> int:
        if self._file is not None and self._identity != identify_file(self.path):
            self.close()
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _AS_IT_IS, 0o600)
            self._identity = identify_file(self.path)
            if self._ends_within_a_line():
                os.write(self._file, b"\n")
        return self._file

    def _ends_within_a_line(self) -> bool:
        """Return whether a killed process left half a line, which would swallow the next one."""
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
