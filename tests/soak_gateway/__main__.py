"""Puts a gateway under mixed traffic while servers behind it die, hang and come back: `make soak-gateway`.

    python -m tests.soak_gateway --minutes 60

Clients of both eras call, are asked, have tasks, listen, cancel and vanish. Some servers are always well, and some are
killed, stopped or answer 500, once or twice in each round. The file of the gateway changes in each round: rightly, or
wrongly, so that the last one stays in force. A round is a minute, or half of one in a short run. It ends in a moment
without a call: every listener is told of a change at every server, and the figures of the gateway are taken. The run
passes when

- every call to a server that is well has its result within ten seconds, and a server that comes back is reached again
  within fifteen;
- calls that run while the file changes end where they began, and the change is in force within twenty seconds;
- no call is carried out twice, no result, question or progress goes to another caller, every cancellation arrives;
- tasks, descriptors, threads, children, objects and memory of the gateway at the end are what they were after the
  first rounds, within `LIMITS`;
- the gateway ends by itself, its log has no error that nobody caught, and none of its children is left.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from tests.fleet.replicas import ROOT
from tests.soak_gateway.configuration import Configuration
from tests.soak_gateway.ledger import Ledger
from tests.soak_gateway.processes import Back, Figures, GatewayProcess, backs_in, extra_back, send, some_fault
from tests.soak_gateway.traffic import Traffic

#: How much more of each the gateway may have at the end than after the first rounds: a part, and a number on top.
#: Conversations that a client left are kept for ten minutes, with their connections and tasks. A server that a change
#: of the file replaced keeps its processes, with three pipes each, until their users have been idle for a while.
LIMITS: dict[str, tuple[float, int]] = {
    "kilobytes": (0.05, 4096),
    "descriptors": (0.0, 24 + 3 * 16),
    "threads": (0.0, 2),
    "children": (0.0, 16),
    "tasks": (0.0, 48),
    "objects": (0.05, 4000),
}
#: What no log of a gateway may have: an exception that nobody expected.
UNCAUGHT = re.compile(r"Traceback|never retrieved|never awaited|Unhandled|exception in callback", re.IGNORECASE)


class Soak:
    """One run."""

    def __init__(self, folder: Path, minutes: float, rate: float) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._minutes = minutes
        # A short run has shorter rounds, so that it has enough of them.
        self._round_seconds = 60.0 if minutes >= 10 else 30.0
        self._chance = random.Random(5)
        file = folder / "gateway.json"
        self._notes = (folder / "notes").open("a+")
        self._faults = 0
        self._changes = 0
        self._figures: list[Figures] = []
        self.ledger = Ledger()
        self.backs = backs_in(folder)
        self.gateway = GatewayProcess(folder, file)
        self._extra = extra_back(folder)
        self._configuration = Configuration(file, self.backs, self._extra, self.gateway.url)
        self.traffic = Traffic(self.gateway.url, self.gateway.port, self.ledger, list(self.backs), rate)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self._configuration.write()
        everyone = [*self.backs, self._extra]
        try:
            await self._configuration.keep_secrets()
            await asyncio.gather(*(back.start() for back in everyone))
            await self.gateway.start()
            await self.traffic.open()
            yield
        finally:
            await self.traffic.close()
            await self.gateway.kill()
            send(self.gateway.children(), signal.SIGKILL)
            for back in everyone:
                await back.end()

    # --- rounds ---

    async def run(self) -> None:
        began = time.monotonic()
        async with self.running():
            await self._quiet(0.0, 0.0)
            while time.monotonic() < began + self._minutes * 60:
                await self._round(began)
            await self._end()

    async def _round(self, began: float) -> None:
        started, calls = time.monotonic(), self.ledger.calls
        self.traffic.begin()
        reading = asyncio.create_task(self._read_notes())
        # All are well again when the round has as long to go as they have to recover.
        shaken = (self._shake(back, self._round_seconds * 0.4) for back in self.backs if back.shaky)
        await asyncio.gather(*shaken, self._change_the_file())
        await asyncio.sleep(started + self._round_seconds - 4.0 - time.monotonic())
        await self.traffic.pause()
        reading.cancel()
        await asyncio.wait({reading})
        rate = (self.ledger.calls - calls) / (time.monotonic() - started)
        await self._quiet((time.monotonic() - began) / 60, rate)

    async def _shake(self, back: Back, seconds: float) -> None:
        """Break a server and heal it, once or twice within the given time."""
        times = self._chance.choice((1, 2))
        for _ in range(times):
            share = seconds / times
            await asyncio.sleep(self._chance.uniform(0.0, share * 0.3))
            how = some_fault(back, self._chance)
            trouble = self.ledger.begin_trouble(back.name)
            await back.break_it(how)
            await asyncio.sleep(self._chance.uniform(share * 0.2, share * 0.6))
            await back.heal(how)
            trouble.ended = time.monotonic()
            self._faults += 1

    async def _change_the_file(self) -> None:
        """Change the file while calls run, and see that the change is in force, or that nothing happens."""
        await asyncio.sleep(self._chance.uniform(1.0, self._round_seconds * 0.2))
        long_calls = self.traffic.begin_long_calls()
        await asyncio.sleep(0.5)
        change = next(self._configuration.changes)()
        trouble = self.ledger.begin_trouble(self._extra.name)
        if change.removed is not None:
            self.traffic.backs.remove(change.removed)
        self._configuration.write(change.text)
        self._changes += 1
        if change.added is not None:
            self.traffic.backs.append(change.added)
        await self.traffic.until_applied()
        trouble.ended = time.monotonic()
        await asyncio.gather(*long_calls)

    async def _read_notes(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            self.ledger.read(self._lines())

    def _lines(self) -> Iterator[str]:
        """The lines that have come since the last time."""
        return iter(self._notes.read().splitlines())

    async def _quiet(self, minute: float, rate: float) -> None:
        """Look at the gateway in a moment when no call is in flight."""
        await self.traffic.touch_all()
        self.ledger.read(self._lines())
        figures = await self.gateway.figures()
        self._figures.append(figures)
        half, most, longest = (1000 * each for each in self.ledger.round_of_seconds())
        print(
            f"{minute:5.1f} min  {self.ledger.calls} calls, {rate:.0f}/s, {half:.0f}/{most:.0f}/{longest:.0f} ms · "
            f"{self.ledger.errors} errors, {self.ledger.left} left, {self._faults} faults, "
            f"{self._changes} changes · "
            f"{figures.kilobytes / 1024:.1f} MB, {figures.objects} objects, {figures.tasks} tasks, "
            f"{figures.descriptors} descriptors, {figures.threads} threads, {figures.children} children · "
            f"{self.ledger.problems.total()} problems",
            flush=True,
        )

    # --- the end ---

    async def _end(self) -> None:
        await self.traffic.close()
        status = await self.gateway.stop()
        if status != 0:
            self.ledger.problem("end", f"the gateway ended with status {status} after SIGTERM")
        await asyncio.sleep(1.0)
        if left := self.gateway.children():
            self.ledger.problem("orphans", f"{len(left)} children outlived the gateway: {left}")
        log = self.gateway.log.read_text(errors="replace")
        for found in list(UNCAUGHT.finditer(log))[:3]:
            self.ledger.problem("log", log[max(0, found.start() - 300) : found.start() + 1500])

    def judge_growth(self) -> list[str]:
        """Compare the gateway at the end with itself after the first rounds."""
        # The first look is before the traffic, and the first rounds fill caches.
        settled = self._figures[1:]
        if len(settled) < 6:
            return ["the run was too short to see whether anything grows"]
        third = len(settled) // 3
        lines = []
        for name, (part, number) in LIMITS.items():
            before = median(getattr(each, name) for each in settled[1 : 1 + third])
            after = median(getattr(each, name) for each in settled[-third:])
            lines.append(f"{name} {before:.0f} → {after:.0f}")
            if after > before * (1 + part) + number:
                self.ledger.problem("growth", f"{name} went from {before:.0f} to {after:.0f}; {self.grown(name)}")
        return lines

    def grown(self, name: str) -> str:
        """Say what there is more of."""
        early, late = self._figures[:3][-1], self._figures[-1]
        then, now = (early.names, late.names) if name == "tasks" else (early.kinds, late.kinds)
        more = sorted(((now[each] - then.get(each, 0), each) for each in now), reverse=True)
        return ", ".join(f"{each} +{count}" for count, each in more[:10] if count > 0)


async def main(minutes: float, rate: float) -> int:
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    folder = ROOT / ".soak-gateway"
    soak = Soak(folder, minutes, rate)
    logging.basicConfig(filename=folder / "clients.log", format="%(asctime)s %(name)s: %(message)s")
    await soak.run()
    growth = soak.judge_growth()
    ledger = soak.ledger
    print(", ".join(f"{count} {name}" for name, count in sorted(ledger.kinds.items())))
    print(f"figures: {', '.join(growth)}")
    print(f"more objects than after the second round: {soak.grown('objects') or 'none'}")
    counts = f"{ledger.calls} calls, {ledger.results} results, {ledger.errors} errors, slowest {ledger.slowest:.1f} s"
    if ledger.problems:
        named = ", ".join(f"{count} × {name}" for name, count in ledger.problems.most_common())
        print(f"soak-gateway: FAILED after {minutes:g} minutes: {named}; {counts}; see .soak-gateway/")
        return 1
    print(f"soak-gateway: passed, {minutes:g} minutes: nothing grew, nobody else noticed; {counts}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=60.0, help="how many things the clients do in a second")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        raise SystemExit("soak-gateway: this needs Linux")
    try:
        sys.exit(asyncio.run(main(arguments.minutes, arguments.rate)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("soak-gateway: interrupted")
