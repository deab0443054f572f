"""`toolwire gateway FILE`: serve the servers of a file at one address."""

from __future__ import annotations

import asyncio
from argparse import RawDescriptionHelpFormatter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from toolwire import logs
from toolwire.cli import options, run
from toolwire.cli.errors import UsageError
from toolwire.cli.parsing import file_beside_words
from toolwire.cli.running import end_children_first
from toolwire.cli.screen import note
from toolwire.protocol.errors import ServerError
from toolwire.wire.stdio import claim

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import AsyncIterator

    from toolwire.gateway import Gateway
    from toolwire.inspector.serving import InspectorServer
    from toolwire.server.server import Server


#: Words in the place of a file, their modules and purposes. A file of such a name is `./check`.
WORDS: Final = {
    "check": ("gateway_check", "find mistakes in the file of a gateway, and servers that cannot be reached"),
    "credentials": ("gateway_credentials", "list and revoke the accounts that a gateway keeps"),
    "pins": ("gateway_pins", "show tools that are new or changed, and approve them"),
    "schema": ("gateway_schema", "print the JSON schema of the file of a gateway"),
}


def add_arguments(parser: ArgumentParser) -> None:
    words = "".join(f"  toolwire gateway {word:12} {purpose}\n" for word, (_, purpose) in WORDS.items())
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = f"other uses:\n{words}"
    parser.add_argument(
        "file", type=file_beside_words(WORDS), metavar="FILE", help="a JSON or TOML file with mcpServers"
    )
    options.add_transport(parser, "http")
    options.add_stores(parser, "where to keep state", is_written=True)
    parser.add_argument(
        "--inspect", action="store_true", help="also show the gateway, its servers and all calls in the inspector"
    )
    options.add_page(parser, "--inspector-port")
    options.add_log_level(parser)
    run.add_http_arguments(parser)


def main(arguments: Namespace) -> int:
    given = run.http_options(arguments)
    over_stdio = arguments.transport == "stdio"
    if over_stdio:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for --transport http")
        claim()
    # Imported here because the options alone do not need it.
    from toolwire.gateway.config import make_gateway, read_gateway_file

    try:
        file = read_gateway_file(arguments.file)
    except ServerError as error:
        raise UsageError(str(error)) from None
    served = {**file.http_options(), **given}
    if arguments.inspect and (over_stdio or served.get("workers", 1) > 1):
        raise UsageError("--inspect is for one process over HTTP: leave out --workers and --transport")
    level = served.pop("log_level", "info" if served.get("access_log") and not over_stdio else "warning")
    logs.install(arguments.log_level or level)
    further: dict[str, Any] = {} if arguments.stores is None else {"stores": arguments.stores}
    try:
        page = _Page(arguments) if arguments.inspect else None
        try:
            gateway = make_gateway(file, lifespan=None if page is None else page.lifespan, **further)
        except ServerError as error:
            raise UsageError(str(error)) from None
        assert gateway.configuration is not None
        gateway.configuration.follow_file()
        with end_children_first("SIGQUIT"):
            if over_stdio:
                gateway.run("stdio")
            elif page is None:
                gateway.run("http", **served, on_ready=run.announce)
            else:
                page.gateway = gateway
                gateway.run("http", **served, on_ready=page.begin)
    except ServerError as error:
        note(f"toolwire: {error}")
        return 1
    return 0


class _Page:
    """The page of the inspector, served in the process of a gateway."""

    def __init__(self, arguments: Namespace) -> None:
        # Imported here because most gateways are served without a page.
        from toolwire.inspector import serving

        self._arguments = arguments
        self._listeners = serving.listen(arguments.inspector_port, arguments.view_port)
        self._server: InspectorServer | None = None
        self._served: asyncio.Task[None] | None = None
        self.gateway: Gateway | None = None

    def begin(self, url: str) -> None:
        """Serve the page, now that the address of the gateway is known."""
        from toolwire.cli.inspect import announce_page, saved_requests
        from toolwire.inspector import Inspector, InspectorApp, serving

        run.announce(url)
        # A client like any other, so that it holds nothing up when the gateway ends.
        inspector = Inspector(
            url, label=self._arguments.file, url=url, saved=saved_requests(url), gateway=lambda: self.gateway
        )
        app = InspectorApp(inspector)
        address = serving.address(app, self._listeners)
        self._server = serving.InspectorServer(app, self._listeners)
        shown = self._server.serve(lambda: announce_page(address, open_it=not self._arguments.no_open))
        self._served = asyncio.get_running_loop().create_task(shown)

    @asynccontextmanager
    async def lifespan(self, gateway: Server) -> AsyncIterator[None]:
        yield
        if self._server is not None and self._served is not None:
            self._server.stop()
            await asyncio.wait({self._served})
