"""A server with tasks, written with fastmcp; run by `test_foreign_tasks.py` in an environment of its own."""

from __future__ import annotations

import asyncio

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

mcp = FastMCP("foreign tasks")
mcp.add_extension(TasksExtension())


@mcp.tool(task=True)
async def slow(label: str) -> str:
    await asyncio.sleep(0.2)
    return f"slow {label}"


@mcp.tool(task=True)
async def broken() -> str:
    await asyncio.sleep(0.2)
    raise ValueError("it broke")


@mcp.tool(task=True)
async def forever() -> str:
    await asyncio.sleep(600)
    return "never"


if __name__ == "__main__":
    mcp.run(show_banner=False)
