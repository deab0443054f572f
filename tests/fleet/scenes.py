"""The scenes: what goes wrong in each, while clients of both eras go on with their work."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.fleet.fleet import Fleet
from tests.fleet.gateway_scenes import GATEWAY_SCENES, GatewayScene
from tests.fleet.ledger import LEGACY, MODERN, Counts, Loss, Task
from tests.fleet.replicas import Address, FleetError
from tests.fleet.traffic import PATIENCE
from tests.fleet.versions import PRESENT, commit_before, unpack_source

#: How long replicas are killed, in the scene that does nothing else.
KILLS_SECONDS = float(os.environ.get("FLEET_SECONDS") or 100)
#: How many tasks run when a replica is taken over.
MANY = int(os.environ.get("FLEET_TASKS") or 50_000)

#: The keys of the queue in Redis. `stores/redis_queue_scripts.py` says what each has.
QUEUE_KEYS = tuple(
    f"queue-{name}"
    for name in (
        *("places", "ends", "ages", "delays", "lines", "turns", "held", "counts"),
        *("leases", "renewals", "processes", "gone", "buried"),
    )
)
#: So few that tasks also wait and are taken.
FEW_SLOTS = {"FLEET_SLOTS": "8"}


@dataclass(frozen=True)
class Scene:
    """One scene. `kills`: processes are killed in it. `alone`: it needs the machine for itself."""

    about: str
    play: Callable[[Fleet], Awaitable[None]]
    seconds: float
    """How long it takes at most, where nothing is broken: longer scenes begin first."""
    kills: bool = False
    alone: bool = False
    clocks: tuple[float, ...] = (0.0, 0.0, 0.0)
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    sqlite: int | None = None

    async def run(self, folder: Path) -> tuple[Counts, list[str]]:
        """Play the scene; return the counts and the remarks."""
        fleet = Fleet(
            folder,
            kills=self.kills,
            clocks=self.clocks,
            environment=self.environment,
            workers=self.workers,
            sqlite=self.sqlite,
        )
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


async def restarted(fleet: Fleet) -> Callable[[], Awaitable[None]]:
    """Stop Redis, which comes back with all that it had."""
    fleet.redis.signal(signal.SIGTERM)
    await fleet.redis.ended()
    return fleet.redis.start


async def cut_off(fleet: Fleet) -> Callable[[], Awaitable[None]]:
    """Cut the network between the replicas and Redis."""
    for address in fleet.addresses:
        await address.cut()

    async def back() -> None:
        for address in fleet.addresses:
            await address.open()

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


async def flapping(fleet: Fleet, seconds: float, is_answer_lost: bool) -> None:
    """Have tasks while connections to Redis drop again and again."""
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(seconds / 2, each=3)
    await flap(fleet, seconds, is_answer_lost)
    await fleet.recovered()
    await fleet.load(8)


async def flap(fleet: Fleet, seconds: float, is_answer_lost: bool) -> None:
    """Drop all connections to Redis again and again; `is_answer_lost`: what it answers just before that is lost."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await fleet.load(0.7)
        if is_answer_lost:
            for address in fleet.addresses:
                await address.lose_answers()
            await fleet.load(0.3)
        for address in fleet.addresses:
            await address.open()


async def away_five_times(fleet: Fleet) -> None:
    """Take Redis away five times, for four seconds each."""
    for take_away in (cut_off, paused, cut_off, paused, cut_off):
        bring_back = await take_away(fleet)
        await fleet.load(4)
        await bring_back()
        await fleet.load(3)


async def killed_in_turn(fleet: Fleet) -> None:
    """Kill each replica once."""
    for victim in fleet.replicas:
        await fleet.kill(victim)
        await victim.start()
        await fleet.load(4)


