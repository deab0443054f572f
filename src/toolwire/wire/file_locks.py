"""Advisory locks on files. The system releases them when a process dies."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from toolwire.wire.regular_files import open_regular

#: What a file system answers that has no locks.
_UNSUPPORTED: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
_PAUSE: Final = 0.01


class NoFileLocks(OSError):
    """The file system has no locks."""


class FileLock:
    """A lock for one holder at a time, in all processes of a machine.

    `path` is a file for the lock alone. It stays: deleting it would let two processes lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        """Open the file of the lock. Raise `NotRegularFile` for a pipe or a device, and `OSError` for a link."""
        # Mode 0600, and no link, so that no other user can hold the lock or choose the file.
        self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        self._is_held = False

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, and return whether it was. Raise `NoFileLocks`."""
        from toolwire.platforms import try_lock

        try:
            self._is_held = try_lock(self._descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            raise NoFileLocks(*error.args) from None
        return self._is_held

    def acquire(self, seconds: float) -> bool:
        """Wait some seconds for the lock. Return whether it was acquired; raise `NoFileLocks`."""
        last = time.monotonic() + seconds
        while not self.try_acquire():
            if time.monotonic() > last:
                return False
            time.sleep(_PAUSE)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock, if this object holds it, and close the file."""
        from toolwire.platforms import unlock

        try:
            if self._is_held:
                unlock(self._descriptor)
        finally:
            os.close(self._descriptor)
