"""Exit statuses of the command line, and the error for wrong use."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
UNREACHED: Final = 3


class UsageError(Exception):
    """A mistake that the user can correct.

    It is shown as one line, with exit status 2.
    """
