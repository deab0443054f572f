"""Storages for tokens and registrations: in memory, in files, or in anything with two methods.

A storage keeps texts by name and knows nothing about them. They hold secrets.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from inspect import isawaitable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from toolwire.stores.leases import WAIT_SECONDS, poll
from toolwire.wire.regular_files import check_regular

log: logging.Logger = logging.getLogger("toolwire.auth")

T = TypeVar("T")

MAX_BYTES: Final = 1024 * 1024
#: Windows refuses to replace a file while another process reads it, which takes a moment.
_SHARING_TRIES: Final = 20
_SHARING_PAUSE: Final = 0.01


class Storage(Protocol):
    """The two methods, plain or `async`. None as a value removes it."""

    def load(self, key: str, /) -> str | Awaitable[str | None] | None: ...

    def save(self, key: str, value: str | None, /) -> Awaitable[None] | None: ...


class SharedStorage(Storage, Protocol):
    """A storage that several processes may share, because it has locks."""

    def lock(self, key: str, /) -> AbstractAsyncContextManager[object]:
        """Return an `async with` block that admits one holder of a key at once.

        Entering raises `TimeoutError` after a bounded wait. The lock of a killed process is released.
        """


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
    """A folder with a file for each value, which only its owner can read.

    A file is written completely or not at all.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder).expanduser()

    def load(self, key: str) -> str | None:
        try:
            return _retry_sharing(lambda: self._read(key)).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def save(self, key: str, value: str | None) -> None:
        path = self._path(key)
        if value is None:
            _retry_sharing(lambda: path.unlink(missing_ok=True))
            return
        self._make_folder()
        # `mkstemp` makes the file with mode 0600, so other users can never read it.
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value.encode())
                file.flush()
                os.fsync(file.fileno())
            check_regular(path)
            _retry_sharing(lambda: Path(temporary).replace(path))
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Lock a key for this holder alone, in all processes that use the folder.

        The lock is an advisory lock on a file beside the value. The system releases it when a process is killed.
        """
        # Imported here because a client without a sign-in needs no lock.
        from toolwire.wire.file_locks import FileLock, NoFileLocks

        self._make_folder()
        with FileLock(self._path(key).with_suffix(".lock")) as held:
            try:
                await _acquire(held.try_acquire)
            except NoFileLocks:
                has_locks = False
                log.warning("%s has no file locks: processes that share a sign-in there may lose it", self._folder)
            else:
                has_locks = True
            async with nullcontext() if has_locks else lock_in_process(self, key):
                yield

    def _read(self, key: str) -> bytes:
        check_regular(self._path(key))
        with self._path(key).open("rb") as file:
            return file.read(MAX_BYTES)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        # Keys hold URLs that servers name; no part of them becomes part of a path.
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


async def load(storage: Storage, key: str) -> str | None:
    found = storage.load(key)
    return await found if isawaitable(found) else found


async def save(storage: Storage, key: str, value: str | None) -> None:
    done = storage.save(key, value)
    if isawaitable(done):
        await done


def lock(storage: Storage, key: str) -> AbstractAsyncContextManager[object]:
    """Lock a key: with the storage's own lock, otherwise in this process alone."""
    own: Callable[[str], AbstractAsyncContextManager[object]] | None = getattr(storage, "lock", None)
    return lock_in_process(storage, key) if own is None else own(key)


_guard = threading.Lock()
#: Keys that are locked in this process. The holder has a reference to the storage, so that its id stays its own.
_locked: set[tuple[int, str]] = set()


@asynccontextmanager
async def lock_in_process(storage: Storage, key: str) -> AsyncIterator[None]:
    """Lock a key of a storage in this process, over all threads and event loops."""
    name = (id(storage), key)

    def try_acquire() -> bool:
        with _guard:
            free = name not in _locked
            _locked.add(name)
            return free

    await _acquire(try_acquire)
    try:
        yield
    finally:
        with _guard:
            _locked.discard(name)


async def _acquire(try_acquire: Callable[[], bool]) -> None:
    async def attempt() -> bool | None:
        return try_acquire() or None

    if await poll(attempt) is None:
        raise TimeoutError(f"a lock was not released within {WAIT_SECONDS:g} s")


def _retry_sharing(work: Callable[[], T]) -> T:
    for _ in range(_SHARING_TRIES if sys.platform == "win32" else 0):
        try:
            return work()
        except PermissionError:
            time.sleep(_SHARING_PAUSE)
    return work()
