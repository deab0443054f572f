"""What can be asked of any process: its memory, its time on the processor, and why it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO


def resident_kib(process: int | None = None) -> int:
    """The resident memory of a process, or of this one."""
    number = os.getpid() if process is None else process
    if sys.platform == "linux":
        status = Path(f"/proc/{number}/status").read_text()
        return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS:"))
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(number)]))


def processor_seconds(process: int) -> float:
    """Return the seconds that a process has spent on the processor, in all its threads."""
    if sys.platform != "linux":
        raise OSError("the time of another process is only known on Linux")
    fields = _fields(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    if sys.platform != "linux":
        return []
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_child = entry.name.isdigit() and int(_fields(int(entry.name))[1]) == process
        except (OSError, IndexError):
            continue  # It has ended meanwhile.
        if is_child:
            found.append(int(entry.name))
    return found


def _fields(process: int) -> list[str]:
    # The name of the program may hold anything, brackets and spaces included.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def last_words(process: subprocess.Popen[bytes], stderr: IO[bytes]) -> str:
    process.kill()
    process.wait()
    stderr.seek(0)
    said = stderr.read().decode(errors="replace").strip().splitlines()
    return f"the server ended: {said[-1] if said else 'it said nothing'}"
