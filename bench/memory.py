"""`Client(server)` in one process: microseconds a call of the async tool, printed as one number.

Usage: memory.py toolwire|mcp|fastmcp|echo SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parent / "servers"))

WARM_UP = 300
SLICE = 50

Call = Callable[[int], Awaitable[int]]


async def measure(call: Call, seconds: float) -> float:
    """The median over slices of calls, so that a pause of the machine does not count."""
    for n in range(WARM_UP):
        if await call(n) != n + 1:
            raise SystemExit("wrong answer")
    slices = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        for n in range(SLICE):
            await call(n)
        slices.append((time.perf_counter() - started) / SLICE)
    return sorted(slices)[len(slices) // 2] * 1e6


async def with_client(open_client: Any, seconds: float) -> float:
    async with open_client as client:

        async def call(n: int) -> int:
            result = await client.call_tool("add", {"a": n, "b": 1})
            return int(result.content[0].text)

        return await measure(call, seconds)


async def toolwire(seconds: float) -> float:
    from toolwire_server import build

    from toolwire import Client

    return await with_client(Client(build()), seconds)


async def mcp(seconds: float) -> float:
    from mcp import Client
    from mcp_server import build

    return await with_client(Client(build()), seconds)


async def fastmcp(seconds: float) -> float:
    from fastmcp import Client
    from fastmcp_server import build

    return await with_client(Client(build()), seconds)


class Content(msgspec.Struct):
    text: str
    type: str = "text"


class Result(msgspec.Struct):
    content: list[Content]


class Response(msgspec.Struct):
    id: int
    result: Result


async def echo(seconds: float) -> float:
    """The limit: a request encoded, handed to a task of its own, answered by an async function, decoded again."""
    from echo_server import Request, decode

    encode = msgspec.json.Encoder().encode
    decode_response = msgspec.json.Decoder(Response).decode
    loop = asyncio.get_running_loop()
    waiting: dict[int, asyncio.Future[bytes]] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def add(a: int, b: int) -> int:
        return a + b

    async def serve(request: Request) -> None:
        assert request.id is not None and request.params is not None and request.params.arguments is not None
        total = await add(request.params.arguments.a, request.params.arguments.b)
        answer = Response(request.id, Result([Content(str(total))]))
        waiting.pop(request.id).set_result(encode(answer))

    def receive(data: bytes) -> None:
        task = loop.create_task(serve(decode(data)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def call(n: int) -> int:
        future = waiting[n] = loop.create_future()
        params = {"name": "add", "arguments": {"a": n, "b": 1}}
        receive(encode({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}))
        return int(decode_response(await future).result.content[0].text)

    return await measure(call, seconds)


if __name__ == "__main__":
    contender = {"toolwire": toolwire, "mcp": mcp, "fastmcp": fastmcp, "echo": echo}[sys.argv[1]]
    print(asyncio.run(contender(float(sys.argv[2]))))
