"""Flood a client with notifications, and print the largest memory of the server or gateway in between.

    python scripts/flood.py --mib 700

Every combination of a server or a gateway, the era of the client, and a reader that is fast, slow or absent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any

LIMIT_MIB = 150
SIZE = 100_000
#: For how long a slow or absent reader keeps its connection.
SECONDS = 6.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "flood", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/logLevel": "debug",
    "progressToken": 1,
}
DIRECT = """
from toolwire import Context, Server
server = Server("flood")

@server.tool
async def flood(count: int, ctx: Context) -> str:
    for number in range(count):
        await ctx.progress(number, message="x" * 100_000)
        await ctx.info("x" * 100_000)
    return "done"
"""
GATEWAY = """
from toolwire import Gateway
gateway = Gateway("front")
gateway.add("back", {target})
"""
#: A server without flow control: it writes as fast as the pipe takes it.
CARELESS = """
import json, sys
TOOL = {"name": "flood", "inputSchema": {"type": "object"}}
TEXT = "x" * 100_000
def say(**members):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\\n")
for line in sys.stdin:
    request = json.loads(line)
    method, cached = request["method"], {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    if "id" not in request:
        continue
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "logging": {}}, **cached}
    elif method == "tools/list":
        result = {"tools": [TOOL], **cached}
    elif method == "tools/call":
        token = request["params"]["_meta"].get("progressToken")
        for number in range(request["params"]["arguments"]["count"]):
            progress = {"progressToken": token, "progress": number, "message": TEXT}
            say(method="notifications/progress", params=progress)
            say(method="notifications/message", params={"level": "info", "data": TEXT})
        result = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
    else:
        result = {}
    say(id=request["id"], result=result)
    sys.stdout.flush()
"""


def find(pattern: str, text: str) -> str:
    """Return the first group of a pattern that the text must contain."""
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"flood: {pattern} is not in {text[:200]!r}")
    return found.group(1)


class Served:
    """A file that `toolwire run` serves over HTTP."""

    def __init__(self, process: Process, port: int, tool: str) -> None:
        self.process, self.port, self.tool = process, port, tool
        assert process.stderr is not None
        self._rest = asyncio.ensure_future(process.stderr.read())

    @classmethod
    async def start(cls, file: Path, name: str, tool: str) -> Served:
        command = (sys.executable, "-m", "toolwire", "run", f"{file}:{name}", "--transport", "http", "--port", "0")
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=DEVNULL)
        assert process.stderr is not None
        while line := (await process.stderr.readline()).decode():
            if "http://" in line:
                return cls(process, int(find(r"http://[^\s:]+:(\d+)", line)), tool)
        raise SystemExit(f"flood: {file.name} did not start")

    def memory(self) -> int:
        """Return the resident memory in MiB."""
        return int(find(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())) // 1024

    async def stop(self) -> None:
        self.process.terminate()
        await self.process.wait()
        await self._rest

    async def post(self, body: Any, **headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """Send a message; return the connection and the head of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        data = json.dumps(body).encode()
        head = [
            "POST /mcp HTTP/1.1",
            f"host: 127.0.0.1:{self.port}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            f"content-length: {len(data)}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join([*head, "", ""]).encode() + data)
        return reader, writer, (await reader.readuntil(b"\r\n\r\n")).decode()

    async def call(self, era: str, count: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Call the tool that floods; return the connection of the answer."""
        params: dict[str, Any] = {"name": self.tool, "arguments": {"count": count}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        if era == "modern":
            body = {**call, "params": {**params, "_meta": META}}
            names = {"mcp_method": "tools/call", "mcp_name": self.tool, "mcp_protocol_version": "2026-07-28"}
            reader, writer, _ = await self.post(body, **names)
            return reader, writer
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "flood", "version": "1"}}
        _, writer, head = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        writer.close()
        session = find(r"(?i)mcp-session-id: (\S+)", head)
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        (await self.post(ready, mcp_session_id=session))[1].close()
        body = {**call, "params": {**params, "_meta": {"progressToken": 1}}}
        reader, writer, _ = await self.post(body, mcp_session_id=session)
        return reader, writer


async def read(reader: asyncio.StreamReader, how: str) -> tuple[int, bool]:
    """Read as a fast, slow or absent client; return the bytes, and whether the call was answered."""
    total, last = 0, b""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS
    while how == "fast" or loop.time() < deadline:
        if how == "absent":
            await asyncio.sleep(0.1)
            continue
        data = await reader.read(1 << 16)
        total += len(data)
        last = (last + data)[-400:]
        if not data or b'"done"' in last or last.endswith(b"0\r\n\r\n"):
            break
        if how == "slow":
            await asyncio.sleep(0.05)
    return total, b'"done"' in last


async def flood(served: Served, era: str, how: str, count: int) -> tuple[int, int, bool]:
    """Flood one client; return the peak of memory, the bytes that it read, and whether it was answered."""
    peak = served.memory()

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, served.memory())
            await asyncio.sleep(0.02)

    watching = asyncio.ensure_future(watch())
    reader, writer = await served.call(era, count)
    total, is_answered = await read(reader, how)
    writer.transport.abort()
    watching.cancel()
    return peak, total, is_answered


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=700)
    count = max(1, parser.parse_args().mib * 1024 * 1024 // SIZE // 2)
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "careless.py").write_text(CARELESS)
        (place / "direct.py").write_text(DIRECT)
        direct = await Served.start(place / "direct.py", "server", "flood")
        targets = {"http": f"http://127.0.0.1:{direct.port}/mcp", "stdio": [sys.executable, str(place / "careless.py")]}
        ways = {"direct": direct}
        for name, target in targets.items():
            (place / f"over_{name}.py").write_text(GATEWAY.format(target=repr(target)))
            ways[f"gateway, {name}"] = await Served.start(place / f"over_{name}.py", "gateway", "back_flood")
        for way, served in ways.items():
            for era in ("modern", "legacy"):
                for how in ("fast", "slow", "absent"):
                    before = served.memory()
                    peak, total, is_answered = await flood(served, era, how, count)
                    is_fault = peak > LIMIT_MIB or (how == "fast" and not is_answered)
                    faults += is_fault
                    end = "answered" if is_answered else "left"
                    memory = f"{before:4} -> {peak:4} MiB, read {total >> 20:4} MiB"
                    print(f"{way:15} {era:7} {how:7} {memory}, {end}{'  FAILED' if is_fault else ''}", flush=True)
        for served in ways.values():
            await served.stop()
    print(f"flood: {'FAILED' if faults else 'passed'}, the limit is {LIMIT_MIB} MiB")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
