"""Serves one walk in a process that counts opcodes and calls of Toolwire's frames.

    python -m tests.walk.traced_server READINGS stdio
    python -m tests.walk.traced_server READINGS http PORT
    python -m tests.walk.traced_server READINGS gateway PORT UPSTREAM_URL
    python -m tests.walk.traced_server READINGS memory CALLS

Each SIGUSR1 adds the counts so far to the file READINGS as one line of JSON. `memory` calls itself, adds a line after
each of its calls, and ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import toolwire
from toolwire import Client, Context, Gateway, Policy, Server

PACKAGE = str(Path(toolwire.__file__).parent) + "/"


class Tracer:
    """Counts opcodes, and calls by file and function, in frames of Toolwire."""

    def __init__(self, readings: Path) -> None:
        self._readings = readings
        self._calls: dict[str, int] = {}
        self._opcodes: dict[str, int] = {}

    def start(self) -> None:
        threading.settrace(self._trace_call)
        sys.settrace(self._trace_call)

    def write_reading(self, *_: Any) -> None:
        """Append the counts so far to the file of readings."""
        line = json.dumps({"opcodes": self._opcodes, "calls": self._calls})
        with self._readings.open("a") as file:
            file.write(line + "\n")

    def _trace_call(self, frame: FrameType, event: str, _: Any) -> Any:
        filename = frame.f_code.co_filename
        if not filename.startswith(PACKAGE):
            return None
        name = f"{filename.removeprefix(PACKAGE)}:{getattr(frame.f_code, 'co_qualname', frame.f_code.co_name)}"
        self._calls[name] = self._calls.get(name, 0) + 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        opcodes = self._opcodes
        opcodes.setdefault(name, 0)

        def count_opcode(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                opcodes[name] += 1
            return count_opcode

        return count_opcode


def make_server(policy: Policy | None = None) -> Server:
    """Return the server of every walk: one tool that adds, and one that asks."""
    server = Server("walk", policy=policy)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> bool:
        answer = await ctx.elicit("Go on?", bool)
        return answer.accepted and bool(answer.data)

    return server


async def call_in_memory(tracer: Tracer, calls: int) -> None:
    """Call the tool through a client in this process, within a policy: the only walk that passes one."""
    async with Client(make_server(Policy(concurrency=8))) as client:
        for _ in range(calls):
            await client.call_tool("add", {"a": 1, "b": 2})
            tracer.write_reading()


def main(readings: str, way: str, *rest: str) -> None:
    tracer = Tracer(Path(readings))
    tracer.start()
    signal.signal(signal.SIGUSR1, tracer.write_reading)
    if way == "stdio":
        make_server().run()
    elif way == "http":
        make_server().run("http", port=int(rest[0]))
    elif way == "gateway":
        gateway = Gateway("walk")
        gateway.add("up", rest[1], prefix="")
        gateway.run("http", port=int(rest[0]))
    else:
        asyncio.run(call_in_memory(tracer, int(rest[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
