"""Storages for tokens and registrations: in memory, in files, or in anything with two methods.

A storage keeps texts by name and knows nothing about them. They hold secrets.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Awaitable
from inspect import isawaitable
from pathlib import Path
from typing import Final, Protocol

MAX_BYTES: Final = 1024 * 1024


class Storage(Protocol):
    """The two methods, plain or `async`. None as a value removes it."""

    def load(self, key: str, /) -> str | Awaitable[str | None] | None: ...

    def save(self, key: str, value: str | None, /) -> Awaitable[None] | None: ...


class MemoryStorage:
    """Forgets everything when the program ends."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def load(self, key: str) -> str | None:
        return self._values.get(key)

    def save(self, key: str, value: str | None) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


class FileStorage:
    """A folder with a file for each value, which only its owner can read. Written whole or not at all."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).expanduser()

    def load(self, key: str) -> str | None:
        try:
            with self._path(key).open("rb") as file:
                return file.read(MAX_BYTES).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def save(self, key: str, value: str | None) -> None:
        path = self._path(key)
        if value is None:
            path.unlink(missing_ok=True)
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # `mkstemp` makes the file with mode 0600, so there is no moment at which others can read it.
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value.encode())
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        # Keys hold URLs that others name; no part of them becomes part of a path.
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


async def load(storage: Storage, key: str) -> str | None:
    found = storage.load(key)
    return await found if isawaitable(found) else found


async def save(storage: Storage, key: str, value: str | None) -> None:
    done = storage.save(key, value)
    if isawaitable(done):
        await done
