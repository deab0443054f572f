"""Helper threads: they do not keep the process alive, and pass their results to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVarTuple

Arguments = TypeVarTuple("Arguments")


def start_daemon(name: str, target: Callable[[*Arguments], object], *args: *Arguments) -> threading.Thread:
    """Start a thread that may be stuck in a system call for ever, and so must not be waited for at exit."""
    thread = threading.Thread(name=f"toolwire {name}", target=target, args=args, daemon=True)
    thread.start()
    return thread


def hand_over(loop: asyncio.AbstractEventLoop, callback: Callable[[*Arguments], object], *args: *Arguments) -> bool:
    """Call back on the loop's thread; return False when the loop is closed, which is no error."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        return False
    return True


def call_on(loop: asyncio.AbstractEventLoop, callback: Callable[[*Arguments], object], *args: *Arguments) -> None:
    """Call back on a loop: at once if it is the running one, and not at all if it is closed."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        callback(*args)
    else:
        hand_over(loop, callback, *args)


def call_after(
    name: str, wait: Callable[[], None], loop: asyncio.AbstractEventLoop, callback: Callable[[], None]
) -> Callable[[], None]:
    """Call back on the loop when `wait`, which blocks a thread, has returned; return a function that cancels this."""
    wanted = True

    def tell() -> None:
        if wanted:
            callback()

    def work() -> None:
        wait()
        hand_over(loop, tell)

    def stop() -> None:
        nonlocal wanted
        wanted = False

    start_daemon(name, work)
    return stop
