"""What the command line reports to its user."""

from __future__ import annotations


class UsageError(Exception):
    """Something the user can put right; shown as one line, exit status 2."""
