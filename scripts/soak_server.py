"""The server that `scripts/soak.py` puts under load; it also tells how it is doing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolwire import Context, Limits, Server

THREADS = 4

# Sessions that nobody uses end soon, so that a short run sees them go too. All the traffic comes from one address.
server = Server("soak", limits=Limits(threads=THREADS, sessions=4000, session_idle=20.0, share=1.0))

counts = {"begun": 0, "finished": 0, "cancelled": 0}


@contextmanager
def counted() -> Iterator[None]:
    counts["begun"] += 1
    try:
        yield
    except asyncio.CancelledError:
        counts["cancelled"] += 1
        raise
    counts["finished"] += 1


@server.tool
async def add(a: int, b: int) -> int:
    with counted():
        return a + b


@server.tool
def sleep(seconds: float) -> str:
    """Keeps a thread busy; counted nowhere, since it runs beside the loop."""
    time.sleep(seconds)
    return "slept"


@server.tool
async def report(ctx: Context) -> str:
    """Is answered by a stream."""
    with counted():
        for step in range(5):
            await ctx.progress(step, total=5)
            await ctx.info(f"step {step}")
            await asyncio.sleep(0.002)
        return "reported"


@server.tool
async def hold(ctx: Context) -> str:
    """Says that it is there, and waits until it is cancelled."""
    with counted():
        await ctx.progress(0)
        await asyncio.Event().wait()
        return "never"


@server.tool
async def ask(ctx: Context) -> str:
    with counted():
        answer = await ctx.elicit("Go on?", bool)
        return answer.action


@server.tool
async def touch(uri: str) -> str:
    with counted():
        server.notify_updated(uri)
        return "touched"


@server.resource("note://today")
def today() -> str:
    return "sunny"


@server.tool
async def diagnostics() -> dict[str, int]:
    return {
        "kilobytes": _resident_kilobytes(),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": _descriptors(),
        **counts,
    }


def _resident_kilobytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def _descriptors() -> int:
    # One of them is open to read the folder.
    return len(list(Path("/proc/self/fd").iterdir())) - 1
