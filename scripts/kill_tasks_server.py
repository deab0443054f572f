"""The server that `kill_tasks.py` kills: tasks in stores that outlive it, and a note of all work that was begun."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from toolwire import Limits, Server

FOLDER = Path(os.environ["KILL_TASKS_FOLDER"])
NOTES = FOLDER / "notes"
GATE = FOLDER / "gate"

server = Server(
    "killed",
    stores=os.environ.get("KILL_TASKS_STORES") or FOLDER / "state.db",
    # A short lease: the next server looks for the tasks of a dead one every third of it.
    limits=Limits(task_window=0.0, tasks=10_000, task_poll=0.05, task_lease=2.0),
)


def note(text: str) -> None:
    """Written by one system call, so that what several processes note stays in whole lines."""
    file = os.open(NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@server.tool(task="optional")
async def quick(number: int) -> str:
    """Done at once: its result waits to be fetched."""
    note(f"quick {number}")
    return f"quick {number}"


@server.tool(task="optional")
async def slow(number: int) -> str:
    """Runs until its process ends."""
    note(f"slow {number}")
    await asyncio.Event().wait()
    return "never"


@server.tool(task="optional", annotations={"idempotentHint": True})
async def again(number: int) -> str:
    """Runs until the gate is open, in as many processes as it takes."""
    note(f"again {number}")
    while not GATE.exists():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return f"again {number}"


if __name__ == "__main__":
    server.run("http", port=0, workers=int(sys.argv[1]), on_ready=lambda url: print(url, flush=True))
