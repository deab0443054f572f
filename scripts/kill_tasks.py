"""Kills a server while its tasks run, starts it again, and accounts for every task that it had accepted.

Each run makes half of its tasks short, so that their results wait, and lets the other half run: one part of it can be
run again, one cannot. At a random moment everything is killed with SIGKILL. After the restart each accepted task must
be known, have the status that it can have, and its own result; and no work that must not be repeated was begun twice.

The tasks are in a SQLite file of each run, or in the stores at an address, under a prefix of each run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from toolwire import Client
from toolwire.client import TaskState
from toolwire.protocol.errors import ToolwireError

SERVER = Path(__file__).resolve().parent / "kill_tasks_server.py"
KINDS = ("quick", "quick", "slow", "again")
AT_ONCE = 20
SHARED = {"TOOLWIRE_SECRET": "the same before and after"}
GONE = "The server lost contact with the process that ran this task; the task may have run"

Stores = str | None
"""The address of the stores; None for a file in the folder."""

Accepted = dict[str, tuple[str, int]]
"""The kind and the number of the task of each id."""


@asynccontextmanager
async def server(folder: Path, workers: int, stores: Stores) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """A server in a process group of its own, killed at the end at the latest."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SERVER), str(workers)),
        env={**os.environ, "KILL_TASKS_FOLDER": str(folder), "KILL_TASKS_STORES": stores or "", **SHARED},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise SystemExit("kills: the server did not start")
        yield address, process
    finally:
        kill(process)
        await process.communicate()  # Reads to the end, so that the pipe is closed.


def kill(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


async def create(address: str, count: int, accepted: Accepted) -> None:
    """Create tasks until all are there, or the server is not."""
    numbers = iter(range(count))

    async def one_after_the_other(client: Client) -> None:
        for number in numbers:
            kind = KINDS[number % len(KINDS)]
            handle = await client.call_tool_as_task(kind, {"number": number})
            accepted[handle.id] = (kind, number)

    async with Client(address, revision="2026-07-28", timeout=10.0) as client:
        await asyncio.gather(*(one_after_the_other(client) for _ in range(AT_ONCE)))


async def killed_while_creating(
    folder: Path, workers: int, stores: Stores, count: int, chance: random.Random
) -> Accepted:
    """The tasks that were accepted before the kill."""
    accepted: Accepted = {}
    async with server(folder, workers, stores) as (address, process):
        creating = asyncio.create_task(create(address, count, accepted))
        # Anywhere from the first tasks on to a moment after the last.
        wanted = chance.randrange(1, count + count // 4)
        while len(accepted) < min(wanted, count) and not creating.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(chance.random() * 0.05)
        kill(process)
        await asyncio.wait({creating})
        error = creating.exception()
        if error is not None and not isinstance(error, ToolwireError):
            raise error
    return accepted


async def account(folder: Path, workers: int, stores: Stores, accepted: Accepted) -> Counter[str]:
    """How the accepted tasks ended; whatever cannot be is raised."""
    ends: Counter[str] = Counter()
    async with server(folder, workers, stores) as (address, _), Client(address, revision="2026-07-28") as client:
        (folder / "gate").touch()
        waiting = iter(list(accepted.items()))

        async def look() -> None:
            for identifier, (kind, number) in waiting:
                async for state in client.task(identifier).updates():
                    last = state
                check(kind, number, last)
                ends[f"{kind} {last.status}"] += 1

        await asyncio.gather(*(look() for _ in range(AT_ONCE)))
    check_notes((folder / "notes").read_text().splitlines())
    return ends


def check(kind: str, number: int, state: TaskState) -> None:
    if state.status == "completed":
        assert kind != "slow", "a task that never ends has ended"
        result = bytes(state.result or b"")
        assert f'"text":"{kind} {number}"'.encode() in result, f"{kind} {number} has another's result: {result!r}"
    else:
        assert (state.status, state.message) == ("failed", GONE), f"{kind} {number} is {state}"
        assert kind != "again", f"again {number} was not run again"


def check_notes(notes: list[str]) -> None:
    """Only what is idempotent was begun more than once."""
    twice = [text for text, count in Counter(notes).items() if count > 1 and not text.startswith("again")]
    assert not twice, f"begun twice: {twice[:5]}"


async def once(workers: int, count: int, seed: int, stores: Stores = None) -> Counter[str]:
    """One run: how the tasks ended that were accepted."""
    with tempfile.TemporaryDirectory(prefix="toolwire-kills-") as name:
        own = stores and f"{stores}{'&' if '?' in stores else '?'}prefix={Path(name).name}"
        accepted = await killed_while_creating(Path(name), workers, own, count, random.Random(seed))
        ends = await account(Path(name), workers, own, accepted)
        assert sum(ends.values()) == len(accepted)
        return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=400, help="half of them are still running when it happens")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--stores", metavar="URL", help="a Redis to keep the tasks in, instead of a SQLite file")
    arguments = parser.parse_args()
    for run in range(arguments.runs):
        for workers in (1, 2):
            seed = arguments.seed + run
            ends = asyncio.run(once(workers, arguments.tasks, seed, arguments.stores))
            told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
            print(f"kills: run {run + 1}, {workers} worker(s), seed {seed}: {told}", flush=True)
    print(f"kills: every accepted task was accounted for in {2 * arguments.runs} runs")


if __name__ == "__main__":
    main()
