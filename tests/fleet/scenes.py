"""The scenes: what goes wrong in each, while clients of both eras go on with their work."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.ledger import Counts


@dataclass(frozen=True)
class Scene:
    """One scene. `kills`: replicas are killed in it. `alone`: it needs the machine for itself."""

    about: str
    play: Callable[[Fleet], Awaitable[None]]
    seconds: float
    """How long it takes at most, where nothing is broken: longer scenes begin first."""
    kills: bool = False
    alone: bool = False
    clocks: tuple[float, float, float] = (0.0, 0.0, 0.0)
    environment: Mapping[str, str] = field(default_factory=dict)

    async def run(self, folder: Path) -> tuple[Counts, list[str]]:
        """Play the scene; return the counts and the remarks."""
        fleet = Fleet(folder, kills=self.kills, clocks=self.clocks, environment=self.environment)
        async with fleet.running():
            await self.play(fleet)
            return await fleet.verdict(), fleet.ledger.remarks


# --- the store is away ---


async def paused(fleet: Fleet) -> Callable[[], Awaitable[None]]:
    """Freeze Redis: connections stay, and answers come late."""
    fleet.redis.signal(signal.SIGSTOP)

    async def back() -> None:
        fleet.redis.signal(signal.SIGCONT)

    return back


async def outage(
    fleet: Fleet, seconds: float, take_away: Callable[[Fleet], Awaitable[Callable[[], Awaitable[None]]]]
) -> None:
    fleet.start_load()
    await fleet.load(3)
    # Some tasks end while the store is away, others afterwards.
    await fleet.place(seconds / 2, each=2)
    await fleet.place(seconds + 5, each=2)
    bring_back = await take_away(fleet)
    await fleet.load(seconds)
    if seconds >= 30:
        await fleet.expect_not_ready()
    await bring_back()
    await fleet.recovered()
    await fleet.load(8)


# --- Redis as people run it ---


async def failed_over(fleet: Fleet) -> None:
    """Promote the standby while the old primary lives on as its replica, and answers READONLY."""
    await fleet.replicate()
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(10.0, each=2)
    await fleet.redis.command("FAILOVER", "TO", "127.0.0.1", fleet.standby.port)
    async with asyncio.timeout(30):
        while await fleet.standby.figure("replication", "role") != "master":
            await asyncio.sleep(0.05)
    fleet.address.target = fleet.standby.port
    await fleet.load(5)
    await fleet.recovered()
    await fleet.load(15)


async def primary_killed(fleet: Fleet) -> None:
    """Kill the primary and promote the standby three seconds later. The last writes may be lost."""
    await fleet.replicate()
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(10.0, each=2)
    await fleet.redis.kill()
    fleet.ledger.lost_writes.append(time.monotonic())
    await fleet.load(3)
    await fleet.standby.command("REPLICAOF", "NO", "ONE")
    fleet.address.target = fleet.standby.port
    await fleet.recovered()
    await fleet.load(15)


async def filled(fleet: Fleet) -> None:
    """Fill Redis up to its `maxmemory` for 40 seconds."""
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(20.0, each=2)
    await fleet.place(45.0, each=2)
    used = int(await fleet.redis.figure("memory", "used_memory"))
    await fleet.redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await fleet.redis.command("CONFIG", "SET", "maxmemory", used + 512 * 1024)
    until, fillers = time.monotonic() + 40, 0
    while time.monotonic() < until:
        # What ends or expires makes room, which is filled again.
        if (await fleet.redis.command("SET", f"filler:{fillers}", b"x" * 4096)).startswith(b"-OOM"):
            await asyncio.sleep(0.1)
        else:
            fillers += 1
    await fleet.redis.command("CONFIG", "SET", "maxmemory", 0)
    for number in range(fillers):
        await fleet.redis.command("DEL", f"filler:{number}")
    await fleet.recovered()
    await fleet.load(8)


SCENES: dict[str, Scene] = {
    "outage-5": Scene("Redis frozen for 5 s", partial(outage, seconds=5, take_away=paused), 40),
    "failover": Scene("standby promoted, READONLY at the old primary", failed_over, 55),
    "primary-killed": Scene("primary killed, standby promoted", primary_killed, 50),
    "full": Scene("Redis full for 40 s", filled, 80),
}
"""All scenes by name."""
SHORT = ("outage-5", "failover", "primary-killed")
"""A quick selection, for CI."""
