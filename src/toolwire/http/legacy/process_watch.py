"""The processes that streams wait for, and the leases by which they are known to live.

A process that writes streams has a lease in the queue of the store, and the header of each stream names it. A process
that carries the rest of such a stream looks at this lease again and again. See `toolwire.wire.process_lease` for when a
lease is lost. The lease is then taken away in the store, so a client that resumes later, in any process, need not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Queue
from toolwire.wire.process_lease import LocalEndings, Sightings

LEASE_SECONDS: Final = 15.0


class ProcessWatch:
    """The leases of other processes, as this process sees them."""

    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        """`clock` is monotonic."""
        self._queue = queue
        self._clock = clock
        self._sightings = Sightings(LEASE_SECONDS)
        self._endings = LocalEndings(LEASE_SECONDS)

    @property
    def interval(self) -> float:
        """Return the seconds between two looks."""
        return self._sightings.interval

    async def gone(self, leases: Collection[str]) -> set[str]:
        """Look at some leases. Return the leases of processes that are gone, and take these leases away."""
        began = self._clock()
        try:
            stale = await self._queue.stale()
        except ToolwireError:
            self._sightings.forget()
            raise
        for lease, renewal in self._sightings.lost(began, self._clock(), stale):
            if lease in leases:
                await self._queue.bury(lease, renewal)
        present = {each for lease in leases for each in await self._queue.leases(lease) if each[0] == lease}
        ended = self._endings.confirm(began, present)
        buried = {name for name, last in ended if await self._queue.bury(name, last)}
        return set(leases) - ({name for name, _ in present} - buried)
