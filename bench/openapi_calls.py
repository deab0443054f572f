"""What the tool of an API adds to the bare HTTP request: microseconds of the processor for each call, as JSON.

Usage: openapi_calls.py toolwire|fastmcp URL SECONDS

The API at the URL is servers/stub_api.py. Half of the calls are reads with arguments in path, query and header, half
are writes with a JSON body. A client in this process calls the tools. The bare requests are the same, sent by the HTTP
client of the contender, and their answers are decoded. Both take turns.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "servers"))

from stub_api import PET, description

SLICE = 25
MOST = 1 << 20
WARM_UP = 4
READ = {"petId": "a/b c", "fields": "name,tag", "x-tenant": "blue"}
READ_PATH = "/pets/a%2Fb%20c?fields=name%2Ctag"
WRITE_PATH = "/pets"
HEADERS = {"accept": "application/json"}
READ_HEADERS = {**HEADERS, "x-tenant": "blue"}
WRITE_HEADERS = {**HEADERS, "content-type": "application/json"}

# One request or call of each kind: a read and a write.
Kinds = list[Callable[[], Awaitable[Any]]]


@asynccontextmanager
async def toolwire(url: str) -> AsyncIterator[tuple[Kinds, Kinds]]:
    from toolwire import Client, Server
    from toolwire.http1.pool import HttpPool
    from toolwire.openapi import ALL, openapi

    server = Server("bench")
    server.include(openapi(description(url), keep=ALL))
    pool = HttpPool()

    async def read() -> None:
        answer = await pool.send("GET", url + READ_PATH, READ_HEADERS, None)
        check(json.loads(await answer.read(MOST)))

    async def write() -> None:
        answer = await pool.send("POST", url + WRITE_PATH, WRITE_HEADERS, json.dumps(PET).encode())
        check(json.loads(await answer.read(MOST)))

    async with Client(server) as client:

        async def show() -> None:
            check((await client.call_tool("showPet", READ)).structured)

        async def create() -> None:
            check((await client.call_tool("createPet", PET)).structured)

        yield [read, write], [show, create]
    await pool.close()


@asynccontextmanager
async def fastmcp(url: str) -> AsyncIterator[tuple[Kinds, Kinds]]:
    from fastmcp import Client, FastMCP
    from httpx2 import AsyncClient

    async with AsyncClient(base_url=url) as pool:
        server = FastMCP.from_openapi(description(url), client=pool)

        async def read() -> None:
            check((await pool.get(READ_PATH, headers=READ_HEADERS)).json())

        async def write() -> None:
            check((await pool.post(WRITE_PATH, headers=HEADERS, json=PET)).json())

        async with Client(server) as client:

            async def show() -> None:
                check((await client.call_tool("showPet", READ)).structured_content)

            async def create() -> None:
                check((await client.call_tool("createPet", PET)).structured_content)

            yield [read, write], [show, create]


def check(answer: Any) -> None:
    if answer != PET:
        raise SystemExit(f"wrong answer: {str(answer)[:200]}")


async def one_slice(kinds: Kinds) -> float:
    started = time.process_time()
    for once in kinds:
        for _ in range(SLICE):
            await once()
    return (time.process_time() - started) / (len(kinds) * SLICE) * 1e6


async def main(contender: str, url: str, seconds: float) -> dict[str, float]:
    async with {"toolwire": toolwire, "fastmcp": fastmcp}[contender](url) as (bare, called):
        times: tuple[list[float], list[float]] = ([], [])
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(times[0]) <= WARM_UP:
            for kinds, found in zip((bare, called), times, strict=True):
                found.append(await one_slice(kinds))
    request, call = (statistics.median(each[WARM_UP:]) for each in times)
    return {"request": request, "added": call - request}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
