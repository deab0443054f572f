"""Options of the commands that read API descriptions and write lock files."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from toolwire.cli.errors import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ActionsContainer

    from toolwire.openapi.description.fetching import Reach

DEFAULT_LOCK: Final = "api.lock.json"
TOKENS_NOTE: Final = "Tokens count what a model reads in every conversation: names, descriptions and arguments."
SOURCE: Final = "an API description, as a file or a URL, or a lock file"

# Advice of the library, and the same for a person at a command line.
_ADVICE: Final = (
    (r"\bgive base_url= and credentials=", "say --base-url URL and --credential"),
    (r"\bgive base_url=", "say --base-url URL"),
    (r"\bgive it in server_variables=", "say --base-url URL"),
    (r"\bgive origins=\[.*?\] if it may have them, or base_url=, or leave the operation out by drop=",
     "say --base-url URL if all operations are served there, or leave the operation out by --drop"),
    (r'\breach=\["(.*?)"\]', r"--reach \1 of toolwire openapi add"),
    (r"\bthis file in overlays=", "this file by --overlay"),
)  # fmt: skip


def translate_advice(error: Exception) -> str:
    """Rewrite an error of `openapi()` with the options of the command line."""
    text = str(error)
    for pattern, words in _ADVICE:
        text = re.sub(pattern, partial(_as_written, words), text, flags=re.IGNORECASE)
    return text


def _as_written(words: str, found: re.Match[str]) -> str:
    words = found.expand(words)
    return words[0].upper() + words[1:] if found[0][0].isupper() else words


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
    parser.add_argument(
        "--media-type",
        dest="media_types",
        action="append",
        default=[],
        metavar="OPERATION=TYPE",
        help="the form of a request body that is not chosen by itself, such as application/xml; may be repeated",
    )
    parser.add_argument(
        "--output",
        choices=("advertise-loose", "strict", "none"),
        help="which schemas of answers clients get: loosened ones (default), the true ones, or none",
    )
    add_calling(parser)
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
        help="where the secret of a security scheme is: $NAME of the environment, @FILE, or $CLIENT_ID:$CLIENT_SECRET "
        "for a client of OAuth 2.0; may be repeated",
    )


def credentials_of(words: list[str]) -> dict[str, str]:
    """Read the values of several `--credential SCHEME=$NAME`."""
    # Imported here because most commands have no API.
    from toolwire.openapi.access.credential_references import FORMS, is_reference

    found: dict[str, str] = {}
    for word in words:
        scheme, separator, value = word.partition("=")
        if not separator or not scheme:
            raise UsageError(f"--credential {word!r} is not SCHEME=$NAME")
        if not is_reference(value):
            # Not repeated here: it may be a secret, and what a command says is often recorded.
            raise UsageError(
                f"--credential {scheme}=... names a secret and does not contain it, because other programs see the "
                f"arguments of a command: {FORMS}"
            )
        found[scheme] = value
    return found


def add_calling(parser: _ActionsContainer) -> None:
    """Add the options that say how the API is called."""
    parser.add_argument("--base-url", metavar="URL", help="the address of the API, in place of the one it names")
    parser.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="RATE",
        help="how many requests the API gets, such as 60/minute; may be repeated",
    )
    add_credential(parser)


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
