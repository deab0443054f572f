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
#: Time to tell the open pages that the inspector ends.
DRAIN_SECONDS: Final = 1.0


def listen(port: int) -> list[socket]:
    """Open the sockets of the page, which other machines cannot reach; `ServerError` when the port is taken."""
    http_server.check_installed()
    return http_server.listen(HOST, port, public=False)


def address(app: InspectorApp, sockets: Sequence[socket]) -> str:
    """Return the address of the page. A browser never sends the part after `#`, and the page removes it at once."""
    return http_server.url_of(sockets, HOST, f"/#token={app.token}")


def make_server(app: InspectorApp, sockets: Sequence[socket]) -> http_server.HttpServer:
    return http_server.HttpServer(app, sockets, drain=DRAIN_SECONDS)


async def serve(app: InspectorApp, sockets: Sequence[socket], signals: Signals, ready: Callable[[], None]) -> None:
    """Serve the page until a signal of `signals` ends it."""
    server = make_server(app, sockets)
    with signals(server.stop):
        await server.serve(ready)
