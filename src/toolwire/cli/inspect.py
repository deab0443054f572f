"""`toolwire inspect TARGET`: look at any server in a page of the browser."""

from __future__ import annotations

import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.cli.errors import UsageError
from toolwire.inspector import Inspector, InspectorApp, serving
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import REVISIONS
from toolwire.wire import stdio
from toolwire.wire.loops import run

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", nargs="+", help="a server file, or a command with its arguments")
    parser.add_argument("--revision", choices=REVISIONS, help="speak this revision only (default: the newest of both)")
    add_page_arguments(parser, "--port")


def add_page_arguments(parser: ArgumentParser, port: str) -> None:
    parser.add_argument(port, type=int, default=0, metavar="PORT", help="the port of the page (default: any)")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def main(arguments: Namespace) -> int:
    try:
        sockets = serving.listen(arguments.port)
    except ServerError as error:
        sys.stderr.write(f"toolwire: {error}\n")
        return 1
    app = InspectorApp(_inspector(arguments.target, arguments.revision))
    address = serving.address(app, sockets)
    run(serving.serve(app, sockets, stdio.signals, lambda: announce_page(address, open_it=not arguments.no_open)))
    return 0


def _inspector(words: list[str], revision: str | None) -> Inspector:
    path = Path(words[0])
    is_file = len(words) == 1 and path.suffix in (".py", ".js", ".mjs")
    try:
        if is_file:
            command = [sys.executable if path.suffix == ".py" else "node", str(path)]
            return Inspector(words[0], label=path.name, command=command, revision=revision)
        return Inspector(words, label=shlex.join(words), command=words, revision=revision)
    except ValueError as error:
        raise UsageError(str(error)) from None


def announce_page(address: str, *, open_it: bool) -> None:
    """Say where the page is, and open it for somebody who sits at this machine."""
    sys.stderr.write(f"toolwire: the inspector is at {address} (Ctrl+C ends it)\n")
    sys.stderr.flush()
    if open_it and sys.stderr.isatty():
        webbrowser.open(address)
