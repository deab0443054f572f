"""`Backoff`: the pauses between attempts. Each is longer than the last, with a random share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 30.0
#: A connection that lasted for so many seconds counts as a success: many proxies cut quiet streams.
SETTLED_SECONDS: Final = 1.0
# After a connection that brought something and broke at once, the next pause is at most this often doubled.
_EASED: Final = 3


def find_pause(doublings: int, first: float, longest: float) -> float:
    """Return a pause without a random share, where the caller counts the attempts."""
    return min(first * 2.0 ** min(doublings, 30), longest)


@cache
def random_source() -> Random:
    """Return random numbers that are not those of the module `random`, which the program may have seeded."""
    from random import SystemRandom  # Here, because most programs never wait.

    return SystemRandom()


class Backoff:
    """Pauses that double from `first` to `longest`; `limit` is how many there are, None for no end."""

    def __init__(
        self,
        limit: int | None = None,
        *,
        first: float | None = None,
        longest: float = LONGEST_SECONDS,
        jitter: bool = True,
    ) -> None:
        self._limit = limit
        # Read at each call, so that a test can set the constant.
        self._first = FIRST_SECONDS if first is None else first
        self._longest = longest
        self._jitter = jitter
        # The attempts count for the limit, and the doublings for the length of a pause.
        self._attempts = 0
        self._doublings = 0

    @property
    def exhausted(self) -> bool:
        return self._limit is not None and self._attempts >= self._limit

    def next(self) -> float | None:
        """Return the next pause in seconds; None when there are no attempts left."""
        if self.exhausted:
            return None
        pause = find_pause(self._doublings, self._first, self._longest)
        self._attempts += 1
        self._doublings += 1
        if not self._jitter:
            return pause
        # Clients that lost the same server must not all come back in the same instant.
        return pause * random_source().uniform(0.5, 1.0)

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
        return max(retry / 1000, pause if self._doublings > 1 else FIRST_SECONDS)

    def reset(self) -> None:
        """Start again after a success: the next failure counts as the first."""
        self._attempts = self._doublings = 0

    def ease(self) -> None:
        """Count the attempts anew, because the connection brought something.

        The other side decides how soon it breaks, so the pauses do not become short again: see `settle`.
        """
        self._attempts = 0
        self._doublings = min(self._doublings, _EASED)

    def settle(self, seconds: float) -> None:
        """Start again if the connection that broke had lasted for some time."""
        if seconds >= SETTLED_SECONDS:
            self.reset()
