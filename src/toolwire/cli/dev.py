"""`toolwire dev FILE`: serve a file over HTTP, with reloading and the inspector.

Clients stay connected over a change and learn which lists changed. If the file cannot be loaded, the terminal and the
page say why, and the last version that worked is still served.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from toolwire import logs
from toolwire.auth.principal import Principal
from toolwire.cli import options, server_source
from toolwire.cli.inspect import announce_page, saved_requests
from toolwire.cli.loop_watchdog import BlockedLoop, watched
from toolwire.cli.reloading import LoadFailed, Reloader, StagedFile, where
from toolwire.cli.running import end_children_first
from toolwire.cli.screen import note
from toolwire.http import serving as http_server
from toolwire.inspector import Inspector, InspectorApp, serving
from toolwire.loops import run
from toolwire.protocol.errors import ServerError
from toolwire.server.hot_reload import Stage
from toolwire.server.transports import Serving
from toolwire.wire import stdio
from toolwire.wire.channel import Channel

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from socket import socket


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("server", metavar=server_source.METAVAR, help=server_source.HELP)
    parser.add_argument(
        "--port", type=options.port, default=8000, help="the port of the server; 0 takes any free one (default: 8000)"
    )
    parser.add_argument("--path", type=options.path, default="/mcp", help="the path of its endpoint (default: /mcp)")
    options.add_caller(parser, "the caller in the inspector (default: an anonymous one without restrictions)")
    options.add_log_level(parser)
    options.add_page(parser, "--inspector-port")


def main(arguments: Namespace) -> int:
    reloader = Reloader(arguments.server)
    options.check_caller(arguments)
    principal = Principal(arguments.subject, "toolwire dev", scopes=arguments.scopes) if arguments.subject else None
    logs.install(arguments.log_level or "warning")
    try:
        http_server.check_installed()
        sockets = http_server.listen("127.0.0.1", arguments.port, public=False)
        listeners = serving.listen(arguments.inspector_port, arguments.view_port)
    except ServerError as error:
        note(f"toolwire: {error}")
        return 1
    url = http_server.url_of(sockets, "127.0.0.1", arguments.path)
    development = Development(reloader, url, principal)
    # The file may serve a gateway, which starts servers.
    with end_children_first("SIGHUP", "SIGQUIT"):
        run(development.serve(sockets, listeners, arguments.path, open_page=not arguments.no_open))
    return 0


class Development:
    """A server under development, and the page that shows it."""

    def __init__(self, reloader: Reloader, url: str, principal: Principal | None) -> None:
        self._label = reloader.label
        self._url = url
        staged = StagedFile(reloader, self._report)
        self.stage: Stage = staged.stage
        self.inspector: Inspector = Inspector(
            _AsCaller(self.stage, principal),
            label=reloader.label,
            url=url,
            saved=saved_requests(reloader.label),
            stores=lambda: self.stage.stores,
            gateway=lambda: self.stage.current,
        )
        self._broken = staged.failed is not None
        self._report(staged.failed)

    async def serve(self, sockets: list[socket], listeners: serving.Listeners, path: str, *, open_page: bool) -> None:
        page = InspectorApp(self.inspector)
        server = http_server.HttpServer(self.stage.http_app(path=path), sockets, drain=self.stage.limits.drain)
        inspector = serving.InspectorServer(page, listeners)

        def stop() -> None:
            server.stop()
            inspector.stop()

        def ready() -> None:
            mended = f"will serve at {self._url} once it is mended"
            serves = f"serves at {self._url}, and is loaded again on every change"
            note(f"toolwire: {self._label} {mended if self._broken else serves}")
            note("toolwire: give that address to any MCP client, or run")
            note(f"  toolwire list {self._url}")
            announce_page(serving.address(page, listeners), open_it=open_page)

        logging.getLogger("toolwire").addHandler(_PageLogHandler(self.inspector))
        with stdio.signals(stop):
            async with watched(partial(self._report_blocked, asyncio.get_running_loop())):
                await asyncio.gather(server.serve(), inspector.serve(ready))

    def _report_blocked(self, loop: asyncio.AbstractEventLoop, found: BlockedLoop) -> None:
        note(f"toolwire: {found.file}, line {found.line}: {found.text}")
        note(f"    {found.code}")
        # The page belongs to the loop, so it learns of it when the loop runs again.
        loop.call_soon_threadsafe(partial(self.inspector.note, "problem", **found._asdict()))

    def _report(self, failed: LoadFailed | None) -> None:
        self.inspector.reloaded(None if failed is None else msgspec.to_builtins(failed))


class _AsCaller:
    """The server as one caller sees it.

    The caller is at this machine and needs no token.
    """

    def __init__(self, server: Serving, principal: Principal | None) -> None:
        self._server = server
        self._principal = principal
        self.name: str = server.name

    async def serve(self, channel: Channel) -> None:
        await self._server.serve(channel, principal=self._principal)


class _PageLogHandler(logging.Handler):
    """Shows warnings and errors in the page, with the line that raised."""

    def __init__(self, inspector: Inspector) -> None:
        super().__init__(logging.WARNING)
        self._inspector = inspector

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        file, line, code = where(error)
        text = record.getMessage() if error is None else f"{type(error).__name__}: {error}"
        self._inspector.note("problem", text=text[:2_000], file=file, line=line, code=code)
