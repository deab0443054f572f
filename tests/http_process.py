"""A server in a process of its own, and HTTP to it over plain sockets: what is sent is what the test says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.patience import SILENCE, patience
from tests.wireclient import MODERN, modern_meta

ADDRESS = re.compile(r"http://[^\s:]+:(\d+)")


class Served:
    """The process, once it has said where it can be reached."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self.port = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    async def line(self) -> str:
        """The next line on standard error."""
        assert self.process.stderr is not None
        # A process takes its time to start on a busy machine.
        async with patience("a line on standard error", SILENCE if self.said else 60):
            text = (await self.process.stderr.readline()).decode()
        self.said.append(text)
        return text

    async def find_address(self) -> None:
        while not self.port:
            line = await self.line()
            assert line, f"it ended with {await self.process.wait()}: {''.join(self.said)}"
            found = ADDRESS.search(line)
            self.port = int(found.group(1)) if found else 0

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> tuple[int, str]:
        """Wait for the end: the status, and everything that was said on standard error."""
        while await self.line():
            pass
        return await self.process.wait(), "".join(self.said)


@asynccontextmanager
async def started(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> AsyncIterator[Served]:
    """Run a command until the end of the block, from the moment on when it has said its address."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    served = Served(process)
    try:
        await served.find_address()
        yield served
    finally:
        if process.returncode is None:
            process.kill()
        await served.end()
        transport: Any = process._transport  # type: ignore[attr-defined]
        transport.close()


class Connection:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        """The status and the headers of the next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        pairs = (line.partition(": ") for line in lines)
        return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer, complete."""
        status, headers = await self.head()
        if headers.get("transfer-encoding") == "chunked":
            parts = [part async for part in self.chunks()]
            return status, headers, b"".join(parts)
        return status, headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of a chunked body as they come."""
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def rest(self) -> bytes:
        """What comes until the server closes the connection."""
        return await self.reader.read()

    async def events(self) -> AsyncIterator[Any]:
        """The messages of an event stream as they come."""
        held = ""
        async for chunk in self.chunks():
            *events, held = (held + chunk.decode()).split("\n\n")
            for event in events:
                data = [line.removeprefix("data:") for line in event.split("\n") if line.startswith("data:")]
                if "".join(data).strip():  # An event without a message tells its id.
                    yield json.loads("\n".join(data))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass


def post(body: bytes, headers: Mapping[str, str] | None = None, path: str = "/mcp") -> bytes:
    """A POST request as bytes."""
    given = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def modern(method: str, params: Mapping[str, Any] | None = None, identifier: int | str = 1) -> bytes:
    """A request of 2026-07-28 as bytes."""
    params = {**(params or {}), "_meta": modern_meta()}
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get("name") or params.get("uri")
    if name is not None:
        headers["Mcp-Name"] = name
    return post(json.dumps(message).encode(), headers)


def call(tool: str, **arguments: Any) -> bytes:
    return modern("tools/call", {"name": tool, "arguments": arguments})


async def text_of_call(connection: Connection, tool: str, **arguments: Any) -> str:
    """Call a tool, and give the text it returns."""
    connection.send(call(tool, **arguments))
    status, _, body = await connection.answer()
    assert status == 200, body
    text: str = json.loads(body)["result"]["content"][0]["text"]
    return text
