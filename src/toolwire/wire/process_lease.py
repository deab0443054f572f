"""Leases of processes: the store's word that a process lives, and the rule by which a lease is lost.

A process that others depend on has a lease: one that holds tasks, and one that writes streams of legacy clients. The
thread of the store renews it. A lease is lost when it was not renewed for its whole length, by the clock of the store,
and another process has then seen for the whole length once more, by its own monotonic clock and at every look, that it
is still not renewed. A look that fails, or comes late, starts this anew: while the store is away nobody can renew
anything, and nobody is dead. A lease that was taken away is gone for good, so every process knows at once who is gone,
also one that was started later.

A process that has ended on this machine is known sooner. Two machines that were made from one snapshot seem to be the
same machine, though. So its lease is taken away after it was not renewed for two thirds of its length: a process that
lives, wherever it does, renews its lease every third.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from toolwire.protocol.errors import ToolwireError
from toolwire.stores import Stores
from toolwire.util.single_flight import SingleFlight
from toolwire.wire.threads import hand_over

log: logging.Logger = logging.getLogger("toolwire.wire")

#: Looks in the time of a lease.
LOOKS_PER_LEASE: Final = 3


class Lease:
    """The lease of this process on the loop that it runs on. A lease that was lost is followed by another."""

    def __init__(
        self, stores: Stores, seconds: float, on_lost: Callable[[], None], abandoned: list[str] | None = None
    ) -> None:
        """`on_lost` is called on the loop when the lease was taken away.

        `abandoned` has the leases of this process on loops that ended before they released them.
        """
        self.seconds: float = seconds
        self.name: str = ""
        """The name of this process; empty while it has no lease."""
        self._stores = stores
        self._on_lost = on_lost
        self._registering = SingleFlight[str]()
        self._stop_renewing: Callable[[], None] | None = None
        self._abandoned = [] if abandoned is None else abandoned
        self._endings = LocalEndings(seconds)
        self._pid = os.getpid()

    async def held(self) -> str:
        """Return the name of this process, which has a lease. Raise the error of the store that does not give one."""
        if self.name:
            return self.name
        return await self._registering.run(self._register)

    async def _register(self) -> str:
        # Imported here because a process needs them once.
        import secrets

        from toolwire.wire.process_identity import own_identity

        queue, loop = self._stores.queue, asyncio.get_running_loop()
        name = ""
        while not name or not await queue.renew(name, self.seconds):
            # The name says which process of which machine this is, so that a process beside it knows when it has ended.
            name = f"{own_identity()}/{secrets.token_urlsafe(6)}"
        self.name, self._pid = name, os.getpid()
        # In the thread of the store: a handler that holds the loop does not cost its process the lease.
        self._stop_renewing = queue.keep(name, self.seconds, lambda: _discard(hand_over(loop, self._lost, name)))
        return name

    def _lost(self, name: str) -> None:
        if name == self.name:
            self._forget_name()
            self._on_lost()

    def _forget_name(self) -> None:
        stop, self._stop_renewing = self._stop_renewing, None
        self.name = ""
        if stop is not None:
            stop()

    async def end_those_of_the_dead(self) -> int:
        """End the leases of processes that have ended on this machine before they expire.

        Return how many processes were lost. A loop of this process that has ended is none of them.
        """
        from toolwire.wire.process_identity import own_machine

        while self._abandoned:
            await self._stores.queue.release(self._abandoned[-1])
            self._abandoned.pop()
        lost = 0
        leases = [each for each in await self._stores.queue.leases(f"{own_machine()}/") if each[0] != self.name]
        for name, renewal in self._endings.confirm(asyncio.get_running_loop().time(), leases):
            lost += await self._stores.queue.bury(name, renewal)
        return lost

    async def release(self) -> None:
        """End the lease. What this process still holds is for others."""
        if (registering := self._registering.find()) is not None:
            await asyncio.wait({registering})
        name = self.name
        self._forget_name()
        try:
            if name:
                await self._stores.queue.release(name)
        except ToolwireError as error:
            log.warning("a process could not be signed off: %s", error)

    def abandon(self) -> None:
        """Renew the lease no more, because its loop has ended, and its handlers with it. The next loop releases it.

        In a forked child it is the lease of the parent process, and stays.
        """
        if self._pid == os.getpid() and self.name:
            self._abandoned.append(self.name)
            self._forget_name()


class Sightings:
    """The leases that this process has seen unrenewed, each with the time of the first look that showed it."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: dict[tuple[str, int], float] = {}
        self._last = inf

    @property
    def interval(self) -> float:
        """Return the seconds between two looks."""
        return self._lease / LOOKS_PER_LEASE

    def forget(self) -> None:
        self._seen.clear()

    def lost(self, began: float, ended: float, stale: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the leases that are lost, after a look that lasted from `began` to `ended`.

        `stale` has the leases that were not renewed in time, each with the number of its last renewal.
        """
        is_late = began - self._last > 2 * self.interval or ended - began > self.interval
        self._last = began
        if is_late:
            self.forget()
        # A lease that was renewed meanwhile has another number, or is not among these.
        self._seen = {each: self._seen.get(each, ended) for each in stale}
        return [each for each, first in self._seen.items() if began - first >= self._lease]


class LocalEndings:
    """The leases of processes that seem to have ended here, with the first sighting."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._seen: dict[tuple[str, int], float] = {}

    def confirm(self, now: float, leases: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the leases whose process has ended and that were not renewed since."""
        # A lease that was renewed meanwhile has another number, and is seen for the first time.
        self._seen = {each: self._seen.get(each, now) for each in leases if has_ended(each[0])}
        return [each for each, first in self._seen.items() if now - first >= 2 * self._lease / LOOKS_PER_LEASE]


def has_ended(name: str) -> bool:
    """Return whether the process of a lease has ended here; False if that is unknown."""
    from toolwire.wire.process_identity import is_gone

    try:
        return is_gone(name.rpartition("/")[0])
    except ValueError:
        return False  # The name has another form: perhaps it is of another version of this library.


def _discard(_: object) -> None:
    return
