"""How much longer a call takes through a gateway, for Toolwire's client, and how many requests of it the server gets.

Usage: hop_calls.py latency|requests SECONDS REVISION DIRECT_URL THROUGH_URL

Prints a number. `latency`: the time of a call through the gateway against that of a direct one, each the median of
calls one at a time; direct calls and calls through the gateway take turns. `requests`: the HTTP requests to the server
for each call through the gateway, less the one that the call itself is; the server is counting_server.py.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from toolwire import Client

ARGUMENTS = {"a": 1, "b": 1}
AT_A_TIME = 20
COUNTED = 50


async def timed(client: Client, count: int) -> list[float]:
    """Return the seconds that each of some calls took."""
    found = []
    for _ in range(count):
        started = time.perf_counter()
        await client.call_tool("add", ARGUMENTS)
        found.append(time.perf_counter() - started)
    return found


async def latency(direct: Client, through: Client, seconds: float) -> float:
    for client in (direct, through):
        # A slow gateway is warm after fewer calls.
        started = time.perf_counter()
        while time.perf_counter() - started < seconds / 4:
            await timed(client, AT_A_TIME)
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for client, found in zip((direct, through), times, strict=True):
            found.extend(await timed(client, AT_A_TIME))
    near, far = map(statistics.median, times)
    return far / near


async def requests(direct: Client, through: Client) -> float:
    await timed(through, COUNTED)
    await direct.call_tool("requests", returns=int)  # The first call reads the list of tools.
    before = await direct.call_tool("requests", returns=int)
    await timed(through, COUNTED)
    after = await direct.call_tool("requests", returns=int)
    return (after - before - 1) / COUNTED - 1


async def main() -> None:
    what, seconds, revision, direct_url, through_url = sys.argv[1:]
    async with Client(direct_url) as direct, Client(through_url, revision=revision) as through:
        if what == "latency":
            print(await latency(direct, through, float(seconds)))
        else:
            print(await requests(direct, through))


if __name__ == "__main__":
    asyncio.run(main())
