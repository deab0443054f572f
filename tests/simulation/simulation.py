"""One simulation: a fleet, its clients and its faults, for ten virtual minutes."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation import seams
from tests.simulation.clients import LEGACY, Client, LegacyClient, ModernClient
from tests.simulation.faults import FAULTS, Faults
from tests.simulation.fleet import REPLICAS, TASKS_RUNNING, URIS, Fleet, LogLines, tool_of_version
from tests.simulation.ledger import Ledger
from tests.simulation.world import World

from toolwire.http.legacy.get_stream import SessionStream
from toolwire.server.subscriptions import Stream

SECONDS: Final = 600.0
OPERATIONS: Final = 50
#: Operations begin, and faults happen, in the first part. The rest is for the fleet to recover.
BUSY_UNTIL: Final = 300.0
#: Bytes that all streams of a replica may hold for clients that do not read.
MOST_QUEUED: Final = 8 * 1024 * 1024
#: For how long a process has to live on after a change, so that its clients must be told.
TELL_SECONDS: Final = 10.0
#: For how long two streams of one session may both believe that they are the owner.
CLAIM_SECONDS: Final = 20.0
#: The operations that lead to a state, whether they are those of a legacy client, and how many seconds they may wait.
_LEADING: Final[dict[str, tuple[tuple[str, ...], bool, float]]] = {
    "call": (("hold",), False, 1.0),
    "stream": (("count",), True, 1.0),
    "away": (("count_away",), True, 1.0),
    "resuming": (("count_away",), True, 1.0),
    "queued": (("long_task",), False, 0.5),
    "taken": (("long_task",), False, 0.5),
    "working": (("long_task",), False, 1.0),
    "asking": (("once_asking", "again_asking"), False, 1.0),
    "ending": (("once", "again"), False, 1.0),
    "orphaned": (("long_task",), False, 1.0),
    "retried": (("long_again",), False, 1.0),
    "upgrading": (("added", "added", "retired"), False, 40.0),
}


class Simulation:
    """The world of one seed."""

    def __init__(self, seed: int, echo: Callable[[str], None] | None = None, faults: Sequence[str] = FAULTS) -> None:
        """`faults` are those that may happen."""
        self.world = World(seed, echo)
        self.ledger = Ledger(self.world)
        self.fleet = Fleet(self.world, self.ledger)
        self.clients: list[Client] = [ModernClient(self.fleet, f"modern-{number}") for number in range(3)]
        self.clients += [LegacyClient(self.fleet, f"legacy-{number}", LEGACY[number]) for number in range(3)]
        self.faults = Faults(self.fleet, self.clients, faults)
        self.faults.happened = self._change_something
        self.faults.bring = self._bring
        self._number = OPERATIONS
        self._two_owners: dict[str, float] = {}
        self._lines = LogLines(self.world)

    def run(self) -> dict[str, Any]:
        """Let everything happen; return the report."""
        world = self.world
        logger = logging.getLogger("toolwire")
        logger.addHandler(self._lines)
        logger.propagate = False
        logger.setLevel(logging.INFO)
        for kind in (asyncio.Event, Stream):
            seams.number(kind)
        seams.name_machines()
        # Collections would call finalizers at moments that differ from run to run, and those of killed processes.
        gc.disable()
        for number in range(REPLICAS):
            self.fleet.start(number)
        for client, streams in zip(self.clients, (0, 0, 1, 1, 2, 1), strict=True):
            client.start(streams)
        for number in range(OPERATIONS):
            client = world.random.choice(self.clients)
            world.at(world.random.uniform(1.0, BUSY_UNTIL), self._operation(client, number))
        self.faults.plan(5.0, BUSY_UNTIL - 40.0)
        world.after(1.0, self._look)
        world.run(SECONDS)
        self._close()
        return self.report()

    def _change_something(self) -> None:
        """After each fault something changes, when it is hardest to tell clients of it."""
        for latest in (0.1, 1.0, 5.0):
            client = self.world.random.choice(self.clients)
            self._number += 1
            moment = self.world.now + self.world.random.uniform(0.0, latest)
            self.world.at(moment, self._operation(client, self._number, "touch"))

    def _bring(self, state: str) -> None:
        """Begin what leads to a state of the fleet: for the queue, more tasks at once than there are slots."""
        kinds, is_legacy, latest = _LEADING.get(state, ((), False, 0.0))
        many = TASKS_RUNNING * REPLICAS + 2
        for _ in range({"queued": many, "taken": many, "upgrading": 8}.get(state, 1) if kinds else 0):
            self._number += 1
            client = self.world.random.choice(self.clients[3:] if is_legacy else self.clients[:3])
            moment = self.world.now + self.world.random.uniform(0.0, latest)
            self.world.at(moment, self._operation(client, self._number, self.world.random.choice(kinds)))

    def _operation(self, client: Client, number: int, kind: str = "") -> Callable[[], None]:
        kind = kind or client.random.choice(client.kinds)

        def begin() -> None:
            with self.world.inside(client.process):
                client.begin(kind, number)

        return begin

    # --- rules that hold all the time ---

    def _look(self) -> None:
        self._look_at_owners()
        for replica in self.fleet.replicas:
            sessions = None if replica.app is None else replica.app.sessions
            if sessions is not None:
                queued = sum(stream._queue.size for stream in sessions.streams._posts.values())
                if queued > MOST_QUEUED:
                    self.ledger.broken("memory", f"{replica.process.name} holds {queued >> 20} MiB for clients")
        self.world.after(1.0, self._look)

    def _owners(self) -> dict[str, int]:
        """Return how many streams believe to be the owner of each session."""
        owners: dict[str, int] = {}
        for replica in self.fleet.replicas:
            sessions = None if replica.app is None else replica.app.sessions
            for session, streams in {} if sessions is None else sessions.streams._gets.items():
                count = sum(1 for each in streams if isinstance(each, SessionStream) and each.owns and each.attached)
                owners[session] = owners.get(session, 0) + count
        return owners

    def _look_at_owners(self) -> None:
        now = self.world.now
        is_troubled = self.fleet.store.away or any(each.process.held_until > now for each in self.fleet.replicas)
        for session, count in self._owners().items():
            if count < 2 or is_troubled or now < self.fleet.store.slow_until + CLAIM_SECONDS:
                self._two_owners.pop(session, None)
            elif now - self._two_owners.setdefault(session, now) > CLAIM_SECONDS:
                self._two_owners[session] = now
                self.ledger.broken("owner", f"the session {session} has {count} owners")

    # --- rules at the end ---

    def _close(self) -> None:
        names = [name for name in self.fleet.store.names("toolwire:task") if "task-process:" not in name]
        self.ledger.close({name: self.fleet.store.peek(name) for name in names})
        for client in self.clients:
            if client.known:
                self._check_updates(client)
                self._check_tools(client)
        for replica in self.fleet.replicas:
            pending = replica.process.pending()
            if pending > 100:
                self.ledger.broken("memory", f"{replica.process.name} has {pending} tasks that do not end")

    def _check_updates(self, client: Client) -> None:
        """A client knows the newest version of what it subscribed to, if the process that told of it lived on.

        A failover may have lost the subscription itself, as the docs say. A process that ends while the store is full
        cannot say that it has missed to announce something.
        """
        for uri in URIS:
            told = [
                version
                for at, version, process in self.ledger.told.get(uri, ())
                if self.ledger.is_healthy(process, at, at + TELL_SECONDS)
                and not self.ledger.lost_since(at)
                and not self.fleet.store.was_full_from(at, process.died)
            ]
            newest, known = max(told, default=0), client.known.get(uri, 0)
            if known < newest and not self.ledger.lost_between(*client.subscribed.get(uri, (0.0, 0.0))):
                text = f"{client.name} knows version {known} of {uri}, and was not told of {newest}"
                self.ledger.broken("update lost", text)

    def _check_tools(self, client: Client) -> None:
        """A client that listens knows the newest list of tools, if the last process with another left in order."""
        if self.fleet.lists_told and tool_of_version(self.fleet.version) not in client.tools:
            self.ledger.broken("list lost", f"{client.name} knows the tools {', '.join(sorted(client.tools))}")

    def report(self) -> dict[str, Any]:
        return {
            "seed": self.world.seed,
            "violations": self.world.violations,
            "digest": self.world.digest,
            "steps": self.world.steps,
            "faults": self.faults.count,
            "met": {f"{fault} / {state}": count for (fault, state), count in self.faults.met.items()},
            "outcomes": dict(self.ledger.outcomes),
        }
