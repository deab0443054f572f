"""The number of tasks that one owner may have."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.server.limits import Limits
from toolwire.server.tasks.task_records import Records
from toolwire.wire.shares import Caller, StorageBudget

# How long an owner who has too many is refused before their tasks are counted again.
_REFUSED_SECONDS: Final = 1.0
_MOST_OWNERS: Final = 10_000


class _Count(Struct):
    exact: int = 0
    """The number of tasks that the store had at the last count."""
    added: int = 0
    """Tasks that this process has created since."""
    reserved: int = 0
    """Calls of this process that may become tasks."""
    refused_until: float = 0.0
    is_known: bool = False

    @property
    def total(self) -> int:
        return self.exact + self.added + self.reserved


class Reservation:
    """A place among the tasks of an owner, for a call that may become a task."""

    __slots__ = ("_budget", "_count", "_number")

    def __init__(self, count: _Count, budget: StorageBudget, number: int) -> None:
        """`number` is that of an address in the budget of callers without a principal; 0 for all others."""
        self._count = count
        self._budget = budget
        self._number = number
        count.reserved += 1

    def release(self) -> None:
        """Give the place back: the call did not become a task."""
        self._count.reserved -= 1
        self._budget.release(self._number)

    def use(self, seconds: float) -> None:
        """Count the task that the call has become, which is kept for so many seconds."""
        self._count.reserved -= 1
        self._count.added += 1
        if self._number:
            self._budget.end_after(self._number, seconds)


class Quota:
    """Counts the tasks of each owner: exactly now and then, and in between what this process adds.

    A place is reserved before a handler starts. The task that comes of the call is counted instead of it.
    """

    def __init__(self, records: Records, limits: Limits) -> None:
        self._records = records
        self._most = limits.tasks
        self._counts: dict[str, _Count] = {}
        # Callers without a principal are one owner. This tells their addresses apart.
        self._unowned = StorageBudget(limits.tasks, limits.share)

    async def reserve(self, owner: str, address: Caller = None) -> Reservation:
        """Reserve a place among the tasks of an owner; raise -32603 if that is one too many.

        `address` tells callers apart who have no principal.
        """
        number = 0 if address is None else self._unowned.admit(address, 1)
        if address is not None and not number:
            raise too_many()
        count = self._counts.get(owner)
        if count is None:
            self._make_room()
            count = self._counts[owner] = _Count()
        # Reserve before the store is asked, so that calls which arrive meanwhile count this one.
        reservation = Reservation(count, self._unowned, number)
        try:
            if count.refused_until and count.refused_until > asyncio.get_running_loop().time():
                raise too_many()
            if not count.is_known or count.added >= max(self._most // 10, 1) or count.total > self._most:
                count.exact, count.added = len(await self._records.ids(owner, limit=self._most)), 0
                count.is_known = True
            if count.total > self._most:
                count.refused_until = asyncio.get_running_loop().time() + _REFUSED_SECONDS
                raise too_many()
        except BaseException:
            reservation.release()
            raise
        return reservation

    def _make_room(self) -> None:
        if len(self._counts) >= _MOST_OWNERS:
            self._counts = {owner: count for owner, count in self._counts.items() if count.reserved}


def too_many() -> ProtocolError:
    """Return the refusal for an owner who has as many tasks as one may have."""
    return ProtocolError(INTERNAL_ERROR, "You have too many tasks; try again when some of them have expired")
