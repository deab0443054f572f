"""The cost of a toolset around 1,000 tools: definitions again, one answered call, printed as JSON.

A call and its answer are taken in turns, so that a slow moment of the machine hits both. Times are of the processor.

Usage: agents.py SECONDS
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from toolwire import Client, Server, Tool
from toolwire.agents import Toolset

TOOLS = 1_000
SLICE = 50
WARM_UP = 3
RESPONSE = {"output": [{"type": "function_call", "call_id": "1", "name": "handle_item_5", "arguments": '{"a": 1}'}]}


def server() -> Server:
    made = Server("bench")
    for number in range(TOOLS):
        made.add(Tool(_tool(), name=f"handle_item_{number}", description="Do something with the items of a list."))
    return made


def _tool() -> Callable[..., Awaitable[int]]:
    async def handle(a: int = 1, b: int = 2) -> int:
        return a + b

    return handle


async def main(seconds: float) -> dict[str, float]:
    bench = server()
    async with Client(bench) as client, Toolset(bench, defer=False) as tools:
        await client.list_tools()
        await tools.definitions("anthropic")

        contenders: dict[str, Callable[[], Awaitable[Any]]] = {
            "call": lambda: client.call_tool("handle_item_5", {"a": 1}),
            "answer": lambda: tools.answer(RESPONSE),
            "definitions": lambda: tools.definitions("anthropic"),
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        end = time.perf_counter() + seconds * 2
        while time.perf_counter() < end or len(times["call"]) <= WARM_UP:
            for name, make in contenders.items():
                times[name].append(await one_slice(make))
    medians = {name: statistics.median(each[WARM_UP:]) for name, each in times.items()}
    return {
        "definitions": medians["definitions"],
        "answer": medians["answer"] - medians["call"],
        "ratio": medians["answer"] / medians["call"],
    }


async def one_slice(make: Callable[[], Awaitable[Any]]) -> float:
    started = time.process_time()
    for _ in range(SLICE):
        await make()
    return (time.process_time() - started) / SLICE * 1e6


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(float(sys.argv[1])))))
