"""Open many sessions with the python `mcp` client 1.x, and call tools in each of them.

`python drive_sessions_mcp1.py URL COUNT` opens the sessions one after the other, so that all are open at once. Each
declares roots and elicitation, calls `echo` and a long operation with progress, and reads a file. One JSON object is
printed when a line comes on standard input, or when that ends; before, a line `open` says that all calls have ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


class Session:
    """One session, and what came over it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress: list[float] = []
        self.echo = ""
        self.file = ""
        self.foreign: list[str] = []

    async def roots(self, context: Any) -> Any:
        self.foreign.append("roots/list")
        return types.ListRootsResult(roots=[types.Root(uri="file:///somewhere")])  # type: ignore[arg-type]

    async def elicitation(self, context: Any, params: Any) -> Any:
        self.foreign.append("elicitation/create")
        return types.ElicitResult(action="decline")

    async def logged(self, params: Any) -> None:
        self.foreign.append(str(params.data))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)

    async def use(self, session: ClientSession, folder: str) -> None:
        echoed = await session.call_tool("every_echo", {"message": f"session {self.number}"})
        self.echo = echoed.content[0].text  # type: ignore[union-attr]
        steps = {"duration": 0.2, "steps": 2 + self.number % 3}
        await session.call_tool("every_trigger-long-running-operation", steps, progress_callback=self.report)
        read = await session.call_tool("files_read_text_file", {"path": f"{folder}/{self.number % 5}.txt"})
        self.file = read.content[0].text  # type: ignore[union-attr]


async def main(url: str, count: int, folder: str) -> None:
    sessions = [Session(number) for number in range(count)]
    async with AsyncExitStack() as stack:
        clients = []
        for each in sessions:
            read, write, _ = await stack.enter_async_context(streamablehttp_client(url))
            client = ClientSession(
                read,
                write,
                list_roots_callback=each.roots,
                elicitation_callback=each.elicitation,
                logging_callback=each.logged,
            )
            clients.append(await stack.enter_async_context(client))
            await clients[-1].initialize()
        await asyncio.gather(*(each.use(client, folder) for each, client in zip(sessions, clients, strict=True)))
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps([[each.echo, each.progress, each.file, each.foreign] for each in sessions]), flush=True)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