async def questions(fleet: Fleet, during: Callable[[Fleet], Awaitable[None]]) -> None:
    """Ask users while something goes wrong."""
    await fleet.traffic.start_questions()
    await fleet.load(3)
    await during(fleet)
    await fleet.recovered()
    await fleet.load(5)
    for revision in (LEGACY, MODERN):
        calls = [call for call in fleet.ledger.calls if call.revision.startswith(revision)]
        answered = sum(call.outcome == "result" for call in calls)
        failed = sum(call.outcome == "error" for call in calls)
        fleet.ledger.remarks.append(f"{revision}: {answered} calls with questions answered, {failed} failed")
        if not answered:
            fleet.ledger.wedged.append(f"no question of a call on {revision} was answered")


# --- replicas are gone, or seem to be ---


async def killed(fleet: Fleet) -> None:
    """Kill a replica every ten seconds, and start it again."""
    fleet.start_load()
    legacy = fleet.traffic.clients[LEGACY]
    until = time.monotonic() + KILLS_SECONDS
    while time.monotonic() < until:
        for victim in fleet.replicas:
            began = time.monotonic()
            await fleet.place(3.0, each=2, replicas=[victim])
            for _ in range(6):
                fleet.traffic.begin_call(legacy, LEGACY, count=10, pause=0.4)
            await asyncio.sleep(1.0)
            await fleet.kill(victim)
            await victim.start()
            await fleet.load(max(0.0, 10.0 - (time.monotonic() - began)))


async def wrong_clocks(fleet: Fleet) -> None:
    """Run tasks longer than any lease while the clocks disagree; the ttl of some is short."""
    fleet.start_load()
    await fleet.place(40.0, each=2)
    for client in fleet.traffic.clients.values():
        for task in fleet.traffic.begin("once", 1.0, client, 6):
            task.kept = 30.0
    await fleet.load(45)


async def jumping_clocks(fleet: Fleet) -> None:
    """Set clocks an hour forth and back while tasks run, and kill the replica whose clock jumped most."""
    fleet.start_load()
    await fleet.place(60.0, each=2)
    first, second, _ = fleet.replicas
    for replica, seconds in ((first, 3600.0), (second, -3600.0), (first, -7200.0)):
        await fleet.load(5)
        replica.set_clock(seconds)
        await fleet.place(3.0, each=2)
    await fleet.load(5)
    tasks = await fleet.place(20.0, each=2, replicas=[first])
    await fleet.kill(first)
    await fleet.begun([task for task in tasks if task.kind == "again"], times=2)
    await first.start()
    await fleet.load(8)


async def blocked(fleet: Fleet) -> None:
    """Hold the loop of one replica for 45 seconds while it has tasks."""
    fleet.start_load()
    victim = fleet.replicas[0]
    await fleet.place(10.0, each=3, replicas=[victim])
    await fleet.place(55.0, each=3)
    await (await fleet.at(victim)).call_tool("block", {"seconds": 45.0})
    await fleet.load(5)


async def frozen(fleet: Fleet) -> None:
    """Freeze a replica until others have taken its tasks over. Then it goes on, with attempts that it has lost."""
    fleet.start_load()
    victim = fleet.replicas[0]
    tasks = await fleet.place(10.0, each=3, replicas=[victim])
    fleet.ledger.losses.append(Loss(victim.name, time.monotonic()))
    victim.signal(signal.SIGSTOP)
    await fleet.begun([task for task in tasks if task.kind == "again"], times=2)
    victim.signal(signal.SIGCONT)
    await fleet.recovered()
    await fleet.load(8)


async def separated(fleet: Fleet, separate: Callable[[Address], Awaitable[None]]) -> None:
    """Keep a replica from Redis until the others have taken its tasks over, and then some seconds more."""
    fleet.start_load()
    await fleet.load(3)
    victim, address = fleet.replicas[0], fleet.addresses[0]
    # Some of its tasks end while it is away, some run for longer, and all lose their lease.
    await fleet.place(10.0, each=2, replicas=[victim])
    tasks = await fleet.place(80.0, each=2, replicas=[victim])
    await fleet.place(20.0, each=2, replicas=fleet.replicas[1:])
    await separate(address)
    await fleet.load(1)
    fleet.gone(victim)
    await fleet.begun([task for task in tasks if task.kind == "again"], times=2)
    await fleet.load(5)
    await address.open()
    await fleet.recovered()
    await fleet.load(8)


