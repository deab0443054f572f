"""The seams through which simulated processes get their time, their randomness, their threads and their numbers.

They are those of the standard library: `time`, `os`, `random` and `threading`. `install` replaces them before
Toolwire is imported, so that its default arguments (`clock=time.time`) have them, too. The library needs no switch, and
its path of a request costs what it did. A process of the simulation that starts a thread, or sleeps, is an error: both
go by the real clock.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Protocol


class Host(Protocol):
    """What a simulated process runs on."""

    pid: int
    machine: str

    def lives(self, pid: int) -> bool:
        """Return whether there is a process with this number."""

    def wall(self) -> float:
        """Return the time of day."""

    def monotonic(self) -> float: ...

    def random_bytes(self, count: int) -> bytes: ...


#: The functions of `time` that are replaced.
CLOCKS: Final = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "sleep")

#: The simulated process whose code runs now; None for the simulation itself.
current: Host | None = None

real_monotonic: Callable[[], float] = time.monotonic
_real: dict[str, Any] = {}


def install() -> None:
    """Replace the functions of the standard library, once and for this process."""
    if _real:
        return
    if any(name.partition(".")[0] == "toolwire" for name in sys.modules):
        raise RuntimeError("the seams of the simulation come before the first import of toolwire")
    for name in CLOCKS:
        _real[name] = getattr(time, name)
    _real["urandom"], _real["start"] = os.urandom, threading.Thread.start
    _real["getpid"], _real["kill"] = os.getpid, os.kill
    replaced: dict[str, Callable[..., Any]] = {
        "time": lambda: _real["time"]() if current is None else current.wall(),
        "monotonic": lambda: _real["monotonic"]() if current is None else current.monotonic(),
        "perf_counter": lambda: _real["perf_counter"]() if current is None else current.monotonic(),
        "time_ns": lambda: _real["time_ns"]() if current is None else int(current.wall() * 1e9),
        "monotonic_ns": lambda: _real["monotonic_ns"]() if current is None else int(current.monotonic() * 1e9),
        "sleep": _sleep,
    }
    for name, function in replaced.items():
        setattr(time, name, function)
    os.urandom, os.getpid, os.kill = _urandom, _getpid, _kill
    random._urandom = _urandom  # type: ignore[attr-defined]  # What `secrets` reads from.
    threading.Thread.start = _start  # type: ignore[method-assign]


def name_machines() -> None:
    """Let each simulated process find the name of its own machine, and not that of the real one."""
    for module in [each for name, each in sys.modules.items() if name.startswith("toolwire.server.tasks.")]:
        for name in ("own_machine", "_machine"):
            if hasattr(module, name):
                setattr(module, name, lambda: "" if current is None else current.machine)


def number(kind: type) -> None:
    """Let objects of a class have their places in sets by their number, and not by their address in memory.

    The order in which a set is read would otherwise differ from run to run.
    """
    numbers = count(1)

    def place(self: Any) -> int:
        found: int = vars(self).setdefault("number_in_simulation", 0) or next(numbers)
        vars(self)["number_in_simulation"] = found
        return found

    kind.__hash__ = place  # type: ignore[method-assign,assignment]


def _urandom(size: int) -> bytes:
    found: bytes = _real["urandom"](size) if current is None else current.random_bytes(size)
    return found


def _getpid() -> int:
    found: int = _real["getpid"]() if current is None else current.pid
    return found


def _kill(pid: int, signal: int) -> None:
    if current is None:
        _real["kill"](pid, signal)
    elif signal != 0:
        raise RuntimeError("a simulated process sends a signal")
    elif not current.lives(pid):
        raise ProcessLookupError


def _sleep(seconds: float) -> None:
    if current is not None:
        raise RuntimeError("a simulated process blocks its event loop")
    _real["sleep"](seconds)


def _start(thread: threading.Thread) -> None:
    if current is not None:
        raise RuntimeError("a simulated process started a thread")
    _real["start"](thread)
