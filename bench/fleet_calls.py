"""How many tasks, or legacy calls, a second a server takes from 16 callers.

Usage: fleet_calls.py tasks|calls URL SECONDS

A task counts when its result was polled.
"""

from __future__ import annotations

import asyncio
import sys

from client_calls import ARGUMENTS, AT_ONCE, rate
from driver import LEGACY, MODERN
from toolwire import Client


async def tasks(url: str, seconds: float) -> float:
    async with Client(url, revision=MODERN) as client:

        async def one() -> None:
            handle = await client.call_tool_as_task("job", {"number": 1})
            while not (await handle.status()).over:
                pass

        await rate(one, AT_ONCE, seconds / 4)
        return await rate(one, AT_ONCE, seconds)


async def calls(url: str, seconds: float) -> float:
    async with Client(url, revision=LEGACY) as client:

        async def one() -> None:
            await client.call_tool("add", ARGUMENTS)

        await rate(one, AT_ONCE, seconds / 4)
        return await rate(one, AT_ONCE, seconds)


if __name__ == "__main__":
    what, url, seconds = sys.argv[1:]
    print(asyncio.run({"tasks": tasks, "calls": calls}[what](url, float(seconds))))