async def all_frozen(fleet: Fleet, seconds: float, with_redis: bool) -> None:
    """Freeze all replicas for longer than any lease; `with_redis`: their Redis as well, as a host that sleeps."""
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(seconds / 2, each=2)
    await fleet.place(seconds + 10, each=2)
    processes = [*fleet.replicas, *([fleet.redis] if with_redis else [])]
    for process in processes:
        process.signal(signal.SIGSTOP)
    await fleet.load(seconds)
    for process in processes:
        process.signal(signal.SIGCONT)
    await fleet.recovered()
    await fleet.load(8)


async def scaled_in(fleet: Fleet) -> None:
    """Stop one replica for good, with tasks and calls that take longer than it has, and others that do not."""
    fleet.start_load()
    await fleet.load(3)
    victim = fleet.replicas[0]
    legacy = fleet.traffic.clients[LEGACY]
    for _ in range(6):
        fleet.traffic.begin_call(legacy, LEGACY, count=30, pause=0.5)
    await fleet.place(15.0, each=3, replicas=[victim])
    await fleet.place(2.0, each=3, replicas=[victim])
    await fleet.stop(victim)
    await fleet.load(8)


async def upgraded_from_before(fleet: Fleet) -> None:
    """Replace an earlier commit by the present one, under tasks, sessions and a question that the earlier one began."""
    before = await asyncio.to_thread(unpack_source, commit_before(), fleet.folder / "before")
    for replica in fleet.replicas:
        await fleet.stop(replica)
        await replica.start(**before)
    fleet.ledger.losses.clear()
    fleet.start_load()
    await fleet.load(3)
    # The present version reads the ends of these tasks and the question of this call.
    ended = await fleet.place(0.1, each=5)
    question = await fleet.traffic.ask()
    for replica in fleet.replicas:
        # Of these, the ones that may be begun again are handed back to the versions that are left.
        await fleet.place(15.0, each=2, replicas=[replica])
        await fleet.stop(replica)
        await replica.start(**PRESENT)
        await fleet.load(3)
    await question.answer("yes")
    fleet.ledger.remarks.append(f"{len(ended)} ends and one question of the earlier version were read")
    await fleet.load(5)


async def upgraded(fleet: Fleet) -> None:
    """Replace one replica after the other by a version that has another tool. The first is killed once meanwhile."""
    fleet.start_load()
    first, *_ = fleet.replicas
    fleet.ledger.new_tools = frozenset({"added"})
    for replica in fleet.replicas:
        await fleet.load(3)
        await fleet.stop(replica)
        await replica.start(FLEET_VERSION="2")
        if replica is first:
            tasks = fleet.traffic.begin("added", 4.0, await fleet.at(first), 6)
            await fleet.begun(tasks)
            # No other replica has the tool, so the tasks have to wait for the next one that has it.
            await fleet.kill(first)
            await fleet.load(12)
            await first.start()
    await fleet.load(5)


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
    fleet.promote()
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
    fleet.promote()
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


async def crashed(fleet: Fleet, times: int) -> None:
    """Have Redis lose its last second, and start again. No replica ended, so that nothing else may be lost."""
    fleet.start_load()
    await fleet.load(3)
    for _ in range(times):
        # Some tasks end in the second that is lost, others later.
        await fleet.place(12.0, each=2)
        await fleet.place(1.0, each=3)
        await fleet.redis.crash(1.0)
        await fleet.redis.start()
        await fleet.recovered()
        await fleet.load(8)


async def evicted(fleet: Fleet) -> None:
    """Lose each key of the queue while tasks run and wait, and then some keys as a replica is killed."""
    fleet.start_load()
    await fleet.load(3)
    present: list[str] = []
    for key in QUEUE_KEYS:
        for client in fleet.traffic.clients.values():
            for kind in ("once", "again"):
                fleet.traffic.begin(kind, 4.0, client, 3)
        await fleet.load(1.5)
        if await fleet.evict(key):
            present.append(key)
    fleet.ledger.remarks.append(f"keys that were there: {', '.join(present)}")
    victim = fleet.replicas[0]
    tasks = await fleet.place(30.0, each=3, replicas=[victim])
    # Where it has no slot, another replica runs them.
    lost = {note.number for note in fleet.notes() if note.replica == victim.name}
    for key in ("queue-renewals", "queue-held"):
        await fleet.evict(key)
    await fleet.kill(victim)
    # One process at a time repairs the index, once a minute at most, and a page at each look.
    orphans = [task for task in tasks if task.kind == "again" and task.number in lost]
    await fleet.begun(orphans, times=2, patience=3 * PATIENCE)
    await victim.start()
    await fleet.load(5)


