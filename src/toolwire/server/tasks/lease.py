"""The lease of this process: the name under which it holds tasks, and the store's word that it lives."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable

from toolwire.protocol.errors import ToolwireError
from toolwire.server.tasks.process_identity import is_gone, own_identity, own_machine
from toolwire.server.tasks.task_records import reached
from toolwire.stores import Stores
from toolwire.wire.threads import hand_over

log: logging.Logger = logging.getLogger("toolwire.tasks")


class Lease:
    """The lease of this process on the loop that it runs on. A lease that was lost is followed by another."""

    def __init__(self, stores: Stores, seconds: float, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called on the loop when the lease was taken away."""
        self.seconds: float = seconds
        self.name: str = ""
        """The name of this process; empty while it has no lease."""
        self._stores = stores
        self._on_lost = on_lost
        self._registering: asyncio.Task[str] | None = None
        self._stop_renewing: Callable[[], None] | None = None
        # Names of this process on loops that have ended.
        self._left: list[str] = []
        self._pid = os.getpid()

    async def held(self) -> str:
        """Return the name of this process, which has a lease; raise `TasksUnreachable`."""
        if self.name:
            return self.name
        if self._registering is None or self._registering.done():
            self._registering = asyncio.get_running_loop().create_task(self._register())
            # All its waiters may give up before it fails.
            self._registering.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._registering)

    async def _register(self) -> str:
        queue, loop = self._stores.queue, asyncio.get_running_loop()
        name = ""
        while not name or not await reached(queue.renew(name, self.seconds)):
            # The name says which process of which machine this is, so that a process beside it knows when it has ended.
            name = f"{own_identity()}/{secrets.token_urlsafe(6)}"
        self.name, self._pid = name, os.getpid()
        # In the thread of the store: a handler that holds the loop does not cost its process the lease.
        self._stop_renewing = queue.keep(name, self.seconds, lambda: _discard(hand_over(loop, self._lost, name)))
        return name

    def _lost(self, name: str) -> None:
        if name == self.name:
            log.error("this process lost its lease: its tasks go on elsewhere, or have failed")
            self._forget_name()
            self._on_lost()

    def _forget_name(self) -> None:
        stop, self._stop_renewing = self._stop_renewing, None
        self.name = ""
        if stop is not None:
            stop()

    async def end_those_of_the_dead(self) -> None:
        """End the leases of processes of this machine that have certainly ended; nobody has to wait for these."""
        while self._left:
            await self._stores.queue.release(self._left[-1])
            self._left.pop()
        for name, renewal in await self._stores.queue.leases(f"{own_machine()}/"):
            if name != self.name and _has_ended(name):
                await self._stores.queue.bury(name, renewal)

    async def release(self) -> None:
        """End the lease. What this process still holds is for others."""
        if self._registering is not None and not self._registering.done():
            await asyncio.wait({self._registering})
        name = self.name
        self._forget_name()
        try:
            if name:
                await self._stores.queue.release(name)
        except ToolwireError as error:
            log.warning("a process could not be signed off: %s", error)

    def forget_loop(self) -> None:
        """Forget the lease of a loop that has ended. Its handlers ended with it, so the next loop ends the lease."""
        if self._pid != os.getpid():
            self._stop_renewing = None  # The lease is that of the parent process, which goes on with it.
            self._left = []
        elif self.name:
            self._left.append(self.name)
        self._forget_name()
        self._registering, self._pid = None, os.getpid()


def _has_ended(name: str) -> bool:
    try:
        return is_gone(name.rpartition("/")[0])
    except ValueError:
        return False  # The name has another form: perhaps it is of another version of this library.


def _discard(_: object) -> None:
    return
