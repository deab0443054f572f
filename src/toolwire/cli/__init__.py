"""The `toolwire` command. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from toolwire._version import __version__
from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser

_HTTP_OPTIONS: Final = ("host", "port", "path", "workers", "public_url", "allow_unauthenticated")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status says what happened: 0 done, 1 failed, 2 used wrongly."""
    arguments = _parser().parse_args(argv)
    try:
        # Each subcommand is imported when it is used, so that a server starts without the others.
        from toolwire.cli import run

        options = {name: getattr(arguments, name) for name in _HTTP_OPTIONS if getattr(arguments, name) is not None}
        return run.main(arguments.server, arguments.transport, options)
    except UsageError as error:
        sys.stderr.write(f"toolwire: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> ArgumentParser:
    # Imported here because importing `toolwire.cli` has to be cheap.
    import argparse

    parser = argparse.ArgumentParser(prog="toolwire", description="Model Context Protocol servers and clients.")
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="serve a server that is defined in a Python file")
    run.add_argument(
        "server", metavar="FILE[:OBJECT]", help="the file, and the name of the Server in it if it is not obvious"
    )
    run.add_argument(
        "--transport", choices=["stdio", "http"], default="stdio", help="how clients reach it (default: stdio)"
    )
    http = run.add_argument_group("with --transport http")
    http.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    http.add_argument("--port", type=int, help="the port, 0 for any that is free (default: 8000)")
    http.add_argument("--path", help="the path of the endpoint (default: /mcp)")
    http.add_argument("--workers", type=int, metavar="N", help="how many processes serve it (default: 1)")
    http.add_argument("--public-url", metavar="URL", help="the address that clients use, when a proxy stands in front")
    http.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        default=None,
        help="listen on a public address although everybody is let in",
    )
    return parser
