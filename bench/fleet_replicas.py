"""Generated replicas: servers of one process, each with its own connection to a Redis, that create and finish tasks.

Usage: fleet_replicas.py COUNT TASKS_A_SECOND redis://...

The tasks a second are those of all of them together. "ready" is printed when all of them take part. From then on the
number of finished tasks is printed every second. It runs until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from driver import MODERN
from toolwire import Client

sys.path.insert(0, str(Path(__file__).resolve().parent / "servers"))

from fleet_server import build


async def main(count: int, a_second: int, stores: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(build(stores), revision=MODERN)) for _ in range(count)]
        for client in clients:
            await (await client.call_tool_as_task("job", {"number": 0})).wait()
        print("ready", flush=True)
        loop, running = asyncio.get_running_loop(), set()
        next_at = loop.time()
        for number, client in enumerate(itertools.cycle(clients), start=1):
            task = loop.create_task(one(client))
            running.add(task)
            task.add_done_callback(running.discard)
            next_at += 1 / a_second
            await asyncio.sleep(max(0.0, next_at - loop.time()))
            if number % a_second == 0:
                print(number - len(running), flush=True)


async def one(client: Client) -> None:
    await (await client.call_tool_as_task("job", {"number": 1})).wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
