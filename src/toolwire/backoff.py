"""`Backoff`: the pauses between attempts. Each is longer than the last, with a random share."""

from __future__ import annotations

from typing import Final

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 30.0


class Backoff:
    """Pauses that double from `first` to `longest`, with jitter; `limit` is how many there are, None for no end."""

    def __init__(
        self, limit: int | None = None, *, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS
    ) -> None:
        self._limit = limit
        self._first = first
        self._longest = longest
        self._failures = 0

    @property
    def exhausted(self) -> bool:
        return self._limit is not None and self._failures >= self._limit

    def next(self) -> float | None:
        """Return the next pause in seconds; None when there are no attempts left."""
        if self.exhausted:
            return None
        pause = min(self._first * 2.0 ** min(self._failures, 30), self._longest)
        self._failures += 1
        import random

        # Clients that lost the same server must not all come back in the same instant.
        return pause * random.uniform(0.5, 1.0)

    def after(self, retry: int | None) -> float:
        """Return the next pause of a caller that never gives up.

        `retry` is the pause in milliseconds that the other side asked for. It counts in full at the first failure,
        but never makes a pause shorter than `FIRST_SECONDS`.
        """
        pause = self.next()
        if pause is None:
            pause = self._longest
        if retry is None:
            return pause
        return max(retry / 1000, pause if self._failures > 1 else FIRST_SECONDS)

    def reset(self) -> None:
        """Start again after a success: the next failure counts as the first."""
        self._failures = 0
