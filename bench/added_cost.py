"""What a feature adds to a call: microseconds beyond a plain `Client(server)` call in one process, printed as JSON.

Plain and featured servers are called in turns, so that a slow moment of the machine hits all of them. It is the time
of the processor, in all threads: what an audit log does in its own thread counts, what other programs do does not.

Usage: added_cost.py SECONDS
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from toolwire import Client, Policy, Server, Tool
from toolwire.audit import AuditLog

SLICE = 100
WARM_UP = 3


async def add(a: int, b: int) -> int:
    return a + b


async def long(a: int) -> int:
    return a


def servers(folder: Path) -> dict[str, Server]:
    def make(**options: Any) -> Server:
        return Server("bench", **{"tools": add, **options})

    return {
        "plain": make(),
        "a rate limit": make(policy=Policy(rate="10000/second")),
        "an audit line": make(audit=AuditLog(folder / "audit.jsonl", key="a key for the benchmark")),
        "metrics": make(metrics=True),
        "tasks being offered": make(tools=[add, Tool(long, task="optional")]),
    }


async def main(seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            clients = {
                name: await stack.enter_async_context(Client(server)) for name, server in servers(Path(folder)).items()
            }
            times: dict[str, list[float]] = {name: [] for name in clients}
            end = time.perf_counter() + seconds * len(clients)
            while time.perf_counter() < end or len(times["plain"]) <= WARM_UP:
                for name, client in clients.items():
                    times[name].append(await one_slice(client))
    medians = {name: statistics.median(each[WARM_UP:]) for name, each in times.items()}
    return {name: median - medians["plain"] for name, median in medians.items() if name != "plain"}


async def one_slice(client: Client) -> float:
    started = time.process_time()
    for n in range(SLICE):
        await client.call_tool("add", {"a": n, "b": 1})
    return (time.process_time() - started) / SLICE * 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(float(sys.argv[1])))))
