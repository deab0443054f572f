"""The time from the start of a gateway until it has the tools of 20 of its 30 servers; the other 10 are broken.

15 of the 20 are one server, which is reached by HTTP at the address that is given; five are commands. Of the broken
ones two refuse connections, two accept them and say nothing, two answer with what is no HTTP, two are commands that
say nothing, and two are commands that end at once. Printed as one number: the seconds from the start of the process
until a client that connects when `/readyz` answers 200 has all tools.

Usage: broken_backs.py URL
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from driver import PATIENCE
from toolwire import Client
from web import free_port, server_file

OVER_HTTP, OVER_STDIO, OF_EACH_FAULT = 15, 5, 2
TOOLS = 2


def servers(url: str, silent: int, garbled: int) -> dict[str, Any]:
    """Return the servers of the file; `silent` and `garbled` are the ports of two that are broken."""

    def command(*words: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": list(words)}

    def local(port: int) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{port}/mcp"}

    faults = {
        "refusing": local(free_port()),
        "silent": local(silent),
        "garbled": local(garbled),
        "mute": command("-c", "import time; time.sleep(600)"),
        "ending": command("-c", "raise SystemExit(3)"),
    }
    return {
        **{f"web{number}": {"url": url} for number in range(OVER_HTTP)},
        **{f"command{number}": command(server_file("toolwire_server.py")) for number in range(OVER_STDIO)},
        **{f"{name}{number}": fault for name, fault in faults.items() for number in range(OF_EACH_FAULT)},
    }


async def garble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"this is no HTTP\r\n\r\n")
    writer.close()


async def is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


async def measured(url: str, folder: Path) -> float:
    silent = socket.create_server(("127.0.0.1", 0))
    garbled = await asyncio.start_server(garble, "127.0.0.1", 0)
    ports = (silent.getsockname()[1], garbled.sockets[0].getsockname()[1])
    file, port = folder / "gateway.json", free_port()
    file.write_text(json.dumps({"mcpServers": servers(url, *ports)}))
    started = time.perf_counter()
    command = [sys.executable, "-m", "toolwire", "gateway", str(file), "--port", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await is_ready(port):
                await asyncio.sleep(0.01)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                tools = await client.list_tools()
        ready = time.perf_counter() - started
    finally:
        process.terminate()
        process.wait(PATIENCE)
        garbled.close()
        silent.close()
    if len(tools) != TOOLS * (OVER_HTTP + OVER_STDIO):
        raise SystemExit(f"{len(tools)} tools are listed, not {TOOLS * (OVER_HTTP + OVER_STDIO)}")
    return ready


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(measured(sys.argv[1], Path(folder))))