# --- one machine with a SQLite file ---


async def workers_killed(fleet: Fleet) -> None:
    """Kill the oldest of four workers, six times."""
    fleet.start_load()
    await fleet.load(3)
    (replica,) = fleet.replicas
    for _ in range(6):
        await fleet.place(8.0, each=3)
        await fleet.kill_worker(replica)
        await fleet.load(4)
    await fleet.expect_workers(replica, 4)
    await fleet.load(5)


async def disk_filled(fleet: Fleet) -> None:
    """Fill the disk of the SQLite file for 30 seconds."""
    assert fleet.disk is not None
    fleet.start_load()
    await fleet.load(3)
    await fleet.place(15.0, each=2)
    await fleet.place(40.0, each=2)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        # What SQLite gives back is filled again.
        fleet.disk.fill()
        await fleet.load(0.1)
    await fleet.expect_not_ready()
    fleet.disk.empty()
    await fleet.recovered()
    await fleet.load(8)


# --- many tasks ---


async def few_slots(fleet: Fleet) -> None:
    """Ask for five times as many tasks as can run at once. All are accepted, and nothing begins that is refused."""
    fleet.ledger.refuses = False
    for revision in (LEGACY, MODERN):
        client = fleet.traffic.clients[revision]
        fleet.traffic.begin("once", 2.0, client, 15)
        fleet.traffic.begin("maybe", 2.0, client, 8)


async def many_tasks(fleet: Fleet) -> None:
    """Kill a replica, and start it again, while the fleet has very many tasks."""
    traffic, victim = fleet.traffic, fleet.replicas[0]
    client = traffic.clients[MODERN]
    began = time.monotonic()
    tasks = [traffic.new_task("hold_again" if number % 2 else "hold_once", 3600.0) for number in range(MANY)]
    await _each(tasks, lambda task: traffic.create(task, client))
    refused = next((task.refused for task in tasks if task.refused), None)
    if refused:
        raise FleetError(f"a task was refused before anything went wrong: {refused}")
    fleet.ledger.remarks.append(f"{MANY:,} tasks created in {time.monotonic() - began:.0f} s")
    fleet.start_load()
    await fleet.load(3)
    held = {note.number for note in fleet.notes() if note.replica == victim.name}
    await fleet.kill(victim)
    began = time.monotonic()
    await victim.start()
    fleet.ledger.remarks.append(f"started again in {time.monotonic() - began:.1f} s")
    orphans = [task for task in tasks if task.kind == "hold_again" and task.number in held]
    await fleet.begun(orphans, times=2)
    fleet.ledger.remarks.append(f"{len(orphans):,} tasks begun again {time.monotonic() - began:.0f} s after the kill")
    (fleet.folder / "gate").touch()
    await _each(tasks, traffic.see_the_end)


async def _each(tasks: list[Task], work: Callable[[Task], Awaitable[object]], at_once: int = 48) -> None:
    """Do something with each task, some of them at a time."""
    waiting = iter(tasks)

    async def one_after_the_other() -> None:
        for task in waiting:
            await work(task)

    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))


