"""Options that several commands have, and types of options for argparse.

A value that makes no sense is refused before anything is done, with exit status 2.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from toolwire.cli.errors import UsageError
from toolwire.logs import LEVELS

T = TypeVar("T")

_LAST_PORT: Final = 65_535


def add_log_level(parser: ArgumentParser, default: str = "warning", what: str = "") -> None:
    """Add `--log-level`.

    It is None when the user leaves it out; the command then uses `default`.
    """
    parser.add_argument(
        "--log-level",
        choices=tuple(LEVELS),
        metavar="LEVEL",
        help=f"log to standard error from this level on: {', '.join(LEVELS)} (default: {default}){what}",
    )


def add_stores(parser: ArgumentParser, what: str, *, is_written: bool = False) -> None:
    """Add `--stores`. `what`: its description. `is_written`: the variable does not count."""
    # Imported here because few commands have it.
    from toolwire.stores.by_address import STORES_VARIABLE

    password = (
        f"put an address with a password into {STORES_VARIABLE} instead"
        if is_written
        else f"default: {STORES_VARIABLE}; put an address with a password there"
    )
    parser.add_argument(
        "--stores", metavar="ADDRESS", help=f"{what}: a SQLite file, or redis://host:6379/0 ({password})"
    )


def add_page(parser: ArgumentParser, port_option: str) -> None:
    """Add the options of the inspector's page.

    `port_option` is the name of the option for its port.
    """
    parser.add_argument(port_option, type=port, default=0, metavar="PORT", help="the port of the page (default: any)")
    parser.add_argument(
        "--view-port", type=port, default=0, metavar="PORT", help="the port of views of tools (default: any)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


class _Transport(Action):
    """Stores the transport of an alias: "streamable-http" is "http", "sse" sets `--sse`."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        namespace.transport = "stdio" if values == "stdio" else "http"
        if values == "sse":
            namespace.sse = True


def add_transport(parser: ArgumentParser, default: str) -> None:
    """Add `--transport`, also with the names that other libraries use for HTTP."""
    parser.add_argument(
        "--transport",
        action=_Transport,
        choices=["stdio", "http", "streamable-http", "sse"],
        default=default,
        help=f"how clients reach it; streamable-http is http, and sse is http with --sse (default: {default})",
    )


def add_caller(parser: ArgumentParser, who: str) -> None:
    """Add `--as` and `--scope`; `who` is the help text of `--as`."""
    parser.add_argument("--as", dest="subject", metavar="SUBJECT", help=who)
    parser.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        default=[],
        metavar="SCOPE",
        help="with --as: a scope of that caller; may be repeated",
    )


def check_caller(arguments: Namespace) -> None:
    """Raise `UsageError` for `--scope` without `--as`, and for an unreadable caller."""
    if arguments.scopes and not arguments.subject:
        raise UsageError("--scope needs --as SUBJECT, which names the caller who has the scope")
    if arguments.subject:
        # Imported here because few users name a caller.
        from toolwire.protocol.surrogates import is_encodable

        if not is_encodable(arguments.subject):
            raise UsageError("--as SUBJECT is text in UTF-8")


def seconds(text: str) -> float:
    value = _number(text, float)
    if value is None or not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a time to wait: give a number of seconds above 0")
    return value


def seconds_or_zero(text: str) -> float:
    return 0.0 if text == "0" else seconds(text)


def port(text: str) -> int:
    value = _number(text, int)
    if value is None or not 0 <= value <= _LAST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to {_LAST_PORT}")
    return value


def count(text: str) -> int:
    value = _number(text, int)
    if value is None or value < 1:
        raise ArgumentTypeError(f"{text!r} is not a count: give a whole number of at least 1")
    return value


def _number(text: str, kind: Callable[[str], T]) -> T | None:
    """Read a number; None for any other text.

    The parser of Python would name this module's functions instead.
    """
    try:
        return kind(text)
    except ValueError:
        return None


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
