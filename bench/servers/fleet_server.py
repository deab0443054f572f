"""A server whose state is in a Redis or in memory: a tool for calls, and one for tasks that end at once.

Usage: fleet_server.py [redis://...]

The address is printed when connections are accepted.
"""

from __future__ import annotations

import sys

from toolwire import Limits, Server


def build(stores: str | None) -> Server:
    # All tasks have one owner, and all load comes from one address. Finished tasks are forgotten soon.
    limits = Limits(share=1.0, tasks=20_000, tasks_running=20_000, task_window=0.0, task_ttl=2.0, task_poll=0.01)
    server = Server("fleet", stores=stores, limits=limits, secret="the same everywhere")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(task="required")
    async def job(number: int) -> int:
        return number

    return server


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else None
    build(address).run("http", port=0, on_ready=lambda url: print(url, flush=True), log_level="error")
