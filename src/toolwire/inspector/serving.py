"""The inspector on a port of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from socket import socket
from typing import Any, Final, TypeAlias

from toolwire.http import serving as http_server
from toolwire.inspector.app import InspectorApp

Signals: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[Any]]

HOST: Final = "127.0.0.1"
#: A page that is open is told that this is the end; nothing else is worth waiting for.
DRAIN_SECONDS: Final = 1.0


def listen(port: int) -> list[socket]:
    """Sockets for the page, never reachable from other machines; `ServerError` when the port cannot be had."""
    http_server.check_installed()
    return http_server.listen(HOST, port, public=False)


def address(app: InspectorApp, sockets: Sequence[socket]) -> str:
    """Where the page is. What comes after `#` stays in the browser, and the page takes it out of the address."""
    return http_server.url_of(sockets, HOST, f"/#token={app.token}")


def make_server(app: InspectorApp, sockets: Sequence[socket]) -> http_server.HttpServer:
    return http_server.HttpServer(app, sockets, drain=DRAIN_SECONDS)


async def serve(app: InspectorApp, sockets: Sequence[socket], signals: Signals, ready: Callable[[], None]) -> None:
    """Serve the page until what `signals` watches ends it."""
    server = make_server(app, sockets)
    with signals(server.stop):
        await server.serve(ready)
