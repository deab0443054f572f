"""The children of this process that still run, so that a signal that ends this process ends them first."""

from __future__ import annotations

import os
import signal
from typing import Final, Protocol
from weakref import WeakKeyDictionary


class Child(Protocol):
    """A child process, with everything that it started."""

    def kill(self) -> None: ...


#: Each child, and the process that started it: a fork must not kill the children of its parent. Weak, because a channel
#: that is abandoned closes the input of its child.
_running: Final[WeakKeyDictionary[Child, int]] = WeakKeyDictionary()


def add_child(child: Child) -> None:
    _running[child] = os.getpid()


def remove_child(child: Child) -> None:
    """Forget a child that is about to be reaped, because its id may then belong to another process."""
    _running.pop(child, None)


def kill_children() -> None:
    """Kill every running child and its process group at once."""
    for child, parent in list(_running.items()):
        if parent == os.getpid():
            child.kill()


def end_by_signal(number: int) -> None:
    """Kill the children, then end this process as the signal does by default."""
    try:
        kill_children()
    finally:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
