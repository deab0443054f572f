"""The macOS versions: pipes are shared, and kqueue reports the end of a process."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable

from toolwire.platforms import posix
from toolwire.wire.threads import call_after

assert sys.platform == "darwin"


def watch_exit(loop: asyncio.AbstractEventLoop, pid: int, exited: Callable[[], None]) -> Callable[[], None]:
    """Call back on the loop when a process has ended, without reaping it.

    Returns a function that stops the watch.
    """
    queue = select.kqueue()
    event = select.kevent(
        pid,
        filter=select.KQ_FILTER_PROC,
        flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
        fflags=select.KQ_NOTE_EXIT,
    )
    try:
        queue.control([event], 0, 0)
    except ProcessLookupError:
        queue.close()
        return loop.call_soon(exited).cancel
    except OSError:
        queue.close()
        # The system refuses only a parent that belongs to another user.
        return posix.poll_parent(loop, pid, exited)

    def wait() -> None:
        queue.control(None, 1, None)
        queue.close()

    return call_after("exit watch", wait, loop, exited)
