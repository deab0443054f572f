"""The inspector on two ports of this machine: one for its page, one for views."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from socket import socket
from typing import Any, Final, NamedTuple, TypeAlias

from toolwire.http import serving as http_server
from toolwire.inspector.app import InspectorApp

Signals: TypeAlias = Callable[[Callable[[], None]], AbstractContextManager[Any]]

HOST: Final = "127.0.0.1"
#: Time to tell the open pages that the inspector ends.
DRAIN_SECONDS: Final = 1.0


class Listeners(NamedTuple):
    """The sockets of the page, and those of the views."""

    page: list[socket]
    views: list[socket]

    def url(self, path: str) -> str:
        """Return an address of the page."""
        return http_server.url_of(self.page, HOST, path)


def listen(port: int, view_port: int = 0) -> Listeners:
    """Open the sockets, on loopback only. Port 0 is any free port.

    Raises `ServerError` when a port is taken.
    """
    http_server.check_installed()
    page = http_server.listen(HOST, port, public=False)
    try:
        return Listeners(page, http_server.listen(HOST, view_port, public=False))
    except BaseException:
        for each in page:
            each.close()
        raise


def address(app: InspectorApp, listeners: Listeners) -> str:
    """Return the address of the page.

    A browser never sends the part after `#`, and the page removes it at once.
    """
    return listeners.url(f"/#token={app.token}")


class InspectorServer:
    """The page of an inspector and the pages of views, served until both are stopped."""

    def __init__(self, app: InspectorApp, listeners: Listeners) -> None:
        app.show_views(listeners.views[0].getsockname()[1])
        self._servers = [
            http_server.HttpServer(app, listeners.page, drain=DRAIN_SECONDS),
            http_server.HttpServer(app.inspector.views.pages, listeners.views, drain=DRAIN_SECONDS),
        ]

    def stop(self) -> None:
        for each in self._servers:
            each.stop()

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until `stop` is called; `ready` is called when the page can be opened."""
        page, views = self._servers
        await asyncio.gather(page.serve(ready), views.serve())


async def serve(app: InspectorApp, listeners: Listeners, signals: Signals, ready: Callable[[], None]) -> None:
    """Serve the page until a signal of `signals` ends it."""
    server = InspectorServer(app, listeners)
    with signals(server.stop):
        await server.serve(ready)
