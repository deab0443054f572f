"""`toolwire openapi list|add|check`: show, choose and update the tools of an API."""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Final

from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

#: The words behind the command, their modules and purposes.
WORDS: Final = {
    "list": ("openapi_list", "show every operation of an API, and the tool that it would become"),
    "add": ("openapi_add", "choose operations of an API, and write them to a lock file"),
    "check": ("openapi_check", "compare a lock file with the API as it describes itself now"),
}


def add_arguments(parser: ArgumentParser) -> None:
    words = "".join(f"  toolwire openapi {word:6} {purpose}\n" for word, (_, purpose) in WORDS.items())
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = f"uses:\n{words}"
    parser.add_argument("word", choices=tuple(WORDS), metavar="list|add|check", help="what to do")


def main(arguments: Namespace) -> int:
    raise UsageError(f"{arguments.word!r} is none of {', '.join(WORDS)}: toolwire openapi list FILE shows an API")
