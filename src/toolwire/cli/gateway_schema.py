"""`toolwire gateway schema`: print the JSON schema of the file of a gateway."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import TYPE_CHECKING

from toolwire.cli.screen import Screen

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: there is one schema."""


def main(arguments: Namespace) -> int:
    Screen(sys.stdout).raw(files("toolwire.gateway.config").joinpath("schema.json").read_text("utf-8"))
    return 0
