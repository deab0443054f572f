"""Types of options, for argparse: what cannot be meant is told before anything is done, with exit status 2."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from toolwire.cli.errors import UsageError
from toolwire.logs import LEVELS

_LAST_PORT: Final = 65_535


def add_log_level(parser: ArgumentParser) -> None:
    """Add `--log-level`, which is None where it is left out."""
    parser.add_argument(
        "--log-level",
        choices=tuple(LEVELS),
        metavar="LEVEL",
        help=f"log to standard error from this level on: {', '.join(LEVELS)} (default: warning)",
    )


def add_caller(parser: ArgumentParser, who: str) -> None:
    """Add `--as` and `--scope`; `who` says whom they speak of."""
    parser.add_argument("--as", dest="subject", metavar="SUBJECT", help=who)
    parser.add_argument(
        "--scope", dest="scopes", action="append", default=[], help="with --as: a scope they have; may be repeated"
    )


def check_caller(arguments: Namespace) -> None:
    """`UsageError` for scopes of nobody."""
    if arguments.scopes and not arguments.subject:
        raise UsageError("--scope is for --as, which says who has it")


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no time to wait: give a number of seconds above 0")
    return value


def port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _LAST_PORT:
        raise ArgumentTypeError(f"{text!r} is no port: give a number from 0 to {_LAST_PORT}")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is too few: give at least 1")
    return value


def path(text: str) -> str:
    if not text.startswith("/"):
        raise ArgumentTypeError(f"the path of an endpoint starts with a slash, not {text!r}")
    return text


def public_url(text: str) -> str:
    # Imported here because only a server behind a proxy needs it.
    from toolwire.http.origin_check import Guard

    try:
        Guard(public_url=text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return text
