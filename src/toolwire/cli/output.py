"""Standard output for results, as good as it gets."""

from __future__ import annotations

import sys

from toolwire.cli.screen import Screen


def results() -> Screen:
    """With `rich` on a terminal, if it is installed; plain text otherwise."""
    if not sys.stdout.isatty():
        return Screen(sys.stdout)
    try:
        from toolwire.cli.screen_rich import RichScreen
    except ImportError:
        return Screen(sys.stdout)
    return RichScreen(sys.stdout)
