"""Counted steps: the bound of every walk over data that a peer sent.

A walk whose work could grow faster than the data takes a `Steps` along and spends one for each thing that it looks at.
When none is left, the walk stops at once and the data is refused. The number of steps is a small multiple of the size
of the data, so that a short message cannot keep a process busy.
"""

from __future__ import annotations

from toolwire.protocol.errors import ToolwireError


class TooManySteps(ToolwireError):
    """Data that would take more work than its size allows."""

    def __init__(self) -> None:
        super().__init__("too large or too deeply nested")


class Steps:
    """A number of steps that a walk may take. `spend` raises `TooManySteps` when they are used up."""

    __slots__ = ("allowed", "left")

    def __init__(self, allowed: int) -> None:
        self.allowed: int = allowed
        self.left: int = allowed

    @property
    def spent(self) -> int:
        """Return how many steps were taken."""
        return self.allowed - self.left

    def spend(self, steps: int = 1) -> None:
        """Take steps, or stop the walk."""
        self.left -= steps
        if self.left < 0:
            raise TooManySteps
