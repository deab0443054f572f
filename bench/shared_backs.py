"""100 legacy sessions at a gateway in front of two commands that all clients share: the memory of it and of its pool.

Every session declares elicitation and roots, as desktop clients do, and calls both servers. The memory of the gateway
and of the two processes is measured while all sessions are open. Printed as one number, in MiB.

Usage: shared_backs.py
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from driver import LEGACY, PATIENCE
from spawned import children, resident_kib
from toolwire import Client
from web import HttpServer, free_port, server_file

SESSIONS = 100
BACKS = ("one", "two")


async def decline(message: str, params: Any) -> dict[str, Any]:
    return {"action": "decline"}


async def use(client: Client, number: int) -> None:
    for back in BACKS:
        found = await client.call_tool(f"{back}_add", {"a": number, "b": 1})
        if found.text != str(number + 1):
            raise SystemExit(f"session {number} got {found.text!r}")


async def measured(url: str, gateway: int) -> float:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(url, revision=LEGACY, elicit=decline, roots=["file:///work"]))
            for _ in range(SESSIONS)
        ]
        await asyncio.gather(*(use(client, number) for number, client in enumerate(clients)))
        pool = children(gateway)
        if len(pool) != len(BACKS):
            raise SystemExit(f"{SESSIONS} sessions have {len(pool)} processes, not {len(BACKS)}")
        return sum(map(resident_kib, [gateway, *pool])) / 1024


def main() -> None:
    shared = {"command": sys.executable, "args": [server_file("toolwire_server.py")], "isolation": "shared"}
    content = {
        "mcpServers": {back: {**shared, "revision": LEGACY} for back in BACKS},
        "gateway": {"limits": {"share": 1.0}},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gateway.json"
        file.write_text(json.dumps(content))
        port = free_port()
        command = [sys.executable, "-m", "toolwire", "gateway", str(file), "--port", str(port)]
        server = HttpServer("", command=command, port=port)
        try:
            print(asyncio.run(asyncio.wait_for(measured(server.url, server.process.pid), PATIENCE)))
        finally:
            server.close()


if __name__ == "__main__":
    main()
