"""One fleet: three replicas behind nginx, a Redis behind an address, and the clients; and what may happen to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fleet.ledger import MODERN, Counts, Ledger, Loss, Note, Task, judge, read_notes
from tests.fleet.replicas import DRAIN, Address, Disk, FleetError, Nginx, Process, Redis, Replica
from tests.fleet.traffic import PATIENCE, Traffic, client_of

from toolwire import Client
from toolwire.stores.redis_address import DEFAULT_PREFIX

#: Seconds in which a replica that works has run a short task.
_SHORT = 45.0


class Fleet:
    """The processes and the clients of one scene."""

    def __init__(
        self,
        folder: Path,
        *,
        kills: bool = False,
        clocks: Sequence[float] = (0.0, 0.0, 0.0),
        environment: Mapping[str, str] | None = None,
        workers: int = 1,
        sqlite: int | None = None,
    ) -> None:
        """Prepare a replica for each of `clocks`: how many seconds its clock is ahead.

        `kills`: replicas or workers are killed in this scene. `workers`: the processes of a replica. `sqlite`: all use
        a SQLite file on a disk of so many MiB, or on that of the folder for 0.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.ledger = Ledger()
        self.redis = Redis("redis", folder)
        self.standby = Redis("redis-standby", folder)
        self.addresses = [Address(self.redis) for _ in clocks]
        """The address of Redis for each replica."""
        self.disk = None if sqlite is None else Disk(folder / "disk", sqlite)
        self.replicas = [
            Replica(
                number,
                folder,
                address.url if self.disk is None else str(self.disk.stores),
                environment or {},
                clock,
                workers=workers,
            )
            for number, (address, clock) in enumerate(zip(self.addresses, clocks, strict=True), start=1)
        ]
        self.nginx = Nginx(folder, self.replicas)
        self.traffic = Traffic(self.nginx.url, self.ledger, kills=kills)
        self._notes: list[Note] = []
        (folder / "notes").touch()
        self._written = (folder / "notes").open()
        self._direct: dict[str, Client] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        """Run the fleet until the end of the block. Nothing is left of it then, whatever happens in the block."""
        processes: list[Process] = [*self.replicas, self.nginx, self.redis, self.standby]
        try:
            if self.disk is None:
                await self.redis.start()
                for address in self.addresses:
                    await address.open()
            else:
                await self.disk.open()
            async with asyncio.TaskGroup() as group:
                for replica in self.replicas:
                    group.create_task(replica.start())
            await self.nginx.start()
            await self.traffic.open()
            yield self
        finally:
            for process in processes:
                process.signal(signal.SIGKILL)
            for address in self.addresses:
                await address.cut()
            await asyncio.gather(*(process.ended() for process in processes), return_exceptions=True)
            await self.traffic.close()
            for client in self._direct.values():
                await client.close()
            self._written.close()
            if self.disk is not None:
                await self.disk.close()

    # --- work ---

    def start_load(self) -> None:
        self.traffic.start(self.folder)

    async def load(self, seconds: float) -> None:
        """Let the usual load run for some time."""
        await asyncio.sleep(seconds)

    async def at(self, replica: Replica) -> Client:
        """Return a client of one replica, past nginx."""
        if replica.name not in self._direct:
            self._direct[replica.name] = await client_of(replica.url, MODERN).connect()
        return self._direct[replica.name]

    async def place(self, seconds: float, each: int, replicas: Sequence[Replica] | None = None) -> list[Task]:
        """Begin tasks of that length on replicas: `each` that may be begun once, and `each` that may be begun again."""
        tasks: list[Task] = []
        for replica in self.replicas if replicas is None else replicas:
            client = await self.at(replica)
            for kind in ("once", "again"):
                tasks += self.traffic.begin(kind, seconds, client, each)
        await self.begun(tasks)
        return tasks

    def notes(self) -> list[Note]:
        """Return what the handlers have noted until now. Each line is written by one system call."""
        self._notes += read_notes(self._written.readlines())
        return self._notes

    async def begun(self, tasks: Sequence[Task], times: int = 1, patience: float = PATIENCE) -> None:
        """Wait until every one of these tasks was begun that many times."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    found = Counter(note.number for note in self.notes() if note.what == "begin")
                    if all(found[task.number] >= times for task in tasks):
                        return
                    for task in tasks:
                        if task.refused:
                            raise FleetError(f"a task was refused before anything went wrong: {task.refused}")
                    await asyncio.sleep(0.1)
        except TimeoutError:
            # The verdict says what became of the tasks.
            late = sum(found[task.number] < times for task in tasks)
            self.ledger.remarks.append(f"{late} of {len(tasks)} tasks were not begun {times} times in {patience:g} s")

    # --- faults ---

    async def kill(self, replica: Replica) -> None:
        """End a replica by SIGKILL, in a moment when no change has just been announced."""
        async with self.traffic.announcing:
            await asyncio.sleep(0.3)
            await replica.kill()
            self.ledger.losses.append(Loss(replica.name, time.monotonic()))

    async def kill_worker(self, replica: Replica) -> None:
        """End the oldest worker of a replica by SIGKILL, in a moment when no change has just been announced."""
        async with self.traffic.announcing:
            await asyncio.sleep(0.3)
            if not (workers := replica.workers()):
                self.ledger.wedged.append(f"{replica.name} has no workers")
                return
            victim, *_ = workers
            os.kill(victim, signal.SIGKILL)
            while victim in replica.workers():
                await asyncio.sleep(0.01)
            self.ledger.losses.append(Loss(f"{replica.name}-{victim}", time.monotonic()))

    async def expect_workers(self, replica: Replica, count: int) -> None:
        """Wait until a replica has all its workers again."""
        began = time.monotonic()
        while (found := len(replica.workers())) < count:
            if time.monotonic() - began > PATIENCE:
                self.ledger.wedged.append(f"{replica.name} has {found} of {count} workers")
                return
            await asyncio.sleep(0.1)
        self.ledger.remarks.append(f"all {count} workers there {time.monotonic() - began:.1f} s later")

    async def stop(self, replica: Replica) -> None:
        """End a replica by SIGTERM, and wait until it has left."""
        self.ledger.losses.append(Loss(replica.name, time.monotonic(), DRAIN))
        _, wrong = await replica.stop()
        self.ledger.wedged += wrong

    def gone(self, replica: Replica) -> None:
        """Enter that a replica cannot reach its fleet from now on, which may lose what it has begun."""
        self.ledger.losses.append(Loss(replica.name, time.monotonic()))

    async def evict(self, name: str) -> bool:
        """Delete a key of the stores, as a Redis does that evicts keys; return whether it was there."""
        return (await self.redis.command("DEL", f"{{{DEFAULT_PREFIX}}}:{name}")).startswith(b":1")

    async def replicate(self) -> None:
        """Start a second Redis that follows the first, and wait until it has caught up."""
        await self.standby.start()
        await self.standby.command("REPLICAOF", "127.0.0.1", self.redis.port)
        async with asyncio.timeout(60):
            while await self.standby.figure("replication", "master_link_status") != "up":
                await asyncio.sleep(0.05)

    def promote(self) -> None:
        """Lead new connections to the standby."""
        for address in self.addresses:
            address.target = self.standby.port

    async def recovered(self) -> None:
        """Wait until every replica says that it is ready."""
        began = time.monotonic()
        for replica in self.replicas:
            while replica.runs and not await replica.is_ready():
                if time.monotonic() - began > PATIENCE:
                    self.ledger.wedged.append(f"{replica.name} is not ready {PATIENCE:g} s after the fault")
                    return
                await asyncio.sleep(0.1)
        self.ledger.remarks.append(f"all replicas ready {time.monotonic() - began:.1f} s after the fault")

    async def expect_not_ready(self) -> None:
        """See that no replica says it is ready while its store is away."""
        for replica in self.replicas:
            if replica.runs and await replica.is_ready():
                self.ledger.wedged.append(f"{replica.name} says that it is ready while its store is away")

    # --- the end ---

    async def verdict(self) -> Counts:
        """Let everything come to its end, try every replica once more, and count."""
        await self.traffic.stop()
        await self.traffic.settle()
        await asyncio.gather(*(self._try(replica) for replica in self.replicas if replica.runs))
        await self.traffic.close()
        return judge(self.ledger, self.notes())

    async def _try(self, replica: Replica) -> None:
        task = self.traffic.new_task("once", 0.1)
        try:
            async with asyncio.timeout(_SHORT):
                await self.traffic.follow(task, await self.at(replica))
        except TimeoutError:
            pass
        if task.status != "completed":
            self.ledger.wedged.append(f"{replica.name} runs no task: {task.refused or task.later or 'no answer'}")
        if not await replica.is_ready():
            self.ledger.wedged.append(f"{replica.name} is not ready at the end")
