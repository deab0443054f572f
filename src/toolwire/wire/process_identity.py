"""The check whether a process still lives, made by another process of the same machine."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from functools import cache
from pathlib import Path


def own_identity() -> str:
    """Return a name of this process. Machines made from one snapshot may share names."""
    return f"{own_machine()}/{os.getpid()}/{_started(os.getpid())}"


def is_gone(identity: str) -> bool:
    """Return whether a process has ended on this machine; False if that is unknown."""
    machine, pid, started = identity.split("/")
    if machine != own_machine() or sys.platform == "win32":
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
def own_machine() -> str:
    """Return a short name for the machine, or the container, whose numbers of processes this process sees."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        # A container has its own numbers of processes.
        name = f"{boot}{Path('/proc/self/ns/pid').readlink().name}"
    except OSError:
        name = socket.gethostname()
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def _started(pid: int) -> str:
    """Return when a process was started, in ticks since the start of the machine; empty where that is not known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program may hold anything, brackets and spaces included.
    return stat.rpartition(")")[2].split()[19]
