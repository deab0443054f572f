"""One process for all clients of servers that keep nothing (`isolation="shared"`), with software of others only."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.interop import peers
from tests.interop.test_foreign_http_servers import package
from tests.ports import free_port

#: How many sessions are open at once.
SESSIONS = 100
#: What the gateway itself may use with these sessions.
MAX_GATEWAY_MIB = 150

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="processes and their memory are read from /proc"),
]


def processes_below(parent: int) -> dict[int, int]:
    """Return the memory in MiB of each process that a process has started."""
    found: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields["PPid"]) == parent and "VmRSS" in fields:
            found[int(status.parent.name)] = int(fields["VmRSS"].split()[0]) // 1024
    return found


def memory_of(process: int) -> int:
    line = next(each for each in Path(f"/proc/{process}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


async def test_hundred_sessions_share_two_processes(tmp_path: Path) -> None:
    node, client = str(peers.needed_node()), peers.needed("mcp-1.30.0")
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"file {number}")
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    shared = {"command": node, "isolation": "shared"}
    file = tmp_path / "gateway.json"
    content = {
        "mcpServers": {
            "files": {**shared, "args": [package("server-filesystem"), str(tmp_path)]},
            "every": {**shared, "args": [package("server-everything"), "stdio"]},
        },
        "http": {"port": port},
    }
    file.write_text(json.dumps(content))
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolwire", "gateway", str(file), stderr=asyncio.subprocess.DEVNULL, env=environment
    )
    driving: asyncio.subprocess.Process | None = None
    try:
        while len(processes_below(serving.pid)) < 2:
            assert serving.returncode is None
            await asyncio.sleep(0.1)
        driving = await asyncio.create_subprocess_exec(
            str(client.python),
            str(peers.SCRIPTS / "drive_sessions_mcp1.py"),
            url,
            str(SESSIONS),
            str(tmp_path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        assert driving.stdin is not None and driving.stdout is not None
        assert await driving.stdout.readline() == b"open\n"
        pool, gateway = processes_below(serving.pid), memory_of(serving.pid)
        print(f"{SESSIONS} sessions: gateway {gateway} MiB, pool {sorted(pool.values())} MiB")
        assert len(pool) == 2
        assert gateway <= MAX_GATEWAY_MIB
        driving.stdin.write(b"\n")
        reported = json.loads(await driving.stdout.read())
    finally:
        for process in (driving, serving):
            if process is not None and process.returncode is None:
                process.terminate()
                await process.wait()
    for number, (echo, progress, text, foreign) in enumerate(reported):
        steps = 2 + number % 3
        assert echo == f"Echo: session {number}"
        assert progress == list(range(1, steps + 1))
        assert text == f"file {number % 5}"
        assert foreign == []
