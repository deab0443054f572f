"""The number of tasks that one owner may have."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from toolwire.protocol.errors import INTERNAL_ERROR, ProtocolError
from toolwire.server.limits import Limits
from toolwire.server.tasks.task_records import Records

T = TypeVar("T")
# How long an owner who has too many is refused before their tasks are counted again.
_REFUSED_SECONDS: Final = 1.0
_MOST_OWNERS: Final = 10_000


class Quota:
    """Counts the tasks of each owner: exactly now and then, and in between what this process adds."""

    def __init__(self, records: Records, limits: Limits) -> None:
        self._records = records
        self._most = limits.tasks
        # The last exact count, and what came on top of it here.
        self._counted: dict[str, tuple[int, int]] = {}
        self._refused: dict[str, float] = {}

    async def check(self, owner: str) -> None:
        """Count one more in; -32603 when that is one too many."""
        now = asyncio.get_running_loop().time()
        if self._refused and self._refused.get(owner, now) > now:
            raise too_many()
        exact, added = self._counted.get(owner, (0, self._most))
        if added >= self._most // 10 or exact + added >= self._most:
            exact, added = len(await self._records.ids(owner, limit=self._most)), 0
        if exact + added >= self._most:
            _remember(self._refused, owner, now + _REFUSED_SECONDS)
            raise too_many()
        _remember(self._counted, owner, (exact, added + 1))


def _remember(table: dict[str, T], owner: str, value: T) -> None:
    if len(table) >= _MOST_OWNERS:
        table.clear()
    table[owner] = value


def too_many() -> ProtocolError:
    """Return the refusal for an owner who has as many tasks as one may have."""
    return ProtocolError(INTERNAL_ERROR, "You have too many tasks; try again when some of them have expired")
