"""A gateway in front of 1,000 servers with 10 tools each: the time to list all tools, and the memory of a server.

All servers are one, which is reached by HTTP at the address that is given. The list is asked for in this process, from
the bytes of HTTP requests to those of their answers, without a socket, page by page. It was made before. The memory is
how much this process grew for each server. Printed as JSON.

Usage: many_backs.py URL
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from asgi_requests import answered
from driver import PATIENCE
from spawned import resident_kib
from toolwire.gateway import Gateway
from web import raise_descriptor_limit

BACKS, TOOLS = 1000, 10
TURNS = 5


async def cursors(app: Any) -> list[str | None]:
    """Read the whole list; return the cursors of its pages."""
    found: list[str | None] = [None]
    tools = 0
    while True:
        result = json.loads(await answered(app, "tools/list", found[-1]))["result"]
        tools += len(result["tools"])
        if "nextCursor" not in result:
            break
        found.append(result["nextCursor"])
    if tools != BACKS * TOOLS:
        raise SystemExit(f"{tools} tools are listed, not {BACKS * TOOLS}")
    return found


async def measured(url: str) -> dict[str, float]:
    raise_descriptor_limit()
    warm = Gateway("warm")
    warm.add("back", url)
    app: Any = warm.http_app()
    await answered(app, "tools/list")
    await app.stop()
    before = resident_kib()
    gateway = Gateway("gateway")
    for number in range(BACKS):
        gateway.add(f"b{number}", url)
    app = gateway.http_app()
    await answered(app, "tools/list")
    async with asyncio.timeout(5 * PATIENCE):
        while any(back.state != "ready" for back in gateway.backs.values()):
            await asyncio.sleep(0.1)
    memory = (resident_kib() - before) / BACKS
    pages = await cursors(app)
    times = []
    for _ in range(TURNS):
        started = time.perf_counter()
        for cursor in pages:
            await answered(app, "tools/list", cursor)
        times.append(time.perf_counter() - started)
    await app.stop()
    return {"list": statistics.median(times) * 1000, "memory": memory}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1]))))
