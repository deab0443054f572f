"""The ASGI application: one callable that serves every revision over HTTP, on any event loop.

It needs no web framework and can be mounted under any prefix. It starts its server on the first request, with or
without lifespan events, and stops it when its host ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from toolwire.http.app_runtime import AppHost, AppRuntime
from toolwire.http.app_settings import AppSettings
from toolwire.http.callers import Callers
from toolwire.http.legacy.http_sse_2024 import SseTransport
from toolwire.http.legacy.sessions import Sessions
from toolwire.http.origin_check import Guard
from toolwire.http.responses import Page
from toolwire.http.uvicorn_end import Uvicorn
from toolwire.http1.asgi_types import DIRECT, Receive, Scope, SendMessage
from toolwire.wire.threads import call_on

log: logging.Logger = logging.getLogger("toolwire.http")


class HttpApp:
    """The application that `server.http_app()` returns. Mount it, or pass it to any ASGI server.

    It belongs to no event loop: each loop that serves it has an `AppRuntime`.
    """

    def __init__(
        self,
        find_host: Callable[[], AppHost],
        *,
        path: str = "/mcp",
        guard: Guard | None = None,
        settings: AppSettings | None = None,
        stateless: bool = False,
        sse: bool = False,
        pages: Mapping[str, Page] | None = None,
        callers: Callers | None = None,
    ) -> None:
        """`find_host` returns what the server has on the running loop. `callers` tells apart who shares the limits."""
        if not path.startswith("/"):
            raise ValueError(f"The path of an endpoint starts with a slash: {path!r}")
        self.find_host = find_host
        self.path: str = path.rstrip("/") or "/"
        self.guard: Guard = guard or Guard()
        self.settings: AppSettings = settings or AppSettings()
        self.callers: Callers = callers or Callers()
        self.stateless: bool = stateless
        self.offers_sse: bool = sse
        self.pages: Mapping[str, Page] = pages or {}
        self.uvicorn: Uvicorn | None = None
        """The `uvicorn.Server` that runs the application, so that its streams end when the server ends.

        The application finds the server by itself where uvicorn handles the signals of the process. A program that runs
        uvicorn in another way, such as in a thread, sets it before the first request.
        """
        self._runtimes: tuple[AppRuntime, ...] = ()
        # The one that was used last. Nearly always there is only one loop.
        self._latest: AppRuntime | None = None
        self._lock = threading.Lock()

    @property
    def authenticates(self) -> bool:
        """Return whether all callers have to authenticate."""
        gate = self.settings.gate
        return gate is not None and gate.nobody is None

    @property
    def opened(self) -> int:
        """Return the number of legacy sessions that this process opened and that are not over."""
        return sum(len(each.sessions) for each in self._runtimes if each.sessions is not None)

    @property
    def sessions(self) -> Sessions | None:
        """The legacy sessions while the application runs, on the loop that used it last; None for a stateless one."""
        return None if self._latest is None else self._latest.sessions

    @property
    def sse(self) -> SseTransport | None:
        """The streams of 2024-11-05 while the application runs; None where they are not offered."""
        return None if self._latest is None else self._latest.sse

    def apply_settings(self, settings: AppSettings) -> None:
        """Serve requests by other settings from now on, and end the streams that a replaced gate let in.

        The clients open their streams again, and the new gate decides whether they may.
        """
        replaced, gate = self.settings.gate, settings.gate
        with self._lock:
            self.settings = settings
            runtimes = self._runtimes
        # Whoever was let in by two gates is let in by each of them.
        is_wider = gate is None if replaced is None else replaced.is_narrowed
        for runtime in runtimes:
            runtime.settings = settings
            if runtime.is_ready and gate is not replaced and not is_wider:
                call_on(runtime.loop, runtime.end_streams)

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        kind = scope["type"]
        if kind == "http":
            runtime, direct = self._latest, scope.get(DIRECT)
            # Asking asyncio for the running loop is a system call on Python 3.11.
            if runtime is None or runtime.loop is not (asyncio.get_running_loop() if direct is None else direct.loop):
                runtime = self.runtime()
            await runtime.http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def runtime(self) -> AppRuntime:
        """Return what the application has on the running loop; make it if there is nothing yet."""
        loop, ended = asyncio.get_running_loop(), list[AppRuntime]()
        with self._lock:
            runtime = next((each for each in self._runtimes if each.loop is loop), None)
            if runtime is None:
                ended = [each for each in self._runtimes if each.loop.is_closed()]
                runtime = AppRuntime(self, loop)
                self._runtimes = (*(each for each in self._runtimes if each not in ended), runtime)
        for each in ended:
            each.discard()
        self._latest = runtime
        return runtime

    @asynccontextmanager
    async def lifespan(self, application: Any = None) -> AsyncIterator[None]:
        """Start and stop with the application that this one is mounted in: `FastAPI(lifespan=app.lifespan)`.

        A server that gets no lifespan events from its host, as when it is mounted, starts with its first request. It
        stops when uvicorn ends, or when its event loop ends. With this lifespan it starts before the first request, and
        stops with its application under any host.
        """
        runtime = self.runtime()
        runtime.is_led = True
        await runtime.ensure_started()
        try:
            yield
        finally:
            await runtime.stop()

    async def _lifespan(self, receive: Receive, send: SendMessage) -> None:
        await receive()
        runtime = self.runtime()
        runtime.is_led = True
        try:
            await runtime.ensure_started()
        except Exception:
            log.exception("the server did not start")
            await send({"type": "lifespan.startup.failed", "message": "The server did not start"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await runtime.stop()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Report that the application is not ready on this loop, and end its streams that have no end of their own."""
        self.runtime().drain()

    def give_up(self) -> None:
        """Answer the calls of this loop that still run with an error, and cancel them."""
        self.runtime().give_up()

    async def stop(self) -> None:
        """End the sessions and streams of this loop, and leave the server's lifespan."""
        await self.runtime().stop()
