"""The faults of a simulation: what goes wrong, and in which state of the fleet it does.

A fault waits for the state that it is aimed at, and hits the process that is in it. `schedule` says which seed aims at
which pair of a fault and a state, so that some number of seeds in a row aims at every pair, the states included that
last a few milliseconds. How often each fault met each state is counted.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.simulation.clients import Client
from tests.simulation.fleet import Fleet, Replica
from tests.simulation.ledger import LONGEST_LAG
from tests.simulation.network import Fate
from tests.simulation.world import Process

#: What may go wrong.
FAULTS: Final = (
    "delayed messages",
    "lost messages",
    "repeated messages",
    "lost answers of the store",
    "slow store",
    "outage of the store",
    "full store",
    "failover of the store",
    "pause",
    "blocked loop",
    "kill",
    "stop",
    "upgrade",
    "clock jump",
    "slow clients",
)
#: What it may meet, in the order of a call, a stream, a task and a replica.
STATES: Final = (
    "call",
    "stream",
    "away",
    "resuming",
    "listening",
    "queued",
    "taken",
    "working",
    "asking",
    "ending",
    "orphaned",
    "retried",
    "starting",
    "draining",
    "upgrading",
)
_OF_FLEET: Final = ("orphaned", "starting", "draining", "upgrading", "queued", "retried")
_OF_PROCESS: Final = ("lost answers of the store", "pause", "blocked loop", "kill", "stop", "upgrade")
#: States that last some milliseconds.
_SHORT: Final = ("starting", "taken", "ending")
#: The fault that brings a state about, and the state that this fault is aimed at.
_CAUSES: Final = {
    "orphaned": ("kill", "working"),
    "retried": ("kill", "working"),
    "starting": ("kill", "listening"),
    "draining": ("stop", "listening"),
    "upgrading": ("upgrade", "listening"),
}
#: How many faults one seed has.
FAULT_COUNT: Final = 5
#: How often the seeds of a cycle aim at each pair.
_AIMS: Final = 4
#: A process that is paused for so long may be taken for dead.
LONG_PAUSE: Final = 8.0
#: How long a fault waits for its state, and after how long that is brought about once more.
PATIENCE: Final = 90.0
_BRING_AGAIN: Final = 25.0


class Aim(NamedTuple):
    """A fault that is aimed at a state. One that is `exact` happens as soon as the state is there."""

    fault: str
    state: str
    exact: bool


def cycle(kinds: Sequence[str] = FAULTS) -> int:
    """Return how many seeds in a row aim at every pair of a fault and a state."""
    return math.ceil(len(kinds) * len(STATES) * _AIMS / FAULT_COUNT)


def schedule(seed: int, kinds: Sequence[str] = FAULTS) -> list[Aim]:
    """Return the aims of a seed. Each pair has an exact one in every cycle, and others a moment later."""
    pairs = [(fault, state) for fault in kinds for state in STATES]
    # The same order for all seeds, which go through it one after the other.
    random.Random("pairs").shuffle(pairs)
    first = seed % cycle(kinds) * FAULT_COUNT
    return [Aim(*pairs[number % len(pairs)], number < len(pairs)) for number in range(first, first + FAULT_COUNT)]


class Faults:
    """The faults of one seed."""

    def __init__(self, fleet: Fleet, clients: list[Client], kinds: Sequence[str] = FAULTS) -> None:
        self.fleet = fleet
        self.world = fleet.world
        self.clients = clients
        self.met: Counter[tuple[str, str]] = Counter()
        self.count = 0
        self.happened: Callable[[], None] = lambda: None
        """Called after each fault."""
        self.bring: Callable[[str], None] = lambda state: None
        """Called to begin what leads to a state."""
        self._kinds = kinds
        self._random = random.Random(f"{fleet.world.seed}/faults")

    def plan(self, first: float, last: float) -> None:
        """Plan the faults of the seed between two moments."""
        for aim in schedule(self.world.seed, self._kinds):
            self.world.at(self._random.uniform(first, last), lambda aim=aim: self._arm(aim))

    def _arm(self, aim: Aim, *, is_cause: bool = False) -> None:
        """Wait for a state, and let the fault happen then; `is_cause`: for the sake of another state."""
        state = aim.state
        self.world.note(f"waiting: {aim.fault} at {state}")
        pauses = (0.0, 0.0, 0.001, 0.004) if state in _SHORT else (0.0, 0.0, 0.001, 0.004, 0.05, 1.0)
        pause = 0.0 if aim.exact else self._random.choice(pauses) * self._random.random()
        is_over = False

        def happen(process: Process | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                if entered in self.fleet.ledger.on_state:
                    self.fleet.ledger.on_state.remove(entered)
                self.world.after(pause, lambda: self._happen(aim, process, is_cause))

        def entered(name: str, process: Process | None) -> None:
            if name == state:
                happen(process)

        def bring() -> None:
            if not is_over:
                self.bring(state)
                self.world.after(_BRING_AGAIN, bring)

        present = self.fleet.ledger.states.get(state)
        if present:
            happen(self._random.choice(list(present.values())))
            return
        self.fleet.ledger.on_state.append(entered)
        self.world.after(PATIENCE, lambda: happen(None))
        bring()
        if state in _CAUSES:
            self._arm(Aim(*_CAUSES[state], aim.exact), is_cause=True)

    def _happen(self, aim: Aim, process: Process | None, is_cause: bool) -> None:
        fault, target = aim.fault, self._target(process)
        is_local = fault in _OF_PROCESS
        if is_local and target is None:
            return
        if fault != "kill":
            self._meets(fault, target)
        self.count += 1
        self.world.note(
            f"fault: {fault} at {aim.state}" + (f" of {target.process.name}" if is_local and target else "")
        )
        match fault:
            case "delayed messages":
                self._fates("delayed")
            case "lost messages":
                self._fates("lost")
            case "repeated messages":
                self._fates("repeated")
            case "slow store":
                self.fleet.store.slow_until = self.world.now + self._random.uniform(1.0, 30.0)
            case "outage of the store":
                self.fleet.store.go_away(self._random.choice((1.0, 5.0, 28.0, 40.0, 100.0)))
            case "full store":
                self.fleet.store.fill(self._random.uniform(2.0, 60.0))
            case "failover of the store":
                self._fail_over()
            case "clock jump":
                self._jump(target)
            case "slow clients":
                for client in self.clients:
                    client.read_slowly(self._random.uniform(5.0, 60.0))
            case _:
                assert target is not None
                self._hit(fault, target, is_cause, aim.exact)
        self.happened()

    def _meets(self, fault: str, target: Replica | None) -> None:
        """Count the states that a fault meets: those of its process, where it is that of one."""
        for name, present in self.fleet.ledger.states.items():
            if present and name in STATES:
                everywhere = fault not in _OF_PROCESS or name in _OF_FLEET
                self.met[fault, name] += everywhere or (target is not None and target.process in present.values())

    def _target(self, process: Process | None) -> Replica | None:
        alive = [each for each in self.fleet.replicas if not each.process.dead]
        found = [each for each in alive if each.process is process]
        return found[0] if found else self._random.choice(alive) if alive else None

    def _fates(self, fate: Fate) -> None:
        self.fleet.network.fates.extend([fate] * self._random.randint(1, 6))

    def _fail_over(self) -> None:
        lag = self._random.choice((0.01, 0.3, LONGEST_LAG)) * self._random.random()
        ledger = self.fleet.ledger
        # Whatever is written from now on until then is lost.
        self.fleet.store.fail_over(lag, self._random.uniform(0.5, 12.0), ledger.failed_over)

    def _jump(self, target: Replica | None) -> None:
        is_store = target is None or self._random.random() < 0.2
        process = self.fleet.store.process if is_store or target is None else target.process
        process.offset += self._random.choice((-60.0, -5.0, 5.0, 27.0, 60.0)) * self._random.uniform(0.5, 1.0)
        self.world.note(f"the clock of {process.name} is {process.offset:+.1f} s off")

    def _hit(self, fault: str, target: Replica, is_cause: bool, exact: bool) -> None:
        match fault:
            case "lost answers of the store":
                target.client.lost_answers += self._random.randint(1, 4)
            case "pause":
                seconds = self._random.choice((1.0, 6.0, 20.0, 45.0, 70.0))
                for each in (target.process, target.client.thread, *target.process.threads):
                    each.hold(seconds)
                if seconds >= LONG_PAUSE:
                    self.fleet.ledger.troubles.append((target.process, self.world.now, self.world.now + seconds))
            case "blocked loop":
                target.process.hold(self._random.choice((1.0, 10.0, 45.0)))
            case "kill":
                self._scale(0.0 if is_cause else 0.3)
                self._kill(target, 0 if exact else self._random.choice((1, 2, 5, 20, 100)))
            case "stop":
                self._scale(0.0 if is_cause else 0.5)
                target.stop()
            case "upgrade":
                self.fleet.upgrade(target)
                self.bring("upgrading")

    def _kill(self, target: Replica, steps: int) -> None:
        """Kill a replica at any await: now, or after some more steps of its process."""

        def kill() -> None:
            self._meets("kill", target)
            target.kill()

        if steps == 0:
            kill()
        else:
            target.process.on_fuse, target.process.fuse = kill, steps

    def _scale(self, share: float) -> None:
        """Let the fleet be smaller from now on, sometimes."""
        if self.fleet.wanted > 1 and self._random.random() < share:
            self.fleet.wanted -= 1
