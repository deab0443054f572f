"""A clock that can stand still: by it, the time that a person takes to answer is no time of a call."""

from __future__ import annotations

import asyncio


class StoppableClock:
    """The time of a loop, less the time for which somebody held the clock."""

    __slots__ = ("_holders", "_loop", "_stopped_at", "behind")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._holders = 0
        self._stopped_at = 0.0
        self.behind: float = 0.0
        """How many seconds it is behind the loop, whenever it goes."""

    @property
    def stands(self) -> bool:
        return self._holders > 0

    def time(self) -> float:
        return self._stopped_at if self._holders else self._loop.time() - self.behind

    def hold(self) -> None:
        """It stands until all who hold it let go."""
        if not self._holders:
            self._stopped_at = self.time()
        self._holders += 1

    def let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self.behind = self._loop.time() - self._stopped_at
