"""The end of an application under uvicorn, for an application that uvicorn does not tell in time.

uvicorn sends the lifespan event that stops an application only when all connections are gone, and an open stream never
goes. It sends no such event to an application that is mounted in another one, and may end the process with the signal
that stopped it, before anything on the event loop is cleaned up.

So the application watches `uvicorn.Server` while it runs. It reads three attributes: `should_exit` is set when the
server is told to end, `servers` are the listening sockets, and `server_state` has the connections and the tasks of
requests. The server waits for those tasks before it ends, so the last work of the application is put among them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakSet

log: logging.Logger = logging.getLogger("toolwire.http")

#: Less than the tenth of a second that uvicorn lets pass between its decision to end and its look at the tasks.
LOOK_SECONDS: Final = 0.05

Leave: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
# The last tasks of all applications, which do not wait for one another.
_LAST: Final[WeakSet[asyncio.Task[None]]] = WeakSet()


class UvicornState(Protocol):
    """The connections and the tasks of requests of a server."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Uvicorn(Protocol):
    """A `uvicorn.Server`, as far as an application watches it. `servers` is there once the server listens."""

    should_exit: bool
    server_state: UvicornState
    servers: Sequence[asyncio.Server]


def find_uvicorn() -> Uvicorn | None:
    """Return the uvicorn that runs this process; None under another host.

    uvicorn passes no reference to its server on to the application. But while the server runs in the main thread, its
    method `handle_exit` is the handler of SIGTERM (`uvicorn.Server.capture_signals`), and a bound method has its
    object.
    """
    uvicorn = sys.modules.get("uvicorn")  # Not imported here: under another host it may not be installed.
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return server if uvicorn is not None and isinstance(server, uvicorn.Server) else None


class UvicornWatch:
    """A watch over the end of a server, from now until `stop`.

    When the server is told to end, `drain` is called, and again and again, because a request that was just being read
    may open another stream. Then the server waits for `leave`, which is called when all requests have been answered.
    `leave` is None for an application that is told by lifespan events.
    """

    def __init__(self, server: Uvicorn, drain: Callable[[], None], leave: Leave | None) -> None:
        self._server = server
        self._drain = drain
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self._leave = None
        self._next.cancel()

    def _look(self) -> None:
        if self._server.should_exit or self._has_closed():
            self._drain()
            leave, self._leave = self._leave, None
            if leave is not None:
                self._do_last(leave)
            if not self._is_busy():
                self._idle.set()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def _has_closed(self) -> bool:
        """Return whether the server stopped listening for a reason of its own, such as `--limit-max-requests`."""
        servers = getattr(self._server, "servers", ())
        return bool(servers) and not any(each.is_serving() for each in servers)

    def _is_busy(self) -> bool:
        state = self._server.server_state
        return bool(state.connections) or not _LAST.issuperset(state.tasks)

    def _do_last(self, leave: Leave) -> None:
        """Put the last work of the application among the tasks for which the server waits."""
        tasks = self._server.server_state.tasks
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
