"""An application as an HTTP server: the sockets it listens on, and its end.

uvicorn runs the connections. The shutdown is our own, for two reasons. uvicorn raises the signal that stopped it again,
and it tells the application only when all connections are gone, so an open stream would make it wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolwire.extras import require
from toolwire.http.origin_check import is_loopback
from toolwire.http1.asgi_types import Receive, SendMessage
from toolwire.protocol.errors import ServerError

if TYPE_CHECKING:
    from uvicorn import Server

BACKLOG: Final = 2048
#: Longer than the minute after which proxies drop an unused connection: the side that reuses a connection should be the
#: side that closes it.
KEEP_ALIVE_SECONDS: Final = 75
#: How long the answers of calls that were given up get to leave.
GIVE_UP_SECONDS: Final = 0.5
#: How long requests get to notice that their connection was cut.
CLEAN_UP_SECONDS: Final = 1.0


class DrainableApplication(Protocol):
    """An ASGI application that can be told in advance that it is about to stop."""

    async def __call__(self, scope: Any, receive: Receive, send: SendMessage) -> None: ...

    def drain(self) -> None:
        """Report that it is not ready, and end the streams that have no end of their own."""

    def give_up(self) -> None:
        """Answer the calls that still run with an error, and cancel them."""


def check_installed() -> None:
    """Raise `MissingExtra` when a package that serving HTTP needs is not installed."""
    for package in ("httptools", "uvicorn"):
        require(package, extra="http", what="Serving HTTP")


# --- sockets --------------------------------------------------------------------------------------


def listen(host: str, port: int, *, public: bool) -> list[socket.socket]:
    """Open sockets for every address of a host, on one port. `public` allows addresses that others can reach."""
    if not 0 <= port <= 65535:
        raise ServerError(f"{port} is not a port: use 0 to 65535, where 0 is any that is free")
    addresses = _addresses(host, port)
    for _, address in addresses:
        if not public and not is_loopback(address[0]):
            raise ServerError(
                f"{host!r} can be reached from other machines, and this server lets everybody in:"
                " add auth, or say allow_unauthenticated=True (--allow-unauthenticated)"
            )
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in addresses:
        try:
            sockets.append(_bound(family, (address[0], port, *address[2:])))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                missing = error  # A name may have addresses of a family that this machine does not have.
                continue
            _close(sockets)
            raise ServerError(_why_not(host, port, error)) from None
        # A port that the system chose has to be the same on all addresses.
        port = sockets[0].getsockname()[1]
    if not sockets:
        raise ServerError(_why_not(host, port, missing or OSError("it has no address")))
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    try:
        # As bytes, because a text loads the codec of international names.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ServerError(f"{host!r} is not an address of this machine") from None
    wanted = (socket.AF_INET, socket.AF_INET6)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found if family in wanted))


def _bound(family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            # On Windows this would let another program take the port over.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is in use: stop what uses it, or choose another port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Port {port} of {host} is not allowed for this user: choose one from 1024 on"
    return f"Port {port} of {host} cannot be used: {error.strerror or error}"


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in sockets:
        each.close()


def url_of(sockets: Sequence[socket.socket], host: str, path: str) -> str:
    """Return the URL that a client on this machine uses."""
    port = sockets[0].getsockname()[1]
    if host in ("", "0.0.0.0", "::"):
        host = "127.0.0.1" if sockets[0].family == socket.AF_INET else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


# --- serving --------------------------------------------------------------------------------------


class HttpServer:
    """An application that serves requests on sockets until it is stopped."""

    def __init__(self, application: DrainableApplication, sockets: Sequence[socket.socket], *, drain: float) -> None:
        """`drain`: the seconds that calls get to finish when the server stops."""
        self._application = application
        self._sockets = list(sockets)
        self._drain = drain
        self._server: Server | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Accept no more connections, finish running requests, and let `serve` return."""
        self._stopping.set()

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop` is called; `ready` is called when the first request can be answered."""
        async with self._accepting():
            if ready is not None:
                ready()
            await self._stopping.wait()

    @contextlib.asynccontextmanager
    async def _accepting(self) -> AsyncIterator[None]:
        server = self._server = self._make()
        ticking: asyncio.Task[None] | None = None
        try:
            await server.startup(sockets=self._sockets)
            # It sets the Date header, once a second.
            ticking = asyncio.create_task(server.main_loop())
            yield
        finally:
            if ticking is not None:
                ticking.cancel()
            await self._shut_down(server)

    def _make(self) -> Server:
        from uvicorn import Config, Server

        from toolwire.http1.server_connection import protocol_for

        config = Config(
            self._application,
            http=protocol_for(asyncio.get_running_loop()),
            ws="none",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        config.load()
        server = Server(config)
        server.lifespan = config.lifespan_class(config)
        return server

    async def _shut_down(self, server: Server) -> None:
        for listener in getattr(server, "servers", ()):
            listener.close()
        _close(self._sockets)
        self._application.drain()
        state = server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        if not await self._finished(server, self._drain):
            self._application.give_up()
            if not await self._finished(server, GIVE_UP_SECONDS):
                for connection in list(state.connections):
                    connection.give_up()  # type: ignore[union-attr]
                if not await self._finished(server, CLEAN_UP_SECONDS):
                    for task in list(state.tasks):
                        task.cancel()
                    await self._finished(server, CLEAN_UP_SECONDS)
        await server.lifespan.shutdown()

    async def _finished(self, server: Server, seconds: float) -> bool:
        """Wait for all requests to end and all answers to leave; return whether they did within the time."""
        state = server.server_state
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (running := _running(state.tasks)) or state.connections:
                    # Repeated, because a request that was just being read may open another stream.
                    self._application.drain()
                    if running:
                        await asyncio.wait(running, timeout=0.1)
                    else:
                        await asyncio.sleep(0.01)
        return not (_running(state.tasks) or state.connections)


def _running(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Return the tasks that run. A task takes itself out of the set, unless it was cancelled before it began."""
    return {task for task in tasks if not task.done()}
