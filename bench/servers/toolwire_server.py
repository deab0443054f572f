"""The server under test, written with Toolwire. The argument is the number of tools besides the two measured."""

from __future__ import annotations

import sys

from toolwire import Limits, Server


def build(more: int = 0, *, structured: bool | None = None) -> Server:
    # All the load comes from one address, which gets a quarter of what there is.
    server = Server("bench", limits=Limits(sessions=40_000, listeners=40_000, exchanges=40_000))

    @server.tool(structured=structured)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def add_sync(a: int, b: int) -> int:
        return a + b

    for number in range(more):

        @server.tool(name=f"other_{number}")
        async def other(a: int, b: int) -> int:
            return a + b

    return server


if __name__ == "__main__":
    build(int(sys.argv[1]) if len(sys.argv) > 1 else 0).run()
