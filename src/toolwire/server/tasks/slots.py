"""The slots of the tasks that run in one process, and the line of runs that wait for a slot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from toolwire.server.limits import Limits
from toolwire.wire.shares import Caller, Shares, Taken


class Slots:
    """As many slots as tasks may run here. One caller gets its share of them.

    Runs that wait here go first: runs that have the answer to their question, and tasks that cannot leave the process.
    The remaining slots go to tasks of the queue (`on_free`) and to new calls.
    """

    def __init__(self, limits: Limits, on_free: Callable[[], None]) -> None:
        self._shares = Shares(limits.tasks_running, limits.share, "tasks running", seconds=5)
        self._waiting: deque[tuple[Caller, asyncio.Future[None]]] = deque()
        self._on_free = on_free

    @property
    def free(self) -> int:
        """Return how many slots are free. A run that waits although a slot is free has used up its share."""
        return max(self._shares.limit - self._shares.total, 0)

    @property
    def running(self) -> int:
        return self._shares.total

    def has_room(self, caller: Caller) -> bool:
        """Return whether a caller could have a slot now."""
        return self._shares.has_room(caller)

    def take(self, caller: Caller, amount: int = 1) -> bool:
        """Take slots; False where there are not so many for this caller."""
        try:
            self._shares.take(caller, amount)
        except Taken:
            return False
        return True

    def give_back(self, caller: Caller, amount: int = 1) -> None:
        if amount:
            self._shares.give_back(caller, amount)
            self._pass_on()

    def exchange(self, caller: Caller) -> bool:
        """Give a caller a slot that was taken for nobody; False, and the slot is free, where it has its share."""
        self._shares.give_back(None)
        if self.take(caller):
            return True
        self._pass_on()
        return False

    def at_their_share(self) -> set[Caller]:
        """Return the callers that have as many slots as one may have."""
        return self._shares.full()

    async def wait(self, caller: Caller) -> None:
        """Take a slot as soon as there is one."""
        if self.take(caller):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (caller, turn)
        self._waiting.append(entry)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give_back(caller)  # Its turn came just when it gave up.
            else:
                self._waiting.remove(entry)
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        for entry in tuple(self._waiting):
            caller, turn = entry
            if not turn.done() and self.take(caller):
                self._waiting.remove(entry)
                turn.set_result(None)
        if self.free:
            self._on_free()

    def forget_loop(self) -> None:
        """Forget the runs that waited on a loop that has ended."""
        self._waiting.clear()
