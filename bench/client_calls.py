"""How many calls a second one client makes to a server over HTTP, and how much memory it takes.

Usage: client_calls.py toolwire|mcp|fastmcp URL SECONDS

Prints a JSON object: calls a second one at a time and 16 at a time, and the resident memory in MiB.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from spawned import resident_kib

AT_ONCE = 16
ARGUMENTS = {"a": 1, "b": 2}

Call = Callable[[], Awaitable[Any]]


async def measure(call: Call, seconds: float) -> dict[str, float]:
    await rate(call, AT_ONCE, seconds / 4)
    return {
        "one": await rate(call, 1, seconds),
        "many": await rate(call, AT_ONCE, seconds),
        "resident": resident_kib() / 1024,
    }


async def rate(call: Call, at_once: int, seconds: float) -> float:
    started = time.perf_counter()
    until = started + seconds

    async def work() -> int:
        calls = 0
        while time.perf_counter() < until:
            await call()
            calls += 1
        return calls

    done = await asyncio.gather(*[work() for _ in range(at_once)])
    return sum(done) / (time.perf_counter() - started)


async def toolwire(url: str, seconds: float) -> dict[str, float]:
    from toolwire import Client

    async with Client(url) as client:
        return await measure(lambda: client.call_tool("add", ARGUMENTS), seconds)


async def mcp(url: str, seconds: float) -> dict[str, float]:
    from mcp import Client

    async with Client(url) as client:
        return await measure(lambda: client.call_tool("add", ARGUMENTS), seconds)


async def fastmcp(url: str, seconds: float) -> dict[str, float]:
    from fastmcp import Client

    async with Client(url) as client:
        return await measure(lambda: client.call_tool("add", ARGUMENTS), seconds)


def main() -> None:
    contender, url, seconds = sys.argv[1:]
    run = {"toolwire": toolwire, "mcp": mcp, "fastmcp": fastmcp}[contender]
    print(json.dumps(asyncio.run(run(url, float(seconds)))))


if __name__ == "__main__":
    main()
