"""The cost of tasks: 10,000 of them created, polled and finished in one process, printed as JSON.

Times are microseconds of the processor for one task; the memory is what all of them, running at once, add.

Usage: tasks.py COUNT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from spawned import resident_kib
from toolwire import Client, Limits, Server
from toolwire.client import TaskHandle

WARM_UP = 100


async def main(count: int) -> dict[str, float]:
    most = count + WARM_UP
    server = Server("bench", limits=Limits(task_window=0.0, tasks=2 * most, tasks_running=2 * most))
    go = asyncio.Event()

    @server.tool(task="required")
    async def held(number: int) -> int:
        await go.wait()
        return number

    async with Client(server, revision="2026-07-28") as client:

        async def create(number: int) -> None:
            handles.append(await client.call_tool_as_task("held", {"number": number}))

        async def poll(number: int) -> None:
            await handles[number].status()

        async def finish(number: int) -> None:
            assert (await handles[number].status()).over

        handles: list[TaskHandle] = []
        await timed(WARM_UP, create)
        before = resident_kib() / 1024
        created = await timed(count, create)
        memory = resident_kib() / 1024 - before
        polled = await timed(count, poll)
        started = time.process_time()
        go.set()
        last = client.task(handles[-1].id)
        while not (await last.status()).over:
            await asyncio.sleep(0)
        ended = (time.process_time() - started) / count * 1e6
        fetched = await timed(count, finish)
    return {"created": created, "polled": polled, "finished": ended + fetched, "memory": memory}


async def timed(count: int, work: Callable[[int], Awaitable[None]]) -> float:
    started = time.process_time()
    for number in range(count):
        await work(number)
    return (time.process_time() - started) / count * 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1])))))
