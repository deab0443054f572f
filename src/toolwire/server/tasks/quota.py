"""The number of tasks that one owner may have."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from msgspec import Struct

from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.server.limits import Limits
from toolwire.server.tasks.task_records import Records
from toolwire.wire.shares import Caller
from toolwire.wire.storage_budget import StorageBudget

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


class Quota:
    """Counts the tasks of each owner: exactly now and then, and in between what this process adds.

    A place is reserved before a handler starts. The task that comes of the call is counted instead of it.
    """

    def __init__(self, records: Records, limits: Limits) -> None:
        self._records = records
        self._most = limits.tasks
        self._counts: dict[str, _Count] = {}
        # Those whom nobody knows are one owner. This tells their addresses apart.
        self._unowned = StorageBudget(limits.tasks, limits.share)
        self._unowned_reserved: Counter[Caller] = Counter()

    async def reserve(self, owner: str, address: Caller = None) -> None:
        """Count one more in; -32603 when that is one too many. `release` or `created` has to follow.

        `address` tells callers apart who have no principal.
        """
        if address is not None and not self._unowned.has_room(address, self._unowned_reserved[address] + 1):
            raise too_many()
        count = self._counts.get(owner)
        if count is None:
            self._make_room()
            count = self._counts[owner] = _Count()
        if count.refused_until and count.refused_until > asyncio.get_running_loop().time():
            raise too_many()
        # Reserve before the store is asked, so that calls which arrive meanwhile count this one.
        self._reserve(count, address, 1)
        try:
            if not count.is_known or count.added >= max(self._most // 10, 1) or count.total > self._most:
                count.exact, count.added = len(await self._records.ids(owner, limit=self._most)), 0
                count.is_known = True
            if count.total > self._most:
                count.refused_until = asyncio.get_running_loop().time() + _REFUSED_SECONDS
                raise too_many()
        except BaseException:
            self._reserve(count, address, -1)
            raise

    def release(self, owner: str, address: Caller = None) -> None:
        """Count a call out that did not become a task."""
        self._reserve(self._counts[owner], address, -1)

    def created(self, owner: str, address: Caller = None, seconds: float = 0.0) -> None:
        """Count the task that a call has become; it is kept for so many seconds."""
        count = self._counts[owner]
        self._reserve(count, address, -1)
        count.added += 1
        if address is not None:
            self._unowned.admit(address, 1, seconds)

    def _reserve(self, count: _Count, address: Caller, amount: int) -> None:
        count.reserved += amount
        if address is not None:
            self._unowned_reserved[address] += amount
            if not self._unowned_reserved[address]:
                del self._unowned_reserved[address]

    def _make_room(self) -> None:
        if len(self._counts) >= _MOST_OWNERS:
            self._counts = {owner: count for owner, count in self._counts.items() if count.reserved}


def too_many() -> ProtocolError:
    """Return the refusal for an owner who has as many tasks as one may have."""
    return ProtocolError(INTERNAL_ERROR, "You have too many tasks; try again when some of them have expired")
