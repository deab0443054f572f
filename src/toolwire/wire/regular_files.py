"""Reading and replacing regular files, and refusing devices, pipes and hostile links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotRegularFile(OSError):
    """The path is a device, a pipe, a socket, a folder, or a forbidden link."""


def check_regular(path: Path) -> None:
    """Raise `NotRegularFile` for a device, a pipe, a socket or a folder. Links are followed.

    Call this before a rename onto the path, which would replace a device or a pipe without a word, and before the
    file is opened, which may wait for ever.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise NotRegularFile(errno.EINVAL, "not a regular file", str(path))


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file without waiting, and return its descriptor; raise `NotRegularFile` for anything else."""
    check_regular(path)
    # The file may have become a pipe since it was checked: opening it must not wait.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularFile(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; raise `OSError` for anything else."""
    data = read_beginning(path, most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return data


def read_beginning(path: Path, count: int) -> bytes:
    """Read the first `count` bytes of a regular file; raise `OSError` for anything else."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(count)


def follow_link(path: Path) -> Path:
    """Return the file that a link leads to, or the path itself without a link.

    A link is followed to a regular file, or to none, in a folder of this user. Otherwise raise `NotRegularFile`.
    """
    real = Path(os.path.realpath(path))
    check_regular(real)
    if real == Path(os.path.abspath(path)):  # noqa: PTH100 - pathlib has no form that leaves links alone
        return real
    folder = next(each for each in real.parents if each.exists())
    if hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        raise NotRegularFile(errno.EPERM, f"it leads to {folder}, a folder of another user", str(path))
    return real


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically. A link at the path is replaced, and not followed.

    The umask applies to `mode`. Raise `NotRegularFile` if there is a device, a pipe, a socket or a folder.
    """
    check_regular(path)
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}.new")
    try:
        write_new(fresh, data, mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that does not exist yet, through no link, to the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
