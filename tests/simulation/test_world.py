"""The world of the simulation: time, order, pauses and deaths."""

from __future__ import annotations

import asyncio
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cases import cases
from tests.simulation import seams
from tests.simulation.world import Process, World

ROOT = Path(__file__).resolve().parents[2]


def test_a_killed_process_runs_no_finally() -> None:
    world, said = World(1), []
    process = Process(world, "victim")

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            said.append("finally")

    process.start(work())
    world.at(5.0, process.kill)
    world.run(100.0)
    assert said == []
    assert process.pending() == 1
    process.tasks[0].cancel()
    process.died = math.inf  # The test ends here, and leaves no coroutine behind.
    world.run(200.0)


def test_time_is_virtual_and_timers_keep_their_order() -> None:
    world, said = World(1), []
    process = Process(world, "one")

    async def say(seconds: float) -> None:
        await asyncio.sleep(seconds)
        said.append((seconds, world.now))

    for seconds in (3600.0, 1.0, 60.0):
        process.start(say(seconds))
    world.run(10_000.0)
    assert said == [(1.0, 1.0), (60.0, 60.0), (3600.0, 3600.0)]


def test_callbacks_of_one_process_run_first_in_first_out() -> None:
    world, said = World(1), []
    processes = [Process(world, name) for name in "ab"]
    for number in range(20):
        for process in processes:
            process.loop.call_soon(said.append, (process.name, number))
    world.run(1.0)
    assert [number for name, number in said if name == "a"] == list(range(20))
    assert [name for name, _ in said] != ["a", "b"] * 20, "the seed chooses the process"


@cases("seed", range(3))
def test_a_seed_has_one_order(seed: int) -> None:
    def order() -> list[str]:
        world, said = World(seed), []
        for name in "abc":
            process = Process(world, name)
            for _ in range(10):
                process.loop.call_soon(said.append, name)
        world.run(1.0)
        return said

    assert order() == order()


def test_a_held_process_makes_up_for_what_was_due() -> None:
    world, said = World(1), []
    process = Process(world, "one")
    for seconds in (1.0, 2.0, 30.0):
        process.loop.call_later(seconds, lambda seconds=seconds: said.append((seconds, world.now)))
    world.at(0.5, lambda: process.hold(10.0))
    world.run(60.0)
    assert said == [(1.0, 10.5), (2.0, 10.5), (30.0, 30.0)]


@pytest.mark.slow
def test_a_process_that_runs_without_end_is_found() -> None:
    world = World(1)
    process = Process(world, "busy")

    def again() -> None:
        process.loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="busy runs and runs"):
        world.run(1.0)


SEAMS = """
from tests.simulation import seams
seams.install()
import os, queue, secrets, threading, time
from tests.simulation.world import EPOCH, Process, World
from toolwire.http.legacy.sessions import Sessions

world = World(7)
process = Process(world, "one")
process.offset = 60.0
world.run(5.0)
with world.inside(process):
    assert time.time() == EPOCH + 65.0, time.time()
    assert Sessions.__init__.__kwdefaults__["clock"]() == EPOCH + 65.0
    print(os.urandom(4).hex(), secrets.token_hex(4), Sessions.__init__.__kwdefaults__["random"](4).hex())
    handed, killed = queue.SimpleQueue(), Process(world, "two")
    for blocks in (handed.get, lambda: time.sleep(1)):
        try:
            blocks()
        except RuntimeError as error:
            print(error)

    def work():
        item = handed.get()
        time.sleep(30)
        print(item, "after", world.now, time.time() - EPOCH)

    threading.Thread(target=work).start()
    process.loop.call_later(10, handed.put, "handed over")
with world.inside(killed):
    threading.Thread(target=lambda: (time.sleep(30), print("never"))).start()
world.at(20.0, killed.kill)
world.run(100.0)
assert abs(time.time() - EPOCH) > 1000, "outside of the simulation the time is the real one"
"""


LATE = """
import toolwire
from tests.simulation import seams
try:
    seams.install()
except RuntimeError as error:
    print(error)
"""


def test_time_randomness_and_threads_of_a_process_are_those_of_the_simulation() -> None:
    runs = [_python("-c", SEAMS) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].splitlines()[1:] == [
        "a simulated process blocks its event loop",
        "a simulated process blocks its event loop",
        "handed over after 45.0 105.0",
    ]


def test_the_seams_come_before_the_library() -> None:
    assert "before the first import" in _python("-c", LATE)


def test_the_library_has_no_other_clock() -> None:
    """A function of `time` that is not replaced, or the time of day of `datetime`, would be that of the machine."""
    used = set()
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        used |= {f"time.{name}" for name in re.findall(r"\btime\.([a-z_]+)\b(?! import)", text) if hasattr(time, name)}
        used |= {
            f"time.{name.strip()}" for names in re.findall(r"from time import (.+)", text) for name in names.split(",")
        }
        if "inspector" not in file.parts:  # No part of a replica.
            used |= set(re.findall(r"datetime\.(?:now|utcnow|today)|uuid\.uuid1|random\.SystemRandom", text))
    assert used <= {f"time.{name}" for name in seams.CLOCKS}


def _python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
