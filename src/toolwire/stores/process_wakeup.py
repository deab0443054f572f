"""Wake-up calls between the processes that use one SQLite file, and for the thread of the file within a process.

Each process has a socket in a folder that all of them know; a byte sent there asks it to look at the file. A byte that
is lost only costs time, because each process also looks at intervals.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
from pathlib import Path


class Doorbell:
    """The sockets that one process waits at."""

    def __init__(self, folder: Path) -> None:
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._folder = folder
        self._address: Path | None = None
        self._others: socket.socket | None = None
        # Not `select`, which takes no descriptor above 1023: a busy server has more connections than that.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._inner, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            # This fails if the system has no such sockets, the path is too long, or the folder is not ours. Then the
            # other processes cannot wake this one, and `audible` is False.
            self._open_to_others()

    def _open_to_others(self) -> None:
        if sys.platform == "win32":
            return
        address = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            heard.setblocking(False)
            self._bind(heard, address)
        except OSError:
            heard.close()
            raise
        self._address, self._others = address, heard
        self._selector.register(heard, selectors.EVENT_READ)

    def _bind(self, heard: socket.socket, address: Path) -> None:
        for attempt in range(3):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                heard.bind(str(address))
                return
            except FileNotFoundError:
                # Another process closed and removed the folder between these two steps.
                if attempt == 2:
                    raise

    @property
    def audible(self) -> bool:
        """Return whether the other processes can wake this one."""
        return self._others is not None

    def wait(self, timeout: float) -> None:
        """Return when a wake-up call comes, or when the time is up."""
        for key, _ in self._selector.select(timeout):
            ringing = key.fileobj
            assert isinstance(ringing, socket.socket)
            with contextlib.suppress(OSError):
                while ringing.recv(4096):
                    pass

    def ring(self) -> None:
        """Wake the thread of this process."""
        # A full buffer already wakes the thread.
        with contextlib.suppress(OSError):
            self._outer.send(b"\0")

    def ring_others(self) -> None:
        """Wake the threads of the other processes."""
        if sys.platform == "win32" or self._others is None or self._address is None:
            return
        own = self._address.name
        try:
            names = [name for name in os.listdir(self._folder) if name != own]  # noqa: PTH208 - names alone are wanted
        except OSError:
            return
        for name in names:
            address = self._folder / name
            try:
                self._others.sendto(b"\0", str(address))
            except (ConnectionRefusedError, FileNotFoundError):
                # Its process ended without closing it.
                with contextlib.suppress(OSError):
                    address.unlink()
            except OSError:
                pass

    def close(self) -> None:
        self._selector.close()
        self._inner.close()
        self._outer.close()
        if self._others is not None and self._address is not None:
            self._others.close()
            with contextlib.suppress(OSError):
                self._address.unlink()
            with contextlib.suppress(OSError):
                self._folder.rmdir()  # Succeeds for the last.
