"""`toolwire dev FILE`: serve a file over HTTP, load it again when it changes, and show it in the inspector.

Clients stay connected over a change and are told which lists changed. A file that cannot be loaded changes nothing but
what the terminal and the page say.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from toolwire import logs
from toolwire.cli.errors import UsageError
from toolwire.cli.inspect import add_page_arguments, announce_page
from toolwire.cli.reloading import LoadFailed, Reloader, where
from toolwire.inspector import Inspector, InspectorApp, serving
from toolwire.protocol.errors import ServerError
from toolwire.server.app import Server
from toolwire.server.stage import Stage
from toolwire.wire import http_server, stdio
from toolwire.wire.loops import run

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from socket import socket


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "server", metavar="FILE[:OBJECT]", help="the file, and the name of the Server in it if it is not obvious"
    )
    parser.add_argument("--port", type=int, default=8000, help="the port of the server, 0 for any (default: 8000)")
    parser.add_argument("--path", default="/mcp", help="the path of its endpoint (default: /mcp)")
    add_page_arguments(parser, "--inspector-port")


def main(arguments: Namespace) -> int:
    reloader = Reloader(arguments.server)
    if not arguments.path.startswith("/"):
        raise UsageError(f"the path of an endpoint starts with a slash, not {arguments.path!r}")
    logs.install("warning")
    try:
        sockets = http_server.listen("127.0.0.1", arguments.port, public=False)
        page_sockets = serving.listen(arguments.inspector_port)
    except ServerError as error:
        sys.stderr.write(f"toolwire: {error}\n")
        return 1
    url = http_server.url_of(sockets, "127.0.0.1", arguments.path)
    development = Development(reloader, url)
    run(development.serve(sockets, page_sockets, arguments.path, open_page=not arguments.no_open))
    return 0


class Development:
    """A server that is being written."""

    def __init__(self, reloader: Reloader, url: str) -> None:
        self._reloader = reloader
        self._url = url
        loaded = reloader.load()
        # A file that is broken from the start has a server too: an empty one, until it is mended.
        broken = isinstance(loaded, LoadFailed)
        self.stage: Stage = Stage(_revealing(Server("broken") if broken else loaded))
        self.inspector: Inspector = Inspector(self.stage, label=reloader.label, url=url)
        self._report(loaded if broken else None)

    async def serve(self, sockets: list[socket], page_sockets: list[socket], path: str, *, open_page: bool) -> None:
        page = InspectorApp(self.inspector)
        server = http_server.HttpServer(self.stage.http_app(path=path), sockets, drain=self.stage.limits.drain)
        inspector = serving.make_server(page, page_sockets)

        def stop() -> None:
            server.stop()
            inspector.stop()

        def ready() -> None:
            sys.stderr.write(
                f"toolwire: {self._reloader.label} serves at {self._url}, and is loaded again on every change\n"
                f"toolwire: give that address to any MCP client, or say\n  toolwire list {self._url}\n"
            )
            announce_page(serving.address(page, page_sockets), open_it=open_page)

        logging.getLogger("toolwire").addHandler(_ToPage(self.inspector))
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            with stdio.signals(stop):
                await asyncio.gather(server.serve(), inspector.serve(ready))
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        while True:
            await self._reloader.changed()
            await self.reload()

    async def reload(self) -> None:
        """Load the file, and let what it defines take over."""
        loaded = self._reloader.load()
        if isinstance(loaded, LoadFailed):
            self._report(loaded)
            return
        try:
            changed = await self.stage.replace(_revealing(loaded))
        except Exception as error:
            file, line, code = where(error)
            told = f"the lifespan failed: {type(error).__name__}: {error}"
            self._report(LoadFailed(told, f"toolwire: {told}\n", file, line, code))
            return
        self._report(None)
        sys.stderr.write(f"toolwire: loaded again, {' and '.join(changed) or 'no list'} changed\n")

    def _report(self, failed: LoadFailed | None) -> None:
        if failed is not None:
            sys.stderr.write(failed.trace if failed.trace.endswith("\n") else f"toolwire: {failed.trace}\n")
        sys.stderr.flush()
        self.inspector.reloaded(None if failed is None else msgspec.to_builtins(failed))


def _revealing(server: Any) -> Any:
    """Errors say what happened: whoever calls a server under development is whoever writes it."""
    server.kernel.debug = True
    return server


class _ToPage(logging.Handler):
    """What goes wrong in the server, shown in the page with the line where it happened."""

    def __init__(self, inspector: Inspector) -> None:
        super().__init__(logging.WARNING)
        self._inspector = inspector

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        file, line, code = where(error)
        text = record.getMessage() if error is None else f"{type(error).__name__}: {error}"
        self._inspector.note("problem", text=text[:2_000], file=file, line=line, code=code)
