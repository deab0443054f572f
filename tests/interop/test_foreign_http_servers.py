"""Our client against HTTP servers written with other libraries, and against the reference servers from npm.

Like the tests over stdio: one that is not installed fails the tests that need it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers
from tests.interop.processes import listens
from tests.ports import free_port

from toolwire.client import Client
from toolwire.protocol.errors import ProtocolError

PYTHON_SERVER = """
import sys
library, transport, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if library.startswith("fastmcp"):
    from fastmcp import Context, FastMCP
    server = FastMCP("foreign")
    options = {"host": "127.0.0.1", "port": port, "show_banner": False}
elif library.startswith("mcp-1."):
    from mcp.server.fastmcp import Context, FastMCP
    server = FastMCP("foreign", host="127.0.0.1", port=port)
    options = {}
else:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    server = MCPServer("foreign")
    options = {"host": "127.0.0.1", "port": port}

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool()
async def slow(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
    return "done"

@server.resource("memo://a")
def memo() -> str:
    return "text"

@server.prompt()
def greet(who: str) -> str:
    return "hello " + who

server.run(transport=transport, **options)
"""

# The library, its transport, the path, and the revision that both sides settle on.
PYTHON_SERVERS = [
    ("mcp-2.3.0", "streamable-http", "/mcp", "2026-07-28"),
    ("mcp-2.3.0", "sse", "/sse", "2025-11-25"),
    ("mcp-1.30.0", "streamable-http", "/mcp", "2025-11-25"),
    ("mcp-1.30.0", "sse", "/sse", "2025-11-25"),
    ("mcp-1.22.0", "streamable-http", "/mcp", "2025-06-18"),
    ("mcp-1.9.4", "streamable-http", "/mcp", "2025-03-26"),
    ("mcp-1.6.0", "sse", "/sse", "2024-11-05"),
    ("fastmcp-4.1.2", "http", "/mcp", "2026-07-28"),
]


@asynccontextmanager
async def running(
    command: Sequence[str], port: int, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> AsyncIterator[None]:
    """A server process, from the moment on when somebody listens on its port."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(45):
            while not listens(port):
                assert process.returncode is None, f"{command[0]} ended with {process.returncode}"
                await asyncio.sleep(0.1)
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(("library", "transport", "path", "revision"), PYTHON_SERVERS)
async def test_servers_in_python(library: str, transport: str, path: str, revision: str, tmp_path: Path) -> None:
    peer = peers.needed(library)
    script = tmp_path / "server.py"
    script.write_text(PYTHON_SERVER, encoding="utf-8")
    port = free_port()
    command = [str(peer.python), str(script), library, transport, str(port)]
    async with running(command, port), Client(f"http://127.0.0.1:{port}{path}") as client:
        assert client.revision == revision
        assert client.server is None or client.server.name == "foreign"
        assert "add" in [tool.name for tool in await client.list_tools()]
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        steps: list[Any] = []
        assert (await client.call_tool("slow", on_progress=steps.append)).text == "done"
        # Older releases report on the server's own stream, where reports may come after the answer.
        assert len(steps) == 3 or library in ("mcp-1.22.0", "mcp-1.9.4")
        assert (await client.read_resource("memo://a"))[0].text == "text"
        assert (await client.get_prompt("greet", {"who": "you"})).messages
        results = await asyncio.gather(*[client.call_tool("add", {"a": n, "b": n}, returns=int) for n in range(20)])
        assert results == [2 * n for n in range(20)]
        await client.ping()


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_every_revision_over_http(revision: str, tmp_path: Path) -> None:
    peer = peers.needed("mcp-2.3.0")
    script = tmp_path / "server.py"
    script.write_text(PYTHON_SERVER, encoding="utf-8")
    port = free_port()
    command = [str(peer.python), str(script), "mcp-2.3.0", "streamable-http", str(port)]
    async with running(command, port), Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as client:
        assert client.revision == revision
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


# --- from npm ---


@pytest.fixture
def node() -> str:
    return str(peers.needed_node())


def package(name: str) -> str:
    return str(peers.node_folder() / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js")


@pytest.mark.parametrize("revision", [None, "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_on_the_typescript_packages(node: str, transport: str, revision: str | None) -> None:
    script = peers.node_script("serve_node.mjs")
    if transport == "stdio":
        async with Client([node, str(script), "stdio"], revision=revision) as client:
            await _adds(client, revision)
        return
    port = free_port()
    async with (
        running([node, str(script), "http", str(port)], port),
        Client(f"http://127.0.0.1:{port}/mcp", revision=revision) as client,
    ):
        await _adds(client, revision)


async def _adds(client: Client, revision: str | None) -> None:
    assert client.revision == (revision or "2026-07-28")
    assert [tool.name for tool in await client.list_tools()] == ["add"]
    assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
    assert (await client.read_resource("memo://a"))[0].text == "text"


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp", "sse"])
async def test_the_everything_server(node: str, transport: str) -> None:
    command = [node, package("server-everything"), transport]
    if transport == "stdio":
        async with Client(command) as client:
            await _uses_everything(client)
        return
    port = free_port()
    path = "/sse" if transport == "sse" else "/mcp"
    async with (
        running(command, port, {"PORT": str(port)}),
        Client(f"http://127.0.0.1:{port}{path}", elicit=lambda message, params: {}) as client,
    ):
        await _uses_everything(client)


async def _uses_everything(client: Client) -> None:
    tools = {tool.name for tool in await client.list_tools()}
    assert (await client.call_tool("echo", {"message": "hi"})).text == "Echo: hi"
    assert "get-sum" in tools
    assert "3" in (await client.call_tool("get-sum", {"a": 1, "b": 2})).text
    steps: list[Any] = []
    long = {"duration": 0.2, "steps": 2}
    await client.call_tool("trigger-long-running-operation", long, on_progress=steps.append)
    assert len(steps) == 2
    resources = await client.list_resources()
    assert await client.read_resource(resources[0].uri)
    assert await client.list_prompts()
    with pytest.raises(ProtocolError):
        await client.get_prompt("no such prompt")


async def test_the_filesystem_server(node: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("found", encoding="utf-8")
    async with Client([node, package("server-filesystem"), str(tmp_path)], roots=[tmp_path]) as client:
        assert "a.txt" in (await client.call_tool("list_directory", {"path": str(tmp_path)})).text
        assert "found" in (await client.call_tool("read_text_file", {"path": str(tmp_path / "a.txt")})).text
        outside = await client.call_tool("read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
