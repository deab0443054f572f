"""SIGHUP: a sign to read a configuration again, unless the terminal of the process is gone.

A terminal that closes sends the same signal. Then the process ends, as it would without a handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


def terminal_is_gone() -> bool:
    """Return whether standard input, output or error is a terminal that somebody has closed."""
    if sys.platform == "win32":  # It has no such signal.
        return False
    import select  # Here, because it is needed once.

    looks = select.poll()
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            looks.register(descriptor, 0)
    gone = [descriptor for descriptor, event in looks.poll(0) if event & select.POLLHUP]
    return any(_was_terminal(descriptor) for descriptor in gone)


def _was_terminal(descriptor: int) -> bool:
    """Return whether a descriptor is that of a terminal. One that is gone answers no question about terminals."""
    if sys.platform == "win32":
        return False
    import stat

    # 136 to 143 are the numbers of the devices that stand for terminal windows, 4 that of those at the machine itself.
    found = os.fstat(descriptor)
    return stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) in (4, *range(136, 144))


@contextlib.contextmanager
def hangups(hear: Callable[[], None]) -> Iterator[None]:
    """Call `hear` on the loop at each SIGHUP; restore the handler after.

    This does nothing outside of the main thread, where there is no such signal, and where the process was told to
    ignore it.
    """
    number = getattr(signal, "SIGHUP", None)
    here = threading.current_thread() is threading.main_thread()
    if number is None or not here or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    loop = asyncio.get_running_loop()

    def received(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(answered)

    def answered() -> None:
        if terminal_is_gone():
            signal.raise_signal(signal.SIGTERM)
        else:
            hear()

    before = signal.signal(number, received)
    try:
        yield
    finally:
        signal.signal(number, before)
