"""Standard output for results, as good as it gets."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolwire.cli.screen import Screen
from toolwire.extras import require

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=["auto", "always", "never"],
        default="auto",
        help="colours and tables that wrap (default: on a terminal)",
    )


def results(color: str = "auto") -> Screen:
    """With `rich` on a terminal, if it is installed; plain text otherwise. `MissingExtra` where `rich` must be."""
    if color == "never" or (color == "auto" and not (sys.stdout.isatty() and _is_installed())):
        return Screen(sys.stdout)
    require("rich", extra="cli", what="--color always")
    # Imported here because it needs rich.
    from toolwire.cli.screen_rich import RichScreen

    return RichScreen(sys.stdout, forced=color == "always")


def _is_installed() -> bool:
    return find_spec("rich") is not None
