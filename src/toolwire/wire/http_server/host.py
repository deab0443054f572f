"""Noticing that the uvicorn which runs an application is about to end.

uvicorn waits for its connections before it tells the application that it stops, and a stream that waits for that never
ends. It says so nowhere else than in the object that handles its signals, so that is looked at, and nothing in the
process is changed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Final

LOOK_SECONDS: Final = 0.1


def watch_host(callback: Callable[[], None]) -> Callable[[], None]:
    """Call back when the host is told to end, and again until the watch is ended by what this returns: a request that
    was just being read may open another stream.

    Other hosts than uvicorn are not watched; those that are known cancel what is still open after a while.
    """
    host = _uvicorn()
    return _nothing if host is None else _Watch(host, callback).end


def _uvicorn() -> Any:
    handler = signal.getsignal(signal.SIGTERM)
    host = getattr(handler, "__self__", None)
    return host if hasattr(host, "should_exit") and hasattr(host, "server_state") else None


class _Watch:
    def __init__(self, host: Any, callback: Callable[[], None]) -> None:
        self._host = host
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._host.should_exit or self._has_closed():
            self._callback()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def _has_closed(self) -> bool:
        """Whether it stopped listening for a reason of its own, such as a limit on the number of requests."""
        servers = getattr(self._host, "servers", ())
        return bool(servers) and not any(server.is_serving() for server in servers)

    def end(self) -> None:
        self._next.cancel()


def _nothing() -> None:
    return
