"""The check whether a process still lives, made by another process of the same machine."""

from __future__ import annotations

import os
import socket
import sys
from functools import cache
from pathlib import Path


def own_identity() -> str:
    """Return a name of this process that no other process of any machine has."""
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def is_gone(identity: str) -> bool:
    """Return whether a process has certainly ended; False where that cannot be known from here."""
    machine, pid, started = identity.split("/")
    if machine != _machine() or sys.platform == "win32":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    # Another process may have been given the number since.
    return started != "" and _started(int(pid)) not in ("", started)


@cache
def _machine() -> str:
    try:
        # A container has its own numbers of processes.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}-{Path('/proc/self/ns/pid').readlink().name}"
    except OSError:
        return socket.gethostname().replace("/", "-")


def _started(pid: int) -> str:
    """Return when a process was started, in ticks since the start of the machine; empty where that is not known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program may hold anything, brackets and spaces included.
    return stat.rpartition(")")[2].split()[19]
