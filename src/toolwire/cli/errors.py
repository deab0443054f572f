"""What the command line reports to its user."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
UNREACHED: Final = 3


class UsageError(Exception):
    """Something the user can put right; shown as one line, exit status 2."""
