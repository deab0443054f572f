"""The server under test, written with `fastmcp`. The argument is the number of tools besides the two measured."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.tools import Tool


def build(more: int = 0) -> FastMCP:
    server: FastMCP = FastMCP("bench")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def add_sync(a: int, b: int) -> int:
        return a + b

    for number in range(more):

        async def other(a: int, b: int) -> int:
            return a + b

        server.add_tool(Tool.from_function(other, name=f"other_{number}"))
    return server


if __name__ == "__main__":
    build(int(sys.argv[1]) if len(sys.argv) > 1 else 0).run("stdio", show_banner=False, log_level="ERROR")
