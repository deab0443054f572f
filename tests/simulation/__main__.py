"""Simulate the fleet: `python -m tests.simulation --minutes 3`, or one seed again with `--seed 17 --log`.

Each seed runs in a process of its own, so that seeds know nothing of each other. A seed that breaks a rule is printed
with the command that replays it. At the end a table says how often each fault met each state of the fleet. The seeds of
a whole cycle fill it; a run that had no time for so many says which number they need, and does not fail for that.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.simulation import seams

#: One seed of so many is run twice, to see that it replays.
REPLAY_EVERY: Final = 25
#: A mistake has to be noticed within so many seeds.
MISTAKE_SEEDS: Final = 100
#: Seconds that one seed may take. One that takes longer hangs.
LONGEST: Final = 300


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # A set of texts would have another order in every process.
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    seams.install()
    # Before the first fork, so that no process has to import it again.
    from tests.simulation.faults import FAULTS
    from tests.simulation.simulation import Simulation

    if options.mistakes:
        return _notice_all(options)
    if options.mistake is not None:
        from tests.simulation.mistakes import MISTAKES

        mistake = MISTAKES[options.mistake]
        mistake.make()
        options.rules, options.fault = mistake.rules, options.fault or mistake.faults
    if options.seed is not None:
        report = Simulation(options.seed, print if options.log else None, options.fault or FAULTS).run()
        print(json.dumps(report, indent=1))
        sys.stdout.flush()
        os._exit(1 if report["violations"] else 0)  # The `finally` of killed processes must not run now either.
    series = Series(options)
    series.run()
    return series.summary()


def _notice_all(options: argparse.Namespace) -> int:
    """Make each mistake, and print after how many seeds it was noticed, and whether these find it without it, too."""
    from tests.simulation.mistakes import MISTAKES

    failures = 0
    print(f"{'mistake':44}{'seeds':>6}  {'broken rule':16}without the mistake")
    options.quiet = True
    for name, mistake in MISTAKES.items():
        options.rules, options.fault, options.seeds = mistake.rules, mistake.faults, MISTAKE_SEEDS
        begun, found = _in_process(options, mistake.make)
        options.seeds = begun
        _, without = _in_process(options)
        print(f"{name:44}{begun:>6}  {found or 'NOT NOTICED':16}{without or 'kept'}", flush=True)
        failures += not found or bool(without)
    return 1 if failures else 0


def _in_process(options: argparse.Namespace, mistake: Callable[[], None] | None = None) -> tuple[int, str]:
    """Run a series in a process of its own; return how many seeds were begun, and the broken rule."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        if mistake is not None:
            mistake()
        series = Series(options)
        series.run()
        os.write(writing, json.dumps([series.begun, series.found]).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        begun, found = json.loads(pipe.read() or b'[0, ""]')
    os.waitpid(child, 0)
    return begun, found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long new seeds begin")
    parser.add_argument("--seeds", type=int, help="how many seeds, instead of --minutes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--log", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--fault", action="append", help="only this kind of fault; may be given several times")
    parser.add_argument("--mistake", help="make a mistake of mistakes.py first, and go on until it is noticed")
    parser.add_argument("--mistakes", action="store_true", help="make each mistake, and print when it was noticed")
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    options = parser.parse_args()
    options.rules, options.quiet = (), False
    return options


class Series:
    """Seeds one after the other, some at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.next: int = options.first
        """The seed that begins next."""
        self._until = seams.real_monotonic() + options.minutes * 60
        self._running: dict[int, tuple[int, int, bytes]] = {}
        self._again: list[int] = []
        self._digests: dict[int, str] = {}
        self._failed: list[int] = []
        self._rules: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        """How often which fault met which state."""
        self._outcomes: Counter[str] = Counter()
        self._done = self._steps = 0

    def run(self) -> int:
        while self._again or self._may_begin() or self._running:
            while len(self._running) < self._options.jobs and (self._again or self._may_begin()):
                self._begin(self._again.pop() if self._again else self._new_seed())
            for pipe in select.select(list(self._running), [], [])[0]:
                self._read(pipe)

    @property
    def begun(self) -> int:
        """Return how many seeds were begun."""
        return self.next - self._options.first

    @property
    def found(self) -> str:
        """Return the rule that was found broken, of those that are looked for."""
        return next((rule for rule in self._options.rules if self._rules[rule]), "")

    def _may_begin(self) -> bool:
        if self.found or (self._failed and not self._options.rules and not self._options.keep_going):
            return False
        if self._options.seeds is not None:
            return self.begun < self._options.seeds
        return seams.real_monotonic() < self._until

    def _new_seed(self) -> int:
        self.next += 1
        if (self.next - 1) % REPLAY_EVERY == 0:
            self._again.append(self.next - 1)
        return self.next - 1

    def _begin(self, seed: int) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.write(writing, json.dumps(_one(seed, self._options.fault)).encode())
            os._exit(0)
        os.close(writing)
        self._running[reading] = (seed, child, b"")

    def _read(self, pipe: int) -> None:
        seed, child, before = self._running[pipe]
        data = os.read(pipe, 1 << 20)
        if data:
            self._running[pipe] = (seed, child, before + data)
            return
        os.close(pipe)
        os.waitpid(child, 0)
        del self._running[pipe]
        empty = {"violations": ["crash: the process of the seed ended without a report"]}
        self._take(seed, json.loads(before) if before else empty)

    def _take(self, seed: int, report: dict[str, Any]) -> None:
        if self._digests.setdefault(seed, report.get("digest", "")) != report.get("digest", ""):
            report["violations"].append("crash: the seed does not replay: two runs of it differ")
        self._done += 1
        self._steps += report.get("steps", 0)
        self.met.update(report.get("met", {}))
        self._outcomes.update(report.get("outcomes", {}))
        if report["violations"]:
            self._failed.append(seed)
            self._rules.update({each.partition(":")[0] for each in report["violations"]})
        if report["violations"] and not self._options.quiet:
            print(f"seed {seed}: {len(report['violations'])} violations")
            for each in report["violations"][:8]:
                print(f"    {each}")
            print(f"    replay: {sys.executable} -m tests.simulation --seed {seed} --log", flush=True)

    def summary(self) -> int:
        from tests.simulation.faults import FAULTS, STATES

        print(f"\n{self._done} seeds, {self._steps} steps, {len(self._failed)} with violations")
        for rule, count in self._rules.most_common():
            print(f"    {rule}: {count}")
        print("\nhow operations ended:")
        for outcome, count in sorted(self._outcomes.items()):
            print(f"    {count:6} {outcome}")
        print("\nhow often each fault met each state:\n")
        print(" " * 27 + "".join(f"{state:>10}" for state in STATES))
        for fault in FAULTS:
            print(f"{fault:27}" + "".join(f"{self.met[f'{fault} / {state}']:>10}" for state in STATES))
        return 1 if self._failed or not self.is_covered() else 0

    def is_covered(self) -> bool:
        """Return whether the table is as full as it must be: the seeds of a whole cycle fill it, fewer need not."""
        from tests.simulation.faults import FAULTS, STATES, cycle

        never = sum(not self.met[f"{fault} / {state}"] for fault in FAULTS for state in STATES)
        if not never or self._options.fault:
            return True
        print(
            f"\n{never} pairs of a fault and a state have not met in {self.begun} seeds; {cycle()} in a row aim at all"
        )
        return self.begun < cycle()


def _one(seed: int, faults: Sequence[str] | None) -> dict[str, Any]:
    from tests.simulation.faults import FAULTS
    from tests.simulation.simulation import Simulation

    signal.alarm(LONGEST)
    try:
        return Simulation(seed, None, faults or FAULTS).run()
    except Exception as error:
        return {"seed": seed, "violations": [f"crash: {type(error).__name__}: {error}"]}


if __name__ == "__main__":
    sys.exit(main())
