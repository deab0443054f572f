"""`toolwire gateway FILE`: serve the servers of a file at one address."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from toolwire import logs
from toolwire.cli import options, run
from toolwire.cli.errors import UsageError
from toolwire.protocol.errors import ServerError
from toolwire.stores.by_address import STORES_VARIABLE
from toolwire.wire.stdio import claim

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a JSON or TOML file with mcpServers")
    parser.add_argument(
        "--transport", choices=["stdio", "http"], default="http", help="how clients reach it (default: http)"
    )
    parser.add_argument(
        "--stores",
        metavar="ADDRESS",
        help="where to keep state: a SQLite file, or redis://host:6379/0 "
        f"(put an address with a password into {STORES_VARIABLE} instead)",
    )
    options.add_log_level(parser)
    run.add_http_arguments(parser)


def main(arguments: Namespace) -> int:
    given = run.http_options(arguments)
    over_stdio = arguments.transport == "stdio"
    if over_stdio:
        if given:
            raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for --transport http")
        claim()
    if arguments.stores is not None:
        os.environ[STORES_VARIABLE] = arguments.stores
    logs.install(arguments.log_level or ("info" if given.get("access_log") else "warning"))
    # Imported here because the options alone do not need it.
    from toolwire.gateway.config import gateway_of

    try:
        gateway = gateway_of(arguments.file)
        if over_stdio:
            gateway.run("stdio")
        else:
            gateway.run("http", **given, on_ready=run.announce)
    except ServerError as error:
        sys.stderr.write(f"toolwire: {error}\n")
        return 1
    return 0
