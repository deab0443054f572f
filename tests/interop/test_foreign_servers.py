"""Our client against servers written with another library, one release for each revision of the protocol.

Each release of the Python package `mcp` is installed in a virtual environment of its own (see `peers.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.interop import peers

from toolwire.client import Client
from toolwire.protocol import types as t
from toolwire.protocol.errors import ProtocolError

# The release, the revision it ends up with when ours is offered first, and the ones it can be pinned to.
RELEASES = {
    "1.2.1": ("2024-11-05", ["2024-11-05"]),
    "1.9.4": ("2025-03-26", ["2024-11-05", "2025-03-26"]),
    "1.22.0": ("2025-06-18", ["2024-11-05", "2025-03-26", "2025-06-18"]),
    "1.30.0": ("2025-11-25", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]),
    "2.3.0": ("2026-07-28", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]),
}
NEWEST = [(release, newest) for release, (newest, _) in RELEASES.items()]

LOW_LEVEL = """
import asyncio
import mcp.types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

server = Server("foreign")

@server.list_tools()
async def list_tools():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    return [types.Tool(name="add", description="Add", inputSchema=schema)]

@server.call_tool()
async def call_tool(name, arguments):
    return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]

@server.list_prompts()
async def list_prompts():
    return [types.Prompt(name="greet")]

@server.get_prompt()
async def get_prompt(name, arguments):
    content = types.TextContent(type="text", text="hello " + arguments["who"])
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

async def main():
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())

asyncio.run(main())
"""

HIGH_LEVEL = """
try:
    from mcp.server.fastmcp import Context, FastMCP
except ImportError:
    from mcp.server import MCPServer as FastMCP
    from mcp.server.mcpserver import Context
from pydantic import BaseModel

server = FastMCP("foreign")

class Answer(BaseModel):
    ok: bool

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool()
def rows(n: int) -> list[int]:
    return list(range(n))

@server.tool()
async def slow(ctx: Context) -> str:
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3)
    return "done"

@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("sure?", Answer)
    return f"{answer.action} {answer.data.ok}"

@server.resource("memo://a")
def memo() -> str:
    return "text"

@server.prompt()
def greet(who: str) -> str:
    return "hello " + who

server.run()
"""


@pytest.fixture
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    release: str = request.param
    python = peers.needed(f"mcp-{release}").python
    script = tmp_path / "server.py"
    script.write_text(LOW_LEVEL if release == "1.2.1" else HIGH_LEVEL, encoding="utf-8")
    return [str(python), str(script)]


def pinned() -> list[Any]:
    return [
        pytest.param(release, revision, id=f"{release}-{revision}")
        for release, (_, revisions) in RELEASES.items()
        for revision in revisions
    ]


@pytest.mark.parametrize(("command", "revision"), NEWEST, indirect=["command"])
async def test_the_newest_common_revision_is_found(command: list[str], revision: str) -> None:
    async with Client(command, probe_timeout=2) as client:
        assert client.revision == revision
        assert client.server is not None
        assert client.server.name == "foreign"
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3


@pytest.mark.parametrize(("command", "revision"), pinned(), indirect=["command"])
async def test_every_revision_it_has_can_be_used(command: list[str], revision: str) -> None:
    progress: list[Any] = []

    async with Client(command, revision=revision, elicit=lambda message, params: {"ok": True}) as client:
        assert "add" in [tool.name for tool in await client.list_tools()]
        assert await client.call_tool("add", {"a": 1, "b": 2}, returns=int) == 3
        prompt = await client.get_prompt("greet", {"who": 7})
        assert isinstance(prompt.messages[0].content, t.TextContent)
        assert prompt.messages[0].content.text == "hello 7"
        await client.ping()
        if "rows" not in [tool.name for tool in await client.list_tools()]:
            return
        assert await client.call_tool("rows", {"n": 3}, returns=list[int]) == [0, 1, 2]
        assert (await client.read_resource("memo://a"))[0].text == "text"
        assert await client.call_tool("slow", returns=str, on_progress=progress.append) == "done"
        assert [report.progress for report in progress] == [1, 2, 3]
        try:
            failed = (await client.call_tool("no-such-tool")).is_error
        except ProtocolError as error:
            failed = error.code == -32602
        assert failed


@pytest.mark.parametrize("command", ["1.22.0", "1.30.0", "2.3.0"], indirect=True)
async def test_its_questions_are_answered(command: list[str]) -> None:
    async with Client(command, revision="2025-06-18", elicit=lambda message, params: {"ok": True}) as client:
        assert await client.call_tool("ask", returns=str) == "accept True"
