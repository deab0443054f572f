"""The `toolwire` command. Results go to standard output, everything else to standard error.

Each subcommand is a module with `add_arguments(parser)` and `main(arguments) -> int`. It is imported only when the user
asks for it, so that a server starts without the rest. `OPTIONS_ANYWHERE = True` allows options between optional
arguments, as in `toolwire call FILE TOOL --json KEY=VALUE`. `WORDS` names modules for words behind the subcommand, as
`check` in `toolwire gateway check FILE`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from toolwire._version import __version__
from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from toolwire.cli.parsing import CommandParser

# The subcommand, its module in this folder, and its purpose.
COMMANDS: Final = {
    "run": ("run", "serve a server that is defined in a Python file"),
    "dev": ("dev", "serve a file, load it again when it changes, and show it in the inspector"),
    "gateway": ("gateway", "serve the servers of a file at one address"),
    "bridge": ("bridge", "serve a server at a URL to a client that can only start a command"),
    "inspect": ("inspect", "show a server in a page of the browser"),
    "list": ("listing", "show the tools, resources and prompts of a server"),
    "call": ("call", "call a tool of a server"),
    "read": ("read", "read a resource of a server"),
    "prompt": ("prompt", "get the messages of a prompt of a server"),
    "request": ("any_method", "send a request of any method to a server, such as one of an extension"),
    "openapi": ("openapi", "choose tools from the description of an API, and keep them in step with it"),
    "new": ("new", "make a small project with a server and its test"),
    "install": ("install", "add a server to the configuration of a client"),
    "lint": ("lint", "find what makes a server's tools, or a folder of skills, hard to use"),
    "skills": ("skills", "list, show and hash the skills of a server or of a folder"),
    "doctor": ("doctor", "check how a server behaves, and give advice"),
    "audit": ("audit", "check that an audit log was not changed"),
    "tasks": ("tasks", "list, show, cancel and retry the tasks of a fleet"),
}


def start() -> int:
    """Run the command of this process, and return its exit status.

    Nothing that a command loads is garbage, and what is left at its end needs no collection: without these a short
    command takes a tenth less time.
    """
    gc.disable()
    try:
        return main(loaded=_collect_again)
    finally:
        gc.freeze()


def _collect_again() -> None:
    """Turn garbage collection on again, but never collect the objects that exist now."""
    gc.freeze()
    gc.enable()


def main(argv: Sequence[str] | None = None, *, loaded: Callable[[], None] | None = None) -> int:
    """Run a command and return its exit status.

    0: done, 1: failed, 2: used wrongly, 3: no server reached. `loaded` is called before the command runs.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        if words and words[0] in COMMANDS:
            return _run(words[0], words[1:], loaded)
        overview = _overview()
        if not words:
            overview.print_help(sys.stderr)
            return 2
        if not words[0].startswith("-"):
            raise _unknown_command(words[0])
        overview.parse_words(words, intermixed=False)
        return 2
    except UsageError as error:
        # Imported here because errors are rare.
        from toolwire.cli.screen import note

        note(f"toolwire: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the results has closed the pipe. Python must not write to it again when it ends.
        sys.stdout = None
        return 1
    except Exception as error:
        # Imported here because errors are rare.
        from toolwire.cli.screen import note
        from toolwire.protocol.errors import ToolwireError

        # An error of the library, or of a file, says what is wrong. Any other is a defect: its place is worth a report.
        if not isinstance(error, (ToolwireError, OSError)):
            raise
        note(f"toolwire: {error}")
        return 1


def _run(command: str, words: Sequence[str], loaded: Callable[[], None] | None) -> int:
    # Imported here because importing `toolwire.cli` has to be cheap.
    from toolwire.cli.parsing import CommandParser

    home, purpose = COMMANDS[command]
    module = import_module(f"toolwire.cli.{home}")
    further: dict[str, tuple[str, str]] = getattr(module, "WORDS", {})
    if words and words[0] in further:
        home, purpose = further[words[0]]
        module = import_module(f"toolwire.cli.{home}")
        command, words = f"{command} {words[0]}", words[1:]
    parser = CommandParser(prog=f"toolwire {command}", description=f"{purpose[0].upper()}{purpose[1:]}.")
    module.add_arguments(parser)
    arguments = parser.parse_words(words, intermixed=getattr(module, "OPTIONS_ANYWHERE", False))
    if loaded is not None:
        loaded()
    status: int = module.main(arguments)
    return status


def _unknown_command(word: str) -> UsageError:
    from toolwire.cli.parsing import suggest

    return UsageError(f"unknown command {word!r}{suggest(word, COMMANDS)} (`toolwire --help` lists the commands)")


def _overview() -> CommandParser:
    """Return the parser for `toolwire --help`, `--version` and unknown commands."""
    from toolwire.cli.parsing import CommandParser

    parser = CommandParser(prog="toolwire", description="Model Context Protocol servers and clients.")
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command, (_, purpose) in COMMANDS.items():
        commands.add_parser(command, help=purpose)
    return parser
