"""The `toolwire` command. Results go to standard output, everything else to standard error.

Each subcommand is a module with `add_arguments(parser)` and `main(arguments) -> int`, imported only when it is asked
for: a server starts without the rest. `OPTIONS_ANYWHERE = True` lets options stand between arguments that may be left
out, as in `toolwire call FILE TOOL --json KEY=VALUE`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from toolwire._version import __version__
from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser

# The subcommand, its module in this folder, and what it is for.
COMMANDS: Final = {
    "run": ("run", "serve a server that is defined in a Python file"),
    "dev": ("dev", "serve a file, load it again when it changes, and show it in the inspector"),
    "inspect": ("inspect", "look at a server in a page of the browser"),
    "list": ("listing", "show what a server offers"),
    "call": ("call", "call a tool of a server"),
    "new": ("new", "make a small project with a server and its test"),
    "install": ("install", "enter a server into the configuration of a client"),
    "lint": ("lint", "find what makes a server's tools hard to use"),
    "doctor": ("doctor", "check how a server behaves, and say what to do"),
    "audit": ("audit", "check an audit log"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status says what happened: 0 done, 1 failed, 2 used wrongly, 3 no server reached."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if words and words[0] in COMMANDS:
            return _run(words[0], words[1:])
        overview = _overview()
        if not words:
            overview.print_help(sys.stderr)
            return 2
        overview.parse_args(words)
        return 2
    except UsageError as error:
        # Names that a server chose may stand in it. Imported here because nearly always nothing is wrong.
        from toolwire.printable import printable

        sys.stderr.write(f"toolwire: {printable(str(error))}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the results has seen enough. Nothing more is written, not even when Python ends.
        sys.stdout = None
        return 1


def _run(command: str, words: Sequence[str]) -> int:
    # Imported here because importing `toolwire.cli` has to be cheap.
    from argparse import ArgumentParser

    home, purpose = COMMANDS[command]
    module = import_module(f"toolwire.cli.{home}")
    parser = ArgumentParser(prog=f"toolwire {command}", description=f"{purpose[0].upper()}{purpose[1:]}.")
    module.add_arguments(parser)
    intermixed = getattr(module, "OPTIONS_ANYWHERE", False)
    status: int = module.main(parser.parse_intermixed_args(words) if intermixed else parser.parse_args(words))
    return status


def _overview() -> ArgumentParser:
    """What is said when no known command was named."""
    import argparse

    parser = argparse.ArgumentParser(prog="toolwire", description="Model Context Protocol servers and clients.")
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command, (_, purpose) in COMMANDS.items():
        commands.add_parser(command, help=purpose)
    return parser