SCENES: dict[str, Scene | GatewayScene] = {
    "outage-5": Scene("Redis frozen for 5 s", partial(outage, seconds=5, take_away=paused), 40),
    "outage-40": Scene("Redis restarted after 40 s", partial(outage, seconds=40, take_away=restarted), 80),
    "outage-120": Scene("Redis cut off for 120 s", partial(outage, seconds=120, take_away=cut_off), 170),
    "questions": Scene(
        "calls that ask, while Redis is away for 4 s five times", partial(questions, during=away_five_times), 55
    ),
    "questions-flapping": Scene(
        "calls that ask, while connections drop",
        partial(questions, during=partial(flap, seconds=25, is_answer_lost=True)),
        45,
    ),
    "questions-kills": Scene(
        "calls that ask, while replicas are killed", partial(questions, during=killed_in_turn), 50, kills=True
    ),
    "kills": Scene(
        "a replica killed every ten seconds, no two on one machine",
        killed,
        KILLS_SECONDS + 60,
        kills=True,
        environment={"FLEET_APART": "yes"},
    ),
    "clocks": Scene("clocks 60 s apart", wrong_clocks, 75, clocks=(0.0, 60.0, -60.0)),
    "clock-jumps": Scene("clocks that jump an hour forth and two back", jumping_clocks, 130, kills=True),
    "blocked": Scene("a loop blocked for 45 s", blocked, 80),
    "frozen": Scene("a replica frozen until it is taken over", frozen, 120, kills=True),
    "frozen-all": Scene("all replicas frozen for 60 s", partial(all_frozen, seconds=60, with_redis=False), 110),
    "frozen-host": Scene(
        "all replicas and Redis frozen for 60 s", partial(all_frozen, seconds=60, with_redis=True), 110
    ),
    "cut-off": Scene("one replica cut off from Redis", partial(separated, separate=Address.cut), 130),
    "half-open": Scene("one replica whose TCP is half open", partial(separated, separate=Address.swallow), 130),
    "answers-lost": Scene(
        "one replica that gets no answers of Redis", partial(separated, separate=Address.lose_answers), 130
    ),
    "flapping": Scene(
        "connections dropped every 0.7 s",
        partial(flapping, seconds=45, is_answer_lost=False),
        75,
        environment=FEW_SLOTS,
    ),
    "flapping-answers": Scene(
        "answers lost, then connections dropped",
        partial(flapping, seconds=45, is_answer_lost=True),
        75,
        environment=FEW_SLOTS,
    ),
    "flapping-short": Scene(
        "answers lost and connections dropped for 20 s",
        partial(flapping, seconds=20, is_answer_lost=True),
        45,
        environment=FEW_SLOTS,
    ),
    "failover": Scene("standby promoted, READONLY at the old primary", failed_over, 55),
    "primary-killed": Scene("primary killed, standby promoted", primary_killed, 50),
    "crashes": Scene("Redis loses its last second, three times", partial(crashed, times=3), 75),
    "crash-short": Scene("Redis loses its last second", partial(crashed, times=1), 45),
    "evicted": Scene("each key of the queue lost", evicted, 130, kills=True, environment=FEW_SLOTS),
    "full": Scene("Redis full for 40 s", filled, 80),
    "upgrade": Scene("a rolling upgrade that adds a tool", upgraded, 110, kills=True),
    "upgrade-before": Scene("a rolling upgrade from an earlier commit to this one", upgraded_from_before, 90),
    "scale-in": Scene("one replica of three stopped for good", scaled_in, 60),
    "workers": Scene(
        "a worker of four killed, six times", workers_killed, 100, kills=True, clocks=(0.0,), workers=4, sqlite=0
    ),
    "disk-full": Scene("the disk of a SQLite file full for 30 s", disk_filled, 80, sqlite=16),
    "slots": Scene("five times as many tasks as slots", few_slots, 35, environment={"FLEET_SLOTS": "3"}),
    "takeover": Scene(
        f"{MANY:,} running tasks at a takeover",
        many_tasks,
        180,
        kills=True,
        alone=True,
        environment={"FLEET_SLOTS": str(2 * MANY)},
    ),
    **GATEWAY_SCENES,
}
"""All scenes by name."""
SHORT = (
    "outage-5",
    "outage-40",
    "cut-off",
    "flapping-short",
    "crash-short",
    "failover",
    "primary-killed",
    "full",
    "scale-in",
    "slots",
    "upgrade-before",
    "gateways-short",
)
"""The scenes of four minutes, for CI."""
