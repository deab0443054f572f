"""The seams through which simulated processes get their time, their randomness, their threads and their numbers.

They are those of the standard library: `time`, `os`, `random`, `threading` and `queue`. `install` replaces them before
Toolwire is imported, so that its default arguments (`clock=time.time`) have them, too. The library needs no switch, and
its path of a request costs what it did. A thread that a process starts is one of the simulation, which may sleep and
wait for a queue. The thread of an event loop that does so is an error.
"""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Final, Protocol, cast


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

    def start_thread(self, work: Callable[[], None]) -> None:
        """Run a function in a thread of this process."""


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
    _real["getpid"], _real["kill"], _real["queue"] = os.getpid, os.kill, queue.SimpleQueue
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
    queue.SimpleQueue = lambda: _real["queue"]() if current is None else WaitingQueue()  # type: ignore[assignment,misc]


class WaitingThread(Host, Protocol):
    """A simulated thread, which is not that of an event loop."""

    def wait(self) -> None:
        """Let the simulation go on until something wakes this thread."""

    def wake(self) -> None: ...

    def sleep(self, seconds: float) -> None: ...


def _waiting_thread() -> WaitingThread:
    """Return the thread that runs now, which is about to wait."""
    if not hasattr(current, "wait"):
        raise RuntimeError("a simulated process blocks its event loop")
    return cast(WaitingThread, current)


class WaitingQueue:
    """A queue between simulated threads, in place of `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[WaitingThread] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            self._waiting.popleft().wake()

    def get(self) -> Any:
        while not self._items:
            thread = _waiting_thread()
            self._waiting.append(thread)
            thread.wait()
        return self._items.popleft()


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
    if current is None:
        _real["sleep"](seconds)
    else:
        _waiting_thread().sleep(seconds)


def _start(thread: threading.Thread) -> None:
    if current is None:
        _real["start"](thread)
    else:
        current.start_thread(thread.run)


def start_real_thread(work: Callable[[], None]) -> None:
    """Start a thread of the machine, which does not keep the process of the simulation alive."""
    _real.get("start", threading.Thread.start)(threading.Thread(target=work, daemon=True))
