"""`toolwire run FILE[:OBJECT]`: serve a Python file or lock file, over stdio or HTTP."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolwire import logs
from toolwire.cli import openapi_options, options, server_file, server_source
from toolwire.cli.errors import UsageError
from toolwire.protocol.errors import ServerError
from toolwire.server.http_options import HttpSettings
from toolwire.stores.by_address import STORES_VARIABLE, stores_of_environment
from toolwire.wire.stdio import claim

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

#: The options of a server that commands have, beside `--log-level`.
HTTP_OPTIONS: Final = tuple(name for name in HttpSettings.__struct_fields__ if name != "log_level")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("server", metavar=server_source.METAVAR, help=server_source.HELP)
    options.add_transport(parser, "stdio")
    parser.add_argument(
        "--main",
        action="store_true",
        help="run the file as the main program, as `python FILE` does; its run() serves as this command says, and a "
        "file of another library serves as it does by itself",
    )
    parser.add_argument(
        "--reload", action="store_true", help="load the file again when it changes; clients stay connected"
    )
    options.add_stores(parser, "where to keep state when the file does not say it", is_written=True)
    api = parser.add_argument_group("with an API description in place of a Python file")
    api.add_argument("--all", action="store_true", help="offer all of its operations")
    api.add_argument(
        "--bridge", action="store_true", help="offer three tools that list, describe and call the operations"
    )
    openapi_options.add_calling(api)
    options.add_caller(parser, "the caller over stdio (default: an anonymous one without restrictions)")
    options.add_log_level(parser)
    add_http_arguments(parser)


def add_http_arguments(parser: ArgumentParser) -> None:
    """Add the options of a server over HTTP, with the defaults of `HttpSettings`."""
    group = parser.add_argument_group("with --transport http")
    defaults = HttpSettings()

    def add(name: str, help: str, *further: str, **details: Any) -> None:
        default = getattr(defaults, name)
        # An option that is left out is None: a file may give it.
        if isinstance(default, bool):
            details |= {"action": "store_true", "default": None}
        elif isinstance(default, tuple):
            details["action"] = "append"
            help = f"{help}; may be repeated"
        elif default is not None:
            help = f"{help} (default: {default:g})" if isinstance(default, float) else f"{help} (default: {default})"
        group.add_argument(f"--{name.replace('_', '-')}", *further, help=help, **details)

    add("host", "the address to listen on")
    add("port", "the port; 0 takes any free one", type=options.port)
    add("path", "the path of the endpoint", type=options.path)
    add("workers", "the number of processes that serve", type=options.count, metavar="N")
    add(
        "public_url",
        "the address that clients use, if there is a proxy in front",
        type=options.public_url,
        metavar="URL",
    )
    add("allowed_hosts", "another Host that requests may name, such as the name of a proxy", metavar="NAME")
    add(
        "allowed_origins",
        "the origin of web pages that may call the server, such as https://app.example, or '*' for all",
        "--cors",
        metavar="ORIGIN",
    )
    add(
        "trusted_proxies",
        "the address or network of a proxy whose X-Forwarded-For header is believed",
        metavar="ADDRESS",
    )
    add("stateless", "keep no sessions: each request of a client before 2026-07-28 stands alone")
    add("sse", "also serve the transport of 2024-11-05, at /sse and /messages")
    add("allow_unauthenticated", "listen on a public address without authentication")
    add("access_log", "log each HTTP request, unless --log-level is above info")
    add(
        "stores_wait",
        "how long to wait at the start for a store that is not reached; 0 does not wait",
        type=options.seconds_or_zero,
        metavar="SECONDS",
    )


def http_options(arguments: Namespace) -> dict[str, Any]:
    """Return the options of a server over HTTP that were given."""
    return {name: getattr(arguments, name) for name in HTTP_OPTIONS if getattr(arguments, name) is not None}


def announce(url: str) -> None:
    """Say on standard error where a server is reached."""
    _note(f"toolwire: serving at {url} (Ctrl+C ends it)")


def main(arguments: Namespace) -> int:
    given = http_options(arguments)
    over_stdio = arguments.transport == "stdio"
    options.check_caller(arguments)
    if arguments.subject and not over_stdio:
        raise UsageError("--as is for --transport stdio; over HTTP the auth= of the server decides who the caller is")
    if _is_of_api(arguments) and arguments.reload:
        raise UsageError(
            "--all, --bridge, --base-url, --rate and --credential do not go with --reload: reload a lock file"
        )
    if arguments.main and (arguments.reload or _is_of_api(arguments)):
        raise UsageError("--main runs a Python file once: leave out --reload and the options of an API")
    if arguments.reload and given.get("workers", 1) > 1:
        raise UsageError("--reload works with one worker: leave out --workers")
    at_a_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if over_stdio:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for --transport http")
        if not arguments.main:
            # Before the user's file runs: text that it prints while it is imported must not reach the client (STD-2).
            claim()
    if arguments.stores is not None:
        # Every server that the file makes reads this variable, also when the file is loaded again.
        os.environ[STORES_VARIABLE] = arguments.stores
    # Before the file is loaded, because loading may log.
    handler = logs.install(arguments.log_level or ("info" if given.get("access_log") else "warning"))

    def serve(server: Any, options_of_file: Mapping[str, Any]) -> None:
        if arguments.log_level is None:
            _give_way(handler)
        if arguments.subject:
            # Imported here because few users name a caller.
            from toolwire.auth.principal import Principal

            server.local_principal = Principal(arguments.subject, "toolwire run", scopes=arguments.scopes)
        if not over_stdio:
            server.run("http", **{**options_of_file, **given}, on_ready=announce)
            return
        if at_a_terminal:
            _explain(arguments.server, server)
        server.run("stdio")

    try:
        stores_of_environment()  # A wrong address fails here and not in the middle of the file.
        if arguments.main:
            _run_main(arguments, serve, over_stdio=over_stdio)
        else:
            _load_and_serve(arguments, serve)
    except server_file.FileFailed as error:
        # Imported here because most files can be loaded.
        from toolwire.cli.screen import Screen

        Screen(sys.stderr).text(str(error))
        return 1
    except ServerError as error:
        _note(f"toolwire: {error}")
        return 1
    return 0


def _note(line: str) -> None:
    # Imported here because a server over stdio has nothing to say.
    from toolwire.cli.screen import note

    note(line)


def _run_main(arguments: Namespace, serve: server_file.Serve, *, over_stdio: bool) -> None:
    # Imported here because most files are loaded without it.
    from toolwire.cli.hosted_file import run_main

    source = server_source.parse(arguments.server)
    if source.name is not None or source.path.suffix != ".py":
        raise UsageError("--main is for a Python file or module: leave out the name of its server")
    run_main(source, server_file.HostingCommand(serve, over_stdio=over_stdio))


def _load_and_serve(arguments: Namespace, serve: server_file.Serve) -> None:
    if arguments.reload or _is_of_api(arguments):
        serve(_server(arguments), {})
        return
    host = server_file.HostingCommand(serve, over_stdio=arguments.transport == "stdio")
    server = server_file.load(arguments.server, host=host)
    if not host.served:
        serve(server, {})


def _is_of_api(arguments: Namespace) -> bool:
    return bool(arguments.all or arguments.bridge or arguments.base_url or arguments.rate or arguments.credential)


def _server(arguments: Namespace) -> Any:
    if arguments.reload:
        return _staged(arguments.server)
    if arguments.server.endswith(".py"):
        raise UsageError(
            "--all, --bridge, --base-url, --rate and --credential are for an API description, and not for a Python file"
        )
    return server_file.load_api(
        arguments.server,
        everything=arguments.all,
        bridge=arguments.bridge,
        base_url=arguments.base_url,
        rate=arguments.rate or None,
        credentials=openapi_options.credentials_of(arguments.credential),
    )


def _staged(spec: str) -> Any:
    # Imported here because only `--reload` needs it.
    from toolwire.cli.reloading import Reloader, StagedFile

    return StagedFile(Reloader(spec), lambda failed: None).stage


def _give_way(handler: logging.Handler) -> None:
    """Remove our log handler if the file has set up logging itself.

    Otherwise each line would appear twice.
    """
    logger = logging.getLogger("toolwire")
    if handler in logger.handlers and {*logger.handlers, *logging.getLogger().handlers} != {handler}:
        logs.uninstall()


def _explain(spec: str, server: Any) -> None:
    """Tell a person at the terminal why nothing happens."""
    _note(f"toolwire: {getattr(server, 'name', spec)!r} is served over standard input and output (Ctrl+C ends it).")
    _note("  An MCP client starts this command and exchanges messages with it. To use the server yourself, run")
    _note(f"    toolwire dev {spec}                     for a page in the browser")
    _note(f"    toolwire run {spec} --transport http    for an address")
