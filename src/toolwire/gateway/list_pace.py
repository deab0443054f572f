"""`ListPace`: how often the lists of one upstream are read, however often it announces changes."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

#: How often lists are read at most.
READINGS_A_SECOND: Final = 10
#: How many bytes of lists are read in a second on average. A reading of this size takes less than a tenth of a second
#: of processor time, so that one upstream gets less than a tenth of a processor.
BYTES_A_SECOND: Final = 1024 * 1024
#: Lists above this size are large: the pauses between their readings grow while each reading finds a change.
LARGE_BYTES: Final = 256 * 1024
#: The longest pause between two readings, in seconds.
LONGEST_PAUSE: Final = 300.0


class ListPace:
    """The pauses between readings of the lists of one upstream. It knows no tasks, and gets the time as an argument.

    small   at most `READINGS_A_SECOND`, so that clients see changes soon
    large   one reading for each `BYTES_A_SECOND` that the last one had; twice as long after each further reading that
            found a change, up to `LONGEST_PAUSE`

    A reading without a change, or after twice the pause, ends the growth.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=READINGS_A_SECOND)
        self._read_at = -inf
        self._pause = 0.0

    def seconds_until_next(self, now: float, *, is_urgent: bool = False) -> float:
        """Return how many seconds the next reading has to wait. An urgent one waits for the rate alone."""
        of_rate = self._times[0] + 1.0 - now if len(self._times) == READINGS_A_SECOND else 0.0
        return max(0.0, of_rate, 0.0 if is_urgent else self._read_at + self._pause - now)

    def begin(self, now: float) -> None:
        """Record that a reading begins."""
        self._times.append(now)

    def end(self, now: float, size: int, *, has_changed: bool) -> None:
        """Record a reading of so many bytes, and whether it found other lists than the one before."""
        base = min(size / BYTES_A_SECOND, LONGEST_PAUSE)
        grows = size > LARGE_BYTES and has_changed and now < self._read_at + 2 * self._pause
        self._pause = min(max(base, 2 * self._pause if grows else 0.0), LONGEST_PAUSE)
        self._read_at = now
