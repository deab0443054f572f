"""Options of the commands that read API descriptions and write lock files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ActionsContainer

    from toolwire.openapi.description.fetching import Reach

DEFAULT_LOCK: Final = "api.lock.json"
SOURCE: Final = "an API description, as a file or a URL, or a lock file"


def add_locking(parser: ArgumentParser) -> None:
    """Add the options that say what stands in a lock file."""
    _add_choosing(parser)
    parser.add_argument(
        "--name",
        dest="tool_names",
        action="append",
        default=[],
        metavar="OPERATION=TOOL",
        help="the name of a tool, by the id or 'METHOD /path' of the operation; may be repeated",
    )
    parser.add_argument("--base-url", metavar="URL", help="the address of the API, in place of the one it names")
    add_credential(parser)
    add_reading(parser)


def _add_choosing(parser: ArgumentParser) -> None:
    choice = parser.add_argument_group("choosing operations")
    choice.add_argument("--tags", "--tag", nargs="+", action="extend", default=[], metavar="TAG", help="those of a tag")
    choice.add_argument(
        "--operation", nargs="+", action="extend", default=[], metavar="ID", help="by id, or by 'METHOD /path'"
    )
    choice.add_argument(
        "--path", nargs="+", action="extend", default=[], metavar="PATTERN", help="by path, such as '/pets/**'"
    )
    choice.add_argument("--all", action="store_true", help="all of them")
    choice.add_argument(
        "--drop",
        nargs="+",
        action="extend",
        default=[],
        metavar="WHAT",
        help="never these: ids, 'METHOD /path', path patterns, or tag:NAME",
    )


def add_credential(parser: _ActionsContainer) -> None:
    """Add `--credential`."""
    parser.add_argument(
        "--credential",
        action="append",
        default=[],
        metavar="SCHEME=$NAME",
        help="the environment variable with the secret of a security scheme; may be repeated",
    )


def credentials_of(words: list[str]) -> dict[str, str]:
    """Read the values of several `--credential SCHEME=$NAME`."""
    found: dict[str, str] = {}
    for word in words:
        scheme, separator, value = word.partition("=")
        if not separator or not scheme:
            raise UsageError(f"--credential {word!r} is not SCHEME=$NAME")
        found[scheme] = value
    return found


def add_reading(parser: ArgumentParser) -> None:
    """Add the options of every command that reads a description."""
    parser.add_argument(
        "--overlay", action="append", default=[], metavar="FILE", help="an overlay to apply first; may be repeated"
    )
    parser.add_argument(
        "--reach",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="an origin from which parts of the description may be fetched, or 'public'; may be repeated",
    )


def reach_of(words: list[str]) -> Reach:
    """Return the values of `--reach` as a reader takes them."""
    return "public" if "public" in words else words or None
