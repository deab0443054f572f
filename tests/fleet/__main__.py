"""Runs a real fleet through everything that goes wrong, and counts what was lost or doubled: `make fleet`.

    python -m tests.fleet                     all scenes, about twenty minutes
    python -m tests.fleet short               four minutes of them
    python -m tests.fleet outage-40 kills     some scenes

Each scene has three replicas of `tests/fleet/server.py`, a Redis and an nginx of its own. The exit status is 1 if
anything was lost or doubled. The logs of the processes are in `.fleet/SCENE/`, that of the clients in `.fleet/`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time

from tests.fleet.ledger import COLUMNS, Counts
from tests.fleet.replicas import ROOT, LeftOut
from tests.fleet.scenes import SCENES, SHORT
from tests.fleet.traffic import Peer

#: Scenes that run side by side: each waits most of its time.
AT_ONCE = 3

Outcome = tuple[Counts, list[str]] | BaseException


async def run_all(names: list[str], at_once: int) -> dict[str, Outcome]:
    """Run the scenes: the longest first, several at once, and at the end those that need the machine for themselves."""
    outcomes: dict[str, Outcome] = {}
    turns = asyncio.Semaphore(at_once)

    async def run(name: str) -> None:
        async with turns:
            began = time.monotonic()
            try:
                outcomes[name] = await SCENES[name].run(ROOT / ".fleet" / name)
            except LeftOut as reason:
                print(f"fleet: {name}: left out, {reason}", flush=True)
                return
            except Exception as error:
                outcomes[name] = error
            print(f"fleet: {name}, {time.monotonic() - began:.0f} s: {verdict(outcomes[name])}", flush=True)

    by_length = sorted(names, key=lambda name: -SCENES[name].seconds)
    async with asyncio.TaskGroup() as group:
        for name in by_length:
            if not SCENES[name].alone:
                group.create_task(run(name))
    for name in by_length:
        if SCENES[name].alone:
            await run(name)
    return outcomes


def verdict(outcome: Outcome) -> str:
    if isinstance(outcome, BaseException):
        return f"did not come to its end: {type(outcome).__name__}: {outcome}"
    counts, _ = outcome
    return "nothing lost, nothing doubled" if not counts.breaches else f"{counts.breaches} breaches"


def table(outcomes: dict[str, Outcome]) -> str:
    """Return one line of counts for each scene."""
    header = ["scene", *COLUMNS.values()]
    rows = [header]
    for name in SCENES:
        outcome = outcomes.get(name)
        if isinstance(outcome, tuple):
            rows.append([name, *(str(getattr(outcome[0], column)) for column in COLUMNS)])
        elif outcome is not None:
            rows.append([name, *("-" for _ in COLUMNS)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [" | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "-|-".join("-" * width for width in widths), *lines[1:]])


def details(outcomes: dict[str, Outcome]) -> list[str]:
    lines: list[str] = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, tuple):
            counts, remarks = outcome
            lines += [f"{name}: {text}" for text in (*remarks, *counts.examples)]
        else:
            lines.append(f"{name}: {verdict(outcome)}")
    return lines


async def main(names: list[str], at_once: int) -> int:
    # A signal cancels everything, and every scene ends its processes. After SIGKILL the kernel does it.
    loop, work = asyncio.get_running_loop(), asyncio.current_task()
    assert work is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, work.cancel)
    began = time.monotonic()
    outcomes = await run_all(names, at_once)
    print("\n" + table(outcomes) + "\n")
    for line in details(outcomes):
        print(line)
    broken = [name for name, outcome in outcomes.items() if not isinstance(outcome, tuple) or outcome[0].breaches]
    seconds = f"{time.monotonic() - began:.0f} s"
    if broken:
        print(f"fleet: {len(broken)} of {len(outcomes)} scenes failed ({', '.join(broken)}) in {seconds}; see .fleet/")
        return 1
    print(f"fleet: nothing lost and nothing doubled in {len(outcomes)} scenes, {seconds}")
    return 0


def chosen(words: list[str]) -> list[str]:
    names = [name for word in words or ["all"] for name in {"all": tuple(SCENES), "short": SHORT}.get(word, (word,))]
    if unknown := sorted(set(names) - set(SCENES)):
        raise SystemExit(f"fleet: there is no scene {', '.join(unknown)}; there are short, {', '.join(SCENES)}")
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"short, or some of {', '.join(SCENES)}")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many scenes run side by side")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        raise SystemExit("fleet: this needs Linux")
    if not Peer.python().exists():
        print("fleet: python mcp is not installed (make interop does that), so only our own clients take part")
    (ROOT / ".fleet").mkdir(exist_ok=True)
    logging.basicConfig(filename=ROOT / ".fleet" / "clients.log", format="%(asctime)s %(name)s: %(message)s")
    try:
        sys.exit(asyncio.run(main(chosen(arguments.scenes), arguments.at_once)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit("fleet: interrupted")
