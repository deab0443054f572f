"""Noticing that the uvicorn which runs an application is about to end.

uvicorn waits for its connections before it tells the application that it stops, and a stream that waits for that never
ends. An application that is mounted in another one is not told at all, and the process may end with the signal that
stopped it, before anything of the event loop is cleaned up. uvicorn says that it ends nowhere else than in the object
that handles its signals, so that is looked at. Before it ends it waits for the tasks of its requests: what has to be
done last is put among them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias
from weakref import WeakSet

log: logging.Logger = logging.getLogger("toolwire.http")

#: Less than the tenth of a second that uvicorn lets pass between its decision to end and its look at the tasks.
LOOK_SECONDS: Final = 0.05

Leave: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
# The last tasks of all applications, which do not wait for one another.
_LAST: Final[WeakSet[asyncio.Task[None]]] = WeakSet()


def watch_host(drain: Callable[[], None], leave: Leave | None) -> Callable[[], None]:
    """Watch the host until what this returns is called.

    When the host is told to end, `drain` is called, and again and again: a request that was just being read may open
    another stream. Then the host waits for `leave`, which is called when all requests have been answered; None where
    the host itself says when it is time.

    Other hosts than uvicorn are not watched; those that are known cancel what is still open after a while.
    """
    host = _uvicorn()
    return _nothing if host is None else _Watch(host, drain, leave).end


def _uvicorn() -> Any:
    handler = signal.getsignal(signal.SIGTERM)
    host = getattr(handler, "__self__", None)
    return host if hasattr(host, "should_exit") and hasattr(host, "server_state") else None


class _Watch:
    def __init__(self, host: Any, drain: Callable[[], None], leave: Leave | None) -> None:
        self._host = host
        self._drain = drain
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._host.should_exit or self._has_closed():
            self._drain()
            leave, self._leave = self._leave, None
            if leave is not None:
                self._do_last(leave)
            if not self._is_busy():
                self._idle.set()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def _has_closed(self) -> bool:
        """Return whether it stopped listening for a reason of its own, such as a limit on the number of requests."""
        servers = getattr(self._host, "servers", ())
        return bool(servers) and not any(server.is_serving() for server in servers)

    def _is_busy(self) -> bool:
        state = self._host.server_state
        return bool(state.connections) or not _LAST.issuperset(state.tasks)

    def _do_last(self, leave: Leave) -> None:
        tasks: set[asyncio.Task[None]] = self._host.server_state.tasks
        task = self._loop.create_task(self._when_idle(leave))
        _LAST.add(task)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _when_idle(self, leave: Leave) -> None:
        try:
            await self._idle.wait()
        except asyncio.CancelledError:
            log.warning("the host did not wait for its requests to end")
        try:
            await leave()
        except Exception:
            log.exception("the server did not stop properly")

    def end(self) -> None:
        self._leave = None
        self._next.cancel()


def _nothing() -> None:
    return
